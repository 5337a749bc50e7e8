package slot

import (
	"testing"
	"time"
)

// A visitor enters by its ticket, the origin revokes the stay, the process dies.
// Who replays the ticket within 30 s must not get that stay: its slot is free.
func TestLeftStayIsNotClaimedAgainAfterARestart(t *testing.T) {
	p := serving(Params{}, NewRecord(1, nil, Limit{AtOnce, 1, time.Minute}), 0)
	p.Call(0)
	p.Claim(7, 0, false)
	p.Begin(1, false)
	_, claims := p.Confirm(1)
	p.Put(&Sync{Loan: 1, Seq: Seq{0, 1}, Items: []Item{{Op: Leave, ID: 7, From: claims[0].End}}})
	p.Begin(2, false)
	p.Confirm(2)
	if n := p.rec.Limits[0].Ends.Len(); n != 0 {
		t.Fatalf("%d inside after the leave", n)
	}
	next := serving(Params{}, p.rec.Clone(), 0)
	if end, ok := next.ClaimedBefore(7); ok {
		t.Errorf("the ticket of a stay that is over is answered with its end %v", end)
	}
}

// A claim is written, the process dies before the origin sees the visitor, who
// comes again to the next process: the origin sees it a moment later than the
// record says. Its window must run from there, so the reply must name the entry.
func TestRepeatedClaimMovesItsWindow(t *testing.T) {
	p := serving(Params{}, NewRecord(1, nil, Limit{AtOnce, 1, time.Minute},
		Limit{PerWindow, 1, time.Minute}), 0)
	p.Call(0)
	p.Claim(7, 0, false)
	p.Begin(1, false)
	p.Confirm(1)
	next := serving(Params{}, p.rec.Clone(), 0)
	next.Claim(7, 0, true)
	next.Begin(time.Duration(3*time.Second), false)
	_, claims := next.Confirm(3 * time.Second)
	if len(claims) != 1 || claims[0].Win == 0 {
		t.Errorf("%+v: nobody can move the window of a visitor seen 3 s later", claims)
	}
}
