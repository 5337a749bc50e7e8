package limiters

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/internal/loopback"
)

// The reference service, as it is fetched and built here, with Debian's Redis behind it.
const reference = "github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20260122083618-3fb702589d36"

// The rules of both sides: 1,000 a second for each client.
const rlsRules = `domain: api
descriptors:
  - key: client
    rate_limit: {unit: second, requests_per_unit: 1000}
`

// A side is one service under measurement.
type side struct {
	name    string
	addr    string
	pids    []int
	clients []pb.RateLimitServiceClient
}

// TestRLS compares Envoy's rate limit service of both sides: what they can do, and at half
// of what the reference can do the slowest hundredth and the CPU of a request.
func TestRLS(t *testing.T) {
	sides := []*side{startReference(t), startHeadgate(t)}
	for _, s := range sides {
		s.connect(t)
		s.closed(t, 64, time.Second) // warm
	}
	most := [2][]float64{}
	for range 3 { // they take turns
		for i, s := range sides {
			n, _, _ := s.closed(t, 64, 3*time.Second)
			most[i] = append(most[i], n)
		}
	}
	theirs, ours := middle(most[0]), middle(most[1])
	t.Logf("at most: the reference %.0f a second, headgate %.0f: %.1f × (budget 2)", theirs, ours, ours/theirs)
	if ours < 2*theirs / *slack {
		t.Errorf("headgate answers %.2f × what the reference can, budget 2", ours/theirs)
	}
	var p99, cpu [2][]float64
	for range 3 {
		for i, s := range sides {
			a, b := s.open(t, theirs/2, 4*time.Second)
			p99[i], cpu[i] = append(p99[i], a), append(cpu[i], b)
		}
	}
	for _, of := range []struct {
		what string
		both [2][]float64
	}{{"p99, ms", p99}, {"server CPU a request, µs", cpu}} {
		a, b := middle(of.both[0]), middle(of.both[1])
		t.Logf("%s at %.0f a second: the reference %.3f, headgate %.3f: %.2f × (budget 0.5)", of.what, theirs/2,
			a, b, b/a)
		if b > 0.5*a**slack {
			t.Errorf("%s: %.2f × that of the reference, budget 0.5", of.what, b/a)
		}
	}
}

func middle(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

func freePort(t *testing.T) string {
	t.Helper()
	return strconv.Itoa(loopback.Port(t, 1))
}

// process starts a program that ends with the test, and returns its number.
func process(t *testing.T, env []string, name string, args ...string) int {
	t.Helper()
	cmd := exec.Command(name, args...)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s: %s", name, text[max(0, len(text)-2000):])
		}
	})
	return cmd.Process.Pid
}

func startReference(t *testing.T) *side {
	t.Helper()
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(bin, "service_cmd")
	if _, err := os.Stat(program); err != nil {
		build := exec.Command("go", "install", reference)
		build.Env = append(os.Environ(), "GOBIN="+bin)
		build.Dir = t.TempDir()
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build the reference service: %v\n%s", err, out)
		}
	}
	redis, rpc := freePort(t), freePort(t)
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "api", "config"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "api", "config", "api.yaml")
	if err := os.WriteFile(file, []byte(rlsRules), 0o600); err != nil {
		t.Fatal(err)
	}
	pids := []int{process(t, nil, "redis-server", "--port", redis, "--save", "", "--appendonly", "no")}
	await(t, "127.0.0.1:"+redis)
	pids = append(pids, process(t, []string{
		"USE_STATSD=false", "LOG_LEVEL=error", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=127.0.0.1:" + redis,
		"RUNTIME_ROOT=" + root, "RUNTIME_SUBDIRECTORY=api", "RUNTIME_WATCH_ROOT=false",
		"GRPC_PORT=" + rpc, "PORT=" + freePort(t), "DEBUG_PORT=" + freePort(t),
	}, program))
	return &side{name: "reference", addr: "127.0.0.1:" + rpc, pids: pids}
}

func startHeadgate(t *testing.T) *side {
	t.Helper()
	program, err := filepath.Abs("../../bin/headgate-rls")
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", program, "./cmd/headgate")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build headgate: %v\n%s", err, out)
	}
	dir, rpc := t.TempDir(), freePort(t)
	for name, text := range map[string]string{"api.yaml": rlsRules, "headgate.yaml": fmt.Sprintf(`
listen: 127.0.0.1:%s
admin_listen: 127.0.0.1:%s
data: %s/data
envoy: {listen: "127.0.0.1:%s", rules: [api.yaml]}
`, freePort(t), freePort(t), dir, rpc)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pid := process(t, nil, program, "run", "--config", filepath.Join(dir, "headgate.yaml"))
	return &side{name: "headgate", addr: "127.0.0.1:" + rpc, pids: []int{pid}}
}

// await waits until somebody listens.
func await(t *testing.T, addr string) {
	t.Helper()
	for began := time.Now(); ; {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			c.Close()
			return
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("nobody listens at %s: %v", addr, err)
		}
		runtime.Gosched()
	}
}

// connect makes connections as an Envoy with four threads has.
func (s *side) connect(t *testing.T) {
	t.Helper()
	await(t, s.addr)
	for range 4 {
		c, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		s.clients = append(s.clients, pb.NewRateLimitServiceClient(c))
	}
}

// ask asks once for one of 10,000 clients.
func (s *side) ask(ctx context.Context, i int) error {
	res, err := s.clients[i%len(s.clients)].ShouldRateLimit(ctx, &pb.RateLimitRequest{
		Domain: "api",
		Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{
			{Key: "client", Value: strconv.Itoa(i * 7919 % 10_000)}}}},
	})
	if err == nil && (len(res.Statuses) != 1 || res.Statuses[0].CurrentLimit == nil) {
		err = fmt.Errorf("answered %v", res)
	}
	return err
}

// closed lets callers ask one after the other for a while: how many answers a second.
func (s *side) closed(t *testing.T, callers int, d time.Duration) (perSecond, p99, cpu float64) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	var n atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for c := range callers {
		all.Go(func() {
			for i := c; ctx.Err() == nil; i += callers {
				if err := s.ask(t.Context(), i); err != nil {
					t.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	return float64(n.Load()) / time.Since(began).Seconds(), 0, 0
}

// open asks so many times a second, whatever becomes of them: the slowest hundredth in ms,
// counted from when each was due, and the CPU of a request in µs.
func (s *side) open(t *testing.T, perSecond float64, d time.Duration) (p99, cpu float64) {
	t.Helper()
	n := int(perSecond * d.Seconds())
	took := make([]time.Duration, n)
	before := s.cpu(t)
	began := time.Now()
	var next atomic.Int64
	var all sync.WaitGroup
	for range 256 {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				due := began.Add(time.Duration(float64(i) / perSecond * float64(time.Second)))
				if wait := time.Until(due); wait > 0 {
					<-time.After(wait)
				}
				if err := s.ask(t.Context(), i); err != nil {
					t.Error(err)
					return
				}
				took[i] = time.Since(due)
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return float64(took[n*99/100].Microseconds()) / 1000, (s.cpu(t) - before) * 1e6 / float64(n)
}

// cpu is what the processes have used, in seconds.
func (s *side) cpu(t *testing.T) (sum float64) {
	t.Helper()
	for _, pid := range s.pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		for _, k := range []int{11, 12} { // utime and stime, proc(5)
			ticks, err := strconv.ParseFloat(f[k], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += ticks / 100
		}
	}
	return sum
}
