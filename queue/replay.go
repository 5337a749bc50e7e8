package queue

// A replay collects the notes of earlier hosts until their chunks are read.
type replay struct {
	done   map[uint64]map[int]bool
	tries  map[ref]note
	dead   map[ref]note
	claims map[ref]note
	purged uint64 // chunks up to this one
	newest uint64 // newest chunk with a note
	paused bool
	asked  askedRate
	begun  bool // there was an earlier host

	ranks   map[ref]uint8       // changed priorities
	stopped map[string]struct{} // paused tenants
	timetables
	history history
	endings endings
}

func newReplay() *replay {
	return &replay{done: map[uint64]map[int]bool{}, tries: map[ref]note{}, dead: map[ref]note{},
		claims: map[ref]note{}, ranks: map[ref]uint8{}, stopped: map[string]struct{}{},
		timetables: newTimetables(), history: newHistory(0, 0)}
}

// note adds a note, in the order of the log.
func (p *replay) note(n *note) {
	p.newest = max(p.newest, n.ref.chunk())
	switch n.kind {
	case noteBegin:
		p.begun = true
	case noteDone:
		// A finished job wins over every other note: the same outcome may be noted by two hosts, in
		// any order.
		set := p.done[n.ref.chunk()]
		if set == nil {
			set = map[int]bool{}
			p.done[n.ref.chunk()] = set
		}
		for _, i := range n.done {
			set[i] = true
			delete(p.tries, refOf(n.ref.chunk(), i))
			delete(p.dead, refOf(n.ref.chunk(), i))
			delete(p.claims, refOf(n.ref.chunk(), i))
			delete(p.ranks, refOf(n.ref.chunk(), i))
		}
	case noteTry, noteDead, noteClaim: // each is all that is known of the job
		if !p.done[n.ref.chunk()][n.ref.index()] {
			delete(p.tries, n.ref)
			delete(p.dead, n.ref)
			delete(p.claims, n.ref)
			p.of(n.kind)[n.ref] = *n
		}
	case noteRank:
		if !p.done[n.ref.chunk()][n.ref.index()] {
			p.ranks[n.ref] = n.rank
		}
	case noteSchedule:
		p.restore(n)
	case noteTenant:
		delete(p.stopped, n.text)
		if n.paused {
			p.stopped[n.text] = struct{}{}
		}
	case noteEvent:
		if e := n.happened(); p.history.most > 0 && !p.history.has(&e) {
			p.history.add(e)
		}
	case noteEnded:
		p.endings.add(n.ended)
	case notePassed:
		p.endings.pass(n.ended.number)
	case noteControl:
		p.paused, p.asked = n.paused, n.asked
	// The host may be killed after it has written this note and before it has written the tries that it
	// knows: those of the notes before stay.
	case notePurged:
		p.purged = max(p.purged, n.ref.chunk())
	case notePurge:
		p.purged = max(p.purged, n.ref.chunk())
		// A purge drops waiting jobs, those that wait for another attempt included. Dead jobs stay:
		// they have a command of their own. So do jobs that workers have.
		for r := range p.tries {
			if r.chunk() <= p.purged {
				delete(p.tries, r)
			}
		}
	}
}

// of returns where the notes of a kind are.
func (p *replay) of(kind byte) map[ref]note {
	switch kind {
	case noteDead:
		return p.dead
	case noteClaim:
		return p.claims
	}
	return p.tries
}

// gone reports whether a job is finished or was purged.
func (p *replay) gone(r ref) bool {
	if p.done[r.chunk()][r.index()] {
		return true
	}
	_, dead := p.dead[r]
	_, tried := p.tries[r]
	_, claimed := p.claims[r]
	return r.chunk() <= p.purged && !dead && !tried && !claimed
}

// apply restores the state of a job in an index. It reports whether the job is unchanged since it
// was put.
func (p *replay) apply(x *index, r ref, h *head) bool {
	if p.gone(r) {
		x.finish(r)
		return false
	}
	if rank, ok := p.ranks[r]; ok {
		x.priorities[r], h.priority = rank, rank
	}
	if n, ok := p.dead[r]; ok {
		x.dead[r] = deadJob{n.attempt, n.at, n.text, h.tenant, n.code}
		return false
	}
	if n, ok := p.claims[r]; ok {
		x.claims[r] = restored(&n, h)
		x.flying[r] = n.at
		x.tries[r] = try{n.attempt - 1, n.since}
		x.hold(r, h)
		return false
	}
	if n, ok := p.tries[r]; ok {
		x.tries[r] = try{n.attempt, n.since}
		x.again(r, h, n.at)
		return false
	}
	return true
}

// restate returns notes with everything that an index knows and the log of jobs does not contain,
// so that earlier notes can be deleted.
func (x *index) restate(purged uint64) (all []note) {
	all = append(all, note{kind: notePurged, ref: refOf(purged, 0)})
	for _, seq := range x.order {
		c := x.chunks[seq]
		if c == nil || c.left == c.n {
			continue
		}
		n := note{kind: noteDone, ref: refOf(seq, 0)}
		for i := range int(c.n) {
			if c.done(i) {
				n.done = append(n.done, i)
			}
		}
		all = append(all, n)
	}
	for r, c := range x.claims {
		all = append(all, c.note(x.tries[r].since))
	}
	for r, t := range x.tries {
		if x.claims[r] != nil { // the note of the claim has it
			continue
		}
		all = append(all, note{kind: noteTry, ref: r, attempt: t.attempt, since: t.since, at: x.due[r]})
	}
	for r, d := range x.dead {
		all = append(all, note{kind: noteDead, ref: r, attempt: d.attempt, at: d.at, text: d.why,
			code: d.code})
	}
	for tenant := range x.stopped {
		all = append(all, note{kind: noteTenant, text: tenant, paused: true})
	}
	for r, rank := range x.priorities {
		all = append(all, note{kind: noteRank, ref: r, rank: rank})
	}
	// After those of jobs that were one too many: see timetable.
	for name, t := range x.schedules {
		all = append(all, t.note(name))
	}
	for _, e := range x.history.events[x.history.head:] {
		all = append(all, note{kind: noteEvent, ref: e.ref, event: e.kind, when: e.at, tried: e.attempt,
			code: e.code, text: e.why})
	}
	// Nothing about those that are passed on: when none waits, a version that does not know these notes can
	// host the queue again. The numbers may then begin anew, as nothing before the sum is left.
	for _, e := range x.endings.all {
		all = append(all, note{kind: noteEnded, ref: e.ref, ended: e})
	}
	return all
}
