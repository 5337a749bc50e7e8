package slot

import (
	"fmt"
	"math"
	"testing"
	"time"
)

func reviewLimits(active, fresh int64, s time.Duration) []Limit {
	return []Limit{{AtOnce, active, s}, {PerWindow, fresh, time.Minute}}
}

func reviewRoot(r *Record, clk time.Duration) *Pool {
	return serving(Params{Counters: true}, r, clk)
}

func reviewCounter(name string, loan LoanID, clk time.Duration, lim []Limit) *Pool {
	return serving(Params{Site: name}, NewRecord(uint64(loan)+100, &Upper{Loan: loan}, lim...), clk)
}

// write lets a pool write now.
func reviewWrite(p *Pool, clk time.Duration) []Reply {
	now, wr := p.Begin(clk, true)
	if wr != nil {
		more, _ := p.Confirm(clk)
		now = append(now, more...)
	}
	return now
}

// reviewAsk lets c ask for want until it has all that root lends.
func reviewAsk(root, c *Pool, clk time.Duration, want int64) {
	reviewAskOnce(root, c, clk, want)
	for i := time.Duration(1); want > 0 && c.Free() < want && i < 10; i++ {
		reviewAskOnce(root, c, clk+i*time.Millisecond, want)
	}
}

// reviewAskOnce carries one Sync of c to root and the answer back.
func reviewAskOnce(root, c *Pool, clk time.Duration, want int64) {
	x := c.UpSync(clk, want, 0, nil)
	root.Put(x)
	for _, r := range append(reviewWrite(root, clk), reviewWrite(root, clk+1)...) {
		if r.Sync == x {
			c.UpAnswer(clk, r.Answer)
		}
	}
	reviewWrite(c, clk+2)
}

func reviewFor(d time.Duration, from time.Duration, f func(clk time.Duration)) time.Duration {
	for clk := from; clk < from+d; clk += 5 * time.Second {
		f(clk)
	}
	return from + d
}

// A Sync is repeated unchanged for as long as it is not answered: what it says of the own
// term is then of long ago.
func TestReviewALapsedCounterIsNotReinstated(t *testing.T) {
	lim := reviewLimits(10, 1000, 5*time.Minute)
	root := reviewRoot(NewRecord(1, nil, lim...), time.Second)
	a, b := reviewCounter("a", 11, time.Second, lim), reviewCounter("b", 12, time.Second, lim)
	clk := 2 * time.Second
	reviewAsk(root, a, clk, 10)
	if a.Free() != 10 {
		t.Fatal(a.Free())
	}
	stuck := a.UpSync(clk+time.Second, 0, 0, nil) // a is cut off: nobody answers this one
	clk = reviewFor(20*time.Minute, clk+time.Second, func(clk time.Duration) { reviewWrite(root, clk) })
	reviewAsk(root, b, clk, 10)
	if b.Free() != 10 {
		t.Fatal("b has not got what a held", b.Free())
	}
	// Anywhere's home is lost for good, a's link is mended.
	r := NewRecord(1, nil, lim...)
	r.Presume(Params{Counters: true}, WriteName{1, 1 << 33, 1 << 33}, root.Tau(clk))
	root = reviewRoot(r, clk)
	if got := a.UpSync(clk, 0, 0, nil); got != stuck || got.Lapsed {
		t.Log("the Sync is another one or says that the term is over")
	}
	reviewAsk(root, a, clk, 0)
	clk += time.Second
	reviewAsk(root, a, clk, 0)
	if n := a.FreeNow(clk+3) + b.FreeNow(clk+3); n > 10 && !a.termOver(clk+3) && !b.termOver(clk+3) {
		t.Errorf("two counters may let %d in at once, limit 10", n)
	}
}

// What is presumed lent without a name is of stays that began up to the moment at which
// their data centre was declared off, not up to the move of Anywhere.
func TestReviewDeclaredOffLate(t *testing.T) {
	const s = time.Minute
	lim := reviewLimits(10, 1000, s)
	root := reviewRoot(NewRecord(1, nil, lim...), time.Second)
	a, b := reviewCounter("a", 11, time.Second, lim), reviewCounter("b", 12, time.Second, lim)
	clk := 2 * time.Second
	reviewAsk(root, a, clk, 10)
	r := NewRecord(1, nil, lim...)
	r.Presume(Params{Counters: true}, WriteName{1, 1 << 33, 1 << 33}, root.Tau(clk))
	root = reviewRoot(r, clk) // the home is lost; a is cut off and goes on for its term
	reviewAsk(root, b, clk+time.Second, 10)
	clk = reviewFor(5*time.Minute, clk+2*time.Second, func(clk time.Duration) { reviewWrite(root, clk) })
	// a lets ten in, which it may, and then goes off with them.
	if a.FreeNow(clk) != 10 || a.termOver(clk) {
		t.Fatal(a.FreeNow(clk), a.termOver(clk))
	}
	end := clk + s
	clk += time.Second
	if missing := root.DeclareOff(clk, []string{"home", "a"}, []string{"b"}); len(missing) > 0 {
		t.Fatal(missing)
	}
	reviewWrite(root, clk)
	reviewAsk(root, b, clk+time.Second, 10)
	if n := b.FreeNow(clk + 2*time.Second); n > 0 {
		t.Errorf("b may let %d in %v before the ten that a let in have ended", n, end-clk)
	}
}

func reviewLoan(root *Pool, clk time.Duration, x Sync) (a Answer) {
	root.Put(&x)
	for _, r := range append(reviewWrite(root, clk), reviewWrite(root, clk+1)...) {
		if r.Sync == &x {
			a = r.Answer
		}
	}
	return a
}

// What comes over a link is of another data centre, and may be broken.
func TestReviewBrokenNumbers(t *testing.T) {
	lim := reviewLimits(10, 1000, time.Minute)
	for name, x := range map[string]Sync{
		"returned what it never had": {Returned: evenly(1000)},
		"returned less than nothing": {Returned: evenly(math.MinInt64)},
		"opened, as no counter does": {Opened: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			root := reviewRoot(NewRecord(1, nil, lim...), time.Second)
			x.Loan, x.Borrower, x.Seq = 11, "a", Seq{1, 1}
			reviewLoan(root, 2*time.Second, x)
			x.Seq.N, x.Need = 2, 1
			reviewLoan(root, 3*time.Second, x)
			b := reviewCounter("b", 12, time.Second, lim)
			reviewAsk(root, b, 4*time.Second, 100)
			if n := b.FreeNow(5 * time.Second); n > 10 {
				t.Errorf("b may let %d in, limit 10", n)
			}
		})
	}
}

func TestReviewBrokenTrafficIsNoPanic(t *testing.T) {
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("the host of Anywhere ends: %v", r)
		}
	}()
	lim := reviewLimits(10, 1000, time.Minute)
	root := reviewRoot(NewRecord(1, nil, lim...), time.Second)
	reviewLoan(root, 2*time.Second, Sync{Loan: 11, Borrower: "a", Seq: Seq{1, 1}, Traffic: 5, Need: 1})
	reviewLoan(root, 3*time.Second, Sync{Loan: 12, Borrower: "b", Seq: Seq{1, 1},
		Traffic: math.MaxInt64, Idle: math.MaxInt64 / 2, Want: 1})
}

// Each life of a borrower is a line of the record, and nothing bounds them.
func TestReviewManyLoans(t *testing.T) {
	lim := reviewLimits(10, 1000, time.Minute)
	root := reviewRoot(NewRecord(1, nil, lim...), time.Second)
	const some = 2000
	for i := range some {
		root.Put(&Sync{Loan: LoanID(100 + i), Borrower: "a", Seq: Seq{1, 1}})
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

// Limits may have been lowered a moment before the home was lost.
func TestReviewPresumedAfterALimitWasLowered(t *testing.T) {
	lim := reviewLimits(10, 1000, 5*time.Minute)
	root := reviewRoot(NewRecord(1, nil, lim...), time.Second)
	a := reviewCounter("a", 11, time.Second, lim)
	reviewAsk(root, a, 2*time.Second, 10)
	if !a.Call(3 * time.Second) {
		t.Fatal("no slot")
	}
	a.Claim(7, 0, false)
	reviewWrite(a, 3*time.Second)
	life := a.Record().Name.Life
	r := NewRecord(1, nil, reviewLimits(5, 1000, 5*time.Minute)...)
	r.Presume(Params{Counters: true}, WriteName{1, 1 << 33, 1 << 33}, root.Tau(4*time.Second))
	root = reviewRoot(r, 4*time.Second)
	reviewAsk(root, a, 5*time.Second, 0)
	if now := a.Record().Name.Life; now != life {
		t.Errorf("all who are inside at a are thrown out: life %d, was %d", now, life)
	}
}

// A room that was alone is one of several: its host crashes before Anywhere has answered.
func TestReviewConvertedAndTakenOverBeforeTheFirstAnswer(t *testing.T) {
	lim := reviewLimits(10, 1000, 5*time.Minute)
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash ", crash), func(t *testing.T) {
			alone := serving(Params{}, NewRecord(5, nil, lim...), time.Second)
			alone.Call(2 * time.Second)
			alone.Claim(7, 0, false)
			reviewWrite(alone, 2*time.Second)
			b, _ := alone.Record().AppendBinary(nil)
			read := func(b []byte) *Record {
				var r Record
				if err := r.UnmarshalBinary(b); err != nil {
					t.Fatal(err)
				}
				return &r
			}
			of := read(b)
			of.GoBelow(77, true)
			c := serving(Params{Site: "sjc"}, of, 3*time.Second)
			b, _ = c.Record().AppendBinary(nil)
			if crash {
				c = serving(Params{Site: "sjc"}, read(b), 4*time.Second)
			}
			r := NewRecord(1, nil, lim...)
			r.Presume(Params{Counters: true}, WriteName{1, 1, 0}, 1)
			root := reviewRoot(r, 4*time.Second)
			reviewAsk(root, c, 5*time.Second, 0)
			if now := c.Record().Name.Life; now != 5 || c.Record().Limits[0].Ends.Len() != 1 {
				t.Errorf("who is inside is thrown out: life %d, was 5; stays %d", now, c.Record().Limits[0].Ends.Len())
			}
		})
	}
}

// A limit that is lowered as data centres are configured.
func TestReviewConvertedWithALowerLimit(t *testing.T) {
	of := NewRecord(5, nil, reviewLimits(10, 1000, 5*time.Minute)...)
	of.GoBelow(77, true)
	c := serving(Params{Site: "sjc"}, of, time.Second)
	r := NewRecord(1, nil, reviewLimits(8, 1000, 5*time.Minute)...)
	r.Presume(Params{Counters: true}, WriteName{1, 1, 0}, 1)
	root := reviewRoot(r, time.Second)
	reviewAsk(root, c, 2*time.Second, 0)
	if now := c.Record().Name.Life; now != 5 {
		t.Errorf("who is inside is thrown out: life %d, was 5", now)
	}
}

// A slot that is given by the order between counters is not lent ahead to another.
func TestReviewWhoStandsHereBeforeWhoMayCome(t *testing.T) {
	lim := reviewLimits(1, 1000, time.Minute)
	root := reviewRoot(NewRecord(1, nil, lim...), time.Second)
	for i := range LoanID(2) {
		reviewLoan(root, 2*time.Second, Sync{Loan: 11 + i, Borrower: fmt.Sprint(i), Seq: Seq{1, 1}})
	}
	ahead := &Sync{Loan: 11, Borrower: "0", Seq: Seq{1, 2}, Want: 1, Traffic: 1000}
	stands := &Sync{Loan: 12, Borrower: "1", Seq: Seq{1, 2}, Need: 1, Queue: []Tau{1}}
	root.Put(ahead)
	root.Put(stands)
	reviewWrite(root, 3*time.Second)
	if l := root.Record().loan(12); l.Granted != 1 {
		t.Errorf("somebody stands before the door of 12 and has %d; the slot went to 11 (%d), where nobody stands",
			l.Granted, root.Record().loan(11).Granted)
	}
}
