//go:build edges

package edges

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// opened returns the proxies with the lines of docs/edges.md that let everybody in while headgate is
// down.
func opened(t *testing.T) []edge {
	docs, err := os.ReadFile("../../docs/edges.md")
	if err != nil {
		t.Fatal(err)
	}
	change := func(t *testing.T, text, at, line string) string {
		t.Helper()
		if !strings.Contains(string(docs), "`"+line+"`") || !strings.Contains(text, at) {
			t.Fatalf("docs/edges.md has another line than %q in place of %q", line, at)
		}
		return strings.Replace(text, at, line, 1)
	}
	all := []edge{{"nginx", func(t *testing.T, addr string, to places) {
		const named, asks = "    location @headgate {\n", "        internal;\n"
		text := recipe(t, "nginx", addr, to)
		text = strings.Replace(text, named, "    HERE\n"+named, 1)
		text = strings.Replace(text, asks, asks+"        HERE\n", 1)
		text = change(t, text, "HERE", "error_page 502 504 = @down;")
		runNginx(t, addr, change(t, text, "HERE", "location @down { return 204; }"))
	}}, {"haproxy", func(t *testing.T, addr string, to places) {
		runHAProxy(t, addr, to, change(t, recipe(t, "haproxy", addr, to), "http-request return status 503",
			"http-request set-var(txn.headgate_in) bool(true)"))
	}}, {"envoy", func(t *testing.T, addr string, to places) {
		runEnvoy(t, addr, to, change(t, recipe(t, "envoy", addr, to), "failure_mode_allow: false", "failure_mode_allow: true"))
	}}, {"envoy-http", func(t *testing.T, addr string, to places) {
		runEnvoy(t, addr, to, change(t, envoyByHTTP(t, addr, to), "failure_mode_allow: false", "failure_mode_allow: true"))
	}}, {"apache", func(t *testing.T, addr string, to places) {
		runApache(t, addr, to, change(t, recipe(t, "apache-lua", addr, to), "local down = 503", "local down = apache2.OK"))
	}}}
	if *egctlPath != "" {
		all = append(all, edge{"k8s", func(t *testing.T, addr string, to places) {
			text := change(t, recipe(t, "k8s", addr, to), "failOpen: false", "failOpen: true")
			runEnvoyGateway(t, addr, to, text+"---\n"+recipe(t, "k8s-open", addr, to))
		}})
	}
	if *ingressPath != "" {
		all = append(all, edge{"k8s-nginx", func(t *testing.T, addr string, to places) {
			const asks, named = "      proxy_set_header X-Original-URI \"\";\n      proxy_connect", "      location @headgate {\n"
			text := recipe(t, "k8s-nginx", addr, to)
			text = strings.Replace(text, asks, "      HERE\n"+asks, 1)
			text = strings.Replace(text, named, "      HERE\n"+named, 1)
			text = change(t, text, "HERE", "error_page 502 504 = @down;")
			runIngressNginx(t, addr, to, change(t, text, "HERE", "location @down { return 204; }"))
		}})
	}
	for i := range all {
		all[i].name += "-open"
	}
	return all
}

// TestEverybodyGetsIn: with the lines of the docs, while headgate is down and while it stands still.
// What a visitor claims stays without effect. When headgate is back, it decides again.
func TestEverybodyGetsIn(t *testing.T) {
	eachOf(t, opened(t), func(t *testing.T, e *edge) {
		o := serveOrigin(t)
		w := e.open(t, o.addr(), "total_active_users: 10, new_users_per_minute: 10, closed: true")
		visitor := browser{w: w}
		decides := func() {
			t.Helper()
			if res, _ := visitor.ask(t, "GET", "/"); res.StatusCode != e.waits() || len(o.take()) > 0 {
				t.Errorf("a closed room: %d", res.StatusCode)
			}
			for _, path := range []string{"/%zz", "/a%"} {
				w.raw(t, "GET "+path+" HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
				if got := o.take(); len(got) > 0 {
					t.Errorf("%s reached the origin of a closed room", path)
				}
			}
		}
		open := func(headers ...string) {
			t.Helper()
			res, body := visitor.ask(t, "GET", "/checkout", headers...)
			if res.StatusCode != http.StatusOK {
				t.Errorf("without headgate, %v: %d %.80q", headers, res.StatusCode, body)
			}
			got := o.take()
			if len(got) != 1 {
				t.Fatalf("%v: the origin got %v", headers, got)
			}
			for i := 0; i < len(headers); i += 2 {
				name := http.CanonicalHeaderKey(headers[i])
				if slices.Contains(got[0].Header[name], headers[i+1]) && name != "Headgate-Admitted" && name != "Connection" {
					t.Errorf("the origin got %s: %s", headers[i], headers[i+1])
				}
			}
		}
		decides()
		w.freeze(t)
		open()
		w.thaw(t)
		decides()
		w.headgate.Stop()
		claims := []string{"X-Forwarded-Host", "other.example", "X-Forwarded-Proto", "https"}
		if e.name != "k8s-nginx-open" { // it sends upgrades to headgate
			claims = append(claims, "Connection", "Upgrade", "Upgrade", "h2c")
		}
		for _, name := range forged {
			claims = append(claims, name, "forged")
		}
		open(claims...)
		w.startHeadgate(t)
		decides()
	})
}
