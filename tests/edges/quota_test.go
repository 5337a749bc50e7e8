//go:build edges

package edges

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/tests/yardstick"
)

// quotaFile returns a file of the section about quotas in docs/limits.md, with other ports.
func quotaFile(t *testing.T, name string, ports ...string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```yaml\n# "+name+"\n")
	block, _, _ := strings.Cut(rest, "\n```")
	if !ok {
		t.Fatalf("docs/limits.md has no %s", name)
	}
	return strings.NewReplacer(ports...).Replace(block) + "\n"
}

func portOf(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestQuotas: Envoys that are asked for more than a limit, alone and together, with the configuration
// of the docs. The origin sees at most the limit in each window, and some of each Envoy; all others get
// 429. When headgate is gone, the grants expire, and Envoy denies as configured.
func TestQuotas(t *testing.T) {
	var mu sync.Mutex
	var seen []time.Time
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, time.Now())
	}))
	defer origin.Close()
	dir, grpc, admin := t.TempDir(), loopback.Free(t), loopback.Free(t)
	rules := quotaFile(t, "ratelimit.yaml", "unit: minute, requests_per_unit: 100",
		"unit: second, unit_multiplier: 10, requests_per_unit: 200")
	write(t, dir, "ratelimit.yaml", rules)
	w := &world{admin: admin, file: write(t, dir, "headgate.yaml",
		quotaFile(t, "headgate.yaml", "127.0.0.1:8082", grpc)+"data: "+dir+"/data\nadmin_listen: "+admin+
			"\nlisten: "+loopback.Free(t)+"\n")}
	w.startHeadgate(t)
	var envoys [2]string
	for i := range envoys {
		envoys[i] = loopback.Free(t)
		dir := t.TempDir()
		run(t, dir, envoys[i], *envoyPath, "--use-dynamic-base-id", "--concurrency", "2", "--log-level", "warning",
			"-c", write(t, dir, "envoy.yaml", quotaFile(t, "envoy.yaml", "0.0.0.0, port_value: 80}",
				"127.0.0.1, port_value: "+portOf(t, envoys[i])+"}", "port_value: 3000}",
				"port_value: "+portOf(t, origin.Listener.Addr().String())+"}", "port_value: 8082}",
				"port_value: "+portOf(t, grpc)+"}")))
	}
	// load sends 100 requests a second, five times the limit, and returns how many passed.
	denied, by := 0, map[string]int{}
	load := func(d time.Duration, to ...string) (passed int) {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
			for _, addr := range to {
				res, err := http.Get("http://" + addr + "/")
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				switch res.StatusCode {
				case http.StatusOK:
					passed++
					by[addr]++
				case http.StatusTooManyRequests:
					denied++
				default:
					t.Fatalf("status %d", res.StatusCode)
				}
			}
		}
		return passed
	}
	for _, to := range [][]string{envoys[:1], envoys[:]} {
		first := load(30*time.Second, to...)
		got := load(10*time.Second, to...)
		t.Logf("%d Envoys: %d passed at first, then %d of 200", len(to), first, got)
	}
	if by[envoys[0]] == 0 || by[envoys[1]] == 0 {
		t.Errorf("an Envoy let nobody pass: %v", by)
	}
	mu.Lock()
	slices.SortFunc(seen, time.Time.Compare)
	from, most := 0, 0
	for i, at := range seen {
		for at.Sub(seen[from]) >= 10*time.Second {
			from++
		}
		most = max(most, i-from+1)
	}
	mu.Unlock()
	t.Logf("at most %d in 10 s", most)
	if most == 0 || most > 200 || denied == 0 {
		t.Errorf("%d requests in 10 s, want 1 to 200; %d denied", most, denied)
	}
	w.headgate.Stop()
	yardstick.Await(t, "grants expire", func() bool { return load(time.Second, envoys[:]...) == 0 })
}
