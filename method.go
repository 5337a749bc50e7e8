package headgate

import (
	"fmt"

	"github.com/headgate/headgate/internal/counter"
)

// A Method says who is let in next.
type Method string

// The methods of a room. A change of it keeps everybody's place and time of arrival.
const (
	// MethodFIFO calls in the order of arrival. It is the default.
	MethodFIFO Method = "fifo"
	// MethodRandom draws who is called: of all who are present, each is as likely as any other.
	MethodRandom Method = "random"
	// MethodPassthrough lets everybody in and counts them. Its limits are not in force.
	MethodPassthrough Method = "passthrough"
	// MethodReject lets nobody new in and gives nobody a place.
	MethodReject Method = "reject"
)

func (m Method) check() error {
	switch m {
	case MethodFIFO, MethodRandom, MethodPassthrough, MethodReject:
		return nil
	}
	return fmt.Errorf("%w: method %q: there are fifo, random, passthrough and reject", ErrConfig, m)
}

// unlimited is what a room that lets all in counts with. It is a number for which all arithmetic
// of limits has room: more than anybody has visitors.
const unlimited = 1_000_000_000

// failsOpen reports whether a room that lets all pass while nobody can count them is to do so now.
func (r *Room) failsOpen(q *visitRequest) bool {
	after := q.f.cfg.FailOpenAfter
	return after > 0 && (r.live.Load().damaged || r.worker.silence() >= after)
}

// anyway lets a visitor through whom a room that lets all in could not count, because its
// counter did not answer in time. It reports whether this is such a room.
func (r *Room) anyway(q *visitRequest) bool {
	if q.f.cfg.Method != MethodPassthrough && !r.failsOpen(q) || r.live.Load().holds() {
		return false
	}
	if q.peek {
		r.wait(q, &counter.PlaceInfo{}, StateCalled)
		return true
	}
	r.counts.excluded.Add(1)
	r.pass(q)
	return true
}
