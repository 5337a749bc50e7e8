package headgate

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/slot"
)

// moving is a lender that is elsewhere after a while, as a Seat's host is.
type moving struct {
	now atomic.Pointer[counter.Counter]
}

func (m *moving) Sync(ctx context.Context, x *slot.Sync) (slot.Answer, error) {
	for ctx.Err() == nil {
		if c := m.now.Load(); c != nil {
			one, stop := context.WithTimeout(ctx, 500*time.Millisecond)
			a, err := c.Sync(one, x)
			stop()
			if err == nil {
				return a, nil
			}
		}
		time.Sleep(30 * time.Millisecond)
	}
	return slot.Answer{}, ctx.Err()
}

// No host for ten minutes, with two of three store nodes down: counter time stands still, the
// worker's runs on. A download that ends meanwhile must not be reported as seen in the future
// of the next host: its slot would be held for the whole outage and a session more.
func TestNobodyIsSeenInTheFuture(t *testing.T) {
	for _, down := range []time.Duration{10 * time.Second, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			e, p := plugged(memoryEngine())
			e.alone = false
			g := openGate(t, RoomConfig{
				TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Minute, Engine: e,
			})
			first := g.room.counter.(*counter.Counter)
			m := &moving{}
			m.now.Store(first)
			g.room.worker.lender = m
			time.Sleep(5 * time.Second)
			g.slow = down + 3*time.Second
			v := g.visitor()
			go v.in()
			time.Sleep(4 * time.Second)
			g.slow = 0
			p.full.Store(true)
			m.now.Store(nil)
			b, _, err := p.Memory.Load(t.Context(), "counter.shop")
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(down) // the download ends in here
			next := &store.Memory{}
			if _, err := next.CompareAndSwap(t.Context(), "counter.shop", 0, b); err != nil {
				t.Fatal(err)
			}
			cfg := g.room.Config()
			c, err := counter.Open(t.Context(), counter.Config{
				Room: cfg.Name, Host: "b", Store: next, Params: cfg.params, Settings: cfg.settings(),
				Boot: cfg.Boot, Log: cfg.Log,
			}, g.room.worker.kick)
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { c.Run(ctx); close(done) }()
			g.room.counter = c
			m.now.Store(c)
			began := time.Now()
			w := g.visitor()
			for !w.in() && time.Since(began) < 20*time.Minute {
				time.Sleep(time.Second)
			}
			t.Logf("down for %v: the slot of nobody was free after %v", down, time.Since(began))
			if time.Since(began) > 2*time.Minute {
				t.Errorf("idle for %v while somebody waits, sessions last 1m", time.Since(began))
			}
			g.stop()
			end()
			<-done
		})
	}
}
