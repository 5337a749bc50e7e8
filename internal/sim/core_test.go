package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The wheel gives what a sorted list gives.
func TestQueueIsInOrder(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 9))
		q := newQueue()
		var want []time.Duration
		now := time.Duration(0)
		for range 3000 {
			if r.IntN(3) > 0 || len(want) == 0 {
				at := now + time.Duration(r.Int64N(1<<r.IntN(55)))
				q.put(at, 0, 0, int64(at))
				k, _ := slices.BinarySearch(want, at+1)
				want = slices.Insert(want, k, at)
				continue
			}
			at, ok := q.peek()
			e := q.take()
			if !ok || at != want[0] || e.at != at || e.b != int64(at) {
				t.Fatalf("seed %d: took %v, want %v", seed, at, want[0])
			}
			now, want = at, want[1:]
		}
		for _, at := range want {
			if got, ok := q.peek(); !ok || got != at {
				t.Fatalf("seed %d: %v at the end, want %v", seed, got, at)
			}
			q.take()
		}
		if _, ok := q.peek(); ok {
			t.Fatal("something is left")
		}
	}
}

func TestQueueKeepsTheOrderOfOneMoment(t *testing.T) {
	q := newQueue()
	for i := range int64(100) {
		q.put(time.Hour, 0, 0, i)
	}
	for i := range int64(100) {
		q.peek()
		if e := q.take(); e.b != i {
			t.Fatalf("took %d, want %d", e.b, i)
		}
	}
}

// The ideal counter is never over, never early and in order on every scenario.
func TestIdealKeepsEveryPromise(t *testing.T) {
	for _, s := range Scenarios() {
		r, err := Run(t.Context(), &s, Ideal(), Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%-17s visitors %d admitted %d waited %.3f peak %d waiting %d wait max %.0f", s.Name,
			r.Visitors, r.Admitted, r.WaitedShare, r.PeakActive, r.PeakWaiting, r.WaitMax)
		if r.OvershootActive > 0 || r.OvershootRate > 0 || r.EarlyShare > 0 || r.OvertakenShare > 0 {
			t.Errorf("%s: %+v", s.Name, r)
		}
	}
}

func TestTheSameSeedGivesTheSameResult(t *testing.T) {
	s := worldSpike()
	a, _ := Run(t.Context(), &s, Ideal(), Options{Seed: 7})
	b, _ := Run(t.Context(), &s, Ideal(), Options{Seed: 7})
	c, _ := Run(t.Context(), &s, Ideal(), Options{Seed: 8})
	if a.Visitors != b.Visitors || a.WaitMax != b.WaitMax || !slices.Equal(a.Series.Active, b.Series.Active) {
		t.Error("two runs with one seed differ")
	}
	if slices.Equal(a.Series.Active, c.Series.Active) {
		t.Error("two seeds give the same run")
	}
}
