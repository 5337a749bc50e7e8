//go:build edges

package edges

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/edges"
	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/tests/crowd"
	"github.com/headgate/headgate/tests/yardstick"
)

// An edge is a kind of proxy.
type edge struct {
	name  string
	start func(t *testing.T, addr string, to places)
}

// waits returns the status of the waiting page.
func (e *edge) waits() int {
	if strings.HasPrefix(e.name, "envoy-http") {
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// places are the addresses that replace those of the docs.
type places struct {
	listen, decide, envoy, origin string
	cfg                           *config.Config // nil: the configuration of the docs
}

var kinds = []edge{{"nginx", startNginx}, {"caddy", startCaddy}, {"haproxy", startHAProxy},
	{"envoy", startEnvoy}, {"envoy-http", startEnvoyByHTTP}, {"apache", startApache}}

// fences are the code blocks of docs/edges.md: the language, and which one of that language.
var fences = map[string]struct {
	language string
	nth      int
}{"nginx": {"nginx", 0}, "caddy": {"caddy", 0}, "haproxy": {"haproxy", 0}, "haproxy-lua": {"lua", 0},
	"envoy": {"yaml", 1}, "envoy-http": {"yaml", 2}, "envoy-http-polls": {"yaml", 3}, "apache": {"apache", 0}, "apache-lua": {"lua", 1}, "traefik": {"yaml", 4},
	"k8s": {"yaml", 6}, "k8s-traefik": {"yaml", 8}, "k8s-open": {"yaml", 7}, "externalauth": {"yaml", 10}, "k8s-nginx": {"yaml", 9}}

// recipe returns the configuration of a kind of proxy in docs/edges.md, or what headgate writes for
// to.cfg, with other addresses.
func recipe(t *testing.T, kind, addr string, to places) string {
	t.Helper()
	var text string
	if to.cfg != nil {
		var b strings.Builder
		if err := edges.Write(&b, kind, to.cfg); err != nil {
			t.Fatal(err)
		}
		text = b.String()
	} else {
		docs, err := os.ReadFile("../../docs/edges.md")
		if err != nil {
			t.Fatal(err)
		}
		f := fences[kind]
		parts := strings.Split(string(docs), "\n```"+f.language+"\n")
		if len(parts) < f.nth+2 {
			t.Fatalf("docs/edges.md has no block of %s", kind)
		}
		text, _, _ = strings.Cut(parts[f.nth+1], "\n```")
		text += "\n"
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer("127.0.0.1:8080", to.listen, "127.0.0.1:8083", to.decide,
		"127.0.0.1:3000", to.origin, "listen 80;", "listen "+addr+";", "bind :80\n", "bind "+addr+"\n",
		"<VirtualHost *:80>", "<VirtualHost "+addr+">", "http://shop.example {", "http://shop.example:"+port+" {",
		"http://other.example {", "http://other.example:"+port+" {").Replace(text)
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// run starts a proxy, waits until it listens, and stops it when the test ends.
func run(t *testing.T, dir, addr, program string, args ...string) {
	t.Helper()
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, output, output
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		output.Close()
		if text, err := os.ReadFile(output.Name()); t.Failed() && err == nil {
			t.Logf("%s\n%s", program, text)
		}
	})
	awaitListener(t, addr)
}

func awaitListener(t *testing.T, addr string) {
	t.Helper()
	yardstick.Await(t, "a program listens at "+addr, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func startNginx(t *testing.T, addr string, to places) {
	runNginx(t, addr, recipe(t, "nginx", addr, to))
}

func runNginx(t *testing.T, addr, text string) {
	t.Helper()
	dir := t.TempDir()
	temp := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temp += fmt.Sprintf("%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	file := write(t, dir, "nginx.conf", "user root;\ndaemon off;\npid "+dir+"/pid;\nerror_log stderr;\n"+
		"worker_processes 1;\nevents { worker_connections 4096; }\nhttp {\naccess_log off;\n"+temp+
		text+"}\n")
	run(t, dir, addr, "nginx", "-e", "stderr", "-c", file)
}

func startCaddy(t *testing.T, addr string, to places) {
	dir := t.TempDir()
	file := write(t, dir, "Caddyfile", "{\nadmin off\nauto_https off\n}\n"+recipe(t, "caddy", addr, to))
	run(t, dir, addr, "caddy", "run", "--adapter", "caddyfile", "--config", file)
}

func startHAProxy(t *testing.T, addr string, to places) {
	runHAProxy(t, addr, to, recipe(t, "haproxy", addr, to))
}

func runHAProxy(t *testing.T, addr string, to places, text string) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "headgate.lua", recipe(t, "haproxy-lua", addr, to))
	run(t, dir, addr, "haproxy", "-q", "-f", write(t, dir, "haproxy.cfg", text))
}

// envoyPath is set by make edges.
var envoyPath = flag.String("envoy", "envoy", "the Envoy to run")

func startEnvoy(t *testing.T, addr string, to places) {
	runEnvoy(t, addr, to, recipe(t, "envoy", addr, to))
}

func startEnvoyByHTTP(t *testing.T, addr string, to places) {
	runEnvoy(t, addr, to, envoyByHTTP(t, addr, to))
}

// envoyByHTTP returns the configuration of Envoy with the changes of the docs by which it asks by HTTP.
func envoyByHTTP(t *testing.T, addr string, to places) string {
	t.Helper()
	text, docs, grpc, decide := recipe(t, "envoy", addr, to), to, "8082", "8083"
	if docs.cfg = nil; to.cfg != nil {
		grpc, decide = portOf(t, to.envoy), portOf(t, to.decide)
	}
	_, http2, _ := strings.Cut(text, "      typed_extension_protocol_options:\n")
	http2, _, _ = strings.Cut(http2, "      load_assignment:\n")
	const preflights = `                        - match: {prefix: "/", headers: [{name: ":method"`
	for _, change := range [][2]string{
		{"                      grpc_service: {envoy_grpc: {cluster_name: headgate}, timeout: 5s}\n",
			recipe(t, "envoy-http", addr, docs)},
		{preflights, recipe(t, "envoy-http-polls", addr, docs) + preflights},
		{"      typed_extension_protocol_options:\n" + http2, ""},
		{"port_value: " + grpc + "}", "port_value: " + decide + "}"},
	} {
		if !strings.Contains(text, change[0]) {
			t.Fatalf("the configuration for Envoy lacks %s", change[0])
		}
		text = strings.ReplaceAll(text, change[0], change[1])
	}
	return text
}

func runEnvoy(t *testing.T, addr string, to places, text string) {
	t.Helper()
	dir := t.TempDir()
	for port, other := range map[string]string{"80": addr, "3000": to.origin, "8082": to.envoy, "8083": to.decide,
		"8080": to.listen} {
		if other == "" {
			continue
		}
		_, next, err := net.SplitHostPort(other)
		if err != nil {
			t.Fatal(err)
		}
		text = strings.Replace(text, "port_value: "+port+"}", "port_value: "+next+"}", 1)
	}
	run(t, dir, addr, *envoyPath, "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning",
		"-c", write(t, dir, "envoy.yaml", text))
}

func startApache(t *testing.T, addr string, to places) {
	runApache(t, addr, to, recipe(t, "apache-lua", addr, to))
}

// runApache starts Apache with a script, or without one.
func runApache(t *testing.T, addr string, to places, script string) {
	t.Helper()
	dir := t.TempDir()
	if script != "" {
		write(t, dir, "headgate-apache.lua", script)
	}
	run(t, dir, addr, "apache2", "-X", "-f",
		write(t, dir, "httpd.conf", apacheHead(dir)+"Listen "+addr+"\n"+recipe(t, "apache", addr, to)))
}

// apacheHead returns what every Apache has around the recipe.
func apacheHead(dir string) string {
	head := "ServerRoot " + dir + "\nPidFile pid\nDefaultRuntimeDir " + dir + "\nErrorLog output\nServerName localhost\n"
	for _, name := range []string{"mpm_event", "authz_core", "headers", "proxy", "proxy_http", "lua", "ssl"} {
		head += "LoadModule " + name + "_module /usr/lib/apache2/modules/mod_" + name + ".so\n"
	}
	return head
}

// traefikPath is set by make edges-traefik.
var traefikPath = flag.String("traefik", "", "the Traefik to run; none: it is not tested")

func startTraefik(t *testing.T, addr string, to places) {
	runTraefik(t, addr, recipe(t, "traefik", addr, to))
}

// runTraefik starts Traefik with a file of the file provider.
func runTraefik(t *testing.T, addr, text string) {
	t.Helper()
	dir := t.TempDir()
	run(t, dir, addr, *traefikPath, "--entrypoints.web.address="+addr, "--log.level=ERROR",
		"--global.checknewversion=false", "--providers.file.filename="+write(t, dir, "headgate.yaml", text))
	yardstick.Await(t, "Traefik has its routers", func() bool {
		w := world{addr: addr}
		return !strings.HasPrefix(w.answer(t, "GET /.headgate/served HTTP/1.0\r\nHost: shop.example\r\n\r\n"), "HTTP/1.0 404")
	})
}

// world is a headgate beside a proxy.
type world struct {
	addr, admin string // of the proxy, and of headgate's operators
	decide      string // where headgate answers questions by HTTP
	envoy       string // and by gRPC
	file        string // the configuration of headgate
	headgate    *crowd.Process
}

var binary string // headgate, built by TestMain

func TestMain(m *testing.M) {
	if addr := os.Getenv("LEAST_HANDLER"); addr != "" {
		os.Exit(serveLeast(addr))
	}
	if text := os.Getenv("DRIVE"); text != "" {
		os.Exit(serveDrive(text))
	}
	flag.Parse()
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "edges")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "headgate")
	cmd := exec.Command("go", "build", "-o", binary, "github.com/headgate/headgate/cmd/headgate")
	if out, err := cmd.CombinedOutput(); err != nil {
		log.Fatalf("%v\n%s", err, out)
	}
	if *traefikPath != "" {
		kinds = append(kinds, edge{"traefik", startTraefik}, edge{"k8s-traefik", startTraefikInKubernetes})
	}
	if *egctlPath != "" {
		kinds = append(kinds, edge{"k8s", startEnvoyGateway})
	}
	if *ingressPath != "" {
		kinds = append(kinds, edge{"k8s-nginx", startIngressNginx})
	}
	return m.Run()
}

// open starts headgate with the given keys of a room, and a proxy that asks it.
func (e *edge) open(t *testing.T, origin, room string) *world {
	t.Helper()
	return e.openRooms(t, origin, "  - {name: shop, host: shop.example, origin: \"http://"+origin+"\", "+room+"}\n")
}

// openRooms starts headgate with rooms, and a proxy with the configuration of the docs, or without an
// origin with the one that headgate writes for the rooms.
func (e *edge) openRooms(t *testing.T, origin, rooms string) *world {
	t.Helper()
	to := places{loopback.Free(t), loopback.Free(t), loopback.Free(t), origin, nil}
	w := &world{addr: loopback.Free(t), admin: loopback.Free(t), decide: to.decide, envoy: to.envoy}
	dir := t.TempDir()
	w.file = write(t, dir, "headgate.yaml", "data: "+dir+"/data\nlisten: "+to.listen+"\nadmin_listen: "+w.admin+
		"\ndecide: {listen: "+to.decide+"}\nenvoy: {listen: "+to.envoy+", decide: true}\ntrusted_proxies: [127.0.0.1]\nrooms:\n"+rooms)
	w.startHeadgate(t)
	if origin == "" {
		text, err := os.ReadFile(w.file)
		if err == nil {
			to.cfg, err = config.Parse(w.file, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	e.start(t, w.addr, to)
	return w
}

func (w *world) startHeadgate(t *testing.T) {
	t.Helper()
	w.headgate = crowd.Start(t, binary, "run", "--config", w.file)
	crowd.AwaitReady(t, "http://"+w.admin)
}

// each runs a test for each kind of proxy.
func each(t *testing.T, test func(t *testing.T, e *edge)) { eachOf(t, kinds, test) }

// named returns kinds of proxies.
func named(names ...string) []edge {
	return slices.DeleteFunc(slices.Clone(kinds), func(e edge) bool {
		return !slices.Contains(names, e.name)
	})
}

func eachOf(t *testing.T, all []edge, test func(t *testing.T, e *edge)) {
	for i := range all {
		t.Run(all[i].name, func(t *testing.T) {
			t.Parallel() // they wait more than they work
			test(t, &all[i])
		})
	}
}
