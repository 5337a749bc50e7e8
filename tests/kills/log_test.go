package kills

import (
	"fmt"
	"strings"
	"time"
)

// never stands for an answer that was not read in full.
const never = time.Duration(-1)

// The kinds of request.
const (
	askJoin  = "join"  // the first of a visitor, without a cookie
	askPoll  = "poll"  // where do I stand
	askEnter = "enter" // the claim of a called ticket
	askVisit = "visit" // a request of someone inside
	askLeave = "leave" // the last one: the origin revokes the pass
)

// The states on the wire that are acted on or judged, written here again: who
// judges a server must not change with it.
const (
	stateWaiting = "waiting"
	stateCalled  = "called"
)

// An ask is one request of a visitor and what became of it. Times count from the
// start of the run.
type ask struct {
	kind     string
	due      time.Duration // when the visitor was to send it
	sent     time.Duration
	answered time.Duration // read in full, or never
	life     [2]int        // of the process: when it was sent, when it was answered
	state    string        // of a waiting answer; "" for the origin's
	number   uint64        // of the ticket, 0 if none was told
	position int64
	after    time.Duration // ask again after
}

// read reports whether the answer was read in full.
func (a *ask) read() bool { return a.answered != never }

// origin reports whether the origin answered.
func (a *ask) origin() bool { return a.read() && a.state == "" }

// waits reports whether the visitor was told to wait.
func (a *ask) waits() bool { return a.read() && a.state == stateWaiting }

// in reports whether the whole request fell into one life of the process.
func (a *ask) in(life int) bool { return a.read() && a.life == [2]int{life, life} }

// A visit is one visitor from its first request to its last: whoever has to
// begin again without a cookie is another one.
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
		fmt.Fprintf(&b, "\n  %9.3f %-5s", a.sent.Seconds(), a.kind)
		if late := a.sent - a.due; late > onTime/10 {
			fmt.Fprintf(&b, " late by %v", late.Round(time.Millisecond))
		}
		switch {
		case !a.read():
			fmt.Fprintf(&b, " not answered, lives %v", a.life)
		case a.origin():
			fmt.Fprintf(&b, " %.3f inside, lives %v", a.answered.Seconds(), a.life)
		default:
			fmt.Fprintf(&b, " %.3f %s, ticket %d, place %d, again in %v, lives %v",
				a.answered.Seconds(), a.state, a.number, a.position, a.after, a.life)
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

// A replay is a ticket cookie that was used before, sent once more by another.
type replay struct {
	name     string
	number   uint64        // of the used ticket
	age      time.Duration // since the answer to its claim
	revoked  time.Duration // when its stay was ended by the origin, or never
	answered bool
	admitted bool
	got      uint64 // number of the ticket in a waiting answer
	place    int64  // in the line, 0: none
}

// A kill is one end of a process and the start of the next.
type kill struct {
	at       time.Duration // frozen, for good
	inFlight string        // the system call and the file, "" if none was
	aimed    bool          // the moment was chosen for a write
	ready    time.Duration // the next process said it was
	started  time.Duration // and was started
}

// A gauge is one look at the process through its metrics.
type gauge struct {
	at                    time.Duration
	life                  int
	active, called, fresh float64
	writes                float64 // since its start
	goroutines, rss, fds  float64
}
