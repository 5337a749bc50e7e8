package quota

import (
	"context"
	"hash/maphash"
	"sync"
	"time"
)

// A call under way counts for its lease, and no longer when who made it is gone. Who is there
// renews it.

// renewals are in each lease: two may be lost. Those of a call are renewEach apart at least:
// a shorter lease is over before anybody can be told. Chosen.
const (
	renewals  = 3
	renewEach = 10 * time.Millisecond
)

// Renew begins the lease of a call under way anew.
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

// A Keeper renews a lease from time to time until it is stopped. The zero Keeper does nothing.
type LeaseRenewer struct {
	mu    sync.Mutex
	timer *time.Timer
	over  bool
}

// Start lets renew be called thrice in each lease, once at a time. Without a lease it does
// nothing.
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

// Stop ends it. A renewal on its way is waited for.
func (p *LeaseRenewer) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over = true; p.timer != nil {
		p.timer.Stop()
	}
}

// keep renews a call that is held until it ends.
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
