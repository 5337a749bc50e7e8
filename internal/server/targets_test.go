package server

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const closedAndOpen = `
  - {name: shop, host: shop.example, origin: ORIGIN, closed: true, total_active_users: 9, new_users_per_minute: 9}
  - {name: rest, origin: ORIGIN, suspended: true, total_active_users: 9, new_users_per_minute: 9}
`

// TestWalls3TargetsThatAreNoPath: finding 3. What is no path is decided on by nobody, and goes to
// nobody.
func TestWalls3TargetsThatAreNoPath(t *testing.T) {
	origin := newLineOrigin(t)
	visitors, _, _ := start(t, origin.url, closedAndOpen)
	for _, start := range []string{
		"GET http:http://shop.example/tickets", "POST http:/tickets", "GET shop.example:80", "GET *", "POST *",
		"GET http://shop.example", "GET http://shop.example?x", "GET x:y", "GET ?x", "GET tickets",
		"GET mailto:a@shop.example", "CONNECT shop.example:443",
		"CONNECT /tickets", "CONNECT http://shop.example/",
		"GET http://%73hop.example/", "GET http://other.example:80:80/",
	} {
		r := raw(t, visitors, start+" HTTP/1.1\r\nHost: other.example\r\n\r\n")
		if lines, _ := origin.seen(); r.StatusCode != http.StatusBadRequest || len(lines) > 0 {
			t.Errorf("%s: %d, and the origin saw %q", start, r.StatusCode, lines)
		}
	}
	r := raw(t, visitors, "OPTIONS * HTTP/1.1\r\nHost: other.example\r\n\r\n")
	if lines, _ := origin.seen(); r.StatusCode != http.StatusOK || len(lines) > 0 || len(r.body) > 0 {
		t.Errorf("OPTIONS *: %d, and the origin saw %q", r.StatusCode, lines)
	}
}

// TestWalls3TheHostOfATargetDecides: the host that is decided on is the one that is sent.
func TestWalls3TheHostOfATargetDecides(t *testing.T) {
	origin := newLineOrigin(t)
	visitors, _, _ := start(t, origin.url, closedAndOpen)
	if r := raw(t, visitors, "GET http://shop.example/a HTTP/1.1\r\nHost: other.example\r\n\r\n"); r.StatusCode != 503 {
		t.Errorf("the room of the target's host: %d", r.StatusCode)
	}
	if r := raw(t, visitors, "GET http://u:p@SHOP.example:81/a HTTP/1.1\r\nHost: x\r\n\r\n"); r.StatusCode != 503 {
		t.Errorf("the room of the target's host: %d", r.StatusCode)
	}
	raw(t, visitors, "GET http://other.example:81/a%2fb?c HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	lines, hosts := origin.seen()
	if len(lines) != 1 || lines[0] != "GET /a%2fb?c HTTP/1.1" || hosts[0] != "other.example:81" {
		t.Errorf("the origin saw %q of %q", lines, hosts)
	}
	if r := raw(t, visitors, "GET / HTTP/1.1\r\nHost: other.example\r\nHost: shop.example\r\n\r\n"); r.StatusCode != 400 {
		t.Errorf("two hosts: %d", r.StatusCode)
	}
}

// TestWalls16HostsAreReadInOneWay: finding 16. Each Host is of its room and is sent as it was read,
// or is refused.
func TestWalls16HostsAreReadInOneWay(t *testing.T) {
	origin := newLineOrigin(t)
	visitors, _, _ := start(t, origin.url, closedAndOpen)
	ask := func(host string) (int, []string) {
		t.Helper()
		r := raw(t, visitors, "POST /robots.tx HTTP/1.1\r\nHost: "+host+"\r\nContent-Length: 0\r\n\r\n")
		_, hosts := origin.seen()
		return r.StatusCode, hosts
	}
	for _, host := range []string{"shop.example", "SHOP.example:80", "shop.example.", "Shop.Example.:8080",
		"shop.example:"} {
		if code, hosts := ask(host); code != 503 || len(hosts) > 0 {
			t.Errorf("%s: %d, and the origin saw %q", host, code, hosts)
		}
	}
	for _, host := range []string{
		"shop.example..", "shop.example..:80", "shop..example", ".shop.example", ".", "shop.example:80:80",
		"shop.example:x", "a@shop.example", "shop.example@a", "shop.example a",
		"shop%2eexample", "shop.example/",
		"shop.example\\", "shop.example,other", "[::1%25eth0]", "[::1", "::1", "[shop.example]",
		"sh\xc3\xb6p.example",
		"shop.example#", "shop.example?", "shop.example;", ":80", "shop.example:123456",
	} {
		if code, hosts := ask(host); code != 400 || len(hosts) > 0 {
			t.Errorf("%s: %d, and the origin saw %q", host, code, hosts)
		}
	}
	for host, want := range map[string]string{
		"other.example.": "other.example", "other.example.:81": "other.example:81",
		"A_b.example":      "A_b.example",
		"[2001:db8::1]:80": "[2001:db8::1]:80", "127.0.0.1": "127.0.0.1",
	} {
		if code, hosts := ask(host); code != 200 || len(hosts) != 1 || hosts[0] != want {
			t.Errorf("%s: %d, and the origin saw %q", host, code, hosts)
		}
	}
}

// TestWalls3TargetsByHTTP2: the same for pseudo-headers.
func TestWalls3TargetsByHTTP2(t *testing.T) {
	origin := newLineOrigin(t)
	visitors, _, _ := start(t, origin.url, closedAndOpen)
	for _, x := range []struct{ method, authority, path, want string }{
		{"GET", "other.example", "/a%2fb", "200"},
		{"GET", "shop.example", "/a", "503"},
		{"GET", "shop.example..", "/a", "400"},
		{"GET", "other.example", "tickets", ""},
		{"GET", "other.example", "http:http://shop.example/tickets", "400"},
		{"GET", "other.example", "http://shop.example/tickets", "400"},
		{"GET", "other.example", "", ""},
		{"GET", "other.example", "*", "400"},
		{"POST", "shop.example", "/x/..%2frobots.txt", "400"},
		{"CONNECT", "shop.example:443", "", "400"},
	} {
		got := askHTTP2(t, visitors, x.method, x.authority, x.path)
		lines, _ := origin.seen()
		if got != x.want || (len(lines) > 0) != (x.want == "200") {
			t.Errorf("%s %s%s: %q, want %q; the origin saw %q", x.method, x.authority, x.path, got, x.want, lines)
		}
	}
}

// askHTTP2 returns the status of an answer, "" if the stream was reset.
func askHTTP2(t *testing.T, visitors, method, authority, path string) (status string) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(visitors, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var block bytes.Buffer
	head := hpack.NewEncoder(&block)
	field := func(name, value string) { head.WriteField(hpack.HeaderField{Name: name, Value: value}) }
	field(":method", method)
	field(":authority", authority)
	if method != "CONNECT" {
		field(":scheme", "http")
		field(":path", path)
	}
	io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.WriteSettings()
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(),
		EndStream: true, EndHeaders: true})
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch x := frame.(type) {
		case *http2.MetaHeadersFrame:
			return x.PseudoValue("status")
		case *http2.RSTStreamFrame:
			return ""
		}
	}
}
