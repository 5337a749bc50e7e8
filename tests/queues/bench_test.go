//go:build bench

package queues

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// memory is that of the process, in MB: VmRSS is now, VmHWM the most so far.
func (p *process) memory(which string) float64 {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), which+":")
	var kb float64
	fmt.Sscan(rest, &kb)
	return kb / 1024
}

// TestAMillionWait puts a million jobs by HTTP, and looks at the memory of the process: 200 MB
// more than idle are allowed, with the idempotency keys, also while they come in.
func TestAMillionWait(t *testing.T) {
	p := build(t, 1, "    target: {url: 'http://127.0.0.1:9'}\n")
	p.start()
	wait(t, "a host", 10*time.Second, func() bool { return p.status().Name != "" })
	if _, err := p.do("POST", "/v1/queues/orders/pause", "", nil); err != nil {
		t.Fatal(err)
	}
	idle := p.memory("VmRSS")
	const n = 1_000_000
	begin := time.Now()
	var puts sync.WaitGroup
	for k := range 4 {
		puts.Go(func() {
			for from := k * 2000; from < n; from += 4 * 2000 {
				if err := p.put(from, from+2000); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	puts.Wait()
	took := time.Since(begin)
	wait(t, "all known", time.Minute, func() bool { return p.status().Depth == n })
	peak := p.memory("VmHWM")
	const after = time.Minute // the process gives back what it needs no more (package memory)
	<-time.After(after)
	full := p.memory("VmRSS")
	t.Logf("%.0f jobs/s put by HTTP; %.0f MB idle, %.0f MB at the peak, %.0f MB %v later",
		n/took.Seconds(), idle, peak, full, after)
	if full-idle > 200 || peak-idle > 200 {
		t.Errorf("%.0f MB more than idle, at the peak %.0f, want 200 at most", full-idle, peak-idle)
	}
	p.kill()
	begin = time.Now()
	p.start()
	wait(t, "all known again", time.Minute, func() bool { return p.status().Depth == n })
	again := time.Since(begin)
	<-time.After(after)
	t.Logf("after a kill all are known again within %v; %.0f MB %v later", again.Round(time.Millisecond),
		p.memory("VmRSS"), after)
}

// cpu is the processor time that a process has had.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	var user, system time.Duration
	fmt.Sscan(f[11], &user)
	fmt.Sscan(f[12], &system)
	return (user + system) * 10 * time.Millisecond // of 100 ticks a second
}

// TestThePaceIsReached puts jobs and then lets them flow to a target that answers at once, and
// compares with 99 % of limit × w/(w + mean answer time). The processor time of both sides says
// whether the machine had it to give.
func TestThePaceIsReached(t *testing.T) {
	for _, limit := range []int{10, 100, 1000, 5000, 10_000} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			var mu sync.Mutex
			var at []time.Time
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				now := time.Now()
				io.Copy(io.Discard, r.Body)
				mu.Lock()
				defer mu.Unlock()
				at = append(at, now)
			}))
			defer server.Close()
			p := build(t, limit, "    target: {url: "+server.URL+"}\n    concurrency: 256\n")
			p.start()
			wait(t, "a host", 10*time.Second, func() bool { return p.status().Name != "" })
			if _, err := p.do("POST", "/v1/queues/orders/pause", "", nil); err != nil {
				t.Fatal(err)
			}
			n := 10 * limit
			for from := 0; from < n; from += 1000 {
				if err := p.put(from, min(n, from+1000)); err != nil {
					t.Fatal(err)
				}
			}
			before, own := cpu(t, p.cmd.Process.Pid), cpu(t, os.Getpid())
			if _, err := p.do("POST", "/v1/queues/orders/resume", "", nil); err != nil {
				t.Fatal(err)
			}
			wait(t, "all delivered", 2*time.Minute, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(at) == n
			})
			t.Logf("processor time a job: %v of headgate, %v of the target",
				(cpu(t, p.cmd.Process.Pid)-before)/time.Duration(n),
				(cpu(t, os.Getpid())-own)/time.Duration(n))
			s := p.status()
			answer := s.Totals.DeliverySeconds / float64(max(1, s.Totals.Delivered))
			slices.SortFunc(at, time.Time.Compare)
			worst := time.Hour
			for i := limit; i < n; i++ {
				worst = min(worst, at[i].Sub(at[i-limit]))
			}
			first := 2 * limit // the beginning is of a process that starts
			rate := float64(n-1-first) / at[n-1].Sub(at[first]).Seconds()
			want := float64(limit) / (1 + answer)
			t.Logf("%.1f a second of %d (%.1f %% of what is possible with answers in %.1f ms); "+
				"the narrowest window is %v", rate, limit, 100*rate/want, answer*1000, worst)
			if worst < time.Second {
				t.Errorf("%d within %v", limit+1, worst)
			}
		})
	}
}
