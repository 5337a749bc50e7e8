package slot

import (
	"math/bits"
	"slices"
)

// item believes one item of a Sync.
func (p *Pool) item(r *Record, it *Item) {
	switch it.Op {
	case Open:
		p.open(r, it)
	case Renew, Ask:
		p.renew(r, it)
	case Leave:
		p.leave(r, it)
	case Answered:
		p.answered(r, it)
	}
}

func (p *Pool) open(r *Record, it *Item) {
	for i := range r.Limits {
		s := &r.Limits[i]
		switch s.Kind {
		case AtOnce:
			p.opened(r, s, it)
		case PerWindow:
			if end := p.par.windowEnd(s.Limit, it.Use); end > r.Time {
				s.Ends.Add(end, 1)
			}
		}
	}
}

// opened gives a stay that was opened its entry. A visitor may have been seen at
// another worker, and renewed or gone, before the worker that opened its stay says so
// (ADR 0027). If a stay that no host had named could still run then, another's entry
// was moved for it, and a third's for that one: what comes back must last as long as
// any of them. Else an entry was added for it and it has one.
func (p *Pool) opened(r *Record, s *LimitState, it *Item) {
	end := p.par.CeilEnd(s.Limit, it.End)
	_, named := p.known[it.ID]
	earlier := end <= p.unnamed // an earlier host may have renewed it
	if it.Hard > end {          // on probation: not if it surely began here
		earlier = earlier && !p.vacant && it.Use <= p.tookAt.Add(p.par.Rho.Up(p.par.Term))
	}
	switch {
	case p.par.fault&faultOpenRenames != 0:
		earlier = false
	case named || p.gone.has(it.ID):
		if r.Time < p.unnamed {
			s.Ends.Add(p.unnamed, 1)
		}
		return
	case earlier && p.owing:
		end = p.unnamed
	}
	if end <= r.Time {
		return
	}
	s.Ends.Add(end, 1)
	if earlier {
		return
	}
	p.know(it.ID, end)
	if full := min(it.Hard, p.par.CeilEnd(s.Limit, r.Time.Add(s.Longest))); full > end {
		p.trials.add(trial{id: it.ID, end: end, full: p.par.CeilEnd(s.Limit, full)})
	}
}

// renew moves a stay's end, only later (docs/protocol.md §5). A stay this host
// has not heard of takes the latest end ≤ the one in its pass that belongs to
// no known stay: that keeps #{entries > t} ≥ #{ends in passes > t} for all t.
func (p *Pool) renew(r *Record, it *Item) {
	if it.Returned() {
		r.useUp(it.ID)
	}
	s := &r.Limits[0]
	if s.Kind != AtOnce || p.gone.has(it.ID) {
		return
	}
	p.trials.over(it.ID) // its cookie has come back
	end := p.par.CeilEnd(s.Limit, it.At.Add(s.Per))
	if it.Hard > 0 {
		end = min(end, p.par.FloorEnd(s.Limit, it.Hard))
	}
	if k, ok := p.known[it.ID]; ok {
		if end > k && s.Ends.Remove(k) {
			p.unknow(it.ID, k)
			s.Ends.Add(end, 1)
			p.know(it.ID, end)
		}
		return
	}
	if it.From <= p.courtesy(r.Time) {
		if it.Op == Renew {
			r.breakSpan(p.epoch, it.At) // seen, and not renewed
		}
		return
	}
	best := p.strange(s, it.From)
	if best == 0 && it.From <= r.Time {
		if it.Op == Renew {
			r.breakSpan(p.epoch, it.At)
		}
		return // its entry is gone: nothing to move
	}
	if best == 0 {
		best = p.beyond(r, it.From)
	}
	end = max(end, best, it.From) // never less than the pass: counter time may stand still
	if best > 0 {
		s.Ends.Remove(best)
	}
	s.Ends.Add(end, 1)
	p.know(it.ID, end)
}

// strange is the latest end ≤ from with an entry that belongs to no known
// stay, 0 if there is none.
func (p *Pool) strange(s *LimitState, from Time) Time {
	for _, c := range slices.Backward(s.Ends.All()) {
		if c.End > from && p.par.fault&faultAnyBucket == 0 {
			continue
		}
		if b := p.knownAt[c.End]; b == nil || c.N > b.n {
			return c.End
		}
	}
	return 0
}

// beyond is the earliest end > from with an entry that belongs to no known stay,
// 0 if there is none. It may be taken for a pass that ends at from, later than
// now, when strange finds nothing (ADR 0021): its own entry, or one that stands
// for it, lies there. Not beyond the presumption of a loan that was taken back: an
// unreported stay of that loan has no entry but its slot.
func (p *Pool) beyond(r *Record, from Time) Time {
	most := Never
	for i := range r.Loans {
		if l := &r.Loans[i]; l.Over > 0 && l.Lent(0) > 0 {
			most = min(most, l.Back[0])
		}
	}
	for _, c := range r.Limits[0].Ends.All() {
		if c.End <= from {
			continue
		}
		if c.End > most {
			break
		}
		if b := p.knownAt[c.End]; b == nil || c.N > b.n {
			return c.End
		}
	}
	return 0
}

func (p *Pool) leave(r *Record, it *Item) {
	s := &r.Limits[0]
	// A ticket whose stay is over is used up, also for a host that has forgotten
	// who is gone: its claim is not repeated.
	r.Claimed = slices.DeleteFunc(r.Claimed, func(c Claimed) bool { return c.ID == it.ID })
	if s.Kind != AtOnce || p.gone.has(it.ID) {
		return
	}
	p.trials.over(it.ID)
	end, ok := p.known[it.ID]
	if ok {
		p.unknow(it.ID, end)
	} else if end = p.strange(s, it.From); end == 0 {
		if it.From > r.Time {
			end = p.beyond(r, it.From)
		}
		if end == 0 {
			return
		}
	}
	if s.Ends.Remove(end) {
		if end.Sub(r.Time) > s.Per-Idle(s.Limit) {
			p.left++
		} else {
			p.leftSilent++
		}
		if it.Hard < 0 { // nobody has a pass of it
			return
		}
		p.gone.add(
			EarlyLeave{ID: it.ID, End: max(end, it.From, p.par.CeilEnd(s.Limit, it.At.Add(s.Longest)))},
		)
	}
}

// answered moves a window entry: its window runs from the answer of the
// target, so that the target itself never counts more than the limit.
func (p *Pool) answered(r *Record, it *Item) {
	for i := range r.Limits {
		s := &r.Limits[i]
		if s.Kind != PerWindow {
			continue
		}
		if end := p.par.windowEnd(s.Limit, it.Use); end > it.From {
			s.Ends.Remove(it.From) // already freed: one too many for a window, never too few
			s.Ends.Add(end, 1)
		}
	}
}

// claim turns a called slot into a stay of the counter's own. It is not ok while
// the slot is not free in the record: the call may have counted on an end that
// has passed and that a borrower who came since may yet have to settle.
func (p *Pool) claim(r *Record, c claim) (ok bool) {
	if c.anew {
		p.undo(r, c.id)
	}
	if was, ok := r.claimed(c.id); ok {
		p.claimAgain(r, was)
		return true
	}
	if c.back {
		return true // forgotten between question and write: the reply says so
	}
	for i := range r.Limits {
		s := &r.Limits[i]
		if s.Kind != Bucket && r.lent(i)+s.Ends.Len() >= max(r.capacity(i), s.InForce) {
			return false
		}
	}
	p.calls--
	end := r.Time
	for i := range r.Limits {
		s := &r.Limits[i]
		switch s.Kind {
		case AtOnce:
			end = p.par.CeilEnd(s.Limit, r.Time.Add(s.Per))
			if c.hard > 0 {
				end = min(end, p.par.FloorEnd(s.Limit, r.Time.Add(c.hard)))
			}
			s.Ends.Add(end, 1)
			p.know(c.id, end)
		case PerWindow:
			s.Ends.Add(p.par.windowEnd(s.Limit, r.Time), 1)
		case Bucket:
			s.Tokens--
		}
	}
	r.Claimed = append(r.Claimed, Claimed{ID: c.id, At: r.Time, End: end})
	return true
}

// waitsFor reports whether a claim is repeated while the same one, made anew, waits for a slot.
func (p *Pool) waitsFor(c claim) bool {
	return c.back && slices.ContainsFunc(p.claims, func(x claim) bool { return x.anew && x.id == c.id })
}

// claimAgain moves the window entry of a claim that is repeated to now, once the answer of
// before can reach nobody any more: the worker that hears this one may die before it can
// say when the origin saw the visitor. One that has moved already stays.
func (p *Pool) claimAgain(r *Record, was Claimed) {
	used := max(was.At, p.usedAt[was.ID])
	if r.Time.Sub(used) <= askedFor {
		return
	}
	for i := range r.Limits {
		if s := &r.Limits[i]; s.Kind == PerWindow && s.Ends.Remove(p.par.windowEnd(s.Limit, used)) {
			s.Ends.Add(p.par.windowEnd(s.Limit, r.Time), 1)
			if p.usedAt == nil {
				p.usedAt = map[StayID]Time{}
			}
			p.usedAt[was.ID] = r.Time
		}
	}
}

// undo takes a claim back that nobody was told of.
func (p *Pool) undo(r *Record, id StayID) {
	was, ok := r.claimed(id)
	if !ok {
		return // what it used comes back by itself
	}
	for i := range r.Limits {
		switch s := &r.Limits[i]; {
		case s.Kind == PerWindow:
			s.Ends.Remove(p.par.windowEnd(s.Limit, max(was.At, p.usedAt[id])))
		case s.Kind == AtOnce && p.known[id] == was.End: // not free already
			s.Ends.Remove(was.End)
			p.unknow(id, was.End)
		}
	}
	r.Claimed = slices.DeleteFunc(r.Claimed, func(c Claimed) bool { return c.ID == id })
}

func (p *Pool) know(id StayID, end Time) {
	if old, ok := p.known[id]; ok { // the same stay opened twice: keep one
		p.unknow(id, old)
	}
	p.known[id] = end
	b := p.knownAt[end]
	if b == nil {
		b = &bucket{}
		p.knownAt[end] = b
	}
	b.n++
	b.ids = append(b.ids, id)
}

func (p *Pool) unknow(id StayID, end Time) {
	delete(p.known, id)
	if b := p.knownAt[end]; b != nil {
		if b.n--; b.n == 0 {
			delete(p.knownAt, end)
		}
	}
}

// forget drops what is known of the stays that ended at end.
func (p *Pool) forget(end Time) {
	b := p.knownAt[end]
	if b == nil {
		return
	}
	for _, id := range b.ids {
		if p.known[id] == end {
			delete(p.known, id)
		}
	}
	delete(p.knownAt, end)
}

// mulDiv returns a·b/c rounded down, without overflow, for a, b ≥ 0 and b ≤ c.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}
