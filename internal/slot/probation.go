package slot

import (
	"cmp"
	"slices"
	"time"
)

// Sessions on probation: a newcomer that was admitted without waiting has not yet shown that its
// cookie comes back. Its pass has a short end, and so has the entry of its session. A pass that
// comes back renews both, like any pass. Nobody should wait for a visitor whose pass does not come
// back: past its probation, the session continues only while nobody waits, up to its full end.
//
// Ending it breaks no pass: a pass is valid up to its end and needs confirmation after that. So the
// entry may be freed at any time from then on.

// probation holds the sessions on probation that this host knows of and that may continue after it.
type probation struct {
	of    map[SessionID]bool
	begun []onProbation // sorted by the end in their pass
	past  []onProbation // past that end: they continue while nobody waits
}

type onProbation struct {
	id        SessionID
	end, full Time
}

func (t *probation) add(x onProbation) {
	if t.of == nil {
		t.of = map[SessionID]bool{}
	}
	t.of[x.id] = true
	at, _ := slices.BinarySearchFunc(t.begun, x.end,
		func(a onProbation, end Time) int { return cmp.Compare(a.end, end) })
	t.begun = slices.Insert(t.begun, at, x)
}

// over records that a session is no longer on probation.
func (t *probation) over(id SessionID) { delete(t.of, id) }

// goOn lets sessions whose probation has ended by until continue while nobody waits.
func (p *Pool) goOn(clk time.Duration, r *Record, until Time) {
	t, s := &p.probation, &r.Limits[0]
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

// evict ends sessions past their probation to free slots for waiting visitors: all of them while a
// line stands here or Anywhere recalls slots, else as many as are short.
func (p *Pool) evict(clk time.Duration, r *Record, syncs []*Sync) {
	t, s, n := &p.probation, &r.Limits[0], int64(len(p.probation.past))
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

// evicts reports whether no session may continue past its probation.
func (p *Pool) evicts(clk time.Duration) bool { return p.wait || p.RecalledByParent(clk) }

// Evictable reports whether a write would free slots of sessions past their probation.
func (p *Pool) Evictable(clk time.Duration) bool {
	return len(p.probation.past) > 0 && p.evicts(clk)
}

// unprovenPart: unproven requests may use one part in unprovenPart of a limit per window, just as
// the built-in lane of a network above its join limit has a tenth of the calls. Chosen.
const unprovenPart = 10

// Unproven bounds the uses of a limit per window by requests that probably no person sent. In every
// window they get at most a tenth of the limit, rounded up. As with the limit itself, a use comes
// back up to a bucket (1/400 of the window) late. The zero value has no uses. It holds at most one
// bucket for each 1/400 of the window, however many uses there are.
type Unproven struct{ ends Ends }

// Take uses one if one is left, and returns the end of the use for Return.
func (u *Unproven) Take(l Limit, now Time) (end Time, ok bool) {
	par := Params{}.WithDefaults()
	u.ends.Free(now, func(EndCount) {})
	if u.ends.Len() >= ceilDiv(l.N, unprovenPart) {
		return 0, false
	}
	end = par.CeilEnd(l, now.Add(l.Per))
	u.ends.Add(end, 1)
	return end, true
}

// Return takes back a use that did not happen.
func (u *Unproven) Return(end Time) { u.ends.Remove(end) }
