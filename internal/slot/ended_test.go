package slot

import (
	"testing"
	"time"
)

// Of four visitors, one leaves at once, one leaves after silence, one requests a page and then
// leaves, and one sends nothing. Each counts once, in the right count.
func TestWhoHasLeftIsCounted(t *testing.T) {
	const session = 100 * time.Second
	p := serving(Params{}, NewRecord(1, nil, Limit{AtOnce, 9, session}), 0)
	seq := uint64(0)
	write := func(clk time.Duration, items ...Item) (ended [3]int64) {
		seq++
		p.Receive(&Sync{Loan: 1, Seq: Seq{0, seq}, Items: items})
		if _, wr := p.Begin(clk, true); wr != nil {
			p.Confirm(clk)
		}
		ended[0], ended[1], ended[2] = p.Ended()
		return ended
	}
	for id := range SessionID(4) {
		p.Call(0)
		p.Claim(0, id+1, 0, 0)
	}
	write(time.Second)
	leave := func(id SessionID) Item { return Item{Op: Leave, ID: id, From: p.EndOf(id)} }
	idle := Idle(Limit{AtOnce, 9, session})
	for _, step := range []struct {
		at    time.Duration
		items []Item
		want  [3]int64
	}{
		{2 * time.Second, []Item{leave(1)}, [3]int64{0, 1, 0}},
		{3 * time.Second, []Item{leave(1)}, [3]int64{0, 1, 0}}, // a duplicate
		{idle + 3*time.Second, []Item{leave(2)}, [3]int64{0, 1, 1}},
		{idle + 4*time.Second, []Item{{Op: Renew, ID: 3, From: p.EndOf(3),
			At: p.CounterTime(idle + 4*time.Second)}},
			[3]int64{0, 1, 1}},
		{idle + 5*time.Second, []Item{leave(3)}, [3]int64{0, 2, 1}},
		{session + 9*time.Second, nil, [3]int64{1, 2, 1}},
	} {
		if got := write(step.at, step.items...); got != step.want {
			t.Errorf("after %v: ended, left and left silent %v, want %v", step.at, got, step.want)
		}
	}
}
