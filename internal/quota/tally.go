package quota

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/boot"
	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/internal/usage"
)

// Usage is recorded where units are counted: at the host of a shard, and its standby repeats what is
// recorded. The host writes only what its standby has, so the standby that takes over continues with the
// same batches (package usage).

// cutWait is how long the host waits until its standby knows what is cut. Chosen: longer than a link lives
// without an answer.
const cutWait = 2 * time.Second

// keyOfUsage returns the key under which usage is recorded: that of a caller, whatever its plan is.
func keyOfUsage(counted string) string {
	_, key := limittable.CutPlan(counted)
	return key
}

// spend changes the tally of a shard that this process hosts, and tells its standby. An unused tally is not
// copied, because older nodes do not know of any: so the first change is told as a copy. The caller holds mu.
func (s *shard) spend(i byte, clk time.Duration, change func(t *usage.Tally) []byte) {
	used := s.tally.IsUsed()
	b := change(&s.tally)
	for _, k := range s.out {
		switch {
		case len(b) == 0:
		case used:
			k.put(codec.AppendText([]byte{recordUsage, i}, b))
		default:
			s.copyUsage(int(i), k, clk)
		}
	}
}

// count records what a request has used. The caller holds mu.
func (s *shard) count(t *table, q *request, d *limittable.Entry, clk time.Duration) {
	if !t.def.Usage || d.Kind == 0 {
		return
	}
	limit, key := q.limit, keyOfUsage(q.key)
	s.spend(q.shard, clk, func(y *usage.Tally) []byte {
		b := y.At(nil, usage.Hour.Of(time.Now()))
		if s.forgot != nil && !s.forgot[limit] {
			s.forgot[limit] = true
			b = y.Sum(b, limit, usage.Sums{Lost: 1})
		}
		switch {
		case d.Kind == limittable.EntryTake && d.TTL > 0:
			b = y.Hold(b, limit, key, d.ID, d.N, d.TTL, clk)
		case d.Kind == limittable.EntryTake, d.Kind == limittable.EntryLend:
			b = y.Spend(b, limit, key, d.N)
		case d.Kind == limittable.EntryGive:
			b = y.Spend(b, limit, key, -t.gave)
		case d.Kind == limittable.EntrySettle:
			b = y.Settle(b, limit, d.ID, d.N)
		}
		return b
	})
}

// unreported records units of a borrower that is gone. The caller holds mu.
func (s *shard) unreported(i byte, clk time.Duration, limit string, n int64) {
	s.spend(i, clk, func(y *usage.Tally) []byte {
		return y.Sum(y.At(nil, usage.Hour.Of(time.Now())), limit, usage.Sums{Unreported: n})
	})
}

// Cut implements usage.Tallies. What is cut must be known to the standby before it is written: otherwise
// the standby would write other units under the same number.
func (h *Host) Cut(ctx context.Context, slot int) (x usage.Batch, ok bool) {
	s := &h.ledger.shards[slot]
	s.mu.Lock()
	if s.role != hosts {
		s.mu.Unlock()
		return x, false
	}
	s.spend(byte(slot), h.cfg.Boot(), func(t *usage.Tally) (b []byte) {
		b, ok = t.Cut(nil)
		return b
	})
	if !ok {
		s.mu.Unlock()
		return x, false
	}
	var w waiting
	for _, k := range s.out {
		w.add(k, k.last())
	}
	x, epoch := s.tally.Batch(), s.epoch
	s.mu.Unlock()
	ctx, stop := context.WithTimeout(ctx, cutWait)
	defer stop()
	for i, k := range w.links {
		if !k.wait(ctx, w.upTo[i]) {
			return x, false
		}
		if k.reached(w.upTo[i]) {
			continue
		}
		s.mu.Lock()
		ok = ok && s.decides() && s.epoch == epoch // no other process has taken over without it
		s.mu.Unlock()
	}
	return x, ok && h.may()
}

// Wrote implements usage.Tallies.
func (h *Host) Wrote(slot int, x *usage.Batch) {
	s := &h.ledger.shards[slot]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.decides() {
		s.spend(byte(slot), h.cfg.Boot(), func(t *usage.Tally) []byte { return t.Wrote(nil, x) })
	}
}

// Lapse implements usage.Tallies.
func (h *Host) Lapse() {
	for i := range h.ledger.shards {
		s := &h.ledger.shards[i]
		s.mu.Lock()
		if s.role == hosts {
			clk := h.cfg.Boot()
			s.spend(byte(i), clk, func(t *usage.Tally) []byte {
				return t.Lapse(nil, clk, usage.Hour.Of(time.Now()))
			})
		}
		s.mu.Unlock()
	}
}

// Done implements usage.Tallies.
func (h *Host) Done(slot int, hour int64) bool {
	s := &h.ledger.shards[slot]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.role == hosts && s.tally.Done(hour)
}

// copyUsage puts a copy of the tally of a shard on a link. The caller holds mu.
func (s *shard) copyUsage(i int, k *link, clk time.Duration) {
	if s.tally.IsUsed() {
		s.tally.AppendCopy(clk, func(b []byte) {
			k.put(codec.AppendText([]byte{recordUsage, byte(i)}, b))
		})
	}
}

// beginUsage makes the tally of a shard that this process begins to host. The caller holds mu.
func (s *shard) beginUsage(copied bool) {
	s.forgot = nil
	if copied && s.tally.IsUsed() {
		return
	}
	s.tally.Begin()
	if !copied && s.lost {
		s.forgot = map[string]bool{}
	}
}

// ownSlots is the number of slots of a process that counts by itself. A kill loses what is not written, and
// writing takes a twentieth of a second for each slot: all have their turn within 2 s. Chosen: each may have
// some 60,000 keys in an hour.
const ownSlots = 32

// An ownUsage are the tallies of a process that counts by itself.
type ownUsage struct {
	slots [Shards]struct {
		mu    sync.Mutex
		tally usage.Tally
	}
	boot func() time.Duration
}

func newOwnUsage() *ownUsage {
	o := &ownUsage{boot: boot.New().Read}
	for i := range o.slots {
		o.slots[i].tally.Begin()
	}
	return o
}

// change changes the tally of a key. A nil ownUsage records nothing.
func (o *ownUsage) change(d *Definition, counted string, f func(t *usage.Tally, key string)) {
	if o == nil || !d.Usage {
		return
	}
	key := keyOfUsage(counted)
	x := &o.slots[UsageSlot(d.Name, key)%ownSlots]
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tally.At(nil, usage.Hour.Of(time.Now()))
	f(&x.tally, key)
}

func (o *ownUsage) spend(d *Definition, counted string, n int64) {
	o.change(d, counted, func(t *usage.Tally, key string) { t.Spend(nil, d.Name, key, n) })
}

func (o *ownUsage) hold(d *Definition, counted string, id uint64, n int64, ttl time.Duration) {
	o.change(d, counted, func(t *usage.Tally, key string) { t.Hold(nil, d.Name, key, id, n, ttl, o.boot()) })
}

func (o *ownUsage) settle(d *Definition, counted string, id uint64, n int64) {
	o.change(d, counted, func(t *usage.Tally, _ string) { t.Settle(nil, d.Name, id, n) })
}

// Cut implements usage.Tallies.
func (o *ownUsage) Cut(_ context.Context, slot int) (b usage.Batch, ok bool) {
	x := &o.slots[slot]
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok = x.tally.Cut(nil); ok {
		b = x.tally.Batch()
	}
	return b, ok
}

// Wrote implements usage.Tallies.
func (o *ownUsage) Wrote(slot int, b *usage.Batch) {
	x := &o.slots[slot]
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tally.Wrote(nil, b)
}

// Lapse implements usage.Tallies.
func (o *ownUsage) Lapse() {
	for i := range o.slots {
		x := &o.slots[i]
		x.mu.Lock()
		x.tally.Lapse(nil, o.boot(), usage.Hour.Of(time.Now()))
		x.mu.Unlock()
	}
}

// Done implements usage.Tallies.
func (o *ownUsage) Done(slot int, hour int64) bool {
	x := &o.slots[slot]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.tally.Done(hour)
}

// UsageSlot returns the slot of a key: its shard, unless it has a plan.
func UsageSlot(limit, key string) int { return int(shardOf(limit, key)) }

// A Usage records what the keys of the limits of a process use. Package ratelimit embeds it under an
// unexported name.
type Usage struct {
	own    *ownUsage
	shared *Shared
}

// NewUsage returns a Usage. shared is nil if the process counts by itself.
func NewUsage(shared *Shared) Usage {
	if shared != nil {
		return Usage{shared: shared}
	}
	return Usage{own: newOwnUsage()}
}

// RecordUsage records usage by k until ctx ends. A process that hosts no keys records nothing. It waits for
// the hosts of the shared limits to begin, and must be called once.
func (u Usage) RecordUsage(ctx context.Context, k *usage.Keeper) {
	if u.own != nil {
		k.Flush(ctx, u.own, 0)
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, n := range []*Node{u.shared.near, u.shared.far} {
		if n != nil && n.host != nil {
			wg.Go(func() { k.Flush(ctx, n.host, i*usage.Slots) })
		}
	}
}
