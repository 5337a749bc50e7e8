package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// A Doc is a record that many processes edit, as a value of type T. A record that does not exist
// has the zero value of T. A Doc may be used by many goroutines at once.
type Doc[T any] struct {
	Store Store
	Key   string

	// Encode and Decode convert the value. The default is JSON. An error of Encode ends the edit.
	Encode func(T) ([]byte, error)
	Decode func([]byte) (T, error)

	// Try limits one attempt to read or write; attempts are repeated until the context ends. A
	// request that was sent to a former leader of the store never gets an answer. 0 means that only
	// the context limits an attempt.
	Try time.Duration

	// Lost is called with the error when the record is damaged; the value is zero then. If Lost is
	// nil, Load returns ErrDamaged.
	Lost func(err error)

	// Bus publishes Message under Topic to the processes that follow the record, after each write.
	// Bus is nil in a process without others. With a Bus, Log is required.
	Bus     *Bus
	Topic   string
	Message []byte
	Log     *slog.Logger
}

// Load returns the value and its revision, or zero and 0 if there is none.
func (d *Doc[T]) Load(ctx context.Context) (v T, revision uint64, err error) {
	for {
		try, stop := d.attempt(ctx)
		v, revision, err = d.load(try)
		late := try.Err() != nil
		stop()
		if err == nil || !late || ctx.Err() != nil {
			return v, revision, err
		}
	}
}

func (d *Doc[T]) load(ctx context.Context) (v T, revision uint64, err error) {
	b, revision, err := d.Store.Load(ctx, d.Key)
	switch {
	case errors.Is(err, ErrNotFound):
		return v, 0, nil
	case errors.Is(err, ErrDamaged) && d.Lost != nil:
		d.Lost(err)
		return v, 0, nil
	case err == nil:
		v, err = d.decode(b)
	}
	if err != nil {
		var zero T
		return zero, 0, fmt.Errorf("read %s: %w", d.Key, err)
	}
	return v, revision, nil
}

// Edit changes the value by calling edit, which reports whether there is anything to write. After a
// write it publishes the change to the followers. If another process has written first, Edit calls
// edit again with the newest value. A write counts as done when its value is in the store, even if
// the acknowledgment was lost. So a value that two processes must not both write needs a unique
// part, such as a time. Edit returns an error of edit unchanged. It returns the revision of the
// value.
func (d *Doc[T]) Edit(
	ctx context.Context, edit func(v *T) (changed bool, err error),
) (revision uint64, err error) {
	var sent []byte   // by the last write, if its result is unknown
	var failure error // error of that write, if it must not be repeated
	for {
		v, revision, err := d.Load(ctx)
		switch {
		case failure != nil && (err != nil || !d.holds(v, sent)):
			return 0, failure
		case err != nil:
			return 0, err
		case sent != nil && d.holds(v, sent):
			d.Publish()
			return revision, nil
		}
		changed, err := edit(&v)
		if err != nil || !changed {
			return revision, err
		}
		if sent, err = d.encode(v); err != nil {
			return 0, err
		}
		try, stop := d.attempt(ctx)
		revision, err = d.swap(try, revision, sent)
		late := try.Err() != nil
		stop()
		switch {
		case err == nil:
			d.Publish()
			return revision, nil
		case ctx.Err() != nil:
			return 0, err
		case errors.Is(err, ErrConflict):
			sent = nil
		case !late:
			failure = err
		}
	}
}

// holds reports whether v is the value that was sent.
func (d *Doc[T]) holds(v T, sent []byte) bool {
	b, err := d.encode(v)
	return err == nil && bytes.Equal(b, sent)
}

// Swap writes v if revision is still the newest revision; otherwise it returns ErrConflict. It
// publishes nothing.
func (d *Doc[T]) Swap(ctx context.Context, revision uint64, v T) (uint64, error) {
	b, err := d.encode(v)
	if err != nil {
		return 0, err
	}
	return d.swap(ctx, revision, b)
}

func (d *Doc[T]) swap(ctx context.Context, revision uint64, b []byte) (uint64, error) {
	revision, err := d.Store.CompareAndSwap(ctx, d.Key, revision, b)
	if err != nil {
		return 0, fmt.Errorf("write %s: %w", d.Key, err)
	}
	return revision, nil
}

func (d *Doc[T]) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	if d.Try == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d.Try)
}

func (d *Doc[T]) encode(v T) ([]byte, error) {
	if d.Encode != nil {
		return d.Encode(v)
	}
	return json.Marshal(v)
}

func (d *Doc[T]) decode(b []byte) (v T, err error) {
	if d.Decode != nil {
		return d.Decode(b)
	}
	return v, json.Unmarshal(b, &v)
}

// Publish informs the followers that the record has changed.
func (d *Doc[T]) Publish() {
	if d.Bus == nil {
		return
	}
	if err := d.Bus.Publish(d.Topic, d.Message); err != nil {
		d.Log.Warn("change not published to the other nodes: they find it themselves", "record", d.Key,
			"error", err)
	}
}

// mostTopics limits the messages that wait for a follower. Chosen: the next tick finds the changes
// of the others.
const mostTopics = 64

// Follow calls take with each message of a topic, and with nil at each tick, until ctx ends. Equal
// messages that wait together count once. Messages can be lost, so take must load what it needs at
// each tick. With a nil Bus there are only ticks.
func Follow(
	ctx context.Context, bus *Bus, topic string, every time.Duration, take func(message []byte),
) error {
	f := follower{news: make(chan struct{}, 1)}
	if bus != nil {
		stop, err := bus.Subscribe(topic, f.hear)
		if err != nil {
			return err
		}
		defer stop()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.news:
			for _, m := range f.messages() {
				take(m)
			}
		case <-tick.C:
			take(nil)
		}
	}
}

// A follower collects messages until take is called.
type follower struct {
	news chan struct{}

	mu      sync.Mutex
	waiting [][]byte
}

func (f *follower) hear(m []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.waiting {
		if bytes.Equal(x, m) {
			return
		}
	}
	if len(f.waiting) < mostTopics {
		f.waiting = append(f.waiting, append([]byte{}, m...)) // never nil: nil means a tick
	}
	select {
	case f.news <- struct{}{}:
	default:
	}
}

func (f *follower) messages() [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.waiting
	f.waiting = nil
	return all
}
