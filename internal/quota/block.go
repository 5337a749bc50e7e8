package quota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/limit"
)

// For keys of long windows, usage is written to the store in advance, in blocks. A key may not use
// more than the store contains, so a host that finds no copy of the shard still knows an upper
// bound. A block is a sixteenth of the amount, so a key causes at most that many writes in a
// window. Chosen.
const (
	blockParts = 16
	blockEvery = 20 * time.Millisecond
	blockPace  = 500 * time.Nanosecond // added delay between two writes of a shard, per byte
	blockHead  = 24                    // bytes in addition to the name and the key, at most
	mostBlocks = 900 << 10             // bytes of blocks per shard: what fits into a record

	// blockTry is the timeout of the first attempt of a write. Each failed attempt doubles the
	// timeout, up to chartWait. A write that is lost when the leader of the store changes is never
	// answered, and callers wait for it; a slow write must still be able to succeed.
	blockTry = 300 * time.Millisecond
)

// A blockAt is a write of a shard that must be confirmed before an answer is sent.
type blockAt struct {
	s     *shard
	seq   uint64
	epoch uint64 // epoch of the host that decided
}

// A bound is the maximum usage of a key, and the write that stores it.
type bound struct {
	n   int64
	seq uint64
}

// A blocks is the usage of one shard that is written in advance. It is guarded by the mu of the
// shard.
type blocks struct {
	size    int    // of all bounds, upper limit
	asked   uint64 // the newest write that is needed
	done    uint64 // the newest write that is confirmed
	rev     uint64
	next    time.Duration // own clock: earliest time of the next write
	try     time.Duration // timeout of the next write, 0: blockTry
	bounded map[string]map[uint64]bound
	change  chan struct{} // closed on each confirmed write and when the shard is left; nil: nobody waits
}

// blockFor ensures that a written block covers what a key has used and lent. It returns the write
// to wait for, or 0 for none. The caller holds mu.
func (s *shard) blockFor(t *table, hash uint64, key string) (seq uint64, ok bool) {
	b := &s.blocks
	claimed, most := t.Committed(hash)
	of := b.bounded[t.def.Name]
	have, known := of[hash]
	if claimed > have.n || !known {
		if of == nil {
			of = map[uint64]bound{}
			if b.bounded == nil {
				b.bounded = map[string]map[uint64]bound{}
			}
			b.bounded[t.def.Name] = of
		}
		if !known {
			size := len(t.def.Name) + len(key) + blockHead
			if b.size+size > mostBlocks {
				return 0, false
			}
			b.size += size
		}
		b.asked = max(b.asked, b.done) + 1
		have = bound{min(most, claimed+max(1, most/blockParts)), b.asked}
		of[hash] = have
	}
	if have.seq > b.done {
		return have.seq, true
	}
	return 0, true
}

// wake wakes everyone who waits for a write. The caller holds the mu of the shard.
func (b *blocks) wake() {
	if b.change != nil {
		close(b.change)
		b.change = nil
	}
}

// awaitBlock waits until a write of the blocks of a shard is confirmed, or until this hosting of
// the shard has ended: then the write never happens. It reports false if ctx ended first.
func (s *shard) awaitBlock(ctx context.Context, seq, epoch uint64) bool {
	for {
		s.mu.Lock()
		done := s.blocks.done >= seq || !s.decides() || s.epoch != epoch
		if s.blocks.change == nil {
			s.blocks.change = make(chan struct{})
		}
		change := s.blocks.change
		s.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-change:
		}
	}
}

func (h *Host) blockKey(i int) string { return fmt.Sprintf("%sblock.%d", h.cfg.Prefix, i) }

// writeBlocks writes blocks on request until ctx ends.
func (h *Host) writeBlocks(ctx context.Context) {
	tick := time.NewTicker(blockEvery)
	defer tick.Stop()
	const atOnce = 8
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.ledger.dirty:
		case <-tick.C:
		}
		var due []int
		now := h.cfg.Boot()
		for i := range h.ledger.shards {
			s := &h.ledger.shards[i]
			s.mu.Lock()
			if s.decides() && s.blocks.asked > s.blocks.done && now >= s.blocks.next {
				due = append(due, i)
			}
			s.mu.Unlock()
		}
		for len(due) > 0 {
			// A few at once: each write is synced, and all 256 shards may be due.
			n := min(atOnce, len(due))
			var wg sync.WaitGroup
			for _, i := range due[:n] {
				wg.Go(func() { h.writeBlock(ctx, i) })
			}
			wg.Wait()
			due = due[n:]
		}
	}
}

// writeBlock writes the blocks of one shard.
func (h *Host) writeBlock(ctx context.Context, i int) {
	s := &h.ledger.shards[i]
	s.mu.Lock()
	b, rev, asked, epoch := s.appendBlocks(nil), s.blocks.rev, s.blocks.asked, s.epoch
	wait := max(blockTry, s.blocks.try)
	s.mu.Unlock()
	ctx, stop := context.WithTimeout(ctx, wait)
	defer stop()
	next, err := h.cfg.Store.CompareAndSwap(ctx, h.blockKey(i), rev, b)
	if errors.Is(err, store.ErrConflict) {
		next = h.revOf(ctx, i)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.decides() || s.epoch != epoch {
		return
	}
	s.blocks.next = h.cfg.Boot() + time.Duration(len(b))*blockPace
	if next > 0 {
		s.blocks.rev = next
	}
	if err != nil {
		s.blocks.try = min(2*wait, chartWait)
		h.cfg.Log.Debug("block of a limit not written", "shard", i, "error", err)
		return
	}
	s.blocks.done, s.blocks.try = asked, 0
	s.blocks.wake()
}

// revOf returns the revision of the blocks of a shard if this process is still its host, or 0. The
// revision may come from a write of this process whose answer was lost, or from the previous host.
// It is read before the shard map: if another process has become the host since then, its write
// makes ours fail.
func (h *Host) revOf(ctx context.Context, i int) uint64 {
	_, rev, err := h.cfg.Store.Load(ctx, h.blockKey(i))
	if err != nil {
		return 0
	}
	c, err := load(ctx, h.cfg.Store, h.cfg.Prefix+"chart")
	if err != nil || c.Shards[i].Host != h.self {
		return 0
	}
	return rev
}

// appendBlocks appends the bounds of all keys of long windows that have used any of their limit.
// For a key without a bound it appends the usage. The caller holds mu.
func (s *shard) appendBlocks(b []byte) []byte {
	b = append(b, wireFormat)
	s.blocks.size = 0
	was := s.blocks.bounded
	s.blocks.bounded = map[string]map[uint64]bound{} // only bounds of what is written stay
	for name, t := range s.tables {
		if !t.def.Rules.Long() {
			continue
		}
		of, still := was[name], map[uint64]bound{}
		s.blocks.bounded[name] = still
		for i := range t.Places() {
			key, hash, claimed := t.CommittedAt(i)
			if claimed == 0 {
				continue
			}
			if have, ok := of[hash]; ok {
				still[hash] = have
			}
			b = codec.AppendText(codec.AppendText(b, name), key)
			b = codec.AppendInt(b, max(claimed, of[hash].n), int64(t.Now()))
			s.blocks.size += len(name) + len(key) + blockHead
		}
	}
	return b
}

// readBlocks reads the written blocks of a shard whose copies are lost, before the shard is hosted.
func (h *Host) readBlocks(ctx context.Context, i int) (b []byte, err error) {
	ctx, stop := context.WithTimeout(ctx, chartWait)
	defer stop()
	b, _, err = h.cfg.Store.Load(ctx, h.blockKey(i))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return b, err
}

// putBlocks counts the written amounts as used, in the windows in which they were written. The
// caller holds mu.
func (l *ledger) putBlocks(s *shard, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	d, err := newReader(b)
	if err != nil {
		return err
	}
	clk := l.boot()
	for d.Len() > 0 && !d.Bad() {
		name, key := d.Text(mostName), d.Text(mostKey)
		n, at := d.Int(), limittable.Time(d.Int())
		def := l.rules(name)
		if d.Bad() || def == nil || n <= 0 {
			continue
		}
		now := s.tableTime(def, s.now(clk))
		t := s.table(def, now)
		now = s.lostTime(def) // until then loans may be used
		if def.Wall && !t.SameWindow(at, now) {
			continue
		}
		deed := limittable.Entry{Kind: limittable.EntryTake, N: min(n, limit.MaxAmount)}
		t.Replicate(now, limittable.Time(clk), l.hash(key), key, &deed)
	}
	if d.Bad() {
		return errMessage
	}
	return nil
}
