package cors

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestOrigins(t *testing.T) {
	p := New(&Rules{Origins: []string{"https://app.example", "https://*.shop.example", "http://[::1]:8080",
		"app://localhost", "http://*.lan.example:81"}, Methods: []string{"GET"}})
	for origin, want := range map[string]bool{
		"https://app.example": true, "https://APP.example": true, "https://app.example:443": true,
		"http://[::1]:8080": true, "app://localhost": true, "https://a.shop.example": true,
		"https://a.b.shop.example:443": true, "http://x.lan.example:81": true,

		"": false, "null": false, "*": false, "https://*.shop.example": false, "http://app.example": false,
		"https://app.example:444": false, "https://app.example.evil.example": false,
		"https://evilapp.example": false, "https://shop.example": false, "https://.shop.example": false,
		"https://evilshop.example": false, "https://evil.example/.shop.example": false,
		"https://evil.example:1@a.shop.example": false, "https://a.shop.example:8443": false,
		"http://a.shop.example": false, "http://x.lan.example": false, "https://app.example/": false,
		"https://app.example https://a.shop.example": false, "http://[::1]": false,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Origin", origin)
		h := http.Header{}
		p.Share(h, r)
		got := h.Get("Access-Control-Allow-Origin")
		if want && got != origin || !want && got != "" || h.Get("Access-Control-Allow-Credentials") != "" ||
			(h.Get("Access-Control-Expose-Headers") != "") != want || h.Get("Vary") != "Origin" {
			t.Errorf("%q: %v", origin, h)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header["Origin"] = []string{"https://app.example", "https://app.example"}
	if h := (http.Header{}); p.allowOrigin(h, r) || len(h) > 0 {
		t.Error("two origins:", h)
	}
}

func TestPreflights(t *testing.T) {
	some := Rules{Origins: []string{"https://app.example"}, Methods: []string{"GET", "PUT"},
		Headers: []string{"Content-Type", "X-Member"}, MaxAge: 10 * time.Minute, Credentials: true}
	all := Rules{Origins: []string{Any}, Methods: []string{Any}, Headers: []string{Any}}
	with := all
	with.Headers = []string{Any, "Authorization"}
	none := Rules{Origins: []string{"https://app.example"}, Methods: DefaultMethods(), MaxAge: DefaultMaxAge}
	const listed = "GET, PUT|Content-Type, X-Member|600"
	for _, x := range []struct {
		what                    string
		rules                   *Rules
		origin, method, headers string // newlines separate several lines of headers
		want                    string // Allow-Methods, Allow-Headers, Max-Age; "" is rejected
	}{
		{"listed", &some, "https://app.example", "PUT", "content-type,x-member", listed},
		{"in any case, with gaps and lines", &some, "https://app.example", "PUT", "X-MEMBER ,, \n\tcontent-type", listed},
		{"no headers", &some, "https://app.example", "GET", "-", "GET, PUT||600"},
		{"no headers in a line", &some, "https://app.example", "GET", "", listed},
		{"another origin", &some, "https://evil.example", "PUT", "-", ""},
		{"null", &some, "null", "PUT", "-", ""},
		{"another method", &some, "https://app.example", "DELETE", "-", ""},
		{"a method that needs no leave", &some, "https://app.example", "POST", "x-member", ""},
		{"small letters", &some, "https://app.example", "put", "-", ""},
		{"another header", &some, "https://app.example", "PUT", "x-member,x-other", ""},
		{"another header in a second line", &some, "https://app.example", "PUT", "x-member\nx-other", ""},
		{"a star that is asked for", &some, "https://app.example", "*", "*", ""},
		{"too many headers", &some, "https://app.example", "PUT", strings.Repeat("x-member,", mostHeaders), ""},
		{"none listed", &none, "https://app.example", "POST", "-", "GET, HEAD, POST||5"},
		{"none listed, one asked", &none, "https://app.example", "POST", "content-type", ""},
		{"all", &all, "null", "PUT", "x-other", "*|*|0"},
		{"all but Authorization", &all, "https://a.example", "PUT", "authorization", ""},
		{"and Authorization", &with, "https://a.example", "PUT", "authorization,x", "*|*, Authorization|0"},
	} {
		r := httptest.NewRequest("OPTIONS", "/", nil)
		r.Header.Set("Origin", x.origin)
		r.Header.Set("Access-Control-Request-Method", x.method)
		r.Header.Set("Access-Control-Request-Private-Network", "true")
		if x.headers != "-" {
			r.Header["Access-Control-Request-Headers"] = strings.Split(x.headers, "\n")
		}
		w := httptest.NewRecorder()
		New(x.rules).ServeHTTP(w, r)
		got, h := "", w.Header()
		if x.want != "" {
			got = h.Get("Access-Control-Allow-Methods") + "|" + h.Get("Access-Control-Allow-Headers") + "|" +
				h.Get("Access-Control-Max-Age")
			from := x.origin
			if x.rules.Origins[0] == Any {
				from = Any
			}
			if h.Get("Access-Control-Allow-Origin") != from ||
				(h.Get("Access-Control-Allow-Credentials") == "true") != x.rules.Credentials {
				t.Errorf("%s: %v", x.what, h)
			}
		} else if len(h) != 1 {
			t.Errorf("%s: refused with %v", x.what, h)
		}
		if got != x.want || w.Code != http.StatusNoContent ||
			h.Get("Access-Control-Allow-Private-Network") != "" ||
			h.Get("Vary") != "Origin, Access-Control-Request-Method, Access-Control-Request-Headers" {
			t.Errorf("%s: %d %q, want %q: %v", x.what, w.Code, got, x.want, h)
		}
	}
}

func TestNilDoesNothing(t *testing.T) {
	p := New(nil)
	h := http.Header{}
	p.Share(h, httptest.NewRequest("GET", "/", nil))
	next := http.NewServeMux()
	if len(h) > 0 || p.Before(next) != next || p.Origin(next) != next {
		t.Error(h)
	}
}

// The rules that a program may write, and the errors for others.
func TestRulesOfAProgram(t *testing.T) {
	for origin, ok := range map[string]bool{
		"*": true, "https://app.example": true, "http://app.example:8080": true, "https://*.shop.example": true,
		"https://[2001:db8::1]": true, "": false, "null": false, "app.example": false, "https://": false,
		"https://app.example/": false, "https://app.example:443": false, "http://app.example:80": false,
		"https://App.example": false, "https://*": false, "https://*.com": false, "https://*.*.shop.example": false,
		"https://a.*.example": false, "https://me@app.example": false, "https://app.example:": false,
		"https://app.example?": false, "https://app.example\r\nX: y": false, "https://app.exämple": false,
	} {
		if _, err := (&Rules{Origins: []string{origin}}).Fill(); (err == nil) != ok {
			t.Errorf("%q: %v", origin, err)
		}
	}
	app := []string{"https://app.example"}
	for what, r := range map[string]*Rules{
		"no origin":            {},
		"all with credentials": {Origins: []string{"*"}, Credentials: true},
		"any header":           {Origins: app, Headers: []string{"*"}, Credentials: true},
		"any method":           {Origins: app, Methods: []string{"*"}, Credentials: true},
		"two methods in one":   {Origins: app, Methods: []string{"GET, DELETE"}},
		"a header with a line": {Origins: app, Headers: []string{"a\r\nb"}},
		"an empty header":      {Origins: app, Headers: []string{""}},
	} {
		if _, err := r.Fill(); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
	given := Rules{Origins: app, Headers: []string{"x-member"}}
	got, err := given.Fill()
	if err != nil || got.Headers[0] != "X-Member" || given.Headers[0] != "x-member" || len(got.Methods) != 3 ||
		got.MaxAge != DefaultMaxAge {
		t.Errorf("%+v of %+v: %v", got, given, err)
	}
}
