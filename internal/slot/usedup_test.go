package slot

import (
	"testing"
	"time"
)

// Repeated claims of a ticket get the same session until its pass has come back. Then no claim gets
// a session, from this host or the next one, and the slot is used once.
func TestAClaimIsUsedUpWhenThePassHasComeBack(t *testing.T) {
	p := serving(Params{}, NewRecord(1, nil, Limit{AtOnce, 2, time.Minute}), 0)
	clk := time.Duration(0)
	write := func(p *Pool) []ClaimReply {
		t.Helper()
		clk += time.Second
		if _, wr := p.Begin(clk, true); wr == nil {
			t.Fatal("no write")
		}
		_, claims := p.Confirm(clk)
		return claims
	}
	p.Call(0)
	p.Claim(clk, 7, 0, 0)
	end := write(p)[0].End
	p.ClaimAgain(clk, 7, 0, 0)
	if again := write(p)[0].End; again != end || end == 0 {
		t.Fatalf("the same claim ends at %v and %v", end, again)
	}
	if _, used := p.UsedUp(clk, 7); used {
		t.Fatal("used up before the pass has come back")
	}
	at := p.CounterTime(clk)
	p.Receive(&Sync{Loan: 1, Seq: Seq{0, 1}, Items: []Item{
		{Op: Renew, ID: 8, From: end, At: at, Use: at}, // of a session without a claimed ticket
		{Op: Renew, ID: 7, From: end, At: at, Use: at},
	}})
	write(p)
	b, err := p.rec.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	var read Record
	if err := read.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	next := serving(Params{}, &read, clk)
	for name, p := range map[string]*Pool{"this host": p, "the next host": next} {
		left, used := p.UsedUp(clk, 7)
		if !used || left > claimKept || left < claimKept-5*time.Second {
			t.Errorf("%s: used up %v, remembered for %v", name, used, left)
		}
		p.ClaimAgain(clk, 7, 0, 0)
		if again := write(p); len(again) != 1 || again[0].End != 0 {
			t.Errorf("%s answers a copy with %+v", name, again)
		}
	}
	clk += claimKept
	write(p)
	if _, used := p.UsedUp(clk, 7); used || len(p.rec.Claimed) > 0 {
		t.Error("remembered for ever")
	}
}
