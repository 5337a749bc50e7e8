//go:build !cluster

package cluster

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/world/broker"
)

var (
	leaveOut = flag.String("leave-out", "", "numbers of events that TestSeed leaves out, such as 2,5")
	kind     = flag.String("kind", "", "what TestSeed plays: rooms, limits or queues; default by the seed")
)

// An event is one thing that happens to a world, for a while.
type event struct {
	at, lasts  time.Duration
	what       string
	node, with string
	n          int
}

func (e event) String() string {
	return fmt.Sprintf("%5.1f s %s %s %s %d for %.1f s", e.at.Seconds(), e.what, e.node, e.with, e.n,
		e.lasts.Seconds())
}

// eventKinds are what may happen, as often as they are named.
func eventKinds() []string {
	return strings.Fields("crash crash crash stop freeze freeze cut silence silence mute elect elect acks slow " +
		"full freeze")
}

// Times of a history. Chosen: faults overlap now and then, and after the last one the store may
// elect twice.
const (
	eventsFrom, eventsTo = 6 * time.Second, 40 * time.Second
	eventLasts           = 14 * time.Second
	calm                 = 30 * time.Second
)

// history draws what happens in a world.
func history(seed uint64, nodes []string) (all []event) {
	rng := rand.New(rand.NewPCG(seed, 7))
	kinds := eventKinds()
	for range 2 + rng.IntN(5) {
		e := event{what: kinds[rng.IntN(len(kinds))], node: nodes[rng.IntN(len(nodes))],
			with: nodes[rng.IntN(len(nodes))], n: 1 + rng.IntN(8),
			at:    eventsFrom + time.Duration(rng.Int64N(int64(eventsTo-eventsFrom))),
			lasts: time.Duration(rng.Int64N(int64(eventLasts)))}
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b event) int { return int(a.at - b.at) })
	return all
}

// left are the events of a history that are not left out.
func left(all []event, out string) (some []event) {
	var not []int
	for text := range strings.SplitSeq(out, ",") {
		if n, err := strconv.Atoi(text); err == nil {
			not = append(not, n)
		}
	}
	for i, e := range all {
		if !slices.Contains(not, i) {
			some = append(some, e)
		}
	}
	return some
}

// A stroke is the beginning or the end of an event.
type stroke struct {
	at time.Duration
	do func()
}

// unleash lets events happen, and returns when the last one is over and all nodes run again.
func (st *stage) unleash(events []event) {
	var strokes []stroke
	for _, e := range events {
		begin, end := st.strokes(e)
		strokes = append(strokes, stroke{e.at, begin}, stroke{e.at + e.lasts, end})
	}
	slices.SortStableFunc(strokes, func(a, b stroke) int { return int(a.at - b.at) })
	for _, s := range strokes {
		st.at(max(s.at, st.clock()))
		s.do()
	}
	for _, n := range st.nodes {
		if !n.runs() {
			n.start()
		}
		n.ready()
	}
}

// strokes are the beginning and the end of an event.
func (st *stage) strokes(e event) (begin, end func()) {
	w, n := st.links.w, st.get(e.node)
	store := w.Store(e.node)
	nothing := func() {}
	from := time.Duration(0)
	note := func(deaf bool, nodes ...string) {
		for _, name := range nodes {
			st.fault(e.what, name, from, deaf)
		}
	}
	every := storeNodes()
	switch e.what {
	case "crash", "stop":
		return func() {
				from = st.clock()
				if !n.runs() {
					return
				}
				st.t.Logf("%.1f s: %v", from.Seconds(), e)
				if e.what == "stop" {
					n.stop()
				} else {
					n.kill()
				}
			}, func() {
				if !n.runs() {
					n.start()
				}
				note(true, e.node)
			}
	case "freeze":
		return func() { from = st.clock(); n.freeze() }, func() { n.wake(); note(true, e.node) }
	case "cut", "silence":
		return func() { from = st.clock(); w.Cut(e.node, e.what == "silence", w.Others(e.node)...) },
			func() { w.Heal(); note(false, every...) }
	case "mute":
		if e.with == e.node {
			return nothing, nothing
		}
		return func() { from = st.clock(); w.Mute(e.node, e.with) },
			func() { w.Heal(); note(false, every...) }
	}
	return storeStrokes(e, store, func() { from = st.clock() }, func() { note(false, every...) })
}

// storeStrokes are those of the store.
func storeStrokes(e event, store *broker.Broker, mark, note func()) (begin, end func()) {
	switch e.what {
	case "elect":
		return func() { mark(); store.Elect(4*time.Second + e.lasts/3) }, note
	case "acks":
		return func() { mark(); store.LoseAcks(e.n) }, note
	case "slow":
		return func() { mark(); store.Slow(e.lasts / 4) }, func() { store.Slow(0); note() }
	}
	return func() { mark(); store.Fill(true) }, func() { store.Fill(false); note() } // full
}

// TestSeed plays a world with the events of a seed, and judges what must hold whatever happens.
func TestSeed(t *testing.T) { play(t, testSeed) }

func testSeed(t *testing.T) {
	what := *kind
	if what == "" {
		what = []string{"rooms", "limits", "queues"}[*seed%3]
	}
	events := left(history(*seed, storeNodes()), *leaveOut)
	for _, e := range events {
		t.Log(e)
	}
	switch what {
	case "rooms":
		seedOfRooms(t, events)
	case "limits":
		seedOfLimits(t, events)
	default:
		seedOfQueues(t, events)
	}
}

// TestSeedsFound plays seeds in which something broke once.
func TestSeedsFound(t *testing.T) {
	for _, found := range []struct {
		seed uint64
		what string
	}{
		{200028, "a later newcomer asked again first, and was called before an earlier one"},
		{200031, "the same"},
		{200067, "claims that nobody was told of were forgotten in an outage longer than their stays"},
		{66, "a node that had been frozen did not know the time, and the host could not write"},
		{84, "by a late answer a session seemed over that had just begun"},
		{200061, "a node that was started again did not know the time, and the host could not write"},
		{200088, "a claim was judged by the time of an earlier host"},
		{10, "a node that was stopped while it started ended with an error"},
		{102, "a client sent a request again after 5 s at a frozen node, and the other node was blamed"},
	} {
		t.Run(fmt.Sprint(found.seed), func(t *testing.T) {
			before := *seed
			*seed = found.seed
			defer func() { *seed = before }()
			t.Log(found.what)
			play(t, testSeed)
		})
	}
}

func seedOfRooms(t *testing.T, events []event) {
	p := usual()
	p.total, p.perMinute, p.visitors = 30, 300, 450
	p.session, p.length = 12*time.Second, eventsTo+2*eventLasts+calm
	p.arrive = p.length - 15*time.Second
	st := newStage(t, p)
	st.unleash(events)
	settled := st.clock() + calm
	if settled+15*time.Second > st.plan.length {
		st.plan.length = settled + 15*time.Second
	}
	l := limits{letIn: 20, waited: 0, idle: 10 * time.Second,
		spells: []spell{{what: "while faults last", to: settled, most: time.Hour}}}
	st.finish(l)
}

func seedOfLimits(t *testing.T, events []event) {
	c := newCallers(t, sharedRules(), 1)
	c.call(sharedLoads())
	c.unleash(events)
	c.away = append(c.away, c.faults...)
	end := c.clock() + calm
	c.away = append(c.away, fault{"faults", "n1", 0, end, true}, fault{"faults", "n2", 0, end, true},
		fault{"faults", "n3", 0, end, true}, fault{"faults", "w1", 0, end, true})
	c.end(end+5*time.Second, expected{silence: 5 * time.Second, spent: 2000})
}

func seedOfQueues(t *testing.T, events []event) {
	q := newFeed(t, 1)
	q.unleash(events)
	q.done(wanted{pause: time.Hour, repeats: 1 << 30})
}
