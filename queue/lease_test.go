package queue

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/ratelimit"
)

// twoLenders returns two lenders that share a limit per second and their fences.
func twoLenders(t *testing.T, amount int64) (a, b *Lender) {
	t.Helper()
	r := rate(amount)
	r.Unit = ratelimit.RequestBytes // a lease counts units of any kind
	c, records := limiter(t, r), &store.Memory{}
	var both [2]*Lender
	for i := range both {
		var err error
		both[i], err = newLender(LenderConfig{Name: "db", Capacity: c, Use: LimitUse{Limit: "db"}}, records)
		if err != nil {
			t.Fatal(err)
		}
		both[i].clock = time.Now // of the bubble
	}
	return both[0], both[1]
}

func lease(t *testing.T, l *Lender, n int64) *Lease {
	t.Helper()
	x, err := l.Lease(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// freeAfter returns how long it takes until n units are free.
func freeAfter(t *testing.T, l *Lender, n int64) time.Duration {
	t.Helper()
	began := time.Now()
	lease(t, l, n).Return()
	return time.Since(began).Round(100 * time.Millisecond)
}

func TestALeaseCountsFromItsUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoLenders(t, 10)
		x := lease(t, a, 10)
		time.Sleep(3 * time.Second)
		if err := x.Use(4); err != nil {
			t.Fatal(err)
		}
		x.Return()
		if err := x.Use(1); !errors.Is(err, ErrLeaseOver) {
			t.Errorf("what was returned is used: %v", err)
		}
		if d := freeAfter(t, b, 6); d != 0 {
			t.Errorf("what was returned is free after %v", d)
		}
		if d := freeAfter(t, b, 7); d != time.Second {
			t.Errorf("what was used is free after %v, want a window", d)
		}
	})
}

func TestALeaseCountsAsUsedWhenItsTermIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoLenders(t, 10)
		x := lease(t, a, 10)
		time.Sleep(4 * time.Second)
		if err := x.Renew(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		if n, term := x.Left(); n != 10 || term != time.Second {
			t.Errorf("%d are left for %v, want 10 for 1s", n, term)
		}
		if d := freeAfter(t, b, 10); d != 2*time.Second { // a second of the term, and a window
			t.Errorf("all is free after %v, want 2s", d)
		}
		if err := x.Use(1); !errors.Is(err, ErrLeaseOver) {
			t.Errorf("used after the term: %v", err)
		}
		if err := x.Renew(); !errors.Is(err, ErrLeaseOver) {
			t.Errorf("renewed after the term: %v", err)
		}
		x.Return()
	})
}

func TestFencesOnlyGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoLenders(t, 1000)
		var mu sync.Mutex
		seen := map[uint64]bool{}
		var wg sync.WaitGroup
		for _, l := range []*Lender{a, b} {
			wg.Go(func() {
				last := uint64(0)
				for range 50 {
					x, err := l.Lease(t.Context(), 1)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if x.Fence <= last || seen[x.Fence] {
						t.Errorf("fence %d after %d, seen %v", x.Fence, last, seen[x.Fence])
					}
					seen[x.Fence], last = true, x.Fence
					mu.Unlock()
					x.Return()
				}
			})
		}
		wg.Wait()
	})
}

func TestLeasesThatCannotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := twoLenders(t, 10)
		if _, err := a.Lease(t.Context(), 11); !errors.Is(err, ErrNever) {
			t.Errorf("more than the limit: %v", err)
		}
		if _, err := a.Lease(t.Context(), 0); !errors.Is(err, ErrLender) {
			t.Errorf("nothing: %v", err)
		}
		x := lease(t, a, 10)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := a.Lease(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while all is leased: %v", err)
		}
		x.Return()
		if d := freeAfter(t, a, 10); d != 0 {
			t.Errorf("all is free after %v", d)
		}
	})
}
