//go:build !cluster

package cluster

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	worlds "github.com/headgate/headgate/tests/world"
)

// Scenarios of a store with bad manners, which no real one can be made to have on command.

// slowMost is by how much longer nobody may be let in when each write takes 1.5 s: a takeover is
// several of them. Chosen.
const slowMost = 8 * time.Second

// TestSlowWrites: the host is killed while its writes take 1.5 s: what was told before it was
// written is lost with it. So the tickets that were claimed then are tried again.
func TestSlowWrites(t *testing.T) {
	play(t, func(t *testing.T) {
		const before = 2900 * time.Millisecond // in the second write, which has all of 1.5 s
		p := usual()
		kills := []time.Duration{13 * time.Second, 34 * time.Second}
		p.length = kills[1] + before + claimMemory + 5*time.Second
		p.visitors, p.arrive = 1200, p.length-20*time.Second // so that a line stands to the end
		st := newStage(t, p)
		l := usualLimits()
		l.faults = 2
		for _, at := range kills {
			st.at(at)
			host, leader := st.roles()
			store := st.links.w.Store(host)
			slow := st.spell("slow writes and kill", host, host, leader)
			slow.most, slow.to = idleLeader+slowMost, slow.from+20*time.Second
			l.spells = append(l.spells, slow)
			store.Slow(1500 * time.Millisecond)
			st.rest(before)
			st.kill("kill", host)
			store.Slow(0)
			st.at(st.clock() + downFor)
			st.again(host)
		}
		for _, at := range kills {
			st.at(at + before + claimMemory + time.Second)
			st.tryClaimed(at, at+before)
		}
		st.finish(l)
	})
}

// tryClaimed tries all tickets again that were claimed in a while.
func (st *stage) tryClaimed(from, to time.Duration) {
	r := st.recorder
	var all []usedTicket
	r.mu.Lock()
	for _, u := range r.used {
		if u.claimed >= from && u.claimed <= to {
			all = append(all, *u)
		}
	}
	r.mu.Unlock()
	for i, u := range all {
		name := fmt.Sprintf("claimed%d-%d", i, u.number)
		r.tryAgain(st.t.Context(), "http://"+st.balancer.ln.Addr().String()+"/", name, u)
	}
	st.t.Logf("%d tickets tried again that were claimed from %v to %v", len(all), from, to)
}

// TestLostAcks: acknowledgments of writes are lost, a few at a time.
func TestLostAcks(t *testing.T) {
	play(t, func(t *testing.T) {
		st := newStage(t, usual())
		l := usualLimits()
		l.letIn = 200
		for i := range 6 {
			st.at(time.Duration(8+7*i) * time.Second)
			host, leader := st.roles()
			lost := st.spell("lost acknowledgments", host, host, leader)
			lost.to = lost.from + 7*time.Second
			l.spells = append(l.spells, lost)
			st.links.w.Store(host).LoseAcks(1 + i)
		}
		st.finish(l)
	})
}

// TestQueuesSilentTarget: the target is silent, and then the node that delivers is killed with what
// it has sent; and a node that takes jobs in is killed while the disks are full.
func TestQueuesSilentTarget(t *testing.T) {
	play(t, func(t *testing.T) {
		q := newFeed(t, 1)
		w := q.links.w
		q.rest(time.Second)
		w.Store("n1").Fill(true)
		q.rest(1300 * time.Millisecond)
		q.kill("kill", "w1")
		w.Store("n1").Fill(false)
		q.again("w1")
		q.rest(2 * time.Second)
		host := q.hostOf()
		w.Net.Hold(host, worlds.Outside)
		q.rest(2 * time.Second)
		q.kill("kill", host)
		w.Net.Heal(host, worlds.Outside)
		q.again(host)
		q.done(wanted{pause: pauseLeader + slowMost, repeats: againAfter(len(q.faults))})
	})
}

// TestQueuesOrderSlow: jobs have order keys, and the node that delivers is killed while its writes take 1.5
// s: what became of many jobs is not on disk. None of them comes again after a later one of its key.
func TestQueuesOrderSlow(t *testing.T) {
	play(t, func(t *testing.T) {
		q := newOrderedFeed(t, orderSettings)
		for part := range 3 {
			host := q.partly(part+1, 5, q.hostOf)
			store := q.links.w.Store(host)
			store.Slow(1500 * time.Millisecond)
			q.rest(1200 * time.Millisecond)
			q.kill("kill", host)
			store.Slow(0)
			q.rest(downFor)
			q.again(host)
		}
		q.arriveAll()
		q.done(wanted{besides: q.inOrder(), pause: pauseLeader + slowMost, repeats: q.failed + againAfter(len(q.faults))})
	})
}

// A clockwork is the target of a queue with a schedule of each minute.
type clockwork struct {
	*feed
	mu  sync.Mutex
	ids map[string]map[string][]string // deliveries by key and ID: which node, when
}

// ServeHTTP is the target.
func (c *clockwork) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if c.ids[key] == nil {
		c.ids[key] = map[string][]string{}
	}
	id := r.Header.Get("Webhook-Id")
	c.ids[key][id] = append(c.ids[key][id], r.URL.Path[1:]+time.Now().Format(" 04:05.000"))
}

// until rests until the next full minute and some time.
func (c *clockwork) until(after time.Duration) {
	c.rest(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + after)))
}

// TestQueuesSchedule: the host of a queue is killed, cut off or frozen at each point of a firing: before
// it, while the job is written, while that it was fired is noted, after its delivery. Its disk is slow, so
// that each of these takes a second and a half, or loses what it acknowledges. Each minute has one job,
// with one ID, at least once.
func TestQueuesSchedule(t *testing.T) { play(t, testQueuesSchedule) }

func testQueuesSchedule(t *testing.T) {
	c := &clockwork{feed: &feed{tokens: map[string]string{}}, ids: map[string]map[string][]string{}}
	c.stage = &stage{t: t}
	out := newOutside(t)
	target := out.serve(t, c)
	t.Cleanup(target.Close)
	p := quiet(1000, 60_000, 10*time.Second)
	p.outside = out
	// Keys are forgotten at once: that a minute has one job does not depend on them.
	p.queues = fmt.Sprintf("queues:\n  - {name: orders, target: {url: '%s/NODE'}, key_window: 0, schedules: "+
		"[{name: tick, cron: '* * * * *', time_zone: America/New_York, missed: skip, job: {text: x}}]}\n", target.URL)
	c.stage = newStage(t, p)
	for _, n := range c.nodes {
		c.tokens[n.name] = n.token()
	}
	c.hostOf()
	c.until(-2 * time.Second)
	begun := time.Now()
	for _, f := range []struct {
		slow time.Duration // each write
		at   time.Duration // after the full minute
		do   func(host string)
	}{
		{0, -5 * time.Millisecond, nil}, {0, time.Millisecond, nil}, {0, 30 * time.Millisecond, nil},
		{1500, 700 * time.Millisecond, nil}, {1500, 1600 * time.Millisecond, nil},
		{1500, 2400 * time.Millisecond, nil}, {1500, 3100 * time.Millisecond, nil}, {1500, 4700 * time.Millisecond, nil},
		{0, -time.Millisecond, func(host string) {
			c.links.w.Store(host).LoseAcks(6)
			c.rest(25 * time.Second)
		}},
		{1500, 200 * time.Millisecond, func(host string) {
			c.get(host).freeze()
			c.rest(15 * time.Second)
			c.get(host).wake()
		}},
		{1500, 200 * time.Millisecond, func(host string) {
			c.links.sever(host, silenced)
			c.rest(12 * time.Second)
			c.links.heal()
		}},
	} {
		c.until(-3 * time.Second)
		host := c.hostOf()
		store := c.links.w.Store(host)
		store.Slow(f.slow * time.Millisecond)
		at := time.Now().Truncate(time.Minute).Add(time.Minute + f.at)
		if c.rest(time.Until(at)); f.do != nil {
			f.do(host)
			store.Slow(0)
			continue
		}
		c.kill("kill", host)
		store.Slow(0)
		c.rest(downFor)
		c.again(host)
	}
	c.until(30 * time.Second)
	c.mu.Lock()
	defer c.mu.Unlock()
	again := 0
	for at := begun.Truncate(time.Minute).Add(time.Minute); at.Before(time.Now()); at = at.Add(time.Minute) {
		key := "tick/" + at.UTC().Format(time.RFC3339)
		if len(c.ids[key]) != 1 {
			t.Errorf("%s has the jobs %v, want one", key, c.ids[key])
		}
		for _, all := range c.ids[key] {
			again += len(all) - 1
		}
		delete(c.ids, key)
	}
	for key, ids := range c.ids {
		if at, err := time.Parse("tick/"+time.RFC3339, key); err != nil || at.After(begun) {
			t.Errorf("a job that nobody asked for: %q, %v", key, ids)
		}
	}
	t.Logf("%d deliveries were repeated", again)
}
