package plan

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// The recurrence is the ideal strategy: the same waits, the same peaks.
func TestDoorIsIdeal(t *testing.T) {
	list := sim.Scenarios()
	slow := list[0] // the spread is more than the half second that is made up for
	slow.Name, slow.Limits.New = "few a minute", 40
	slow.Limits.Active = 800
	for _, s := range append(list, slow) {
		s.Length *= 4 // until the line has drained, in all of them
		got, err := Play(t.Context(), &s, 7)
		if err != nil {
			t.Fatal(err)
		}
		want, err := sim.Run(t.Context(), &s, sim.Ideal(), sim.Options{Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		if got.Visitors != want.Visitors || want.Admitted != want.Visitors {
			t.Errorf("%s: %d visitors, of the ideal %d of %d", s.Name, got.Visitors, want.Admitted,
				want.Visitors)
		}
		longest := time.Duration(want.WaitMax * float64(time.Second))
		if (got.LongestWait - longest).Abs() > time.Millisecond {
			t.Errorf("%s: longest wait %v, of the ideal %v", s.Name, got.LongestWait, longest)
		}
		if got.MostWaiting != want.PeakWaiting || got.MostActive != want.PeakActive {
			t.Errorf("%s: %d waiting and %d active, of the ideal %d and %d", s.Name,
				got.MostWaiting, got.MostActive, want.PeakWaiting, want.PeakActive)
		}
		if share := float64(got.Waited) / float64(got.Visitors); share-want.WaitedShare > 1e-9 ||
			want.WaitedShare-share > 1e-9 {
			t.Errorf("%s: %v waited, of the ideal %v", s.Name, share, want.WaitedShare)
		}
	}
}

// crowd is a scenario of random visits.
func crowd(seed uint64, l sim.Limits) *sim.Scenario {
	return &sim.Scenario{Limits: l, Arrivals: func(uint64) iter.Seq[sim.Arrival] {
		return func(yield func(sim.Arrival) bool) {
			r := rand.New(rand.NewPCG(seed, 0))
			at := time.Duration(0)
			for range 300 {
				at += time.Duration(r.ExpFloat64() * float64(time.Second))
				dwell := time.Duration(r.ExpFloat64() * float64(20*time.Second))
				if !yield(sim.Arrival{At: at, Dwell: dwell}) {
					return
				}
			}
		}
	}}
}

// The smallest limits hold, and no smaller ones do: found here by trying all.
func TestGoalsAreTheSmallest(t *testing.T) {
	for seed := range uint64(20) {
		l := sim.Limits{Active: 20, Session: 10 * time.Second, New: 30, Window: time.Minute}
		s := crowd(seed, l)
		p, err := Make(t.Context(), s, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		m := &maker{ctx: t.Context(), s: s}
		for _, g := range p.Goals {
			o := g.Outcome
			if o.LongestWait > g.Within {
				t.Errorf("seed %d: %v at limits for %v", seed, o.LongestWait, g.Within)
			}
			if x := m.try(o.Active-1, o.New, Unlimited); o.Active > 1 && x.LongestWait <= g.Within {
				t.Errorf("seed %d: one active less than %+v holds %v too", seed, o, g.Within)
			}
			if x := m.try(o.Active, o.New-1, Unlimited); o.New > 1 && x.LongestWait <= g.Within {
				t.Errorf("seed %d: one new less than %+v holds %v too", seed, o, g.Within)
			}
		}
		if free := p.Goals[0].Outcome; free.Waited != 0 {
			t.Errorf("seed %d: %d wait where nobody should", seed, free.Waited)
		}
		if p.More.LongestWait > p.Given.LongestWait || p.OnlyActive.LongestWait > p.Given.LongestWait ||
			p.OnlyNew.LongestWait > p.Given.LongestWait {
			t.Errorf("seed %d: more room, longer waits: %+v", seed, p)
		}
	}
}

// The search finds the least of small numbers, and of large ones to a part of them.
func TestLeast(t *testing.T) {
	m := &maker{}
	for want := int64(1); want <= 300; want++ {
		if got := m.least(1, 300, func(n int64) bool { return n >= want }); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
	const want = 123_456
	got := m.least(1, 1_000_000, func(n int64) bool { return n >= want })
	if got < want || got > want+want/fine {
		t.Errorf("got %d, want %d and a little", got, want)
	}
}

func TestMakeEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Make(ctx, crowd(1, sim.Limits200()), 0, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	nobody := &sim.Scenario{Limits: sim.Limits200(), Arrivals: func(uint64) iter.Seq[sim.Arrival] {
		return func(func(sim.Arrival) bool) {}
	}}
	if _, err := Make(t.Context(), nobody, 0, nil); !errors.Is(err, sim.ErrNobody) {
		t.Errorf("got %v", err)
	}
}

func TestJSON(t *testing.T) {
	p, err := Make(t.Context(), crowd(1, sim.Limits200()), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Given   map[string]any
		OnlyNew map[string]any `json:"only_new"`
		Goals   []struct {
			WithinSeconds float64 `json:"within_seconds"`
			Outcome       map[string]any
		}
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if got.Given["total_active_users"] != 200.0 || len(got.Goals) != 3 ||
		got.Goals[1].WithinSeconds != 300 || got.Goals[1].Outcome["visitors"] != 300.0 {
		t.Errorf("got %s", b)
	}
	if n, ok := got.OnlyNew["total_active_users"]; !ok || n != nil {
		t.Errorf("a lifted limit is %v", n)
	}
}

func BenchmarkPlay(b *testing.B) {
	list := sim.Scenarios()
	s, err := sim.Find(list, "flash-crowd")
	if err != nil {
		b.Fatal(err)
	}
	var n int64
	for b.Loop() {
		o, err := Play(b.Context(), s, 1)
		if err != nil {
			b.Fatal(err)
		}
		n += o.Visitors
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/visitor")
}
