package slot

import (
	"slices"
	"testing"
	"time"
)

// A visitor waits at a, and a and b each have one of two slots in use. Anywhere answers that there
// is none only when b has reported since then that its own is used: it may be coming back.
func TestNothingIsSaidOnlyWhenAllIsUsed(t *testing.T) {
	for _, used := range []bool{true, false} {
		root, a, b := twoCounters(t, 2)
		clk := time.Hour + time.Second
		for _, p := range []*Pool{a, b} {
			ask(root, p, clk)
			if got := ask(root, p, clk, time.Second); got == nil || got.Granted != 1 || !p.Call(clk) {
				t.Fatalf("told %+v, want a slot each", got)
			}
			p.Waiting(false)
		}

		clk += time.Second
		a.RecallByParent(clk)
		if ask(root, a, clk, time.Second) != nil {
			t.Fatal("a is answered before b was asked")
		}
		clk += 30 * time.Millisecond
		b.RecallByParent(clk)
		x := b.ParentSync(clk, 0, 0, nil)
		if x.Idle = 0; !used {
			x.Idle = 1
		}
		root.Receive(x)
		answers, _ := root.Begin(clk, false)
		answers = slices.DeleteFunc(answers, func(r Reply) bool { return r.Sync == x })
		if open := len(answers) == 0; open == used {
			t.Fatalf("b says that its slot is used: %v; a's question is open: %v", used, open)
		}
		if !used {
			continue
		}
		if answers[0].Answer.Waiting {
			t.Error("a is told that there is nothing: what came back there meanwhile it has not said yet")
		}
		a.ReceiveParent(clk, answers[0].Answer)
		if root.Writing() {
			root.Confirm(clk)
		}
		clk += time.Millisecond
		ask(root, a, clk, time.Second)
		if answers, _ = root.Begin(clk, false); len(answers) != 1 || !answers[0].Answer.Waiting {
			t.Errorf("all is used, a has asked again and was told %+v, want that others wait", answers)
		}
	}
}

// A recall repeats what each answer in turn says: it is for counters at which nobody waits.
func TestCountersInTurnGetNoRecall(t *testing.T) {
	root, a, b := twoCounters(t, 2)
	clk := time.Hour + time.Second
	for _, p := range []*Pool{a, b} {
		ask(root, p, clk)
		if got := ask(root, p, clk, time.Second); got == nil || got.Granted != 1 || !p.Call(clk) {
			t.Fatalf("told %+v, want a slot each", got)
		}
	}
	clk += 5 * time.Second
	root.lined = true
	for _, x := range []struct {
		p       *Pool
		recalls bool
	}{{a, true}, {b, false}} { // b has a slot, and nobody waits there until it asks
		ask(root, x.p, clk, time.Second)
		root.recall, root.recalled = true, 0
		if got := root.Recalls(clk); got != x.recalls {
			t.Errorf("recalls %v, want %v", got, x.recalls)
		}
	}
}

// While visitors wait at several counters, all counters learn of their grants at the same time and
// use them at the same time, at any distance.
func TestCountersAreToldInTurn(t *testing.T) {
	root, a, b := twoCounters(t, 4)
	clk := time.Hour + time.Second
	ask(root, a, clk)
	ask(root, b, clk)
	root.lined, root.calls = true, 4 // nothing is left
	clk = root.turn(time.Hour + 10*time.Second)
	if ask(root, a, clk+10*time.Millisecond, 2*time.Second, time.Second, time.Second) != nil {
		t.Error("a is answered at once")
	}
	if ask(root, b, clk+200*time.Millisecond, 3*time.Second) != nil {
		t.Error("b is answered at once")
	}
	root.calls = 2
	root.Begin(clk+210*time.Millisecond, true)
	root.Confirm(clk + 210*time.Millisecond)
	at := clk + root.par.RecallWait
	if now, _ := root.Begin(at-time.Millisecond, false); len(now) > 0 {
		t.Error("somebody is answered before the turn")
	}
	now, _ := root.Begin(at, false)
	if len(now) != 2 {
		t.Fatalf("%d are answered in the turn, want both", len(now))
	}
	for i, p := range []*Pool{a, b} {
		late := time.Duration(3*i) * 10 * time.Millisecond
		for _, r := range now {
			if r.Sync.Loan == p.rec.Parent.Loan {
				p.up.est = Estimate{}
				p.up.sent = at - late // the round trip
				p.ReceiveParent(at+late, r.Answer)
			}
		}
		const drift = time.Millisecond // how far clocks may differ in that time
		if p.up.fresh != 1 || (p.up.freshAt-at-inStep).Abs() > drift {
			t.Errorf("%d slots lent over a way of %v count after %v, want 1 after %v",
				p.up.fresh, late, p.up.freshAt-at, inStep)
		}
		if _, wr := p.Begin(at+late, true); wr != nil {
			p.Confirm(at + late)
		}
		if n := p.FreeNow(at + inStep - drift); n != 0 {
			t.Errorf("%d slots may be used before the others have heard", n)
		}
		if n := p.FreeNow(at + inStep + drift); n != 1 {
			t.Errorf("%d slots may be used when all have heard, want 1", n)
		}
	}
}

// A worker with an open request has not reported which visitors it saw meanwhile. It is answered
// that it should request again when nothing else keeps an end from being free.
func TestAnOpenQuestionHoldsNoEndUp(t *testing.T) {
	limits := []Limit{{AtOnce, 1, 10 * time.Second}, {PerWindow, 9, time.Minute}}
	p := serving(Params{RecallWait: time.Second}, NewRecord(1, nil, limits...), time.Hour)
	w := NewShare(Params{}, "w", 7, limits...)
	clk := time.Hour
	sync := func(need int64, seen bool) (got []Reply) {
		if lo, ok := w.Lo(clk); ok && seen {
			w.Settle(lo)
		}
		p.Receive(w.Sync(clk, need, 0))
		got, wr := p.Begin(clk, true)
		if wr != nil {
			more, _ := p.Confirm(clk)
			got = append(got, more...)
		}
		return got
	}
	got := sync(1, true)
	w.Receive(clk, &got[0].Answer)
	if _, ok := w.Open(clk, 5, 0, 0); !ok {
		t.Fatal("not let in")
	}
	clk += 9990 * time.Millisecond // the session ends in a moment
	got = sync(0, true)
	w.Receive(clk, &got[0].Answer)
	clk += 50 * time.Millisecond
	for _, r := range sync(1, false) {
		t.Fatalf("answered %+v though a stay has ended", r.Answer)
	}
	clk += 30 * time.Millisecond // only w can report that it did not continue
	now, wr := p.Begin(clk, true)
	if wr != nil {
		p.Confirm(clk)
	}
	if len(now) != 1 || !now[0].Answer.Again {
		t.Fatalf("answered %+v, want that w asks again", now)
	}
	w.Receive(clk, &now[0].Answer)
	sync(1, true)
	if _, wr = p.Begin(clk, true); wr == nil {
		t.Fatal("no write frees the end")
	}
	if got, _ = p.Confirm(clk); len(got) != 1 || got[0].Answer.Granted != 2 {
		t.Errorf("w has said that the stay is over and got %+v, want its slot", got)
	}
}
