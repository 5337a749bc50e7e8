//go:build bench

package queues

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestWorkersClaim lets workers claim jobs by HTTP, 100 at a time, and acknowledge them, all on the same
// machine. What is claimed and what is acknowledged is on disk before each answer. It fails below 20,000 jobs
// a second, which only a machine that does nothing else can reach.
func TestWorkersClaim(t *testing.T) {
	const n, workers, each = 400_000, 8, 100
	p := build(t, 1_000_000, "    pull: {lease: 30s}\n    spread: false\n")
	p.start()
	wait(t, "a host", 10*time.Second, func() bool { return p.status().Name != "" })
	for from := 0; from < n; from += 4000 {
		if err := p.put(from, from+4000); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, "all known", time.Minute, func() bool { return p.status().Depth == n })
	before, own := cpu(t, p.cmd.Process.Pid), cpu(t, os.Getpid())
	began := time.Now()
	var done atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for done.Load() < n {
				count, err := p.claim(each)
				if err != nil {
					t.Error(err)
					return
				}
				done.Add(int64(count))
			}
		})
	}
	wg.Wait()
	rate := n / time.Since(began).Seconds()
	t.Logf("%.0f jobs/s claimed and acknowledged; processor time a job: %v of headgate, %v of the workers", rate,
		(cpu(t, p.cmd.Process.Pid)-before)/n, (cpu(t, os.Getpid())-own)/n)
	if s := p.status(); s.Depth != 0 || s.Totals.Delivered != n {
		t.Errorf("%d are left, and %d were done", s.Depth, s.Totals.Delivered)
	}
	if rate < 20_000 {
		t.Errorf("%.0f jobs/s, want 20,000", rate)
	}
}

// claim claims jobs and acknowledges them, and returns how many.
func (p *process) claim(most int) (int, error) {
	b, err := p.do("POST", "/v1/queues/orders/claim", "application/json",
		fmt.Appendf(nil, `{"max": %d, "wait": "100ms"}`, most))
	if err != nil {
		return 0, err
	}
	var got struct{ Jobs []struct{ Receipt string } }
	if err := json.Unmarshal(b, &got); err != nil || len(got.Jobs) == 0 {
		return 0, err
	}
	var said struct {
		Receipts []string `json:"receipts"`
	}
	for i := range got.Jobs {
		said.Receipts = append(said.Receipts, got.Jobs[i].Receipt)
	}
	if b, err = json.Marshal(said); err != nil {
		return 0, err
	}
	var is struct{ Count int }
	if b, err = p.do("POST", "/v1/queues/orders/ack", "application/json", b); err == nil {
		err = json.Unmarshal(b, &is)
	}
	return is.Count, err
}
