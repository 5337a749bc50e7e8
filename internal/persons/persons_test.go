package persons

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// memoryLog is a log as a store has it. It can fail before or after a write.
type memoryLog struct {
	mu      sync.Mutex
	entries []store.Entry
	last    uint64
	takes   time.Duration
	fail    func() (before, after bool)
	appends int
}

var errLog = errors.New("the log does not answer")

func (l *memoryLog) Append(_ context.Context, data []byte, after uint64) (uint64, error) {
	time.Sleep(l.takes)
	l.mu.Lock()
	defer l.mu.Unlock()
	before, later := false, false
	if l.fail != nil {
		before, later = l.fail()
	}
	switch l.appends++; {
	case before:
		return 0, errLog
	case after != l.last:
		return 0, store.ErrConflict
	}
	l.last++
	l.entries = append(l.entries, store.Entry{Seq: l.last, At: time.Now(), Data: data})
	if later {
		return 0, errLog
	}
	return l.last, nil
}

func (l *memoryLog) ReadAll(_ context.Context, f func(store.Entry) error) (store.LogSize, error) {
	l.mu.Lock()
	all, last := slices.Clone(l.entries), l.last
	l.mu.Unlock()
	for _, e := range all {
		time.Sleep(l.takes / 10)
		if err := f(e); err != nil {
			return store.LogSize{}, err
		}
	}
	return store.LogSize{Last: last, Count: uint64(len(all))}, nil
}

func (l *memoryLog) all() []store.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries)
}

func (l *memoryLog) Truncate(_ context.Context, before uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = slices.DeleteFunc(l.entries, func(e store.Entry) bool { return e.Seq < before })
	return nil
}

// A host is a registry that runs.
type host struct {
	*Registry
	desk sync.Mutex // between Find and Set, as the lock of a desk
	stop context.CancelFunc
	done chan struct{}
}

func run(t *testing.T, l *memoryLog, life uint64, lives func(uint64) bool) *host {
	t.Helper()
	cfg := Config{Room: "shop", Life: life, Log: slog.New(slog.DiscardHandler), Lives: func(ns []uint64) []bool {
		live := make([]bool, len(ns))
		for i, n := range ns {
			live[i] = lives == nil || lives(n)
		}
		return live
	}}
	if l != nil {
		cfg.Open = func(context.Context) (Log, error) { return l, nil }
	}
	h := &host{Registry: New(cfg), done: make(chan struct{})}
	var ctx context.Context
	ctx, h.stop = context.WithCancel(t.Context())
	go func() { h.Run(ctx); close(h.done) }()
	return h
}

// ticket returns the ticket of a person, a new one if it has none, as a host does.
func (h *host) ticket(ctx context.Context, id ID, next func() uint64) (uint64, error) {
	for {
		if !h.IsReady() {
			if err := h.Await(ctx, Mark{}); err != nil {
				return 0, err
			}
		}
		h.desk.Lock()
		had, m := h.Find(id)
		n := had.Number
		if n == 0 {
			n = next()
			m = h.Set(id, Hold{Number: n}, m)
		}
		h.desk.Unlock()
		if err := h.Await(ctx, m); !errors.Is(err, ErrChanged) {
			return n, err
		}
	}
}

func (h *host) end() { h.stop(); <-h.done }

// Two processes that both believe to be the host, one of which may be suspended for a while: who has
// been told a ticket is told the same one by everybody, whatever fails.
func TestTwoHostsNeverGiveOnePersonTwoTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		l := &memoryLog{takes: time.Millisecond}
		l.fail = func() (before, after bool) { n := rng.IntN(10); return n == 0, n == 1 }
		var mu sync.Mutex
		told, number := map[ID]uint64{}, uint64(0)
		next := func() uint64 { mu.Lock(); defer mu.Unlock(); number++; return number }
		hosts := []*host{run(t, l, 7, nil), run(t, l, 7, nil)}
		for round := range 5 {
			var wg sync.WaitGroup
			for i := range 200 {
				h, id := hosts[i%2], IDOf("shop", fmt.Sprint("person ", (i/4+round*10)%60))
				wg.Go(func() {
					ctx, stop := context.WithTimeout(t.Context(), time.Minute)
					defer stop()
					time.Sleep(time.Duration(i) * 100 * time.Microsecond)
					n, err := h.ticket(ctx, id, next)
					mu.Lock()
					defer mu.Unlock()
					if was := told[id]; err != nil || was != 0 && was != n {
						t.Errorf("round %d: ticket %d, was %d, error %v", round, n, was, err)
					}
					told[id] = n
				})
			}
			wg.Wait()
			hosts[round%2].end() // it dies, and another one takes over
			hosts[round%2] = run(t, l, 7, nil)
		}
		for _, h := range hosts {
			h.end()
		}
	})
}

// A host that is suspended between Find and Set notes nothing that it has decided before the log was read
// again.
func TestWhatWasFoundBeforeTheLogWasReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memoryLog{}
		old, next := run(t, l, 7, nil), run(t, l, 7, nil)
		defer old.end()
		defer next.end()
		ada, bob := IDOf("shop", "ada"), IDOf("shop", "bob")
		number := func(n uint64) func() uint64 { return func() uint64 { return n } }
		if _, err := old.ticket(t.Context(), IDOf("shop", "eve"), number(1)); err != nil {
			t.Fatal(err)
		}
		has, found := old.Find(ada)
		if _, err := next.ticket(t.Context(), ada, number(2)); has != (Hold{}) || err != nil {
			t.Fatal(has, err)
		}
		if _, err := old.ticket(t.Context(), bob, number(3)); err != nil { // it reads the log again
			t.Fatal(err)
		}
		if err := old.Await(t.Context(), old.Set(ada, Hold{Number: 4}, found)); !errors.Is(err, ErrChanged) {
			t.Error(err)
		}
		if n, err := old.ticket(t.Context(), ada, number(5)); n != 2 || err != nil {
			t.Errorf("ticket %d, want 2, error %v", n, err)
		}
	})
}

func TestAllWhoComeInAMomentShareAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memoryLog{takes: 5 * time.Millisecond}
		h := run(t, l, 1, nil)
		var wg sync.WaitGroup
		for i := range uint64(10_000) {
			wg.Go(func() {
				if _, err := h.ticket(t.Context(), IDOf("shop", fmt.Sprint(i)), func() uint64 { return i + 1 }); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		h.end()
		if l.appends > 6 || h.Len() != 10_000 {
			t.Errorf("%d writes for %d people", l.appends, h.Len())
		}
	})
}

// What is over leaves the memory within seconds and the log within an hour and a bit.
func TestNothingIsKeptOfThoseWhoHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memoryLog{}
		over := func(n uint64) bool { return n != 2 } // one stays
		h := run(t, l, 1, func(n uint64) bool { return !over(n) })
		for i := range uint64(100) {
			if _, err := h.ticket(t.Context(), IDOf("shop", fmt.Sprint(i)), func() uint64 { return i + 1 }); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second)
		if h.Len() != 1 {
			t.Errorf("%d people in memory, want 1", h.Len())
		}
		gone := h.hash(IDOf("shop", "5"))
		time.Sleep(RewriteAfter + 5*time.Minute)
		size, found := 0, false
		for _, e := range l.all() {
			_, _, entries, ok := parse(e.Data)
			if !ok {
				t.Fatal("damaged")
			}
			size += len(entries)
			for _, x := range entries {
				found = found || x.person == gone
			}
		}
		if size > 1 || found {
			t.Errorf("%d entries in the log, one of somebody who has left: %v", size, found)
		}
		h.end()
		h = run(t, l, 1, nil)
		defer h.end()
		if n, err := h.ticket(t.Context(), IDOf("shop", "1"), func() uint64 { return 999 }); n != 2 || err != nil {
			t.Errorf("who stays has the ticket %d after a restart, want 2: %v", n, err)
		}
	})
}

func TestTicketsOfAnotherLifeAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memoryLog{}
		h := run(t, l, 1, nil)
		id := IDOf("shop", "ada")
		if _, err := h.ticket(t.Context(), id, func() uint64 { return 5 }); err != nil {
			t.Fatal(err)
		}
		h.end()
		h = run(t, l, 2, nil)
		defer h.end()
		if n, err := h.ticket(t.Context(), id, func() uint64 { return 6 }); n != 6 || err != nil {
			t.Error(n, err)
		}
	})
}

func TestTheLogNamesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memoryLog{}
		h := run(t, l, 1, nil)
		defer h.end()
		id := IDOf("shop", "ada@example.com")
		if _, err := h.ticket(t.Context(), id, func() uint64 { return 5 }); err != nil {
			t.Fatal(err)
		}
		for _, e := range l.all() {
			if bytes.Contains(e.Data, []byte("ada")) || bytes.Contains(e.Data, id[:8]) {
				t.Errorf("%q", e.Data)
			}
		}
		if id == IDOf("bank", "ada@example.com") || id == (ID{}) || IDOf("shop", "") != (ID{}) {
			t.Error("a person has the same ID in each room, or nobody has one")
		}
	})
}

func FuzzParse(f *testing.F) {
	r := New(Config{Life: 3})
	f.Add(r.encode(&r.key, []entry{{1, Hold{Number: 2}}, {1 << 63, Hold{}}, {3, Hold{4, 1 << 31, true, 0}}}))
	f.Add(r.encode(&r.key, []entry{{1, Hold{Number: 2}}, {3, Hold{4, 1 << 31, true, 1 << 63}}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		key, life, entries, ok := parse(b)
		if ok && len(entries) < 1000 {
			again := (&Registry{cfg: Config{Life: life}}).encode(&key, entries)
			if k, l, e, ok := parse(again); !ok || k != key || l != life || !slices.Equal(e, entries) {
				t.Errorf("%x", b)
			}
		}
	})
}
