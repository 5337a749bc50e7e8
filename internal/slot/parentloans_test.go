package slot

import (
	"testing"
	"time"
)

// siteOf returns a counter below Anywhere, with its name.
func siteOf(t *testing.T, name string, loan LoanID, limits ...Limit) *Pool {
	t.Helper()
	return serving(Params{Datacenter: name},
		NewRecord(uint64(loan)+100, &ParentLoan{Loan: loan}, limits...), time.Hour)
}

// up makes a counter Sync once with a traffic and a want, and writes at both ends.
func up(root, p *Pool, clk time.Duration, want, traffic int64) *Answer {
	return tell(root, p, clk, p.ParentSync(clk, want, traffic, nil))
}

// The document's numbers (Cloudflare, 2023-09-20): of 150 slots San Jose has earned 15 by 20 new
// users of 200 a minute, London 22 by 30, and 113 stay with Anywhere. Delhi has no history and has
// earned nothing, but its visitors are admitted.
func TestAnywhereLendsAheadWhatTheTrafficHasEarned(t *testing.T) {
	limits := []Limit{{AtOnce, 150, 5 * time.Minute}, {PerWindow, 200, time.Minute}}
	root := serving(Params{Counters: true}, NewRecord(1, nil, limits...), time.Hour)
	sjc, lhr := siteOf(t, "sjc", 11, limits...), siteOf(t, "lhr", 12, limits...)
	del := siteOf(t, "del", 13, limits...)
	clk := time.Hour + time.Second
	up(root, sjc, clk, 0, 20)
	up(root, lhr, clk, 0, 30)
	for range 3 { // each requests its part, as often as it likes
		clk += time.Second
		up(root, sjc, clk, max(0, sjc.ParentPart()-sjc.Free()), 20)
		up(root, lhr, clk, max(0, lhr.ParentPart()-lhr.Free()), 30)
	}
	if s, l, a := sjc.Free(), lhr.Free(), root.Free(); s != 15 || l != 22 || a != 113 {
		t.Errorf("San Jose %d, London %d, Anywhere %d, want 15, 22 and 113", s, l, a)
	}
	if s, l := sjc.ParentPart(), lhr.ParentPart(); s != 15 || l != 22 {
		t.Errorf("parts %d and %d once they are lent: what is unused there counts too", s, l)
	}
	if up(root, del, clk, 0, 0); del.ParentPart() != 0 {
		t.Errorf("Delhi has earned %d", del.ParentPart())
	}
	if ask(root, del, clk, 0) == nil || del.Record().Parent.Granted != 1 {
		t.Errorf("Delhi's first visitor has %d slots", del.Record().Parent.Granted)
	}
}

// Slots of each limit that are not needed go back.
func TestACounterShedsWhatIsPlenty(t *testing.T) {
	limits := []Limit{{AtOnce, 100, time.Minute}, {PerWindow, 100, time.Minute}}
	root := serving(Params{Counters: true}, NewRecord(1, nil, limits...), time.Hour)
	p := siteOf(t, "sjc", 11, limits...)
	clk := time.Hour + time.Second
	up(root, p, clk, 40, 40)
	if !p.HasSpare(10) || p.HasSpare(p.Free()) {
		t.Fatalf("%d free: spare of 10 %v, of all %v", p.Free(), p.HasSpare(10), p.HasSpare(p.Free()))
	}
	p.ReturnToParent(10)
	if !p.OwesParent(clk) {
		t.Fatal("nothing is owed")
	}
	p.Begin(clk, true)
	p.Confirm(clk)
	up(root, p, clk, 0, 40)
	if p.Free() != 10 || root.Free() != 90 {
		t.Errorf("%d stay and Anywhere has %d, want 10 and 90", p.Free(), root.Free())
	}
}

// lostHome returns an Anywhere that is made again after its data center is lost, and a counter that
// borrowed n from the old one.
func lostHome(t *testing.T, n int64) (root, p *Pool, clk time.Duration) {
	t.Helper()
	limits := []Limit{{AtOnce, 100, time.Minute}, {PerWindow, 200, time.Minute}}
	old := serving(Params{Counters: true}, NewRecord(1, nil, limits...), time.Hour)
	p = siteOf(t, "sjc", 11, limits...)
	clk = time.Hour + time.Second
	up(old, p, clk, 0, 0)
	up(old, p, clk, n, n)
	if p.Free() != n {
		t.Fatalf("%d lent, want %d", p.Free(), n)
	}
	seen, _ := p.ParentSeen(clk)
	seen.Epoch += 1 << 32
	r := NewRecord(1, nil, limits...)
	r.Presume(Params{Counters: true}, seen, 5)
	return serving(Params{Counters: true}, r, clk), p, clk
}

func TestALostHomeIsPresumedAndReinstated(t *testing.T) {
	root, p, clk := lostHome(t, 30)
	if root.Free() > 0 {
		t.Fatalf("%d free before anybody has said what it holds", root.Free())
	}
	up(root, p, clk, 0, 0)
	if p.Record().Parent.Loan != 11 || p.Free() != 30 {
		t.Fatalf("the counter has %d of loan %d, want its 30 of 11", p.Free(), p.Record().Parent.Loan)
	}
	if lent := root.Record().loan(11); lent == nil || lent.Lent(0) != 30 {
		t.Fatalf("the books have %+v", lent)
	}
	if root.Free() > 0 {
		t.Errorf("%d free: the other 70 may be in use", root.Free())
	}
	beat := func(d time.Duration) { // a Sync each ten seconds keeps the loan alive
		for end := clk + d; clk < end; {
			clk += 10 * time.Second
			up(root, p, clk, 0, 0)
			root.Begin(clk, true)
			root.Confirm(clk)
		}
	}
	missing := root.DeclareOff(clk, []string{"lhr"}, []string{"sjc", "del"})
	if len(missing) != 1 || missing[0] != "del" {
		t.Fatalf("not heard: %v, want del", missing)
	}
	beat(70 * time.Second)
	if root.Free() > 0 {
		t.Fatalf("%d came back though del, which nobody declared off, may use them", root.Free())
	}
	if missing := root.DeclareOff(clk, []string{"lhr", "del"}, []string{"sjc"}); len(missing) != 0 {
		t.Fatalf("not heard: %v", missing)
	}
	beat(50 * time.Second)
	if root.Free() > 0 {
		t.Fatalf("%d came back while stays that began at the word may last", root.Free())
	}
	beat(30 * time.Second)
	if root.Free() != 70 {
		t.Errorf("%d free, want the 70 of those that are off", root.Free())
	}
}

// Without an operator's command, slots that no counter reports return after the term of a counter
// and its longest session.
func TestALostHomesSlotsComeBackByThemselves(t *testing.T) {
	root, _, clk := lostHome(t, 30)
	par := root.Params()
	wait := par.Drift.Up(par.Term) + par.Drift.Stretch(time.Minute+par.Sigma)
	for _, tt := range []struct {
		at   time.Duration
		want int64
	}{{clk + wait - 2*time.Second, 0}, {clk + wait + 2*time.Second, 100}} {
		root.Begin(tt.at, true)
		root.Confirm(tt.at)
		if got := max(0, root.Free()); got != tt.want {
			t.Errorf("%v after the move: %d free, want %d", tt.at-clk, got, tt.want)
		}
	}
}

// A counter whose own term was over may have lost its loan to others before the data center was
// lost. It begins anew, and the slots for its next visitors are lent again.
func TestACounterWhoseTermIsOverIsNotReinstated(t *testing.T) {
	root, p, clk := lostHome(t, 30)
	clk += 11 * time.Minute
	x := p.ParentSync(clk, 0, 0, nil)
	if !x.Lapsed {
		t.Fatal("its term is over and it does not say so")
	}
	if a := tell(root, p, clk, x); a == nil || !a.Over {
		t.Errorf("answered %+v, want that the loan is over", a)
	}
}

// A limit was lowered before the data center was lost. A counter that holds more than the new limit
// keeps it, and nothing is lent until it is back.
func TestWhatIsHeldBeyondALowerLimitIsReinstated(t *testing.T) {
	root, p, clk := lostHome(t, 30)
	up(root, p, clk, 0, 0)
	root.Receive(&Sync{Loan: 12, Borrower: "del", Seq: Seq{9, 1}, Granted: 90, Need: 1})
	root.Begin(clk, true)
	root.Confirm(clk)
	if l := root.Record().loan(12); l == nil || l.Granted != 90 || root.Free() != -20 {
		t.Errorf("del has %+v, %d free: want its 90 and 20 too many", l, root.Free())
	}
}

// Once a counter has been answered that there is no slot, slots are lent a step apart. Before and
// after that, visitors do not wait while there are slots.
func TestSlotsForThoseWhoWaitAreSpaced(t *testing.T) {
	root, a, _ := twoCounters(t, 20)
	root.Space(time.Second)
	clk := time.Hour + time.Second
	ask(root, a, clk)
	if got := ask(root, a, clk, 0, 0, 0, 0); got == nil || got.Granted != 4 {
		t.Fatalf("four who stand before the door while there are 20 have %+v", got)
	}
	root.lined, root.linedAt = true, clk
	began := a.Record().Parent.Granted
	ago := make([]time.Duration, 20)
	for range 40 { // four seconds
		clk += 100 * time.Millisecond
		ask(root, a, clk, ago...)
	}
	if n := a.Record().Parent.Granted - began; n < 3 || n > 6 {
		t.Errorf("%d slots in four seconds, want one a second", n)
	}
}

// The last write of an Anywhere that moves contains the new data center, and a reader finds it.
func TestARecordThatHasMovedSaysSo(t *testing.T) {
	root, _, _ := twoCounters(t, 3)
	root.MoveTo("lhr")
	root.Begin(time.Hour+time.Second, true)
	root.Confirm(time.Hour + time.Second)
	b, err := root.Record().AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	var r Record
	if err := r.UnmarshalBinary(b); err != nil || r.MovedTo != "lhr" {
		t.Errorf("read %q, %v", r.MovedTo, err)
	}
}

// A room that was alone borrows from now on. In Anywhere's data center, the visitors that it has
// admitted count as lent.
func TestARoomThatWasAloneGoesBelow(t *testing.T) {
	limits := []Limit{{AtOnce, 10, time.Minute}, {PerWindow, 20, time.Minute}}
	r := NewRecord(1, nil, limits...)
	r.Limits[0].Ends.Add(Time(time.Minute), 4)
	r.Limits[1].Ends.Add(Time(time.Minute), 4)
	r.JoinParent(11, true)
	p := serving(Params{Datacenter: "sjc"}, r, time.Hour)
	top := NewRecord(2, nil, limits...)
	top.Presume(Params{Counters: true}, WriteName{Life: 2, Epoch: 1}, 1)
	root := serving(Params{Counters: true}, top, time.Hour)
	clk := time.Hour + time.Second
	up(root, p, clk, 0, 0)
	if p.Record().Parent.Loan != 11 || p.Free() != 6 || root.Free() > 0 {
		t.Errorf("loan %d, %d free here and %d at Anywhere, want 11, 6 and 0",
			p.Record().Parent.Loan, p.Free(), root.Free())
	}
	if p.Record().Name.Life != 1 {
		t.Error("a new life has begun: who is inside is out")
	}
}

// A limit per window that changes is in force at once: the next slot follows the last one by the new step.
func TestTheNextSlotFollowsByTheNewStep(t *testing.T) {
	for _, x := range []struct{ old, new time.Duration }{
		{time.Minute, 100 * time.Millisecond},
		{100 * time.Millisecond, time.Minute},
		{time.Minute, 0},
	} {
		clk := time.Hour
		p := &Pool{lined: true, linedAt: clk}
		p.Space(x.old)
		p.lendAt = clk // one is due
		p.lent(clk)
		p.Space(x.new)
		if p.lendAt != clk+x.new {
			t.Errorf("from %v to %v: the next slot after %v", x.old, x.new, p.lendAt-clk)
		}
	}
}
