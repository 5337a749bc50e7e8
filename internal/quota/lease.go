package quota

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// A process hosts only while it has lately renewed a record of its own. Who writes that record
// in its place ends the renewals: a lease later it hosts nothing any more.

// nodeRecord is the record by which a process shows that it may host.
type nodeRecord struct {
	Process string `json:"process"`
}

// renew keeps the lease until ctx ends: as long as nobody else has written the record of
// this process.
func (h *Host) renew(ctx context.Context) {
	key := h.cfg.Prefix + "node." + nameOf(h.self)
	rev := uint64(0)
	value, err := json.Marshal(nodeRecord{h.self})
	if err != nil {
		return
	}
	for {
		h.renewOnce(ctx, key, value, &rev)
		wait := h.cfg.lease() / leaseParts
		if h.ledger.lease.Load() < int64(h.cfg.Boot()) {
			wait = lookEvery // not yet, or not any more
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// renewOnce tries to renew the lease, or finds what revision the record has.
func (h *Host) renewOnce(ctx context.Context, key string, value []byte, rev *uint64) {
	if h.deposed.Load() { // it must be written first that nothing is hosted here
		return
	}
	ctx, stop := context.WithTimeout(ctx, chartWait)
	defer stop()
	sent, term := h.cfg.Boot(), h.cfg.lease()
	next, err := h.cfg.Store.CompareAndSwap(ctx, key, *rev, value)
	if err == nil {
		*rev = next
		h.ledger.lease.Store(int64(sent + term - term/lendDrift))
		return
	}
	b, now, err := h.cfg.Store.Load(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		*rev = 0
	case err == nil:
		if *rev = now; !h.wrote(b) && h.ledger.lease.Swap(0) != 0 {
			h.deposed.Store(true)
			h.wake()
		}
	}
}

// wrote reports whether this process wrote its record last.
func (h *Host) wrote(b []byte) bool {
	var r nodeRecord
	return json.Unmarshal(b, &r) == nil && r.Process == h.self
}

// fence is since when a process cannot renew its lease, by the own clock: as long as its
// record has this revision.
type fence struct {
	since time.Duration
	rev   uint64
}

// gone is fenced, asked once in a look at all shards.
func (h *Host) gone(ctx context.Context, process string) bool {
	known, ok := h.looked[process]
	if !ok {
		known = h.fenced(ctx, process)
		h.looked[process] = known
	}
	return known
}

// fenced reports whether a process can host nothing any more: somebody else has written its
// record, and its lease is over.
func (h *Host) fenced(ctx context.Context, process string) bool {
	if h.cfg.SoleHost && nameOf(process) == nameOf(h.self) { // an earlier life of this one
		return true
	}
	ctx, stop := context.WithTimeout(ctx, chartWait)
	defer stop()
	key := h.cfg.Prefix + "node." + nameOf(process)
	b, rev, err := h.cfg.Store.Load(ctx, key)
	var r nodeRecord
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return false
	case err == nil && json.Unmarshal(b, &r) == nil && r.Process == process:
		if rev, err = h.cfg.Store.CompareAndSwap(ctx, key, rev, []byte(`{}`)); err != nil {
			return false
		}
	}
	next := r.Process != "" && r.Process != process // a later life of it renews the record
	if f, ok := h.fences[process]; ok && (next || f.rev == rev) {
		return h.cfg.Boot()-f.since > h.cfg.fenceWait()
	}
	if len(h.fences) > 4*mostStreams {
		clear(h.fences)
	}
	h.fences[process] = fence{h.cfg.Boot(), rev}
	return false
}
