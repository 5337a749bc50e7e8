package quota

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
)

// Parameters of the measurement (issue "Limits"): six workers with an uneven load that moves.
const (
	idealDesks = 6
	idealTime  = 5 * time.Minute
	idealMoves = 20 * time.Second // then another worker has most of the load
	idealMost  = 0.8              // its fraction of the load
	idealApart = 40 * time.Millisecond
	idealRatio = 0.994 // of what an ideal central limiter allows
	idealCold  = 300   // keys with few calls
)

// idealRules returns limits of each algorithm: 100 and 1,000 per minute, and 50 in 10 s.
func idealRules(r limit.Rule) []limit.Rule {
	a, b, c := r, r, r
	a.Amount, a.Window = 100, time.Minute
	b.Amount, b.Window = 1000, time.Minute
	c.Amount, c.Window = 50, 10*time.Second
	return []limit.Rule{a, b, c}
}

// idealLoads returns the demand for a key, in multiples of its limit.
func idealLoads() []float64 { return []float64{0.7, 0.95, 1.05, 1.5, 3} }

// An arrival is one call at one Client.
type arrival struct {
	at         time.Duration
	limit, key int // keys from len(idealLoads) on have few calls
	desk       int
}

// A world is one ledger with Clients at a distance from it.
type world struct {
	began   time.Time
	apart   time.Duration // one way, for all Clients except the first
	ledger  *ledger
	desks   []*Client
	limits  []*Definition
	waits   sync.WaitGroup
	mu      sync.Mutex
	asks    int
	recalls int
}

// A distant is the Transport of one Client.
type distant struct {
	w     *world
	apart time.Duration
}

func (d distant) Host(byte) string { return "host" }
func (d distant) Lost(byte)        {}
func (d distant) Borrowers() int   { return idealDesks }
func (d distant) Request(ctx context.Context, _ string, msg []byte) ([]byte, error) {
	d.w.mu.Lock()
	d.w.asks++
	d.w.mu.Unlock()
	if !pause(ctx, d.apart) {
		return nil, ctx.Err()
	}
	b := d.w.ledger.answer(ctx, msg)
	if !pause(ctx, d.apart) {
		return nil, ctx.Err()
	}
	return b, nil
}

// pause waits, and reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func newWorld(ctx context.Context, apart time.Duration, limits []*Definition) *world {
	w := &world{began: time.Now(), apart: apart, limits: limits}
	boot := func() time.Duration { return time.Since(w.began) + time.Hour }
	rules := func(name string) *Definition {
		for _, d := range limits {
			if d.Name == name {
				return d
			}
		}
		return nil
	}
	w.ledger = newLedger(boot, rules, func(who uint64, ps []place) {
		w.mu.Lock()
		w.recalls++
		w.mu.Unlock()
		w.waits.Go(func() {
			if pause(ctx, w.distance(int(who)-1)) {
				w.desks[who-1].recalled(ps)
			}
		})
	})
	w.ledger.lease.Store(1 << 62)
	for i := range Shards {
		w.ledger.host(i, basis{known: true})
	}
	for i := range idealDesks {
		w.desks = append(w.desks, NewClient(uint64(i)+1, distant{w, w.distance(i)}, boot))
	}
	for _, d := range w.desks {
		w.waits.Go(func() { d.Run(ctx) })
	}
	return w
}

// distance returns the delay between a Client and the host, which is next to the first Client.
func (w *world) distance(desk int) time.Duration {
	if desk == 0 {
		return 0
	}
	return w.apart
}

// idealArrivals returns Poisson arrivals of all keys, in order.
func idealArrivals(rules []limit.Rule) (all []arrival) {
	random := rand.New(rand.NewPCG(uint64(len(rules)), 40))
	key := func(l, k int, rate float64) {
		for at := 0.0; ; {
			at += random.ExpFloat64() / rate
			a := arrival{at: time.Duration(at * float64(time.Second)), limit: l, key: k}
			if a.at >= idealTime {
				return
			}
			if a.desk = int(a.at/idealMoves) % idealDesks; random.Float64() > idealMost {
				a.desk = (a.desk + 1 + random.IntN(idealDesks-1)) % idealDesks
			}
			all = append(all, a)
		}
	}
	for l, r := range rules {
		rate := float64(r.Amount) / r.Window.Seconds()
		for k, load := range idealLoads() {
			key(l, k, load*rate)
		}
		for k := range idealCold / len(rules) {
			key(l, len(idealLoads())+k, 0.1)
		}
	}
	slices.SortFunc(all, func(a, b arrival) int { return int(a.at - b.at) })
	return all
}

func keyName(k int) string { return fmt.Sprint("client-", k) }

// idealTotals returns what a central limiter without delay allows, by limit and key.
func idealTotals(limits []*Definition, calls []arrival) map[[2]int]int {
	passed := map[[2]int]int{}
	tables := make([]limittable.Table, len(limits))
	began := limittable.Time(time.Now().UnixNano())
	for i, d := range limits {
		tables[i].SetRules(began, d.Rules, 1<<20)
	}
	for _, a := range calls {
		k := [2]int{a.limit, a.key}
		d, err := tables[a.limit].Take(began+limittable.Time(a.at), uint64(a.key)+1, keyName(a.key), 1)
		if err == nil && d.Allowed {
			passed[k]++
		}
	}
	return passed
}

// run makes all calls, and returns the times of those that passed.
func (w *world) run(ctx context.Context, t *testing.T, calls []arrival) map[[2]int][]limittable.Time {
	passed := map[[2]int][]limittable.Time{}
	var mu sync.Mutex
	var under sync.WaitGroup
	for _, a := range calls {
		pause(ctx, a.at-time.Since(w.began))
		lane := w.desks[a.desk].Limit(w.limits[a.limit].Name)
		under.Go(func() {
			d, err := lane.Take(ctx, keyName(a.key), 1)
			if err != nil {
				t.Error(err)
			}
			if d.Allowed {
				mu.Lock()
				k := [2]int{a.limit, a.key}
				passed[k] = append(passed[k], limittable.Time(time.Now().UnixNano()))
				mu.Unlock()
			}
		})
	}
	under.Wait()
	return passed
}

// over returns the largest number of calls of cost 1 by which a rule is exceeded.
func over(r limit.Rule, at []limittable.Time) (worst int64) {
	w := limittable.Time(r.Window)
	first := 0
	for last := range at {
		switch r.Algorithm {
		case limit.TokenBucket: // every period, wherever it begins
			for i := range last + 1 {
				most := r.Amount + int64(at[last]-at[i])*r.Amount/int64(w)
				worst = max(worst, int64(last-i+1)-most)
			}
			continue
		case limit.FixedWindow:
			for at[first]/w != at[last]/w {
				first++
			}
		case limit.SlidingWindow:
			parts := limittable.Time(max(1, r.Parts))
			for at[last]-at[first] >= max(1, w-(w+parts-1)/parts) {
				first++
			}
		default:
			for at[last]-at[first] >= w {
				first++
			}
		}
		worst = max(worst, int64(last-first+1)-r.Amount)
	}
	return worst
}

// Six workers with an uneven load that moves allow what an ideal central limiter would allow, and
// never more than the limit.
func TestAlmostAsAnIdealLimiter(t *testing.T) {
	if testing.Short() {
		return // length, and nothing that the race detector could find: make all plays it
	}
	for _, r := range []limit.Rule{
		{Algorithm: limit.SlidingLog},
		{Algorithm: limit.SlidingWindow},
		{Algorithm: limit.SlidingWindow, Parts: 10},
		{Algorithm: limit.FixedWindow},
		{Algorithm: limit.TokenBucket},
	} {
		t.Run(fmt.Sprintf("%v/%d", r.Algorithm, max(1, r.Parts)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { measure(t, r, idealApart) })
		})
	}
	t.Run("there and back", func(t *testing.T) { // 40 ms in all
		r := limit.Rule{Algorithm: limit.SlidingLog}
		synctest.Test(t, func(t *testing.T) { measure(t, r, idealApart/2) })
	})
}

func measure(t *testing.T, r limit.Rule, apart time.Duration) {
	rules := idealRules(r)
	var limits []*Definition
	for i, r := range rules {
		compiled, err := limittable.Compile(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, &Definition{Name: fmt.Sprint("limit-", i), Rules: compiled, MaxKeys: 1 << 20,
			Lends: true})
	}
	calls := idealArrivals(rules)
	ideal := idealTotals(limits, calls)
	ctx, stop := context.WithCancel(t.Context())
	w := newWorld(ctx, apart, limits)
	passed := w.run(ctx, t, calls)
	stop()
	w.waits.Wait()
	sum, want, told := 0, 0, strings.Builder{}
	busy, busyWant := 0, 0 // of the keys whose demand is at or above the limit
	for l, r := range rules {
		for k := range len(idealLoads()) + idealCold/len(rules) {
			at := passed[[2]int{l, k}]
			sum, want = sum+len(at), want+ideal[[2]int{l, k}]
			if k < len(idealLoads()) {
				fmt.Fprintf(&told, " %d/%d", len(at), ideal[[2]int{l, k}])
			}
			if k < len(idealLoads()) && idealLoads()[k] > 0.9 {
				busy, busyWant = busy+len(at), busyWant+ideal[[2]int{l, k}]
			}
			if n := over(r, at); n > 0 {
				t.Errorf("%d more than %d in %v of key %d", n, r.Amount, r.Window, k)
			}
		}
	}
	ratio, busyRatio := float64(sum)/float64(want), float64(busy)/float64(busyWant)
	t.Logf("%.4f of all, %.4f of busy keys: %d calls, %d of %d, %d messages, %d recalls;%s", ratio, busyRatio,
		len(calls), sum, want, w.asks, w.recalls, told.String())
	if min(ratio, busyRatio) < idealRatio {
		t.Errorf("%.4f and %.4f of what an ideal limiter lets pass, want %.4f", ratio, busyRatio, idealRatio)
	}
}
