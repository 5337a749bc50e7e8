package slot

import (
	"testing"
	"time"
)

// asks makes n clients join and use their cookie once, after a tenth of a second.
func asks(l *Lines, now *Time, n int) (numbers []uint64) {
	for range n {
		number := l.JoinProvisional(0, *now, time.Hour)
		l.SetProvisionalInterval(number, time.Second)
		numbers = append(numbers, number)
	}
	*now += Time(100 * time.Millisecond)
	for _, number := range numbers {
		l.Confirm(number, *now)
		l.Polled(number, *now, time.Second)
	}
	return numbers
}

// sweep advances the time and sweeps as a counter does.
func sweep(l *Lines, now *Time, d time.Duration) {
	*now += Time(d)
	l.LapseProvisional(*now, 100_000)
}

// TestTicketsThatNeverAskAgainAreDoubtful checks that clients that use each cookie twice are
// distinguished from people whose browser loads an image and who poll again. Positions count both.
func TestTicketsThatNeverAskAgainAreDoubtful(t *testing.T) {
	l, now := NewLines(), Time(time.Hour)
	people := asks(l, &now, 100)
	last := asks(l, &now, 1)[0]
	if n, _ := l.Doubtful(last, now); n != 0 {
		t.Errorf("%d of 100 people are doubtful before anybody knows", n)
	}
	sweep(l, &now, time.Second)
	for _, number := range people {
		l.Polled(number, now, time.Second)
	}
	clients := asks(l, &now, 3000)
	end := asks(l, &now, 1)[0]
	if n, present := l.Doubtful(end, now); n != 0 || present != 0 {
		t.Errorf("%d clients are doubtful, present for %v, before they are overdue", n, present)
	}
	sweep(l, &now, 1500*time.Millisecond)
	n, present := l.Doubtful(end, now)
	if n != 3001 || present < 800*time.Millisecond || present > 1200*time.Millisecond { // last is one
		t.Errorf("%d of 3,001 are doubtful, present for %v, want about 0.9 s", n, present)
	}
	if n, _ := l.Doubtful(clients[10], now); n != 11 {
		t.Errorf("%d tickets before the tenth client are doubtful, want 11", n)
	}
	if n, _ := l.Doubtful(people[50], now); n != 0 {
		t.Errorf("%d people are doubtful who asked again", n)
	}
	if at, ok := l.Position(end); at != 3102 || !ok {
		t.Errorf("position %d, want 3,102", at)
	}
	more := asks(l, &now, 1000) // by now it is known what most of them are
	tail := asks(l, &now, 1)[0]
	if n, _ := l.Doubtful(tail, now); n < 3001+900 || n > 4003 {
		t.Errorf("%d are doubtful, want nearly all of 4,001", n)
	}
	sweep(l, &now, time.Second)
	for _, number := range more { // they were people
		l.Polled(number, now, time.Second)
	}
	if n, _ := l.Doubtful(tail, now); n > 3003 {
		t.Errorf("%d are doubtful, want 3,001: the others asked", n)
	}
	asks(l, &now, 1000)
	tail = asks(l, &now, 1)[0]
	if n, _ := l.Doubtful(tail, now); n < 3003+200 || n > 3003+700 {
		t.Errorf("%d are doubtful, want about half of the last 1,000", n)
	}
}

// TestAPartOfThePageMakesNobodyOverdue checks that the page's interval counts, and not the shorter
// one that the answer to a part of the page names: the page polls when it was told to.
func TestAPartOfThePageMakesNobodyOverdue(t *testing.T) {
	l, now := NewLines(), Time(time.Hour)
	number := l.JoinProvisional(0, now, time.Hour)
	l.SetProvisionalInterval(number, 2*time.Second)
	end := l.Join(0, now, time.Minute, time.Hour)
	now += Time(100 * time.Millisecond)
	l.Confirm(number, now)
	l.Polled(number, now, time.Second)
	sweep(l, &now, 1900*time.Millisecond)
	if n, _ := l.Doubtful(end, now); n != 0 {
		t.Errorf("%d are doubtful before the page polls", n)
	}
	sweep(l, &now, time.Second)
	if n, _ := l.Doubtful(end, now); n != 1 {
		t.Errorf("%d are doubtful when the page has not polled, want 1", n)
	}
}

// TestPeopleAfterAFloodAreNotDoubtful checks that people who keep coming are told from a flood that
// has ended, as soon as some of them have polled again.
func TestPeopleAfterAFloodAreNotDoubtful(t *testing.T) {
	l, now := NewLines(), Time(time.Hour)
	asks(l, &now, 3000)
	var people [][]uint64
	for range 40 { // 10 come every 100 ms, and poll each second
		people = append(people, asks(l, &now, 10))
		l.LapseProvisional(now, 100_000)
		for i := len(people) - 11; i >= 0; i -= 10 {
			for _, number := range people[i] {
				l.Polled(number, now, time.Second)
			}
		}
	}
	end := asks(l, &now, 1)[0]
	if n, _ := l.Doubtful(end, now); n < 3000 || n > 3030 {
		t.Errorf("%d are doubtful, want the 3,000 of the flood and few of the last 100 people", n)
	}
}

// TestDoubtfulTicketsAreNotCountedAsAbsent checks that doubtful tickets that Call passes over do
// not count as visitors who gave up.
func TestDoubtfulTicketsAreNotCountedAsAbsent(t *testing.T) {
	l, now := NewLines(), Time(time.Hour)
	asks(l, &now, 50)
	sweep(l, &now, 5*time.Second)
	quiet := l.Join(0, now, time.Second, time.Hour)
	sweep(l, &now, 10*time.Second)
	here := l.Join(0, now, time.Second, time.Hour)
	if n, ok := l.Call(now); n != here || !ok {
		t.Fatalf("%d is called, %v, want %d", n, ok, here)
	}
	if got := l.SkippedCount(0); got != 1 {
		t.Errorf("%d were passed over, want 1: ticket %d", got, quiet)
	}
	if got := l.Late(); got != 51 {
		t.Errorf("%d are late, want 51: they keep their places", got)
	}
}

// TestDoubtfulTicketsCountWithTheCallsOfOtherLanes checks that Doubtful counts the calls of other
// lanes as Position does.
func TestDoubtfulTicketsCountWithTheCallsOfOtherLanes(t *testing.T) {
	l, now := NewLines(), Time(time.Hour)
	lane := Lane{Name: "members", Share: 50}
	l.SetLanes([]Lane{lane})
	asks(l, &now, 100)
	for range 1000 {
		l.Join(l.Lane(lane.ID()), now, time.Minute, time.Hour)
	}
	end := l.Join(0, now, time.Minute, time.Hour)
	sweep(l, &now, 1500*time.Millisecond)
	at, _ := l.Position(end)
	if n, _ := l.Doubtful(end, now); at != 202 || n != 200 {
		t.Errorf("%d of position %d are doubtful, want 200 of 202", n, at)
	}
}

// A draw moves the marks of doubtful tickets too. Marks left behind at the earlier places ended the
// room's process when its tickets left (found by TestChaos, seed 263).
func TestADrawTakesDoubtsAlong(t *testing.T) {
	l, now := NewLines(), Time(time.Hour)
	overdue := asks(l, &now, 20)
	sweep(l, &now, 1500*time.Millisecond)
	unproven := asks(l, &now, 20)
	x := l.Line(0)
	for range 40 { // gone before the draw
		x.JoinProvisional(now, time.Hour)
	}
	sweep(l, &now, 100*time.Millisecond)
	for n := x.End() - 40; n < x.End(); n++ {
		l.Leave(n)
	}
	if !x.Shuffle(Draw{Event: "e", Seed: seedOf("e"), From: 1, To: x.End()}, now) {
		t.Fatal("not drawn")
	}
	for set, numbers := range map[int][]uint64{overdueSet: overdue, unprovenSet: unproven} {
		for _, number := range numbers {
			if c, i := x.find(x.rank(number)); c == nil || !c.has(set, i) {
				t.Errorf("%d is in the set %d no more", number, set)
			}
		}
		if x.counts[set] != len(numbers) {
			t.Errorf("%d in the set %d, want %d", x.counts[set], set, len(numbers))
		}
	}
	for range 30 {
		sweep(l, &now, time.Second)
	}
	if n := x.counts[unprovenSet]; n != 0 {
		t.Errorf("%d are unproven for ever", n)
	}
}
