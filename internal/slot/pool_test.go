package slot

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Directed tests for cases that random walks do not reach (docs/protocol.md §13), and for cases
// that the walk does not model.

// serving returns a pool over r that has taken over at own clock clk.
func serving(par Params, r *Record, clk time.Duration) *Pool {
	p := NewPool(par, "h", r)
	p.Takeover(clk)
	p.Confirm(clk)
	return p
}

// unknownRenewal makes a host that knows no session renew the session whose pass ends at 100, of
// two that end at 100 and 200, and compares entries with passes.
func unknownRenewal() (late bool) {
	r := NewRecord(1, nil, Limit{AtOnce, 2, 100})
	r.Time = 50
	r.Limits[0].Ends.Add(100, 1)
	r.Limits[0].Ends.Add(200, 1)
	p := serving(Params{Buckets: 100, Settle: 1}, r, 0)
	p.Receive(&Sync{Loan: 1, Seq: Seq{0, 1}, Items: []Item{{Op: Renew, ID: 1, From: 100, At: 55}}})
	p.Begin(1, false)
	rs, _ := p.Confirm(1)
	passes := []Time{rs[0].Answer.Results[0].End, 200}
	for t := range Time(300) {
		n := int64(0)
		for _, end := range passes {
			if end > t {
				n++
			}
		}
		if p.rec.Limits[0].Ends.After(t) < n {
			return true
		}
	}
	return false
}

func TestUnknownRenewalKeepsEntriesBeyondPasses(t *testing.T) {
	if unknownRenewal() {
		t.Error("a pass says more than the record")
	}
}

// overlap returns how long after the earliest take-back, in true time, a borrower with a slow clock
// still uses a share. An old host with a slow clock granted the share in a heartbeat that it
// answered long after the write.
func overlap() time.Duration {
	const eighth = 125_000
	par := Params{Drift: eighth, Term: 800, Buckets: 1}
	p := serving(par, NewRecord(1, nil, Limit{AtOnce, 2, 1000}), 0)
	s := NewShare(par, "w", 1, Limit{AtOnce, 2, 1000})
	p.Receive(s.Sync(0, 1, 0))
	p.Begin(0, false)
	rs, _ := p.Confirm(0)
	s.Receive(0, &rs[0].Answer)

	age := time.Duration(350) // by the host's clock at 7/8 of true time: 400
	p.Receive(s.Sync(age, 0, 0))
	now, _ := p.Begin(age, false)
	s.Receive(age, &now[0].Answer)
	until := s.Until() * 8 / 7 // the borrower's clock runs at 7/8 too
	// A new host at 9/8, confirmed right after the write, takes the loan back after T(1+ρ).
	takenBack := Drift(eighth).Up(800) * 8 / 9
	return until - takenBack
}

func TestTermEndsBeforeAnyTakingBack(t *testing.T) {
	if d := overlap(); d > 0 {
		t.Errorf("a share is used for %v after it may be lent again", d)
	}
}

func TestLateRepeatOfAFirstSyncMakesNoSecondLoan(t *testing.T) {
	par := Params{Term: 10, Buckets: 10, Settle: 1}
	lim := Limit{AtOnce, 2, 10}
	p := serving(par, NewRecord(1, nil, lim), 0)
	s := NewShare(par, "w", 1, lim)
	first := s.Sync(1, 1, 0)
	p.Receive(first)
	p.Begin(1, false)
	rs, _ := p.Confirm(1)
	s.Receive(1, &rs[0].Answer)
	for clk := time.Duration(20); clk < 60; clk += 5 { // silence: taken back, written off
		p.Begin(clk, true)
		p.Confirm(clk)
	}
	if len(p.rec.Loans) != 0 {
		t.Fatal("the loan is not written off")
	}
	p.Receive(first) // a message that was on its way all the time
	p.Begin(60, false)
	p.Confirm(60)
	p.Receive(s.Sync(61, 0, 0))
	now, _ := p.Begin(61, false)
	if len(now) == 0 && p.wr != nil {
		now, _ = p.Confirm(61)
	}
	if len(now) != 1 || now[0].Answer.Granted < s.granted && !now[0].Answer.Over {
		t.Fatalf("the borrower holds %d and is told %+v", s.granted, now)
	}
	for i := range p.rec.Loans {
		if p.rec.Loans[i].Lent(0) < 0 {
			t.Error("lent < 0")
		}
	}
}

func TestLeaveFreesAtOnceAndIsToldToAll(t *testing.T) {
	lim := Limit{AtOnce, 1, 100 * time.Second}
	p := serving(Params{}, NewRecord(1, nil, lim), 0)
	a, b := NewShare(Params{}, "a", 1, lim), NewShare(Params{}, "b", 2, lim)
	exchange := func(s *Share, clk time.Duration, need int64) Answer {
		p.Receive(s.Sync(clk, need, 0))
		now, wr := p.Begin(clk, false)
		if wr != nil {
			more, _ := p.Confirm(clk)
			now = append(now, more...)
		}
		for _, r := range now {
			s.Receive(clk, &r.Answer)
			return r.Answer
		}
		return Answer{}
	}
	exchange(a, time.Second, 1)
	o, ok := a.Open(time.Second, 7, 0, 0)
	if !ok {
		t.Fatal("no slot")
	}
	exchange(a, 2*time.Second, 0)
	a.AddItem(Item{Op: Leave, ID: 7, From: o.End})
	exchange(a, 3*time.Second, 0)
	got := exchange(b, 4*time.Second, 1)
	if got.Granted != 1 {
		t.Error("the slot of a stay that left is not lent again")
	}
	if len(got.Gone) != 1 || got.Gone[0].ID != 7 {
		t.Errorf("b is told %v, want that 7 is gone", got.Gone)
	}
	b.AddItem(Item{Op: Renew, ID: 7, From: o.End, At: o.End - 5})
	if got := exchange(b, 5*time.Second, 0); got.Results[0].End != 0 {
		t.Error("a stay that left was renewed")
	}
}

func TestLoweredLimitIsInForceOnceSlotsCameBack(t *testing.T) {
	r := NewRecord(1, nil, Limit{AtOnce, 10, 100})
	for i := range 10 {
		r.Limits[0].Ends.Add(Time(10+i), 1)
	}
	p := serving(Params{Buckets: 100, Settle: 1}, r, 0)
	p.SetLimits(1, Limit{AtOnce, 4, 100})
	for clk := time.Duration(1); clk < 40; clk++ {
		p.Begin(clk, true)
		p.Confirm(clk)
		s := &p.rec.Limits[0]
		if free, left := p.rec.Free(), s.Ends.Len(); free > max(0, 4-left) {
			t.Fatalf("%d inside of 4 and %d free", left, free)
		}
		if want := s.Ends.Len() > 4; (s.InForce == 10) != want {
			t.Fatalf("%d inside: %d in force", s.Ends.Len(), s.InForce)
		}
	}
}

func TestQuarantineLendsNothing(t *testing.T) {
	lim := Limit{AtOnce, 5, time.Minute}
	p := serving(Params{}, NewRecord(1, nil, lim), 0)
	s := NewShare(Params{}, "w", 1, lim)
	x := s.Sync(1, 1, 0)
	x.Seen = WriteName{Life: 1, Epoch: p.epoch + 8, Writes: 99} // later than this record
	p.Receive(x)
	p.Begin(1, false)
	if !p.RolledBack() {
		t.Fatal("a record that was rolled back is not noticed")
	}
	p.Quarantine(1)
	for _, c := range []struct {
		at   time.Duration
		want int64
	}{{time.Second, 0}, {75 * time.Second, 0}, {80 * time.Second, 1}} {
		q := NewShare(Params{}, "v", LoanID(c.at), lim)
		p.Receive(q.Sync(c.at, 1, 0))
		p.Begin(c.at, false)
		rs, _ := p.Confirm(c.at)
		if rs[0].Answer.Granted != c.want {
			t.Errorf("after %v: %d granted, want %d", c.at, rs[0].Answer.Granted, c.want)
		}
	}
}

// Property: Ends against a sorted list.
func TestEndsAgainstAList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var e Ends
	var list []Time
	for range 20_000 {
		at := Time(r.IntN(300))
		switch r.IntN(4) {
		case 0, 1:
			e.Add(at, 1)
			list = append(list, at)
		case 2:
			i := slices.Index(list, at)
			if e.Remove(at) != (i >= 0) {
				t.Fatal("Remove")
			}
			if i >= 0 {
				list = slices.Delete(list, i, i+1)
			}
		case 3:
			at /= 20
			e.Free(at, func(EndCount) {})
			list = slices.DeleteFunc(list, func(x Time) bool { return x <= at })
		}
		after := int64(0)
		for _, x := range list {
			if x > at {
				after++
			}
		}
		if e.Len() != int64(len(list)) || e.After(at) != after {
			t.Fatalf("%d entries, %d after %d; want %d, %d", e.Len(), e.After(at), at, len(list), after)
		}
	}
}

func FuzzSplitConserves(f *testing.F) {
	f.Add(int64(150), int64(200), int64(20), int64(30), int64(0))
	f.Fuzz(func(t *testing.T, free, total, a, b, c int64) {
		const most = 1 << 40
		if free > most || total > most || max(a, b, c) > most {
			return
		}
		parts, rest := Split(free, total, []int64{a, b, c})
		sum := rest
		for _, p := range parts {
			if p < 0 {
				t.Fatalf("part %d", p)
			}
			sum += p
		}
		if rest < 0 || sum != max(0, free) {
			t.Fatalf("%v and %d do not make %d", parts, rest, free)
		}
	})
}

func FuzzRho(f *testing.F) {
	f.Add(int64(24), int64(125_000))
	f.Fuzz(func(t *testing.T, d, ppm int64) {
		if d < 0 || d > int64(1000*24*time.Hour) || ppm < 1 || ppm > 500_000 {
			return
		}
		x, r := time.Duration(d), Drift(ppm)
		if r.Down(x) > x || r.Up(x) < x || r.Shrink(x) > r.Down(x) || r.Stretch(x) < r.Up(x) {
			t.Fatalf("%v: down %v up %v shrink %v stretch %v", x, r.Down(x), r.Up(x), r.Shrink(x), r.Stretch(x))
		}
	})
}

func TestClaimDuringAWriteGoesIntoTheNext(t *testing.T) {
	p := serving(Params{}, NewRecord(1, nil, Limit{AtOnce, 2, time.Minute}), 0)
	for i, want := range []bool{true, true, false} {
		if p.Call(0) != want {
			t.Fatalf("call %d of two slots: want %v", i+1, want)
		}
	}
	p.Claim(0, 1, 0, 0)
	p.Begin(1, false)
	p.Claim(1, 2, 0, 0)
	if _, claims := p.Confirm(1); len(claims) != 1 || claims[0].ID != 1 || claims[0].End == 0 {
		t.Fatalf("first write: %+v", claims)
	}
	p.Begin(2, false)
	if _, claims := p.Confirm(2); len(claims) != 1 || claims[0].ID != 2 || claims[0].End == 0 {
		t.Fatalf("second write: %+v", claims)
	}
	if p.Called() != 0 || p.rec.Limits[0].Ends.Len() != 2 {
		t.Errorf("%d called, %d inside", p.Called(), p.rec.Limits[0].Ends.Len())
	}
}

// A call may rely on an end that has passed and is settled. If it becomes unsettled in between, for
// example through a borrower whose estimate is of another epoch, the claim waits until it is
// settled again, because a report may continue the session.
func TestAClaimWaitsForASlotThatIsNotFreeAfterAll(t *testing.T) {
	par := Params{Term: 1000, Buckets: 100, Settle: 30}
	r := NewRecord(1, nil, Limit{AtOnce, 1, 100})
	r.Limits[0].Ends.Add(10, 1)
	r.Loans = []Loan{{ID: 7, Borrower: "w"}}
	p := serving(par, r, 0)
	if p.settled[7] = 9; p.FreeNow(12) != 0 || p.Call(12) {
		t.Fatal("the slot is taken: the borrower may yet renew")
	}
	if p.Unsettled(12) == 0 || p.Unsettled(8) != 0 {
		t.Fatal("a report would help at 12, not at 8")
	}
	if p.settled[7] = 12; p.FreeNow(12) != 1 || p.Free() != 0 || !p.Call(12) {
		t.Fatal("the slot is free at 12, though no write says so")
	}
	p.settled[7] = 0
	p.Claim(12, 1, 0, 0)
	for clk := time.Duration(13); clk < 39; clk += 9 {
		p.Begin(clk, false)
		if _, claims := p.Confirm(clk); len(claims) > 0 || p.rec.Limits[0].Ends.At(10) != 1 {
			t.Fatalf("at %d claimed while the other stay may go on", clk)
		}
	}
	p.Begin(45, false) // settle has passed
	_, claims := p.Confirm(45)
	if len(claims) != 1 || claims[0].End == 0 || p.rec.Limits[0].Ends.Len() != 1 || p.Called() != 0 {
		t.Errorf("%+v, %d called: the claim is forgotten", claims, p.Called())
	}
}

// A slot whose leave is in a write in flight may be reserved for a call. It counts once, not for
// the session and the call. Otherwise a room at its limit would seem to exceed it.
func TestASlotOfALeaveOnItsWayIsCountedOnce(t *testing.T) {
	p := serving(Params{}, NewRecord(1, nil, Limit{AtOnce, 1, time.Minute}), 0)
	p.Call(0)
	p.Claim(0, 7, 0, 0)
	p.Begin(0, false)
	_, claims := p.Confirm(0)
	used := func() int64 { return p.UsedAt(0, 1, 0, 0) + p.Called() }
	if len(claims) != 1 || used() != 1 || p.Call(1) {
		t.Fatalf("%+v, %d used of one slot", claims, used())
	}
	p.Receive(&Sync{Loan: 1, Seq: Seq{0, 1}, Items: []Item{{Op: Leave, ID: 7, From: claims[0].End}}})
	if p.Begin(1, false); !p.Call(1) || used() != 1 {
		t.Fatalf("%d used of one slot, the write with the leave is on its way", used())
	}
}

// At returns how many sessions end at t.
func (e *Ends) At(t Time) int64 {
	if i, ok := e.find(t); ok {
		return e.at[i].N
	}
	return 0
}

// Used returns how many slots of limit i are used or presumed used.
func (r *Record) Used(i int) int64 { return r.lent(i) + r.Limits[i].Ends.Len() }

// Life returns the life of the counter by the last answer.
func (s *Share) Life() uint64 { return s.seen.Life }
