package slot

import (
	"testing"
	"time"
)

// twoCounters returns two counters that borrow from Anywhere, all on one clock.
func twoCounters(t *testing.T, n int64) (root *Pool, a, b *Pool) {
	t.Helper()
	limits := []Limit{{AtOnce, n, 5 * time.Minute}, {PerWindow, n, time.Minute}}
	root = serving(Params{Counters: true}, NewRecord(1, nil, limits...), time.Hour)
	a = serving(Params{}, NewRecord(2, &ParentLoan{Loan: 11}, limits...), time.Hour)
	b = serving(Params{}, NewRecord(3, &ParentLoan{Loan: 12}, limits...), time.Hour)
	return root, a, b
}

// ask makes a counter Sync with waiting visitors that arrived ago before, and writes at both ends.
// It returns Anywhere's answer, or nil while the request is open.
func ask(root, p *Pool, clk time.Duration, ago ...time.Duration) *Answer {
	p.Waiting(len(ago) > 0)
	var queue []Time
	for _, d := range ago {
		queue = append(queue, p.CounterTime(clk).Add(-d))
	}
	return tell(root, p, clk, p.ParentSync(clk, int64(len(ago)), 0, queue))
}

func tell(root, p *Pool, clk time.Duration, x *Sync) (got *Answer) {
	root.Receive(x)
	now, wr := root.Begin(clk, true)
	if wr != nil {
		more, _ := root.Confirm(clk)
		now = append(now, more...)
	}
	for _, r := range now {
		if r.Sync == x {
			got = &r.Answer
		}
	}
	if got != nil {
		p.ReceiveParent(clk, *got)
		if _, wr := p.Begin(clk, true); wr != nil {
			p.Confirm(clk)
		}
	}
	return got
}

// With one slot and two data centers whose lines both wait, the earlier arrival gets it, although
// the other one has requested before and its request is still open.
func TestAnywhereLendsToTheEarliestArrival(t *testing.T) {
	root, a, b := twoCounters(t, 1)
	clk := time.Hour + time.Second
	ask(root, a, clk) // learn Anywhere's time
	ask(root, b, clk)
	used := NewShare(Params{}, "w", 99, root.rec.Limits[0].Limit, root.rec.Limits[1].Limit)
	root.Receive(used.Sync(clk, 1, 0)) // somebody holds the only slot
	root.Begin(clk, true)
	root.Confirm(clk)

	clk += time.Second
	if ask(root, b, clk, time.Second) != nil {
		t.Fatal("b is answered though there is nothing to lend")
	}
	if ask(root, a, clk, time.Minute) != nil {
		t.Fatal("a is answered though there is nothing to lend")
	}
	clk += time.Millisecond
	root.rec.Loans[2].Returned = evenly(1) // it comes back
	_, wr := root.Begin(clk, true)
	if wr == nil {
		t.Fatal("no write")
	}
	root.Confirm(clk)
	if got := [2]int64{root.rec.loan(11).Granted, root.rec.loan(12).Granted}; got != [2]int64{1, 0} {
		t.Errorf("granted %v, want the slot with a, whose next came a minute ago", got)
	}
}

// Granted slots are for the first visitors that wait here, also before they are written. A second
// request for them would give a slot to somebody who came later than others elsewhere.
func TestNobodyAsksTwiceForTheSameVisitor(t *testing.T) {
	root, a, _ := twoCounters(t, 9)
	clk := time.Hour + time.Second
	ask(root, a, clk)
	arrivals := []Time{a.CounterTime(clk) - 9e9, a.CounterTime(clk) - 8e9, a.CounterTime(clk) - 7e9}
	a.Waiting(true)
	x := a.ParentSync(clk, 3, 0, arrivals)
	want := x.Queue[2]
	a.ReceiveParent(clk, Answer{Loan: x.Loan, Seq: x.Seq, Granted: x.Granted + 2, GiveBack: true,
		Name: root.Record().Name, Time: root.CounterTime(clk), Term: time.Minute})
	for _, when := range []string{"before it is written", "in a write", "written"} {
		x := a.ParentSync(clk, 3, 0, arrivals)
		if x.Need != 1 || len(x.Queue) != 1 || x.Queue[0] != want {
			t.Errorf("%s: two of three are granted, asked for %d: %v, want the third, %v", when, x.Need, x.Queue, want)
		}
		if a.up.fly = nil; when == "before it is written" {
			a.Begin(clk, true)
		} else if when == "in a write" {
			a.Confirm(clk)
		}
	}
}

// When a minute is over and the session is not, the rest of the window goes back, and the slot of
// the AtOnce limit stays.
func TestWhatComesBackComesBackByLimit(t *testing.T) {
	root, a, _ := twoCounters(t, 3)
	clk := time.Hour + time.Second
	ask(root, a, clk)
	ask(root, a, clk, time.Second, time.Second) // two visitors wait
	for id := range SessionID(2) {
		if !a.Call(clk) {
			t.Fatal("nobody can be called")
		}
		a.Claim(clk, id+1, 0, 0)
	}
	a.Waiting(false)
	a.Begin(clk, true)
	a.Confirm(clk)
	clk += 62 * time.Second
	a.RecallByParent(clk)
	a.Begin(clk, true)
	a.Confirm(clk)
	if got := a.rec.Parent.Returned; got != (PerLimit{0, 2}) {
		t.Errorf("returned %v of each limit, want 0 at once and 2 of the window", got)
	}
	tell(root, a, clk, a.ParentSync(clk, 0, 0, nil))
	if at, win := root.FreeOf(0), root.FreeOf(1); at != 1 || win != 3 {
		t.Errorf("Anywhere has %d and %d, want 1 and 3", at, win)
	}
}

// A queue that is not repeated does not hold up the others forever.
func TestAQueueThatFallsSilentLosesItsTurn(t *testing.T) {
	root, a, b := twoCounters(t, 1)
	clk := time.Hour + time.Second
	ask(root, a, clk)
	ask(root, b, clk)
	root.noteFront(clk, &Sync{Loan: 11, Need: 1, Queue: []Time{1}}) // a was received, and is cut off
	if got := ask(root, b, clk+time.Second, time.Second); got != nil && got.Granted > 0 {
		t.Error("b overtakes within the time in which a may ask again")
	}
	clk += time.Second + queueKept
	if _, wr := root.Begin(clk, true); wr != nil {
		root.Confirm(clk)
	}
	if root.rec.loan(12).Granted != 1 && ask(root, b, clk, time.Second) == nil {
		t.Error("b waits for one who is not heard any more")
	}
}

// If the answer to a claim is lost until the session is over, the claim admits nobody.
func TestAClaimIsNotAnsweredAfterItsStay(t *testing.T) {
	p := serving(Params{}, NewRecord(1, nil, Limit{AtOnce, 1, 10 * time.Second},
		Limit{PerWindow, 9, time.Minute}), 0)
	p.Call(0)
	p.Claim(0, 7, 0, 0)
	p.Begin(1, false)
	p.Confirm(1)
	for _, after := range []time.Duration{5 * time.Second, 12 * time.Second} {
		want := after < 10*time.Second
		p.ClaimAgain(after, 7, 0, 0)
		p.Begin(after, false)
		if _, claims := p.Confirm(after); len(claims) != 1 || claims[0].End > 0 != want {
			t.Errorf("after %v of a stay of 10 s: %+v", after, claims)
		}
	}
}
