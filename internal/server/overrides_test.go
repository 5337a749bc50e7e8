package server

import (
	"strings"
	"testing"
)

// overriding are headers by which origins see another URL or another method than headgate did.
// gunicorn cuts SCRIPT_NAME off the path.
const (
	otherURL = "X-Original-URL: /6.6.6.6\r\nX-Rewrite-Url: /6.6.6.6\r\nX-Original-URI: /6.6.6.6\r\n" +
		"SCRIPT_NAME: /6.6.6.6\r\nPath-Info: /6.6.6.6\r\n"
	otherMethod = "X-HTTP-Method-Override: POST6\r\nx-http-method: POST6\r\nX-Method-Override: POST6\r\n" +
		"X-Original-Method: POST6\r\n"
	spelled = "X_Original_URL: /6.6.6.6\r\nX.Rewrite.URL: /6.6.6.6\r\nX_Original-URI: /6.6.6.6\r\n" +
		"X_HTTP_Method_Override: 6.6.6.6\r\nX_Method.Override: 6.6.6.6\r\nX~Http!Method: 6.6.6.6\r\n"
)

// A request that passes for its path or its method must be that request to the origin.
func TestNoOtherURLAndMethodForTheOrigin(t *testing.T) {
	const rule = "  - {name: rule, path: /rule, origin: ORIGIN, total_active_users: 1, new_users_per_minute: 1, " +
		"rules: [{action: bypass, expression: 'http.request.method eq \"GET\"'}]}\n"
	url, heads := rawOrigin(t)
	for _, keys := range []string{"", "trusted_proxies: [127.0.0.1]\n"} {
		visitors, _, _ := start(t, url, strings.ReplaceAll(oneRoom, "users: 1,", "users: 1000,")+rule+keys)
		for _, x := range []struct {
			line, more string
			stay       bool
		}{
			{"GET /robots.txt", "", false},
			{"HEAD /", "", false},
			{"OPTIONS /", "Origin: http://y\r\nAccess-Control-Request-Method: GET\r\n", false},
			{"GET /rule", "", false},
			{"GET /", "", true},
		} {
			res := askRaw(t, visitors, x.line+" HTTP/1.1\r\nHost: x\r\nX-Shop: kept\r\n"+x.more+otherURL+otherMethod+
				spelled+"\r\n")
			if res.StatusCode != 200 {
				t.Fatal(x.line, res.Status)
			}
			text := strings.ToLower(<-heads)
			if got := strings.Count(text, "post6"); got != map[bool]int{true: 4}[x.stay] {
				t.Errorf("%q of %q: %d other methods:\n%s", x.line, keys, got, text)
			}
			want := 0
			if x.stay && keys != "" { // the proxy says which URL it was asked for
				want = 5
			}
			if got := strings.Count(text, "6.6.6.6"); got != want {
				t.Errorf("%q of %q: %d other URLs, want %d:\n%s", x.line, keys, got, want, text)
			}
			if !strings.Contains(text, "x-shop: kept") {
				t.Errorf("%q: a header of the site's own is lost:\n%s", x.line, text)
			}
		}
	}
}
