package server

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// askFields sends the fields of a request unchanged, as pairs "name value", then a body and
// trailing fields if there are any, and returns the status of the answer, "" if there is none.
func askFields(
	t *testing.T, visitors string, fields []string, body string, trailers ...string,
) (status string) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(visitors, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	encode := func(fields []string) []byte {
		block.Reset()
		for _, pair := range fields {
			name, value, _ := strings.Cut(pair, " ")
			if err := enc.WriteField(hpack.HeaderField{Name: name, Value: value}); err != nil {
				t.Fatal(err)
			}
		}
		return block.Bytes()
	}
	io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	f.AllowIllegalWrites = true
	f.WriteSettings()
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: encode(fields),
		EndStream: body == "" && len(trailers) == 0, EndHeaders: true})
	if body != "" || len(trailers) > 0 {
		f.WriteData(1, len(trailers) == 0, []byte(body))
	}
	if len(trailers) > 0 {
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: encode(trailers), EndStream: true,
			EndHeaders: true})
	}
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return "" // the connection has ended
		}
		switch x := frame.(type) {
		case *http2.MetaHeadersFrame:
			return x.PseudoValue("status")
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return ""
		}
	}
}

// list holds changes of a request: "name value" replaces a field, "+name value" adds one, "-name"
// removes one.
type list []string

func (l list) fields() []string {
	all := []string{":method GET", ":scheme http", ":authority open.example", ":path /a"}
	for _, change := range l {
		rest, adds := strings.CutPrefix(change, "+")
		name, _, _ := strings.Cut(strings.TrimPrefix(rest, "-"), " ")
		at := slices.IndexFunc(all, func(s string) bool { return strings.HasPrefix(s, name+" ") })
		switch {
		case adds:
			all = append(all, rest)
		case rest[0] == '-':
			all = slices.Delete(all, at, at+1)
		default:
			all[at] = change
		}
	}
	return all
}

// What HTTP/2 requests may contain in pseudo-headers and beside them: the room decides on the host
// and the path that are sent to the origin, and the origin gets one request or none. The room of
// shop.example admits nobody, that of open.example everybody.
func TestPseudoHeaders(t *testing.T) {
	const crlf = "\r\nHost: shop.example\r\n\r\nGET /hidden"
	o, url := record(t)
	visitors, _, _ := start(t, url, "  - {name: shop, host: shop.example, closed: true, "+limitsOfCORS+"}\n"+
		"  - {name: open, host: open.example, suspended: true, "+limitsOfCORS+"}\n")
	for _, x := range []struct {
		want    string
		changes list
	}{
		{"200", nil}, {"503", list{":authority shop.example"}},
		{"", list{"-:path"}}, {"", list{"+:path /b"}}, {"", list{":path "}}, {"", list{":path a"}},
		{"400", list{":path *"}}, {"400", list{":path http://shop.example/a"}}, {"400", list{":path http:a"}},
		{"200", list{":path //shop.example/a"}}, {"200", list{":path /a#b"}}, {"200", list{":path /a b"}},
		{"308", list{":authority shop.example", ":path /a#/../robots.txt"}},
		{"308", list{":authority shop.example", ":path /robots.txt#/../a"}},
		{"308", list{":authority shop.example", ":path /x/..%2frobots.txt"}},
		{"308", list{":authority shop.example", `:path /x\..\robots.txt`}},
		{"200", list{":authority shop.example", ":path /robots.txt?/../../a"}}, // excluded
		{"503", list{":authority shop.example", ":path /robots.txt HTTP/1.1"}},
		{"", list{":authority shop.example", ":path /robots.txt\x00/a"}}, {"", list{":path /a\tb"}},
		{"", list{":path /a HTTP/1.1" + crlf}}, {"", list{":path /a?x HTTP/1.1" + crlf}},
		{"", list{":path /a?\x00"}},
		{"400", list{":path /a?b c"}}, {"400", list{":path /robots.txt?x HTTP/1.0"}},
		{"", list{":path /a\x7f"}}, {"", list{":path /a%zz"}}, {"200", list{":path /\xff\x80"}},
		{"200", list{"+host shop.example"}}, {"503", list{":authority shop.example", "+host open.example"}},
		{"200", list{"-:authority", "+host open.example"}}, {"404", list{"-:authority"}},
		{"200", list{"-:authority", "+host open.example", "+host shop.example"}},
		{"200", list{":authority ", "+host open.example"}}, {"", list{"+:authority shop.example"}},
		{"", list{":authority shop.example@open.example"}}, {"", list{":authority open.example@shop.example"}},
		{"400", list{":authority open.example/b"}}, {"400", list{":authority open.example x"}},
		{"400", list{":authority open.example,shop.example"}}, {"503", list{":authority SHOP.example"}},
		{"", list{":authority open.example\r\nX-Hidden: b"}}, {"", list{":authority open.example\x00"}},
		{"200", list{":scheme https"}}, {"", list{":scheme ftp"}}, {"", list{":scheme "}}, {"", list{"-:scheme"}},
		{"", list{":scheme HTTP"}}, {"", list{"+:scheme https"}},
		{"", list{":scheme http://shop.example/hidden?"}},
		{"", list{"-:method"}}, {"", list{":method "}}, {"", list{"+:method POST"}},
		{"400", list{":method GET /hidden HTTP/1.1"}}, {"", list{":method GET /hidden HTTP/1.1" + crlf}},
		{"400", list{":method GET:"}}, {"503", list{":method get", ":authority shop.example"}},
		{"", list{"+:x y"}}, {"", list{"+:status 200"}}, {"", list{"+: y"}},
		{"", list{"-:path", "+x-a b", "+:path /a"}},
		{"400", list{"+connection close"}}, {"400", list{"+keep-alive timeout=5"}}, {"400", list{"+te gzip"}},
		{"400", list{"+proxy-connection close"}}, {"400", list{"+transfer-encoding chunked"}},
		{"400", list{"+upgrade websocket"}}, {"200", list{"+te trailers"}},
		{"200", list{"+http2-settings AAMAAABk"}},
		{"", list{"+X-Upper a"}}, {"", list{"+x-a\tb c"}}, {"", list{"+x-a:b c"}}, {"", list{"+ c"}},
		{"", list{"+x-a b\r\nx-hidden: c"}}, {"", list{"+x-a b\nx-hidden: c"}}, {"", list{"+x-a b\rx-hidden: c"}},
		{"", list{"+x-a b\x00c"}}, {"200", list{"+x-a  b "}},
		{"200", list{"+content-length 1", "+content-length 3"}}, {"200", list{"+content-length 3, 3"}},
		{"200", list{"+content-length +3"}},
		{"400", list{":method CONNECT", "-:path", "-:scheme"}}, {"", list{":method CONNECT"}},
		{"", list{":method CONNECT", "+:protocol websocket"}}, {"", list{"+:protocol websocket"}},
	} {
		before := len(o.of(""))
		got := askFields(t, visitors, x.changes.fields(), "")
		if seen := o.of("")[before:]; got != x.want || (len(seen) == 1) != (got == "200") {
			t.Errorf("%q: answered %q, want %q; the origin saw %q", x.changes, got, x.want, seen)
		}
	}
	post := list{":method POST"}
	for _, x := range []struct { // bodies that arrive after the answer has begun, or before
		changes  list
		body     string
		trailers list
	}{
		{append(post, "+transfer-encoding chunked"), "0\r\n\r\nGET /hidden HTTP/1.1\r\n\r\n", nil},
		{append(post, "+content-length 1"), "aGET /hidden HTTP/1.1\r\nHost: x\r\n\r\n", nil},
		{post, "abc", list{":path /hidden"}}, {post, "abc", list{":status 200"}},
		{post, "abc", list{"x-hidden 1"}}, {append(post, "+trailer x-t"), "abc", list{"x-t 1\r\nx-hidden: 2"}},
		{append(post, "+trailer x-t\r\nx-hidden: 2"), "abc", list{"x-t 1"}},
		{append(post, "+trailer content-length, transfer-encoding, host"), "abc",
			list{"content-length 1", "transfer-encoding chunked", "host hidden"}},
		{append(post, "+trailer cookie, x-forwarded-for, headgate-poll"), "abc",
			list{"cookie hidden=1", "x-forwarded-for 192.0.2.1", "headgate-poll 1"}},
		{list{":method POST", ":authority shop.example"}, "abc", list{":path /hidden", ":authority open.example"}},
	} {
		askFields(t, visitors, x.changes.fields(), x.body, x.trailers...)
	}
	for _, m := range o.of("") {
		hosts := strings.Count(m, "\r\nHost: ")
		room := strings.Contains(m, "\r\nHost: open.example\r\n") || strings.HasPrefix(m, "GET /robots.txt?")
		if lower := strings.ToLower(m); hosts != 1 || !room || strings.Contains(lower, "x-hidden") ||
			strings.Contains(lower, "hidden=1") || strings.Contains(lower, "192.0.2.1") ||
			strings.Contains(lower, "get /hidden http") && strings.HasPrefix(lower, "get /hidden") {
			t.Errorf("the origin saw %q", m)
		}
	}
}

// Some origins read trailers as headers, and some proxies merge those of an answer into its header
// (RFC 9110 §6.5.1): what headgate strips from a header must not come by trailer either.
func TestTrailersOfRequestsStopHere(t *testing.T) {
	url, heads := rawOrigin(t, okAnswer)
	visitors, _, _ := start(t, url, oneRoom)
	const names = "Cookie, Headgate-Pass, X-Forwarded-For, True-Client-IP, Host, Authorization, X-Sum"
	const values = "cookie: 6.6.6.6\r\nheadgate-pass: 6.6.6.6\r\nx-forwarded-for: 6.6.6.6\r\n" +
		"true-client-ip: 6.6.6.6\r\nx-sum: 6.6.6.6\r\nx-unannounced: 6.6.6.6\r\n"
	const framing = "host: 6.6.6.6\r\nauthorization: 6.6.6.6\r\ncontent-length: 6\r\n" + // HTTP/2: no stream
		"transfer-encoding: 6.6.6.6\r\n"
	res := askRaw(t, visitors, "POST /robots.txt HTTP/1.1\r\nHost: x\r\nTE: trailers\r\n"+
		"Transfer-Encoding: chunked\r\nTrailer: "+names+"\r\n\r\n1\r\na\r\n0\r\n"+values+framing+"\r\n")
	if res.StatusCode != 200 {
		t.Fatal(res.Status)
	}
	h1 := <-heads
	var trailers []string
	for line := range strings.Lines(values) {
		trailers = append(trailers, strings.Replace(strings.TrimSpace(line), ":", "", 1))
	}
	fields := list{":method POST", ":path /robots.txt", "+trailer " + strings.ToLower(names)}.fields()
	if status := askFields(t, visitors, fields, "a", trailers...); status != "200" {
		t.Fatal(status)
	}
	for proto, text := range map[string]string{"HTTP/1.1": h1, "HTTP/2": <-heads} {
		if strings.Contains(text, "6.6.6.6") || strings.Contains(text, "\r\nTrailer:") {
			t.Errorf("by %s the origin reads\n%s", proto, text)
		}
	}
}

// An origin that announces Set-Cookie as a trailer must not make net/http repeat the visitor's pass
// there, and a trailer must not make the answer cacheable again.
func TestTrailersOfAnswersChangeNoHeader(t *testing.T) {
	const trailers = "0\r\nSet-Cookie: __cfwaitingroom_shop=x\r\nSet_Cookie: x\r\nCache-Control: public\r\n" +
		"CDN-Cache-Control: max-age=9\r\nX_Accel_Expires: 9\r\nExpires: x\r\nVary: x\r\nHeadgate-State: called\r\n" +
		"Headgate-Command: revoke\r\nCf-Waiting-Room-Command: revoke\r\nContent-Length: 3\r\nX-Sum: 7\r\n\r\n"
	const head = "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
	for announced, answer := range map[bool]string{
		false: head + "\r\n2\r\nok\r\n" + trailers,
		true: head + "Trailer: Set-Cookie, Cache-Control, Vary, Expires, X-Sum, Headgate-Command\r\n\r\n2\r\nok\r\n" +
			trailers,
	} {
		url, _ := rawOrigin(t, answer)
		visitors, _, _ := start(t, url, strings.ReplaceAll(oneRoom, "users: 1,", "users: 100,"))
		h1 := askRaw(t, visitors, "GET / HTTP/1.1\r\nHost: x\r\nTE: trailers\r\n\r\n")
		r, err := http.NewRequestWithContext(t.Context(), "GET", visitors+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		h2, err := overH2C(t).RoundTrip(r)
		if err != nil || h2.ProtoMajor != 2 {
			t.Fatal(h2, err)
		}
		for proto, res := range map[string]*http.Response{"HTTP/1.1": h1, "HTTP/2": h2} {
			h := res.Header
			if res.StatusCode != 200 || len(res.Cookies()) != 1 || h.Get("Cache-Control") != "private" {
				t.Errorf("by %s: %s %v", proto, res.Status, h)
			}
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if len(res.Trailer) != 1 || res.Trailer.Get("X-Sum") != "7" {
				t.Errorf("by %s, announced %v: trailers %q", proto, announced, res.Trailer)
			}
		}
	}
}

// Frameworks believe more headers about the client than X-Forwarded-For: chi reads True-Client-IP
// first, and others take the host, and so the room, from X-Original-Host.
func TestClaimsOfTheClientStopHere(t *testing.T) {
	const claims = "True-Client-IP: 6.6.6.6\r\nCF-Connecting-IP: 6.6.6.6\r\nX-Client-IP: 6.6.6.6\r\n" +
		"Client-IP: 6.6.6.6\r\nFastly-Client-IP: 6.6.6.6\r\nFly-Client-IP: 6.6.6.6\r\nX-Forwarded: 6.6.6.6\r\n" +
		"X-Cluster-Client-IP: 6.6.6.6\r\nX-Azure-ClientIP: 6.6.6.6\r\nX-Original-Host: 6.6.6.6\r\n" +
		"X-Host: 6.6.6.6\r\nX_Client_IP: 6.6.6.6\r\nX-HTTP-Host-Override: 6.6.6.6\r\n"
	for trusted, want := range map[string]int{"": 0, "trusted_proxies: [127.0.0.1/32]\n": strings.Count(claims, "\n") - 1} {
		url, heads := rawOrigin(t, okAnswer)
		visitors, _, _ := start(t, url, oneRoom+trusted)
		if res := askRaw(t, visitors, "GET / HTTP/1.1\r\nHost: x\r\n"+claims+"\r\n"); res.StatusCode != 200 {
			t.Fatal(res.Status)
		}
		if text := <-heads; strings.Count(text, "6.6.6.6") != want {
			t.Errorf("with %q the origin reads\n%s", trusted, text)
		}
	}
}
