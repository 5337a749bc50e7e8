package headgate

import (
	"fmt"

	"github.com/headgate/headgate/internal/counter"
)

// A Method selects which visitor is admitted next.
type Method string

// Methods of a room. When the method changes, all visitors keep their place and time of arrival.
const (
	// MethodFIFO calls visitors in the order of arrival. It is the default.
	MethodFIFO Method = "fifo"
	// MethodRandom calls visitors at random: each present visitor is equally likely.
	MethodRandom Method = "random"
	// MethodPassthrough admits all visitors and counts them. The limits are not in force.
	MethodPassthrough Method = "passthrough"
	// MethodReject admits no newcomers and gives them no place.
	MethodReject Method = "reject"
)

func (m Method) check() error {
	switch m {
	case MethodFIFO, MethodRandom, MethodPassthrough, MethodReject:
		return nil
	}
	return fmt.Errorf("%w: method %q: there are fifo, random, passthrough and reject", ErrConfig, m)
}

// unlimited is the limit of a room that admits all visitors. It is larger than any number of
// visitors, and small enough that no arithmetic of limits overflows.
const unlimited = 1_000_000_000

// failsOpen reports whether a room with FailOpenAfter has to let all visitors pass now, because its
// counter does not answer.
func (r *Room) failsOpen(q *visitRequest) bool {
	after := q.f.cfg.FailOpenAfter
	return after > 0 && (r.live.Load().damaged || r.worker.silence() >= after)
}

// anyway lets a visitor through if the room admits everybody but could not count the visitor,
// because its counter did not answer in time. It reports whether this is such a room.
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
