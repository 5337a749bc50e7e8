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

// A Doc is a record that many processes edit, as a value of type T. The zero T stands for a
// record that does not exist. A Doc may be used by many goroutines at once.
type Doc[T any] struct {
	Store Store
	Key   string

	// Encode and Decode translate the value. The default is JSON. An error of Encode ends the edit.
	Encode func(T) ([]byte, error)
	Decode func([]byte) (T, error)

	// Try limits one attempt to read or write; attempts are repeated until the context ends. A
	// request that was sent to a lost leader of the store is never answered. 0: the context alone.
	Try time.Duration

	// Lost reports that the record is damaged; its value is zero then. Nil: Load returns ErrDamaged.
	Lost func(err error)

	// Bus carries the message Topic to the processes that follow the record, after each write.
	// Message is its content. Bus is nil in a process that is alone. Log is required with a Bus.
	Bus     *Bus
	Topic   string
	Message []byte
	Log     *slog.Logger
}

// Load returns the value and its revision: zero and 0 if there is none.
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

// Edit changes the value by edit, which reports whether there is anything to write, and tells
// the followers. It calls edit again, with the newest value, when another process was faster. A
// write counts as done when its value is in the store, even if the acknowledgement was lost: a
// value that two processes must not both write has something of its own in it, such as a time.
// An error of edit is returned as it is. Edit returns the revision of the value.
func (d *Doc[T]) Edit(
	ctx context.Context, edit func(v *T) (changed bool, err error),
) (revision uint64, err error) {
	var sent []byte   // by the last write, if its outcome is not known
	var failure error // of that write, if it is not to be repeated
	for {
		v, revision, err := d.Load(ctx)
		switch {
		case failure != nil && (err != nil || !d.holds(v, sent)):
			return 0, failure
		case err != nil:
			return 0, err
		case sent != nil && d.holds(v, sent):
			d.Tell()
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
			d.Tell()
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

// Swap writes v if the newest revision is the given one, else it returns ErrConflict. It tells
// nobody.
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

// Tell tells the followers that the record is new.
func (d *Doc[T]) Tell() {
	if d.Bus == nil {
		return
	}
	if err := d.Bus.Publish(d.Topic, d.Message); err != nil {
		d.Log.Warn("change not told to the other nodes: they find it themselves", "record", d.Key,
			"error", err)
	}
}

// mostTopics limits the messages that wait for a follower. Chosen: those above it are found on
// the next tick.
const mostTopics = 64

// Follow calls take with each message of a topic, or with nil at each tick, until ctx ends. A
// message that is repeated before take is called counts once. Messages get lost: take must load
// what it needs at each tick. A nil Bus has ticks alone.
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

// A follower collects messages until they are taken.
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
		f.waiting = append(f.waiting, append([]byte{}, m...)) // never nil: that is a tick
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
