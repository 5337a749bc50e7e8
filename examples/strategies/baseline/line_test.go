package baseline

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// one is a visitor of the slow line.
type one struct {
	v            sim.ID
	lane, minute int32
	phase        int64
}

// slow is what the line must do, by looking at everybody.
type slow []one

func (s slow) behind(lane, minute int32) bool {
	return slices.ContainsFunc(s, func(x one) bool { return x.lane == lane && x.minute < minute })
}

func (s *slow) ask(lane int32, phase int64, try func(sim.ID) outcome) {
	for _, x := range slices.Clone(*s) {
		if x.lane != lane || x.phase != phase {
			continue
		}
		if s.behind(lane, x.minute) {
			return
		}
		switch try(x.v) {
		case nobody:
			return
		case enters:
			*s = slices.DeleteFunc(*s, func(y one) bool { return y.v == x.v })
		}
	}
}

// The line lets the same ones try, in the same order, as one that looks at all;
// half way through its lanes are doubled.
func TestLineIsWhatASlowLineIs(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		const before = 3
		lanes := int32(before)
		fast, want := newLine(2*before, pulse), slow{}
		next := sim.ID(0)
		for beat := range int64(400) {
			minute := int32(beat / 60)
			for range r.IntN(4) {
				lane := r.Int32N(lanes)
				if fast.behind(lane, minute) != want.behind(lane, minute) {
					t.Fatalf("seed %d, beat %d: behind is %v", seed, beat, fast.behind(lane, minute))
				}
				fast.add(next, lane, minute, beat)
				want = append(want, one{next, lane, minute, beat % int64(fast.phases)})
				next++
			}
			if beat == 200 {
				for i := range want {
					want[i].lane += before * (want[i].v % 2)
				}
				fast.move(func(v sim.ID) int32 {
					return want[slices.IndexFunc(want, func(x one) bool { return x.v == v })].lane
				})
				lanes = 2 * before
			}
			lane := r.Int32N(lanes)
			answers := make([]outcome, next)
			for i := range answers {
				answers[i] = outcome(r.IntN(3))
			}
			var a, b []sim.ID
			fast.ask(lane, beat, func(v sim.ID) outcome { a = append(a, v); return answers[v] })
			phase := beat % int64(fast.phases)
			want.ask(lane, phase, func(v sim.ID) outcome { b = append(b, v); return answers[v] })
			if !slices.Equal(a, b) || fast.total != int64(len(want)) {
				t.Fatalf("seed %d, beat %d: %v tried and %d wait, want %v and %d", seed, beat, a, fast.total,
					b, len(want))
			}
		}
	}
}

// One who waits asks again every 20 seconds, neither earlier nor later.
func TestOneWhoWaitsAsksEveryRefresh(t *testing.T) {
	for _, beat := range []time.Duration{pulse, step} {
		l := newLine(1, beat)
		l.add(0, 0, 0, 7)
		var asked []time.Duration
		for b := int64(8); b < 8+3*int64(refresh/beat); b++ {
			l.ask(0, b, func(sim.ID) outcome {
				asked = append(asked, time.Duration(b-7)*beat)
				return stays
			})
		}
		if want := []time.Duration{refresh, 2 * refresh, 3 * refresh}; !slices.Equal(asked, want) {
			t.Errorf("beat %v: asks after %v, want %v", beat, asked, want)
		}
	}
}

func TestExpectIsPlaceByRate(t *testing.T) {
	if e := expect(300, 100); !e.Known || e.Expect != 3*time.Minute || e.High-e.Low != 2*refresh {
		t.Errorf("told %+v, want three minutes and a refresh on both sides", e)
	}
	if e := expect(300, 0); e.Known {
		t.Errorf("told %+v though nobody came in", e)
	}
	m := meter{}
	for range 5 {
		m.count(3)
	}
	if m.turn(4); m.last != 5 {
		t.Errorf("%d in the last minute, want 5", m.last)
	}
	if m.turn(6); m.last != 0 {
		t.Errorf("%d in a minute with nobody, want 0", m.last)
	}
}

func TestPartsAddUp(t *testing.T) {
	for _, whole := range []int64{0, 1, 7, 200, 1001} {
		for _, n := range []int{1, 3, 10, 300} {
			sum := int64(0)
			for i := range n {
				p := part(whole, i, n)
				if sum += p; p < whole/int64(n) || p > whole/int64(n)+1 {
					t.Errorf("part %d of %d by %d is %d", i, whole, n, p)
				}
			}
			is(t, "sum of the parts", sum, whole)
		}
	}
}

func TestWindowForgets(t *testing.T) {
	r := window{}
	for i := range 100 {
		r.push(time.Duration(i) * time.Second)
		r.drop(time.Duration(i-60) * time.Second)
		is(t, "within the last minute", int64(r.n), int64(min(i+1, 60)))
	}
}

// Doorman's doc/algorithms.md: equal shares first, what the modest leave is divided
// by need.
func TestProportionalShare(t *testing.T) {
	for _, c := range []struct {
		capacity    float64
		wants, gets []float64
	}{
		{120, []float64{20, 30, 40}, []float64{20, 30, 40}},
		{120, []float64{1000, 60, 10}, []float64{40 + 960*30.0/980, 40 + 20*30.0/980, 10}},
		{120, []float64{100, 100, 100}, []float64{40, 40, 40}},
	} {
		for i, want := range c.gets {
			if got := proportional(c.capacity, c.wants, i); math.Abs(got-want) > 1e-9 {
				t.Errorf("%v want %v: number %d gets %v, want %v", c.capacity, c.wants, i, got, want)
			}
		}
	}
}

// However wants change, what is held is never more than there is.
func TestLeasesAreNeverMoreThanThereIs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	for range 100 {
		const n = 7
		l := newLeased(200, n)
		used := make([]float64, n)
		for range 200 {
			i := r.Int32N(n)
			l.renew(i, float64(r.IntN(300)), used[i])
			used[i] = float64(r.IntN(int(l.held[i]) + 1))
			sum := 0.0
			for _, x := range l.held {
				sum += x
			}
			if sum > 200 {
				t.Fatalf("%v are held of 200", sum)
			}
		}
	}
}

func TestTheLogLagsMoreUnderLoad(t *testing.T) {
	if a, b := lagOf(0), lagOf(5000); a != 200*time.Millisecond || b != 5200*time.Millisecond {
		t.Errorf("lags %v and %v, want 0.2 s and 5.2 s", a, b)
	}
	if d := lagOf(1e9); d != logMost {
		t.Errorf("lags %v, want at most %v", d, logMost)
	}
}

// A visitor costs no memory of its own: the allocations of a run are those of
// growing slices. 60,000 come.
func TestACrowdAllocatesNothingForEach(t *testing.T) {
	s := logJam()
	for _, st := range Strategies() {
		n := testing.AllocsPerRun(1, func() {
			if _, err := sim.Run(t.Context(), &s, st, sim.Options{Seed: 1}); err != nil {
				t.Error(err)
			}
		})
		if n > 2000 {
			t.Errorf("%s: %v allocations", st.Name, n)
		}
	}
}
