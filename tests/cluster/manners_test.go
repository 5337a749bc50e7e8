//go:build !cluster

package cluster

import (
	"testing"
	"time"

	worlds "github.com/headgate/headgate/tests/world"
)

// Scenarios of a store with bad manners, which no real one can be made to have on command.

// slowMost is by how much longer nobody may be let in when each write takes 1.5 s: a takeover is
// several of them. Chosen.
const slowMost = 8 * time.Second

// TestSlowWrites: the host is killed while its writes take 1.5 s: what was told before it was
// written is lost with it.
func TestSlowWrites(t *testing.T) {
	play(t, func(t *testing.T) {
		st := newStage(t, usual())
		l := usualLimits()
		l.faults = 2
		for _, at := range []time.Duration{13 * time.Second, 34 * time.Second} {
			st.at(at)
			host, leader := st.roles()
			store := st.links.w.Store(host)
			slow := st.spell("slow writes and kill", host, host, leader)
			slow.most, slow.to = idleLeader+slowMost, slow.from+20*time.Second
			l.spells = append(l.spells, slow)
			store.Slow(1500 * time.Millisecond)
			st.rest(2900 * time.Millisecond) // in the second of them, which has all of 1.5 s
			st.kill("kill", host)
			store.Slow(0)
			st.at(st.clock() + downFor)
			st.again(host)
		}
		st.finish(l)
	})
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
