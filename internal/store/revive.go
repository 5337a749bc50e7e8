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

// reviveEvery bounds how often the engine is asked for the stream: many rooms that
// cannot write would ask all at once. goneFor is how long the stream must be missing:
// an engine that stops has none for a moment. Chosen.
const (
	reviveEvery = 250 * time.Millisecond
	goneFor     = time.Second
)

// A revival is the making anew of a stream that is missing.
type revival struct {
	one     sync.Mutex // held by who does it
	looked  time.Time  // when the stream was last looked for
	missing time.Time  // since when it is not there; zero: it is
	link    uint64     // which connection that was seen on
	cared   bool       // the newest answer
}

// makeStream makes the stream, or finds the one that somebody else has just made.
// Values that the engine still has on the disk are in it.
func makeStream(ctx context.Context, js jetstream.JetStream, replicas int) (jetstream.Stream, error) {
	cfg := jetstream.StreamConfig{
		Name: streamName, Subjects: []string{subjectHead + ">"},
		Storage: jetstream.FileStorage, Replicas: max(1, replicas),
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardOld,
		AllowDirect: false, // reads go to the leader: a stale record must not be seen
		DenyDelete:  true, DenyPurge: true,
	}
	if replicas == AutoReplicas {
		cfg.Replicas = 3
	}
	_, err := js.CreateStream(ctx, cfg)
	if replicas == AutoReplicas && alone(err) {
		cfg.Replicas = 1
		_, err = js.CreateStream(ctx, cfg)
	}
	if err != nil {
		return nil, err
	}
	// A damaged description that lies there is not written over by that
	// (nats-server, newFileStoreWithCreated): the next start would stumble again.
	return js.UpdateStream(ctx, cfg)
}

// unheard reports whether an engine without the stream would answer so.
func unheard(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) ||
		errors.Is(err, jetstream.ErrStreamNotFound)
}

// revive makes a stream anew that an engine which was started anew has not found,
// for its description was damaged: to start the engine again and again would not
// help. It reports whether the stream is cared for; if not, something else is wrong.
// One at a time does it, within ctx.
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

// refill gives the new stream the second copies of what it does not have. What it
// has an older value of is repaired when its owner loads it: the owner may be about
// to write, and must not be overtaken by its own copy.
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
			err = nil // its owner was faster
		}
	}
	if err != nil { // the rest when they are loaded, or at the next start
		n.cfg.Log.Warn("not all second copies are in the new stream yet", "error", err)
	}
}

// repair writes a second copy back into the stream, which has the key at revision. That is a
// repair of damage, unless a restore has written the copy and no engine had the key since.
func (n *NATS) repair(ctx context.Context, key string, revision uint64, c *copyOf) (uint64, error) {
	fresh := revision == 0 && n.copies.fresh(key, c)
	n.copies.forget(key) // another store of this folder may have written the key since
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
