package figure

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// differences are the steps of a growing line.
func differences(y []float64) []float64 {
	var list []float64
	last := 0.0
	for _, v := range y {
		list = append(list, v-last)
		last = v
	}
	return list
}

// 10,000 + 8,000 + 6,000 + 4,000 + 2,000 sends, of which 20,000 are refused.
func TestAzure_E1_NaiveRetry(t *testing.T) {
	p := naive(&service{perSecond: serviceRate, cost: recordUnits})
	if p.sent != 30_000 || p.refused != 20_000 || p.written != 10_000 || p.done != 5*time.Second {
		t.Errorf("%d sent, %d refused, %d written after %v", p.sent, p.refused, p.written, p.done)
	}
	sends, refused := differences(p.sends.Y), differences(p.refusals.Y)
	if d := cmp.Diff([]float64{10_000, 8_000, 6_000, 4_000, 2_000, 0}, sends); d != "" {
		t.Error("sends: ", d)
	}
	if d := cmp.Diff([]float64{8_000, 6_000, 4_000, 2_000, 0, 0}, refused); d != "" {
		t.Error("refused: ", d)
	}
}

func TestAzure_E1_LeasedPacing(t *testing.T) {
	p := pacing()
	if p.sent != 10_000 || p.refused != 0 || p.written != 10_000 || p.done != 5*time.Second {
		t.Errorf("%d sent, %d refused, %d written after %v", p.sent, p.refused, p.written, p.done)
	}
	for i, n := range differences(p.sends.Y)[:25] {
		if n != 400 {
			t.Errorf("%v in slice %d, not 400", n, i)
		}
	}
}

// The service of the examples refuses what is over its second, and only that.
func TestAzure_E1_ServiceTakes2000ASecond(t *testing.T) {
	s := &service{perSecond: serviceRate, cost: recordUnits}
	for _, c := range []struct {
		at      time.Duration
		n, want int64
	}{{0, 1_500, 1_500}, {900 * time.Millisecond, 1_500, 500}, {time.Second, 3_000, 2_000},
		{1500 * time.Millisecond, 1, 0}, {9 * time.Second, 1, 1}} {
		if got := s.send(c.at, c.n); got != c.want {
			t.Errorf("%d of %d taken at %v, not %d", got, c.n, c.at, c.want)
		}
	}
}

// 100 operations a second are 20 every 200 ms.
func TestAzure_E2_Smoothing(t *testing.T) {
	for i, n := range differences(smoothing().Series[1].Y) {
		if n != 20 {
			t.Errorf("%v in slice %d, not 20", n, i)
		}
	}
	for _, rate := range []int64{0, 1, 7, 25, 333, 100_000} {
		var sum, least, most int64 = 0, rate, 0
		for at := 3 * time.Second; at < 4*time.Second; at += slice {
			n := due(rate, at)
			sum, least, most = sum+n, min(least, n), max(most, n)
		}
		if sum != rate || most-least > 1 {
			t.Errorf("%d a second: %d, between %d and %d a slice", rate, sum, least, most)
		}
	}
}

// Asks for 4 partitions of 25/s, is granted 2, runs at 50/s, is done in 2 s.
func TestAzure_E3_TwoOfFourPartitions(t *testing.T) {
	for seed := range uint64(20) {
		g := lend(rand.New(rand.NewPCG(seed, 0)))
		if g.asked != 4 || g.got != 2 || g.rate != 50 || g.done != 2*time.Second {
			t.Errorf("asked %d, got %d, %d/s, done after %v", g.asked, g.got, g.rate, g.done)
		}
		if g.sent != 100 || g.written != 100 || g.refused != 0 || g.free != 2 {
			t.Errorf("%d sent, %d written, %d refused, %d partitions free after",
				g.sent, g.written, g.refused, g.free)
		}
	}
}

// A lease is exclusive until its end or its release; the rate follows it.
func TestAzure_E4_LeasesEndByThemselves(t *testing.T) {
	p := newPartitions(2, 25, 15*time.Second)
	step := func(what string, ok, want bool) {
		t.Helper()
		if ok != want {
			t.Errorf("%s: %v", what, ok)
		}
	}
	step("A gets partition 0", p.lease("A", 0, 0), true)
	step("B gets it too", p.lease("B", 0, 14*time.Second), false)
	step("A gets it again", p.lease("A", 0, 14*time.Second), false)
	if a, b := p.rate("A", 15*time.Second-1), p.rate("A", 15*time.Second); a != 25 || b != 0 {
		t.Errorf("%d/s before the end, %d/s at it", a, b)
	}
	step("B gets it at the end", p.lease("B", 0, 15*time.Second), true)
	p.release("A", 16*time.Second)
	if n := p.rate("B", 16*time.Second); n != 25 {
		t.Errorf("who holds nothing has released another's: %d/s", n)
	}
	p.release("B", 16*time.Second)
	step("A gets what was released", p.lease("A", 0, 16*time.Second), true)
	if n := p.free(16 * time.Second); n != 1 {
		t.Errorf("%d free, not 1", n)
	}
}

// The steps of the document: B wins partition 2; then A gets 6, B gets 3; then A
// gets 0, B gets 1.
func TestAzure_E5_FirstThreeSeconds(t *testing.T) {
	f := find(t, 1, "azure-partitions")
	want := [][]string{
		{"0", "2 (held)", "0", "0", "0", "2", "0", "100", "100"},
		{"1", "6", "0", "100", "100", "3", "0", "200", "200"},
		{"2", "0", "0", "200", "200", "1", "0", "300", "300"},
	}
	if d := cmp.Diff(want, f.Table.Rows[:3]); d != "" {
		t.Error(d)
	}
}

// After 15 s one at least is not done, and the rate has fallen with each lease.
func TestAzure_E5_RatesFollowLeases(t *testing.T) {
	for seed := range uint64(50) {
		a, b := run(rand.New(rand.NewPCG(seed, 0)))
		if len(a) <= 16 {
			t.Fatalf("seed %d: done after %d s", seed, len(a))
		}
		if a[16].ended != 1 || b[15].ended != 1 && written(b[:14]) < recordsB {
			t.Errorf("seed %d: the first leases do not end after 15 s", seed)
		}
		for i := range a {
			if sum := a[i].rate + b[i].rate; sum > 1000 {
				t.Errorf("seed %d: %d/s at %d s", seed, sum, i)
			}
		}
		for _, turns := range [][]turn{a, b} {
			checkTurns(t, seed, turns)
		}
		if written(a) != recordsA || written(b) != recordsB {
			t.Errorf("seed %d: %d and %d records written", seed, written(a), written(b))
		}
	}
}

// checkTurns holds each rate against the leases won in the 15 s before it.
func checkTurns(t *testing.T, seed uint64, turns []turn) {
	t.Helper()
	for i, now := range turns {
		var rate int64
		for _, then := range turns[max(0, i-14) : i+1] {
			if then.got {
				rate += partitionRate
			}
		}
		if now.refused != 0 || now.tried >= 0 && now.rate != rate {
			t.Errorf("seed %d: %d/s by %d/s of leases at %d s, %d refused",
				seed, now.rate, rate, i, now.refused)
		}
		if over := i >= 15 && turns[i-15].got; now.tried >= 0 && over != (now.ended == 1) {
			t.Errorf("seed %d: %d leases end at %d s", seed, now.ended, i)
		}
	}
}

func written(turns []turn) (sum int64) {
	for _, t := range turns {
		sum += t.written
	}
	return sum
}

// Who has emptied its queue holds nothing.
func TestAzure_E5_DoneMeansReleased(t *testing.T) {
	for seed := range uint64(50) {
		_, b := run(rand.New(rand.NewPCG(seed, 0)))
		i := slices.IndexFunc(b, func(t turn) bool { return t.tried < 0 })
		if i > 0 && b[i].rate != 0 {
			t.Errorf("seed %d: B is done and still holds %d/s", seed, b[i].rate)
		}
	}
}

func TestAzure_RetryFigure(t *testing.T) {
	want := [][]string{
		{"naive retry", "30000", "20000", "10000", "5 s"},
		{"leased pacing", "10000", "0", "10000", "5 s"},
	}
	if d := cmp.Diff(want, retries().Table.Rows); d != "" {
		t.Error(d)
	}
}
