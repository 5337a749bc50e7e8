package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// OPTIONS and HEAD once passed with any path, cookies and bodies, also while the room was closed.
func TestOptionsAndHeadAreNoWayAround(t *testing.T) {
	var asked, cookies atomic.Int64
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header["Cookie"] != nil {
			cookies.Add(1)
		}
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "of the origin"})
		w.Header().Set("X-Origin", "1")
		fmt.Fprint(w, "the page, rendered whole")
	}))
	defer origin.Close()
	const limits = "origin: ORIGIN, total_active_users: 1, new_users_per_minute: 100"
	visitors, operators, _ := start(t, origin.URL, "  - {name: full, path: /full, "+limits+"}\n"+
		"  - {name: shut, path: /shut, closed: true, "+limits+"}\n"+
		"  - {name: soon, path: /soon, opens_at: 2100-01-01T00:00:00Z, "+limits+"}\n"+
		"  - {name: free, path: /free, "+limits+"}\n"+
		"  - {name: asis, path: /asis, closed: true, exclude: {methods: [OPTIONS, HEAD]}, "+limits+"}\n")
	var inside strings.Builder // has the one slot
	for _, c := range get(t, visitors+"/full", "").Cookies() {
		inside.WriteString(c.Name + "=" + c.Value + "; ")
	}
	const preflight = "Origin: https://a.example\r\nAccess-Control-Request-Method: PUT\r\n"
	for _, x := range []struct {
		what, line, headers string
		passes, cookie      bool
	}{
		{"a preflight", "OPTIONS /%s", preflight + "Cookie: session=1\r\n", true, false},
		{"OPTIONS", "OPTIONS /%s", "", false, false},
		{"without Origin", "OPTIONS /%s", "Access-Control-Request-Method: PUT\r\n", false, false},
		{"without the method", "OPTIONS /%s", "Origin: https://a.example\r\n", false, false},
		{"with a body", "OPTIONS /%s", preflight + "Content-Length: 1\r\n", false, false},
		{"with a chunked body", "OPTIONS /%s", preflight + "Transfer-Encoding: chunked\r\n", false, false},
		{"HEAD", "HEAD /%s", "Cookie: session=1\r\n", false, false},
	} {
		for _, room := range []string{"full", "shut", "soon"} {
			asked.Store(0)
			cookies.Store(0)
			c, _ := dial(t, visitors)
			body := ""
			if x.what == "with a body" {
				body = "x"
			} else if x.what == "with a chunked body" {
				body = "1\r\nx\r\n0\r\n\r\n"
			}
			fmt.Fprintf(c, x.line+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+x.headers+"\r\n"+body, room)
			all, err := io.ReadAll(c)
			if err != nil {
				t.Fatal(err)
			}
			if got := asked.Load() > 0; got != x.passes {
				t.Errorf("%s, room %s: at the origin %v, want %v: %s", x.what, room, got, x.passes, all)
			}
			if cookies.Load() > 0 || contains(all, "of the origin") || contains(all, "rendered") {
				t.Errorf("%s, room %s: cookies at the origin %d, answer %s", x.what, room, cookies.Load(), all)
			}
			if !x.passes && !contains(all, " 503 ") {
				t.Errorf("%s, room %s: %s", x.what, room, all)
			}
		}
	}
	head := func(method, path, cookie string) *http.Response {
		asked.Store(0)
		cookies.Store(0)
		r, err := http.NewRequestWithContext(t.Context(), method, visitors+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Cookie", cookie)
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res
	}
	for range 3 { // a monitor takes no slot
		if res := head("HEAD", "/free", "session=1"); res.StatusCode != 200 || asked.Load() != 1 ||
			cookies.Load() != 0 || len(res.Cookies()) != 0 {
			t.Errorf("HEAD in a room with a free slot: %d, cookies %d %v", res.StatusCode, cookies.Load(), res.Cookies())
		}
	}
	if res := get(t, visitors+"/free", ""); res.StatusCode != 200 {
		t.Errorf("HEAD has taken the slot: %d", res.StatusCode)
	}
	for _, method := range []string{"HEAD", "OPTIONS"} { // with a pass every method passes
		if res := head(method, "/full", inside.String()); res.StatusCode != 200 || cookies.Load() != 1 ||
			len(res.Cookies()) == 0 {
			t.Errorf("%s of a visitor inside: %d, cookies %d %v", method, res.StatusCode, cookies.Load(), res.Cookies())
		}
		if res := head(method, "/asis", "session=1"); res.StatusCode != 200 || cookies.Load() != 1 {
			t.Errorf("%s that the file excludes: %d, cookies %d", method, res.StatusCode, cookies.Load())
		}
	}
	if s := status(t, operators); s.ActiveUsers != 1 {
		t.Errorf("%d are inside", s.ActiveUsers)
	}
}

// A monitor that asks by HEAD must not take the waiting page for the site.
func TestHeadThatWaitsIs503(t *testing.T) {
	for _, code := range []string{"200", "202", "429", "503"} {
		visitors, _, _ := start(t, "http://127.0.0.1:1", "  - {name: shut, origin: ORIGIN, closed: true, "+
			"total_active_users: 1, new_users_per_minute: 100, queueing_status_code: "+code+"}\n")
		page := askRaw(t, visitors, "GET / HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\n\r\n")
		if page.Status[:3] != code {
			t.Fatalf("the page has %s, not %s", page.Status, code)
		}
		for _, accept := range []string{"text/html", "application/json", "*/*", "image/png"} {
			res := askRaw(t, visitors, "HEAD / HTTP/1.1\r\nHost: x\r\nAccept: "+accept+"\r\n\r\n")
			if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
				t.Errorf("HEAD for %s where pages have %s: %s, Retry-After %q", accept, code, res.Status,
					res.Header.Get("Retry-After"))
			}
		}
	}
}

func contains(all []byte, text string) bool { return bytes.Contains(all, []byte(text)) }
