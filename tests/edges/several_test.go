//go:build edges

package edges

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/edges"
)

// TestSeveralRoomsAreValid: each proxy accepts what headgate edges writes for several hosts, paths
// and origins.
func TestSeveralRoomsAreValid(t *testing.T) {
	cfg, err := config.Parse("test.yaml", []byte(`listen: :8080
decide: {listen: ":8083"}
envoy: {listen: ":8082", decide: true}
trusted_proxies: [127.0.0.1]
rooms:
  - {name: shop, host: shop.example, origin: "http://127.0.0.1:3000", total_active_users: 9, new_users_per_minute: 9}
  - {name: tickets, host: shop.example, path: /tickets, origin: "https://127.0.0.1:3443", total_active_users: 9, new_users_per_minute: 9}
  - {name: rest, origin: "http://127.0.0.1:3000", total_active_users: 9, new_users_per_minute: 9}
`))
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string) string {
		var b strings.Builder
		if err := edges.Write(&b, kind, cfg); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	dir := t.TempDir()
	write(t, dir, "headgate.lua", text("haproxy-lua"))
	write(t, dir, "headgate-apache.lua", text("apache-lua"))
	for _, args := range [][]string{
		{"nginx", "-t", "-e", "stderr", "-c", write(t, dir, "nginx.conf", "pid "+dir+"/pid;\nevents {}\nhttp {\n"+text("nginx")+"}\n")},
		{"caddy", "validate", "--adapter", "caddyfile", "--config", write(t, dir, "Caddyfile", text("caddy"))},
		{"haproxy", "-c", "-f", write(t, dir, "haproxy.cfg", text("haproxy"))},
		{"apache2", "-t", "-f", write(t, dir, "httpd.conf", apacheHead(dir)+text("apache"))},
		{*envoyPath, "--mode", "validate", "-c", write(t, dir, "envoy.yaml", text("envoy"))},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", args[0], err, out)
		}
	}
}
