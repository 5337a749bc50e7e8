package cluster

import (
	"fmt"
	"testing"
	"time"

	judge "github.com/headgate/headgate/tests/crowd"
)

// What several data centers promise (the issue "Datacenters").
const (
	rightIn  = 5 * time.Second // after all is healed, and of slots after the traffic
	mostTold = 20              // messages a second between them, of a room at its limit
)

// wide is the plan of most runs of several data centers: both limits bind about
// equally often.
func wide() plan {
	return plan{sites: siteNames(), total: 300, perMinute: 1800, session: 9 * time.Second,
		visitors: 2400, arrive: 45 * time.Second, length: 75 * time.Second, stay: stays, think: thinks}
}

// wideLimits are what wide reaches, with faults in it. Chosen with room below what is
// reached without.
func wideLimits() limits {
	return limits{letIn: 900, waited: 500, idle: idleMost, onTime: 50, used: 10,
		at: map[string]int{sjc: 10, lhr: 10, del: 10}}
}

// TestSites: three data centers are one room.
func TestSites(t *testing.T) { play(t, testSites) }

func testSites(t *testing.T) {
	st := newStage(t, wide())
	if past := st.links.bypassed(); len(past) > 0 {
		t.Fatalf("links go past the harness: %v", past)
	}
	st.finish(wideLimits(), st.inOrder, st.spread)
}

// inOrder: nobody is let in before somebody who came earlier by more than a second and
// what the nodes themselves say is unsure of the order (design.md §2, promise 3).
func (st *stage) inOrder(r *run) judge.Figure {
	apart := apartBy
	for _, l := range st.looks {
		for _, w := range l.worlds {
			apart = max(apart, time.Second+min(unsureMost, time.Duration(w.Unsure*float64(time.Second))))
		}
	}
	placed := func(p *place) time.Duration { return p.placed }
	f, _, worst := r.overtaken(order{0, placed, r.gaps(r.stays()), apart})
	n, at := worstSecond(f)
	return most("overtaken by who came 1 s and what is unsure later", f.n, 0,
		"%v; of %d, most in a second %d at %v, by %v at most %s", apart, f.judged, n, at,
		worst.Round(time.Millisecond), f.example)
}

// spread: while a line stands, no ten seconds see many more than their part of the limit
// per minute (docs/protocol.md §8, "Spread").
func (st *stage) spread(r *run) judge.Figure {
	const ten = 10 * time.Second
	stays, line := r.stays(), []time.Duration{}
	for i := range stays {
		if at := stays[i].from; r.standing(at-ten) > 0 && r.standing(at) > 0 {
			line = append(line, at)
		}
	}
	n, worst, first := 0, time.Duration(0), 0
	for i, at := range line {
		for at-line[first] >= ten {
			first++
		}
		if i-first+1 > n {
			n, worst = i-first+1, at
		}
	}
	part := st.plan.perMinute * int(ten) / int(window)
	return most("let in within 10 s while a line stands", n, part+part/5, "to %v, a sixth of the limit is %d",
		worst, part)
}

// TestSitesQuiet: most visitors come to one data center, later to another. Nobody waits
// before the room is full, and when it is, the data centers have little to tell.
func TestSitesQuiet(t *testing.T) { play(t, testSitesQuiet) }

func testSitesQuiet(t *testing.T) {
	st := newStage(t, plan{sites: siteNames(), total: 1000, perMinute: 60_000,
		session: 20 * time.Second, visitors: 1400, arrive: 20 * time.Second, length: 34 * time.Second,
		stay:  [2]time.Duration{26 * time.Second, 40 * time.Second},
		think: [2]time.Duration{3 * time.Second, 6 * time.Second}, connectAnew: true,
		everyoneAsks: true})
	st.lean(sjc, 0.8)
	st.at(7 * time.Second)
	st.lean(lhr, 0.8)
	// Full after 14 s; nobody leaves before 26 s.
	st.at(17 * time.Second)
	before := st.crossed()
	const quiet = 8 * time.Second
	st.rest(quiet)
	told := float64(st.crossed()-before) / quiet.Seconds()
	st.finish(limits{letIn: 1000, waited: 200, idle: idleMost, onTime: 80},
		func(r *run) judge.Figure {
			const name = "slots unused when the first one waits"
			n, at, ok := r.unused(r.stays())
			if !ok {
				return most(name, st.plan.total, 0, "nobody ever waited")
			}
			return most(name, n, st.plan.total/200, "at %v, 0.5 %% of %d", at, st.plan.total)
		},
		func(*run) judge.Figure {
			return judge.Figure{Name: "messages a second between data centers, at the limit",
				Reach: told, Limit: mostTold}
		})
}

// TestSitesShift: about as many come as there are slots for, most to one data center,
// later to another: the slots follow.
func TestSitesShift(t *testing.T) { play(t, testSitesShift) }

func testSitesShift(t *testing.T) {
	st := newStage(t, plan{sites: siteNames(), total: 150, perMinute: 60_000, session: 3 * time.Second,
		visitors: 2300, arrive: 48 * time.Second, length: 56 * time.Second,
		stay:  [2]time.Duration{500 * time.Millisecond, 1500 * time.Millisecond},
		think: [2]time.Duration{200 * time.Millisecond, 400 * time.Millisecond}})
	st.lean(sjc, 0.8)
	st.at(24 * time.Second)
	shift := st.clock()
	st.lean(lhr, 0.8)
	st.finish(limits{letIn: 1500, idle: idleMost},
		func(*run) judge.Figure {
			at, ok := st.overtook(lhr, sjc, shift)
			if !ok {
				at = st.plan.length
			}
			return most("until the slots are where the visitors are, ms", int((at - shift).Milliseconds()),
				int(rightIn.Milliseconds()), "%s", st.heldOver(shift-3*time.Second, shift+10*time.Second))
		},
		func(*run) judge.Figure {
			d, from, to := st.stranded()
			return most("somebody waits though other data centers have slots, ms at most",
				int(d.Milliseconds()), int(idleMost.Milliseconds()), "%v to %v, more than 5 %%", from, to)
		})
}

// overtook is when one data center first holds more slots than another, after a moment.
func (st *stage) overtook(one, other string, after time.Duration) (at time.Duration, ok bool) {
	for i := range st.looks {
		l := &st.looks[i]
		a, known := l.own(one)
		b, known2 := l.own(other)
		if l.at > after && known && known2 && a.Held > b.Held {
			return l.at, true
		}
	}
	return 0, false
}

// heldOver tells what each data center held, second by second.
func (st *stage) heldOver(from, to time.Duration) (text string) {
	next := from
	for i := range st.looks {
		l := &st.looks[i]
		if l.at < next || l.at > to {
			continue
		}
		next += time.Second
		text += fmt.Sprintf(" %.0f s:", l.at.Seconds())
		for _, name := range st.plan.sites {
			s, _ := l.own(name)
			text += fmt.Sprintf(" %d-%d-%d", s.Held, s.Unused, s.Waiting)
		}
		for _, name := range st.plan.sites {
			if w := l.worlds[name]; w != nil && w.Own == w.Home {
				text += fmt.Sprintf(" and %d-%d", w.Anywhere.Free, w.Anywhere.Presumed)
			}
		}
	}
	return fmt.Sprintf("held-unused-waiting at %v, free-presumed:%s", st.plan.sites, text)
}

// stranded is the longest time in which somebody waited in one data center while more
// than 5 % of the slots were unused elsewhere, by the nodes' own account.
func (st *stage) stranded() (longest, from, to time.Duration) {
	since := never
	for i := range st.looks {
		l := &st.looks[i]
		waiting, unused := 0, 0
		for _, name := range st.plan.sites {
			s, _ := l.own(name)
			if waiting += s.Waiting; s.Waiting == 0 {
				unused += s.Unused
			}
		}
		if w := l.worlds[st.plan.sites[0]]; w != nil {
			unused += w.Anywhere.Free
		}
		switch {
		case waiting == 0 || unused <= st.plan.total/20:
			since = never
		case since == never:
			since = l.at
		case l.at-since > longest:
			longest, from, to = l.at-since, since, l.at
		}
	}
	return longest, from, to
}

// TestSitesOrder: visitors are spread over all data centers, and all of them are one
// line.
func TestSitesOrder(t *testing.T) { play(t, testSitesOrder) }

func testSitesOrder(t *testing.T) {
	p := wide()
	p.connectAnew = true
	st := newStage(t, p)
	l := wideLimits()
	l.onTime = 80
	st.finish(l, st.inOrder, st.spread)
}

// TestSitesHotSpot: most visitors come to one data center, each 10 s to another.
func TestSitesHotSpot(t *testing.T) { play(t, testSitesHotSpot) }

func testSitesHotSpot(t *testing.T) {
	st := newStage(t, wide())
	for i := range 6 {
		st.at(time.Duration(10*i) * time.Second)
		st.lean(siteNames()[i%3], 0.8)
	}
	st.finish(wideLimits(), st.inOrder, st.spread)
}

// TestSitesWorldSpike: a few come all the time, then 1,500 within a second.
func TestSitesWorldSpike(t *testing.T) { play(t, testSitesWorldSpike) }

func testSitesWorldSpike(t *testing.T) {
	p := wide()
	p.visitors, p.arrive = 300, 50*time.Second
	p.spike = spike{visitors: 1500, at: 25 * time.Second}
	st := newStage(t, p)
	st.finish(wideLimits(), st.inOrder, st.spread, func(r *run) judge.Figure {
		return r.fewestTaken(p.spike.at+rightIn, aLine, p.total*4/10) // by the limit per minute it is 70 %
	})
}

// settledIn is when something is done to a data center. Chosen: more than a minute after
// the first came, for what a data center may let in by the limit per minute is what it let
// in a minute ago, when it is by itself.
const settledIn = 65 * time.Second

// long is wide until so long after settledIn. The limit per minute does not bind: else
// nothing would be seen of the other.
func long(after time.Duration) plan {
	p := wide()
	p.length, p.perMinute = settledIn+after, 20*p.total
	p.arrive = p.length - 15*time.Second
	p.visitors = 44 * int(p.arrive.Seconds()) // a few more than there are slots for
	return p
}

// TestSitesCutOff: a data center is cut off from both others for a minute. It goes on
// with what it holds.
func TestSitesCutOff(t *testing.T) { play(t, testSitesCutOff) }

func testSitesCutOff(t *testing.T) {
	apart(t, time.Minute, closed, between(lhr, sjc), between(lhr, del))
}

// TestSitesCutOffSilent: the same by silence, at the home of Anywhere.
func TestSitesCutOffSilent(t *testing.T) { play(t, testSitesCutOffSilent) }

func testSitesCutOffSilent(t *testing.T) {
	apart(t, time.Minute, silenced, between(lhr, sjc), between(sjc, del))
}

// TestSitesPairCut: two data centers are cut off from each other, and reach the third.
// Anywhere is at the one, so the other is without it.
func TestSitesPairCut(t *testing.T) { play(t, testSitesPairCut) }

func testSitesPairCut(t *testing.T) {
	apart(t, 40*time.Second, silenced, between(lhr, sjc))
}

// apart cuts pairs of data centers for a while, and wants all to be right soon after they
// are healed.
func apart(t *testing.T, during time.Duration, how cutHow, pairs ...pair) {
	st := newStage(t, long(during+40*time.Second))
	l := wideLimits()
	l.faults, l.apart = len(pairs), true
	st.at(settledIn)
	from := st.clock()
	for _, pair := range pairs {
		st.links.part(pair, how)
	}
	st.at(settledIn + during)
	for _, pair := range pairs {
		st.links.join(pair)
		st.fault(map[cutHow]string{closed: "cut", silenced: "silence"}[how], pair.String(), from, false)
	}
	healed := st.clock()
	took, wrong := st.right(3 * rightIn)
	more := []func(*run) judge.Figure{
		func(*run) judge.Figure {
			return most("until all data centers say what is right, ms after healing", int(took.Milliseconds()),
				int(rightIn.Milliseconds()), "at last: %s", wrong)
		},
		func(r *run) judge.Figure { return r.fewestTaken(healed+rightIn, aLine, st.plan.total*6/10) },
	}
	for _, name := range siteNames() {
		more = append(more, func(r *run) judge.Figure {
			return least("let in by "+name+" while they were apart, a second",
				r.letInAt(name, from, healed)/int(during.Seconds()), 5, "")
		})
	}
	st.finish(l, more...)
	t.Log(st.heldOver(from, healed+2*rightIn))
}

// TestSitesHomeLost: the home of Anywhere is killed, and started again after 30 s.
func TestSitesHomeLost(t *testing.T) {
	play(t, func(t *testing.T) { lost(t, sjc) })
}

// TestSitesLost: another data center is.
func TestSitesLost(t *testing.T) {
	play(t, func(t *testing.T) { lost(t, del) })
}

// lost kills a data center for half a minute: who waits there waits on.
func lost(t *testing.T, name string) {
	st := newStage(t, long(70*time.Second))
	l := wideLimits()
	l.faults, l.apart, l.onTime = 1, true, 20
	st.at(settledIn)
	from := st.clock()
	n := st.get(name)
	n.kill()
	st.rest(30 * time.Second)
	st.again(name)
	back := st.clock()
	st.fault("kill", name, from, true)
	took, wrong := st.right(3 * rightIn)
	more := []func(*run) judge.Figure{
		func(*run) judge.Figure {
			return most("until all data centers say what is right, ms after it is ready",
				int(took.Milliseconds()), int(rightIn.Milliseconds()), "at last: %s", wrong)
		},
		func(r *run) judge.Figure {
			return least("let in by it after it is back, by the end", r.letInAt(name, back, st.plan.length), 30, "")
		},
	}
	for _, other := range siteNames() {
		if other != name {
			more = append(more, func(r *run) judge.Figure {
				return least("let in by "+other+" meanwhile, a second",
					r.letInAt(other, from, back)/int((back-from).Seconds()), 5, "")
			})
		}
	}
	st.finish(l, more...)
	t.Log(st.heldOver(from, back+2*rightIn))
}

// TestSitesFreeze: the home of Anywhere sleeps for longer than any session, and wakes.
func TestSitesFreeze(t *testing.T) { play(t, testSitesFreeze) }

func testSitesFreeze(t *testing.T) {
	st := newStage(t, long(45*time.Second))
	l := wideLimits()
	l.faults, l.apart = 1, true
	st.at(settledIn)
	from := st.clock()
	st.get(sjc).freeze()
	st.rest(12 * time.Second)
	st.get(sjc).wake()
	st.fault("freeze", sjc, from, true)
	st.finish(l)
}

// TestSitesRoam: each fifth request goes to any data center. Tickets and passes hold
// everywhere.
func TestSitesRoam(t *testing.T) { play(t, testSitesRoam) }

func testSitesRoam(t *testing.T) {
	st := newStage(t, wide())
	st.stray(0.2)
	l := wideLimits()
	st.finish(l, st.inOrder, st.spread, func(r *run) judge.Figure {
		n := 0
		for _, v := range r.visits {
			if in := v.admitted(); in != nil && in.node != v.at() {
				n++
			}
		}
		return least("let in by another data center than they came to", n, 100, "")
	})
}
