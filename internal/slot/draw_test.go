package slot

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
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

// anAttack is the line of a sale: 1,000 people of networks of their own, 200 people behind one
// address of a mobile network, and 10,000 tickets of one attacker of 50 networks, in any order.
func anAttack(weight int) (l *Line, network func(uint64) uint32) {
	const people, mobile, bots, networks = 1000, 200, 10_000, 50
	rng := rand.New(rand.NewPCG(1, 2))
	of := make([]uint32, people+mobile+bots)
	for i, k := range rng.Perm(len(of)) {
		switch {
		case i < people:
			of[k] = attackers + mobileNetwork + 1 + uint32(i)
		case i < people+mobile:
			of[k] = attackers + mobileNetwork
		default:
			of[k] = 1 + uint32(i%networks)
		}
	}
	lines := NewLines()
	l = lines.Ordinary()
	lines.SetDrawWeight(weight)
	for i := range of {
		n := l.Join(0, time.Minute, time.Hour)
		lines.SetNetwork(n, of[i])
		lines.SetNetwork(n, 5_000_000) // the first network counts
	}
	return l, func(n uint64) uint32 { return of[n-1] }
}

const attackers, mobileNetwork = 50, 1

// firstPlaces counts the first places of the attacker and of the mobile network.
func firstPlaces(most int, network func(uint64) uint32, next func() uint64) (bots, mobile int) {
	for range most {
		switch n := network(next()); {
		case n <= attackers:
			bots++
		case n == attackers+mobileNetwork:
			mobile++
		}
	}
	return bots, mobile
}

// TestManyTicketsOfANetworkBuyFewChances counts who gets the first 1,000 places of a draw. The
// attacker has 11/12 of the tickets; of 50 networks it has with ten chances each 500 beside 1,000 of
// people and 10 of the mobile network.
func TestManyTicketsOfANetworkBuyFewChances(t *testing.T) {
	for _, tt := range []struct{ weight, bots, botsMost, mobile int }{
		{0, 850, 950, 5},
		{1, 60, 160, 1},
		{10, 370, 450, 3},
	} {
		l, network := anAttack(tt.weight)
		d := Draw{Seed: seedOf("an attack"), From: 1, To: l.End(), Start: 1}
		d.Weights = l.Weights(1, l.End())
		if (d.Weights == "") != (tt.weight == 0) || !l.Shuffle(d, 0) {
			t.Fatalf("weight %d: not drawn, %d bytes", tt.weight, len(d.Weights))
		}
		if n := l.End() / 2; l.Network(n) != network(n) {
			t.Error("a network has moved to another ticket")
		}
		bots, mobile := firstPlaces(1000, network, func() uint64 { n, _ := l.Call(0); return n })
		t.Logf("shuffle, weight %d: %d bots, %d of the mobile network, %d bytes", tt.weight, bots, mobile, len(d.Weights))
		if bots < tt.bots || bots > tt.botsMost || mobile < tt.mobile {
			t.Errorf("shuffle, weight %d: %d bots, %d of the mobile network", tt.weight, bots, mobile)
		}
		l, network = anAttack(tt.weight)
		rng := rand.New(rand.NewPCG(3, 4))
		bots, mobile = firstPlaces(1000, network, func() uint64 {
			n, _ := l.Draw(0, rng.IntN)
			l.Use(n)
			return n
		})
		t.Logf("random, weight %d: %d bots, %d of the mobile network", tt.weight, bots, mobile)
		if bots < tt.bots || bots > tt.botsMost || mobile < tt.mobile {
			t.Errorf("random, weight %d: %d bots, %d of the mobile network", tt.weight, bots, mobile)
		}
		rest := 0
		for _, ok := l.Draw(0, rng.IntN); ok; _, ok = l.Draw(0, rng.IntN) { // nobody is locked out
			rest++
		}
		if rest != 10_200 {
			t.Errorf("%d are drawn after that", rest)
		}
	}
}

// TestAWeighedDrawIsChecked checks the order with real numbers, and what a record keeps of it.
func TestAWeighedDrawIsChecked(t *testing.T) {
	l, network := anAttack(10)
	want := Draw{Seed: seedOf("x"), From: 101, To: 11_101, Start: 1, Weights: l.Weights(101, 11_101)}
	crowds := map[uint32]float64{}
	for n := want.From; n < want.To; n++ {
		crowds[network(n)]++
	}
	bought := map[uint32]float64{}
	exponents, err := want.exponents()
	if err != nil {
		t.Fatal(err)
	}
	keys := make([]float64, len(exponents)) // the logarithms of u^(1/w)
	for i, x := range exponents {
		var b [41]byte
		copy(b[:], want.Seed[:])
		b[32] = 10
		binary.BigEndian.PutUint64(b[33:], uint64(i))
		sum := sha256.Sum256(b[:])
		u := float64(binary.BigEndian.Uint64(sum[:])|1) / (1 << 64)
		keys[i] = math.Log(u) * float64(x)
		bought[network(want.From+uint64(i))] += 4 / float64(x)
	}
	for n, chances := range bought {
		if least := min(10, crowds[n]); chances > least+1e-9 || chances < least*0.75 {
			t.Errorf("network %d of %.0f tickets has %.2f chances", n, crowds[n], chances)
		}
	}
	r := codecSample()
	r.Draws = []Draw{{Event: "old", Start: 5, Seed: seedOf("a"), From: 10, To: 100}, want}
	b, err := r.AppendBinary(nil)
	var got Record
	if err != nil || b[0] != 10 || got.UnmarshalBinary(b) != nil || !slices.Equal(got.Draws, r.Draws) {
		t.Fatalf("not restored: %v, format %d", err, b[0])
	}
	o := got.Draws[1].Order()
	for rank := want.From; rank < want.To; rank++ {
		n := o.Number(rank)
		if o.Rank(n) != rank {
			t.Fatalf("rank %d has the number %d, whose rank is %d", rank, n, o.Rank(n))
		}
		if rank > want.From && keys[n-want.From] > keys[o.Number(rank-1)-want.From]+1e-9 {
			t.Fatalf("rank %d has a higher key than the one before", rank)
		}
	}
	for _, damage := range []string{"x", want.Weights[:len(want.Weights)-1], want.Weights + "\x01\x00"} {
		r.Draws[1].Weights = damage
		if b, err = r.AppendBinary(nil); err == nil && got.UnmarshalBinary(b) == nil {
			t.Errorf("damaged weights of %d bytes are read", len(damage))
		}
	}
}

// TestWeightsAreBounded checks that a huge attack from networks of all sizes fits into a record, and
// still buys no more than its chances.
func TestWeightsAreBounded(t *testing.T) {
	const tickets, networks = 600_000, 300
	lines := NewLines()
	l := lines.Ordinary()
	lines.SetDrawWeight(10)
	rng := rand.New(rand.NewPCG(5, 6))
	for range tickets {
		x := rng.Float64()
		lines.SetNetwork(l.Join(0, time.Minute, time.Hour), 1+uint32(networks*x*x*x))
	}
	d := Draw{From: 1, To: l.End(), Weights: l.Weights(1, l.End())}
	exponents, err := d.exponents()
	if err != nil || d.Weights == "" || len(d.Weights) > maxWeights {
		t.Fatalf("%d bytes: %v", len(d.Weights), err)
	}
	var chances [1 + networks]float64
	for i, x := range exponents {
		chances[l.Network(1+uint64(i))] += 4 / float64(x)
	}
	for network, n := range chances[1:] {
		if n > 10+1e-9 || n < 10.0/16 {
			t.Errorf("%.2f chances of the network %d, and 10 are the most", n, network)
		}
	}
	for n := uint64(1); n < l.End(); n++ {
		l.Leave(n)
		lines.SetNetwork(n, 1) // it comes too late
	}
	lines.SetNetwork(l.End(), 1)
	if len(l.crowds) != 0 {
		t.Errorf("%d networks are known of nobody", len(l.crowds))
	}
}

// BenchmarkShuffleWeighed measures a draw of a million tickets, of which half are of 500 networks.
func BenchmarkShuffleWeighed(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		l := joined(1_000_000)
		l.weight = 10
		for n := uint64(1); n < l.End(); n++ {
			l.setNetwork(n, uint32(n%2*(1000+n)+(n+1)%2*(1+n/2%500)))
		}
		d := Draw{Seed: seedOf("d"), From: 1, To: l.End()}
		b.StartTimer()
		if d.Weights = l.Weights(1, l.End()); !l.Shuffle(d, 0) || d.Weights == "" {
			b.Fatal("not drawn")
		}
	}
}

// TestAWeighedDrawBesideOthers checks that a record is read while the prequeue of the next event has
// begun, whose draw has no end yet. Weights of no draw, or of more tickets than it has, are damaged.
func TestAWeighedDrawBesideOthers(t *testing.T) {
	l, _ := anAttack(10)
	r := codecSample()
	w := l.Weights(1, l.End())
	r.Draws = []Draw{{Event: "old", Start: 1, Seed: seedOf("a"), From: 1, To: l.End(), Weights: w},
		{Event: "next", Seed: seedOf("b"), From: l.End()}, {Event: "later", Seed: seedOf("c")}}
	b, err := r.AppendBinary(nil)
	var got Record
	if err != nil || got.UnmarshalBinary(b) != nil || !slices.Equal(got.Draws, r.Draws) {
		t.Fatalf("not restored: %v", err)
	}
	for _, damaged := range []Draw{{From: l.End(), Weights: w}, {Weights: w},
		{From: 1, To: l.End(), Weights: w + w}} {
		r.Draws[1] = damaged
		if b, err = r.AppendBinary(nil); err != nil || got.UnmarshalBinary(b) == nil {
			t.Errorf("read: %d to %d, %d bytes, error %v", damaged.From, damaged.To, len(damaged.Weights), err)
		}
	}
}
