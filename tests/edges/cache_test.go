//go:build edges

package edges

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/loopback"
)

// cacheFor starts nginx as a cache in front of a proxy, and returns its address. It keeps each answer
// that nothing forbids to keep, also with cookies, unless obeys is true.
func cacheFor(t *testing.T, addr string, obeys bool) string {
	t.Helper()
	at, ignored := loopback.Free(t), "proxy_ignore_headers Set-Cookie;"
	if obeys {
		ignored = ""
	}
	runNginx(t, at, "proxy_cache_path "+t.TempDir()+" keys_zone=all:1m;\nserver {\nlisten "+at+";\nlocation / {\n"+
		"proxy_pass http://"+addr+";\nproxy_http_version 1.1;\nproxy_set_header Host $http_host;\nproxy_cache all;\nproxy_cache_valid any 1h;\n"+
		ignored+"\nadd_header X-Cache $upstream_cache_status always;\n}\n}\n")
	return at
}

// TestACacheInFront: a cache in front of the proxy gives no visitor the cookie, the place or the turn of
// another one. What the origin declares public, it gives to visitors in line too.
func TestACacheInFront(t *testing.T) {
	each(t, func(t *testing.T, e *edge) {
		o := serveOrigin(t) // whose pages are public
		w := e.open(t, o.addr(), "total_active_users: 1, new_users_per_minute: 10, session_duration: 1h")
		// Traefik cannot change Cache-Control of some answers only: docs/edges.md.
		w.addr = cacheFor(t, w.addr, strings.HasSuffix(e.name, "traefik"))
		inside := browser{w: w}
		cookies, numbers := map[string]bool{}, map[uint64]bool{}
		gets := func(b *browser, path string) {
			t.Helper()
			if res, body := b.ask(t, "GET", path); res.StatusCode != http.StatusOK || body != "the shop\n" {
				t.Fatalf("inside, %s: %d %.80q", path, res.StatusCode, body)
			}
		}
		waits := func(b *browser, path string) {
			t.Helper()
			res, body := b.ask(t, "GET", path)
			if res.StatusCode != e.waits() || res.Header.Get("X-Cache") == "HIT" {
				t.Fatalf("in line, %s: %d %.80q %v", path, res.StatusCode, body, res.Header)
			}
			var poll struct{ Headgate struct{ Number uint64 } }
			_, body = b.ask(t, "GET", path, "Headgate-Poll", "1", "Accept", "application/json")
			if err := json.Unmarshal([]byte(body), &poll); err != nil {
				t.Fatalf("poll: %.80q: %v", body, err)
			}
			cookies[b.jar.String()], numbers[poll.Headgate.Number] = true, true
		}
		gets(&inside, "/first") // a new pass
		cookies[inside.jar.String()] = true
		for _, b := range []*browser{{w: w}, {w: w}, {w: w}} {
			waits(b, "/first")
		}
		gets(&inside, "/second") // the pass of a browser that keeps cookies
		waits(&browser{w: w}, "/second")
		if cookies[""] || len(cookies) != 5 || numbers[0] || len(numbers) != 4 {
			t.Errorf("1 visitor inside and 4 in line have %d cookies and %d numbers", len(cookies), len(numbers))
		}
		gets(&inside, "/third") // without a cookie
		res, body := (&browser{w: w}).ask(t, "GET", "/third")
		if res.Header.Get("X-Cache") != "HIT" || body != "the shop\n" || res.Header["Set-Cookie"] != nil {
			t.Errorf("a public page: %d %.80q %v", res.StatusCode, body, res.Header)
		}
	})
}
