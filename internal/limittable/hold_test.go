package limittable

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

// A job is what is held for it, and when the service behind the limit counts it.
type job struct {
	n       int64
	counted Time
}

// Held units count until their answer, then as of the answer, by the definition of the algorithm.
// The service counts each job at some moment before it answers, and never counts more than the
// algorithm guarantees.
func TestWalkOfWhatIsHeld(t *testing.T) {
	held, refused := 0, 0
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 31))
		for _, r := range append(rules(random), lendRules(random)...) {
			table, spare := newTable(t, r, nil, 10), oracle(r)
			var flying []job
			var answers, counts []call
			out, now := int64(0), lendBegan
			step := int64(r.Window) / max(1, r.Amount)
			for range 150 {
				now += Time(random.Int64N(2*step + 2))
				want := int64(0)
				byDefinition := r.Align <= limit.FirstHit && r.Parts <= 1 ||
					r.Algorithm == limit.SlidingWindow
				if byDefinition && r.Amount < 1000 {
					want = max(0, spare(answers, now)-out)
				} else { // the oracle has neither a calendar nor a grid
					want = table.Peek(now, 7, "k", 0).Remaining
				}
				switch n := 1 + random.Int64N(3); random.IntN(4) {
				case 0, 1:
					d, err := table.Hold(now, 7, "k", n)
					if err != nil || d.Allowed != (n <= want) {
						t.Fatalf("seed %d, %s: %d of %d, %d out: %+v %v", seed, name(r), n, want, out, d, err)
					}
					if !d.Allowed {
						refused++
						break
					}
					held++
					out += n
					at := Time(-1) // not yet
					if random.IntN(2) == 0 {
						at = now // at once
					}
					flying = append(flying, job{n, at})
				case 2: // an answer, to any job
					if len(flying) == 0 {
						break
					}
					i := random.IntN(len(flying))
					j := flying[i]
					flying = slices.Delete(flying, i, i+1)
					out -= j.n
					if j.counted < 0 && random.IntN(4) == 0 { // it never arrived
						table.Return(7, j.n)
						break
					}
					if j.counted < 0 {
						j.counted = now
					}
					table.Use(now, 7, "k", j.n)
					answers = append(answers, call{now, j.n})
					counts = append(counts, call{j.counted, j.n})
				default: // a call that is counted at once
					d, _ := table.Take(now, 7, "k", n)
					if d.Allowed != (n <= want) {
						t.Fatalf("seed %d, %s: a call of %d of %d: %+v", seed, name(r), n, want, d)
					}
					if d.Allowed {
						answers, counts = append(answers, call{now, n}), append(counts, call{now, n})
					}
				}
				for i := range flying { // the service counts it at some time
					if flying[i].counted < 0 && random.IntN(8) == 0 {
						flying[i].counted = now
					}
				}
				if got := table.Lent(7); got != out {
					t.Fatalf("seed %d, %s: %d are held, want %d", seed, name(r), got, out)
				}
			}
			for _, j := range flying {
				if j.counted >= 0 {
					counts = append(counts, call{j.counted, j.n})
				}
			}
			slices.SortStableFunc(counts, func(a, b call) int { return int(a.at - b.at) })
			if over, at := overshoot(r, counts); over > 0 {
				t.Fatalf("seed %d, %s: the service counts %v more than promised from %v on", seed, name(r), over,
					time.Duration(at-lendBegan))
			}
		}
	}
	if held < 10_000 || refused < 1000 {
		t.Errorf("%d were held and %d refused: too few to tell", held, refused)
	}
}

// Units that had to be assumed used count again at the answer. What is reported as used beyond what
// is held is owed.
func TestUseBeyondWhatIsHeldCounts(t *testing.T) {
	table, now := newTable(t, tenAMinute(), nil, 10), lendBegan
	if d, _ := table.Hold(now, 1, "k", 4); !d.Allowed || d.Remaining != 6 {
		t.Fatalf("%+v", d)
	}
	table.Use(now, 1, "k", 4)
	table.Use(now, 1, "k", 4) // once more
	if d := table.Peek(now, 1, "k", 0); d.Remaining != 2 || table.Lent(1) != 0 {
		t.Errorf("%d remain and %d are held, want 2 and none", d.Remaining, table.Lent(1))
	}
	table.Hold(now, 1, "k", 1)
	table.Return(1, 4) // more than is held
	table.Use(now, 1, "k", 7)
	if d := table.Peek(now, 1, "k", 0); d.Remaining != 0 {
		t.Errorf("%d remain, want none", d.Remaining)
	}
}

// Keys beyond the maximum share one entry, and count both when they are sent and when they are
// answered.
func TestHoldOfKeysThatAreNotKept(t *testing.T) {
	table, now := newTable(t, tenAMinute(), nil, 1), lendBegan
	table.Take(now, 1, "first", 1)
	d, err := table.Hold(now, 2, "second", 4)
	if err != nil || !d.Allowed || !d.Shared {
		t.Fatalf("%+v, %v", d, err)
	}
	table.Use(now, 2, "second", 4)
	if d := table.Peek(now, 3, "third", 0); d.Remaining != 2 {
		t.Errorf("%d remain of what is shared, want 2", d.Remaining)
	}
}

// Held units stay held when rules change and when keys are swept and removed.
func TestWhatIsHeldIsNeverForgotten(t *testing.T) {
	table, now := newTable(t, tenAMinute(), nil, 10), lendBegan
	table.Hold(now, 1, "k", 4)
	table.Reset(1)
	now += Time(time.Hour)
	for i := range 500 { // new keys cause others to be swept
		table.Take(now+Time(i)*Time(time.Hour), 2+uint64(i), "other", 1)
	}
	now += 500 * Time(time.Hour)
	table.SetRules(now, compiled(t, limit.Rule{Algorithm: limit.TokenBucket, Amount: 10,
		Window: time.Second}, nil), 10)
	if d := table.Peek(now, 1, "k", 0); d.Remaining != 6 {
		t.Errorf("%d remain, want 6", d.Remaining)
	}
	table.Use(now, 1, "k", 4)
	now += Time(time.Second)
	if d := table.Peek(now, 1, "k", 0); d.Remaining != 10 {
		t.Errorf("%d remain a second after the answer, want 10", d.Remaining)
	}
}

// Concurrency and paced limits hold nothing. A rule that becomes Concurrency gets no calls that
// nobody can end.
func TestWhatCannotBeHeld(t *testing.T) {
	calls := limit.Rule{Algorithm: limit.Concurrency, Amount: 10}
	paced := limit.Rule{Algorithm: limit.LeakyBucket, Amount: 10, Window: time.Second, Paced: true}
	for _, r := range []limit.Rule{calls, paced} {
		if _, err := newTable(t, r, nil, 10).Hold(lendBegan, 1, "k", 1); !errors.Is(err, ErrCost) {
			t.Errorf("%s: %v, want ErrCost", name(r), err)
		}
	}
	table := newTable(t, tenAMinute(), nil, 10)
	table.Hold(lendBegan, 1, "k", 4)
	table.SetRules(lendBegan, compiled(t, calls, nil), 10)
	if d := table.Peek(lendBegan, 1, "k", 0); d.Remaining != 6 {
		t.Errorf("%d remain, want 6", d.Remaining)
	}
	table.Use(lendBegan, 1, "k", 4)
	if d := table.Peek(lendBegan, 1, "k", 0); d.Remaining != 10 {
		t.Errorf("%d remain when none is under way, want 10", d.Remaining)
	}
}
