package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/tests/world/broker"
	"github.com/headgate/headgate/tests/world/network"
)

// A disk is a folder with an engine and second copies, which can be closed and opened again.
type disk struct {
	t      testing.TB
	dir    string
	broker *broker.Broker // instead of nats-server; nil: nats-server
	engine *embedded.Server
	store  *NATS
	heals  atomic.Int64
	said   bytes.Buffer // the log of its stores
}

func newDisk(t testing.TB) *disk {
	t.Helper()
	d := &disk{t: t, dir: t.TempDir()}
	d.open()
	t.Cleanup(d.close)
	return d
}

// withEngines runs a test with nats-server and with the broker of tests/world, which must behave
// alike.
func withEngines(t *testing.T, test func(t *testing.T, d *disk)) {
	t.Run("nats-server", func(t *testing.T) { test(t, newDisk(t)) })
	t.Run("broker", func(t *testing.T) {
		d := &disk{t: t, dir: t.TempDir(), broker: broker.New(1, "n1")}
		t.Cleanup(d.broker.Close)
		d.open()
		t.Cleanup(d.close)
		test(t, d)
	})
}

// dial connects to the broker.
func (d *disk) dial() func(account string) (net.Conn, error) {
	if d.broker == nil {
		return nil
	}
	n := network.New(1, 0, 0)
	return func(account string) (net.Conn, error) {
		near, far, err := n.Pipe("n1", "n1")
		if err == nil {
			d.broker.Serve("n1", account, far)
		}
		return near, err
	}
}

func (d *disk) path(name string) string { return filepath.Join(d.dir, name) }

func (d *disk) open() {
	d.t.Helper()
	var err error
	d.engine, err = embedded.Open(d.t.Context(), embedded.Config{Dir: d.path("engine"), Dial: d.dial()})
	if err != nil {
		d.t.Fatal(err)
	}
	d.store, err = OpenNATS(d.t.Context(), NATSConfig{
		Conn: d.engine.Conn(), Copies: d.path("records"), OnWriteFailure: func(error) { d.heals.Add(1) },
		Log: slog.New(slog.NewTextHandler(&d.said, nil)),
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *disk) close() {
	d.store.Close()
	d.engine.Close()
}

func (d *disk) put(key, value string, revision uint64) uint64 {
	d.t.Helper()
	rev, err := d.store.CompareAndSwap(d.t.Context(), key, revision, []byte(value))
	if err != nil {
		d.t.Fatal(err)
	}
	return rev
}

func (d *disk) want(key, value string) uint64 {
	d.t.Helper()
	got, rev, err := d.store.Load(d.t.Context(), key)
	if err != nil || string(got) != value {
		d.t.Fatalf("%s is %.40q, %v; want %.40q", key, got, err, value)
	}
	return rev
}

func TestNATSConforms(t *testing.T) { withEngines(t, testNATSConforms) }

func testNATSConforms(t *testing.T, d *disk) {
	conform(t, d.store)
	rivals(t, d.store)
	if d.heals.Load() != 0 {
		t.Error("a lost race was taken for a sick engine")
	}
}

func TestNATSWithoutCopiesConforms(t *testing.T) { withEngines(t, testNATSWithoutCopiesConforms) }

func testNATSWithoutCopiesConforms(t *testing.T, d *disk) {
	s, err := OpenNATS(t.Context(), NATSConfig{Conn: d.engine.Conn()})
	if err != nil {
		t.Fatal(err)
	}
	conform(t, s)
}

func TestAValueOutlivesTheEngine(t *testing.T) { withEngines(t, testAValueOutlivesTheEngine) }

func testAValueOutlivesTheEngine(t *testing.T, d *disk) {
	rev := d.put("counter.shop", "one", 0)
	rev = d.put("counter.shop", "two", rev)
	d.put("counter.blog", "other", 0)
	for range 3 {
		d.close()
		d.open()
		if got := d.want("counter.shop", "two"); got != rev {
			t.Fatalf("revision %d, was %d", got, rev)
		}
	}
	d.put("counter.shop", "three", rev)
	keys, err := d.store.Keys(t.Context(), "counter.")
	if err != nil || !slices.Equal(keys, []string{"counter.blog", "counter.shop"}) {
		t.Errorf("keys %q, %v", keys, err)
	}
}

// Any key works as a subject and a file name.
func TestAnyKeyIsKept(t *testing.T) { withEngines(t, testAnyKeyIsKept) }

func testAnyKeyIsKept(t *testing.T, d *disk) {
	keys := []string{"a b", "*", ">", "x.*", "..", ".", "a..b", ".a", "a.", "ü", "\x00", "%41", "A",
		"a/b", "../../x", strings.Repeat("x", 64), "-_~"}
	for i, key := range keys {
		d.put(key, fmt.Sprint(i), 0)
	}
	d.close()
	d.open()
	for i, key := range keys {
		d.want(key, fmt.Sprint(i))
	}
	got, err := d.store.Keys(t.Context(), "")
	slices.Sort(keys)
	if err != nil || !slices.Equal(got, keys) {
		t.Errorf("%q, %v; want %q", got, err, keys)
	}
	if outside, _ := filepath.Glob(filepath.Join(d.dir, "x*")); len(outside) > 0 {
		t.Errorf("%q lie outside of their folder", outside)
	}
}

func TestTooLargeAValueIsRefused(t *testing.T) { withEngines(t, testTooLargeAValueIsRefused) }

func testTooLargeAValueIsRefused(t *testing.T, d *disk) {
	rev := d.put("k", strings.Repeat("x", 900<<10), 0)
	_, err := d.store.CompareAndSwap(t.Context(), "k", rev, make([]byte, 2<<20))
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
	if d.heals.Load() != 0 {
		t.Error("the engine was taken for sick")
	}
}

// block returns the newest file in which the engine stores values.
func (d *disk) block() string {
	d.t.Helper()
	blocks, err := filepath.Glob(d.path("engine/jetstream/*/streams/HEADGATE/msgs/*.blk"))
	if err != nil || len(blocks) == 0 {
		d.t.Fatal("no block", err)
	}
	slices.Sort(blocks)
	return blocks[len(blocks)-1]
}

// change rewrites a file while the engine is stopped.
func (d *disk) change(name string, f func([]byte) []byte) {
	d.t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(name, f(b), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// dropIndex removes the files of a clean stop, which do not exist after kill -9.
func (d *disk) dropIndex() {
	index, _ := filepath.Glob(d.path("engine/jetstream/*/streams/HEADGATE/msgs/index.db"))
	for _, f := range index {
		os.Remove(f)
	}
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte {
		c := bytes.Clone(b)
		if at < 0 {
			at += len(c)
		}
		c[at] ^= 0x10
		return c
	}
}

// A confirmed value that the engine lost to a damaged file is restored from the second copy: the
// last value, and not the one before.
func TestDamagedEngineIsRepairedFromTheCopies(t *testing.T) {
	stream := "engine/jetstream/*/streams/HEADGATE/"
	for name, damage := range map[string]func(d *disk){
		"last byte of the block":  func(d *disk) { d.change(d.block(), flip(-1)) },
		"a bit in the last value": func(d *disk) { d.change(d.block(), flip(-12)) },
		"first byte of the block": func(d *disk) { d.change(d.block(), flip(0)) },
		"half of the block": func(d *disk) {
			d.change(d.block(), func(b []byte) []byte { return b[:len(b)/2] })
		},
		"all of the block":   func(d *disk) { d.change(d.block(), func([]byte) []byte { return nil }) },
		"noise for a block":  func(d *disk) { d.change(d.block(), func(b []byte) []byte { return b[7:] }) },
		"the block is gone":  func(d *disk) { os.Remove(d.block()) },
		"the stream is gone": func(d *disk) { os.RemoveAll(d.path("engine/jetstream")) },
		"the stream's description": func(d *disk) {
			all, _ := filepath.Glob(d.path(stream + "meta.inf"))
			d.change(all[0], flip(20))
		},
		"no description": func(d *disk) {
			all, _ := filepath.Glob(d.path(stream + "meta.*"))
			for _, f := range all {
				os.Remove(f)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			rev := uint64(0)
			for i := range 20 {
				rev = d.put("counter.shop", fmt.Sprint("value ", i), rev)
			}
			d.put("counter.blog", "b", 0)
			d.put("counter.shop", "last", rev)
			d.close()
			d.dropIndex()
			damage(d)
			d.reopen()
			rev = d.want("counter.shop", "last")
			d.want("counter.blog", "b")
			d.put("counter.shop", "next", rev)
			d.close()
			d.reopen()
			d.want("counter.shop", "next")
		})
	}
}

// reopen opens the folder as headgate does: if the engine accepts the folder but cannot read it,
// the folder is put aside.
func (d *disk) reopen() {
	d.t.Helper()
	var err error
	d.engine, err = embedded.Open(d.t.Context(), embedded.Config{Dir: d.path("engine"), Dial: d.dial()})
	if err != nil {
		d.t.Fatal(err)
	}
	cfg := NATSConfig{Conn: d.engine.Conn(), Copies: d.path("records")}
	if d.store, err = OpenNATS(d.t.Context(), cfg); err == nil {
		return
	}
	if err = d.engine.ReplaceFolder(d.t.Context(), err); err == nil {
		d.store, err = OpenNATS(d.t.Context(), cfg)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// A copy that is damaged or old, or whose value the engine has since replaced, changes nothing.
func TestTheEngineIsBelievedBeforeAnOldOrDamagedCopy(t *testing.T) {
	for name, change := range map[string]func(d *disk, old []byte){
		"both damaged": func(d *disk, _ []byte) {
			d.change(d.path("records/k~a"), flip(30))
			d.change(d.path("records/k~b"), flip(5))
		},
		"both old": func(d *disk, old []byte) {
			d.change(d.path("records/k~a"), func([]byte) []byte { return old })
			d.change(d.path("records/k~b"), func([]byte) []byte { return old })
		},
		"empty": func(d *disk, _ []byte) {
			d.change(d.path("records/k~a"), func([]byte) []byte { return nil })
			d.change(d.path("records/k~b"), func([]byte) []byte { return nil })
		},
		"gone": func(d *disk, _ []byte) { os.RemoveAll(d.path("records")) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			rev := d.put("k", "one", 0)
			rev = d.put("k", "two", rev)
			old, err := os.ReadFile(d.path("records/k~a"))
			if err != nil {
				t.Fatal(err)
			}
			rev = d.put("k", "three", rev)
			d.put("k", "four", rev)
			d.close()
			change(d, old)
			d.open()
			if got := d.want("k", "four"); got != 4 {
				t.Errorf("revision %d", got)
			}
		})
	}
}

func TestOneDamagedCopyLeavesTheOther(t *testing.T) {
	d := newDisk(t)
	rev := d.put("k", "one", 0)
	d.put("k", "two", rev) // in the other file
	d.close()
	os.RemoveAll(d.path("engine"))
	d.change(d.path("records/k~a"), flip(-1))
	d.open()
	got, _, err := d.store.Load(t.Context(), "k")
	if err != nil || string(got) != "one" && string(got) != "two" {
		t.Errorf("%q, %v", got, err)
	}
}

func FuzzCopy(f *testing.F) {
	f.Add(appendCopy(nil, copyOf{1, 2, []byte("value")}))
	f.Add([]byte(copyMagic))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := parseCopy(b)
		if err != nil {
			return
		}
		if again := appendCopy(nil, x); !bytes.HasPrefix(b, again) {
			t.Errorf("%x read as %+v, written as %x", b, x, again)
		}
	})
}

func TestANATSStoreThatWasClosedSaysSo(t *testing.T) {
	d := newDisk(t)
	d.put("k", "one", 0)
	d.engine.Close()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, _, err := d.store.Load(ctx, "k"); err == nil {
		t.Error("a value from a closed engine")
	}
	if _, err := d.store.CompareAndSwap(ctx, "k", 1, nil); err == nil || errors.Is(err, ErrConflict) {
		t.Errorf("%v", err)
	}
}

// rivals race to write one key.
func rivals(t *testing.T, s Store) {
	var wins atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, err := s.CompareAndSwap(t.Context(), "rivals", 0, []byte("x")); err == nil {
				wins.Add(1)
			}
		})
	}
	wg.Wait()
	if wins.Load() != 1 {
		t.Errorf("%d of 16 created the key", wins.Load())
	}
}
