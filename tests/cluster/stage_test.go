package cluster

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/crowd"
	judge "github.com/headgate/headgate/tests/crowd"
)

// A plan is the room and the crowd of one run.
type plan struct {
	alone            bool           // one node without a cluster
	sites            []string       // data centers of one node each, the first is the home of Anywhere
	ownNATS          bool           // the records are in NATS servers, not in the nodes
	program          string         // that the nodes run at first, "" for headgate
	ahead            map[string]int // by so many seconds the wall clocks of nodes, see buildSkewed
	total, perMinute int            // as the judge is told
	factor           int            // what nodes are told is so many times that; 0 means 1
	session          time.Duration
	rooms            string   // more of them, as they are configured
	limits           string   // shared limits, as they are configured
	again            bool     // another run may follow, see excused
	queues           string   // as they are configured; NODE is the name of the node
	outside          *outside // nil makes one

	visitors     int
	arrive       time.Duration // they come within this time
	length       time.Duration // of the run
	stay, think  [2]time.Duration
	connectAnew  bool // all visitors, for each request; else every other one
	everyoneAsks bool // nobody tries used tickets again: the run is too short
	spike        spike
}

// A spike is visitors who come beside the others, within a second.
type spike struct {
	visitors int
	at       time.Duration
}

// askTimeout is how long a visitor waits for an answer. Chosen: far more than any
// node that lives should take.
const askTimeout = 8 * time.Second

// A stage is one run: nodes, the balancer before them, the origin behind them,
// and the crowd.
type stage struct {
	t        *testing.T
	plan     plan
	outside  *outside
	origin   *judge.Origin
	links    *links
	balancer *balancer
	recorder *recorder
	api      *http.Transport
	joins    string         // the folder of the join files
	own      map[string]int // cluster ports of the store nodes
	nats     []*node        // the servers of ownNATS
	doors    *doors         // of data centers, nil without

	mu    sync.Mutex // guards nodes while others than the test look
	nodes []*node

	looks  []look // of all data centers
	steps  []step
	faults []fault
	errors map[string]int // of the crowd's own account
	said   []string       // by the nodes at the end
	end    context.CancelFunc
	wg     sync.WaitGroup

	stalled, stalledAt time.Duration // the longest that a timer of ours was late
}

// newStage starts the nodes, and the crowd once all are ready.
func newStage(t *testing.T, p plan) *stage {
	t.Helper()
	p.ownNATS = p.ownNATS || *beside && !p.alone
	if p.outside == nil {
		p.outside = newOutside(t)
	}
	st := &stage{t: t, plan: p, outside: p.outside, api: &http.Transport{DialContext: p.outside.dial},
		own: map[string]int{}, errors: map[string]int{},
		steps: []step{{total: p.total, perMinute: p.perMinute}}}
	t.TempDir() // the first is removed last: after the nodes have ended
	var err error
	if st.origin, err = judge.ServeOrigin(st.outside.listen(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		st.api.CloseIdleConnections()
		if err := st.origin.Close(); err != nil {
			t.Error(err)
		}
	})
	st.balancer = newBalancer(t, st.outside)
	st.links = st.makeLinks()
	t.Cleanup(st.stopNodes)
	names := storeNodes()
	switch {
	case p.alone:
		names = []string{"alone"}
	case p.sites != nil:
		names = p.sites
		st.initSites()
	case p.ownNATS:
		st.startNATS()
	default:
		st.inits()
	}
	began := time.Now()
	for _, name := range names {
		st.node(name).start()
	}
	for _, n := range st.nodes {
		n.ready()
		st.door(n.name).add(n.name, n.public, n.admin)
	}
	ready, host := time.Since(began), "alone"
	switch {
	case p.sites != nil:
		st.acquainted()
		host = p.sites[0]
	case !p.alone: // ready is who can read records: a host of the room may come later
		host, _ = st.roles()
	}
	t.Logf("%d nodes ready after %v, %s hosts the room after %v", len(st.nodes),
		ready.Round(time.Millisecond), host, time.Since(began).Round(time.Millisecond))
	st.come()
	return st
}

// come lets the crowd come: half of it as browsers, half as apps.
func (st *stage) come() {
	ctx, end := context.WithCancel(st.t.Context())
	st.end = end
	st.recorder = newRecorder(st.outside, st.doorOf, ctx, st.plan.connectAnew)
	st.t.Cleanup(func() { end(); st.wg.Wait(); st.recorder.close() })
	url := "http://" + st.balancer.ln.Addr().String() + "/"
	for seed, mode := range []crowd.Mode{crowd.ModePage, crowd.ModeJSON} {
		cfg := crowd.Config{URL: url, N: st.plan.visitors / 2, Arrive: st.plan.arrive,
			Seed: uint64(seed), Mode: mode, LeavePath: judge.LeavePath, Timeout: askTimeout,
			SessionMin: st.plan.stay[0], SessionMax: st.plan.stay[1],
			ThinkMin: st.plan.think[0], ThinkMax: st.plan.think[1],
			Transport: st.recorder.as(string(mode))}
		st.wg.Go(func() { st.send(ctx, cfg) })
		if s := st.plan.spike; s.visitors > 0 {
			spike := cfg
			spike.N, spike.Arrive = s.visitors/2, time.Second
			spike.Transport = st.recorder.as("spike" + string(mode))
			st.wg.Go(func() {
				if wait(ctx, time.NewTimer(s.at)) {
					st.send(ctx, spike)
				}
			})
		}
	}
	st.wg.Go(func() { st.feel(ctx) })
	if st.doors != nil {
		st.wg.Go(func() { st.lookWorld(ctx) })
	}
	if !st.plan.everyoneAsks {
		st.wg.Go(func() { st.recorder.replay(ctx, url) })
	}
}

// send lets a crowd come and adds up what it says of errors.
func (st *stage) send(ctx context.Context, cfg crowd.Config) {
	result, err := crowd.Run(ctx, cfg, nil)
	if err != nil {
		st.t.Error(err)
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	for kind, n := range result.Summary().Errors {
		st.errors[kind] += n
	}
}

// wait reports whether the timer came before the end of ctx.
func wait(ctx context.Context, timer *time.Timer) bool {
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// feel notes how late a timer of this process is at most: nodes are no quicker.
func (st *stage) feel(ctx context.Context) {
	const every = 10 * time.Millisecond
	for last := st.clock(); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		now := st.clock()
		if late := now - last - every; late > st.stalled {
			st.stalled, st.stalledAt = late, last
		}
		last = now
	}
}

func (st *stage) clock() time.Duration { return st.recorder.clock() }

// at waits for a moment of the run.
func (st *stage) at(d time.Duration) {
	st.t.Helper()
	if late := st.clock() - d; late > 2*time.Second {
		st.t.Logf("late by %v for what was to happen at %v", late, d)
	}
	st.rest(d - st.clock())
}

// rest lets the crowd go on for a while.
func (st *stage) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-st.t.Context().Done():
		st.t.FailNow()
	case <-timer.C:
	}
}

// fault notes what was done to a node from a moment to now.
func (st *stage) fault(what, node string, from time.Duration, deaf bool) {
	st.faults = append(st.faults, fault{what, node, from, st.clock(), deaf})
}

// kill kills a node.
func (st *stage) kill(what, name string) {
	st.t.Helper()
	from := st.clock()
	st.get(name).kill()
	st.fault(what, name, from, true)
}

// again starts a node that was killed or stopped, and waits until it is ready.
func (st *stage) again(name string) {
	st.t.Helper()
	n := st.get(name)
	from := time.Now()
	n.start()
	n.ready()
	st.t.Logf("%s is ready %v after its start", name, time.Since(from).Round(time.Millisecond))
}

// Chosen: a machine that stood still for longer may be what took the time.
const steady = 100 * time.Millisecond

// timed are the figures that a machine which stands still worsens by itself. The others
// are promises that hold on any machine.
var timed = []string{"nobody let in though slots were free", "visitors let in", "visitors who waited",
	"in line and on time", "let in by ", "visitors inside sent back", "overtaken by more than 3 s"}

// excused says that a figure of this run proves nothing, and that another run is to come.
func (st *stage) excused(f *judge.Figure) bool {
	return st.plan.again && st.stalled > steady &&
		slices.ContainsFunc(timed, func(name string) bool { return strings.HasPrefix(f.Name, name) })
}

// finish waits for the end of the run and holds what was seen against the limits,
// and against more if there is more. again asks for another run.
func (st *stage) finish(l limits, more ...func(*run) judge.Figure) (again bool) {
	st.t.Helper()
	r := st.ended()
	figures, about := r.verdict(l)
	for _, f := range more {
		figures = append(figures, f(r))
	}
	figures = append(figures, show("this machine stood still, ms: longest",
		float64(st.stalled.Milliseconds()), "at %v: more than some 100 explains much", st.stalledAt))
	st.t.Logf("%d visitors, %d requests at the origin, the crowd's own account of errors: %v\n%s",
		len(r.visits), len(r.origin), st.errors, judge.Table(figures))
	for _, f := range figures {
		switch {
		case f.OK():
		case st.excused(&f):
			again = true
			st.t.Logf("this machine stood still for %v, so once more: %s", st.stalled, f.Name)
		default:
			st.t.Errorf("%s: %.4g, limit %.4g %s", f.Name, f.Reach, f.Limit, f.Note)
		}
	}
	if again {
		return !st.t.Failed()
	}
	if !st.t.Failed() {
		st.keep(figures)
		return false
	}
	for _, v := range about[:min(6, len(about))] {
		st.t.Log(v)
	}
	for _, text := range st.said {
		st.t.Log(text)
	}
	return false
}

// ended ends the run at its time and gives what was seen.
func (st *stage) ended() *run {
	st.t.Helper()
	st.at(st.plan.length)
	for _, n := range st.nodes {
		if n.runs() {
			n.alive()
			st.said = append(st.said, st.view(n))
		}
	}
	st.end()
	st.wg.Wait()
	return &run{steps: st.steps, session: st.plan.session, began: st.recorder.began,
		visits: st.recorder.order, replays: st.recorder.replays, faults: st.faults,
		origin: st.origin.Requests(), refused: st.balancer.refused, sites: st.plan.sites}
}

// figure looks for a line of the verdict by how it begins.
func figure(t *testing.T, figures []judge.Figure, name string) judge.Figure {
	t.Helper()
	byName := map[string]judge.Figure{}
	for _, f := range figures {
		byName[f.Name] = f
	}
	f, ok := byName[name]
	if !ok {
		t.Fatalf("no figure %q, only %q", name, slices.Sorted(maps.Keys(byName)))
	}
	return f
}

// quiet is a plan without a crowd but for two.
func quiet(total, perMinute int, session time.Duration) plan {
	return plan{total: total, perMinute: perMinute, session: session, visitors: 2,
		arrive: time.Second, length: time.Second, stay: stays, think: thinks, everyoneAsks: true}
}

// tell prints figures and fails with those that are over.
func (st *stage) tell(figures []judge.Figure) {
	st.t.Helper()
	st.t.Log("\n" + judge.Table(figures))
	for _, f := range figures {
		if !f.OK() {
			st.t.Errorf("%s: %v, limit %v %s", f.Name, f.Reach, f.Limit, f.Note)
		}
	}
}

func at(times []time.Duration, percent int) time.Duration {
	slices.Sort(times)
	return times[min(len(times)-1, len(times)*percent/100)]
}
