package store

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// Whoever asks all hears all who serve the name, and stops when it has heard enough.
func TestAllWhoServeANameAnswer(t *testing.T) {
	b := NewBus(newDisk(t).engine.Conn())
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	var heard []string
	ask := func(ctx context.Context, enough int) error {
		heard = nil
		return b.AskAll(ctx, "who", []byte("is "), func(answer []byte) (more bool) {
			heard = append(heard, string(answer))
			return len(heard) < enough
		})
	}
	if err := ask(ctx, 1); !errors.Is(err, ErrNobody) {
		t.Errorf("nobody serves it: %v", err)
	}
	for _, name := range []string{"a", "b", "c", ""} { // the last one says nothing
		deaf, err := b.Serve("who", func(_ context.Context, msg []byte) []byte {
			if name == "" {
				return nil
			}
			return append(msg, name...)
		})
		if err != nil {
			t.Fatal(err)
		}
		defer deaf()
	}
	if err := ask(ctx, 3); err != nil {
		t.Fatal(err)
	}
	if slices.Sort(heard); !slices.Equal(heard, []string{"is a", "is b", "is c"}) {
		t.Errorf("%q answered", heard)
	}
	if err := ask(ctx, 2); err != nil || len(heard) != 2 {
		t.Errorf("%d heard, enough were 2: %v", len(heard), err)
	}
	short, end := context.WithTimeout(ctx, time.Second)
	defer end()
	if err := ask(short, 4); !errors.Is(err, context.DeadlineExceeded) || len(heard) != 3 {
		t.Errorf("one says nothing: %d heard, %v", len(heard), err)
	}
}

// Nothing is answered once it has ended, however much is asked at that moment.
func TestNothingIsAnsweredAfterTheEnd(t *testing.T) {
	b := NewBus(newDisk(t).engine.Conn())
	for range 200 {
		var ended atomic.Bool
		deaf, err := b.Serve("who", func(context.Context, []byte) []byte {
			if ended.Load() {
				t.Error("answered after the end")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			if err := b.conn.PublishRequest(subjectAsk+"who", "_INBOX.nobody", nil); err != nil {
				t.Fatal(err)
			}
		}
		deaf()
		ended.Store(true)
	}
}
