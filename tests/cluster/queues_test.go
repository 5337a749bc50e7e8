package cluster

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	judge "github.com/headgate/headgate/tests/crowd"
)

// Times without a delivery. Chosen: a host that has died is replaced when it has been silent
// for 4 s (docs/queues.md); a store without a leader elects one in 4 to 9 s, or twice that, and
// a queue has two logs, each with a leader of its own.
const (
	pauseQuiet  = time.Second
	pauseStop   = 3 * time.Second
	pauseLeader = 14 * time.Second
	pauseCut    = 28 * time.Second // an election when it is cut off, and one when it is back
)

// againAfter is how many jobs may be repeated after so many losses of the host, or of its link
// to what keeps its outcomes.
func againAfter(faults int) int { return faults * (jobsAtOnce + jobsGroup) }

// TestQueuesQuiet: no fault, and then nothing is repeated.
func TestQueuesQuiet(t *testing.T) { play(t, testQueuesQuiet) }

func testQueuesQuiet(t *testing.T) {
	newFeed(t, 1).done(wanted{pause: pauseQuiet})
}

// TestQueuesGoRed: the nodes have twice the limit that the judge was told, and one delivery is
// hidden from it: it must see both.
func TestQueuesGoRed(t *testing.T) { play(t, testQueuesGoRed) }

func testQueuesGoRed(t *testing.T) {
	*jobs = min(*jobs, 20_000)
	q := newFeed(t, 2)
	q.wg.Wait()
	q.rest(3 * time.Second)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flow.sort()
	q.arrivals = q.arrivals[1:]
	figures := q.figures(wanted{pause: time.Hour})
	t.Logf("\n%s", judge.Table(figures))
	for _, name := range []string{"arrived in any second", "answered and not delivered"} {
		if f := figure(t, figures, name); f.OK() {
			t.Errorf("%s: %v is no fault, though it was made", f.Name, f.Reach)
		}
	}
}

// TestQueuesKillHost: the node that delivers is killed, again and again.
func TestQueuesKillHost(t *testing.T) { play(t, testQueuesKillHost) }

func testQueuesKillHost(t *testing.T) {
	q := newFeed(t, 1)
	q.each(func(int) { q.strike(q.hostOf()) })
	q.done(wanted{pause: pauseLeader, repeats: againAfter(len(q.faults))})
}

// TestQueuesKillEach: the store nodes are killed one after the other, among them the leaders of
// all that is kept and the host of the limit.
func TestQueuesKillEach(t *testing.T) { play(t, testQueuesKillEach) }

func testQueuesKillEach(t *testing.T) {
	q := newFeed(t, 1)
	names := storeNodes()
	q.each(func(i int) { q.strike(names[i%len(names)]) })
	q.done(wanted{pause: pauseLeader, repeats: againAfter(len(q.faults))})
}

// TestQueuesKillLeader: the leader of the store is killed.
func TestQueuesKillLeader(t *testing.T) { play(t, testQueuesKillLeader) }

func testQueuesKillLeader(t *testing.T) {
	q := newFeed(t, 1)
	q.each(func(int) {
		_, leader := q.roles()
		q.strike(leader)
	})
	q.done(wanted{pause: pauseLeader, repeats: againAfter(len(q.faults))})
}

// TestQueuesKillAny: any node is killed at any moment, and the next one soon after it is back.
func TestQueuesKillAny(t *testing.T) { play(t, testQueuesKillAny) }

func testQueuesKillAny(t *testing.T) {
	q := newFeed(t, 1)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	end := time.Duration(q.jobs*3/4/jobsPerSecond) * time.Second
	for q.clock() < end || len(q.faults) == 0 {
		q.rest(time.Second + time.Duration(r.IntN(12_000))*time.Millisecond)
		n := q.nodes[r.IntN(len(q.nodes))]
		q.kill("kill", n.name)
		q.rest(time.Duration(r.IntN(6_000)) * time.Millisecond)
		q.again(n.name)
	}
	// Of two leaders that are killed one after the other each costs an election.
	q.done(wanted{pause: pauseCut, repeats: againAfter(len(q.faults))})
}

// TestQueuesKillTaker: a node that only takes jobs in is killed. Nothing is repeated, and who
// delivers does not notice.
func TestQueuesKillTaker(t *testing.T) { play(t, testQueuesKillTaker) }

func testQueuesKillTaker(t *testing.T) {
	q := newFeed(t, 1)
	q.each(func(int) {
		if q.hostOf() == "w1" {
			t.Fatal("the worker delivers, though it has come last")
		}
		q.strike("w1")
	})
	q.done(wanted{pause: pauseQuiet})
}

// TestQueuesFreeze: the node that delivers sleeps for 15 s. When it wakes up it delivers no more
// than what was between its last look and the network.
func TestQueuesFreeze(t *testing.T) { play(t, testQueuesFreeze) }

func testQueuesFreeze(t *testing.T) {
	q := newFeed(t, 1)
	late := 0
	q.each(func(int) {
		name, from := q.hostOf(), q.clock()
		q.get(name).freeze()
		q.rest(15 * time.Second)
		woken := q.clock()
		q.get(name).wake()
		q.rest(3 * time.Second)
		q.fault("freeze", name, from, true)
		q.mu.Lock()
		defer q.mu.Unlock()
		late = max(late, q.by(name, woken, woken+3*time.Second))
	})
	q.done(wanted{pause: pauseLeader, repeats: againAfter(len(q.faults)), besides: []judge.Figure{
		most("delivered by one that woke up", late, jobsAtOnce/4, "chosen: what was about to go out"),
	}})
}

// TestQueuesCut: the node that delivers is cut off from all others for 10 s: connections are
// closed, then silent. It stops before another one begins.
func TestQueuesCut(t *testing.T) { play(t, testQueuesCut) }

func testQueuesCut(t *testing.T) {
	q := newFeed(t, 1)
	late := 0
	q.each(func(i int) {
		name, from := q.hostOf(), q.clock()
		q.links.sever(name, []cutHow{closed, silenced}[i%2])
		q.rest(10 * time.Second)
		q.mu.Lock()
		late = max(late, q.by(name, from+4*time.Second, from+10*time.Second))
		q.mu.Unlock()
		q.links.heal()
		q.fault("cut", name, from, false)
		q.rest(backWithin)
	})
	q.done(wanted{pause: pauseCut, repeats: againAfter(len(q.faults)), besides: []judge.Figure{
		most("delivered by one that was cut off, after 4 s", late, 0, ""),
	}})
}

// TestQueuesRollingRestart: each node is stopped in order and started again. Nothing is
// repeated.
func TestQueuesRollingRestart(t *testing.T) { play(t, testQueuesRollingRestart) }

func testQueuesRollingRestart(t *testing.T) {
	q := newFeed(t, 1)
	q.each(func(i int) {
		n := q.nodes[i%len(q.nodes)]
		from := q.clock()
		n.stop()
		q.again(n.name)
		q.fault("restart", n.name, from, false)
	})
	q.done(wanted{pause: pauseStop})
}

// TestQueuesFollowKill: jobs are put, followed, changed and canceled at all nodes, while the node that
// delivers is killed, again and again.
func TestQueuesFollowKill(t *testing.T) { play(t, testQueuesFollowKill) }

func testQueuesFollowKill(t *testing.T) {
	q := newFeed(t, 1)
	followed := q.follow()
	q.each(func(int) { q.strike(q.hostOf()) })
	q.done(wanted{pause: pauseLeader, repeats: againAfter(len(q.faults)), besides: followed()})
}

// TestQueuesTenantKill: a tenant is paused at one node, and its jobs are put at all, while the node that
// delivers is killed, again and again. None of them goes until it is resumed at another node, and then all.
func TestQueuesTenantKill(t *testing.T) { play(t, testQueuesTenantKill) }

func testQueuesTenantKill(t *testing.T) {
	q := newFeed(t, 1)
	until := func(what string, do func(n *node) error) {
		t.Helper()
		var err error
		for i := range 200 {
			if err = do(q.nodes[i%len(q.nodes)]); err == nil {
				return
			}
			q.rest(300 * time.Millisecond)
		}
		t.Fatalf("%s: %v", what, err)
	}
	steer := func(verb string) {
		until(verb, func(n *node) error {
			_, err := q.answer(n, http.MethodPost, "/v1/queues/orders/"+verb+"?tenant=held", q.tokens[n.name], "")
			return err
		})
	}
	var keys []string
	put := func() {
		var lines strings.Builder
		q.mu.Lock()
		for range 20 {
			key := fmt.Sprintf("%sheld-%d", followedKey, len(keys))
			keys, q.followed[key] = append(keys, key), &followed{}
			fmt.Fprintf(&lines, "{\"key\":%q,\"tenant\":\"held\",\"priority\":9,\"text\":\"x\"}\n", key)
		}
		q.mu.Unlock()
		until("put", func(n *node) error { return q.putLines(t.Context(), n, lines.String()) })
	}
	sent := func() (n int) {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, key := range keys {
			n += min(1, len(q.followed[key].arrivals))
		}
		return n
	}
	steer("pause")
	put()
	q.each(func(int) { q.strike(q.hostOf()); put() })
	early := sent()
	steer("resume")
	for range 600 {
		if sent() == len(keys) {
			break
		}
		q.rest(100 * time.Millisecond)
	}
	q.done(wanted{pause: pauseLeader, repeats: againAfter(len(q.faults)), besides: []judge.Figure{
		most("sent of a paused tenant", early, 0, "of %d", len(keys)),
		most("of it not sent when it was resumed", len(keys)-sent(), 0, "of %d", len(keys)),
	}})
}

// TestQueuesFollowCut: the same, while the node that delivers is cut off from all others, but not from
// those that cancel jobs: two nodes believe that they host the queue.
func TestQueuesFollowCut(t *testing.T) { play(t, testQueuesFollowCut) }

func testQueuesFollowCut(t *testing.T) {
	q := newFeed(t, 1)
	followed := q.follow()
	q.each(func(i int) {
		name, from := q.hostOf(), q.clock()
		q.links.sever(name, []cutHow{closed, silenced}[i%2])
		q.rest(10 * time.Second)
		q.links.heal()
		q.fault("cut", name, from, false)
		q.rest(backWithin)
	})
	q.done(wanted{pause: pauseCut, repeats: againAfter(len(q.faults)), besides: followed()})
}

// TestQueuesPullKill: workers at each node claim jobs, acknowledge them at any node, give some back and
// forget others, while the host is killed, and then each node in turn.
func TestQueuesPullKill(t *testing.T) { play(t, testQueuesPullKill) }

func testQueuesPullKill(t *testing.T) {
	q := newFeedOf(t, 1, pullSettings)
	judged := q.work()
	q.strike(q.partly(1, 7, q.hostOf))
	for i, n := range q.nodes {
		q.strike(q.partly(i+2, 7, func() string { return n.name }))
	}
	// Of two leaders that are killed one after the other each costs an election.
	q.done(wanted{besides: judged(), pause: pauseCut + askOfWorker, repeats: q.jobs})
}

// TestQueuesPullCut: the same, while the host is cut off from all others, but not from workers.
func TestQueuesPullCut(t *testing.T) { play(t, testQueuesPullCut) }

func testQueuesPullCut(t *testing.T) {
	q := newFeedOf(t, 1, pullSettings)
	judged := q.work()
	for i, how := range []cutHow{closed, silenced} {
		name, from := q.partly(i+1, 4, q.hostOf), q.clock()
		q.links.sever(name, how)
		q.rest(10 * time.Second)
		q.links.heal()
		q.fault("cut", name, from, false)
		q.rest(backWithin)
	}
	q.done(wanted{besides: judged(), pause: pauseCut + askOfWorker, repeats: q.jobs})
}

// partly waits until a part of the jobs has arrived, and returns what then is the name of a node.
func (q *feed) partly(part, of int, name func() string) string {
	q.t.Helper()
	for end := q.clock() + 2*time.Minute; q.arrived() < q.jobs*part/of && q.clock() < end; {
		q.rest(100 * time.Millisecond)
	}
	return name()
}

// ordersOfNode is how many order keys the jobs have that one producer puts. Few, so that most jobs wait for
// others of their key; more than the jobs of a key must not hold up, so that the pace is reached.
const ordersOfNode = 100

// An ordering is what is known of jobs with order keys.
type ordering struct {
	of       func(job int) string // nil: jobs have no order key
	done     []time.Duration      // when a job was first done, 0: not yet
	underWay map[string]map[*http.Request]bool
	atOnce   int // two attempts of a key, and the first one was not lost
	failed   int
	refuses  func(job int) bool // such a job is dead at once; nil: none is
	r        *rand.Rand
}

// order gives the jobs of a feed order keys. A producer puts the jobs of a key one after the other.
func (q *feed) order() {
	seed := rand.Uint64()
	q.t.Logf("seed of the target %d", seed)
	nodes := 4
	q.ordering = ordering{done: make([]time.Duration, q.jobs), underWay: map[string]map[*http.Request]bool{},
		r: rand.New(rand.NewPCG(seed, 0)), of: func(job int) string {
			return fmt.Sprintf("o%d-%d", job/jobsEach%nodes, job%ordersOfNode)
		}}
}

// serveOrdered is the target of jobs with order keys: it needs some time, and sometimes fails.
func (q *feed) serveOrdered(w http.ResponseWriter, r *http.Request, a arrival) {
	key := r.Header.Get("Headgate-Order-Key")
	q.mu.Lock()
	if want := q.of(a.job); key != want {
		q.t.Errorf("job %d has the order key %q, want %q", a.job, key, want)
	}
	for other := range q.underWay[key] {
		if other.Context().Err() == nil {
			q.atOnce++
		}
	}
	if q.underWay[key] == nil {
		q.underWay[key] = map[*http.Request]bool{}
	}
	q.underWay[key][r] = true
	q.arriveLocked(a)
	took, fails := time.Duration(q.r.IntN(10_000))*time.Microsecond, q.r.IntN(30) == 0
	q.mu.Unlock()
	wait(r.Context(), time.NewTimer(took)) // until its sender is gone, at most: then nobody knows what it did
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.underWay[key], r)
	if fails {
		q.failed++
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if q.refuses != nil && q.refuses(a.job) {
		w.WriteHeader(http.StatusBadRequest)
	}
	q.doneLocked(a.job, q.clock())
}

// doneLocked notes when a job was done, at the latest.
func (q *feed) doneLocked(job int, at time.Duration) {
	if q.of == nil {
		return
	}
	if d := &q.ordering.done[job]; *d == 0 || at < *d {
		*d = at
	}
}

// inOrder judges the order by what has arrived.
func (q *feed) inOrder() []judge.Figure {
	q.mu.Lock()
	defer q.mu.Unlock()
	first, last := make([]time.Duration, q.jobs), make([]time.Duration, q.jobs)
	for _, a := range q.arrivals {
		if first[a.job] == 0 {
			first[a.job] = a.at
		}
		last[a.job] = a.at
	}
	before := map[string]int{}
	var early, again, behind int
	for job := range q.jobs {
		key := q.of(job)
		if one, ok := before[key]; ok {
			behind++
			if q.ordering.done[one] == 0 || first[job] < q.ordering.done[one] {
				early++
			}
			if last[one] > first[job] {
				again++
			}
		}
		before[key] = job
	}
	return []judge.Figure{
		most("begun before the job ahead of the same order key was done", early, 0, "of %d", behind),
		most("begun again after a later job of the same order key", again, 0, ""),
		most("two of an order key at once", q.atOnce, 0, ""),
		show("attempts that failed", float64(q.failed), ""),
	}
}

func newOrderedFeed(t *testing.T, settings string) *feed {
	t.Helper()
	*jobs = min(*jobs, 16_000)
	return startFeed(t, 1, settings, (*feed).order)
}

const orderSettings = "target: {url: 'TARGET/NODE'}, concurrency: 64, max_attempts: 1000"

// TestQueuesOrderKill: jobs have order keys, and the target fails now and then, while the node that delivers
// is killed, and then each node in turn.
func TestQueuesOrderKill(t *testing.T) { play(t, testQueuesOrderKill) }

func testQueuesOrderKill(t *testing.T) {
	q := newOrderedFeed(t, orderSettings)
	q.strike(q.partly(1, 7, q.hostOf))
	for i, n := range q.nodes {
		q.strike(q.partly(i+2, 7, func() string { return n.name }))
	}
	q.arriveAll()
	q.done(wanted{besides: q.inOrder(), pause: pauseCut, repeats: q.failed + againAfter(len(q.faults))})
}

// TestQueuesOrderCut: the same, while the host is cut off from all others, but not from the target.
func TestQueuesOrderCut(t *testing.T) { play(t, testQueuesOrderCut) }

func testQueuesOrderCut(t *testing.T) {
	q := newOrderedFeed(t, orderSettings)
	for i, how := range []cutHow{closed, silenced} {
		name, from := q.partly(i+1, 4, q.hostOf), q.clock()
		q.links.sever(name, how)
		q.rest(10 * time.Second)
		q.links.heal()
		q.fault("cut", name, from, false)
		q.rest(backWithin)
	}
	q.arriveAll()
	q.done(wanted{besides: q.inOrder(), pause: pauseCut, repeats: q.failed + againAfter(len(q.faults))})
}

// TestQueuesOrderPullKill: workers claim jobs with order keys.
func TestQueuesOrderPullKill(t *testing.T) { play(t, testQueuesOrderPullKill) }

func testQueuesOrderPullKill(t *testing.T) {
	q := newOrderedFeed(t, pullSettings)
	judged := q.work()
	q.strike(q.partly(1, 7, q.hostOf))
	for i, n := range q.nodes {
		q.strike(q.partly(i+2, 7, func() string { return n.name }))
	}
	q.done(wanted{besides: append(judged(), q.inOrder()...), pause: pauseCut + askOfWorker, repeats: q.jobs})
}

// arriveAll waits until all jobs have arrived, and a while for what comes again.
func (q *feed) arriveAll() {
	q.t.Helper()
	q.partly(1, 1, func() string { return "" })
	q.rest(5 * time.Second)
}
