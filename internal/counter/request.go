package counter

import (
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A request is one request of a worker about one visitor, as it is sent. The meaning of its numbers
// depends on the op: the type of each operation below encodes and decodes them.
type request struct {
	op   op
	id   uint64 // a ticket's number, a lane's id or a roamer's id
	life uint64 // of the ticket; 0: any
	more [3]int64
}

// A joinRequest asks for a place at the end of the line.
type joinRequest struct {
	lane   uint64        // its id; 0 is the ordinary line
	hold   time.Duration // how long the place is kept without a poll
	waited time.Duration // how long the visitor has already waited
	left   time.Duration // how long the worker waits for the answer; 0: no limit
}

func (x joinRequest) request() request {
	return request{op: opJoin, id: x.lane, more: [3]int64{int64(x.hold), int64(x.left), int64(x.waited)}}
}

func (q *request) join() joinRequest {
	return joinRequest{lane: q.id, hold: time.Duration(q.more[0]), left: time.Duration(q.more[1]),
		waited: time.Duration(q.more[2])}
}

// A ticketRequest is a poll of a ticket, its end, or (without a key) an inspection.
type ticketRequest struct {
	life, number uint64
	key          uint64 // of the ticket's device
}

func (x ticketRequest) request(op op) request {
	return request{op: op, id: x.number, life: x.life, more: [3]int64{1: int64(x.key)}}
}

func (q *request) ticket() ticketRequest { return ticketRequest{q.life, q.id, uint64(q.more[1])} }

// A claimRequest claims the session of a called ticket.
type claimRequest struct {
	ticketRequest
	hard time.Duration // longest duration of the session; 0: no limit
}

func (x claimRequest) request() request {
	q := x.ticketRequest.request(opClaim)
	q.more[2] = int64(x.hard)
	return q
}

func (q *request) claim() claimRequest { return claimRequest{q.ticket(), time.Duration(q.more[2])} }

// A roamRequest reports that a visitor of another data center is present here.
type roamRequest struct {
	id   uint64
	came slot.Time
}

func (x roamRequest) request() request {
	return request{op: opRoam, id: x.id, more: [3]int64{int64(x.came)}}
}

func (q *request) roam() roamRequest { return roamRequest{q.id, slot.Time(q.more[0])} }

func (m Move) request() request {
	q := ticketRequest{m.Life, m.Number, m.From}.request(opMove)
	q.more[0] = int64(m.To)
	return q
}

func (q *request) move() Move {
	t := q.ticket()
	return Move{Life: t.life, Number: t.number, From: t.key, To: uint64(q.more[0])}
}
