package limiters

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ululelimiter "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/limit"
)

// slack widens the budgets where other work shares the machine.
var slack = flag.Float64("slack", 1, "budgets are multiplied by this")

// decisions are the libraries that decide in process, each with its limit of 100 a second:
// what one decision for one of 100,000 keys costs.
func decisions(tb testing.TB) map[string]func(key string) {
	ours, err := headgate.NewLimiter(headgate.LimiterConfig{Limits: []headgate.LimitConfig{{
		Name: "api", Rule: limit.Rule{Algorithm: limit.TokenBucket, Amount: 100, Window: time.Second},
	}}})
	if err != nil {
		tb.Fatal(err)
	}
	store, err := memorystore.New(&memorystore.Config{Tokens: 100, Interval: time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { store.Close(context.Background()) })
	return map[string]func(key string){
		"headgate": func(key string) {
			_, err := ours.Allow(context.Background(), headgate.Ask{Limit: "api", Key: key, Cost: 1})
			if err != nil {
				tb.Error(err)
			}
		},
		"go-limiter":    take(tb, store),
		"throttled":     throttle(tb),
		"ulule/limiter": ulule(tb),
		"x/time/rate":   rates(),
	}
}

func take(tb testing.TB, s limiter.Store) func(string) {
	return func(key string) {
		if _, _, _, _, err := s.Take(context.Background(), key); err != nil {
			tb.Error(err)
		}
	}
}

func throttle(tb testing.TB) func(string) {
	s, err := memstore.NewCtx(200_000)
	if err != nil {
		tb.Fatal(err)
	}
	quota := throttled.RateQuota{MaxRate: throttled.PerSec(100), MaxBurst: 99}
	l, err := throttled.NewGCRARateLimiterCtx(s, quota)
	if err != nil {
		tb.Fatal(err)
	}
	return func(key string) {
		if _, _, err := l.RateLimitCtx(context.Background(), key, 1); err != nil {
			tb.Error(err)
		}
	}
}

func ulule(tb testing.TB) func(string) {
	l := ululelimiter.New(memory.NewStore(), ululelimiter.Rate{Period: time.Second, Limit: 100})
	return func(key string) {
		if _, err := l.Get(context.Background(), key); err != nil {
			tb.Error(err)
		}
	}
}

func rates() func(string) {
	var mu sync.Mutex
	of := map[string]*rate.Limiter{}
	return func(key string) {
		mu.Lock()
		l := of[key]
		if l == nil {
			l = rate.NewLimiter(100, 100)
			of[key] = l
		}
		mu.Unlock()
		l.Allow()
	}
}

// TestDecisions compares what a decision costs, all in one run: the medians of rounds that
// take turns.
func TestDecisions(t *testing.T) {
	const keys, rounds = 100_000, 11
	names, again := make([]string, keys), make([]string, keys) // a request brings its own copy
	for i := range names {
		names[i], again[i] = fmt.Sprintf("client-%06d", i), fmt.Sprintf("client-%06d", i)
	}
	sides := decisions(t)
	took := map[string][]float64{}
	for round := range rounds + 1 {
		for side, decide := range sides {
			if round == 0 { // makes the keys
				for _, name := range names {
					decide(name)
				}
				continue
			}
			took[side] = append(took[side], timed(again, decide))
		}
	}
	for side := range took {
		slices.Sort(took[side])
		t.Logf("%-14s %6.0f ns a decision", side, took[side][rounds/2])
	}
	ours := took["headgate"][rounds/2]
	const most = 1.0
	for _, side := range []string{"go-limiter", "throttled", "ulule/limiter", "x/time/rate"} {
		if ratio := ours / took[side][rounds/2]; ratio > most**slack {
			t.Errorf("a decision costs %.2f × that of %s, budget %.2f", ratio, side, most**slack)
		} else {
			t.Logf("headgate / %-14s %.2f (budget %.2f)", side, ratio, most**slack)
		}
	}
	decide := sides["headgate"]
	if n := testing.AllocsPerRun(1000, func() { decide(names[7]) }); n > 0 {
		t.Errorf("%v allocations a decision", n)
	}
}

// timed is the time of a decision in ns, with two goroutines that walk through the keys in
// different orders.
func timed(names []string, decide func(string)) float64 {
	const each = 200_000
	began := time.Now()
	var all sync.WaitGroup
	for g := range 2 {
		all.Go(func() {
			for i := range each {
				decide(names[(i*(7919+2*g)+g*50_000)%len(names)])
			}
		})
	}
	all.Wait()
	return float64(time.Since(began).Nanoseconds()) / (2 * each)
}
