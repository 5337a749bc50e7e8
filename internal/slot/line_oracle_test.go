package slot

import (
	"slices"
	"time"
)

// An oracleLine does what a Line does, slowly and simply: a slice of tickets with their states.
type oracleLine struct {
	first    uint64
	tickets  []oracleTicket
	frontier uint64
	sweep    uint64
	grace    func(uint64) time.Duration
	restored uint64 // frontier at the restart
	loose    bool

	calls       int
	unsureGrace time.Duration
	at          Time // time of the restart
}

type oracleTicket struct {
	state    oracleState
	unheard  bool
	unsure   bool // reserved before a restart, perhaps never issued
	hidden   bool // positions of those behind do not count it
	lapsed   bool // its call lapsed, and it has not polled since
	deferred bool // its visitor learned of the call and did not come in
	trial    bool // provisional: only Confirm changes it
	seen     Time
	told     time.Duration // the interval, exactly
	due      Time          // the latest time of its next poll
	window   int64         // in ticks: how long after seen it is present
	hold     time.Duration
	joined   Time

	kept  bool // below the frontier: others may be called past it; a slot is kept for it
	until Time
}

type oracleState int

const (
	waiting oracleState = iota
	late
	back  // late and has polled since
	again // the same, but its visitor had learned of the call and did not come in
	called
	dead
)

func (o *oracleLine) next() uint64 { return o.first + uint64(len(o.tickets)) }

func (o *oracleLine) get(n uint64) *oracleTicket {
	if n < o.first || n >= o.next() {
		return nil
	}
	return &o.tickets[n-o.first]
}

// ticks rounds a duration up to a value that a line can keep: whole sixteenths of a second, five
// significant bits.
func ticks(d time.Duration) int64 {
	t := max(int64((d+time.Second/16-1)/(time.Second/16)), 1)
	unit := int64(1)
	for t > 31*unit {
		unit *= 2
	}
	return (t + unit - 1) / unit * unit
}

// age returns ticks of the line's clock, whose zero the caller keeps at 0.
func (t *oracleTicket) age(now Time) int64 {
	return int64(now)/int64(time.Second/16) - int64(t.seen)/int64(time.Second/16)
}

func (t *oracleTicket) present(now Time) bool {
	return !t.unheard && t.age(now) <= t.window
}

func (t *oracleTicket) over(now Time) bool {
	if t.unheard {
		return t.age(now) > ticks(t.hold)
	}
	return t.age(now) > max(t.window, ticks(t.hold))
}

func (o *oracleLine) join(now Time, told, hold time.Duration) uint64 {
	o.tickets = append(o.tickets, oracleTicket{seen: now, told: told, due: now.Add(told),
		window: ticks(told * 5 / 2), hold: hold, joined: now})
	return o.next() - 1
}

func (o *oracleLine) status(n uint64) TicketStatus {
	t := o.get(n)
	switch {
	case n >= o.next():
		return TicketUnknown
	case t != nil && t.trial:
		return TicketProvisional
	case (t == nil || t.state == dead) && n < o.frontier:
		return TicketUsed
	case t == nil || t.state == dead:
		return TicketGone
	}
	if t.kept {
		return TicketWaiting
	}
	return []TicketStatus{TicketWaiting, TicketLate, TicketLate, TicketLate, TicketCalled}[t.state]
}

func (o *oracleLine) seen(n uint64, now Time, told time.Duration) TicketStatus {
	t := o.get(n)
	if t == nil || t.state == dead {
		return o.status(n)
	}
	if t.state != called && t.over(now) {
		t.die()
		return o.status(n)
	}
	if t.unsure && o.loose {
		t.hidden = false
	}
	t.window = max(ticks(told*5/2), ticks(time.Duration(t.window-t.age(now)*5/2)*time.Second/16))
	t.seen, t.told, t.due, t.unheard, t.unsure = now, told, max(t.due, now.Add(told)), false, false
	t.lapsed = t.lapsed && t.state == called
	if t.state == late && t.deferred {
		t.state = again
	} else if t.state == late {
		t.state = back
	}
	t.hear(now)
	return o.status(n)
}

func (o *oracleLine) blocks(n uint64, now Time) bool {
	t := o.get(n)
	if t.unheard && o.grace != nil && t.unsure {
		return time.Duration(now-o.at) < o.unsureGrace
	}
	return t.unheard && o.grace != nil && time.Duration(now-o.at) < o.grace(n-o.restored)
}

// hear keeps a slot at least as long as the ticket is present.
func (t *oracleTicket) hear(now Time) {
	if t.kept {
		t.until = max(t.until, now.Add(time.Duration(t.window+1)*time.Second/16))
	}
}

// kept returns the tickets for which a slot is kept.
func (o *oracleLine) kept() (all []*oracleTicket) {
	for i := range o.tickets {
		if t := &o.tickets[i]; t.kept {
			all = append(all, t)
		}
	}
	return all
}

// unkeep makes kept tickets late that have been silent for too long.
func (o *oracleLine) unkeep(now Time) {
	for _, t := range o.kept() {
		t.kept = now < t.until
	}
}

func (o *oracleLine) call(now Time, free int) (uint64, bool) {
	o.unkeep(now)
	if kept := o.kept(); free <= len(kept) {
		for i, t := range kept {
			if i < free && t.present(now) {
				t.state, t.kept = called, false
				return o.number(t), true
			}
		}
		return 0, false
	}
	if n, ok := o.callLate(back, now); ok {
		return n, ok
	}
	if o.calls%10 == 9 {
		if n, ok := o.callLate(again, now); ok {
			return n, ok
		}
	}
	for ; o.frontier < o.next(); o.frontier++ {
		t := o.get(o.frontier)
		switch {
		case t.state == dead:
		case o.blocks(o.frontier, now) && !t.unsure && len(o.kept())+1 < free:
			t.state, t.kept, t.until = late, true, o.at.Add(o.grace(o.frontier-o.restored))
		case o.blocks(o.frontier, now):
			return 0, false
		case t.present(now):
			t.state = called
			o.frontier++
			o.calls++
			return o.frontier - 1, true
		case t.over(now):
			t.state = dead
		default:
			t.state = late
		}
	}
	return o.callLate(again, now)
}

// callLate calls the first present ticket of a state, and forgets that others polled.
func (o *oracleLine) callLate(of oracleState, now Time) (uint64, bool) {
	for i := range o.tickets {
		t := &o.tickets[i]
		switch {
		case t.state != of:
		case t.present(now):
			t.state, t.kept = called, false
			o.calls++
			return o.first + uint64(i), true
		case t.over(now):
			t.die()
		default:
			t.state = late
		}
	}
	return 0, false
}

func (t *oracleTicket) die() { t.state, t.kept, t.trial = dead, false, false }

func (o *oracleLine) joinProvisional(now Time, told, hold time.Duration) uint64 {
	n := o.join(now, ProvisionalFor, hold)
	t := o.get(n)
	t.state, t.trial = dead, true
	t.window = ticks(min(told, ProvisionalFor)) // of a trial: when its page polls
	return n
}

func (t *oracleTicket) late(now Time) bool { return t.age(now) > ticks(t.told) }

func (o *oracleLine) confirm(n uint64, now Time) {
	t := o.get(n)
	if t == nil || !t.trial {
		return
	}
	t.trial = false
	if t.late(now) {
		return
	}
	rest := time.Duration(max(t.window-t.age(now), 1)) * time.Second / 16
	t.seen, t.told, t.due, t.window = now, rest, now.Add(rest), ticks(rest*5/2)
	if t.state = waiting; n < o.frontier {
		t.state = late
	}
}

// lapseProvisional drops tickets up to the first that may still be confirmed.
func (o *oracleLine) lapseProvisional(now Time, budget int) {
	for i := range o.tickets {
		t := &o.tickets[i]
		if !t.trial {
			continue
		}
		if budget--; budget < 0 || !t.late(now) {
			return
		}
		t.trial = false
	}
}

func (o *oracleLine) number(t *oracleTicket) uint64 {
	for i := range o.tickets {
		if t == &o.tickets[i] {
			return o.first + uint64(i)
		}
	}
	panic("of another line")
}

// upcoming returns the results of repeated calls until there are no more. The last one may be a
// ticket that blocks.
func (o *oracleLine) upcoming(now Time) (all []uint64, blocked bool) {
	for i := range o.tickets {
		if t := &o.tickets[i]; t.state == back && t.present(now) {
			all = append(all, o.first+uint64(i))
		}
	}
	for n := max(o.frontier, o.first); n < o.next(); n++ {
		t := o.get(n)
		if t.state == dead {
			continue
		}
		if o.blocks(n, now) {
			return append(all, n), true
		}
		if t.present(now) {
			all = append(all, n)
		}
	}
	for i := range o.tickets {
		if t := &o.tickets[i]; t.state == again && t.present(now) {
			all = append(all, o.first+uint64(i))
		}
	}
	return all, false
}

func (o *oracleLine) use(n uint64) bool {
	t := o.get(n)
	if t == nil || t.state != called {
		return false
	}
	t.state = dead
	return true
}

func (o *oracleLine) lapse(n uint64, now Time) bool {
	t := o.get(n)
	if t == nil || t.state != called {
		return false
	}
	if t.state, t.lapsed = late, true; t.over(now) {
		t.state = dead
	}
	return true
}

func (o *oracleLine) deferCall(n uint64, now Time) bool {
	ok := o.lapse(n, now)
	if t := o.get(n); ok && t.state == late {
		t.deferred = true
	}
	return ok
}

func (o *oracleLine) leave(n uint64) TicketStatus {
	was := o.status(n)
	if t := o.get(n); t != nil {
		t.die()
	}
	return was
}

// expire walks one round from where it stopped, over at most budget places.
func (o *oracleLine) expire(now Time, budget int) (dropped int) {
	o.unkeep(now)
	var round []uint64
	for i := range o.tickets {
		if o.tickets[i].state != dead {
			round = append(round, o.first+uint64(i))
		}
	}
	at, _ := slices.BinarySearch(round, o.sweep)
	round = slices.Concat(round[at:], round[:at])
	for _, n := range round[:min(budget, len(round))] {
		o.sweep = n + 1
		if t := o.get(n); t.state != called && t.over(now) {
			t.die()
			dropped++
		}
	}
	return dropped
}

func (o *oracleLine) skipped() (runs []Run) {
	for n := o.frontier; n > o.first; n-- {
		m := n - 1
		t := o.get(m)
		if t == nil || t.state == dead && !t.trial {
			continue
		}
		if k := len(runs) - 1; k >= 0 && runs[k].First == n {
			runs[k] = Run{m, runs[k].N + 1}
		} else {
			runs = append(runs, Run{m, 1})
		}
	}
	return runs
}

// restart forgets everything that is not in the record.
func (o *oracleLine) restart(r Restored) *oracleLine {
	n := &oracleLine{
		first: r.Frontier, frontier: r.Frontier,
		grace: r.Grace, at: r.At, restored: r.Frontier, loose: r.Loose,
		unsureGrace: r.UnconfirmedGrace,
	}
	if k := len(r.Skipped); k > 0 {
		n.first = r.Skipped[k-1].First
	}
	arrived := min(r.At, r.Oldest)
	for m := n.first; m < r.Next; m++ {
		t := oracleTicket{unheard: true, seen: r.At, hold: r.Hold, joined: arrived, state: dead}
		if m >= r.Frontier {
			t.state = waiting
		}
		n.tickets = append(n.tickets, t)
	}
	for _, run := range r.Skipped {
		for m := run.First; m < run.First+run.N; m++ {
			n.get(m).state = late
		}
	}
	for m := max(r.Issued, r.Frontier); r.Issued > 0 && m < r.Next; m++ {
		n.get(m).unsure, n.get(m).hidden = true, r.Loose
	}
	for _, run := range r.Unconfirmed {
		for m := run.First; m < run.First+run.N; m++ {
			if t := n.get(m); t != nil && t.state != dead {
				t.unsure, t.hidden = true, true
			}
		}
	}
	return n
}

func (o *oracleLine) extend(next uint64, now Time, hold time.Duration) {
	for o.next() < next {
		o.tickets = append(o.tickets, oracleTicket{
			unheard: true, unsure: true, hidden: true, seen: now, hold: hold, joined: now,
		})
		o.loose = true
	}
}

func (o *oracleLine) hide() {
	for i := range o.tickets {
		o.tickets[i].hidden = o.tickets[i].hidden || o.tickets[i].unsure
	}
}

// unsure returns the numbers that were reserved before a restart and have not polled since.
func (o *oracleLine) unsure() (runs []Run) {
	for i := len(o.tickets) - 1; i >= 0; i-- {
		m := o.first + uint64(i)
		if t := &o.tickets[i]; (t.state == dead || !t.unsure) && !t.trial {
			continue
		}
		if k := len(runs) - 1; k >= 0 && runs[k].First == m+1 {
			runs[k] = Run{m, runs[k].N + 1}
		} else {
			runs = append(runs, Run{m, 1})
		}
	}
	return runs
}
