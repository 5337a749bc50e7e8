package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/crowd"
)

func secs(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// asked is a request that was answered at once.
func asked(kind string, at float64, state string, number uint64, position int64) ask {
	return ask{kind: kind, node: "n1", sent: secs(at), ended: secs(at + 0.01), status: 200,
		state: state, number: number, position: position, after: secs(1)}
}

// goodRun is a run without fault: eight visitors let in one after the other, one
// each ten seconds, by two nodes in turn, when the one before has just left. Each
// asks at every second. n2 is killed at 42 s.
func goodRun() *run {
	r := &run{
		steps: []step{{total: 1, perMinute: 8}}, session: secs(3.5),
		began:  time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		faults: []fault{{what: "kill", node: "n2", from: secs(42), to: secs(42), deaf: true}},
		replays: []replay{
			{name: "r1", number: 1, at: secs(70), claimed: secs(10), answered: true, got: 90,
				revoked: never},
			{name: "r2", number: 2, at: secs(30), claimed: secs(20), answered: true, got: 91,
				revoked: secs(26)},
			{name: "r3", number: 3, at: secs(36), claimed: secs(30), answered: true, admitted: true,
				revoked: never},
			{name: "r4", number: 4, at: secs(50), claimed: secs(40), answered: true, admitted: true,
				revoked: secs(42)},
		},
	}
	for i := range 8 {
		v := &visit{name: fmt.Sprint(i)}
		in := float64(10*i + 10)
		for at := 0.5 + float64(i)/100; at < in; at++ {
			position := int64(i) - int64(at/10) + 1
			v.asks = append(v.asks, asked(askPoll, at, stateWaiting, uint64(i+1), position))
		}
		v.asks = append(v.asks, asked(askPoll, in, stateCalled, uint64(i+1), 0))
		for _, after := range []float64{0.1, 3, 6.5} {
			a := asked(askPage, in+after, "", 0, 0)
			if i%2 == 1 {
				a.node = "n2"
			}
			v.asks = append(v.asks, a)
			r.seen(v.name, in+after)
		}
		r.visits = append(r.visits, v)
	}
	return r
}

// goodLimits are what goodRun reaches.
func goodLimits() limits {
	return limits{letIn: 8, waited: 8, idle: secs(10.05), onTime: 100, faults: 1, used: 2,
		at: map[string]int{"n1": 40, "n2": 40}}
}

// at finds the first request of a visitor that is not sent before a moment.
func (r *run) at(visitor int, s float64) *ask {
	for i := range r.visits[visitor].asks {
		if a := &r.visits[visitor].asks[i]; a.sent >= secs(s) {
			return a
		}
	}
	panic("no such request")
}

// seen adds a request that the origin saw.
func (r *run) seen(visitor string, s float64) {
	from := r.began.Add(secs(s + 0.001))
	r.origin = append(r.origin, crowd.Request{Visitor: visitor,
		Span: crowd.Span{From: from, To: from.Add(time.Millisecond)}})
}

// A spoiled is a run with something wrong in it.
type spoiled struct {
	lines string // that must fail, no others; "" when all is well
	name  string
	spoil func(*run)
}

// Too many inside, or too many new, by the limits of that moment.
func TestVerdictFindsTooMany(t *testing.T) {
	findFaults(t, []spoiled{
		{"", "all is well", func(*run) {}},
		{"inside at once|the same, and", "two at once", func(r *run) { r.seen("x", 31) }},
		{"the same, and", "the next comes within the session of one who has left by itself",
			func(r *run) { r.seen("x", 16.55) }},
		{"", "one who has left by the page that revokes holds no slot", func(r *run) {
			r.visits[0].asks[len(r.visits[0].asks)-1].kind = askLeave
			r.seen("x", 16.55)
		}},
		{"", "a renewal at a node that is killed counts for nothing", func(r *run) {
			r.faults[0].node, r.faults[0].from, r.faults[0].to = "n1", secs(16.7), secs(16.7)
			r.seen("x", 16.55)
			r.replays = r.replays[:2]
		}},
		{"the same, and", "one at another node does", func(r *run) {
			r.faults[0].from, r.faults[0].to = secs(16.7), secs(16.7)
			r.seen("x", 16.55)
			r.replays = r.replays[:2]
		}},
		{"new visitors", "one too many in a minute", func(r *run) { r.steps[0].perMinute = 5 }},
		{"", "the limits were raised", func(r *run) {
			r.seen("x", 31)
			r.seen("y", 31)
			r.steps = append(r.steps, step{secs(20), 6, 12}, step{secs(35), 1, 8})
		}},
		{"inside at once|the same, and", "the limits were lowered 4 s ago", func(r *run) {
			r.seen("x", 31)
			r.seen("y", 31)
			r.steps = append(r.steps, step{secs(20), 6, 12}, step{secs(27), 1, 8})
		}},
		{"", "or 2 s ago", func(r *run) {
			r.seen("x", 31)
			r.seen("y", 31)
			r.steps = append(r.steps, step{secs(20), 6, 12}, step{secs(29), 1, 12})
		}},
	})
}

// What a visitor is told, or not.
func TestVerdictFindsFaults(t *testing.T) {
	fail := func(a *ask) { a.failed = "timeout" }
	findFaults(t, []spoiled{
		{"tickets lost", "another number", func(r *run) { r.at(7, 43).number = 9 }},
		{"tickets lost", "no number", func(r *run) { r.at(7, 43).number = 0 }},
		{"in line", "its stay is over, and nobody told it", func(r *run) {
			a := r.at(7, 43)
			a.kind, a.lost, a.failed = askPage, true, "lost"
			asks := r.visits[7].asks
			i := slices.IndexFunc(asks, func(a ask) bool { return a.sent > secs(43.9) })
			r.visits[7].asks = slices.Delete(asks, i, i+7)
			r.at(7, 50).number = 9
		}},
		{"places shown", "further back", func(r *run) { r.at(7, 43).position = 8 }},
		{"overtaken", "a newcomer is let in past the line", func(r *run) { r.direct(42) }},
		{"", "who came before the line did not overtake it", func(r *run) {
			r.direct(42)
			r.visits[8].asks[0].sent = 0
		}},
		{"in line", "overtaken, but late by itself", func(r *run) {
			r.direct(55)
			for i := 5; i < 8; i++ {
				for j := range r.visits[i].asks {
					if a := &r.visits[i].asks[j]; a.waits() && a.sent > secs(56) {
						a.sent, a.ended = a.sent+secs(1.2), a.ended+secs(1.2)
						break
					}
				}
			}
		}},
		{"", "by less than 3 s", func(r *run) { r.direct(78) }},
		{"", "one who was told no place yet", func(r *run) {
			r.direct(42)
			for i := 4; i < 8; i++ {
				for j := range r.visits[i].asks {
					if a := &r.visits[i].asks[j]; a.sent < secs(43) {
						a.number = 0
					}
				}
			}
		}},
		{"nobody let in", "only while nobody was let in at all", func(r *run) {
			r.direct(49.9)
			r.origin = slices.DeleteFunc(r.origin, func(q crowd.Request) bool { return q.Visitor > "3" })
		}},
		{"used tickets that", "a used ticket lets in", func(r *run) { r.replays[0].admitted = true }},
		{"used tickets that", "a used ticket waits", func(r *run) {
			r.replays[0].got, r.replays[0].position = 1, 3
		}},
		{"", "a node that reaches no host tells a used ticket to wait, without a place",
			func(r *run) { r.replays[0].got = 1 }},
		{"used tickets that", "a revoked stay is entered again", func(r *run) {
			r.replays[1].admitted = true
		}},
		{"used tickets tried", "none was tried", func(r *run) { r.replays = nil }},
		{"visitors inside", "made to wait", func(r *run) {
			last := &r.visits[2].asks[len(r.visits[2].asks)-1]
			last.state, last.sent, last.ended = stateWaiting, secs(36), secs(36.01)
		}},
		{"", "its renewals died with the node", func(r *run) {
			v := r.visits[3]
			last := &v.asks[len(v.asks)-1]
			last.state, last.sent, last.ended = stateWaiting, secs(45), secs(45.01)
		}},
		{"answers that", "a server's error", func(r *run) {
			r.at(7, 43).state, r.at(7, 43).status = "", 502
		}},
		{"answers that", "the origin is said to be down", func(r *run) { r.at(7, 43).state = "down" }},
		{"requests without", "no answer from a node that lives", func(r *run) { fail(r.at(7, 42)) }},
		{"", "no answer from the one that is killed", func(r *run) {
			fail(r.at(7, 42))
			r.at(7, 42).node = "n2"
		}},
		{"", "no answer in what the one that is killed left of the time", func(r *run) {
			fail(r.at(7, 42))
			r.at(7, 42).first, r.at(7, 42).again = "n2", secs(49)
		}},
		{"requests without", "no answer, and it left the other one before that was killed", func(r *run) {
			fail(r.at(7, 41))
			r.at(7, 41).first, r.at(7, 41).again = "n2", secs(41.1)
		}},
		{"", "an answer lost on purpose", func(r *run) {
			fail(r.at(7, 42))
			r.at(7, 42).lost = true
		}},
		{"connections", "refused", func(r *run) { r.refused = 1 }},
		{"nobody let in", "a slot stays free", func(r *run) {
			r.origin = slices.DeleteFunc(r.origin, func(q crowd.Request) bool { return q.Visitor == "4" })
		}},
		{"faults", "none", func(r *run) { r.faults = nil; r.replays = r.replays[:2] }},
		{"visitors who waited|visitors let in", "too few came", func(r *run) { r.visits = r.visits[1:] }},
		{"let in by n2", "one node stood aside", func(r *run) {
			for _, v := range r.visits {
				v.admitted().node = "n1"
			}
		}},
	})
}

// findFaults wants each line of the verdict to fail when it should, and only then.
func findFaults(t *testing.T, tests []spoiled) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := goodRun()
			tt.spoil(r)
			want := strings.FieldsFunc(tt.lines, func(c rune) bool { return c == '|' })
			figures, _ := r.verdict(goodLimits())
			for _, f := range figures {
				named := slices.IndexFunc(want, func(line string) bool {
					return strings.HasPrefix(f.Name, line)
				})
				switch {
				case !f.OK() && named < 0:
					t.Errorf("%s: %v, limit %v %s", f.Name, f.Reach, f.Limit, f.Note)
				case !f.OK():
					want = slices.Delete(want, named, named+1)
				}
			}
			for _, line := range want {
				t.Errorf("the line %q found nothing", line)
			}
		})
	}
}

// direct adds a visitor who is let in at once.
func (r *run) direct(at float64) {
	a := asked(askPage, at, "", 0, 0)
	r.visits = append(r.visits, &visit{name: "direct", asks: []ask{a}})
}

// One whose first answer was lost on the way comes again as a newcomer, and takes
// a second slot: the judge must not take that for a free one.
func TestGhosts(t *testing.T) {
	r := goodRun()
	if n := len(r.ghosts()); n != 0 {
		t.Errorf("%d ghosts of a run without lost answers", n)
	}
	a := asked(askPage, 3, "", 0, 0)
	a.lost, a.failed = true, "lost"
	again := asked(askPage, 5, "", 0, 0)
	r.visits = append(r.visits, &visit{name: "x", asks: []ask{a, again, asked(askPage, 6, "", 0, 0)}})
	for _, at := range []float64{3, 5, 6} {
		r.seen("x", at)
	}
	if g := r.ghosts(); len(g) != 1 || g[0].from != secs(3.001) || g[0].most != secs(6.502) {
		t.Errorf("ghosts %v, want one from 3.001 s to 6.502 s", g)
	}
	r.steps[0].total = 2
	for _, g := range r.gaps(r.stays()) {
		if g.from < secs(6) && g.to > secs(4) {
			t.Errorf("slots are said to be free from %v to %v", g.from, g.to)
		}
	}
}

// Long gaps are no time in which one is overtaken, short ones are.
func TestWorking(t *testing.T) {
	o := order{gaps: []gap{{secs(1), secs(4)}, {secs(5), secs(5.9)}, {secs(8), secs(20)}}}
	if d := o.working(secs(3), secs(10)); d != secs(4) {
		t.Errorf("%v of 7 s, want 4 s", d)
	}
}

// The slots that were free when the first visitor was told to wait.
func TestUnused(t *testing.T) {
	r := goodRun()
	r.seen("x", 0.2)
	r.seen("y", 0.6)
	r.steps[0].total = 3
	n, at, ok := r.unused(r.stays())
	if n != 1 || at != secs(0.51) || !ok {
		t.Errorf("%d unused at %v, want 1 at 510ms", n, at)
	}
	if _, _, ok := (&run{steps: r.steps}).unused(nil); ok {
		t.Error("nobody waited, and yet there was a first one")
	}
}

// A longer gap is allowed in a spell, and only there.
func TestSpells(t *testing.T) {
	gaps := []gap{{secs(1), secs(3)}, {secs(9), secs(14)}, {secs(13), secs(16)}, {secs(30), secs(31)}}
	each, rest := longest(gaps, []spell{{from: secs(10), to: secs(20)}, {from: secs(25), to: secs(40)}})
	if each[0] != gaps[1] || each[1] != gaps[3] || rest != gaps[0] {
		t.Errorf("%v, and else %v", each, rest)
	}
	l := goodLimits()
	l.idle = secs(0.05)
	l.spells = []spell{{what: "all the time", to: secs(100), most: secs(10.05)}}
	figures, _ := goodRun().verdict(l)
	for _, f := range figures {
		if !f.OK() {
			t.Errorf("%s: %v, limit %v %s", f.Name, f.Reach, f.Limit, f.Note)
		}
	}
	if n := taken(goodRun().stays(), secs(21)); n != 1 {
		t.Errorf("%d slots taken at 21 s, want 1", n)
	}
}

// The log of a visitor names all that became of its requests.
func TestVisitString(t *testing.T) {
	v := &visit{name: "p1", asks: []ask{asked(askPage, 1, stateWaiting, 7, 3),
		asked(askPage, 2, "", 0, 0), {failed: "timeout", sent: secs(3)}, {failed: "x", lost: true}}}
	for _, want := range []string{"visitor p1", `"waiting", ticket 7, place 3, again in 1s`,
		"2.010 inside", "not answered: timeout", "lost on the way"} {
		if text := v.String(); !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
