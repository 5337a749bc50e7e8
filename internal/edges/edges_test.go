package edges

import (
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
)

func write(t *testing.T, kind, text string) string {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := Write(&b, kind, cfg); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const head = `listen: 127.0.0.1:8080
decide: {listen: "127.0.0.1:8083"}
envoy: {listen: "127.0.0.1:8082", decide: true}
trusted_proxies: [127.0.0.1]
rooms:
`

// TestTheDocsShowWhatIsWritten: docs/edges.md has the configurations for its own example.
func TestTheDocsShowWhatIsWritten(t *testing.T) {
	docs, err := os.ReadFile("../../docs/edges.md")
	if err != nil {
		t.Fatal(err)
	}
	const rooms = `  - {name: shop, host: shop.example, origin: "http://127.0.0.1:3000", total_active_users: 200, new_users_per_minute: 200}
`
	const inKubernetes = `listen: :8080
envoy: {listen: ":8082", decide: true}
trusted_proxies: [10.244.0.0/16]      # the pods of your gateway
rooms:
  - {name: shop, host: shop.example, origin: "http://shop:3000", total_active_users: 200, new_users_per_minute: 200}
`
	for _, block := range []string{inKubernetes, write(t, "k8s", inKubernetes),
		write(t, "k8s-traefik", inKubernetes+"decide: {listen: \":8083\"}\n"),
		write(t, "k8s-nginx", inKubernetes+"decide: {listen: \":8083\"}\n")} {
		if !strings.Contains(string(docs), "\n```yaml\n"+block+"```\n") {
			t.Errorf("docs/edges.md lacks:\n%s", block)
		}
	}
	for kind, language := range map[string]string{"nginx": "nginx", "caddy": "caddy", "haproxy": "haproxy",
		"haproxy-lua": "lua", "envoy": "yaml", "apache": "apache", "apache-lua": "lua", "traefik": "yaml"} {
		got := write(t, kind, head+rooms)
		if !strings.Contains(string(docs), "\n```"+language+"\n"+got+"```\n") {
			t.Errorf("%s is not in docs/edges.md:\n%s", kind, got)
		}
	}
}

// TestSeveralRooms: each origin, host and path has its place, longer paths first.
func TestSeveralRooms(t *testing.T) {
	const rooms = `  - {name: shop, host: shop.example, origin: "http://127.0.0.1:3000", total_active_users: 200, new_users_per_minute: 200}
  - {name: tickets, host: shop.example, path: /tickets, origin: "https://tickets.internal", total_active_users: 200, new_users_per_minute: 200}
  - {name: rest, origin: "http://127.0.0.1:3000", total_active_users: 200, new_users_per_minute: 200}
`
	for kind, want := range map[string][]string{
		"nginx": {"upstream tickets  { server tickets.internal:443;", `location ~* "^/tickets(/|$)" {`,
			"proxy_pass https://tickets;", "proxy_ssl_name tickets.internal;", "listen 80 default_server;", "server_name _;"},
		"caddy": {"@room0 path /tickets /tickets/*\n\t\treverse_proxy @room0 https://tickets.internal:443\n", "http://shop.example {", "http:// {"},
		"haproxy": {"use_backend tickets if { hdr(host),field(1,:) -i shop.example } { path_beg -i /tickets/ }",
			"default_backend shop", "sni str(tickets.internal)"},
		"envoy": {`{match: {path_separated_prefix: "/tickets", case_sensitive: false}, route: {cluster: tickets, timeout: 0s}}
                        - {match: {prefix: "/"}`,
			`domains: ["*"]`, "sni: tickets.internal"},
		"apache": {`ProxyPassMatch "(?i)^/tickets(/|$)" "https://tickets.internal:443" nocanon upgrade=websocket
    ProxyPass "/" "http://127.0.0.1:3000/"`, "SSLProxyEngine On", "ServerName shop.example", "ServerAlias *"},
		"traefik": {"rule: Host(`shop.example`) && PathRegexp(`(?i)^/tickets(/|$)`)\n      priority: 5008\n",
			"rule: Host(`shop.example`)\n      priority: 5001\n", "rule: PathPrefix(`/`)\n      priority: 1\n",
			"        (PathRegexp(`/\\.headgate/`)", `{url: "https://tickets.internal:443"}`, "__Host-__cfwaitingroom_rest"},
	} {
		got := write(t, kind, head+rooms)
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s lacks %s:\n%s", kind, part, got)
			}
		}
	}
}

// TestPathsInTheirCase: a path of a room with path_case_sensitive belongs to the room in that case alone.
func TestPathsInTheirCase(t *testing.T) {
	const rooms = `  - {name: shop, host: shop.example, origin: "http://shop:3000", total_active_users: 200, new_users_per_minute: 200}
  - {name: a, host: shop.example, path: /A, path_case_sensitive: true, origin: "http://a:3001", total_active_users: 200, new_users_per_minute: 200}
`
	for kind, want := range map[string]string{
		"nginx": `location ~ "^/A(/|$)" {`, "caddy": "@room0 path_regexp `^/A(/|$)`\n",
		"haproxy": "{ path /A }\n    use_backend a if { hdr(host),field(1,:) -i shop.example } { path_beg /A/ }\n",
		"envoy":   `{path_separated_prefix: "/A", case_sensitive: true}`, "apache": `ProxyPassMatch "^/A(/|$)"`,
		"traefik": "PathRegexp(`^/A(/|$)`)", "k8s-traefik": "PathRegexp(`^/A(/|$)`)",
		"k8s": "value: '/A(/.*)?'}", "k8s-nginx": "path: '/(?-i:A)(/|$)'",
	} {
		if got := write(t, kind, head+rooms); !strings.Contains(got, want) {
			t.Errorf("%s lacks %s:\n%s", kind, want, got)
		}
	}
}

func TestWhatCannotBeWritten(t *testing.T) {
	for kind, text := range map[string]string{
		"varnish": head + "  - {name: shop, origin: http://127.0.0.1:3000, total_active_users: 1, new_users_per_minute: 1}\n",
		"nginx":   "rooms:\n  - {name: shop, origin: http://127.0.0.1:3000, total_active_users: 1, new_users_per_minute: 1}\n",
		"envoy":   "rooms:\n  - {name: shop, origin: http://127.0.0.1:3000, total_active_users: 1, new_users_per_minute: 1}\n",
		"haproxy": head + "  - {name: shop, path: /sale*, origin: http://127.0.0.1:3000, total_active_users: 1, new_users_per_minute: 1}\n",
		"k8s-nginx": head +
			"  - {name: shop, origin: http://shop.other.svc:3000, total_active_users: 1, new_users_per_minute: 1}\n",
		"k8s":   head + "  - {name: shop, origin: https://shop:3000, total_active_users: 1, new_users_per_minute: 1}\n",
		"caddy": head + "  - {name: shop, origin: http://127.0.0.1:3000/shop, total_active_users: 1, new_users_per_minute: 1}\n",
	} {
		cfg, err := config.Parse("test.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := Write(&strings.Builder{}, kind, cfg); err == nil {
			t.Errorf("%s: no error", kind)
		}
	}
}
