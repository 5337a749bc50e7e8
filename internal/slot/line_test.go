package slot

import (
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	sec     = Time(time.Second)
	minute5 = 5 * time.Minute
)

// joined makes a line of n tickets from number 1 on, all present at 0 with an interval of 2
// seconds.
func joined(n int) *Line {
	l := NewLine(1)
	for range n {
		l.Join(0, 2*time.Second, minute5)
	}
	return l
}

// callAll calls until no ticket is left to call.
func callAll(l *Line, now Time) (called []uint64) {
	for {
		n, ok := l.Call(now)
		if !ok {
			return called
		}
		called = append(called, n)
	}
}

func wantCalled(t *testing.T, l *Line, now Time, want ...uint64) {
	t.Helper()
	if diff := cmp.Diff(want, callAll(l, now)); diff != "" {
		t.Fatalf("called at %v s (-want +got):\n%s", now/sec, diff)
	}
}

func wantStatus(t *testing.T, l *Line, n uint64, want TicketStatus) {
	t.Helper()
	if got := l.Status(n); got != want {
		t.Fatalf("ticket %d is %v, want %v", n, got, want)
	}
}

func TestLineCallsInOrder(t *testing.T) {
	l := joined(3)
	wantCalled(t, l, 0, 1, 2, 3)
	if l.Frontier() != 4 || l.End() != 4 {
		t.Fatalf("frontier %d, end %d, want 4, 4", l.Frontier(), l.End())
	}
}

// One lost poll and the jitter of the next must not cost a visitor its turn.
func TestLineWhoPollsOnTimeIsNotOvertaken(t *testing.T) {
	for _, interval := range []time.Duration{
		time.Millisecond, time.Second, 1100 * time.Millisecond, 7 * time.Second,
		30 * time.Second, 120 * time.Second, time.Hour,
	} {
		for _, seen := range []Time{0, 1, sec/16 - 1, sec / 3, 1000 * sec} {
			l := NewLine(1)
			l.Join(0, time.Second, 24*time.Hour)
			l.Join(0, time.Second, 24*time.Hour)
			l.Polled(1, seen, interval)
			now := seen.Add(interval * 5 / 2)
			l.Polled(2, now, interval)
			if n, _ := l.Call(now); n != 1 {
				t.Errorf("interval %v, seen at %d: 1 was on time and %d was called", interval, seen, n)
			}
		}
	}
}

// Two tabs of a browser share a ticket and get different intervals because one polled long ago. The
// intervals of the second tab do not make the first one late.
func TestLineATabThatAsksOftenDoesNotMakeTheOtherLate(t *testing.T) {
	l := joined(2)
	l.Polled(1, 10*sec, 8*time.Second)
	for i := range Time(6) { // the other tab, which is closed then
		l.Polled(1, (11+i)*sec, time.Second/2)
	}
	l.Polled(2, 18*sec, time.Second)
	if n, _ := l.Call(18 * sec); n != 1 {
		t.Errorf("%d is called, want 1", n)
	}

	l = joined(2)
	l.Polled(1, 10*sec, 8*time.Second)
	for i := range Time(1000) { // however often it polls, up to 25.6 s: present for at most 20 s more
		l.Polled(1, 10*sec+i*sec/64, time.Second/2)
	}
	l.Polled(2, 46*sec, time.Second)
	wantCalled(t, l, 46*sec, 2)
}

func TestLineAbsentIsSkippedNotDropped(t *testing.T) {
	l := joined(3)
	l.Polled(2, 10*sec, 2*time.Second)
	wantCalled(t, l, 10*sec, 2)
	wantStatus(t, l, 1, TicketLate)
	if got, want := slices.Collect(l.Skipped()), []Run{{1, 3}}; !slices.Equal(got, want) {
		t.Fatalf("skipped %v, want %v: a called ticket is not used yet", got, want)
	}
	l.Use(2)
	if got, want := slices.Collect(l.Skipped()), []Run{{3, 1}, {1, 1}}; !slices.Equal(got, want) {
		t.Fatalf("skipped %v, want %v", got, want)
	}
	if l.Len() != 2 || l.Late() != 2 || l.Called() != 0 {
		t.Fatalf("len %d, late %d, called %d, want 2, 2, 0", l.Len(), l.Late(), l.Called())
	}
}

func TestLineReturningAbsentIsCalledFirst(t *testing.T) {
	l := joined(6)
	for n := uint64(5); n <= 6; n++ {
		l.Polled(n, 10*sec, 2*time.Second)
	}
	if n, _ := l.Call(10 * sec); n != 5 {
		t.Fatalf("called %d, want 5", n)
	}
	for _, n := range []uint64{4, 2} {
		if got := l.Polled(n, 11*sec, 2*time.Second); got != TicketLate {
			t.Fatalf("%d is %v when it speaks again, want late", n, got)
		}
	}
	if diff := cmp.Diff([]uint64{2, 4, 6}, slices.Collect(l.Next(11*sec, 9))); diff != "" {
		t.Fatalf("next (-want +got):\n%s", diff)
	}
	wantCalled(t, l, 11*sec, 2, 4, 6)
}

func TestLineWhoReturnsAndFallsSilentIsLateAgain(t *testing.T) {
	l := joined(2)
	callAll(l, 10*sec)
	l.Polled(1, 10*sec, 2*time.Second)
	wantCalled(t, l, 20*sec)
	l.Polled(1, 21*sec, 2*time.Second)
	wantCalled(t, l, 21*sec, 1)
}

// TestLineDeferredCallComesBehindOthers checks that a deferred ticket is called again when nobody
// else is present, and with each tenth call.
func TestLineDeferredCallComesBehindOthers(t *testing.T) {
	l := NewLine(1)
	for range 30 {
		l.Join(0, time.Minute, time.Hour)
	}
	for n := range uint64(3) {
		if got, ok := l.Call(sec); got != n+1 || !ok {
			t.Fatalf("%d is called, want %d", got, n+1)
		}
		if !l.Defer(n+1, 2*sec) || l.Defer(n+1, 2*sec) || l.Status(n+1) != TicketLate {
			t.Fatalf("ticket %d is %v after it did not come", n+1, l.Status(n+1))
		}
		if l.Polled(n+1, 3*sec, time.Minute) != TicketLate {
			t.Fatalf("ticket %d is %v when it speaks again", n+1, l.Status(n+1))
		}
	}
	var order []uint64
	for n, ok := l.Call(4 * sec); ok; n, ok = l.Call(4 * sec) {
		order = append(order, n)
		l.Use(n)
	}
	want := []uint64{4, 5, 6, 7, 8, 9, 1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 2, 19, 20, 21, 22, 23, 24,
		25, 26, 27, 3, 28, 29, 30}
	if !slices.Equal(order, want) {
		t.Errorf("called %v, want %v", order, want)
	}
	if l.Len() != 0 || l.Late() != 0 {
		t.Errorf("%d places and %d late are left", l.Len(), l.Late())
	}
	l.Join(5*sec, time.Minute, time.Hour)
	if n, ok := l.Call(5 * sec); n != 31 || !ok || !l.Defer(31, 6*sec) {
		t.Fatal("the only one is not called")
	}
	if _, ok := l.Call(6 * sec); ok {
		t.Error("called again before it has spoken")
	}
	l.Polled(31, 7*sec, time.Minute)
	if n, ok := l.Call(7 * sec); n != 31 || !ok {
		t.Errorf("%d is called, %v: nobody else is there", n, ok)
	}
}

// TestLineDeferredTicketsCountAsATenth checks that positions count only as many deferred tickets
// ahead as have a call before theirs.
func TestLineDeferredTicketsCountAsATenth(t *testing.T) {
	l := NewLine(1)
	for range 60 {
		l.Join(0, time.Minute, time.Hour)
	}
	for n := range uint64(40) {
		l.Call(sec)
		l.Defer(n+1, 2*sec)
	}
	for number, want := range map[uint64]int64{1: 1, 40: 2, 41: 2, 49: 10, 50: 12, 60: 23} {
		if p, ok := l.Position(number); p != want || !ok {
			t.Errorf("position of %d is %d, want %d", number, p, want)
		}
	}
	for n := range uint64(39) {
		l.Leave(n + 1)
	}
	if p, _ := l.Position(60); p != 21 {
		t.Errorf("position behind one deferred ticket is %d, want 21", p)
	}
}

func TestLineLapsedCallIsLateUntilItSpeaks(t *testing.T) {
	l := joined(2)
	l.Call(0)
	if l.Polled(1, sec, 2*time.Second) != TicketCalled || !l.Lapse(1, 2*sec) || l.Lapse(1, 2*sec) {
		t.Fatal("a called ticket lapses once")
	}
	wantStatus(t, l, 1, TicketLate)
	wantCalled(t, l, 2*sec, 2)
	l.Polled(1, 3*sec, 2*time.Second)
	wantCalled(t, l, 3*sec, 1)
}

func TestLineTicketIsUsedOnce(t *testing.T) {
	l := joined(3)
	if l.Use(1) {
		t.Fatal("used without a call")
	}
	l.Call(0)
	if !l.Use(1) || l.Use(1) || l.Lapse(1, 0) {
		t.Fatal("a called ticket is used once")
	}
	if got := l.Polled(1, sec, time.Second); got != TicketUsed || l.Status(1) != TicketUsed {
		t.Fatalf("a used ticket that polls is %v, want used", got)
	}
	wantCalled(t, l, sec, 2, 3)
	r := Restored{At: sec, Frontier: l.Frontier(), Next: l.End(), Hold: minute5}
	r.Skipped = l.AppendSkipped(nil, skippedBytes)
	l, err := RestoreLine(r)
	if err != nil {
		t.Fatal(err)
	}
	if l.Status(1) != TicketUsed || l.Polled(1, sec, time.Second) != TicketUsed {
		t.Fatal("a used ticket is new after a restart")
	}
}

func TestLineHoldEnds(t *testing.T) {
	l := NewLine(1)
	l.Join(0, 2*time.Second, minute5)
	l.Join(0, 2*time.Second, 15*time.Minute)
	l.Join(0, 2*time.Second, 15*time.Minute)
	l.Call(0)
	at := Time(minute5)
	if got := l.Expire(at, 10); got != 0 {
		t.Fatalf("%d dropped at the end of their hold, want none before it is over", got)
	}
	at += Time(minute5)/16 + sec
	if got := l.Expire(at, 10); got != 0 {
		t.Fatal("a called ticket was dropped: its slot would be lost")
	}
	l.Lapse(1, at)
	wantStatus(t, l, 1, TicketUsed)
	if p, ok := l.Position(2); p != 1 || !ok {
		t.Fatalf("position %d, %v, want 1", p, ok)
	}
	at = Time(16 * time.Minute)
	if got := l.Polled(2, at, time.Second); got != TicketGone {
		t.Fatalf("seen after its hold: %v, want gone", got)
	}
	wantCalled(t, l, at)
	wantStatus(t, l, 3, TicketUsed)
	if l.Len() != 0 {
		t.Fatalf("len %d, want 0", l.Len())
	}
}

// A visitor with an interval longer than its hold keeps its place.
func TestLineObedienceKeepsThePlace(t *testing.T) {
	l := NewLine(1)
	l.Join(0, 2*time.Minute, time.Second)
	if l.Expire(Time(5*time.Minute), 1) != 0 {
		t.Fatal("dropped while it did what it was told")
	}
	wantCalled(t, l, Time(5*time.Minute), 1)
}

func TestLinePositionNeverRises(t *testing.T) {
	l := joined(5)
	l.Call(0)
	l.Call(0)
	wantPosition := func(what string, want int64) {
		t.Helper()
		if got, ok := l.Position(5); got != want || !ok {
			t.Fatalf("%s: position %d, %v, want %d", what, got, ok, want)
		}
	}
	wantPosition("two are called, none is in", 5)
	l.Lapse(2, 0)
	wantPosition("a call lapsed", 5)
	l.Use(1)
	wantPosition("one went in", 4)
	l.Leave(3)
	wantPosition("one left", 3)
	l.Polled(5, 10*sec, 2*time.Second)
	wantCalled(t, l, 10*sec, 5)
	wantPosition("called past two absent ones", 3)
	l.Polled(2, 10*sec, 2*time.Second)
	wantPosition("an absent one is back", 3)
}

func TestLineLeaveTellsWhatItWas(t *testing.T) {
	l := joined(4)
	l.Call(0)
	for n, want := range map[uint64]TicketStatus{
		0: TicketUsed, 1: TicketCalled, 3: TicketWaiting, 5: TicketUnknown,
	} {
		if got := l.Leave(n); got != want {
			t.Errorf("leave %d: was %v, want %v", n, got, want)
		}
	}
	if l.Leave(3) != TicketGone || l.Leave(1) != TicketUsed || l.Called() != 0 {
		t.Error("a place is given up once")
	}
	wantCalled(t, l, 0, 2, 4)
}

func TestLineExpireGoesOnWhereItStopped(t *testing.T) {
	l := joined(10)
	now := Time(time.Hour)
	for n := uint64(1); n <= 10; n += 3 { // 1, 4, 7 and 10 stay
		l.Polled(n, 0, time.Hour)
	}
	for i, want := range []int{2, 3, 1, 0, 0} {
		if got := l.Expire(now, 4); got != want {
			t.Fatalf("sweep %d dropped %d, want %d", i, got, want)
		}
	}
	if l.Len() != 4 {
		t.Fatalf("len %d, want 4", l.Len())
	}
}

func TestLineOldestIsWhoWouldBeCalled(t *testing.T) {
	l := NewLine(1)
	if _, ok := l.Oldest(0); ok {
		t.Fatal("an empty line has an oldest")
	}
	for i := range Time(200) {
		l.Join(i*sec, 2*time.Second, time.Hour)
	}
	for _, n := range []uint64{1, 64, 65, 130, 200} {
		l.Polled(n, 300*sec, time.Minute)
	}
	for _, n := range []Time{1, 64, 65, 130, 200} {
		if got, ok := l.Oldest(300 * sec); !ok || got != (n-1)*sec {
			t.Fatalf("oldest %v, %v, want %v", got, ok, (n-1)*sec)
		}
		l.Call(300 * sec)
	}
	l.Polled(100, 300*sec, time.Minute)
	if got, _ := l.Oldest(300 * sec); got != 99*sec {
		t.Fatalf("oldest %v, want that of the late one, %v", got, 99*sec)
	}
}

func restored(t *testing.T, grace func(uint64) time.Duration) *Line {
	t.Helper()
	l, err := RestoreLine(Restored{
		At: 100 * sec, Oldest: 40 * sec, Frontier: 10, Next: 20, Hold: minute5, Grace: grace,
		Skipped: []Run{{8, 1}, {3, 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLineUnheardBlocksForItsGrace(t *testing.T) {
	l := restored(t, func(distance uint64) time.Duration {
		return 2*time.Second + time.Duration(distance)*time.Second
	})
	if l.Len() != 13 || l.Late() != 3 {
		t.Fatalf("len %d, late %d, want 13, 3", l.Len(), l.Late())
	}
	l.Polled(4, 100*sec, time.Minute)
	l.Polled(10, 100*sec, time.Minute)
	l.Polled(12, 100*sec, time.Minute)
	l.Polled(14, 100*sec, time.Minute)
	wantCalled(t, l, 101*sec, 4, 10)
	if oldest, ok := l.Oldest(101 * sec); oldest != 40*sec || !ok {
		t.Fatalf("oldest %v, %v, want that of the record, 40 s", oldest/sec, ok)
	}
	wantCalled(t, l, 103*sec-1)
	wantCalled(t, l, 103*sec, 12) // 11 was 1 from the frontier: 3 s
	wantStatus(t, l, 11, TicketLate)
	wantCalled(t, l, 104*sec)
	wantCalled(t, l, 105*sec, 14)
	l.Polled(11, 106*sec, time.Second)
	if n := l.Join(106*sec, time.Second, minute5); n != 20 {
		t.Fatalf("joined as %d, want 20", n)
	}
	wantCalled(t, l, 106*sec, 11)
	wantCalled(t, l, 250*sec)
	l.Expire(Time(time.Hour), 100)
	if l.Len() != l.Called() {
		t.Fatalf("%d of %d places are called: the unheard keep theirs for ever", l.Called(), l.Len())
	}
}

func TestLineRestoredWithoutGraceBlocksNobody(t *testing.T) {
	l := restored(t, nil)
	l.Polled(19, 100*sec, time.Minute)
	if oldest, ok := l.Oldest(100 * sec); oldest != 40*sec || !ok {
		t.Fatalf("oldest %v, %v, want that of the record, 40 s", oldest/sec, ok)
	}
	wantCalled(t, l, 100*sec, 19)
	for n, want := range map[uint64]TicketStatus{
		2: TicketUsed, 3: TicketLate, 5: TicketUsed, 7: TicketUsed, 8: TicketLate,
		9: TicketUsed, 10: TicketLate, 19: TicketCalled, 20: TicketUnknown,
	} {
		wantStatus(t, l, n, want)
	}
}

func TestLineRestoredWithoutOldestArrivesNow(t *testing.T) {
	l, err := RestoreLine(Restored{At: 100 * sec, Frontier: 1, Next: 2, Hold: minute5})
	if err != nil {
		t.Fatal(err)
	}
	l.Polled(1, 101*sec, time.Second)
	if oldest, ok := l.Oldest(101 * sec); oldest != 100*sec || !ok {
		t.Fatalf("oldest %v, %v, want 100 s", oldest/sec, ok)
	}
}

func TestLineDamagedRecordsAreRefused(t *testing.T) {
	for name, r := range map[string]Restored{
		"next below frontier": {Frontier: 10, Next: 9},
		"too many":            {Frontier: 1, Next: math.MaxUint64},
		"too many skipped":    {Frontier: 1 << 40, Next: 1 << 40, Skipped: []Run{{1, 1<<40 - 1}}},
		"above the frontier":  {Frontier: 10, Next: 20, Skipped: []Run{{9, 2}}},
		"out of order":        {Frontier: 10, Next: 20, Skipped: []Run{{2, 1}, {4, 1}}},
		"an empty run":        {Frontier: 10, Next: 20, Skipped: []Run{{2, 0}}},
		"a run that overflows": {Frontier: 10, Next: 20,
			Skipped: []Run{{2, math.MaxUint64}}},
	} {
		if l, err := RestoreLine(r); err == nil || !strings.Contains(err.Error(), "restore it") {
			t.Errorf("%s: %v, %v, want an error that says what to do", name, l, err)
		}
	}
	for _, b := range []string{
		"\x01", "\x80", "\x00\x00", "\x00\x01", "\x01\x01\xf6\x07\x01", "\x00\x01\xf5\x07\x01",
		"\x00\x01\xf6\x07\x00", "\x00\x01\xf6\x07\x0b", "\x00\x02\xf6\x07\x01\x09\x01",
		"\x00\x01\xf6\x07\x01\x00\x01\xf6\x07\x01", "\x00\x00" + strings.Repeat("\x00", 128),
		"\x00\x00\x00\x04" + strings.Repeat("\x00", 126), "\x00\xff\xff\xff\xff\x0f",
	} {
		if runs, err := ParseRuns([]byte(b), 10); err == nil {
			t.Errorf("%q is read as %v", b, runs)
		}
	}
}

// A run from years ago must not make a restored line as long as those years.
func TestLineForgetsSkippedOutOfReach(t *testing.T) {
	l, err := RestoreLine(Restored{
		Frontier: 1 << 50, Next: 1<<50 + 1, Skipped: []Run{{1<<50 - 2, 1}, {5, 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, l, 5, TicketUsed)
	wantStatus(t, l, 1<<50-2, TicketLate)
}

func TestLineForgetsTheOldestSkippedFirst(t *testing.T) {
	l := joined(60_000)
	for n := uint64(2); n <= 60_000; n += 2 {
		l.Leave(n)
	}
	callAll(l, 100*sec)
	runs := l.AppendSkipped(nil, 1000)
	written := AppendRuns(nil, l.Frontier(), runs)
	if len(written) > 1000 || len(written) < 900 {
		t.Fatalf("%d bytes are written of 1000", len(written))
	}
	if last := runs[len(runs)-1]; runs[0] != (Run{59_999, 1}) || last != (Run{53_249, 1}) {
		t.Fatalf("runs from %v down to %v, want 59999 to 53249", runs[0], last)
	}
	if all := l.AppendSkipped(nil, skippedBytes); len(all) != 30_000 {
		t.Fatalf("%d runs in 64 KB, want 30000", len(all))
	}
}

// Chunks without live places are freed, even when an old ticket before them still polls.
func TestLineFreesDeadChunks(t *testing.T) {
	l := NewLine(0)
	for now := range Time(500) {
		for range lineSize {
			l.Join(now*sec, time.Second, time.Minute)
		}
		l.Polled(0, now*sec, time.Second)
		for l.Len() > 2*lineSize {
			n, _ := l.Call(now * sec)
			if n != 0 {
				l.Use(n)
			} else if l.Lapse(0, now*sec); l.Len() > 2*lineSize {
				n, _ = l.Call(now * sec)
				l.Use(n)
			}
		}
	}
	alive := 0
	for _, c := range l.chunks {
		if c != nil {
			alive++
		}
	}
	if alive > 4 {
		t.Errorf("%d chunks are kept for %d places", alive, l.Len())
	}
	full := NewLine(0)
	for range lineSize {
		full.Join(0, time.Second, time.Minute)
	}
	for n := range uint64(lineSize) {
		full.Leave(n)
	}
	if full.chunks[0] != nil {
		t.Error("a chunk is kept whose last place was the line's last")
	}
	l.Leave(0)
	for l.Len() > 0 {
		n, _ := l.Call(499 * sec)
		l.Use(n)
	}
	if len(l.chunks) > 128 {
		t.Errorf("%d pointers are kept for no place", len(l.chunks))
	}
	if n := l.Join(500*sec, time.Second, time.Minute); n != 500*lineSize {
		t.Errorf("joined as %d, want %d", n, 500*lineSize)
	}
	wantCalled(t, l, 500*sec, 500*lineSize)
}

func TestLineSpanRoundsUp(t *testing.T) {
	for d := time.Duration(1); d < 8*time.Hour; d += 1 + d/97 {
		got := time.Duration(newLineSpan(d).ticks()) * lineTick
		if got < d || got > d+d/16+lineTick {
			t.Fatalf("%v is kept as %v", d, got)
		}
	}
	for code := 1; code < 256; code++ {
		s := lineSpan(code)
		if got := newLineSpan(time.Duration(s.ticks()) * lineTick); got != s {
			t.Fatalf("span %d comes back as %d", s, got)
		}
	}
	for _, d := range []time.Duration{-1, 0, math.MaxInt64} {
		if newLineSpan(d) == 0 {
			t.Errorf("%v is kept as unheard", d)
		}
	}
	if newLineSpan(math.MaxInt64) != 255 || presence(math.MaxInt64) != 255 {
		t.Error("the longest span is not kept as the longest")
	}
}

// A clock that stands still or steps back must not lose or invent anything.
func TestLineClockStepsBack(t *testing.T) {
	l := NewLine(1)
	l.Join(100*sec, time.Second, minute5)
	l.Join(50*sec, time.Second, minute5)
	l.Polled(1, 20*sec, time.Second)
	if oldest, ok := l.Oldest(0); oldest != 100*sec || !ok {
		t.Fatalf("oldest %v, %v", oldest/sec, ok)
	}
	wantCalled(t, l, 0, 1, 2)
	l.Lapse(1, 0)
	l.Lapse(2, 0)
	if got := l.Expire(500*sec, 10); got != 2 {
		t.Fatalf("%d holds ended, want 2", got)
	}
	l.Join(130*sec, time.Second, minute5)
	l.Join(110*sec, time.Second, minute5)
	l.Leave(3)
	if oldest, ok := l.Oldest(110 * sec); oldest != 130*sec || !ok {
		t.Fatalf("oldest %v, %v: arrived before the one ahead of it", oldest/sec, ok)
	}
}

func TestLineTenMillion(t *testing.T) {
	const n = 10_000_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	l := NewLine(1)
	start := time.Now()
	for i := range Time(n) {
		l.Join(i*100, 30*time.Second, minute5)
	}
	joins := time.Since(start)
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := float64(after.HeapAlloc-before.HeapAlloc) / n
	t.Logf("%.2f bytes a place, %.1f M joins/s", each, n/joins.Seconds()/1e6)
	if each > 16 {
		t.Errorf("%.2f bytes a place, want at most 16", each)
	}
	if p, ok := l.Position(n); p != n || !ok {
		t.Errorf("position of the last is %d, %v", p, ok)
	}
	for i := range uint64(n / 100) {
		if number, _ := l.Call(sec); number != i+1 || !l.Use(number) {
			t.Fatalf("call %d gives %d", i+1, number)
		}
	}
	runtime.KeepAlive(l)
}

func TestTicketStatusString(t *testing.T) {
	if got := TicketLate.String() + " " + TicketStatus(9).String(); got != "late TicketStatus(9)" {
		t.Error(got)
	}
}

// After a crash, numbers that were reserved ahead hold places until they poll or expire. The end of
// a number that was never issued does not count as an expired place.
func TestNumbersThatNobodyHadAreNoPlacesThatExpired(t *testing.T) {
	l := joined(2)
	l.Extend(8, 0, minute5) // 3 to 7
	if got := l.Polled(3, sec, 2*time.Second); got != TicketWaiting {
		t.Fatalf("who speaks is %v", got)
	}
	if got := l.Polled(5, 400*sec, 2*time.Second); got != TicketGone { // too late, but surely issued
		t.Fatalf("who speaks too late is %v", got)
	}
	if dropped := l.Expire(401*sec, 100); dropped != 6 {
		t.Errorf("%d places are dropped, want all that are left", dropped)
	}
	if got := l.Expired(); got != 4 {
		t.Errorf("%d places expired, want those of 1, 2, 3 and 5", got)
	}
}

// Oldest returns the arrival of the ticket that Call would call now, or that holds up the call. It
// is exact to a sixteenth of a second and never later than the truth. Where 64 joins took more than
// 68 minutes, it may be earlier by the time beyond that. For tickets from before a restart it
// returns Restored.Oldest.
func (l *Line) Oldest(now Time) (arrival Time, ok bool) {
	for n := range l.upcoming(now) {
		c, i := l.find(n)
		ticks := int64(c.born[i>>6]) + int64(c.places[i].born)
		return l.origin + Time(ticks*int64(lineTick)), true
	}
	return 0, false
}

// Kept returns the number of tickets for which a slot is kept.
func (l *Line) Kept() int { return len(l.kept) }

// skippedBytes is how many bytes of a record the skipped tickets may take (protocol §3, §8). It
// holds at least 10,000 runs, or each number of half a million.
const skippedBytes = 64 << 10

// A ticket that was heard keeps its place and is passed by. Polled makes it the next one.
func TestHeardIsNotCalled(t *testing.T) {
	l := NewLine(1)
	now := Time(0)
	for range 4 {
		n := l.JoinProvisional(now, time.Minute)
		l.Confirm(n, now)
		l.Polled(n, now, time.Second)
	}
	for range 100 { // hold is longer than each pause, and shorter than all of them
		now = now.Add(2 * time.Second)
		l.Heard(1, now)
		l.Heard(2, now)
		l.Polled(3, now, 2*time.Second)
		l.Polled(4, now, 2*time.Second)
		l.Expire(now, 10)
	}
	if n, ok := l.Call(now); n != 3 || !ok {
		t.Fatalf("%d is called, want the first that may be", n)
	}
	if s := l.Heard(2, now); s != TicketLate {
		t.Errorf("%v after its turn", s)
	}
	if s := l.Heard(3, now); s != TicketCalled {
		t.Errorf("%v, and it is called", s)
	}
	l.Polled(2, now, time.Second)
	l.Heard(2, now) // another copy of its cookie
	l.Polled(1, now, time.Second)
	for _, want := range []uint64{1, 4} {
		if n, ok := l.Call(now); n != want || !ok {
			t.Errorf("%d is called, want %d", n, want)
		}
	}
	if n, ok := l.Call(now); ok {
		t.Errorf("%d is called", n)
	}
	if p, ok := l.Position(2); p != 2 || !ok {
		t.Errorf("place %d %v", p, ok)
	}
}
