package counter

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// afterCrash returns a host that has just taken over, at one hour of its clock. Its line has six
// tickets that have not polled since; each may be silent for half a minute. The tickets below the
// frontier were late.
func afterCrash(
	t *testing.T, active, perMinute int64, up *slot.ParentLoan, frontier uint64,
) (*Core, time.Duration) {
	t.Helper()
	limits := [2]slot.Limit{
		{Kind: slot.AtOnce, N: active, Per: 5 * time.Minute},
		{Kind: slot.PerWindow, N: perMinute, Per: time.Minute},
	}
	r := slot.NewRecord(7, up, limits[:]...)
	r.Next, r.Issued, r.Waiting, r.Name.Epoch = 7, 7, true, 1
	if r.Frontier = frontier; frontier > 1 {
		r.Skipped = []slot.Run{{First: 1, N: frontier - 1}}
	}
	d := NewCore(Config{
		Room: "shop", Host: "b", Settings: Settings{
			Active: limits[0], New: limits[1], Spread: true,
			Line: LineConfig{
				MaxWaiting: 1000, PollMin: 10 * time.Second, PollMax: 10 * time.Second,
				Hold: time.Hour, CallHold: time.Minute,
			},
		},
		Random: func() float64 { return 0.5 },
	}, r, false, func() {})
	clk := time.Hour
	d.TakeOver(clk)
	if err := d.Begin(clk); err != nil {
		t.Fatal(err)
	}
	return d, clk
}

// runs lets time pass, in which the host looks and writes.
func (d *Core) runs(clk *time.Duration, to time.Duration) {
	for *clk < to {
		*clk = min(to, *clk+100*time.Millisecond)
		d.CallNext(*clk)
		if _, wr := d.Build(*clk, false); wr != nil {
			d.Stored(*clk)
		}
	}
}

// is polls with a ticket and returns its status.
func (d *Core) is(number uint64, clk time.Duration) slot.TicketStatus {
	d.place(number, clk, false)
	return d.line.Status(number)
}

// Calls are ten seconds apart. Other visitors are called past two that have not polled since a
// crash. These two are not called later for it: an earlier turn was theirs.
func TestWhoSpeaksAfterACrashHasTheTurnThatPassed(t *testing.T) {
	d, clk := afterCrash(t, 100, 6, nil, 1)
	began := clk
	for n := uint64(3); n <= 5; n++ {
		d.is(n, clk)
	}
	d.runs(&clk, began+3*time.Second)
	if d.is(3, clk) != slot.TicketCalled || d.is(4, clk) != slot.TicketWaiting {
		t.Fatal("nobody is called past who has not been heard, or more than one at once")
	}
	d.runs(&clk, began+13*time.Second) // the calls were 2 s and 11.5 s after the crash
	if d.is(4, clk) != slot.TicketCalled {
		t.Fatal("4 is not called in its turn")
	}
	if d.is(1, clk) != slot.TicketCalled {
		t.Fatal("1 has spoken and must wait for a turn")
	}
	d.is(5, clk)
	if got := d.is(2, clk); got != slot.TicketWaiting {
		t.Fatalf("2 is %v: a moment after 1", got)
	}
	d.runs(&clk, began+21400*time.Millisecond)
	if d.is(2, clk) == slot.TicketCalled {
		t.Fatal("2 is called less than a turn after 1")
	}
	d.runs(&clk, began+21700*time.Millisecond) // as if nobody had been called past it, or earlier
	if d.line.Status(2) != slot.TicketCalled {
		t.Fatal("2 has not had its turn")
	}
	d.runs(&clk, began+41400*time.Millisecond)
	if d.is(5, clk) == slot.TicketCalled {
		t.Fatal("the turns that passed are used twice")
	}
	d.runs(&clk, began+41700*time.Millisecond)
	if d.line.Status(5) != slot.TicketCalled {
		t.Fatal("5 has not had its turn")
	}
}

// Only a ticket that had not polled since the crash gets the turn that passed, and not one that was
// late before the crash.
func TestWhoWasLateBeforeACrashWaitsForATurn(t *testing.T) {
	d, clk := afterCrash(t, 100, 6, nil, 3)
	began := clk
	d.is(4, clk)
	d.runs(&clk, began+3*time.Second) // the next turn is 11.5 s after the crash
	for n, want := range map[uint64]slot.TicketStatus{4: slot.TicketCalled, 1: slot.TicketLate} {
		if got := d.is(n, clk); got != want {
			t.Fatalf("%d is %v, want %v", n, got, want)
		}
	}
	if got := d.is(3, clk); got != slot.TicketCalled {
		t.Errorf("3 is %v, and its turn has passed", got)
	}
	if got := d.is(1, clk); got != slot.TicketLate {
		t.Errorf("1 is %v between two turns", got)
	}
}

// Both limits must have a slot for each called ticket and for each ticket that has not polled
// since.
func TestASlotIsKeptOfBothLimits(t *testing.T) {
	for name, n := range map[string][2]int64{"users": {3, 600}, "minute": {100, 3}} {
		t.Run(name, func(t *testing.T) {
			d, clk := afterCrash(t, n[0], n[1], nil, 1)
			began := clk
			for n := uint64(3); n <= 6; n++ {
				d.is(n, clk)
			}
			d.runs(&clk, began+23*time.Second) // longer than one turn, and shorter than the grace
			for n, want := range map[uint64]slot.TicketStatus{
				3: slot.TicketCalled, 4: slot.TicketWaiting, 5: slot.TicketWaiting, 6: slot.TicketWaiting,
			} {
				if got := d.is(n, clk); got != want {
					t.Errorf("%d is %v, want %v", n, got, want)
				}
			}
			if d.is(2, clk) != slot.TicketCalled {
				t.Error("2 has spoken, and its slot is another's")
			}
		})
	}
}

// With several data centers, a slot is lent to the visitor that has waited longest in any of them,
// so none is kept.
func TestNoSlotIsKeptBelowAnywhere(t *testing.T) {
	for name, up := range map[string]*slot.ParentLoan{"alone": nil, "below": {Loan: 5, Granted: 10}} {
		t.Run(name, func(t *testing.T) {
			d, clk := afterCrash(t, 10, 600, up, 1)
			began := clk
			d.is(3, clk)
			d.runs(&clk, began+3*time.Second)
			if free := d.pool.FreeNow(clk); free < 9 {
				t.Fatalf("%d are free", free)
			}
			if is := d.is(3, clk); (is == slot.TicketCalled) != (up == nil) { // past 2, whose slot is kept
				t.Errorf("3 is %v", is)
			}
		})
	}
}
