package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// reviveEvery limits how often the engine is asked for the stream: many rooms that cannot write
// would all ask at once. goneFor is how long the stream must be missing before it is made again,
// because an engine that stops has none for a moment. Chosen.
const (
	reviveEvery = 250 * time.Millisecond
	goneFor     = time.Second
)

// A revival is the state of remaking a missing stream.
type revival struct {
	one     sync.Mutex // held by the goroutine that does it
	looked  time.Time  // when the stream was last checked
	missing time.Time  // since when it is missing; zero: it exists
	link    uint64     // number of the connection on which it was missing
	cared   bool       // the last result
}

// makeStream makes the stream, or finds the one that another process has just made. It contains the
// values that the engine still has on disk.
func makeStream(ctx context.Context, js jetstream.JetStream, replicas int) (jetstream.Stream, error) {
	cfg := jetstream.StreamConfig{
		Name: streamName, Subjects: []string{subjectHead + ">"},
		Storage:           jetstream.FileStorage,
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardOld,
		AllowDirect: false, // reads go to the leader: a stale record must not be read
		DenyDelete:  true, DenyPurge: true,
	}
	err := replicate(replicas, &cfg, func() error {
		_, err := js.CreateStream(ctx, cfg)
		return err
	})
	if err != nil {
		return nil, err
	}
	// CreateStream does not overwrite a damaged description on disk (nats-server,
	// newFileStoreWithCreated), and the next start would fail again. UpdateStream does.
	return js.UpdateStream(ctx, cfg)
}

// replicate sets the number of replicas of a stream and calls open, which makes it.
func replicate(replicas int, cfg *jetstream.StreamConfig, open func() error) error {
	if cfg.Replicas = max(1, replicas); replicas != AutoReplicas {
		return open()
	}
	cfg.Replicas = 3
	err := open()
	if alone(err) {
		cfg.Replicas = 1
		err = open()
	}
	return err
}

// unheard reports whether an engine without the stream may have given this error.
func unheard(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) ||
		errors.Is(err, jetstream.ErrStreamNotFound)
}

// revive makes the stream again if a restarted engine has not found it, because its description on
// disk was damaged. Further restarts would not help. It reports whether the missing stream is being
// handled; if not, the cause is something else. One goroutine does it at a time, until ctx ends.
func (n *NATS) revive(ctx context.Context) bool {
	r := &n.revival
	if !r.one.TryLock() {
		return true
	}
	defer r.one.Unlock()
	if time.Since(r.looked) < reviveEvery {
		return r.cared
	}
	link := n.cfg.Conn.Stats().Reconnects
	_, err := n.js.Stream(ctx, streamName)
	switch now := time.Now(); {
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		r.missing, r.cared = time.Time{}, false
	case r.missing.IsZero() || r.link != link:
		r.missing, r.link, r.cared = now, link, true
	case now.Sub(r.missing) >= goneFor:
		r.missing, r.cared = time.Time{}, n.remake(ctx)
	}
	r.looked = time.Now()
	return r.cared
}

func (n *NATS) remake(ctx context.Context) bool {
	if _, err := makeStream(ctx, n.js, n.cfg.Replicas); err != nil {
		n.cfg.Log.Error("stream cannot be made anew", "error", err)
		return false
	}
	n.cfg.Log.Error("engine has lost its stream: it is made anew from what is on the disk")
	n.refill(ctx)
	return true
}

// refill writes the second copies into the new stream for the keys that it lacks. Keys with an
// older value are repaired when their owner loads them: the owner may be about to write, and its
// own old copy must not come first.
func (n *NATS) refill(ctx context.Context) {
	if n.copies == nil {
		return
	}
	keys, err := n.copies.keys()
	for _, key := range keys {
		if err != nil {
			break
		}
		if _, _, err = n.read(ctx, key); errors.Is(err, ErrNotFound) {
			err = nil
			if c, ok := n.copies.read(key); ok {
				_, err = n.repair(ctx, key, 0, &c)
			}
		}
		if errors.Is(err, ErrConflict) {
			err = nil // the owner wrote first
		}
	}
	if err != nil { // the rest is repaired when it is loaded, or at the next start
		n.cfg.Log.Warn("not all second copies are in the new stream yet", "error", err)
	}
}

// repair writes a second copy back into the stream, which has the key at revision. This is the
// repair of damage, unless a restore wrote the copy and no engine has had the key since.
func (n *NATS) repair(ctx context.Context, key string, revision uint64, c *copyOf) (uint64, error) {
	fresh := revision == 0 && n.copies.fresh(key, c)
	n.copies.forget(key) // another store may have written the key in this folder since
	repaired, err := n.CompareAndSwap(ctx, key, revision, c.value)
	if err != nil {
		return 0, fmt.Errorf("repair from the second copy: %w", err)
	}
	if fresh {
		n.cfg.Log.Info("record taken from a backup", "key", key)
		return repaired, nil
	}
	n.cfg.Log.Error("record repaired from its second copy", "key", key,
		"engine_revision", revision, "copy_revision", c.revision)
	return repaired, nil
}
