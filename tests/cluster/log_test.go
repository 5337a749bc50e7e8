package cluster

import (
	"fmt"
	"strings"
	"time"
)

// never is the time of what did not happen.
const never = time.Duration(-1)

// The kinds of request.
const (
	askPage   = "page"   // goes in if it may: a navigation, or what an app asks
	askPoll   = "poll"   // where do I stand
	askServed = "served" // the document that all share
	askLeave  = "leave"  // the last one: the origin revokes the pass
)

// The states on the wire that are acted on, written here again: who judges a
// server must not change with it.
const (
	stateWaiting = "waiting"
	stateCalled  = "called"
)

// An ask is one request of a visitor and what became of it. Times count from the
// start of the run.
type ask struct {
	kind     string
	node     string // that the balancer passed it to, "" if to none
	first    string // that it passed it to before the connection broke and the client sent it again
	sent     time.Duration
	again    time.Duration // when the client sent it again
	ended    time.Duration // the answer was read in full, or will never be
	failed   string        // why it was not read, "" if it was
	lost     bool          // the balancer lost the answer on purpose
	status   int
	state    string // of a waiting answer; "" for all others
	number   uint64 // of the ticket, 0 if none was told
	position int64
	after    time.Duration // ask again after
}

// read reports whether the answer was read in full.
func (a *ask) read() bool { return a.failed == "" }

// origin reports whether the origin answered.
func (a *ask) origin() bool {
	return a.read() && a.state == "" && a.status == 200 && (a.kind == askPage || a.kind == askLeave)
}

// waits reports whether the visitor was told to wait.
func (a *ask) waits() bool { return a.read() && a.state == stateWaiting }

// called reports whether the visitor was told that it is its turn, or let in.
func (a *ask) called() bool { return a.origin() || a.read() && a.state == stateCalled }

// wrong reports whether the answer is one that no visitor of these runs may get:
// an error, or a state that says so.
func (a *ask) wrong() bool {
	switch {
	case !a.read():
		return false
	case a.state == "":
		return a.status != 200
	default:
		return a.state != stateWaiting && a.state != stateCalled
	}
}

// A visit is one visitor from its first request to its last.
type visit struct {
	name string
	asks []ask
}

// String is the log of a visitor, a line for each request.
func (v *visit) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "visitor %s", v.name)
	for i := range v.asks {
		a := &v.asks[i]
		fmt.Fprintf(&b, "\n  %8.3f %-6s at %-3s", a.sent.Seconds(), a.kind, a.node)
		switch {
		case a.lost:
			fmt.Fprintf(&b, " %.3f lost on the way", a.ended.Seconds())
		case !a.read():
			fmt.Fprintf(&b, " %.3f not answered: %s", a.ended.Seconds(), a.failed)
		case a.origin():
			fmt.Fprintf(&b, " %.3f inside", a.ended.Seconds())
		default:
			fmt.Fprintf(&b, " %.3f %d %q, ticket %d, place %d, again in %v",
				a.ended.Seconds(), a.status, a.state, a.number, a.position, a.after)
		}
	}
	return b.String()
}

// number is the ticket's, from the first answer that told one.
func (v *visit) number() uint64 {
	for i := range v.asks {
		if a := &v.asks[i]; a.read() && a.number != 0 {
			return a.number
		}
	}
	return 0
}

// admitted is the first answer of the origin, nil if there is none.
func (v *visit) admitted() *ask {
	for i := range v.asks {
		if v.asks[i].origin() {
			return &v.asks[i]
		}
	}
	return nil
}

// waited is when the visitor was told to wait first, and when it last asked and
// was told so, both never if it was not.
func (v *visit) waited() (from, to time.Duration) {
	from, to = never, never
	for i := range v.asks {
		if a := &v.asks[i]; a.waits() {
			if from == never {
				from = a.ended
			}
			to = a.sent
		}
	}
	return from, to
}

// left is when the visitor asked to leave, or never.
func (v *visit) left() time.Duration {
	for i := range v.asks {
		if a := &v.asks[i]; a.kind == askLeave {
			return a.sent
		}
	}
	return never
}

// nodeOf is the node that passed on what the origin saw of this visitor from one
// moment to another, "" if no request of it fits.
func (v *visit) nodeOf(from, to time.Duration) string {
	for i := range v.asks {
		if a := &v.asks[i]; a.sent <= from && to <= a.ended {
			return a.node
		}
	}
	return ""
}

// A replay is a ticket cookie that was used before, sent once more by another.
type replay struct {
	name     string
	visitor  string        // who used the ticket
	node     string        // that it was sent to
	number   uint64        // of the used ticket
	at       time.Duration // of the answer
	claimed  time.Duration // answer to the claim
	revoked  time.Duration // when its stay was ended by the origin, or never
	answered bool
	admitted bool
	got      uint64 // number of the ticket in a waiting answer
	position int64  // the place it told, 0 if none
}

// A fault is what was done to a node, until it was whole again: of a kill both
// times are the same.
type fault struct {
	what, node string
	from, to   time.Duration
	deaf       bool // the node answers nobody meanwhile: killed or frozen, not cut off
}
