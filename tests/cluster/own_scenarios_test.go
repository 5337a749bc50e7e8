package cluster

import (
	"testing"
	"time"
)

// TestOwnNATS: three headgates are one room by three NATS servers that are not theirs.
func TestOwnNATS(t *testing.T) { play(t, testOwnNATS) }

func testOwnNATS(t *testing.T) {
	p := usual()
	p.ownNATS = true
	p.session, p.visitors, p.length = 3*time.Second, 1200, 61*time.Second
	p.arrive = 40 * time.Second
	st := newStage(t, p)
	st.checkOwn()
	l := usualLimits()
	l.letIn, l.waited, l.onTime = 550, 900, 80
	st.finish(l)
}

// TestOwnNATSKillHost: the headgate that hosts the room is killed, twice.
func TestOwnNATSKillHost(t *testing.T) { play(t, testOwnNATSKillHost) }

func testOwnNATSKillHost(t *testing.T) {
	killTwiceOfOwn(t, func(host, _ string) string { return host })
}

// TestOwnNATSKillLeader: the NATS server that leads the stream is killed, twice.
func TestOwnNATSKillLeader(t *testing.T) { play(t, testOwnNATSKillLeader) }

func testOwnNATSKillLeader(t *testing.T) {
	killTwiceOfOwn(t, func(_, leader string) string { return leader })
}

func killTwiceOfOwn(t *testing.T, pick func(host, leader string) string) {
	p := usual()
	p.ownNATS = true
	st := newStage(t, p)
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
