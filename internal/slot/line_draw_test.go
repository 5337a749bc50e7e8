package slot

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestEachDrawIsFair checks that each present ticket is equally likely, in the first draw and in a
// later one, no matter which tickets were silent, were called before, or came late.
func TestEachDrawIsFair(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	const places, trials, draws = 40, 40_000, 5
	got := [places + 1]int{}
	for range trials {
		l := NewLine(1)
		for range places - 4 {
			l.Join(0, time.Second, time.Hour)
		}
		now := Time(10 * time.Second)
		for n := uint64(1); n <= places-4; n++ {
			if n%3 != 0 { // each third is silent
				l.Polled(n, now, time.Second)
			}
		}
		for range draws - 1 {
			if n, ok := l.Draw(now, rng.IntN); !ok || !l.Use(n) {
				t.Fatal("nobody is drawn")
			}
		}
		for range 4 { // new arrivals have the same chance as waiting tickets
			l.Join(now, time.Second, time.Hour)
		}
		n, ok := l.Draw(now, rng.IntN)
		if !ok || n%3 == 0 && n <= places-4 {
			t.Fatalf("%d is drawn, who is silent", n)
		}
		got[n]++
	}
	// 24 were present, of whom 4 had been called, each equally likely; then 4 came: 24 in the draw.
	chi, want := 0.0, 0.0
	for n := 1; n <= places; n++ {
		switch {
		case n > places-4:
			want = trials / 24.0
		case n%3 != 0:
			want = trials / 24.0 * 20 / 24 // if it was not called before
		default:
			continue
		}
		d := float64(got[n]) - want
		chi += d * d / want
	}
	if chi > 68 { // 27 degrees of freedom: one run in 50,000 by chance
		t.Errorf("chi square %.1f: %v", chi, got)
	}
}

// TestSwitchingKeepsTheOrderOfArrival checks that tickets left over by draws are called in the
// order of arrival when calls are in order again, also by a host that restored the line.
func TestSwitchingKeepsTheOrderOfArrival(t *testing.T) {
	l := joined(9)
	for _, rank := range []int{6, 1, 3} { // 7, 2, and 5 of the rest
		n, ok := l.Draw(0, func(int) int { return rank })
		if !ok || !l.Use(n) {
			t.Fatal("nobody is drawn")
		}
	}
	for n := uint64(1); n < 10; n++ {
		l.Polled(n, sec, time.Second)
	}
	back, err := RestoreLine(Restored{At: sec, Frontier: l.Frontier(), Next: l.End(),
		Skipped: l.AppendSkipped(nil, skippedBytes), Hold: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	wantCalled(t, l, sec, 1, 3, 4, 6, 8, 9)
	for n := uint64(1); n < 10; n++ {
		if was := back.Polled(n, sec, time.Second); (was == TicketUsed) != (n == 7 || n == 2 || n == 5) {
			t.Errorf("ticket %d is %v after a takeover", n, was)
		}
	}
	wantCalled(t, back, sec, 1, 3, 4, 6, 8, 9)
}

// TestALapsedDrawTakesPartAgain checks that a ticket whose call lapsed takes part again once its
// visitor polls.
func TestALapsedDrawTakesPartAgain(t *testing.T) {
	l := joined(1)
	first := func(int) int { return 0 }
	if n, ok := l.Draw(0, first); !ok || n != 1 {
		t.Fatal("not drawn")
	}
	if !l.Lapse(1, sec) {
		t.Fatal("not called")
	}
	if _, ok := l.Draw(sec, first); ok {
		t.Error("drawn again, unheard")
	}
	l.Polled(1, 2*sec, time.Second)
	if _, ok := l.Draw(2*sec, first); !ok {
		t.Error("not drawn again")
	}
}

// BenchmarkDraw measures one draw of a million, a tenth of them silent.
func BenchmarkDraw(b *testing.B) {
	const n = 1_000_000
	l := NewLine(1)
	for i := range n {
		interval := time.Minute
		if i%10 == 0 {
			interval = time.Second
		}
		l.Join(0, interval, time.Hour)
	}
	now := 5 * sec
	for b.Loop() {
		k, ok := l.Draw(now, rand.IntN)
		if !ok {
			b.Fatal("nobody left")
		}
		l.Lapse(k, now)
		l.Polled(k, now, time.Minute)
	}
}

// Passed returns waiting tickets that Served leaves out: those that were silent, did not claim, or
// were not drawn. First is below all tickets that hold a place, also in the middle of a draw.
func TestWhoWaitsBelowServedIsNamed(t *testing.T) {
	l := NewLine(1)
	for range 10 {
		l.Join(0, time.Minute, time.Hour)
	}
	last := func(n int) int { return n - 1 }
	for range 2 { // 10 and 9 are drawn
		l.Draw(sec, last)
	}
	want := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	if got, ok := l.Passed(8); l.Served() != 11 || !ok || !slices.Equal(got, want) {
		t.Errorf("below %d wait %v %v", l.Served(), got, ok)
	}
	if got, ok := l.Passed(7); ok || l.First() != 1 {
		t.Errorf("too many: %v, the first is %d", got, l.First())
	}
	l.Lapse(9, sec)
	l.Use(10)
	if got, ok := l.Passed(9); !ok || got[len(got)-1] != 9 {
		t.Errorf("who did not claim waits: %v %v", got, ok)
	}

	l = NewLine(1)
	for range 40 {
		l.Join(0, time.Minute, time.Hour)
	}
	if !l.Shuffle(Draw{Event: "e", Seed: seedOf("passed"), From: 1, To: 41, Start: 1}, sec) {
		t.Fatal("not drawn")
	}
	for range 20 {
		n, _ := l.Call(2 * sec)
		l.Use(n)
	}
	for n := uint64(1); n <= 40; n++ {
		if l.Status(n) == TicketWaiting && (n < l.First() || n < l.Served()) {
			t.Errorf("%d waits; the first is %d, below %d nobody does", n, l.First(), l.Served())
		}
	}
}
