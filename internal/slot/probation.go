package slot

import (
	"cmp"
	"slices"
	"time"
)

// Stays on probation: a newcomer who was let in without waiting has not shown yet that its cookie
// comes back. Its pass says a short end, and so does the entry of its stay; a pass that comes back
// renews both, as any does. One that does not is no visitor that anybody should wait for: past its
// end the stay goes on only while nobody waits, up to the end that it would have had.
//
// Nothing is over: a pass is good up to the end it says, and asked about after that, so an entry may
// be freed at any time from then on.

// trials are the stays on probation that this host has heard of, as far as they may go on.
type trials struct {
	of    map[StayID]bool
	begun []trial // by the end in their pass
	past  []trial // past that end: they go on while nobody waits
}

type trial struct {
	id        StayID
	end, full Time
}

func (t *trials) add(x trial) {
	if t.of == nil {
		t.of = map[StayID]bool{}
	}
	t.of[x.id] = true
	i, _ := slices.BinarySearchFunc(t.begun, x, func(a, b trial) int { return cmp.Compare(a.end, b.end) })
	t.begun = slices.Insert(t.begun, i, x)
}

// over notes that a stay is on probation no more.
func (t *trials) over(id StayID) { delete(t.of, id) }

// goOn lets stays on probation that have come to their end by until go on while nobody waits.
func (p *Pool) goOn(clk time.Duration, r *Record, until Time) {
	t, s := &p.trials, &r.Limits[0]
	for len(t.begun) > 0 && t.begun[0].end <= until {
		x := t.begun[0]
		t.begun = t.begun[1:]
		if !t.of[x.id] {
			continue
		}
		if p.known[x.id] != x.end || p.evicts(clk) || x.full <= until || !s.Ends.Remove(x.end) {
			t.over(x.id)
			continue
		}
		p.unknow(x.id, x.end)
		s.Ends.Add(x.full, 1)
		p.know(x.id, x.full)
		t.past = append(t.past, x)
	}
	for len(t.past) > 0 && (t.past[0].full <= until || !t.of[t.past[0].id]) {
		t.over(t.past[0].id)
		t.past = t.past[1:]
	}
}

// evict ends stays past their probation for those who wait: all of them while a line stands here
// or others ask, else as many as are short.
func (p *Pool) evict(clk time.Duration, r *Record, syncs []*Sync) {
	t, s, n := &p.trials, &r.Limits[0], int64(len(p.trials.past))
	if n == 0 {
		return
	}
	if !p.evicts(clk) {
		need := int64(0)
		for _, x := range syncs {
			need += max(0, x.Need)
		}
		n = min(n, need-(r.Free()-p.calls))
	}
	for ; n > 0 && len(t.past) > 0; t.past = t.past[1:] {
		x := t.past[0]
		if !t.of[x.id] {
			continue
		}
		if t.over(x.id); p.known[x.id] == x.full && s.Ends.Remove(x.full) {
			p.unknow(x.id, x.full)
			n--
		}
	}
}

// evicts reports whether no stay may go on past its probation.
func (p *Pool) evicts(clk time.Duration) bool { return p.wait || p.RecalledByParent(clk) }

// Evictable reports whether a write would free slots of stays past their probation.
func (p *Pool) Evictable(clk time.Duration) bool {
	return len(p.trials.past) > 0 && p.evicts(clk)
}
