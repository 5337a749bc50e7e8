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

// A process that stops and has no standby for its shards writes to the store what a standby would
// have received. The next host reads it and continues from the shard's time at that moment. The
// shard map names the stored copy until a process hosts the shard, so it is read only once.

// keptKey returns the key of the n-th record that a process has stored.
func (h *Host) keptKey(name string, n uint64) string {
	return fmt.Sprintf("%skept.%s.%d", h.cfg.Prefix, name, n)
}

// keptName returns the name of a stored copy.
func keptName(name string, stream uint64) string { return fmt.Sprintf("%s~%x", name, stream) }

// keepCopies writes as many paused shards as time allows, and returns which ones.
func (h *Host) keepCopies(ctx context.Context, shards []int) (name string, kept map[int]bool) {
	own, stream := nameOf(h.self), rand.Uint64()
	k := newLink("", stream, func(_ context.Context, msg []byte) ([]byte, error) { // a disk may be slow
		seq := binary.LittleEndian.Uint64(msg[9:]) // after the format and the stream
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

// overwrite writes a record, whatever it contains.
func (h *Host) overwrite(ctx context.Context, key string, value []byte) error {
	_, rev, err := h.cfg.Store.Load(ctx, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	_, err = h.cfg.Store.CompareAndSwap(ctx, key, rev, value)
	return err
}

// readKept reads a stored copy, once. It reports whether the store has answered.
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

// erase deletes stored copies that are no longer needed, once the shard map says so.
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
					return // another process has stopped since
				}
			}
		})
	}
}
