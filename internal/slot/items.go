package slot

import (
	"math/bits"
	"slices"
)

// item processes one item of a Sync.
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

// opened adds an entry for a session that was opened. Another worker may have seen the visitor, and
// reported a renewal or a leave, before the worker that opened the session reports it (ADR 0027).
// That renewal may have moved the entry of another session, and the renewal of the other session
// that of a third. If a session that no host has named could still run then, the new entry must
// last as long as any of them. Otherwise an entry was added for the session, and it has one.
func (p *Pool) opened(r *Record, s *LimitState, it *Item) {
	end := p.par.CeilEnd(s.Limit, it.End)
	_, named := p.known[it.ID]
	earlier := end <= p.unnamed // an earlier host may have renewed it
	if it.Hard > end {          // on probation, unless it surely began here
		earlier = earlier && !p.vacant && it.Use <= p.tookAt.Add(p.par.Drift.Up(p.par.Term))
	}
	switch {
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
		p.probation.add(onProbation{id: it.ID, end: end, full: p.par.CeilEnd(s.Limit, full)})
	}
}

// renew moves the end of a session, only later (docs/protocol.md §5). A session unknown to this
// host takes the latest entry that ends at or before the end in its pass and belongs to no known
// session. This keeps #{entries > t} ≥ #{ends in passes > t} for all t.
func (p *Pool) renew(r *Record, it *Item) {
	if it.Returned() {
		r.useUp(it.ID)
	}
	s := &r.Limits[0]
	if s.Kind != AtOnce || p.gone.has(it.ID) {
		return
	}
	p.probation.over(it.ID) // its cookie has come back
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
			r.breakSpan(p.epoch, it.At) // seen, but not renewed
		}
		return
	}
	best := p.strange(s, it.From)
	if best == 0 && it.From <= r.Time {
		if it.Op == Renew {
			r.breakSpan(p.epoch, it.At)
		}
		return // its entry is gone: there is nothing to move
	}
	if best == 0 {
		best = p.beyond(r, it.From)
	}
	end = max(end, best, it.From) // never earlier than in the pass: counter time may stand still
	if best > 0 {
		s.Ends.Remove(best)
	}
	s.Ends.Add(end, 1)
	p.know(it.ID, end)
}

// strange returns the latest end ≤ from with an entry that belongs to no known session, or 0 if
// there is none.
func (p *Pool) strange(s *LimitState, from Time) Time {
	for _, c := range slices.Backward(s.Ends.All()) {
		if c.End > from {
			continue
		}
		if b := p.knownAt[c.End]; b == nil || c.N > b.n {
			return c.End
		}
	}
	return 0
}

// beyond returns the earliest end > from with an entry that belongs to no known session, or 0 if
// there is none. When strange finds nothing, this entry may be used for a pass that ends at from,
// later than now (ADR 0021): the pass's own entry, or one that stands for it, lies there. It does
// not look beyond the presumed end of a loan that was taken back: an unreported session of that
// loan has no entry but its slot.
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

// leave frees the slot of a session that ended early, and remembers the session until its pass has
// expired, so that nobody enters with it.
func (p *Pool) leave(r *Record, it *Item) {
	s := &r.Limits[0]
	// A ticket whose session is over is used up, also for a host that no longer remembers early
	// leaves. So its claim is not repeated.
	r.Claimed = slices.DeleteFunc(r.Claimed, func(c Claimed) bool { return c.ID == it.ID })
	if s.Kind != AtOnce || p.gone.has(it.ID) {
		return
	}
	p.probation.over(it.ID)
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
		if held := it.Held(); held > r.Time {
			s.Ends.Add(min(end, held), 1)
		}
		if end.Sub(r.Time) > s.Per-Idle(s.Limit) {
			p.left++
		} else {
			p.leftSilent++
		}
		if it.Hard < 0 { // nobody has a pass for it
			return
		}
		p.gone.add(
			EarlyLeave{ID: it.ID, End: max(end, it.From, p.par.CeilEnd(s.Limit, it.At.Add(s.Longest)))},
		)
	}
}

// answered moves a window entry. The window runs from the answer of the target, so that the target
// itself never counts more than the limit.
func (p *Pool) answered(r *Record, it *Item) {
	for i := range r.Limits {
		s := &r.Limits[i]
		if s.Kind != PerWindow {
			continue
		}
		if end := p.par.windowEnd(s.Limit, it.Use); end > it.From {
			s.Ends.Remove(it.From) // already freed: the window counts one too many, never too few
			s.Ends.Add(end, 1)
		}
	}
}

// claim turns a called slot into a session of the counter's own. ok is false while the slot is not
// free in the record: the call may have relied on an end that has passed, while a borrower that
// came later has not settled that end yet.
func (p *Pool) claim(r *Record, c claim) (ok bool) {
	if c.anew {
		p.undo(r, c.id)
	}
	if was, ok := r.claimed(c.id); ok {
		p.claimAgain(r, was)
		return true
	}
	if c.back {
		return true // forgotten between request and write; the reply shows it
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

// claimAgain moves the window entry of a repeated claim to now, once the earlier answer can no
// longer reach anybody. The worker that receives the new answer may die before it reports when the
// origin saw the visitor. An entry that has already moved stays.
func (p *Pool) claimAgain(r *Record, was Claimed) {
	used := max(was.At, p.usedAt[was.ID])
	if r.Time.Sub(used) <= askedFor {
		return
	}
	for i := range r.Limits {
		if s := &r.Limits[i]; s.Kind == PerWindow && s.Ends.Remove(p.par.windowEnd(s.Limit, used)) {
			s.Ends.Add(p.par.windowEnd(s.Limit, r.Time), 1)
			if p.usedAt == nil {
				p.usedAt = map[SessionID]Time{}
			}
			p.usedAt[was.ID] = r.Time
		}
	}
}

// undo takes back a claim whose answer nobody received.
func (p *Pool) undo(r *Record, id SessionID) {
	was, ok := r.claimed(id)
	if !ok {
		return // its window entry or token comes back by itself
	}
	for i := range r.Limits {
		switch s := &r.Limits[i]; {
		case s.Kind == PerWindow:
			s.Ends.Remove(p.par.windowEnd(s.Limit, max(was.At, p.usedAt[id])))
		case s.Kind == AtOnce && p.known[id] == was.End: // unless it is free already
			s.Ends.Remove(was.End)
			p.unknow(id, was.End)
		}
	}
	r.Claimed = slices.DeleteFunc(r.Claimed, func(c Claimed) bool { return c.ID == id })
}

func (p *Pool) know(id SessionID, end Time) {
	if old, ok := p.known[id]; ok { // the same session was opened twice: keep one
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

func (p *Pool) unknow(id SessionID, end Time) {
	delete(p.known, id)
	if b := p.knownAt[end]; b != nil {
		if b.n--; b.n == 0 {
			delete(p.knownAt, end)
		}
	}
}

// forget drops what is known of the sessions that ended at end.
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

// mulDiv returns a·b/c rounded down without overflow, for a, b ≥ 0 and b ≤ c.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}
