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
