package server

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

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
