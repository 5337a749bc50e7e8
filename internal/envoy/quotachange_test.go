package envoy

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/ratelimit"
)

// prompt returns a proxy whose messages take no time.
func prompt(t *testing.T, q *quotas, rate int) *proxy {
	p := &proxy{T: t, quotas: q, id: buyers(), delay: func() time.Duration { return 0 }, demand: many(rate)}
	p.connect()
	return p
}

func (p *proxy) run(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(quotaStep) {
		p.step()
	}
}

// A limit that leaves shadow mode at run time, as by PATCH /v1/limits/{limit}, is enforced, although
// the rules are the same.
func TestQuotasFollowChangesOfALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := lending(t, "sliding_log", 100, 10)
		name := l.Limits()[0].Name
		change := func(shadow bool, amount int64) {
			if err := l.Update(name, func(l *ratelimit.Limit) error {
				l.Shadow, l.Amount = shadow, amount
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		change(true, 100)
		p := prompt(t, q, 50)
		p.run(20 * time.Second)
		if n := most(p.passed, 10*time.Second); n < 490 {
			t.Errorf("%d pass in shadow mode", n)
		}
		for _, amount := range []int64{100, 20, 0, 60} {
			change(false, amount)
			p.run(30 * time.Second) // until no window sees earlier calls
			p.passed = nil
			p.run(2 * time.Minute)
			if n := most(p.passed, 10*time.Second); n > int(amount) || n < int(amount)*8/10 {
				t.Errorf("%d in a window of %d", n, amount)
			}
		}
		p.disconnect()
		time.Sleep(2 * time.Minute)
	})
}

// A cutLender borrows from a host, or alone while the host is out of reach.
type cutLender struct {
	*ratelimit.Limiter
	here *ratelimit.Limiter
	cut  atomic.Bool
}

func (c *cutLender) Hold(
	ctx context.Context, a ratelimit.Check, t ratelimit.Waiters,
) (ratelimit.Hold, ratelimit.Result, error) {
	if c.cut.Load() {
		h, v, err := c.here.Hold(ctx, a, t)
		v.Local = true
		return h, v, err
	}
	return c.Limiter.Hold(ctx, a, t)
}

// What two processes borrow alone while the host of a key is out of reach is counted by the host
// when it is back.
func TestQuotasReturnToTheirHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, host := lending(t, "sliding_log", 100, 10)
		var all [2]*proxy
		var lenders [2]*cutLender
		for i := range all {
			q, here := lending(t, "sliding_log", 100, 10)
			lenders[i] = &cutLender{Limiter: host, here: here}
			lenders[i].cut.Store(true)
			q.lender = lenders[i]
			all[i] = prompt(t, q, 50)
		}
		run := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(quotaStep) {
				all[0].step()
				all[1].step()
			}
		}
		run(time.Minute)
		for i := range lenders {
			lenders[i].cut.Store(false)
			run(15 * time.Second)
		}
		for _, p := range all {
			p.passed = nil
		}
		run(2 * time.Minute)
		if n := most(slices.Concat(all[0].passed, all[1].passed), 10*time.Second); n > 100 || n < 80 {
			t.Errorf("%d in a window of 100", n)
		}
		for _, p := range all {
			p.disconnect()
		}
		time.Sleep(2 * time.Minute)
	})
}
