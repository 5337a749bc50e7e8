package slot

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// A borrower that sends false reports gets no more than the lender has. The slots of a correct
// borrower stay lent to it, and are lent to nobody else.
func TestLyingBorrowerGetsNothingOfOthers(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	edges := []int64{0, 1, -1, 2, 7, 20, -20, 1 << 40, 1<<40 + 1, 1 << 56, math.MaxInt64, math.MinInt64}
	lie := func() int64 { return edges[rnd.IntN(len(edges))] }
	refused, passed := 0, 0
	for range 300 {
		const limit, honest = 20, 7
		r := NewRecord(1, nil, Limit{AtOnce, limit, time.Minute}, Limit{PerWindow, 50, time.Minute})
		p := serving(Params{}, r, time.Hour)
		clk := time.Hour + time.Second
		step := func(x *Sync) {
			p.Receive(x)
			p.Begin(clk, true)
			p.Confirm(clk)
		}
		clk += p.Quarantine(clk)
		step(&Sync{Loan: 5, Borrower: "honest", Seq: Seq{1, 1}, Need: honest})
		if got := p.rec.loan(5).Lent(0); got != honest {
			t.Fatalf("the honest one was lent %d", got)
		}
		for seq := uint64(1); seq < 20; seq++ {
			clk += 100 * time.Millisecond
			x := &Sync{Loan: LoanID(6 + rnd.IntN(2)), Borrower: "honest", Seq: Seq{1, seq}, Need: lie(),
				Want: lie(), Granted: lie(), Returned: PerLimit{lie(), lie()}, Opened: lie(),
				Settled: Time(lie()), Traffic: lie(), Idle: lie()}
			if rnd.IntN(2) == 0 { // half of the reports pass Check
				x.Granted, x.Returned, x.Opened, x.Traffic, x.Idle = 0, PerLimit{}, 0, 0, 0
			}
			for range rnd.IntN(3) {
				x.Items = append(x.Items, Item{Op: Op(1 + rnd.IntN(2)), ID: SessionID(rnd.Uint64()),
					From: Time(lie()), At: Time(lie()), End: Time(lie()), Use: Time(lie())})
			}
			if err := x.Check(); err != nil {
				if !errors.Is(err, ErrMessage) {
					t.Fatal(err)
				}
				refused++
				continue
			}
			passed++
			x.Clamp(p.CounterTime(clk), time.Minute)
			step(x)
			if l := p.rec.loan(5); l == nil || l.Lent(0) != honest {
				t.Fatalf("%+v: the honest one has %+v", x, l)
			}
			for i := range p.rec.Loans {
				if l := &p.rec.Loans[i]; l.Lent(0) < 0 || l.Lent(0) > limit {
					t.Fatalf("%+v: loan %+v", x, l)
				}
			}
			if free := p.rec.Free(); free > limit-honest {
				t.Fatalf("%+v: %d of %d are free", x, free, limit)
			}
			far := p.CounterTime(clk).Add(farAhead+time.Minute) + p.par.Grid(p.rec.Limits[0].Limit)
			if last := p.rec.Limits[0].Ends.last(); last > far {
				t.Fatalf("%+v: an entry until %d, now is %d", x, last, p.CounterTime(clk))
			}
		}
	}
	if refused == 0 || passed == 0 {
		t.Errorf("%d refused, %d passed", refused, passed)
	}
}

// A Sync that names a later write than any rollback explains is distinguished from one that a host
// of a lost record answered.
func TestSyncOfAnAbsurdEpochIsTold(t *testing.T) {
	now := WriteName{Life: 1, Epoch: 1 << 20, Writes: 9}
	for epoch, want := range map[uint64]bool{
		0: false, 1 << 20: false, 1<<20 + 1<<32: false, math.MaxUint64: true, 1 << 62: true,
	} {
		x := Sync{Seen: WriteName{Life: 1, Epoch: epoch, Writes: 10}}
		if got := x.Ahead(now); got != want {
			t.Errorf("epoch %d: %v", epoch, got)
		}
	}
}
