package cluster

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	judge "github.com/headgate/headgate/tests/crowd"
)

// How visitors behave in most runs. Chosen: two pauses and what a lost renewal
// costs stay below a session of 6 s.
var (
	stays  = [2]time.Duration{1 * time.Second, 4 * time.Second}
	thinks = [2]time.Duration{300 * time.Millisecond, 800 * time.Millisecond}
)

// How long nobody may be let in although slots are free (the issue "Cluster").
const (
	idleMost   = 3 * time.Second // when nothing is wrong. Chosen
	idleHost   = 5 * time.Second
	idleLeader = 12 * time.Second // an election of the store, too
)

// downFor is how long a killed node stays away.
const downFor = 5 * time.Second

// usual is the plan of most runs: both limits bind about equally often.
func usual() plan {
	return plan{total: 60, perMinute: 600, session: 6 * time.Second, visitors: 900,
		arrive: 38 * time.Second, length: 57 * time.Second, stay: stays, think: thinks}
}

// usualLimits are what usual reaches, with faults in it. Chosen with room below what
// one node alone reaches.
func usualLimits() limits {
	return limits{letIn: 300, waited: 500, idle: idleMost, onTime: 50, used: 10,
		at: map[string]int{"n1": 10, "n2": 10, "n3": 10}}
}

// TestThree: three nodes are one room. With every change it is run on machines that do
// other work too: then what needs a steady one has up to three tries.
func TestThree(t *testing.T) { play(t, testThree) }

func testThree(t *testing.T) {
	p := usual()
	p.session, p.visitors, p.length = 3*time.Second, 1200, 61*time.Second
	p.arrive = 40 * time.Second
	l := usualLimits()
	l.letIn, l.waited, l.onTime = 550, 900, 80
	retry(t, func(t *testing.T, last bool) (again bool) {
		p.again = !last
		return newStage(t, p).finish(l)
	})
}

// TestKillHost: the room's host is killed, twice.
func TestKillHost(t *testing.T) { play(t, testKillHost) }

func testKillHost(t *testing.T) {
	killTwice(t, func(host, _ string) string { return host })
}

// TestKillStoreLeader: the leader of the store is killed, twice.
func TestKillStoreLeader(t *testing.T) { play(t, testKillStoreLeader) }

func testKillStoreLeader(t *testing.T) {
	killTwice(t, func(_, leader string) string { return leader })
}

func killTwice(t *testing.T, pick func(host, leader string) string) {
	st := newStage(t, usual())
	l := usualLimits()
	l.faults = 2
	for _, at := range []time.Duration{13 * time.Second, 34 * time.Second} {
		st.at(at)
		host, leader := st.roles()
		name := pick(host, leader)
		l.spells = append(l.spells, st.spell("kill", name, host, leader))
		st.kill("kill", name)
		st.at(st.clock() + downFor)
		st.again(name)
	}
	st.finish(l)
}

// spell is how long nobody may be let in after something is done to a node now.
func (st *stage) spell(what, name, host, leader string) spell {
	// It ends soon enough for the next one.
	from := st.clock()
	s := spell{what: fmt.Sprintf("%s of %s at %.1f s", what, name, from.Seconds()), from: from,
		to: from + idleLeader, most: idleHost}
	if name == host {
		s.what += ", the host"
	}
	if name == leader {
		s.what, s.most = s.what+", leader of the store", idleLeader
	}
	st.t.Logf("%.1f s: %s", from.Seconds(), s.what)
	return s
}

// TestFreeze: the host sleeps for longer than any session, and wakes up.
func TestFreeze(t *testing.T) { play(t, testFreeze) }

func testFreeze(t *testing.T) {
	p := usual()
	p.session = 8 * time.Second // a request at the frozen node costs seconds
	st := newStage(t, p)
	l := usualLimits()
	l.faults = 1
	st.at(13 * time.Second)
	host, leader := st.roles()
	frozen := st.spell("freeze", host, host, leader)
	if host == leader { // its connections stand, so the others may have to elect twice
		frozen.most = 20 * time.Second
		frozen.to = frozen.from + frozen.most
	}
	l.spells = []spell{frozen}
	from := st.clock()
	st.get(host).freeze()
	st.rest(10 * time.Second)
	st.get(host).wake()
	st.fault("freeze", host, from, true)
	st.finish(l)
}

// TestRollingRestart: each node is restarted in turn, in order, and no visitor
// notices.
func TestRollingRestart(t *testing.T) {
	play(t, func(t *testing.T) { roll(t, usual()) })
}

// TestRollingUpgrade: each node in turn is replaced by the headgate of now; before it
// ran that of the commit before. Records and messages of both meet.
func TestRollingUpgrade(t *testing.T) { play(t, testRollingUpgrade) }

func testRollingUpgrade(t *testing.T) {
	p := usual()
	p.program = buildPrevious(t)
	roll(t, p)
}

func roll(t *testing.T, p plan) {
	st := newStage(t, p)
	l := usualLimits()
	for i, name := range storeNodes() {
		st.at(time.Duration(10+13*i) * time.Second)
		host, leader := st.roles()
		l.spells = append(l.spells, st.spell("restart", name, host, leader))
		from := time.Now()
		st.get(name).stop()
		st.get(name).run = ""
		t.Logf("%s ended %v after SIGTERM", name, time.Since(from).Round(time.Millisecond))
		st.again(name)
	}
	for i := range l.spells { // a clean stop hands over, the lead too
		l.spells[i].most = idleHost
	}
	l.letIn = 350
	st.finish(l)
}

// TestSkew: most visitors meet one node, later another. Nobody waits before the
// room is full: all nodes together use every slot.
func TestSkew(t *testing.T) { play(t, testSkew) }

func testSkew(t *testing.T) {
	st := newStage(t, plan{total: 1000, perMinute: 60_000, session: 20 * time.Second,
		visitors: 1400, arrive: 20 * time.Second, length: 32 * time.Second,
		stay:  [2]time.Duration{25 * time.Second, 40 * time.Second},
		think: [2]time.Duration{3 * time.Second, 6 * time.Second}, connectAnew: true,
		everyoneAsks: true})
	st.balancer.lean("n1", 0.8)
	st.at(7 * time.Second)
	st.balancer.lean("n2", 0.8)
	st.finish(limits{letIn: 1000, waited: 200, idle: idleMost, onTime: 80},
		func(r *run) judge.Figure {
			const name = "slots unused when the first one waits"
			n, at, ok := r.unused(r.stays())
			if !ok {
				return most(name, st.plan.total, 0, "nobody ever waited")
			}
			return most(name, n, st.plan.total/200, "at %v, 0.5 %% of %d", at, st.plan.total)
		})
}

// TestCutLinks: the host reaches nobody for 10 s, first because its connections are
// closed, later because nothing goes through them. Visitors reach it all the time.
func TestCutLinks(t *testing.T) { play(t, testCutLinks) }

func testCutLinks(t *testing.T) {
	p := usual()
	p.session, p.total = 20*time.Second, 200 // a cut-off node cannot renew
	st := newStage(t, p)
	if past := st.links.bypassed(); len(past) > 0 {
		t.Fatalf("links go past the harness, so cutting them proves nothing: %v\n"+
			"a node must tell the others the address in peers, not the one it listens at", past)
	}
	l := usualLimits()
	l.faults, l.letIn, l.used, l.onTime = 2, 250, 3, 5 // every third poll goes to the node that is cut off
	for i, how := range []cutHow{closed, silenced} {
		st.at(time.Duration(10+23*i) * time.Second)
		host, leader := st.roles()
		what := map[cutHow]string{closed: "cut", silenced: "silence"}[how]
		cut := st.spell(what, host, host, leader)
		cut.most = max(cut.most, 7*time.Second) // two who cannot hear each other both think they host
		l.spells = append(l.spells, cut)
		from := st.clock()
		st.links.sever(host, how)
		st.rest(10 * time.Second)
		st.links.heal()
		st.fault(what, host, from, false)
		// Whoever comes back after a partition makes the store elect anew.
		host, leader = st.roles()
		heal := st.spell("heal", leader, host, leader)
		heal.from -= time.Second // the last one was let in before
		l.spells[len(l.spells)-1].to = heal.from
		l.spells = append(l.spells, heal)
	}
	st.finish(l)
}

// TestLostAnswers: one answer of twenty is lost after its request was done, and the
// visitor asks again.
func TestLostAnswers(t *testing.T) { play(t, testLostAnswers) }

func testLostAnswers(t *testing.T) {
	lostAnswers(t, usual())
}

// lostAnswers has sessions far longer than it takes to ask three times: visitors
// wait 2 s, then 4 s, before they ask again.
func lostAnswers(t *testing.T, p plan) {
	p.total, p.session, p.connectAnew = 120, 15*time.Second, true
	st := newStage(t, p)
	// A loss in each reading of an answer: pages take several. Chosen.
	st.balancer.lose(0.05)
	l := usualLimits()
	l.onTime = 20 // who gets no answer misses a poll
	if p.alone {
		l.at = nil
	}
	st.finish(l, func(*run) judge.Figure {
		return least("answers lost on the way", st.balancer.losses, 200, "")
	})
}

// TestLimits: limits are changed at one node while people are inside, and all nodes
// follow.
func TestLimits(t *testing.T) { play(t, testLimits) }

func testLimits(t *testing.T) {
	p := usual()
	p.visitors = 1200
	changeLimits(t, p, storeNodes())
}

// changeLimits raises, lowers and raises again, each at another node.
func changeLimits(t *testing.T, p plan, at []string) {
	st := newStage(t, p)
	l := usualLimits()
	if p.alone {
		l.at = nil
	}
	l.letIn = 400
	var more []func(*run) judge.Figure
	for i, s := range []step{{total: 100, perMinute: 1500}, {total: 30, perMinute: 700},
		{total: 80, perMinute: 1800}} {
		st.at(time.Duration(14+15*i) * time.Second)
		name := at[i%len(at)]
		took := st.change(name, s)
		more = append(more, func(*run) judge.Figure {
			return most("until all nodes show new limits, ms", int(took.Milliseconds()),
				int(within.Milliseconds()), "%d and %d, set at %s", s.total, s.perMinute, name)
		})
		// Halfway to the next the higher limit is used.
		if use := st.clock() + 8*time.Second; i != 1 {
			more = append(more, func(r *run) judge.Figure {
				return least("slots taken 8 s after the limit was raised", taken(r.stays(), use),
					s.total*8/10, "of %d", s.total)
			})
		}
	}
	st.finish(l, more...)
}

// TestRotateKeys: the sealing key is replaced at one node, and again at another; the
// first new one seals before the run is over. Nobody loses a place or a stay.
func TestRotateKeys(t *testing.T) { play(t, testRotateKeys) }

func testRotateKeys(t *testing.T) {
	st := newStage(t, usual())
	for i, name := range []string{"n1", "n2"} {
		st.at(time.Duration(8+10*i) * time.Second)
		n := st.get(name)
		token := n.token()
		if err := st.ask(n, http.MethodPost, "/v1/keys/rotate", token, "", &struct{}{}); err != nil {
			t.Fatal(err)
		}
	}
	st.finish(usualLimits())
}

// TestWorkersComeAndGo: two workers join, take visitors and are killed.
func TestWorkersComeAndGo(t *testing.T) { play(t, testWorkersComeAndGo) }

func testWorkersComeAndGo(t *testing.T) {
	st := newStage(t, usual())
	st.at(8 * time.Second)
	for _, name := range []string{"w1", "w2"} {
		n := st.node(name)
		st.again(name)
		st.balancer.add(name, n.public, n.admin)
	}
	l := usualLimits()
	l.faults, l.at["w1"], l.at["w2"] = 2, 3, 3
	st.at(32 * time.Second)
	st.kill("kill", "w1")
	st.at(40 * time.Second)
	st.kill("kill", "w2")
	st.finish(l)
}
