package quota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/limit"
)

// What keys of long windows have used is written ahead, in blocks: a key may use no more than
// what is in the store, so that a host that finds no copy knows a bound. A block is a
// sixteenth of the amount, so that a key writes so often in a window at most. Chosen.
const (
	blockParts = 16
	blockEvery = 20 * time.Millisecond
	blockPace  = 500 * time.Nanosecond // more between two writes of a shard for each byte
	blockHead  = 24                    // beside the name and the key, at most
	mostBlocks = 900 << 10             // bytes of them: what a record holds

	// blockTry bounds the first try of a write, each that fails bounds the next by twice as much,
	// up to chartWait: a write that is lost with a leader of the store is never answered, and
	// callers wait for it; one that is slow must get through.
	blockTry = 300 * time.Millisecond
)

// blockAt is a write of a shard that must come before an answer.
type blockAt struct {
	s     *shard
	seq   uint64
	epoch uint64 // of the hosting that decided
}

// A bound is how much of a key may be used, and the write that says so.
type bound struct {
	n   int64
	seq uint64
}

// blocks are what is written ahead of one shard. Guarded by the shard's mu.
type blocks struct {
	size    int    // of all bounds, at most
	asked   uint64 // the write that is needed
	done    uint64 // and that was confirmed
	rev     uint64
	next    time.Duration // own clock: no earlier
	try     time.Duration // bounds the next write, 0: blockTry
	bounded map[string]map[uint64]bound
	change  chan struct{} // closed with each confirmed write, and when the shard is left; nil: nobody waits
}

// blockFor sees that what a key has used and lent is covered by a written block. It returns the
// write to wait for, 0 for none. Holds mu.
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

// wake lets all go on who wait for a write. Holds the shard's mu.
func (b *blocks) wake() {
	if b.change != nil {
		close(b.change)
		b.change = nil
	}
}

// awaitBlock waits until a write of a shard's blocks is confirmed, or the shard is not hosted any
// more as it was: then nobody writes it. It reports whether ctx was longer.
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

// writeBlocks writes what is asked for until ctx ends.
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

// revOf is the revision of the blocks of a shard, if this process is its host still: written by
// itself, and not heard of, or by the host before. 0 is none. It is read first: if another has
// become host since, its writing makes ours fail.
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

// appendBlocks appends the bounds of all keys of long windows that have used any: of those
// that have none, what they have used. Holds mu.
func (s *shard) appendBlocks(b []byte) []byte {
	b = append(b, wireFormat)
	s.blocks.size = 0
	was := s.blocks.bounded
	s.blocks.bounded = map[string]map[uint64]bound{} // of what is written, and of nothing else
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

// readBlocks takes in what was written of a shard whose copies are lost, before it is hosted.
func (h *Host) readBlocks(ctx context.Context, i int) (b []byte, err error) {
	ctx, stop := context.WithTimeout(ctx, chartWait)
	defer stop()
	b, _, err = h.cfg.Store.Load(ctx, h.blockKey(i))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return b, err
}

// putBlocks counts what was written as used, in the windows that it was written in. Holds mu.
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
		n, at := d.Int(), limit.Time(d.Int())
		def := l.rules(name)
		if d.Bad() || def == nil || n <= 0 {
			continue
		}
		now := s.tableTime(def, s.now(clk))
		t := s.table(def, now)
		now = s.lostTime(def) // until then what was lent may be used
		if def.Wall && !t.SameWindow(at, now) {
			continue
		}
		deed := limit.Entry{Kind: limit.EntryTake, N: min(n, limit.MaxAmount)}
		t.Replicate(now, limit.Time(clk), l.hash(key), key, &deed)
	}
	if d.Bad() {
		return errMessage
	}
	return nil
}
