package quota

import (
	"context"
	"hash/maphash"
	"sync"
	"time"
)

// A call in progress counts for the duration of its lease, and no longer if its process is gone. A
// live process renews the lease.

// renewals is the number of renewals in each lease, so that two may be lost. Renewals of a call are
// at least renewEach apart, because a shorter lease would end before a renewal can arrive. Chosen.
const (
	renewals  = 3
	renewEach = 10 * time.Millisecond
)

// Renew starts the lease of a call in progress again.
func (k *Keys) Renew(ctx context.Context, d *Definition, key string, id uint64) error {
	if k.lane != nil && id&countedHere == 0 {
		_, err := k.lane.Settle(ctx, key, id, renewal)
		return err
	}
	p, hash, now := k.at(d, key)
	defer p.mu.Unlock()
	_, _, err := p.table.Renew(now, hash, id&^countedHere)
	return err
}

// A LeaseRenewer renews a lease regularly until it is stopped. The zero LeaseRenewer does nothing.
type LeaseRenewer struct {
	mu    sync.Mutex
	timer *time.Timer
	over  bool
}

// Start calls renew three times in each lease, one call at a time. If lease is 0 it does nothing.
func (p *LeaseRenewer) Start(lease time.Duration, renew func()) {
	if lease <= 0 {
		return
	}
	every := max(lease/renewals, renewEach)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(every, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.over {
			renew()
			p.timer.Reset(every)
		}
	})
}

// Stop stops the renewals. It waits for a renewal in progress.
func (p *LeaseRenewer) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over = true; p.timer != nil {
		p.timer.Stop()
	}
}

// keep renews a held call until it ends.
func (h *Hold) keep(lease time.Duration) {
	k, key, id := h.keys, h.key, h.id
	h.kept = &LeaseRenewer{}
	if h.lent {
		next := max(lease/renewals, renewEach)
		h.kept.Start(lease, func() {
			k.lane.say(request{kind: kindSettle, key: key, id: id, n: renewal}, next)
		})
		return
	}
	h.kept.Start(lease, func() {
		hash := maphash.String(k.seed, key)
		p := &k.parts[hash>>56]
		p.mu.Lock()
		defer p.mu.Unlock()
		_, _, _ = p.table.Renew(k.now(p.def), hash, id&^countedHere)
	})
}
