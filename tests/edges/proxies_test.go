//go:build edges && bench

package edges

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/loopback"
)

// A beside is a proxy that is measured.
type beside struct {
	name, addr, cookie string
	pid                func() int
}

// A size is a file of the origin, and how it is asked for.
type size struct {
	name           string
	bytes          int
	clients, times int // in parallel, and how often each
}

// TestPeersProxies: proxies in front of the same nginx, in turns, in one run. It prints the CPU time of
// each for a request, and how many times that of headgate it is: the median of the rounds.
func TestPeersProxies(t *testing.T) {
	const rounds = 10
	dir := t.TempDir()
	sizes := []size{{"1 KiB", 1 << 10, 16, 400}, {"64 KiB", 64 << 10, 16, 100}, {"10 MiB", 10 << 20, 4, 4}}
	for _, s := range sizes {
		write(t, dir, strconv.Itoa(s.bytes), strings.Repeat("x", s.bytes))
	}
	origin := loopback.Free(t)
	runNginx(t, origin, "server { listen "+origin+"; root "+dir+"; keepalive_requests 100000000; sendfile on; }\n")
	all := startProxies(t, origin)
	for _, s := range sizes {
		path := "/" + strconv.Itoa(s.bytes)
		for i := range all {
			all[i].load(t, path, &s) // warm
		}
		cpu := make([][]float64, len(all))
		times := make([][]float64, len(all))
		for round := range rounds {
			took := make([]float64, len(all))
			for i := range all {
				i = (i + round) % len(all)
				took[i] = all[i].load(t, path, &s)
			}
			for i := range all {
				cpu[i] = append(cpu[i], took[i])
				times[i] = append(times[i], took[0]/took[i])
			}
		}
		t.Logf("%s, %d connections, the medians of %d rounds", s.name, s.clients, rounds)
		for i := range all {
			t.Logf("| %s | %.1f µs | %.2f |", all[i].name, middle(cpu[i]), middle(times[i]))
		}
	}
}

func middle(v []float64) float64 {
	slices.Sort(v)
	if len(v) == 0 {
		return math.NaN()
	}
	return v[len(v)/2]
}

// startProxies starts the proxies; the first is headgate.
func startProxies(t *testing.T, origin string) []beside {
	t.Helper()
	all := []beside{startGate(t, origin)}
	add := func(name string, start func(addr string)) {
		addr := loopback.Free(t)
		start(addr)
		all = append(all, beside{name: name, addr: addr, pid: func() int { return listenerOf(t, addr) }})
	}
	add("bare ReverseProxy of Go", func(addr string) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "LEAST_HANDLER="+addr, "LEAST_PROXY="+origin)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		awaitListener(t, addr)
	})
	addOthers(t, origin, add)
	return all
}

// addOthers starts the proxies of others, with what their documentation says of kept connections.
func addOthers(t *testing.T, origin string, add func(name string, start func(addr string))) {
	add("nginx", func(addr string) {
		runNginx(t, addr, "upstream origin { server "+origin+"; keepalive 64; keepalive_requests 100000000; }\n"+
			"server { listen "+addr+"; keepalive_requests 100000000; location / { proxy_pass http://origin; "+
			"proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header Host $host; } }\n")
	})
	add("HAProxy", func(addr string) {
		dir := t.TempDir()
		run(t, dir, addr, "haproxy", "-q", "-f", write(t, dir, "haproxy.cfg", "global\n  nbthread 1\ndefaults\n"+
			"  mode http\n  timeout client 60s\n  timeout server 60s\n  timeout connect 5s\n  http-reuse always\n"+
			"frontend f\n  bind "+addr+"\n  default_backend b\nbackend b\n  server o "+origin+"\n"))
	})
	add("Caddy", func(addr string) {
		dir := t.TempDir()
		run(t, dir, addr, "caddy", "run", "--adapter", "caddyfile", "--config", write(t, dir, "Caddyfile",
			"{\nadmin off\nauto_https off\n}\nhttp://"+addr+", http://shop.example:"+portOf(t, addr)+
				" {\nbind 127.0.0.1\nreverse_proxy "+origin+"\n}\n"))
	})
	add("Envoy", func(addr string) {
		dir := t.TempDir()
		text := strings.NewReplacer("LISTEN", portOf(t, addr), "ORIGIN", portOf(t, origin)).Replace(envoyBeside)
		run(t, dir, addr, *envoyPath, "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning",
			"-c", write(t, dir, "envoy.yaml", text))
	})
}

const envoyBeside = `static_resources:
  listeners:
    - address: {socket_address: {address: 127.0.0.1, port_value: LISTEN}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: in
                route_config: {virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: "/"}, route: {cluster: origin}}]}]}
                http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
  clusters:
    - name: origin
      connect_timeout: 5s
      load_assignment:
        cluster_name: origin
        endpoints:
          - lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: ORIGIN}}}}]
`

// startGate starts headgate with a room for all, and takes a pass.
func startGate(t *testing.T, origin string) beside {
	t.Helper()
	dir := t.TempDir()
	w := &world{addr: loopback.Free(t), admin: loopback.Free(t)}
	w.file = write(t, dir, "headgate.yaml", "data: "+dir+"/data\nlisten: "+w.addr+"\nadmin_listen: "+w.admin+
		"\nrooms:\n  - {name: shop, host: shop.example, origin: \"http://"+origin+
		"\", total_active_users: 100, new_users_per_minute: 100, session_duration: 1h}\n")
	w.startHeadgate(t)
	inside := browser{w: w}
	for range settles {
		inside.ask(t, "GET", "/1024")
		<-time.After(time.Second)
	}
	return beside{"headgate, with a pass", w.addr, inside.jar.String(), func() int { return w.headgate.PID }}
}

// load asks for a path over kept connections, and returns the CPU time of the proxy for a request, in
// microseconds.
func (b *beside) load(t *testing.T, path string, s *size) float64 {
	t.Helper()
	pid := b.pid()
	before := cpuTime(t, pid)
	var wg sync.WaitGroup
	for range s.clients {
		wg.Go(func() {
			tr := &http.Transport{DisableCompression: true, ReadBufferSize: 64 << 10}
			defer tr.CloseIdleConnections()
			for range s.times {
				r, err := http.NewRequest("GET", "http://"+b.addr+path, nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Host = "shop.example"
				if b.cookie != "" {
					r.Header.Set("Cookie", b.cookie)
				}
				res, err := tr.RoundTrip(r)
				if err != nil {
					t.Errorf("%s: %v", b.name, err)
					return
				}
				n, err := io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if err != nil || n != int64(s.bytes) || res.StatusCode != http.StatusOK {
					t.Errorf("%s: status %d, %d bytes, %v", b.name, res.StatusCode, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return (cpuTime(t, pid) - before).Seconds() * 1e6 / float64(s.clients*s.times)
}

// listenerOf returns the first process that listens at addr: a master before its workers.
func listenerOf(t *testing.T, addr string) int {
	t.Helper()
	port, err := strconv.Atoi(portOf(t, addr))
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	var socket string
	for line := range bytes.Lines(table) {
		f := strings.Fields(string(line))
		if len(f) > 9 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == "0A" {
			socket = "socket:[" + f[9] + "]"
		}
	}
	found := math.MaxInt
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && to == socket {
			pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
			found = min(found, pid)
		}
	}
	if socket == "" || found == math.MaxInt {
		t.Fatalf("nobody listens at %s", addr)
	}
	return found
}
