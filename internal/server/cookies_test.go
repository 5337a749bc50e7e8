package server

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// crumbs sends a request over HTTP/2 with each cookie line in a field of its own, as RFC 9113 §8.2.3
// allows, and returns the status of the answer.
func crumbs(t *testing.T, url string, lines []string) (status string) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	field := func(name, value string) { enc.WriteField(hpack.HeaderField{Name: name, Value: value}) }
	field(":method", "GET")
	field(":scheme", "http")
	field(":authority", strings.TrimPrefix(url, "http://"))
	field(":path", "/")
	field("accept", "text/html")
	for _, l := range lines {
		field("cookie", l)
	}
	io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.WriteSettings()
	const piece = 16 << 10
	b := block.Bytes()
	n := min(piece, len(b))
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:n], EndStream: true,
		EndHeaders: n == len(b)})
	for b = b[n:]; len(b) > 0; b = b[n:] {
		n = min(piece, len(b))
		f.WriteContinuation(1, n == len(b), b[:n])
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			return frame.PseudoValue("status")
		case *http2.GoAwayFrame:
			return frame.ErrCode.String()
		}
	}
}

// Cookies of 4 kB in fragments do not hide a pass, do not stand in for one, and reach the origin
// whole, without ours.
func TestCookiesInFragments(t *testing.T) {
	var seen atomic.Pointer[http.Header]
	origin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen.Store(&r.Header)
	}))
	t.Cleanup(origin.Close)
	visitors, _, _ := start(t, origin.URL, "  - {name: shop, origin: ORIGIN, total_active_users: 1, "+
		"new_users_per_minute: 100, session_duration: 10m}\n")
	pass := get(t, visitors, "").cookie
	name, value, _ := strings.Cut(pass, "=")
	var big []string
	for i := range 12 {
		big = append(big, fmt.Sprintf("c%d=", i)+strings.Repeat("v", 4090))
	}
	forged := make([]string, 250)
	for i := range forged {
		forged[i] = name + "=" + value[:len(value)-2] + "AA"
	}
	near := []string{"x" + name + "=1", name + "x=1", "q=\"" + name + "\"", "="}
	for _, c := range []struct {
		what  string
		lines []string
		want  string
		kept  []string
	}{
		{"last of many", slices.Concat(big, []string{pass}), "200", big},
		{"first of many", slices.Concat([]string{pass}, big), "200", big},
		{"in one line with others", []string{big[0] + "; " + pass + ";" + big[1]}, "200", big[:2]},
		{"between forged ones", slices.Concat(forged[:100], []string{pass}, forged[:100]), "200", nil},
		{"beside names that are like it", slices.Concat(near, []string{pass}), "200", near[:1]},
		{"in two pieces", []string{pass[:len(pass)/2], pass[len(pass)/2:]}, "503", nil},
		{"forged ones alone", forged, "503", nil},
		{"too many", slices.Concat(big, big[:5], []string{pass}), "431", nil},
		{"once more", []string{pass}, "200", nil},
	} {
		seen.Store(nil)
		if got := crumbs(t, visitors, c.lines); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		h := seen.Load()
		if (h != nil) != (c.want == "200") {
			t.Errorf("%s: the origin was asked: %v", c.what, h != nil)
		}
		if h == nil {
			continue
		}
		cookies := "; " + strings.Join((*h)["Cookie"], "; ") + ";"
		if strings.Contains(cookies, " "+name+"=") || strings.Contains(cookies, value) {
			t.Errorf("%s: the origin reads our cookie", c.what)
		}
		for _, line := range c.kept {
			if !strings.Contains(cookies, "; "+line+";") {
				t.Errorf("%s: the origin misses %.20s…", c.what, line)
			}
		}
	}
}

// A sibling host can set cookies of the common domain, but none with __Host-: what it got for
// itself never stands in for a visitor's own cookie.
func TestACookieOfASiblingHostCostsNobodyAPlace(t *testing.T) {
	visitors, _, _ := start(t, "http://127.0.0.1:1", "  - {name: shop, origin: ORIGIN, total_active_users: 1, "+
		"new_users_per_minute: 100, queue_all: true}\n  - {name: free, host: free.example, origin: ORIGIN, "+
		"total_active_users: 1, new_users_per_minute: 100, queue_all: true}\ntrusted_proxies: [127.0.0.1]\n")
	ask := func(host, more string) (cookie, number string) {
		res := askRaw(t, visitors, "GET / HTTP/1.1\r\nHost: "+host+"\r\nX-Forwarded-Proto: https\r\n"+
			"Accept: application/json\r\nConnection: close\r\n"+more+"\r\n")
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range res.Cookies() {
			cookie = c.Name + "=" + c.Value
		}
		_, number, _ = strings.Cut(string(b), `"number":`)
		number, _, _ = strings.Cut(number, ",")
		return cookie, number
	}
	own, place := ask("x", "")
	foreign, _ := ask("x", "") // of the same second or a later one
	other, _ := ask("free.example", "")
	for what, tossed := range map[string]string{
		"a place behind": strings.TrimPrefix(foreign, "__Host-"),
		"another room's": strings.Replace(other, "__Host-__cfwaitingroom_free", "__cfwaitingroom_shop", 1),
		"none":           "__cfwaitingroom_shop=AAAA",
	} {
		for _, line := range []string{tossed + "; " + own, own + "; " + tossed,
			own + "\r\nCookie: " + tossed} {
			set, got := ask("x", "Cookie: "+line+"\r\n")
			if got != place || set != "" && !strings.HasPrefix(set, "__Host-") {
				t.Errorf("%s: the place is %s, not %s, and the answer sets %q", what, got, place, set)
			}
		}
	}
}
