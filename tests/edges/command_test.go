//go:build edges

package edges

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/yardstick"
)

// relayed are the proxies that relay the origin's command.
var relayed = map[string]bool{"haproxy": true, "apache": true}

// watched puts an observer of questions by HTTP between a proxy and headgate.
func watched(t *testing.T, e *edge, see func(r *http.Request)) *edge {
	return &edge{e.name, func(t *testing.T, addr string, to places) {
		observer := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			see(r.In)
			r.SetURL(&url.URL{Scheme: "http", Host: to.decide})
			r.Out.Host = r.In.Host
			for name, values := range r.In.Header {
				if strings.HasPrefix(name, "X-Forwarded-") {
					r.Out.Header[name] = values
				}
			}
		}})
		t.Cleanup(observer.Close)
		asked := to
		asked.decide = strings.TrimPrefix(observer.URL, "http://")
		e.start(t, addr, asked)
	}}
}

// TestTheOriginEndsASession: after an answer with the origin's command, the visitor is out at the
// next request, and the next in line comes in. A visitor that sends the command itself ends nothing,
// an answer without the command costs no second question, and no visitor sees it.
func TestTheOriginEndsASession(t *testing.T) {
	each(t, func(t *testing.T, e *edge) {
		o := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/paid") {
				w.Header().Set("Headgate-Command", "revoke")
			}
			w.Header().Set("Cf-Waiting-Room-Command", "keep")
			io.WriteString(w, "the shop\n")
		}))
		t.Cleanup(o.Close)
		var commands atomic.Int64
		count := func(r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/revoke") {
				commands.Add(1)
			}
		}
		w := watched(t, e, count).open(t, strings.TrimPrefix(o.URL, "http://"),
			"total_active_users: 1, new_users_per_minute: 100, session_duration: 1h, "+
				"poll_min: 1m, poll_max: 1m") // no call lapses while the machine stands still
		ask := func(b *browser, path string, headers ...string) int {
			t.Helper()
			res, body := b.ask(t, "GET", path, headers...)
			for _, name := range []string{"Headgate-Command", "Cf-Waiting-Room-Command"} {
				if res.Header[name] != nil {
					t.Errorf("%s: the visitor got %s", path, name)
				}
			}
			if in := body == "the shop\n"; in != (res.StatusCode == http.StatusOK) {
				t.Errorf("%s: %d %.80q", path, res.StatusCode, body)
			}
			return res.StatusCode
		}
		visitors := [3]browser{{w: w}, {w: w}, {w: w}}
		for i := range visitors {
			if in := ask(&visitors[i], "/") == http.StatusOK; in != (i == 0) {
				t.Fatalf("visitor %d is inside: %v", i, in)
			}
		}
		for range 3 {
			ask(&visitors[0], "/", "Headgate-Command", "revoke", "Cf-Waiting-Room-Command", "revoke")
			ask(&visitors[1], "/", "Headgate-Command", "revoke", "Cf-Waiting-Room-Command", "revoke")
		}
		if ask(&visitors[0], "/") != http.StatusOK || commands.Load() != 0 {
			t.Fatalf("a visitor sent the command, and %d were relayed", commands.Load())
		}
		if code := ask(&visitors[0], "/paid"); code != http.StatusOK {
			t.Errorf("the answer with the command: %d", code)
		}
		if !relayed[e.name] {
			if ask(&visitors[0], "/") != http.StatusOK || commands.Load() != 0 {
				t.Error("the session is over, but docs/edges.md says that it is not")
			}
			return
		}
		yardstick.Await(t, "the session is over", func() bool { return commands.Load() == 1 })
		yardstick.Await(t, "the first visitor is out", func() bool { return ask(&visitors[0], "/") != http.StatusOK })
		for i := 1; i < 3; i++ { // the first request of a session may be its last
			yardstick.Await(t, "the next visitor is in", func() bool {
				<-time.After(50 * time.Millisecond)
				if ask(&visitors[3-i], "/") == http.StatusOK {
					t.Fatalf("visitor %d was overtaken", i)
				}
				return ask(&visitors[i], "/paid") == http.StatusOK
			})
			if i == 1 {
				visitors[1] = browser{w: w} // no other visitor than the last is to wait
			}
		}
		yardstick.Await(t, "each command was relayed", func() bool { return commands.Load() == 3 })
	})
}
