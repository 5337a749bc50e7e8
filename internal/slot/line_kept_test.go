package slot

import (
	"testing"
	"time"
)

// grownBack returns a line with tickets 10 to 19 from before a restart at 100 s. None has polled
// yet, and each may be silent for grace. Ticket 4 was late then.
func grownBack(t *testing.T, grace time.Duration) *Line {
	t.Helper()
	l, err := RestoreLine(Restored{
		At: 100 * sec, Oldest: 40 * sec, Frontier: 10, Next: 20, Hold: minute5,
		Grace: func(uint64) time.Duration { return grace }, Skipped: []Run{{4, 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wantOf calls with free slots, as a host does, and returns how many are left.
func wantOf(t *testing.T, l *Line, now Time, free int, want ...uint64) int {
	t.Helper()
	for _, w := range want {
		if n, ok := l.CallOf(now, free); n != w || !ok {
			t.Fatalf("%d is called of %d free, want %d", n, free, w)
		}
		free--
	}
	if n, ok := l.CallOf(now, free); ok {
		t.Fatalf("%d is called of %d free, want nobody", n, free)
	}
	return free
}

// While there are enough slots, nobody waits for tickets that have not polled yet. Those get their
// slots when they poll, in any order.
func TestLineKeepsASlotForWhoWasNotHeard(t *testing.T) {
	l := grownBack(t, 30*time.Second)
	for _, n := range []uint64{11, 13, 16} {
		l.Polled(n, 102*sec, 10*time.Second)
	}
	free := wantOf(t, l, 103*sec, 4, 11, 13) // of the two slots left, one is for 10 and one for 12
	if free != 2 || l.Kept() != 2 || l.Late() != 1 {
		t.Fatalf("%d are free, %d kept, %d late; want 2, 2, 1", free, l.Kept(), l.Late())
	}
	wantStatus(t, l, 10, TicketWaiting)
	l.Polled(4, 104*sec, 10*time.Second) // late before the restart: no slot was kept for it
	wantOf(t, l, 104*sec, free)
	l.Polled(12, 105*sec, 10*time.Second)
	free = wantOf(t, l, 105*sec, free, 12)
	l.Polled(10, 106*sec, 10*time.Second)
	free = wantOf(t, l, 106*sec, free, 10)
	if free != 0 || l.Kept() != 0 {
		t.Fatalf("%d are free, %d kept", free, l.Kept())
	}
	wantOf(t, l, 107*sec, 1, 4) // and now in the order of before
	wantOf(t, l, 107*sec, 1)
	wantOf(t, l, 107*sec, 3, 16) // 14 and 15 may still be on time
}

// A slot is kept as long as its ticket may be silent, then any ticket may get it.
func TestLineKeepsASlotForTheGrace(t *testing.T) {
	l := grownBack(t, 30*time.Second)
	for n := uint64(11); n < 16; n++ {
		l.Polled(n, 129*sec, 10*time.Second)
	}
	free := wantOf(t, l, 130*sec-1, 3, 11, 12)
	wantOf(t, l, 130*sec-1, free)
	free = wantOf(t, l, 130*sec, free, 13)
	wantStatus(t, l, 10, TicketLate)
	l.Polled(10, 131*sec, 10*time.Second)
	wantOf(t, l, 131*sec, free)
	wantOf(t, l, 131*sec, 1, 10) // first, as always
}

// If slots are lost meanwhile, the lowest tickets get the rest.
func TestLineKeptSlotsThatAreLost(t *testing.T) {
	l := grownBack(t, 30*time.Second)
	l.Polled(13, 102*sec, 10*time.Second)
	l.Polled(14, 102*sec, 10*time.Second)
	wantOf(t, l, 103*sec, 4, 13) // three kept
	l.Polled(12, 104*sec, 10*time.Second)
	wantOf(t, l, 104*sec, 2) // a lower limit
	l.Polled(11, 104*sec, 10*time.Second)
	wantOf(t, l, 104*sec, 2, 11)
	wantOf(t, l, 104*sec, 2, 12)
}

// A ticket that has polled and cannot be called yet keeps its slot while it is present, also beyond
// the grace and over a pause in which no poll could arrive.
func TestLineKeepsTheSlotOfWhoHasSpoken(t *testing.T) {
	l := grownBack(t, 5*time.Second)
	l.Polled(11, 102*sec, 10*time.Second)
	wantOf(t, l, 103*sec, 2, 11)
	l.Polled(10, 104*sec, 10*time.Second) // present until 129 s
	l.Polled(4, 104*sec, 10*time.Second)
	l.Expire(128*sec, 1)
	wantStatus(t, l, 10, TicketWaiting)
	l.ForgetPolls(128*sec, func(uint64) time.Duration { return 5 * time.Second })
	wantOf(t, l, 140*sec, 1)
	l.Polled(4, 150*sec, 10*time.Second)
	l.Polled(10, 150*sec, 10*time.Second)
	wantOf(t, l, 150*sec, 1, 10)
	wantOf(t, l, 150*sec, 1, 4)
}

// No slot is kept beyond a bound, for numbers that were perhaps never issued, or in a line with one
// slot.
func TestLineKeepsSlotsForNoMoreThanItMay(t *testing.T) {
	l, err := RestoreLine(Restored{At: 100 * sec, Frontier: 1, Next: 6000, Hold: minute5,
		Grace: func(uint64) time.Duration { return time.Minute }})
	if err != nil {
		t.Fatal(err)
	}
	l.Polled(5999, 101*sec, time.Minute)
	wantOf(t, l, 102*sec, 1)
	if l.Kept() != 0 {
		t.Errorf("%d slots are kept of one", l.Kept())
	}
	wantOf(t, l, 102*sec, 1<<30)
	if l.Kept() != mostKept {
		t.Errorf("%d slots are kept, want %d", l.Kept(), mostKept)
	}
	l, err = RestoreLine(Restored{At: 100 * sec, Frontier: 1, Next: 10, Issued: 5, Hold: minute5,
		Grace: func(uint64) time.Duration { return time.Minute }, UnconfirmedGrace: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	l.Polled(9, 101*sec, time.Minute)
	wantOf(t, l, 102*sec, 100)
	if l.Kept() != 4 {
		t.Errorf("%d slots are kept, want 4", l.Kept())
	}
	wantOf(t, l, 105*sec, 100, 9)
}

// With lanes no slot is kept, not even one kept before there were lanes.
func TestNoSlotIsKeptBesideLanes(t *testing.T) {
	m := newModelLines(t)
	for range 9 { // ten with the first
		m.join(0)
	}
	m.restart(time.Hour, time.Minute)
	m.lines.Ordinary().restored.UnconfirmedGrace = 0 // grace of numbers never issued: it ends first
	m.seen(2)
	if n, ok := m.lines.CallOf(m.now, 5); n != 2 || !ok {
		t.Fatalf("%d is called, want 2", n)
	}
	m.seen(6)
	if n, ok := m.lines.CallOf(m.now, 4); ok || m.lines.Ordinary().Kept() != 3 {
		t.Fatalf("%d is called; %d slots are kept, want 3", n, m.lines.Ordinary().Kept())
	}
	m.setLanes([]Lane{{"a", 50}})
	m.join(1)
	m.join(1)
	n, ok := m.lines.CallOf(m.now, 4)
	if kept := m.lines.Ordinary().Kept(); ok || kept != 0 {
		t.Fatalf("%d is called of the ordinary line, which is held up; %d slots are kept", n, kept)
	}
	wantStatus(t, m.lines.Ordinary(), 1, TicketLate)
	m.seen(1)
	if n, ok := m.lines.CallOf(m.now, 4); n != 1 || !ok { // first, as always
		t.Fatalf("%d is called, want 1", n)
	}
	if n, ok := m.lines.CallOf(m.now, 3); !ok || LaneIndex(n) != 1 {
		t.Fatalf("%d is called in the turn of the lane", n)
	}
}
