package borrower

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

const (
	term    = 15 * time.Second
	session = 10 * time.Second
)

// A lender is a counter that forgets nothing and checks what it is told. It lends what is free, a
// session at a time: slots that were used come back when the test says so.
type lender struct {
	free, granted, used, returned int64
	seq                           uint64
	settled                       slot.Time
	last                          slot.Answer
}

// answer answers a Sync, and a repeated one with the same words.
func (l *lender) answer(clk time.Duration, x *slot.Sync) slot.Answer {
	if x.Seq.N == l.seq {
		return l.last
	}
	l.seq, l.settled = x.Seq.N, x.Settled
	l.used, l.free, l.returned = x.Opened, l.free+x.Returned[0]-l.returned, x.Returned[0]
	n := max(0, min(x.Need+x.Want, l.free))
	l.free, l.granted = l.free-n, l.granted+n
	l.last = slot.Answer{
		Name: slot.WriteName{Life: 1, Epoch: 1, Writes: l.seq}, Seq: x.Seq, Loan: x.Loan,
		Time: slot.Time(clk), Granted: l.granted, Term: term,
	}
	for _, it := range x.Items {
		if it.Op == slot.Ask {
			l.last.Results = append(l.last.Results, slot.Result{ID: it.ID, End: slot.Time(clk + session)})
		}
	}
	return l.last
}

// A desk is a caller of a borrower, which notes what the borrower decides.
type desk struct {
	*Borrower[int, int]
	lender
	share             *slot.Share
	clk               time.Duration
	inside, refused   []int
	ends              map[int]slot.Time // of passes, by their number
	unreported, syncs int
}

func newDesk(capacity int64) *desk {
	limit := slot.Limit{Kind: slot.AtOnce, N: capacity, Per: session}
	d := &desk{lender: lender{free: capacity}, ends: map[int]slot.Time{},
		share: slot.NewShare(slot.Params{}, "w", 1, limit)}
	d.Borrower = New(Config[int, int]{
		Share: d.share, Term: term,
		Inside: func() bool { return len(d.inside) > 0 },
		Report: func(_ time.Duration, lo slot.Time, note func(slot.Item) bool) bool {
			for d.unreported > 0 {
				d.unreported--
				if !note(slot.Item{Op: slot.Renew, ID: slot.SessionID(d.unreported), At: lo}) {
					return false
				}
			}
			return true
		},
		Learn:  func(time.Duration, *slot.Answer) {},
		Open:   func(_ time.Duration, n int) bool { return d.open(n) },
		Refuse: func(n int) { d.refused = append(d.refused, n) },
		Answer: func(pass int, end slot.Time) { d.ends[pass] = end },
	})
	return d
}

func (d *desk) open(n int) bool {
	_, ok := d.share.Open(d.clk, slot.SessionID(n), 0, 0)
	if ok {
		d.inside = append(d.inside, n)
	}
	return ok
}

// newcomer tries the share and then waits. It reports whether more slots should be requested.
func (d *desk) newcomer(n int) (low bool) {
	if d.Arrived() && d.open(n) {
		return d.Opened(d.clk)
	}
	d.Wait(n)
	return false
}

// talk sends Syncs until there is nothing to send.
func (d *desk) talk(flush bool) {
	for again := true; again; flush = false {
		x := d.Build(d.clk, flush)
		if x == nil {
			return
		}
		d.syncs++
		a := d.answer(d.clk, x)
		again = d.Receive(d.clk, x, &a)
	}
}

// seconds lets n newcomers arrive in each of some seconds, so that the borrower learns their rate.
func (d *desk) seconds(s, n int) {
	for range s {
		for range n {
			d.newcomer(len(d.inside) + 1)
			d.talk(false)
		}
		d.clk += FlushEvery
		d.talk(true)
	}
}

// TestNeverMoreThanLent plays a borrower and its lender at random, with Syncs and answers that are
// lost, repeated and late, and counts slots: nobody enters on a slot that was not lent, and nobody
// is forgotten.
func TestNeverMoreThanLent(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		capacity := rnd.Int64N(20)
		d := newDesk(capacity)
		var came, withdrawn int
		var old []func()
		d.Hurry()
		for range 400 {
			d.clk += time.Duration(rnd.Int64N(int64(FlushEvery / 2)))
			switch rnd.IntN(8) {
			case 0, 1:
				came++
				d.newcomer(came)
			case 2:
				if came > 0 && d.Withdraw(rnd.IntN(came)+1) {
					withdrawn++
				}
			case 3:
				if len(old) > 0 { // late, or the same once more
					old[rnd.IntN(len(old))]()
				}
			case 4:
				if rnd.IntN(10) == 0 {
					d.ReturnShare()
				}
			default:
				x := d.Build(d.clk, rnd.IntN(2) == 0)
				if x == nil || rnd.IntN(4) == 0 {
					break // the Sync is lost
				}
				a := d.answer(d.clk, x)
				old = append(old, func() { d.Receive(d.clk, x, &a) })
				if rnd.IntN(4) > 0 { // else the answer is lost
					d.Receive(d.clk, x, &a)
				}
			}
			if int64(len(d.inside)) > d.granted-d.returned || d.granted-d.returned > capacity {
				t.Fatalf("seed %d: %d inside on %d slots lent and %d returned, of %d",
					seed, len(d.inside), d.granted, d.returned, capacity)
			}
		}
		d.talk(true)
		waiting, _ := d.Clear()
		if n := len(d.inside) + len(d.refused) + len(waiting) + withdrawn; n != came {
			t.Fatalf("seed %d: %d newcomers came, %d got an answer", seed, came, n)
		}
		if d.used != int64(len(d.inside)) {
			t.Fatalf("seed %d: %d are inside, the lender counts %d", seed, len(d.inside), d.used)
		}
	}
}

// When a share runs out, the next Sync requests more at once, not with the next flush, so that the
// next newcomer does not wait.
func TestAsksWhenShareRunsOut(t *testing.T) {
	d := newDesk(1000)
	d.seconds(10, 5)
	for left := d.share.Held(); left > 0; left-- {
		if low := d.newcomer(0); low != (left == 1) {
			t.Fatalf("%d slots were left before a newcomer took one: run out is %v", left, low)
		}
	}
	d.talk(false)
	if held := d.share.Held(); held != 5*wantFor {
		t.Fatalf("the lender has slots, and the share %d", held)
	}
}

// What became due while a Sync was in flight is sent as soon as the Sync is answered.
func TestDueWhileInFlight(t *testing.T) {
	for name, due := range map[string]func(d *desk){
		"hurry":            func(d *desk) { d.Hurry() },
		"a newcomer waits": func(d *desk) { d.Wait(1) },
		"share returned":   func(d *desk) { d.ReturnShare() },
	} {
		d := newDesk(0)
		d.Hurry()
		x := d.Build(d.clk, false)
		if due(d); d.Build(d.clk, true) != x {
			t.Fatalf("%s: a Sync in flight was changed", name)
		}
		a := d.answer(d.clk, x)
		if !d.Receive(d.clk, x, &a) {
			t.Fatalf("%s: the next Sync waits for the flush", name)
		}
	}
}

// A Sync has at most maxItems. The rest follows at once: the counter frees nothing before it has all.
func TestLongReportsContinueAtOnce(t *testing.T) {
	d := newDesk(1)
	d.Hurry()
	d.talk(false)
	d.unreported, d.syncs, d.clk = 2*maxItems+5, 0, d.clk+time.Second
	x := d.Build(d.clk, true)
	if x.Settled > 0 {
		t.Errorf("a part of the report settles what ended before %v", x.Settled)
	}
	d.talk(false)
	if d.unreported > 0 || d.syncs != 3 || d.settled == 0 {
		t.Fatalf("after %d Syncs %d visitors are not reported", d.syncs, d.unreported)
	}
}

// After its term a share admits nobody, whatever it holds, until the next answer.
func TestTermIsOver(t *testing.T) {
	d := newDesk(100)
	d.seconds(5, 4)
	held := d.share.Held()
	d.clk += term
	if held == 0 || d.open(1000) {
		t.Fatalf("with %d slots held, a newcomer entered after the term", held)
	}
	d.newcomer(1000)
	d.talk(false)
	if n := len(d.inside); d.inside[n-1] != 1000 {
		t.Fatalf("the lender answered, and the newcomer waits: %v", d.inside)
	}
}

// Newcomers get slots in the order of their arrival. As many as the lender has no slot for are
// refused, unless it wants to be asked again.
func TestOrderAndRefusals(t *testing.T) {
	for _, c := range []struct {
		free                  int64
		again                 bool
		inside, refused, wait []int
	}{
		{free: 5, inside: []int{1, 2, 3, 4}, wait: []int{5}},
		{free: 0, refused: []int{1, 2, 3, 4}, wait: []int{5}},
		{free: 0, again: true, wait: []int{1, 2, 3, 4, 5}},
		{free: 2, inside: []int{1, 2}, wait: []int{3, 4, 5}}, // some are left, perhaps
	} {
		d := newDesk(c.free)
		for n := 1; n <= 4; n++ {
			d.Wait(n)
		}
		x := d.Build(d.clk, false)
		d.Wait(5) // not in this Sync
		a := d.answer(d.clk, x)
		a.Again = c.again
		again := d.Receive(d.clk, x, &a)
		wait, _ := d.Clear()
		if !slices.Equal(d.inside, c.inside) || !slices.Equal(d.refused, c.refused) ||
			!slices.Equal(wait, c.wait) || !again {
			t.Errorf("%+v: inside %v, refused %v, waiting %v, again %v", c, d.inside, d.refused, wait, again)
		}
	}
}

// A newcomer that arrives while others wait does not take a slot of the share before them, and joins
// the line while an answer says that there is one; not in a room without a line.
func TestNobodyIsOvertaken(t *testing.T) {
	d := newDesk(0)
	d.Wait(1)
	if d.Arrived() {
		t.Error("a newcomer may try the share before one that waits for it")
	}
	x := d.Build(d.clk, false)
	a := d.answer(d.clk, x)
	a.Waiting = true
	d.Receive(d.clk, x, &a)
	for after, want := range map[time.Duration]bool{0: false, slot.NewsFor: true} {
		if got := d.CanWait(d.clk+after, false); got != want {
			t.Errorf("%v after the answer that visitors wait, a newcomer may wait for a slot: %v", after, got)
		}
	}
	if !d.CanWait(d.clk, true) {
		t.Error("in a room without a line a newcomer may not wait for a slot")
	}
	for n := range maxWaiting {
		d.Wait(n)
	}
	if d.CanWait(d.clk+slot.NewsFor, true) {
		t.Error("more newcomers wait than a worker has room for")
	}
}

// Unused slots go back when the counter needs them, or when nobody has come for idleReturn.
func TestUnusedSlotsGoBack(t *testing.T) {
	for name, ask := range map[string]func(d *desk){
		"idle": func(d *desk) { d.seconds(int(idleReturn/FlushEvery)+1, 0) },
		"give back": func(d *desk) {
			d.Hurry()
			x := d.Build(d.clk, false)
			a := d.answer(d.clk, x)
			a.GiveBack = true
			if !d.Receive(d.clk, x, &a) {
				t.Fatal("the slots that the counter needs wait for the flush")
			}
			d.Forget()
			d.talk(false)
		},
	} {
		d := newDesk(50)
		d.seconds(5, 4)
		if held := d.share.Held(); held == 0 || d.returned > 0 {
			t.Fatalf("%s: the share has %d slots and returned %d before", name, held, d.returned)
		}
		ask(d)
		if d.free != 50-int64(len(d.inside)) || d.share.Held() != 0 {
			t.Errorf("%s: %d of 50 free at the lender, %d held, %d inside", name, d.free, d.share.Held(), len(d.inside))
		}
	}
}

// A pass gets the end that the answer to its own Sync contains, 0 if it contains none, and once.
func TestPassesAreAnswered(t *testing.T) {
	d := newDesk(1)
	d.Ask(slot.Item{Op: slot.Ask, ID: 7}, 1)
	x := d.Build(d.clk, false)
	d.Ask(slot.Item{Op: slot.Ask, ID: 8}, 2) // goes with the next
	a := d.answer(d.clk, x)
	a.Results = append(a.Results, slot.Result{ID: 9, End: 1})
	d.Receive(d.clk, x, &a)
	next := d.Build(d.clk, false)
	d.Receive(d.clk, x, &a) // repeated: answers nothing of the next
	if got := fmt.Sprint(d.ends); got != fmt.Sprint(map[int]slot.Time{1: slot.Time(session)}) {
		t.Errorf("after the first answer: %v", got)
	}
	a = d.answer(d.clk, next)
	a.Results = nil
	d.Receive(d.clk, next, &a)
	if end, ok := d.ends[2]; !ok || end != 0 || d.ends[1] == 0 {
		t.Errorf("a session that is over: the passes got %v", d.ends)
	}
}

// A counter in another data center hears of a worker with each flush while anybody is inside. One of
// the same data center need not.
func TestHeartbeats(t *testing.T) {
	for remote, want := range map[bool]int{true: 3, false: 0} {
		d := newDesk(1)
		d.cfg.Remote = remote
		d.newcomer(1)
		d.talk(false) // asks for a slot
		d.talk(false) // reports its use
		d.syncs = 0
		d.seconds(3, 0)
		if d.syncs != want {
			t.Errorf("remote %v: %d Syncs in 3 s, want %d", remote, d.syncs, want)
		}
	}
}
