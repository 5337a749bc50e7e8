package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"
)

// withStores runs a test with each kind of Store.
func withStores(t *testing.T, test func(t *testing.T, s Store)) {
	t.Run("memory", func(t *testing.T) { test(t, &Memory{}) })
	withEngines(t, func(t *testing.T, d *disk) { test(t, d.store) })
}

// A counter is the document of these tests.
type counter struct{ N int }

func increase(c *counter) (bool, error) { c.N++; return true, nil }

func counterDoc(s Store) *Doc[counter] { return &Doc[counter]{Store: s, Key: "n"} }

func wantCount(t *testing.T, d *Doc[counter], n int) uint64 {
	t.Helper()
	v, revision, err := d.Load(t.Context())
	if err != nil || v.N != n {
		t.Fatalf("count %d, %v; want %d", v.N, err, n)
	}
	return revision
}

func TestNoConcurrentEditIsLost(t *testing.T) {
	withStores(t, func(t *testing.T, s Store) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 10 {
					if _, err := counterDoc(s).Edit(t.Context(), increase); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		wantCount(t, counterDoc(s), 80)
	})
}

func TestAnEditWithoutAChangeWritesNothing(t *testing.T) {
	withStores(t, func(t *testing.T, s Store) {
		d := counterDoc(s)
		none := func(*counter) (bool, error) { return false, nil }
		if revision, err := d.Edit(t.Context(), none); revision != 0 || err != nil {
			t.Errorf("revision %d, %v; want none", revision, err)
		}
		first, err := d.Edit(t.Context(), increase)
		if err != nil {
			t.Fatal(err)
		}
		if revision, err := d.Edit(t.Context(), none); revision != first || err != nil {
			t.Errorf("revision %d, %v; want %d", revision, err, first)
		}
		refused := errors.New("refused")
		_, err = d.Edit(t.Context(), func(c *counter) (bool, error) { c.N = 9; return true, refused })
		if err != refused {
			t.Errorf("error %v; want that of edit", err)
		}
		if revision := wantCount(t, d, 1); revision != first {
			t.Errorf("revision %d; want %d", revision, first)
		}
	})
}

// An unreliable store fails the next write, with or without doing it.
type unreliable struct {
	Store
	err     error // of the next write; nil: it blocks until its context ends
	fails   int   // the number of writes that fail
	written bool
}

func (u *unreliable) CompareAndSwap(
	ctx context.Context, key string, revision uint64, value []byte,
) (uint64, error) {
	if u.fails == 0 {
		return u.Store.CompareAndSwap(ctx, key, revision, value)
	}
	u.fails--
	if u.written {
		if _, err := u.Store.CompareAndSwap(ctx, key, revision, value); err != nil {
			return 0, err
		}
	}
	if u.err == nil {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return 0, u.err
}

// A write whose acknowledgment is lost is done once and reported as done.
func TestALostAcknowledgementIsFound(t *testing.T) {
	lost := errors.New("connection lost")
	for name, u := range map[string]unreliable{
		"error":   {err: lost},
		"silence": {},
	} {
		t.Run(name, func(t *testing.T) {
			withStores(t, func(t *testing.T, s Store) {
				u := u
				u.Store, u.fails, u.written = s, 1, true
				d, edits := counterDoc(&u), 0
				if u.err == nil {
					d.Try = 100 * time.Millisecond
				}
				revision, err := d.Edit(t.Context(), func(c *counter) (bool, error) {
					edits++
					return increase(c)
				})
				if now := wantCount(t, d, 1); err != nil || edits != 1 || revision != now {
					t.Errorf("%d edits, revision %d, %v; want 1 edit, revision %d", edits, revision, err, now)
				}
			})
		})
	}
}

// A write that has failed for good returns an error; a write that was too slow is repeated.
func TestAWriteThatDidNotHappen(t *testing.T) {
	withStores(t, func(t *testing.T, s Store) {
		lost := errors.New("connection lost")
		d := counterDoc(&unreliable{Store: s, err: lost, fails: 1})
		if _, err := d.Edit(t.Context(), increase); !errors.Is(err, lost) {
			t.Errorf("error %v; want %v", err, lost)
		}
		wantCount(t, d, 0)
		d = counterDoc(&unreliable{Store: s, fails: 2})
		d.Try = 100 * time.Millisecond
		if _, err := d.Edit(t.Context(), increase); err != nil {
			t.Error(err)
		}
		wantCount(t, d, 1)
	})
}

// A damaged store has lost all values.
type damaged struct{ Store }

func (damaged) Load(context.Context, string) ([]byte, uint64, error) { return nil, 0, ErrDamaged }

func TestADamagedRecord(t *testing.T) {
	d := counterDoc(damaged{&Memory{}})
	if _, _, err := d.Load(t.Context()); !errors.Is(err, ErrDamaged) {
		t.Errorf("error %v; want ErrDamaged", err)
	}
	var lost error
	d.Lost = func(err error) { lost = err }
	if _, err := d.Edit(t.Context(), increase); err != nil || lost != ErrDamaged {
		t.Errorf("error %v, lost %v; want a new record", err, lost)
	}
	d = counterDoc(&Memory{})
	if _, err := d.Store.CompareAndSwap(t.Context(), "n", 0, []byte("{")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Edit(t.Context(), increase); err == nil {
		t.Error("a record that cannot be read was overwritten")
	}
}

// Followers get the message of each edit, also after a restart.
func TestFollowersSeeEachEdit(t *testing.T) {
	withEngines(t, func(t *testing.T, d *disk) {
		edit := func() (seen []byte) {
			doc := counterDoc(d.store)
			doc.Bus, doc.Topic, doc.Message = NewBus(d.engine.Conn()), "numbers", []byte("n")
			doc.Log = slog.New(slog.DiscardHandler)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			heard, ready, ended := make(chan []byte), make(chan struct{}), make(chan error, 1)
			go func() {
				ended <- Follow(ctx, doc.Bus, doc.Topic, time.Millisecond, func(m []byte) {
					if m == nil { // a tick: Follow has subscribed
						select {
						case <-ready:
						default:
							close(ready)
						}
						return
					}
					heard <- m
				})
			}()
			<-ready
			if _, err := doc.Edit(ctx, increase); err != nil {
				t.Fatal(err)
			}
			seen = <-heard
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			return seen
		}
		for i := range 2 {
			if m := edit(); string(m) != "n" {
				t.Errorf("message %q; want n", m)
			}
			wantCount(t, counterDoc(d.store), i+1)
			d.close()
			d.open()
		}
	})
}

func TestRepeatedMessagesWaitOnce(t *testing.T) {
	f := follower{news: make(chan struct{}, 1)}
	for i := range 1000 {
		f.hear([]byte{byte(i % 100)})
	}
	if all := f.messages(); len(all) != mostTopics || all[1][0] != 1 {
		t.Errorf("%d messages wait: %v", len(all), all)
	}
	f.hear(nil)
	if all := f.messages(); len(all) != 1 || all[0] == nil {
		t.Errorf("an empty message is a tick: %v", all)
	}
}
