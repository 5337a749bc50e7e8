package store

import (
	"errors"
	"testing"
)

// conform checks what every Store promises.
func conform(t *testing.T, s Store) {
	ctx := t.Context()
	if _, _, err := s.Load(ctx, "k"); !errors.Is(err, ErrNotFound) {
		t.Fatalf("an unknown key: %v", err)
	}
	if _, err := s.CompareAndSwap(ctx, "k", 7, []byte("x")); !errors.Is(err, ErrConflict) {
		t.Fatalf("a revision that never was: %v", err)
	}
	value := []byte("one")
	first, err := s.CompareAndSwap(ctx, "k", 0, value)
	if err != nil {
		t.Fatal(err)
	}
	value[0] = 'X' // the store does not keep the slice
	got, rev, err := s.Load(ctx, "k")
	if err != nil || string(got) != "one" || rev != first {
		t.Fatalf("%q %d %v, want one at %d", got, rev, err, first)
	}
	if _, err := s.CompareAndSwap(ctx, "k", 0, []byte("again")); !errors.Is(err, ErrConflict) {
		t.Errorf("created twice: %v", err)
	}
	second, err := s.CompareAndSwap(ctx, "k", first, []byte("two"))
	if err != nil || second <= first {
		t.Fatalf("revision %d after %d, %v", second, first, err)
	}
	if string(got) != "one" {
		t.Error("a slice that was given away has changed")
	}
	if _, err := s.CompareAndSwap(ctx, "k", first, []byte("late")); !errors.Is(err, ErrConflict) {
		t.Errorf("a write on an old revision: %v", err)
	}
	if got, _, _ := s.Load(ctx, "k"); string(got) != "two" {
		t.Errorf("%q after a refused write", got)
	}
}

func TestMemoryConforms(t *testing.T) { conform(t, &Memory{}) }

func TestOfRivalsOneWins(t *testing.T) { rivals(t, &Memory{}) }
