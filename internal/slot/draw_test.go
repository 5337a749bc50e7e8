package slot

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func seedOf(text string) (seed [32]byte) { return sha256.Sum256([]byte(text)) }

// TestADrawIsAPermutation checks that each number has one rank and each rank one number, and that
// numbers outside keep their own.
func TestADrawIsAPermutation(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 7, 255, 256, 257, 5000, 65537} {
		d := Draw{Seed: seedOf("a"), From: 1001, To: 1001 + n}.Order()
		seen := make([]bool, n)
		for x := d.From; x < d.To; x++ {
			r := d.Rank(x)
			if r < d.From || r >= d.To || seen[r-d.From] || d.Number(r) != x {
				t.Fatalf("of %d: rank of %d is %d, number of that %d", n, x, r, d.Number(r))
			}
			seen[r-d.From] = true
		}
		if d.Rank(1000) != 1000 || d.Rank(d.To) != d.To || d.Number(d.To) != d.To {
			t.Error("a number outside is moved")
		}
	}
}

// TestADrawStays checks that the order of a seed never changes. Otherwise nobody could check old
// draws.
func TestADrawStays(t *testing.T) {
	d := Draw{Seed: seedOf("headgate"), From: 1, To: 9}.Order()
	var got []uint64
	for n := d.From; n < d.To; n++ {
		got = append(got, d.Rank(n))
	}
	sum := d.Commitment()
	if want := []uint64{1, 6, 4, 3, 5, 2, 8, 7}; !slices.Equal(got, want) {
		t.Errorf("ranks %d, want %d", got, want)
	}
	const want = "b8e3c1e7513ad39675725b843f798b5f15e6d4e67edf7e29aff4e565caa7ef5d"
	if hex.EncodeToString(sum[:]) != want {
		t.Errorf("commitment %x", sum)
	}
}

// TestADrawIsFair checks that all orders of four are equally likely, and that in a long draw early
// visitors get no better ranks than late ones.
func TestADrawIsFair(t *testing.T) {
	counts, trials := map[string]int{}, 24_000
	for i := range trials {
		d := Draw{Seed: seedOf(fmt.Sprint(i)), From: 1, To: 5}.Order()
		counts[fmt.Sprint(d.Rank(1), d.Rank(2), d.Rank(3), d.Rank(4))]++
	}
	chi := 0.0
	for _, n := range counts {
		x := float64(n) - float64(trials)/24
		chi += x * x / (float64(trials) / 24)
	}
	if len(counts) != 24 || chi > 60 { // 23 degrees of freedom; the seeds are the same each time
		t.Errorf("%d orders, chi square %.1f", len(counts), chi)
	}
	d, early := Draw{Seed: seedOf("b"), From: 1, To: 100_001}.Order(), 0.0
	for n := uint64(1); n <= 50_000; n++ {
		early += float64(d.Rank(n)) / 50_000
	}
	if early < 49_500 || early > 50_500 {
		t.Errorf("the first half has a mean rank of %.0f", early)
	}
}

// TestShuffle checks that after the draw present tickets are called by rank, after all that came
// before and before all that came after, also by a host that restored the line.
func TestShuffle(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	for range 10 {
		l := NewLine(uint64(1 + rng.IntN(3000)))
		all := map[uint64]bool{}
		var trials []uint64
		join := func(n int, now Time) {
			for range n {
				number := l.End()
				if rng.IntN(3) > 0 {
					l.Join(now, time.Minute, time.Hour)
				} else {
					trials = append(trials, l.JoinProvisional(now, time.Hour))
				}
				all[number] = true
			}
		}
		leave := func(share int) {
			for n := range all {
				if rng.IntN(100) < share {
					l.Leave(n)
					delete(all, n)
				}
			}
		}
		join(rng.IntN(1500), 0)
		from := l.End()
		join(1+rng.IntN(4000), sec)
		leave([]int{0, 30, 97}[rng.IntN(3)])
		d := Draw{Event: "e", Seed: seedOf(fmt.Sprint(seed)), From: from, To: l.End(), Start: 1}.Order()
		if !l.Shuffle(d.Draw, 2*sec) {
			t.Fatal("not drawn")
		}
		for _, n := range trials {
			l.Confirm(n, 2*sec)
			l.Polled(n, 2*sec, time.Minute)
		}
		trials = nil
		join(rng.IntN(2000), 3*sec)
		for _, n := range trials {
			l.Confirm(n, 3*sec)
			l.Polled(n, 3*sec, time.Minute)
		}
		want := slices.Collect(func(yield func(uint64) bool) {
			for n := range all {
				if !yield(n) {
					return
				}
			}
		})
		slices.SortFunc(want, func(a, b uint64) int { return int(d.Rank(a)) - int(d.Rank(b)) })
		back, err := RestoreLine(Restored{At: 3 * sec, Frontier: l.Frontier(), Next: l.End(),
			Skipped: l.AppendSkipped(nil, skippedBytes), Draws: l.Draws(), Hold: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range want {
			if pos, ok := l.Position(n); !ok || pos != int64(i+1) {
				t.Fatalf("ticket %d is at %d %v, want %d", n, pos, ok, i+1)
			}
			if back.Polled(n, 3*sec, time.Minute) != TicketWaiting || l.Status(n) != TicketWaiting {
				t.Fatalf("ticket %d is %v, restored %v", n, l.Status(n), back.Status(n))
			}
		}
		if got := slices.Collect(l.Next(3*sec, len(want)+1)); !slices.Equal(got, want) {
			t.Fatal("told to be called in another order")
		}
		for i, n := range want[:len(want)/2] {
			at := l.Arrivals(3*sec, 50)
			if first, _ := l.Oldest(3 * sec); len(at) != min(50, len(want)-i) || at[0] != first ||
				!slices.IsSorted(at) {
				t.Fatalf("before call %d the arrivals are %v, the first %v", i, at, first)
			}
			if lowest := slices.Min(want[i:]); l.First() > lowest {
				t.Fatalf("the first is said to be %d, and %d waits", l.First(), lowest)
			}
			got, ok := l.Call(3 * sec)
			if !ok || got != n || !l.Use(n) || l.Status(n) != TicketUsed {
				t.Fatalf("call %d is of %d %v, want %d", i, got, ok, n)
			}
			if after := want[i+1]; l.Served() > after {
				t.Fatalf("served %d, and %d waits", l.Served(), after)
			}
			if at := back.Arrivals(3*sec, 50); len(at) != min(50, len(want)-i) || !slices.IsSorted(at) {
				t.Fatalf("restored, before call %d the arrivals are %v", i, at)
			}
			if got, ok := back.Call(3 * sec); !ok || got != n {
				t.Fatalf("restored, call %d is of %d, want %d", i, got, n)
			}
		}
	}
}

// TestShuffleIsRefused checks that Shuffle changes nothing where it would take a place away.
func TestShuffleIsRefused(t *testing.T) {
	l := joined(5)
	if l.Shuffle(Draw{From: 2, To: 5}, 0) || l.Shuffle(Draw{From: 6, To: 6}, 0) {
		t.Error("drawn, not to the end")
	}
	l.Call(0)
	if l.Shuffle(Draw{From: 1, To: 6}, 0) {
		t.Error("drawn, with one who was called")
	}
	if !l.Shuffle(Draw{From: 2, To: 6}, 0) {
		t.Error("not drawn")
	}
	l.Join(0, time.Second, time.Minute)
	if l.Shuffle(Draw{From: 5, To: 7}, 0) || !l.Shuffle(Draw{From: 6, To: 7}, 0) {
		t.Error("drawn, with one of another draw; or not drawn")
	}
}

// TestDrawsAreForgotten checks that a draw is forgotten when its last ticket has left.
func TestDrawsAreForgotten(t *testing.T) {
	l := joined(3)
	l.Shuffle(Draw{From: 1, To: 4}, 0)
	for n := range callAll(l, 0) {
		if len(l.Draws()) != 1 {
			t.Fatalf("forgotten while %d may wait", n)
		}
	}
	for n := uint64(1); n < 4; n++ {
		l.Use(n)
	}
	if len(l.Draws()) != 0 || l.Status(2) != TicketUsed {
		t.Errorf("%d draws, ticket 2 is %v", len(l.Draws()), l.Status(2))
	}
}

// BenchmarkDrawRank measures the extra cost of a poll for a drawn ticket.
func BenchmarkDrawRank(b *testing.B) {
	d := Draw{Seed: seedOf("c"), From: 1, To: 1_000_001}.Order()
	b.ReportAllocs()
	for n := uint64(1); b.Loop(); n++ {
		d.Rank(n%1_000_000 + 1)
	}
}

// BenchmarkShuffle measures a draw of a million. No request is answered meanwhile.
func BenchmarkShuffle(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		l := joined(1_000_000)
		b.StartTimer()
		if !l.Shuffle(Draw{Seed: seedOf("d"), From: 1, To: l.End()}, 0) {
			b.Fatal("not drawn")
		}
	}
}
