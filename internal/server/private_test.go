package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A cache that keeps an answer with a pass in it lets everybody in by that pass.
func TestAnAnswerWithOurCookieIsPrivate(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for pair := range strings.SplitSeq(r.Header.Get("X-Answer"), "|") {
			if name, value, ok := strings.Cut(pair, ": "); ok {
				w.Header().Add(name, value)
			}
		}
		fmt.Fprint(w, "origin")
	}))
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, strings.ReplaceAll(oneRoom, "users: 1,", "users: 100,"))
	for _, x := range []struct{ answer, control, vary, expires string }{
		{"", "private", "Cookie", ""},
		{"Cache-Control: public, max-age=60", "private, max-age=60", "Cookie", ""},
		{"Cache-Control: max-age=60, s-maxage=600, must-revalidate", "private, max-age=60, must-revalidate", "Cookie", ""},
		{"Cache-Control: public|Cache-Control: S-MaxAge=9|Vary: Accept", "private", "Accept|Cookie", ""},
		{`Cache-Control: private="x, public", max-age=5`, "private, max-age=5", "Cookie", ""},
		{"Cache-Control: no-store|Vary: cookie, Accept", "no-store", "cookie, Accept", ""},
		{"Cache-Control: private, max-age=5|Vary: *", "private, max-age=5", "*", ""},
		{"Expires: Fri, 01 Jan 2100 00:00:00 GMT", "private", "Cookie", "0"},
		{"Cdn-Cache-Control: max-age=9|Surrogate-Control: max-age=9", "private", "Cookie", ""},
	} {
		send := func(cookie string) *http.Response {
			r, err := http.NewRequestWithContext(t.Context(), "GET", visitors+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Answer", x.answer)
			if cookie != "" {
				r.Header.Set("Cookie", cookie)
			}
			res, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
			return res
		}
		first := send("")
		if len(first.Cookies()) != 1 {
			t.Fatalf("%q: no pass", x.answer)
		}
		h := first.Header
		if got := strings.Join(h["Cache-Control"], "|"); got != x.control {
			t.Errorf("%q: Cache-Control %q, want %q", x.answer, got, x.control)
		}
		if got := strings.Join(h["Vary"], "|"); got != x.vary {
			t.Errorf("%q: Vary %q, want %q", x.answer, got, x.vary)
		}
		if h.Get("Expires") != x.expires || h["Cdn-Cache-Control"] != nil || h["Surrogate-Control"] != nil {
			t.Errorf("%q: %v", x.answer, h)
		}
		// A pass is sealed anew each time that a later end is confirmed, about once a second: an answer
		// between two of them has no cookie of ours.
		again := first
		for range 50 {
			if again.Header["Set-Cookie"] == nil {
				break
			}
			c := again.Cookies()[0]
			again = send(c.Name + "=" + c.Value)
		}
		if again.Header["Set-Cookie"] != nil {
			t.Fatalf("%q: a new pass with each of 50 answers", x.answer)
		}
		for pair := range strings.SplitSeq(x.answer, "|") {
			if name, value, ok := strings.Cut(pair, ": "); ok && !strings.Contains(
				strings.Join(again.Header.Values(name), "|"), value) {
				t.Errorf("%q: without a cookie of ours %s is %q", x.answer, name, again.Header.Values(name))
			}
		}
		if x.answer == "" && (again.Header["Cache-Control"] != nil || again.Header["Vary"] != nil) {
			t.Errorf("an answer without a cookie of ours is changed: %v", again.Header)
		}
	}
}

// Slow requests that pass uncounted must not take all connections to the origin.
func TestExcludedRequestsInFlightAreBounded(t *testing.T) {
	came, release := make(chan string, 9), make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came <- r.URL.Path
		<-release
	}))
	defer origin.Close()
	const room = "  - {name: shop, origin: ORIGIN, total_active_users: 9, new_users_per_minute: 9, " +
		"exclude: {max_in_flight: 3, max_in_flight_per_address: 2}}\ntrusted_proxies: [127.0.0.1]\n"
	visitors, operators, _ := start(t, origin.URL, room)
	statuses := make(chan int, 9)
	send := func(from, path string) int {
		r, err := http.NewRequestWithContext(t.Context(), "GET", visitors+path, nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		r.Header.Set("X-Forwarded-For", from)
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		res.Body.Close()
		return res.StatusCode
	}
	hold := func(from string) { go func() { statuses <- send(from, "/robots.txt") }(); <-came }
	refused := func(from, why string) {
		t.Helper()
		got := make(chan int, 1)
		go func() { got <- send(from, "/robots.txt") }()
		select {
		case code := <-got:
			if code != 503 {
				t.Errorf("%s: %d", why, code)
			}
		case <-came:
			t.Errorf("%s: it is at the origin", why)
		}
	}
	hold("2001:db8::1")
	hold("2001:db8::2") // of the same subscriber
	refused("2001:db8::3", "the third of one address")
	hold("192.0.2.1")
	refused("192.0.2.2", "the fourth of all")
	if got := status(t, operators).Totals.Crowded; got != 2 {
		t.Errorf("%d are counted as refused", got)
	}
	go func() { statuses <- send("192.0.2.2", "/") }() // a visitor is bounded by the room alone
	<-came
	close(release)
	for range 4 {
		if got := <-statuses; got != 200 {
			t.Errorf("one of those before: %d", got)
		}
	}
	if got := send("2001:db8::3", "/robots.txt"); got != 200 {
		t.Errorf("when they have ended: %d", got)
	}
}
