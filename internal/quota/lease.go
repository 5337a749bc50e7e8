package quota

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// A process may host only if it has recently renewed its own record. A process that writes the
// record in its place ends the renewals: one lease later the first process hosts nothing.

// A nodeRecord is the record that shows that a process may host.
type nodeRecord struct {
	Process string `json:"process"`
}

// renew renews the lease until ctx ends, as long as no other process has written the record of this
// one.
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

// renewOnce tries to renew the lease, or finds the revision of the record.
func (h *Host) renewOnce(ctx context.Context, key string, value []byte, rev *uint64) {
	if h.deposed.Load() { // first the shard map must say that nothing is hosted here
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

// wrote reports whether this process was the last to write its record.
func (h *Host) wrote(b []byte) bool {
	var r nodeRecord
	return json.Unmarshal(b, &r) == nil && r.Process == h.self
}

// A fence is the time since when a process cannot renew its lease, by the own clock. It is valid
// while its record has this revision.
type fence struct {
	since time.Duration
	rev   uint64
}

// gone does the same as fenced, but only once per pass over the shards.
func (h *Host) gone(ctx context.Context, process string) bool {
	known, ok := h.looked[process]
	if !ok {
		known = h.fenced(ctx, process)
		h.looked[process] = known
	}
	return known
}

// fenced reports whether a process can no longer host: another process has written its record, and
// its lease is over.
func (h *Host) fenced(ctx context.Context, process string) bool {
	if h.cfg.SoleHost && nameOf(process) == nameOf(h.self) { // an earlier life of this process
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
