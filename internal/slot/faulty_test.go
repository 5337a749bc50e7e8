package slot

import (
	"fmt"
	"math"
	"testing"
	"time"
)

func brokenLimits(active, fresh int64, s time.Duration) []Limit {
	return []Limit{{AtOnce, active, s}, {PerWindow, fresh, time.Minute}}
}

func brokenRoot(r *Record, clk time.Duration) *Pool {
	return serving(Params{Counters: true}, r, clk)
}

func brokenCounter(name string, loan LoanID, clk time.Duration, lim []Limit) *Pool {
	return serving(Params{Datacenter: name}, NewRecord(uint64(loan)+100, &ParentLoan{Loan: loan}, lim...),
		clk)
}

// brokenWrite makes a pool write now.
func brokenWrite(p *Pool, clk time.Duration) []Reply {
	now, wr := p.Begin(clk, true)
	if wr != nil {
		more, _ := p.Confirm(clk)
		now = append(now, more...)
	}
	return now
}

// brokenAsk makes c request want until it has all that root lends.
func brokenAsk(root, c *Pool, clk time.Duration, want int64) {
	brokenAskOnce(root, c, clk, want)
	for i := time.Duration(1); want > 0 && c.Free() < want && i < 10; i++ {
		brokenAskOnce(root, c, clk+i*time.Millisecond, want)
	}
}

// brokenAskOnce carries one Sync of c to root and returns the answer to c.
func brokenAskOnce(root, c *Pool, clk time.Duration, want int64) {
	x := c.ParentSync(clk, want, 0, nil)
	root.Receive(x)
	for _, r := range append(brokenWrite(root, clk), brokenWrite(root, clk+1)...) {
		if r.Sync == x {
			c.ReceiveParent(clk, r.Answer)
		}
	}
	brokenWrite(c, clk+2)
}

func brokenFor(d time.Duration, from time.Duration, f func(clk time.Duration)) time.Duration {
	for clk := from; clk < from+d; clk += 5 * time.Second {
		f(clk)
	}
	return from + d
}

// A Sync is repeated unchanged until it is answered. So its report about the counter's own term may
// be old.
func TestBrokenALapsedCounterIsNotReinstated(t *testing.T) {
	lim := brokenLimits(10, 1000, 5*time.Minute)
	root := brokenRoot(NewRecord(1, nil, lim...), time.Second)
	a, b := brokenCounter("a", 11, time.Second, lim), brokenCounter("b", 12, time.Second, lim)
	clk := 2 * time.Second
	brokenAsk(root, a, clk, 10)
	if a.Free() != 10 {
		t.Fatal(a.Free())
	}
	stuck := a.ParentSync(clk+time.Second, 0, 0, nil) // a is cut off: this Sync gets no answer
	clk = brokenFor(20*time.Minute, clk+time.Second, func(clk time.Duration) {
		brokenWrite(root,
			clk)
	})
	brokenAsk(root, b, clk, 10)
	if b.Free() != 10 {
		t.Fatal("b has not got what a held", b.Free())
	}
	// Anywhere's data center is lost permanently, a's link is repaired.
	r := NewRecord(1, nil, lim...)
	r.Presume(Params{Counters: true}, WriteName{1, 1 << 33, 1 << 33}, root.CounterTime(clk))
	root = brokenRoot(r, clk)
	if got := a.ParentSync(clk, 0, 0, nil); got != stuck || got.Lapsed {
		t.Log("the Sync is another one or says that the term is over")
	}
	brokenAsk(root, a, clk, 0)
	clk += time.Second
	brokenAsk(root, a, clk, 0)
	if n := a.FreeNow(clk+3) + b.FreeNow(clk+3); n > 10 && !a.termOver(clk+3) && !b.termOver(clk+3) {
		t.Errorf("two counters may let %d in at once, limit 10", n)
	}
}

// Slots presumed lent without a name belong to sessions that began before their data center was
// declared off, not before the move of Anywhere.
func TestBrokenDeclaredOffLate(t *testing.T) {
	const s = time.Minute
	lim := brokenLimits(10, 1000, s)
	root := brokenRoot(NewRecord(1, nil, lim...), time.Second)
	a, b := brokenCounter("a", 11, time.Second, lim), brokenCounter("b", 12, time.Second, lim)
	clk := 2 * time.Second
	brokenAsk(root, a, clk, 10)
	r := NewRecord(1, nil, lim...)
	r.Presume(Params{Counters: true}, WriteName{1, 1 << 33, 1 << 33}, root.CounterTime(clk))
	root = brokenRoot(r, clk) // the data center is lost; a is cut off and continues for its term
	brokenAsk(root, b, clk+time.Second, 10)
	clk = brokenFor(5*time.Minute, clk+2*time.Second, func(clk time.Duration) {
		brokenWrite(root,
			clk)
	})
	// a admits ten visitors, which it may, and then fails.
	if a.FreeNow(clk) != 10 || a.termOver(clk) {
		t.Fatal(a.FreeNow(clk), a.termOver(clk))
	}
	end := clk + s
	clk += time.Second
	if missing := root.DeclareOff(clk, []string{"home", "a"}, []string{"b"}); len(missing) > 0 {
		t.Fatal(missing)
	}
	brokenWrite(root, clk)
	brokenAsk(root, b, clk+time.Second, 10)
	if n := b.FreeNow(clk + 2*time.Second); n > 0 {
		t.Errorf("b may let %d in %v before the ten that a let in have ended", n, end-clk)
	}
}

func brokenLoan(root *Pool, clk time.Duration, x Sync) (a Answer) {
	root.Receive(&x)
	for _, r := range append(brokenWrite(root, clk), brokenWrite(root, clk+1)...) {
		if r.Sync == &x {
			a = r.Answer
		}
	}
	return a
}

// Messages over a link come from another data center and may be invalid.
func TestBrokenBrokenNumbers(t *testing.T) {
	lim := brokenLimits(10, 1000, time.Minute)
	for name, x := range map[string]Sync{
		"returned what it never had": {Returned: evenly(1000)},
		"returned less than nothing": {Returned: evenly(math.MinInt64)},
		"opened, as no counter does": {Opened: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			root := brokenRoot(NewRecord(1, nil, lim...), time.Second)
			x.Loan, x.Borrower, x.Seq = 11, "a", Seq{1, 1}
			brokenLoan(root, 2*time.Second, x)
			x.Seq.N, x.Need = 2, 1
			brokenLoan(root, 3*time.Second, x)
			b := brokenCounter("b", 12, time.Second, lim)
			brokenAsk(root, b, 4*time.Second, 100)
			if n := b.FreeNow(5 * time.Second); n > 10 {
				t.Errorf("b may let %d in, limit 10", n)
			}
		})
	}
}

// A counter reports no opened sessions to Anywhere, because it records its own.
func TestBrokenBrokenItems(t *testing.T) {
	lim := brokenLimits(10, 1000, time.Minute)
	root := brokenRoot(NewRecord(1, nil, lim...), time.Second)
	x := Sync{Loan: 11, Borrower: "a", Seq: Seq{1, 1}}
	for i := range SessionID(10) {
		x.Items = append(x.Items, Item{Op: Open, ID: i + 1, End: 1 << 61})
	}
	brokenLoan(root, 2*time.Second, x)
	b := brokenCounter("b", 12, time.Second, lim)
	clk := brokenFor(24*time.Hour, 3*time.Second, func(clk time.Duration) {
		brokenWrite(root,
			clk)
	})
	brokenAsk(root, b, clk, 10)
	if n := b.Free(); n < 10 {
		t.Errorf("a day later b has %d of 10: one message has used up the room for %v", n,
			Time(1<<61).Sub(root.CounterTime(clk)))
	}
}

func TestBrokenBrokenTrafficIsNoPanic(t *testing.T) {
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("the host of Anywhere ends: %v", r)
		}
	}()
	lim := brokenLimits(10, 1000, time.Minute)
	root := brokenRoot(NewRecord(1, nil, lim...), time.Second)
	brokenLoan(root, 2*time.Second, Sync{Loan: 11, Borrower: "a", Seq: Seq{1, 1}, Traffic: 5,
		Need: 1})
	brokenLoan(root, 3*time.Second, Sync{Loan: 12, Borrower: "b", Seq: Seq{1, 1},
		Traffic: math.MaxInt64, Idle: math.MaxInt64 / 2, Want: 1})
}

// Each life of a borrower is one loan in the record. Their number must be bounded, or a record of
// many loans must still be readable.
func TestBrokenManyLoans(t *testing.T) {
	lim := brokenLimits(10, 1000, time.Minute)
	root := brokenRoot(NewRecord(1, nil, lim...), time.Second)
	const some = 10_000
	for i := range some {
		root.Receive(&Sync{Loan: LoanID(100 + i), Borrower: "a", Seq: Seq{1, 1}})
	}
	_, wr := root.Begin(2*time.Second, true)
	if len(wr.Loans) < some {
		return // bounded
	}
	for i := range 70_000 - some {
		wr.Loans = append(wr.Loans, Loan{ID: LoanID(100_000 + i), Borrower: "a", Seq: Seq{1, 1}})
	}
	b, err := wr.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	var r Record
	if err := r.UnmarshalBinary(b); err != nil {
		t.Errorf("a record of %d loans is written and cannot be read: %v", len(wr.Loans), err)
	}
}

// Limits may have been lowered shortly before the data center was lost.
func TestBrokenPresumedAfterALimitWasLowered(t *testing.T) {
	lim := brokenLimits(10, 1000, 5*time.Minute)
	root := brokenRoot(NewRecord(1, nil, lim...), time.Second)
	a := brokenCounter("a", 11, time.Second, lim)
	brokenAsk(root, a, 2*time.Second, 10)
	if !a.Call(3 * time.Second) {
		t.Fatal("no slot")
	}
	a.Claim(3*time.Second, 7, 0, 0)
	brokenWrite(a, 3*time.Second)
	life := a.Record().Name.Life
	r := NewRecord(1, nil, brokenLimits(5, 1000, 5*time.Minute)...)
	r.Presume(Params{Counters: true}, WriteName{1, 1 << 33, 1 << 33}, root.CounterTime(4*time.Second))
	root = brokenRoot(r, 4*time.Second)
	brokenAsk(root, a, 5*time.Second, 0)
	if now := a.Record().Name.Life; now != life {
		t.Errorf("all who are inside at a are thrown out: life %d, was %d", now, life)
	}
}

// A room that was alone becomes one of several. Its host crashes before Anywhere has answered.
func TestBrokenConvertedAndTakenOverBeforeTheFirstAnswer(t *testing.T) {
	lim := brokenLimits(10, 1000, 5*time.Minute)
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash ", crash), func(t *testing.T) {
			alone := serving(Params{}, NewRecord(5, nil, lim...), time.Second)
			alone.Call(2 * time.Second)
			alone.Claim(2*time.Second, 7, 0, 0)
			brokenWrite(alone, 2*time.Second)
			b, _ := alone.Record().AppendBinary(nil)
			read := func(b []byte) *Record {
				var r Record
				if err := r.UnmarshalBinary(b); err != nil {
					t.Fatal(err)
				}
				return &r
			}
			of := read(b)
			of.JoinParent(77, true)
			c := serving(Params{Datacenter: "sjc"}, of, 3*time.Second)
			b, _ = c.Record().AppendBinary(nil)
			if crash {
				c = serving(Params{Datacenter: "sjc"}, read(b), 4*time.Second)
			}
			r := NewRecord(1, nil, lim...)
			r.Presume(Params{Counters: true}, WriteName{1, 1, 0}, 1)
			root := brokenRoot(r, 4*time.Second)
			brokenAsk(root, c, 5*time.Second, 0)
			if now := c.Record().Name.Life; now != 5 || c.Record().Limits[0].Ends.Len() != 1 {
				t.Errorf("who is inside is thrown out: life %d, was 5; stays %d", now,
					c.Record().Limits[0].Ends.Len())
			}
		})
	}
}

// A limit is lowered when data centers are configured.
func TestBrokenConvertedWithALowerLimit(t *testing.T) {
	of := NewRecord(5, nil, brokenLimits(10, 1000, 5*time.Minute)...)
	of.JoinParent(77, true)
	c := serving(Params{Datacenter: "sjc"}, of, time.Second)
	r := NewRecord(1, nil, brokenLimits(8, 1000, 5*time.Minute)...)
	r.Presume(Params{Counters: true}, WriteName{1, 1, 0}, 1)
	root := brokenRoot(r, time.Second)
	brokenAsk(root, c, 2*time.Second, 0)
	if now := c.Record().Name.Life; now != 5 {
		t.Errorf("who is inside is thrown out: life %d, was 5", now)
	}
}

// A slot that the order between counters has assigned is not lent ahead to another counter.
func TestBrokenWhoStandsHereBeforeWhoMayCome(t *testing.T) {
	lim := brokenLimits(1, 1000, time.Minute)
	root := brokenRoot(NewRecord(1, nil, lim...), time.Second)
	for i := range LoanID(2) {
		brokenLoan(root, 2*time.Second, Sync{Loan: 11 + i, Borrower: fmt.Sprint(i), Seq: Seq{1, 1}})
	}
	ahead := &Sync{Loan: 11, Borrower: "0", Seq: Seq{1, 2}, Want: 1, Traffic: 1000}
	stands := &Sync{Loan: 12, Borrower: "1", Seq: Seq{1, 2}, Need: 1, Queue: []Time{1}}
	root.Receive(ahead)
	root.Receive(stands)
	brokenWrite(root, 3*time.Second)
	if l := root.Record().loan(12); l.Granted != 1 {
		t.Errorf(
			"somebody stands before the door of 12 and has %d; the slot went to 11 (%d), where nobody stands",
			l.Granted,
			root.Record().loan(11).Granted,
		)
	}
}

// The session was made shorter shortly before the data center was lost. Visitors that came in
// before may stay as long as promised.
func TestBrokenPresumedAfterTheSessionWasShortened(t *testing.T) {
	long, short := brokenLimits(10, 1000, 2*time.Hour), brokenLimits(10, 1000, time.Minute)
	root := brokenRoot(NewRecord(1, nil, long...), time.Second)
	a, b := brokenCounter("a", 11, time.Second, long), brokenCounter("b", 12, time.Second, short)
	brokenAsk(root, a, 2*time.Second, 10)
	root.SetLimits(1, short...)
	brokenWrite(root, 3*time.Second)
	if root.Record().Limits[0].Longest != 2*time.Hour {
		t.Fatal("forgotten")
	}
	// a admits ten visitors for two hours, and is lost with Anywhere's data center.
	end := 2*time.Second + 2*time.Hour
	clk := 5 * time.Second
	r := NewRecord(1, nil, short...)    // as Presume makes it, from the current settings
	r.Limits[0].Longest = 2 * time.Hour // as in the counter's own record
	r.Presume(Params{Counters: true}, WriteName{1, 1 << 33, 1 << 33}, root.CounterTime(clk))
	root = brokenRoot(r, clk)
	clk = brokenFor(15*time.Minute, clk+time.Second, func(clk time.Duration) {
		brokenWrite(root,
			clk)
	})
	brokenAsk(root, b, clk, 10)
	if n := b.FreeNow(clk + time.Second); n > 0 {
		t.Errorf("b may let %d in, %v before the ten stays of a have ended", n, end-clk)
	}
}

// The counter of a room also receives requests over links, from workers of other data centers.
func TestBrokenAWorkerThatOpenedWhatItNeverHad(t *testing.T) {
	lim := brokenLimits(10, 1000, time.Minute)
	c := serving(Params{}, NewRecord(1, nil, lim...), time.Second)
	brokenLoan(c, 2*time.Second, Sync{Loan: 11, Borrower: "there", Seq: Seq{0, 1}, Opened: 1000})
	if n := c.FreeNow(3 * time.Second); n > 10 {
		t.Errorf("%d are free, limit 10", n)
	}
}

// a has all slots; b has returned its slots, and visitors wait there.
func TestBrokenPresumedAndACounterThatHoldsNothing(t *testing.T) {
	lim := brokenLimits(10, 10, 5*time.Minute)
	root := brokenRoot(NewRecord(1, nil, lim...), time.Second)
	a, b := brokenCounter("a", 11, time.Second, lim), brokenCounter("b", 12, time.Second, lim)
	brokenAskOnce(root, b, 2*time.Second, 1)
	b.ReturnToParent(0)
	brokenWrite(b, 3*time.Second)
	brokenAskOnce(root, b, 4*time.Second, 0)
	brokenAsk(root, a, 5*time.Second, 10)
	if a.Free() != 10 || b.Free() != 0 {
		t.Fatal(a.Free(), b.Free())
	}
	life := b.Record().Name.Life
	r := NewRecord(1, nil, lim...)
	r.Presume(Params{Counters: true}, WriteName{1, 1 << 33, 1 << 33}, root.CounterTime(6*time.Second))
	root = brokenRoot(r, 6*time.Second)
	brokenAskOnce(root, a, 7*time.Second, 0)
	brokenWrite(root, 8*time.Second)
	brokenAskOnce(root, b, 9*time.Second, 0)
	if now := b.Record().Name.Life; now != life {
		t.Errorf("all who wait at b have lost their places: its life is %d, was %d", now, life)
	}
}

// The limit was lowered from ten to five, and two data centers keep their slots.
func TestBrokenPresumedAfterALimitWasLoweredAndTwoHold(t *testing.T) {
	lim := brokenLimits(10, 10, 5*time.Minute)
	root := brokenRoot(NewRecord(1, nil, lim...), time.Second)
	a, b := brokenCounter("a", 11, time.Second, lim), brokenCounter("b", 12, time.Second, lim)
	brokenAsk(root, a, 2*time.Second, 6)
	brokenAsk(root, b, 3*time.Second, 4)
	lives := [2]uint64{a.Record().Name.Life, b.Record().Name.Life}
	r := NewRecord(1, nil, brokenLimits(5, 5, 5*time.Minute)...)
	r.Presume(Params{Counters: true}, WriteName{1, 1 << 33, 1 << 33}, root.CounterTime(4*time.Second))
	root = brokenRoot(r, 4*time.Second)
	brokenAskOnce(root, a, 5*time.Second, 0)
	brokenWrite(root, 6*time.Second)
	brokenAskOnce(root, b, 7*time.Second, 0)
	if now := [2]uint64{a.Record().Name.Life, b.Record().Name.Life}; now != lives {
		t.Errorf("who is inside is thrown out: lives %d, were %d", now, lives)
	}
}

// A room that was alone has received an answer. Its next host must not report again that its term
// has not begun.
func TestBrokenWasRootIsOver(t *testing.T) {
	lim := brokenLimits(10, 1000, 5*time.Minute)
	of := NewRecord(5, nil, lim...)
	of.JoinParent(77, true)
	c := serving(Params{Datacenter: "sjc"}, of, time.Second)
	r := NewRecord(1, nil, lim...)
	r.Presume(Params{Counters: true}, WriteName{1, 1, 0}, 1)
	root := brokenRoot(r, time.Second)
	for i := range time.Duration(5) {
		brokenAskOnce(root, c, (2+i)*time.Second, 0)
		brokenWrite(c, (2+i)*time.Second+time.Millisecond)
	}
	b, err := c.Record().AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	var read Record
	if err := read.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	next := serving(Params{Datacenter: "sjc"}, &read, 20*time.Minute)
	if x := next.ParentSync(20*time.Minute, 0, 0, nil); !x.Lapsed {
		t.Error("the next host knows nothing of its term, and says that it runs")
	}
}

// A counter begins anew while visitors are inside, for example when its host has changed while
// Anywhere moved from a lost data center. Their passes must not be renewed forever beside the slots
// that Anywhere lends to others.
func TestBrokenWhoIsInsideWhenACounterBeginsAnew(t *testing.T) {
	lim := brokenLimits(10, 1000, 5*time.Minute)
	root := brokenRoot(NewRecord(1, nil, lim...), time.Second)
	a, b := brokenCounter("a", 11, time.Second, lim), brokenCounter("b", 12, time.Second, lim)
	brokenAsk(root, a, 2*time.Second, 10)
	for id := range SessionID(10) {
		if !a.Call(3 * time.Second) {
			t.Fatal("no slot")
		}
		a.Claim(3*time.Second, id+1, 0, 0)
	}
	brokenWrite(a, 3*time.Second)
	ends := map[SessionID]Time{}
	for id := range SessionID(10) {
		ends[id+1] = a.EndOf(id + 1)
	}
	life := a.Record().Name.Life
	a = serving(Params{Datacenter: "a"}, a.Record().Clone(), 4*time.Second) // another host
	r := NewRecord(1, nil, lim...)
	r.Presume(Params{Counters: true}, WriteName{1, 1 << 33, 1 << 33}, root.CounterTime(4*time.Second))
	root = brokenRoot(r, 4*time.Second)
	brokenAskOnce(root, a, 5*time.Second, 0)
	if a.Record().Parent.Loan == 11 {
		return // it is reinstated
	}
	brokenAskOnce(root, a, 6*time.Second, 0)
	seq, clk := uint64(0), 7*time.Second
	for ; clk < 25*time.Minute; clk += 5 * time.Second {
		brokenWrite(root, clk)
		brokenAskOnce(root, a, clk, 0)
		if seq++; seq%6 > 0 { // each visitor is seen twice a minute
			continue
		}
		x := Sync{Loan: 500, Borrower: "w", Seq: Seq{0, seq}}
		for id, end := range ends {
			if a.CounterTime(clk) < end { // its pass has not expired
				x.Items = append(x.Items, Item{Op: Renew, ID: id, From: end, At: a.CounterTime(clk)})
			}
		}
		for _, got := range brokenLoan(a, clk+time.Second, x).Results {
			ends[got.ID] = max(ends[got.ID], got.End)
		}
	}
	inside := int64(0)
	for _, end := range ends {
		if a.Record().Name.Life == life && end > a.CounterTime(clk) {
			inside++
		}
	}
	brokenAsk(root, b, clk, 10)
	if n := b.FreeNow(clk + time.Second); inside+n > 10 {
		t.Errorf("%d are inside at a, and b may let %d in, limit 10; a holds %d", inside, n,
			a.Record().Parent.Granted-a.Record().Parent.Returned[0])
	}
}
