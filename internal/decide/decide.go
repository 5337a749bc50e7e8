// Package decide defines what a room decides about a request on one reading of its path, and which
// of two decisions is stricter.
//
// # Guarantees
//
// [Decision.Strictest] never lets a visitor do what one of the two decisions forbids. It is
// commutative and associative, so that the order of readings does not matter.
//
// # Concurrency and cost
//
// All functions are pure and allocate nothing.
//
// # Limitations
//
// The package does not make the decision: the room does.
package decide

import "github.com/headgate/headgate/internal/slot"

// An Action is what a rule does with a request.
type Action uint8

// Actions of rules. Lane is the first lane of the room; the others follow.
const (
	None Action = iota
	Bypass
	Crawler
	Deny
	Challenge
	Lane
)

// A Decision is what a room decides on one reading of a path.
type Decision struct {
	In       bool   // the path belongs to the room
	Own      string // the address below .headgate/, "" for a path of the site
	Act      Action
	Excluded bool
	Grace    bool
}

// Strictest returns what both d and x allow. lanes are the lanes of the room.
func (d Decision) Strictest(x Decision, lanes []slot.Lane) Decision {
	if d.Own != x.Own {
		d.Own = ""
	}
	d.In = d.In || x.In
	d.Excluded, d.Grace = d.Excluded && x.Excluded, d.Grace && x.Grace
	d.Act = Stricter(d.Act, x.Act, lanes)
	return d
}

// Stricter returns the action that gives a visitor fewer calls. A challenge gives those of the ordinary
// line at most, and costs something there.
func Stricter(a, b Action, lanes []slot.Lane) Action {
	if x, y := calls(a, lanes), calls(b, lanes); y < x || y == x && b > a {
		return b
	}
	return a
}

// calls returns how many of a hundred calls an action gives to a visitor.
func calls(a Action, lanes []slot.Lane) int {
	switch i := int(a) - int(Lane); {
	case a == Deny:
		return -1
	case a == Bypass || a == Crawler:
		return 101
	case i >= 0 && i < len(lanes):
		return lanes[i].Share
	}
	ordinary := 100
	for _, l := range lanes {
		ordinary -= l.Share
	}
	return ordinary
}
