//go:build !cluster

package cluster

import (
	"fmt"
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
