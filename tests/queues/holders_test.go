//go:build bench

package queues

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/queue/lease"
)

// held is how much of a capacity all holders have together, and for how long.
type held struct {
	mu    sync.Mutex
	rates map[int]int64
	since time.Time
	sum   float64 // units × seconds of the window
	most  int64
}

func (h *held) told(who int, rate int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, all := time.Now(), int64(0)
	for _, r := range h.rates {
		all += r
	}
	h.sum += float64(all) * now.Sub(h.since).Seconds()
	h.most = max(h.most, all-h.rates[who]+rate)
	h.since, h.rates[who] = now, rate
}

// TestHoldersOfPartitionsComeAndGo shows what of a capacity in 32 partitions is lent while
// holders, each of which could use all of it, come and go: a partition rests between two
// holders, and one more is asked for each second.
func TestHoldersOfPartitionsComeAndGo(t *testing.T) {
	const amount = 320
	for _, n := range []int{1, 4, 16} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			server, err := embedded.Open(t.Context(), embedded.Config{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			leases := func() *lease.Leases {
				l, err := lease.Open(t.Context(), lease.Config{Name: "db", NATS: server.Conn(),
					Partitioning: lease.Partitioning{Count: 32, Amount: amount / 32}})
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
			all := &held{rates: map[int]int64{}, since: time.Now()}
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for i := range n {
				l := leases()
				wg.Go(func() {
					for ctx.Err() == nil {
						s, err := lease.NewShare(lease.ShareConfig{Leases: l,
							Need: func(context.Context) int64 { return amount },
							Rate: func(rate int64) { all.told(i, rate) }})
						if err != nil {
							t.Error(err)
							return
						}
						here, leave := context.WithTimeout(ctx, 4*time.Second+rand.N(8*time.Second))
						if i <= n/2 { // half of them stay
							here = ctx
						}
						s.Run(here)
						leave()
						select {
						case <-time.After(rand.N(2 * time.Second)):
						case <-ctx.Done():
						}
					}
				})
			}
			<-time.After(2 * settle)
			all.told(-1, 0)
			all.mu.Lock()
			all.sum = 0
			all.mu.Unlock()
			<-time.After(counted)
			all.told(-1, 0)
			all.mu.Lock()
			part := all.sum / (amount * counted.Seconds())
			all.mu.Unlock()
			stop()
			wg.Wait()
			t.Logf("%d holders: %.1f %% of the capacity is lent; at most %d of %d at once", n, 100*part,
				all.most, amount)
			if all.most > amount {
				t.Errorf("%d of %d are lent at once", all.most, amount)
			}
		})
	}
}
