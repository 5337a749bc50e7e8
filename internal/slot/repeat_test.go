package slot

import (
	"testing"
	"time"
)

// A claim that is answered again five seconds later admits its visitor then. Its window counts from
// then, even if the worker that admitted it dies before it reports this (found by a hunt:
// seed=910769).
func TestClaimAnsweredLateMovesItsWindow(t *testing.T) {
	active, fresh := Limit{AtOnce, 2, time.Minute}, Limit{PerWindow, 2, time.Minute}
	p := serving(Params{}, NewRecord(1, nil, active, fresh), time.Hour)
	clk := time.Hour + time.Second
	claim := func(again bool) ClaimReply {
		t.Helper()
		if again {
			p.ClaimAgain(clk, 7, 0, 0)
		} else {
			p.Claim(clk, 7, 0, 0)
		}
		if _, wr := p.Begin(clk, true); wr == nil {
			t.Fatal("no write")
		}
		_, claims := p.Confirm(clk)
		if len(claims) != 1 {
			t.Fatalf("%d answers to a claim", len(claims))
		}
		return claims[0]
	}
	if !p.Call(clk) {
		t.Fatal("not called")
	}
	first := claim(false)
	clk += time.Second
	if soon := claim(true); soon.Win != first.Win {
		t.Errorf("asked again within the wait: window to %v, first %v", soon.Win, first.Win)
	}
	clk += 5 * time.Second
	again := claim(true)
	if want := p.par.windowEnd(fresh, p.CounterTime(clk)); again.Win < want {
		t.Errorf("window to %v, want %v: a minute from the answer", again.Win, want)
	}
	if n, at := p.rec.Limits[1].Ends.Len(), p.rec.Limits[1].Ends.At(again.Win); n != 1 || at != 1 {
		t.Errorf("%d entries, %d where the answer says", n, at)
	}
	seen := Item{Op: Answered, From: again.Win, Use: p.CounterTime(clk).Add(time.Second)}
	p.Receive(&Sync{Loan: 5, Seq: Seq{0, 1}, Items: []Item{seen}})
	p.Begin(clk, true)
	p.Confirm(clk)
	clk += 5 * time.Second
	claim(true)
	if n := p.rec.Limits[1].Ends.Len(); n != 1 {
		t.Errorf("%d entries after a tab that asks a third time, want 1", n)
	}
}
