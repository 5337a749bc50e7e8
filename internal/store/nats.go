package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// NATSConfig describes a Store on JetStream.
type NATSConfig struct {
	Conn *nats.Conn
	// Copies is the folder of second copies, "" for none. A copy is written after the engine has
	// confirmed a write and before the caller gets the answer, without a sync. It survives a crash
	// of the process, and repairs what the engine lost to a damaged block.
	Copies string
	// Replicas is the number of servers that store each value. 0 means one; with AutoReplicas the
	// engine decides.
	Replicas int
	// OnWriteFailure is called when the engine rejects a write. It must not block.
	OnWriteFailure func(error)
	Log            *slog.Logger
}

// NATS is a Store on a JetStream stream.
type NATS struct {
	cfg    NATSConfig
	js     jetstream.JetStream
	copies *copies

	stream jetstream.Stream
	far    *client // on a worker: it reads and writes through the store nodes

	replicated bool // several servers have the stream

	revival revival
}

// OpenNATS finds the stream, or makes it and fills it from the second copies.
func OpenNATS(ctx context.Context, cfg NATSConfig) (*NATS, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.OnWriteFailure == nil {
		cfg.OnWriteFailure = func(error) {}
	}
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return nil, fmt.Errorf("speak to the engine: %w", err)
	}
	n := &NATS{cfg: cfg, js: js, far: clientOf(cfg.Conn)}
	if n.far != nil {
		_, err := n.far.kept(ctx) // a store node answers
		return n, err
	}
	if cfg.Copies != "" {
		if n.copies, err = openCopies(cfg.Copies); err != nil {
			return nil, err
		}
	}
	n.stream, err = js.Stream(ctx, streamName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		n.stream, err = makeStream(ctx, js, cfg.Replicas)
	}
	if err == nil {
		c := &n.stream.CachedInfo().Config
		n.replicated, err = c.Replicas > 1, unfit(c)
	}
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("open stream %s: %w", streamName, err)
	}
	return n, n.repairAll(ctx)
}

// Close closes the second copies. The caller closes the connection.
func (n *NATS) Close() {
	if n.copies != nil {
		n.copies.close()
	}
}

// repairAll compares every second copy with the stream.
func (n *NATS) repairAll(ctx context.Context) error {
	if n.copies == nil {
		return nil
	}
	keys, err := n.copies.keys()
	if err != nil {
		return err
	}
	for _, key := range keys {
		_, _, err := n.Load(ctx, key)
		if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrDamaged) {
			return fmt.Errorf("key %q: %w", key, err)
		}
	}
	return nil
}

// Keys returns the keys that begin with prefix, sorted.
func (n *NATS) Keys(ctx context.Context, prefix string) ([]string, error) {
	if n.far != nil {
		return nil, ErrDenied
	}
	info, err := n.stream.Info(ctx, jetstream.WithSubjectFilter(subjectHead+">"))
	if err != nil {
		return nil, fmt.Errorf("list the keys: %w", err)
	}
	var keys []string
	for subject := range info.State.Subjects {
		key, err := unescape(strings.TrimPrefix(subject, subjectHead))
		if err == nil && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

// Load implements Store. It reads from the leader of the stream and compares the value with the
// second copy each time. The engine may have lost confirmed writes, even while this process runs:
// through a damaged block, a removed folder or a restored backup.
func (n *NATS) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	for tries := 0; ; tries++ {
		value, revision, err := n.read(ctx, key)
		if n.copies == nil || err != nil && !errors.Is(err, ErrNotFound) {
			return value, revision, err
		}
		if err != nil && n.copies.lost(key) {
			return nil, 0, ErrDamaged
		}
		c, ok := n.copies.read(key)
		if !ok || c.revision < revision || c.revision == revision && string(c.value) == string(value) {
			return value, revision, err
		}
		repaired, err := n.repair(ctx, key, revision, &c)
		switch {
		case err == nil:
			return c.value, repaired, nil
		case !errors.Is(err, ErrConflict) || tries >= loadTries:
			return nil, 0, err
		}
		// Another process has written between the two reads: nothing was lost.
	}
}

// loadTries limits how often a Load may lose the race against writes of the same key.
const loadTries = 20

func (n *NATS) read(ctx context.Context, key string) ([]byte, uint64, error) {
	if n.far != nil {
		return n.far.load(ctx, key)
	}
	msg, err := n.stream.GetLastMsgForSubject(ctx, subjectHead+escape(key))
	if unheard(err) && n.revive(ctx) {
		msg, err = n.stream.GetLastMsgForSubject(ctx, subjectHead+escape(key))
	}
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, 0, ErrNotFound
	case err != nil:
		return nil, 0, fmt.Errorf("read: %w", err)
	}
	return msg.Data, msg.Sequence, nil
}

// CompareAndSwap implements Store. The engine syncs the value to disk before it answers.
func (n *NATS) CompareAndSwap(
	ctx context.Context, key string, revision uint64, value []byte,
) (uint64, error) {
	if len(value) > maxValue-1024 {
		return 0, ErrTooLarge
	}
	if n.far != nil {
		return n.far.swap(ctx, key, revision, value)
	}
	ack, err := n.js.Publish(ctx, subjectHead+escape(key), value,
		jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, n.writeError(ctx, err)
	}
	if n.copies != nil {
		if err := n.copies.write(key, ack.Sequence, value); err != nil {
			n.cfg.Log.Warn("second copy not written", "key", key, "error", err)
		}
	}
	return ack.Sequence, nil
}

// writeError distinguishes three causes: a lost race, an engine that cannot write, and an engine
// that has lost its stream.
func (n *NATS) writeError(ctx context.Context, err error) error {
	e, ok := errors.AsType[*jetstream.APIError](err)
	switch {
	case ok && lostRace(e.ErrorCode):
		return ErrConflict
	case unheard(err):
		if !n.revive(ctx) { // otherwise the caller loads and writes again
			n.cfg.OnWriteFailure(err)
		}
	case broken(ctx, err, n.replicated):
		n.cfg.OnWriteFailure(err)
	}
	return fmt.Errorf("write: %w", err)
}

// lostRace reports whether an answer rejects a revision that is not the newest. A replicated stream
// uses another code for it, also while a write of that key is in flight.
func lostRace(code jetstream.ErrorCode) bool {
	return code == jetstream.JSErrCodeStreamWrongLastSequence ||
		code == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}
