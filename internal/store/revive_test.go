package store

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/yardstick"
)

type told struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *told) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *told) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// heal restarts the engine when OnWriteFailure is called, until the test ends.
func (d *disk) heal() (log *told) {
	d.t.Helper()
	log = &told{}
	d.store.cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	d.store.cfg.OnWriteFailure = d.engine.Heal
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.engine.Run(ctx) }()
	d.t.Cleanup(func() { stop(); <-done })
	return log
}

// restart restarts the engine, as after a failed write.
func (d *disk) restart() {
	d.t.Helper()
	before := d.engine.Conn().Stats().Reconnects
	d.engine.Heal(errors.New("of a test"))
	d.until("started anew", func() bool {
		return d.engine.Conn().Stats().Reconnects > before && d.engine.Conn().IsConnected()
	})
}

func (d *disk) until(what string, ok func() bool) {
	d.t.Helper()
	yardstick.Await(d.t, what, ok)
}

// write writes like a counter: after a failure it loads and tries again.
func (d *disk) write(key, value string, rev uint64) (uint64, error) {
	ctx, stop := context.WithTimeout(d.t.Context(), 2*time.Second)
	defer stop()
	got, err := d.store.CompareAndSwap(ctx, key, rev, []byte(value))
	if err == nil {
		return got, nil
	}
	if _, now, lerr := d.store.Load(ctx, key); lerr == nil {
		rev = now
	}
	return rev, err
}

// The description of the stream is damaged while headgate runs. The restarted engine does not find
// the stream; without revive it would never exist again.
func TestAStreamThatIsGoneAtRuntimeIsMadeAgain(t *testing.T) {
	description := "engine/jetstream/*/streams/HEADGATE/meta.*"
	for name, damage := range map[string]func(d *disk){
		"description damaged": func(d *disk) {
			all, _ := filepath.Glob(d.path(description))
			for _, f := range all {
				d.change(f, func([]byte) []byte { return []byte("damaged") })
			}
		},
		"description and block": func(d *disk) {
			d.change(d.block(), flip(-1))
			d.dropIndex()
			all, _ := filepath.Glob(d.path(description))
			for _, f := range all {
				os.Remove(f)
			}
		},
		"all of it": func(d *disk) { os.RemoveAll(d.path("engine/jetstream")) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			log := d.heal()
			rev := uint64(0)
			for _, v := range []string{"one", "two", "three"} {
				rev = d.put("counter.shop", v, rev)
			}
			d.put("counter.idle", "idle", 0)
			d.put("counter.shop", "last", rev)
			damage(d)
			d.restart()
			d.want1("counter.shop", "last")
			rev = d.want("counter.shop", "last")
			d.put("counter.shop", "next", rev)
			keys, err := d.store.Keys(t.Context(), "")
			if err != nil || !slices.Equal(keys, []string{"counter.idle", "counter.shop"}) {
				t.Errorf("%q, %v: nobody has loaded counter.idle, and it is lost", keys, err)
			}
			d.want("counter.idle", "idle")
			d.restart() // the description is whole again
			d.want("counter.shop", "next")
			if n := log.count("made anew from"); n != 1 {
				t.Errorf("made anew %d times", n)
			}
		})
	}
}

// want1 waits until the key is readable. The key must then have the value.
func (d *disk) want1(key, value string) {
	d.t.Helper()
	var got []byte
	d.until("read "+key, func() (ok bool) {
		ctx, stop := context.WithTimeout(d.t.Context(), 2*time.Second)
		defer stop()
		var err error
		got, _, err = d.store.Load(ctx, key)
		return err == nil
	})
	if string(got) != value {
		d.t.Fatalf("%s is %q, want %q", key, got, value)
	}
}

// Many rooms notice the missing stream at once. One of them makes it again, and each finds its
// record or writes what it has.
func TestManyMissTheStreamAtOnce(t *testing.T) {
	d := newDisk(t)
	log := d.heal()
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	revs := make([]uint64, len(keys))
	for i, key := range keys {
		revs[i] = d.put(key, "first", 0)
		revs[i] = d.put(key, "old", revs[i])
	}
	os.RemoveAll(d.path("engine/jetstream"))
	d.restart()
	var wg sync.WaitGroup
	for i, key := range keys {
		wg.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for range 200 {
				var err error
				if revs[i], err = d.write(key, "new "+key, revs[i]); err == nil {
					return
				}
				<-tick.C
			}
			t.Errorf("%s is never written", key)
		})
	}
	wg.Wait()
	for _, key := range keys {
		d.want(key, "new "+key)
	}
	if n := log.count("made anew from"); n != 1 {
		t.Errorf("made anew %d times", n)
	}
	d.close()
	d.open()
	for _, key := range keys {
		d.want(key, "new "+key)
	}
}

// What the engine loses while it runs is repaired by the next Load, not only by the next start.
func TestALossAtRuntimeIsRepairedByTheNextLoad(t *testing.T) {
	d := newDisk(t)
	d.heal()
	rev := d.put("k", "one", 0)
	d.put("k", "two", rev)
	d.want("k", "two") // already loaded
	d.dropIndex()
	d.change(d.block(), flip(-1))
	d.restart()
	d.want1("k", "two")
}

// Two stores share a folder of second copies. A repair by one store must not put the newer value of
// the other behind an older one.
func TestARepairOfAnotherStoresKeyKeepsTheNewest(t *testing.T) {
	d := newDisk(t)
	d.heal()
	rev := d.put("k", "one", 0)
	other, err := OpenNATS(t.Context(), NATSConfig{Conn: d.engine.Conn(), Copies: d.path("records")})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, v := range []string{"two", "three", "four"} {
		if rev, err = other.CompareAndSwap(t.Context(), "k", rev, []byte(v)); err != nil {
			t.Fatal(err)
		}
	}
	os.RemoveAll(d.path("engine/jetstream"))
	d.restart()
	d.want1("k", "four")
	d.want("k", "four")
}
