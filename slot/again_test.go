package slot

import (
	"slices"
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

// The write of a claim takes longer than the stay it makes: nobody was told of it, so
// the place is not lost. The claim is made anew, and uses what the first one used.
func TestAClaimWhoseWriteOutlastsItsStayIsMadeAnew(t *testing.T) {
	p := serving(Params{}, NewRecord(1, nil, Limit{AtOnce, 1, 10 * time.Second},
		Limit{PerWindow, 1, time.Minute}), 0)
	p.Call(0)
	p.Claim(7, 0, false)
	p.Begin(1, false)
	if _, claims := p.Confirm(12 * time.Second); len(claims) != 0 {
		t.Fatalf("told %+v, of a stay that is over", claims)
	}
	for range 2 { // asked for again meanwhile, by a second request
		p.Claim(7, 0, true)
	}
	if _, wr := p.Begin(12*time.Second, false); wr == nil {
		t.Fatal("no write")
	}
	_, claims := p.Confirm(13 * time.Second)
	if len(claims) != 3 || claims[0].End < p.Tau(20*time.Second) || claims[0].Epoch == 0 {
		t.Errorf("told %+v: want a stay from now", claims)
	}
	for i, want := range []int64{1, 1} {
		if n := p.rec.Limits[i].Ends.Len(); n != want {
			t.Errorf("limit %d: %d entries, want %d", i, n, want)
		}
	}
	if n := p.FreeNow(13 * time.Second); n != 0 {
		t.Errorf("%d free of 1", n)
	}
}

// A claim waits for a slot: a visitor that was here longer than the record knew has taken it. Until the
// claim is written the record has the place, or it would be lost with the host (found by TestChaos, seed 9).
func TestAClaimThatWaitsKeepsItsPlaceInTheRecord(t *testing.T) {
	for name, place := range map[string]uint64{"ordinary": 7, "lane": firstOf(1) + 6} {
		t.Run(name, func(t *testing.T) {
			rec := NewRecord(1, nil, Limit{AtOnce, 1, 10 * time.Second})
			p := serving(Params{}, rec, 0)
			begin := func(clk time.Duration) *Record {
				t.Helper()
				p.PutLine(LinePart{Next: 20, Frontier: 10, Skipped: []Run{{8, 1}, {2, 3}},
					Lanes: []LanePart{{Next: firstOf(1) + 20, Frontier: firstOf(1) + 10}}})
				p.Begin(clk, true)
				p.Confirm(clk)
				return p.rec
			}
			has := func(r *Record) bool {
				runs := append(slices.Clone(r.Skipped), r.Lanes[0].Skipped...)
				return slices.ContainsFunc(runs, func(run Run) bool {
					return run.First <= place && place < run.First+run.N
				})
			}
			p.Call(0)
			p.Put(&Sync{Loan: 5, Borrower: "w", Seq: Seq{0, 1}, Items: []Item{
				{Op: Renew, ID: 1 << 63, From: p.Tau(5 * time.Second), At: p.Tau(time.Second)}}})
			begin(time.Second)
			p.ClaimPlace(StayID(place), place, 0)
			r := begin(2 * time.Second)
			if len(r.Claimed) > 0 || !has(r) {
				t.Fatalf("the room is full: claimed %v, skipped %v", r.Claimed, r.Skipped)
			}
			b, err := r.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			var read Record
			if err := read.UnmarshalBinary(b); err != nil || !has(&read) {
				t.Fatalf("read as %+v: %v", read, err)
			}
			if r = begin(time.Minute); len(r.Claimed) != 1 || has(r) {
				t.Errorf("claimed %v, skipped %v: a place admits twice", r.Claimed, r.Skipped)
			}
		})
	}
}
