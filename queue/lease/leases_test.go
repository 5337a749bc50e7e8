package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/tests/virtual"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/store"
)

// someLeases returns leases on records in this process, for a processor with the given clock.
func someLeases(t testing.TB, p Partitioning, records store.Store, clock func() time.Time) *Leases {
	t.Helper()
	if err := p.check(); err != nil {
		t.Fatal(err)
	}
	return &Leases{cfg: Config{Name: "db", Partitioning: p}, store: records, clock: clock,
		seen: map[int]sighting{}}
}

// Two processes with different clocks compete for one partition.
func TestALeaseIsOfOne(t *testing.T) {
	rule := Partitioning{Count: 1, Amount: 1}
	now := noon()
	records := &store.Memory{}
	a := someLeases(t, rule, records, func() time.Time { return now })
	b := someLeases(t, rule, records, func() time.Time { return now.Add(-1000 * time.Hour) })
	first, err := a.Lend(t.Context(), 0)
	if err != nil || first.Fence != 1 || first.Term != leaseTerm {
		t.Fatalf("%+v %v", first, err)
	}
	refused := func(l *Leases) {
		t.Helper()
		if _, err := l.Lend(t.Context(), 0); !errors.Is(err, ErrLent) {
			t.Errorf("%v, want that it is lent", err)
		}
	}
	refused(a)
	now = now.Add(10 * time.Second)
	refused(b) // sees it now, and waits for a whole term from now on
	if first, err = a.Renew(t.Context(), first); err != nil || first.Fence != 1 {
		t.Fatalf("%+v %v", first, err)
	}
	now = now.Add(16 * time.Second)
	refused(b) // it was renewed since
	whole := 17*time.Second + 15*time.Millisecond
	now = now.Add(whole - 1)
	refused(b)
	now = now.Add(1)
	second, err := b.Lend(t.Context(), 0)
	if err != nil || second.Fence != 2 {
		t.Fatalf("%+v %v", second, err)
	}
	if _, err := a.Renew(t.Context(), first); !errors.Is(err, ErrLent) {
		t.Errorf("the lease of before is renewed: %v", err)
	}
	if err := a.Return(t.Context(), first); !errors.Is(err, ErrLent) {
		t.Errorf("the lease of before is returned: %v", err)
	}
	if err := b.Return(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	refused(a) // jobs of b still count
	now = now.Add(2*time.Second - 1)
	refused(a)
	now = now.Add(1)
	if third, err := a.Lend(t.Context(), 0); err != nil || third.Fence != 3 {
		t.Fatalf("%+v %v", third, err)
	}
	if _, err := a.Lend(t.Context(), 1); !errors.Is(err, ErrPartitioning) {
		t.Errorf("a partition that is not there: %v", err)
	}
}

func FuzzLease(f *testing.F) {
	f.Add(leaseRecord{7, true}.encode())
	f.Add([]byte{1, 0x80, 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseLease(b)
		if err != nil {
			return
		}
		if back, err := parseLease(r.encode()); err != nil || back != r {
			t.Errorf("%x is %+v, which is written as %+v %v", b, r, back, err)
		}
	})
}

// An away is an engine that may not answer.
type away struct {
	store.Store
	mu   sync.Mutex
	gone bool
}

func (a *away) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return nil, 0, errors.New("away")
	}
	return a.Store.Load(ctx, key)
}

func (a *away) set(gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = gone
}

// As in Azure's "Rate Limiting pattern": the rate rises by one partition per second, and falls when
// leases that cannot be renewed end. Partitions that are no longer needed are returned.
func TestAShareRisesAndFalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := Partitioning{Count: 10, Amount: 100}
		records := &away{Store: &store.Memory{}}
		leases := someLeases(t, rule, records, time.Now)
		var mu sync.Mutex
		need, rates, asked := int64(300), []int64{}, []int{}
		locked := func(f func()) {
			mu.Lock()
			defer mu.Unlock()
			f()
		}
		s, err := NewShare(ShareConfig{Leases: leases,
			Need:  func(context.Context) (n int64) { locked(func() { n = need }); return n },
			Rate:  func(r int64) { locked(func() { rates = append(rates, r) }) },
			Asked: func(i int, _ bool) { locked(func() { asked = append(asked, i) }) }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		at := func(d time.Duration, want ...int64) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(rates, want) {
				t.Errorf("rates %v, want %v", rates, want)
			}
		}
		at(time.Millisecond, 0, 100)
		at(time.Second, 0, 100, 200)
		at(time.Minute, 0, 100, 200, 300) // renewed again and again
		records.set(true)
		at(16*time.Second, 0, 100, 200, 300, 200, 100, 0)
		records.set(false)
		at(3*time.Second, 0, 100, 200, 300, 200, 100, 0, 100, 200, 300)
		locked(func() { need = 150 })
		at(time.Second, 0, 100, 200, 300, 200, 100, 0, 100, 200, 300, 200)
		if len(asked) < 6 {
			t.Errorf("asked for %v", asked)
		}
		stop()
		running.Wait()
		at(0, 0, 100, 200, 300, 200, 100, 0, 100, 200, 300, 200, 0)
		time.Sleep(2 * time.Second)
		for i := range rule.Count { // all were returned, or never held
			if _, err := leases.Lend(t.Context(), i); err != nil && !errors.Is(err, ErrLent) {
				t.Error(i, err)
			} else if err != nil && !slices.Contains(asked, i) {
				t.Errorf("%d is lent, and nobody asked for it", i)
			}
		}
	})
}

// Four processors on one engine with its disk: together they never have more than the capacity, and
// the capacity is used.
func TestSharesOnAnEngine(t *testing.T) { virtual.Test(t, testSharesOnAnEngine) }

func testSharesOnAnEngine(t *testing.T) {
	rule := Partitioning{Count: 6, Amount: 10, Window: 50 * time.Millisecond, Term: 400 * time.Millisecond,
		Rest: 100 * time.Millisecond}
	engine, err := embedded.Open(t.Context(), embedded.Config{Dir: filepath.Join(t.TempDir(), "engine")})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	var running sync.WaitGroup
	var shares []*Share
	for range 4 {
		leases, err := Open(t.Context(),
			Config{Name: "db", NATS: engine.Conn(), Partitioning: rule})
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewShare(ShareConfig{Leases: leases, Rate: func(int64) {},
			Need: func(context.Context) int64 { return rand.Int64N(60) }})
		if err != nil {
			t.Fatal(err)
		}
		shares = append(shares, s)
		running.Go(func() { s.Run(ctx) })
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for begun, full := time.Now(), 0; full < 20 || time.Since(begun) < time.Second; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the capacity was not lent within 30 s")
		}
		sum := int64(0)
		for _, s := range shares {
			rate, _ := s.Has()
			sum += rate
		}
		if sum >= 40 {
			full++
		}
		if sum > 60 {
			t.Fatalf("%d of 60 are lent", sum)
		}
	}
	stop()
	running.Wait()
	for i, s := range shares {
		if rate, has := s.Has(); rate != 0 {
			t.Errorf("processor %d has ended, and has %v", i, has)
		}
	}
	wrong := Config{Name: "a b", NATS: engine.Conn(), Partitioning: rule}
	if _, err := Open(t.Context(), wrong); err == nil {
		t.Error("a name with a space is taken")
	}
}

// A lease that is missing in the records, because a backup was restored, is not used after its next
// renewal.
func TestALostLeaseIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := someLeases(t, Partitioning{Count: 1, Amount: 5}, &store.Memory{}, time.Now)
		s, err := NewShare(ShareConfig{Leases: leases, Reserved: 2, Rate: func(int64) {},
			Need: func(context.Context) int64 { return 7 }})
		if err != nil {
			t.Fatal(err)
		}
		s.turn(t.Context())
		if rate, _ := s.Has(); rate != 7 {
			t.Fatalf("rate %d", rate)
		}
		key := leases.key(0)
		_, revision, _ := leases.store.Load(t.Context(), key)
		other := leaseRecord{9, true}.encode()
		if _, err := leases.store.CompareAndSwap(t.Context(), key, revision, other); err != nil {
			t.Fatal(err)
		}
		time.Sleep(8 * time.Second)
		s.turn(t.Context())
		if rate, has := s.Has(); rate != 2 {
			t.Errorf("rate %d, of %v", rate, has)
		}
	})
}

// A returned partition is seen within one turn, and can be leased after its rest.
func TestWhatIsReturnedIsTakenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule, records := Partitioning{Count: 20, Amount: 1}, &store.Memory{}
		other := someLeases(t, rule, records, time.Now)
		for i := range rule.Count {
			lease, err := other.Lend(t.Context(), i)
			if err == nil {
				err = other.Return(t.Context(), lease)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		s, err := NewShare(ShareConfig{Leases: someLeases(t, rule, records, time.Now), Rate: func(int64) {},
			Need: func(context.Context) int64 { return 100 }})
		if err != nil {
			t.Fatal(err)
		}
		for range 22 { // a rest of 2 s, and one per second
			s.turn(t.Context())
			time.Sleep(time.Second)
		}
		if rate, has := s.Has(); rate != 20 {
			t.Errorf("rate %d after 22 s, of %v", rate, has)
		}
	})
}
