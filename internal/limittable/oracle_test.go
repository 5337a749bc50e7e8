package limittable

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

// A call is a call that passed.
type call struct {
	at Time
	n  int64
}

// The oracles keep every call and compute by the definition what may pass at now.
func oracle(r limit.Rule) func(calls []call, now Time) (spare int64) {
	r = r.WithDefaults()
	w := Time(r.Window)
	switch r.Algorithm {
	case limit.SlidingLog:
		return func(calls []call, now Time) int64 {
			spare := r.Amount
			for _, c := range calls {
				if c.at > now-w {
					spare -= c.n
				}
			}
			return spare
		}
	case limit.SlidingWindow:
		sub := (w + Time(r.Parts) - 1) / Time(r.Parts)
		return func(calls []call, now Time) int64 {
			used := new(big.Rat)
			for _, c := range calls {
				part := big.NewRat(1, 1)
				switch age := now/sub - c.at/sub; {
				case age > Time(r.Parts):
					continue
				case age == Time(r.Parts):
					part = big.NewRat(int64(sub-now%sub), int64(sub))
				}
				used.Add(used, part.Mul(part, big.NewRat(c.n, 1)))
			}
			up := new(big.Int).Sub(used.Denom(), big.NewInt(1))
			up.Div(up.Add(up, used.Num()), used.Denom())
			return r.Amount - up.Int64()
		}
	case limit.FixedWindow:
		return func(calls []call, now Time) int64 {
			spare := r.Amount
			if r.Align == limit.FirstHit {
				from, used := -w, int64(0)
				for _, c := range calls {
					if c.at >= from+w {
						from, used = c.at, 0
					}
					used += c.n
				}
				if now < from+w {
					spare -= used
				}
				return spare
			}
			for _, c := range calls {
				if c.at/w == now/w {
					spare -= c.n
				}
			}
			return spare
		}
	}
	return func(calls []call, now Time) int64 { // a bucket, by its definition
		level, at := new(big.Rat), Time(0)
		fall := func(to Time) {
			level.Sub(level, new(big.Rat).Mul(big.NewRat(int64(to-at), int64(w)), big.NewRat(r.Amount, 1)))
			if at = to; level.Sign() < 0 {
				level.SetInt64(0)
			}
		}
		for _, c := range calls {
			fall(c.at)
			level.Add(level, big.NewRat(c.n, 1))
		}
		fall(now)
		left := new(big.Rat).Sub(big.NewRat(r.Burst, 1), level)
		down := new(big.Int)
		return down.Div(left.Num(), left.Denom()).Int64()
	}
}

// rules returns all algorithms, with numbers that do not divide each other.
func rules(random *rand.Rand) []limit.Rule {
	n, w := 1+random.Int64N(12), time.Duration(1_000_003+random.Int64N(7_000_000))
	return []limit.Rule{
		{Algorithm: limit.SlidingLog, Amount: n, Window: w},
		{Algorithm: limit.SlidingWindow, Amount: n, Window: w},
		{Algorithm: limit.SlidingWindow, Amount: n, Window: 9 * w, Parts: 1 + random.IntN(9)},
		{Algorithm: limit.FixedWindow, Amount: n, Window: w},
		{Algorithm: limit.FixedWindow, Amount: n, Window: w, Align: limit.FirstHit},
		{Algorithm: limit.TokenBucket, Amount: n, Window: w, Burst: 1 + random.Int64N(20)},
		{Algorithm: limit.LeakyBucket, Amount: n, Window: w},
	}
}

func name(r limit.Rule) string {
	return fmt.Sprintf("%v %d in %v parts %d burst %d %v", r.Algorithm, r.Amount, r.Window, r.Parts,
		r.Burst, r.Align)
}

// The table decides as the definition does, call by call, and its predictions come true.
func TestTableAgainstTheDefinition(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		for _, r := range rules(random) {
			table := newTable(t, r, nil, 10)
			spare, calls, now := oracle(r), []call{}, Time(1_700_000_000_000_000_000+random.Int64N(1e9))
			mean := int64(r.Window) / max(1, r.Amount)
			for range 150 {
				now += Time(random.Int64N(2*mean + 1))
				n := 1 + random.Int64N(3)
				want := spare(calls, now)
				d, err := table.Take(now, 7, "k", n)
				if err != nil || d.Allowed != (n <= want) {
					t.Fatalf("seed %d, %s: %d of %d: %+v %v", seed, name(r), n, want, d, err)
				}
				if left := max(0, want-map[bool]int64{true: n}[d.Allowed]); d.Remaining != left {
					t.Fatalf("seed %d, %s: %d remain, want %d", seed, name(r), d.Remaining, left)
				}
				if d.Allowed {
					calls = append(calls, call{now, n})
					continue
				}
				if d.Retry < 0 {
					if n <= r.MaxCost() {
						t.Fatalf("seed %d, %s: %d is said to pass never", seed, name(r), n)
					}
					continue
				}
				if then := now + Time(d.Retry); spare(calls, then) < n || spare(calls, then-1) >= n {
					t.Fatalf("seed %d, %s: %d is to pass in %v: then %d may, just before %d", seed, name(r), n, d.Retry,
						spare(calls, then), spare(calls, then-1))
				}
			}
			d := table.Peek(now, 7, "k", 0)
			byWindow := r.Algorithm == limit.SlidingWindow || r.Algorithm == limit.FixedWindow
			then := now + Time(d.Reset)
			if spare(calls, then) != r.MaxCost() ||
				d.Reset > 0 && spare(calls, then-1) == r.MaxCost() && !byWindow {
				t.Fatalf("seed %d, %s: whole again in %v, then %d", seed, name(r), d.Reset, spare(calls, then))
			}
		}
	}
}

// Every window, wherever it begins, has at most what the comment of the algorithm guarantees.
func TestEveryWindowKeepsThePromise(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 2))
		long := limit.Rule{Algorithm: limit.SlidingLog, Amount: 9000, Window: time.Second}
		for _, r := range append(rules(random), long) {
			table := newTable(t, r, nil, 10)
			var calls []call
			now := Time(1_700_000_000_000_000_000)
			for range 400 {
				now += Time(random.Int64N(int64(r.Window) / 8))
				n := 1 + random.Int64N(max(2, r.Amount/9))
				if d, _ := table.Take(now, 7, "k", n); d.Allowed {
					calls = append(calls, call{now, n})
				}
			}
			worst, most := 0.0, 0.0
			for i := range calls {
				sum, w := int64(0), Time(r.Window)
				sub := (w + Time(r.WithDefaults().Parts) - 1) / Time(max(1, r.WithDefaults().Parts))
				for j := i; j < len(calls) && calls[j].at < calls[i].at+w; j++ {
					sum += calls[j].n
					span := float64(calls[j].at - calls[i].at)
					switch r.Algorithm {
					case limit.TokenBucket, limit.LeakyBucket:
						most = float64(r.MaxCost()) + float64(r.Amount)*span/float64(w)
					case limit.SlidingWindow:
						if most = 2 * float64(r.Amount); calls[j].at-calls[i].at < w-sub {
							most = float64(r.Amount)
						}
					case limit.FixedWindow:
						most = 2 * float64(r.Amount)
					default:
						most = float64(r.Amount)
					}
					worst = max(worst, float64(sum)-most)
				}
			}
			if worst > 1e-6 {
				t.Errorf("seed %d, %s: %v more than promised", seed, name(r), worst)
			}
		}
	}
}

// A reservation counts with its real cost, at the time when it was made: no window has more, and
// what is given back can be used.
func TestReservationsKeepThePromise(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 3))
		for _, r := range rules(random) {
			if r.Algorithm == limit.SlidingWindow || r.Algorithm == limit.FixedWindow {
				continue // windows are checked in the next test
			}
			table := newTable(t, r, nil, 10)
			type open struct {
				id uint64
				i  int
			}
			var (
				calls []call
				held  []open
			)
			now := Time(1_700_000_000_000_000_000)
			for range 200 {
				now += Time(random.Int64N(2*int64(r.Window)/max(1, r.Amount) + 1))
				if len(held) > 0 && random.IntN(2) == 0 {
					k := random.IntN(len(held))
					h := held[k]
					held = append(held[:k:k], held[k+1:]...)
					calls[h.i].n = random.Int64N(calls[h.i].n + 1)
					if err := table.Settle(now, 7, h.id, calls[h.i].n); err != nil {
						t.Fatal(err)
					}
					continue
				}
				d, err := table.Reserve(now, 7, "k", 1+random.Int64N(4), time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed {
					calls = append(calls, call{now, 0})
					calls[len(calls)-1].n = took(table, d)
					held = append(held, open{d.ID, len(calls) - 1})
				}
			}
			for i := range calls {
				sum := int64(0)
				for j := i; j < len(calls); j++ {
					span := calls[j].at - calls[i].at
					sum += calls[j].n
					if r.Algorithm == limit.SlidingLog && span >= Time(r.Window) {
						break
					}
					most := float64(r.MaxCost())
					if r.Algorithm.HasBurst() {
						most += float64(r.Amount) * float64(span) / float64(r.Window)
					}
					if float64(sum) > most+1e-6 {
						t.Fatalf("seed %d, %s: %d in %v, want %v at most", seed, name(r), sum, time.Duration(span), most)
					}
				}
			}
		}
	}
}

// took returns how much a reservation holds.
func took(t *Table, d limit.Decision) int64 {
	for _, h := range entryOf(t, "k").held() {
		if h.id == d.ID {
			return h.n
		}
	}
	return 0
}
