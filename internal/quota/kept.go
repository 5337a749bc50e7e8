package quota

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/headgate/headgate/internal/store"
)

// Who stops and has nobody to hand its shards to writes what a standby would have been told:
// the store stands by. Whoever hosts them next reads that, and goes on where time stood then.
// The chart says which writing it is, until somebody hosts the shards: so it is read once.

// keptKey is the n-th record of what a process has kept.
func (h *Host) keptKey(name string, n uint64) string {
	return fmt.Sprintf("%skept.%s.%d", h.cfg.Prefix, name, n)
}

// keptName names a writing.
func keptName(name string, stream uint64) string { return fmt.Sprintf("%s~%x", name, stream) }

// keepCopies writes shards that nobody decides any more, as many as there is time for, and marks them.
func (h *Host) keepCopies(ctx context.Context, shards []int) (name string, kept map[int]bool) {
	own, stream := nameOf(h.self), rand.Uint64()
	k := newLink("", stream, func(_ context.Context, msg []byte) ([]byte, error) { // a disk may be slow
		seq := binary.LittleEndian.Uint64(msg[9:]) // behind the format and the stream
		if err := h.overwrite(ctx, h.keptKey(own, seq), msg); err != nil {
			return nil, err
		}
		return []byte{1}, nil
	})
	ends := map[int]uint64{}
	for _, i := range shards {
		ends[i] = h.ledger.copyTo(i, k)
	}
	run, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := k.run(run); err != nil && run.Err() == nil {
			h.cfg.Log.Warn("what keys of limits have used is not kept: it is lost", "error", err)
		}
		k.free()
	}()
	kept = map[int]bool{}
	for i, end := range ends {
		k.wait(ctx, end)
		kept[i] = k.reached(end)
	}
	stop()
	<-done
	return keptName(own, stream), kept
}

// overwrite writes a record whatever it holds.
func (h *Host) overwrite(ctx context.Context, key string, value []byte) error {
	_, rev, err := h.cfg.Store.Load(ctx, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	_, err = h.cfg.Store.CompareAndSwap(ctx, key, rev, value)
	return err
}

// readKept takes in what was kept, once. It reports whether the store has answered.
func (h *Host) readKept(ctx context.Context, kept string) bool {
	if h.readOf[kept] {
		return true
	}
	ctx, stop := context.WithTimeout(ctx, leaveWait)
	defer stop()
	for n := uint64(1); ; n++ {
		b, _, err := h.cfg.Store.Load(ctx, h.keptKey(nameOf(kept), n))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			h.cfg.Log.Debug("what keys of limits have used is not read", "error", err)
			return false
		}
		if len(b) < 9 || keptName(nameOf(kept), binary.LittleEndian.Uint64(b[1:])) != kept ||
			!bytes.Equal(h.ledger.repeat(ctx, b), []byte{1}) {
			break
		}
	}
	h.readOf[kept] = true
	return true
}

// erase empties what was kept and is of no use any more, once the chart says so.
func (h *Host) erase(ctx context.Context, was, now *ShardMap) {
	for i := range was.Shards {
		kept := was.Shards[i].HasCopy
		if kept == "" || !h.readOf[kept] ||
			slices.ContainsFunc(now.Shards[:], func(x Assignment) bool { return x.HasCopy == kept }) {
			continue
		}
		delete(h.readOf, kept)
		h.wg.Go(func() {
			for n := uint64(1); ctx.Err() == nil; n++ {
				key := h.keptKey(nameOf(kept), n)
				b, rev, err := h.cfg.Store.Load(ctx, key)
				if err != nil || len(b) == 0 {
					return
				}
				if _, err = h.cfg.Store.CompareAndSwap(ctx, key, rev, nil); err != nil {
					return // somebody has stopped again since
				}
			}
		})
	}
}
