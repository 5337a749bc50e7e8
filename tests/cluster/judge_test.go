package cluster

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/tests/crowd"
)

// A finding is the number of faults of one kind, and one of them.
type finding struct {
	n, judged int
	example   string
	about     []*visit // whose logs show it
}

func (f *finding) add(about []*visit, format string, args ...any) {
	if f.n++; f.n == 1 {
		f.example = fmt.Sprintf(format, args...)
	}
	f.about = append(f.about, about...)
}

// A step is a change of the limits.
type step struct {
	at               time.Duration
	total, perMinute int
}

// within is how long a change of limits may take to be in force everywhere (the
// issue "Cluster").
const within = 3 * time.Second

// A window is the minute of new_users_per_minute.
const window = time.Minute

// allowed is the higher of the limits in force at a moment and within before it:
// a lower one need not have been heard of everywhere.
func (r *run) allowed(at time.Duration) (total, perMinute int) {
	for i, s := range r.steps {
		if s.at > at && i > 0 {
			break
		}
		if i+1 < len(r.steps) && r.steps[i+1].at <= at-within {
			continue
		}
		total, perMinute = max(total, s.total), max(perMinute, s.perMinute)
	}
	return total, perMinute
}

// A stay is what the origin saw of one visitor.
type stay struct {
	from time.Duration // first byte in of its first request
	to   time.Duration // last byte out of its last
	sure time.Duration // until then the slot is taken, beyond doubt
	most time.Duration // by then it is free, beyond doubt
}

// renewed is how long after an answer the counter knows of it: workers report
// each second (docs/protocol.md §4), and a group write takes its time. Chosen.
const renewed = 1500 * time.Millisecond

// unheard reports whether a renewal at a node and a moment may never have reached
// the counter, because the node was killed, frozen or cut off.
func (r *run) unheard(node string, at time.Duration) bool {
	return slices.ContainsFunc(r.faults, func(f fault) bool {
		return f.node == node && at > f.from-renewed && at < f.to+renewed
	})
}

// stays gives one for each visitor of the origin's log, in order of arrival.
// A visitor who left by the page that revokes holds its slot no longer.
func (r *run) stays() []stay {
	visits := make(map[string]*visit, len(r.visits))
	for _, v := range r.visits {
		visits[v.name] = v
	}
	seen := map[string]*stay{}
	for _, q := range r.origin {
		from, to := q.From.Sub(r.began), q.To.Sub(r.began)
		s := seen[q.Visitor]
		if s == nil {
			s = &stay{from: from, to: to, sure: to, most: to}
			seen[q.Visitor] = s
		}
		s.from, s.to = min(s.from, from), max(s.to, to)
		sure, most := to+r.session, to+r.session
		if v := visits[q.Visitor]; v != nil {
			if node := v.nodeOf(from, to); r.unheard(node, to) || r.homeless(v, node, to) {
				sure = to
			}
			if left := v.left(); left != never && from >= left {
				sure, most = to, to
				s.sure, s.most = 0, 0 // earlier ends mean nothing any more
			}
		}
		s.sure, s.most = max(s.sure, sure), max(s.most, most)
	}
	out := make([]stay, 0, len(seen))
	for _, s := range seen {
		s.sure, s.most = max(s.sure, s.to), max(s.most, s.to)
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b stay) int { return cmp.Compare(a.from, b.from) })
	return out
}

// A peak is the moment that came nearest to a limit, or went farthest over it.
type peak struct {
	n, limit int
	at       time.Duration
}

func (p *peak) see(n, limit int, at time.Duration) {
	if p.limit == 0 || n-limit > p.n-p.limit {
		p.n, p.limit, p.at = n, limit, at
	}
}

// inside is the peak of visitors inside, seen at each arrival: between arrivals
// nobody is added, and a limit that was lowered sends nobody away.
func (r *run) inside(stays []stay, end func(*stay) time.Duration) (p peak) {
	ends := make([]time.Duration, len(stays))
	for i := range stays {
		ends[i] = end(&stays[i])
	}
	slices.Sort(ends)
	for i := range stays {
		at := stays[i].from
		gone, _ := slices.BinarySearch(ends, at) // one that ends now overlaps
		total, _ := r.allowed(at)
		p.see(i+1-gone, total, at)
	}
	return p
}

// fresh is the peak of newcomers within a minute. Two exactly a minute apart are
// not within one.
func (r *run) fresh(stays []stay) (p peak) {
	first := 0
	for i := range stays {
		for stays[i].from-stays[first].from >= window {
			first++
		}
		_, perMinute := r.allowed(stays[i].from)
		p.see(i-first+1, perMinute, stays[i].from)
	}
	return p
}

// A gap is a time in which slots were free, by both limits and beyond doubt,
// somebody waited, and nobody new came in.
type gap struct{ from, to time.Duration }

// gaps gives all of them.
func (r *run) gaps(stays []stay) (gaps []gap) {
	type edge struct {
		at                     time.Duration
		inside, fresh, waiting int
		arrival                bool
	}
	var edges []edge
	for _, s := range slices.Concat(stays, r.ghosts()) {
		edges = append(edges, edge{at: s.from, inside: 1, fresh: 1, arrival: true},
			edge{at: s.most, inside: -1}, edge{at: s.from + window, fresh: -1})
	}
	end := time.Duration(0)
	for _, v := range r.visits {
		if from, to := v.waited(); to > from && from != never {
			edges = append(edges, edge{at: from, waiting: 1}, edge{at: to, waiting: -1})
			end = max(end, to)
		}
	}
	for _, s := range r.steps[1:] {
		edges = append(edges, edge{at: s.at})
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	inside, fresh, waiting, since := 0, 0, 0, never
	for _, e := range edges {
		if e.at > end {
			break
		}
		inside, fresh, waiting = inside+e.inside, fresh+e.fresh, waiting+e.waiting
		total, perMinute := r.inForce(e.at)
		free := inside < total && fresh < perMinute && waiting > 0
		if since != never && (!free || e.arrival || e.at == end) {
			gaps, since = append(gaps, gap{since, e.at}), never
		}
		if free && since == never {
			since = e.at
		}
	}
	return gaps
}

// ghosts are stays of visitors who never heard that they were let in, when they
// came for the first time, and so came again without a cookie: as somebody else.
func (r *run) ghosts() (out []stay) {
	visits := make(map[string]*visit, len(r.visits))
	for _, v := range r.visits {
		visits[v.name] = v
	}
	for _, q := range r.origin {
		from, to := q.From.Sub(r.began), q.To.Sub(r.began)
		v := visits[q.Visitor]
		if v == nil {
			continue
		}
		i := slices.IndexFunc(v.asks, func(a ask) bool { return a.read() || a.ended >= to })
		if i >= 0 && !v.asks[i].read() && v.asks[i].sent <= from {
			out = append(out, stay{from: from, to: to, sure: to, most: to + r.session})
		}
	}
	return out
}

// A spell is a time in which gaps may be longer than else.
type spell struct {
	what     string
	from, to time.Duration
	most     time.Duration
}

// longest gives the longest gap of each spell, and of the rest of the run.
func longest(gaps []gap, spells []spell) (each []gap, rest gap) {
	each = make([]gap, len(spells))
	for _, g := range gaps {
		worst := &rest
		if i := slices.IndexFunc(spells, func(s spell) bool {
			return g.from < s.to && g.to > s.from
		}); i >= 0 {
			worst = &each[i]
		}
		if g.to-g.from > worst.to-worst.from {
			*worst = g
		}
	}
	return each, rest
}

// taken is how many slots are taken at a moment, beyond doubt.
func taken(stays []stay, at time.Duration) (n int) {
	for _, s := range stays {
		if s.from <= at && at <= s.sure {
			n++
		}
	}
	return n
}

// inForce are the limits of the last step.
func (r *run) inForce(at time.Duration) (total, perMinute int) {
	for i, s := range r.steps {
		if i == 0 || s.at <= at {
			total, perMinute = s.total, s.perMinute
		}
	}
	return total, perMinute
}

// unused is how many slots were free when the first visitor was told to wait,
// counted until those let in before have arrived at the origin.
func (r *run) unused(stays []stay) (n int, at time.Duration, ok bool) {
	// arrive is how long one who was let in before takes to the origin. Chosen.
	const arrive = 200 * time.Millisecond
	var first *ask
	for _, v := range r.visits {
		for i := range v.asks {
			if a := &v.asks[i]; a.waits() && (first == nil || a.ended < first.ended) {
				first = a
			}
		}
	}
	if first == nil {
		return 0, 0, false
	}
	total, perMinute := r.inForce(first.sent)
	inside, fresh := 0, 0
	for _, s := range stays {
		if s.from > first.ended+arrive {
			break
		}
		if s.most >= first.sent {
			inside++
		}
		if s.from > first.sent-window {
			fresh++
		}
	}
	return max(0, min(total-inside, perMinute-fresh)), first.ended, true
}

// lost counts visitors whose ticket was read in full and then not honored: an
// answer named another ticket or none. One whose answer was lost may have been
// inside without knowing it; when that stay is over its ticket is used up. One whose cookie has
// never come back to the line, because the node that it asked was cut off, has no place yet
// (ADR 0055).
func (r *run) lost() (f finding) {
	for _, v := range r.visits {
		number, maybe := uint64(0), never
		provisional := true
		for i := range v.asks {
			a := &v.asks[i]
			if !a.read() && maybe == never && a.kind == askPage {
				maybe = a.sent
			}
			if a.origin() || maybe != never && a.ended > maybe+r.session {
				break
			}
			if !a.read() || a.kind == askServed || a.wrong() {
				continue
			}
			if r.homeless(v, a.node, a.ended) && a.number != number {
				break // it has another number there
			}
			if number == 0 {
				if number = a.number; number != 0 {
					f.judged++
				}
				continue
			}
			if a.number == number && a.position > 0 {
				provisional = false
			}
			if a.number != number && provisional && r.cutOffBefore(v, i) {
				break
			}
			if a.number == number {
				maybe = never // it still waits: the one that was lost did not let it in
			} else {
				f.add([]*visit{v}, "%s had ticket %d and was told %q, ticket %d, at %v by %s", v.name,
					number, a.state, a.number, a.ended, a.node)
				break
			}
		}
	}
	return f
}

// cutOffBefore reports whether one of the asks of a visitor before another was at a node that
// was cut off, or was not answered.
func (r *run) cutOffBefore(v *visit, i int) bool {
	return slices.ContainsFunc(v.asks[:i], func(a ask) bool { return !a.read() || r.cutOff(&a) })
}

// nearEnd is how close to the end of its stay a visitor may be sent back: what
// it takes from the node to the visitor and back. Chosen.
const nearEnd = 300 * time.Millisecond

// sentBack counts visitors who were inside, by renewals that the counter must
// know of, and were made to wait again. The first answer from the origin is
// written before it is given, so it always counts.
func (r *run) sentBack() (f finding) {
	for _, v := range r.visits {
		end := never
		for i := range v.asks {
			a := &v.asks[i]
			switch {
			case a.kind == askLeave:
			case a.origin():
				if end == never {
					f.judged++
				}
				if end == never || !r.unheard(a.node, a.ended) && !r.homeless(v, a.node, a.ended) {
					end = a.ended + r.session
				}
				continue
			case end == never || !a.read() || a.wrong():
				continue
			case a.sent < end-nearEnd && !r.newlyHomeless(v, a):
				f.add([]*visit{v}, "%s was inside until %v and told %q at %v by %s", v.name, end,
					a.state, a.ended, a.node)
			}
			break
		}
	}
	return f
}

// risen counts answers that showed a ticket further back than before.
func (r *run) risen() (f finding) {
	for _, v := range r.visits {
		best, number := int64(math.MaxInt64), v.number()
		for i := range v.asks {
			a := &v.asks[i]
			if !a.waits() || a.position <= 0 || a.number != number {
				continue // another ticket is a lost one, or a new one after a stay
			}
			if f.judged++; a.position > best {
				f.add([]*visit{v}, "%s, ticket %d, was shown place %d after %d at %v by %s", v.name,
					a.number, a.position, best, a.ended, a.node)
			}
			best = min(best, a.position)
		}
	}
	return f
}

// onTime is how late a visitor may ask, counted from when it was told to, and
// still count as one who asks on time. Chosen: the shortest polling interval.
const onTime = time.Second

// A place is what is known of a visitor in the line, as long as it asked on time.
type place struct {
	v       *visit
	came    time.Duration // sent its first request ever
	since   time.Duration // was first told to wait, or never
	placed  time.Duration // was first told its place, or never
	waiting time.Duration // when it last asked and was told to wait, or never
	called  time.Duration // by then it had been called, or never
	late    bool          // it missed a poll: what came after is not judged
}

// place judges a visitor by its asks, less those that reached the line not at all.
func (v *visit) place(unheard func(*ask) bool) place {
	p := place{v: v, came: v.asks[0].sent, since: never, placed: never, waiting: never,
		called: never}
	due, shared := never, false
	for i := range v.asks {
		a := &v.asks[i]
		if a.kind == askServed {
			shared = true
			continue
		}
		if !a.read() || a.wrong() || unheard(a) {
			continue
		}
		// The shared document is asked for in place of every other poll.
		if due != never && !shared && a.sent > due+onTime {
			p.late = true
			return p
		}
		if a.called() {
			p.called = a.ended
			return p
		}
		if p.since == never {
			p.since = a.ended
		}
		if p.placed == never && a.number != 0 {
			p.placed = a.ended
		}
		p.waiting, due, shared = a.sent, a.ended+a.after, false
	}
	return p
}

// healing is how long a node may stay cut off after its links are healed: the store
// elects anew. Chosen.
const healing = 12 * time.Second

// cutOff reports whether an ask ended at a node that was cut off from all others: the
// line has not heard of it.
func (r *run) cutOff(a *ask) bool {
	return a.waits() && a.position <= 0 && slices.ContainsFunc(r.faults, func(f fault) bool {
		return !f.deaf && f.node == a.node && a.ended > f.from && a.sent < f.to+healing
	})
}

// An order says whom somebody who came later must not get ahead of.
type order struct {
	slack time.Duration // they may by that much
	known func(*place) time.Duration
	gaps  []gap         // time in which nobody was let in does not count
	later time.Duration // by how much the other came later, more than
}

// stood is the shortest gap that an order takes out. Chosen: the length of an
// interval of polling, in which a call is not heard of.
const stood = time.Second

// working is the time between two moments in which visitors were let in. Calls are
// not written (docs/protocol.md §8), so at a takeover who was called and had not yet
// asked waits once more, as long as all do.
func (o *order) working(from, to time.Duration) time.Duration {
	d := to - from
	for _, g := range o.gaps {
		if g.to-g.from > stood && g.to > from && g.from < to {
			d -= min(to, g.to) - max(from, g.from)
		}
	}
	return d
}

// overtaken counts visitors that somebody who came later got ahead of, beyond doubt:
// the later one sent its first request after the first was known to be in line, was
// called, and more than the slack after that the first asked, on time, and was told
// to wait. Late are those who missed a poll: what came after is not judged.
func (r *run) overtaken(o order) (f finding, late int, worst time.Duration) {
	var line, came []place
	for _, v := range r.visits {
		p := v.place(func(a *ask) bool { return r.cutOff(a) || r.homeless(v, a.node, a.ended) })
		if o.known(&p) != never {
			line = append(line, p)
		}
		if p.called != never {
			came = append(came, p)
		}
	}
	slices.SortFunc(came, func(a, b place) int { return cmp.Compare(b.came, a.came) })
	slices.SortFunc(line, func(a, b place) int { return cmp.Compare(o.known(&b), o.known(&a)) })
	var first *place // called first, of those who came later
	next := 0
	for i := range line {
		p := &line[i]
		for ; next < len(came) && came[next].came > o.known(p)+o.later; next++ {
			if c := &came[next]; first == nil || c.called < first.called {
				first = c
			}
		}
		f.judged++
		if p.late {
			late++
		}
		if first == nil || first.called > p.waiting {
			continue
		}
		by := o.working(first.called, p.waiting)
		if by <= o.slack {
			continue
		}
		worst = max(worst, by)
		f.add([]*visit{p.v, first.v}, "%s, in line since %v, asked at %v and was told to wait; "+
			"%s came at %v and was called by %v", p.v.name, o.known(p), p.waiting, first.v.name,
			first.came, first.called)
	}
	return f, late, worst
}

// claimMemory is how long a claim that is repeated gives the same stay again
// (docs/protocol.md §3), and ten seconds for counter time that stood still.
const claimMemory = 40 * time.Second

// leaveWritten is how long it may take until a leave is in the record, wherever
// its host is. Chosen.
const leaveWritten = 2 * time.Second

// doubled counts used tickets that did something again: long after their claim,
// or after their stay was ended by the origin.
func (r *run) doubled() (f finding) {
	for _, p := range r.replays {
		over := p.at-p.claimed > claimMemory
		if p.revoked != never && !slices.ContainsFunc(r.faults, func(f fault) bool {
			return f.to > p.revoked-leaveWritten && f.from < p.revoked+leaveWritten
		}) {
			over = true
		}
		if !over || !p.answered || p.admitted && !r.lineAt(p.node, p.at) {
			continue
		}
		f.judged++
		switch {
		case p.admitted:
			f.add(r.named(p.visitor), "%s was let in by ticket %d at %v at %s, claimed at %v, revoked at %v",
				p.name, p.number, p.at, p.node, p.claimed, p.revoked)
		case p.got == p.number && p.position > 0: // without a place nobody was asked
			f.add(r.named(p.visitor), "%s has place %d with the used ticket %d at %v", p.name, p.position, p.number,
				p.at)
		}
	}
	return f
}

// named finds a visitor.
func (r *run) named(name string) (found []*visit) {
	if i := slices.IndexFunc(r.visits, func(v *visit) bool { return v.name == name }); i >= 0 {
		found = r.visits[i : i+1]
	}
	return found
}

// soon is how near to a moment somebody must have waited for a line to stand then.
// Chosen: a polling interval.
const soon = time.Second

// lineAt reports whether a newcomer at a node and a moment has to wait, beyond doubt:
// before data centers that have slots nobody does, though others wait elsewhere.
func (r *run) lineAt(node string, at time.Duration) bool {
	return r.sites == nil || slices.ContainsFunc(r.visits, func(v *visit) bool {
		from, to := v.waited()
		return from != never && from < at-soon && to > at+soon && v.at() == node
	})
}

// wrong counts answers that are errors.
func (r *run) wrong() (f finding) {
	for _, v := range r.visits {
		for i := range v.asks {
			a := &v.asks[i]
			if f.judged++; a.wrong() {
				f.add([]*visit{v}, "%s was answered %d %q at %v by %s", v.name, a.status, a.state,
					a.ended, a.node)
			}
		}
	}
	return f
}

// noticed is how long the balancer may take to see that a node is deaf: two looks
// of a second. Chosen.
const noticed = 2 * time.Second

// unanswered counts requests without an answer: those at a node that was deaf
// then, and those that nothing excuses. What the balancer lost is not counted. The visitor's time is
// that of both nodes when the first one broke the connection and the client sent the request again.
func (r *run) unanswered() (excused, f finding) {
	for _, v := range r.visits {
		for i := range v.asks {
			a := &v.asks[i]
			to := &f
			if slices.ContainsFunc(r.faults, func(f fault) bool {
				return f.deaf && a.sent < f.to+noticed && (f.node == a.node && a.ended >= f.from ||
					f.node == a.first && a.again >= f.from)
			}) {
				to = &excused
			}
			if to.judged++; !a.read() && !a.lost {
				to.add([]*visit{v}, "%s asked %s for a %s at %v: %s after %v", v.name, a.node, a.kind,
					a.sent, a.failed, a.ended-a.sent)
			}
		}
	}
	return excused, f
}

// A run is all that was seen, from all sides.
type run struct {
	steps   []step // of the limits; the first is what the run began with
	session time.Duration
	began   time.Time // time 0 of all but the origin's log
	visits  []*visit
	replays []replay
	faults  []fault
	origin  []crowd.Request
	refused int      // connections that the balancer could pass to no node
	sites   []string // data centers of one node each, nil without
}
