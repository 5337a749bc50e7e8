package counter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/persons"
	"github.com/headgate/headgate/internal/slot"
)

// wireFormat is the format of requests, replies and settings. They are never stored, so only the
// current format is read.
const wireFormat = 1

// mostRequests limits the requests in one message, and so the replies; the receiver rejects a
// message with more. Chosen: replies of 50 B are 200 KB.
const mostRequests = 4096

// An op is the operation that a request asks of the host of a room.
type op uint8

const (
	opJoin op = iota + 1
	opPoll
	opClaim
	opLeave
	opTrace
	opSuspect
	opRoam
	opMove
	opPerson
	opNetwork
	opRelease
)

// A reply answers a request. Only the fields that its op needs are sent.
type reply struct {
	op    op // the op of the request
	fault fault
	place PlaceInfo       // for join and poll
	claim slot.ClaimReply // for claim
	trace TicketTrace     // for trace
}

// A fault is the code of an error of a Counter; 0: no error.
type fault uint8

// faults returns the errors by their fault.
func faults() [8]error {
	return [...]error{nil, ErrFenced, ErrFull, ErrSlow, ErrNotCalled, ErrNoTicket, ErrUsed, ErrNotHeldBack}
}

// faultOf returns the fault of err. An error that the caller cannot act on counts as ErrSlow:
// retry.
func faultOf(err error) fault {
	for f, known := range faults() {
		if errors.Is(err, known) {
			return fault(f)
		}
	}
	return faultOf(ErrSlow)
}

func (f fault) err() error { return faults()[f] }

// Bits of the first number of a request, below its op: the fields that follow.
const (
	hasID = 1 << iota
	hasLife
	hasMore
	requestBits = 5
)

// appendRequests appends a message of at most mostRequests requests. A poll takes about 6 B,
// because the life of the tickets is written once.
func appendRequests(b []byte, rs []request) []byte {
	b = codec.AppendUint(b, wireFormat, uint64(len(rs)))
	life := uint64(0) // the last life in the message
	for i := range rs {
		r, more := &rs[i], &rs[i].more
		b = codec.AppendUint(b, uint64(r.op)<<requestBits|
			flag(r.id != 0, hasID)|flag(r.life != 0, hasLife)|
			flag(more[0] != 0, hasMore)|flag(more[1] != 0, hasMore<<1)|flag(more[2] != 0, hasMore<<2))
		if r.id != 0 {
			b = codec.AppendUint(b, r.id)
		}
		if r.life != 0 {
			b = codec.AppendInt(b, int64(r.life-life))
			life = r.life
		}
		for k := range more {
			if more[k] != 0 {
				b = codec.AppendInt(b, more[k])
			}
		}
		if r.person != nil {
			b = append(b, r.person.ID[:]...)
			b = codec.AppendUint(b, r.person.number, r.person.key,
				uint64(r.person.Until)<<2|flag(r.person.find, 1)|flag(r.person.use, 2))
			if r.person.Until != 0 {
				b = append(codec.AppendUint(b, uint64(r.person.Uses)), r.person.Code[:]...)
			}
		}
	}
	return b
}

// parseRequests parses the output of appendRequests.
func parseRequests(b []byte) ([]request, error) {
	d, err := newReader(b)
	if err != nil {
		return nil, err
	}
	var rs []request
	if n := d.Count(mostRequests); n > 0 {
		rs = make([]request, n)
	}
	life := uint64(0)
	for i := range rs {
		r, head := &rs[i], d.Uint()
		r.op = op(min(head>>requestBits, 255))
		if r.op < opJoin || r.op > opRelease {
			return nil, errDamaged()
		}
		if head&hasID != 0 {
			r.id = d.Uint()
		}
		if head&hasLife != 0 {
			life += uint64(d.Int())
			r.life = life
		}
		for k := range r.more {
			if head&(hasMore<<k) != 0 {
				r.more[k] = d.Int()
			}
		}
		if r.op == opPerson {
			r.person = &personOf{}
			copy(r.person.ID[:], d.Take(len(r.person.ID)))
			r.person.number, r.person.key = d.Uint(), d.Uint()
			bits := d.UpTo(math.MaxUint32<<2 | 3)
			r.person.Until, r.person.find, r.person.use = uint32(bits>>2), bits&1 != 0, bits&2 != 0
			if r.person.Until != 0 {
				r.person.Uses = uint16(d.UpTo(math.MaxUint16))
				copy(r.person.Code[:], d.Take(len(r.person.Code)))
			}
		}
	}
	return rs, d.end()
}

// faultBits is the number of bits of the fault in the first number of a reply. The op is above
// them.
const faultBits = 3

// appendReplies appends a message of replies; the i-th answers the i-th request.
func appendReplies(b []byte, rs []reply) []byte {
	b = codec.AppendUint(b, wireFormat, uint64(len(rs)))
	last := &PlaceInfo{}
	for i := range rs {
		r := &rs[i]
		b = codec.AppendUint(b, uint64(r.op)<<faultBits|uint64(r.fault))
		switch r.op {
		case opJoin, opPoll, opRoam:
			b = appendPlace(b, &r.place, last)
			last = &r.place
		case opClaim:
			b = appendClaim(b, &r.claim)
		case opPerson:
			b = appendPlace(b, &r.place, last)
			last = &r.place
			b = appendClaim(b, &r.claim)
		case opTrace:
			b = appendTrace(b, &r.trace)
		}
	}
	return b
}

// parseReplies parses the output of appendReplies.
func parseReplies(b []byte) ([]reply, error) {
	d, err := newReader(b)
	if err != nil {
		return nil, err
	}
	var rs []reply
	if n := d.Count(mostRequests); n > 0 {
		rs = make([]reply, n)
	}
	last := &PlaceInfo{}
	for i := range rs {
		r, head := &rs[i], d.Uint()
		r.op, r.fault = op(min(head>>faultBits, 255)), fault(head&(1<<faultBits-1))
		if int(r.fault) >= len(faults()) {
			return nil, errDamaged()
		}
		switch r.op {
		case opJoin, opPoll, opRoam:
			d.place(&r.place, last)
			last = &r.place
		case opClaim:
			r.claim = d.claim()
		case opPerson:
			d.place(&r.place, last)
			last = &r.place
			r.claim = d.claim()
		case opTrace:
			r.trace = d.trace()
		case opLeave, opSuspect, opMove, opNetwork, opRelease:
		default:
			return nil, errDamaged()
		}
	}
	return rs, d.end()
}

// Bits of the second number of a place, a trace and an ETA.
const (
	bitHeld = 1 << iota
	bitCalled
	bitETA   // an ETA follows
	bitPlace // of a trace: it holds a place
	bitKnown // of an ETA: it is known
	bitExact
	bitCame // of a place: the arrival time follows
	bitNow  // of a place: a life follows
	bitMoved
	bitLane // of a trace: the name of a lane follows
	bitUsedUp
	bitKey // of a place: the key of a device follows
	bitAsks
	bitUnsolved // of a trace
	bitReleased // of a trace
	bitTurn     // of a place: see PlaceInfo.Asks
	bitEarly    // of a place: StartsAt follows
)

// appendPlace appends a place. Values that places have in common are written relative to the last
// place.
func appendPlace(b []byte, p, last *PlaceInfo) []byte {
	b = codec.AppendUint(b, uint64(p.Status),
		flag(p.Held, bitHeld)|flag(p.Called, bitCalled)|flag(p.ETA != ETA{}, bitETA)|
			flag(p.ArrivedAt != 0, bitCame)|flag(p.Now != 0, bitNow)|flag(p.Moved, bitMoved)|
			flag(p.UsedUp, bitUsedUp)|flag(p.Key != 0, bitKey)|flag(p.AsksNetwork, bitAsks)|
			flag(p.Asks, bitTurn)|flag(p.StartsAt != 0, bitEarly))
	b = codec.AppendInt(b, int64(p.Number-last.Number), int64(p.Life-last.Life),
		p.Position, p.Ahead, p.Waiting-last.Waiting, int64(p.Served-last.Served),
		int64(p.PollAfter))
	if p.ArrivedAt != 0 {
		b = codec.AppendInt(b, int64(p.ArrivedAt))
	}
	if p.Now != 0 {
		b = codec.AppendUint(b, p.Now)
	}
	if p.Key != 0 {
		b = codec.AppendUint(b, p.Key)
	}
	if p.StartsAt != 0 {
		b = codec.AppendInt(b, p.StartsAt)
	}
	return appendETA(b, &p.ETA)
}

func (d *reader) place(p, last *PlaceInfo) {
	p.Status = d.status()
	bits := d.Uint()
	p.Held, p.Called, p.Moved = bits&bitHeld != 0, bits&bitCalled != 0, bits&bitMoved != 0
	p.UsedUp, p.AsksNetwork, p.Asks = bits&bitUsedUp != 0, bits&bitAsks != 0, bits&bitTurn != 0
	p.Number, p.Life = last.Number+uint64(d.Int()), last.Life+uint64(d.Int())
	p.Position, p.Ahead, p.Waiting = d.Int(), d.Int(), last.Waiting+d.Int()
	p.Served, p.PollAfter = last.Served+uint64(d.Int()), time.Duration(d.Int())
	if bits&bitCame != 0 {
		p.ArrivedAt = slot.Time(d.Int())
	}
	if bits&bitNow != 0 {
		p.Now = d.Uint()
	}
	if bits&bitKey != 0 {
		p.Key = d.Uint()
	}
	if bits&bitEarly != 0 {
		p.StartsAt = d.Int()
	}
	p.ETA = d.eta(bits)
}

func appendClaim(b []byte, c *slot.ClaimReply) []byte {
	b = codec.AppendUint(b, uint64(c.ID), c.Epoch)
	return codec.AppendInt(b, int64(c.End), int64(c.Win))
}

func (d *reader) claim() slot.ClaimReply {
	return slot.ClaimReply{
		ID: slot.SessionID(d.Uint()), Epoch: d.Uint(), End: slot.Time(d.Int()), Win: slot.Time(d.Int()),
	}
}

func (d *reader) status() slot.TicketStatus {
	v := d.Uint()
	if v > uint64(slot.TicketGone) {
		d.Fail()
	}
	return slot.TicketStatus(v)
}

func appendTrace(b []byte, t *TicketTrace) []byte {
	b = codec.AppendUint(b, uint64(t.Status), flag(t.Place, bitPlace)|flag(t.ETA != ETA{}, bitETA)|
		flag(t.Lane != "", bitLane)|flag(t.Unsolved, bitUnsolved)|flag(t.Released, bitReleased))
	b = codec.AppendInt(b, t.Position, int64(t.Silent), int64(t.Kept), int64(t.Left))
	if b = appendETA(b, &t.ETA); t.Lane != "" {
		b = append(codec.AppendUint(b, uint64(len(t.Lane))), t.Lane...)
	}
	return b
}

func (d *reader) trace() (t TicketTrace) {
	t.Status = d.status()
	bits := d.Uint()
	t.Place, t.Position, t.Silent = bits&bitPlace != 0, d.Int(), time.Duration(d.Int())
	t.Unsolved, t.Released = bits&bitUnsolved != 0, bits&bitReleased != 0
	t.Kept, t.Left = time.Duration(d.Int()), time.Duration(d.Int())
	if t.ETA = d.eta(bits); bits&bitLane != 0 {
		t.Lane = d.Text(slot.MaxLaneName)
	}
	return t
}

// appendETA appends an ETA, if it is known.
func appendETA(b []byte, e *ETA) []byte {
	if *e == (ETA{}) {
		return b
	}
	b = codec.AppendUint(b, flag(e.Known, bitKnown)|flag(e.Exact, bitExact))
	return codec.AppendInt(b, int64(e.Expect), int64(e.Low), int64(e.High))
}

func (d *reader) eta(bits uint64) ETA {
	if bits&bitETA == 0 {
		return ETA{}
	}
	bits = d.Uint()
	return ETA{
		Known: bits&bitKnown != 0, Exact: bits&bitExact != 0,
		Expect: time.Duration(d.Int()), Low: time.Duration(d.Int()), High: time.Duration(d.Int()),
	}
}

// appendSettings appends the settings of a room.
func appendSettings(b []byte, s *Settings) []byte {
	b = codec.AppendUint(b, wireFormat, uint64(s.Active.Kind), uint64(s.New.Kind),
		flag(s.Spread, 1)|flag(s.RandomOrder, 2)|flag(s.AdmitAll, 4)|uint64(len(s.Lanes))*8)
	for _, x := range s.Lanes {
		b = codec.AppendUint(b, uint64(x.Share), uint64(len(x.Name)))
		b = append(b, x.Name...)
	}
	l := &s.Line
	return codec.AppendInt(b, s.Active.N, int64(s.Active.Per), s.New.N, int64(s.New.Per), l.MaxWaiting,
		int64(l.PollMin), int64(l.PollMax), int64(l.CallHold), int64(l.Hold))
}

// parseSettings parses the output of appendSettings, and rejects impossible limits.
func parseSettings(b []byte) (s Settings, err error) {
	d, err := newReader(b)
	if err != nil {
		return s, err
	}
	active, fresh := d.Uint(), d.Uint()
	s.Active.Kind, s.New.Kind = slot.Kind(min(active, 255)), slot.Kind(min(fresh, 255))
	flags := d.Uint()
	s.Spread, s.RandomOrder, s.AdmitAll = flags&1 != 0, flags&2 != 0, flags&4 != 0
	for range min(flags/8, slot.MaxLanes+1) {
		s.Lanes = append(s.Lanes, slot.Lane{Share: int(min(d.Uint(), 100)), Name: d.Text(slot.MaxLaneName)})
	}
	s.Active.N, s.Active.Per = d.Int(), time.Duration(d.Int())
	s.New.N, s.New.Per = d.Int(), time.Duration(d.Int())
	s.Line = LineConfig{
		MaxWaiting: d.Int(), PollMin: time.Duration(d.Int()), PollMax: time.Duration(d.Int()),
		CallHold: time.Duration(d.Int()), Hold: time.Duration(d.Int()),
	}
	if err := d.end(); err != nil {
		return Settings{}, err
	}
	if err := errors.Join(s.Active.Check(), s.New.Check(), slot.CheckLanes(s.Lanes)); err != nil {
		return Settings{}, fmt.Errorf("%w: %w", slot.ErrMessage, err)
	}
	return s, nil
}

func flag(yes bool, bit uint64) uint64 {
	if yes {
		return bit
	}
	return 0
}

func errDamaged() error { return fmt.Errorf("%w: damaged", slot.ErrMessage) }

// A reader reads the parts of messages.
type reader struct{ codec.Reader }

// newReader reads the format number at the beginning of a message.
func newReader(b []byte) (reader, error) {
	d := reader{codec.NewReader(b)}
	v := d.Uint()
	if d.Bad() {
		return d, errDamaged()
	}
	if v != wireFormat {
		return d, fmt.Errorf("%w: format %d, this program reads %d: "+
			"upgrade the older program first", slot.ErrMessage, v, wireFormat)
	}
	return d, nil
}

// end returns an error if the message was invalid or was not read completely.
func (d *reader) end() error {
	if !d.Done() {
		return errDamaged()
	}
	return nil
}

// A request is one request of a worker about one visitor, as it is sent. The meaning of its numbers
// depends on the op: the type of each operation below encodes and decodes them.
type request struct {
	op   op
	id   uint64 // a ticket's number, a lane's id or a roamer's id
	life uint64 // of the ticket; 0: any
	more [3]int64

	person *personOf // of opPerson only
}

// A personOf is what only a PersonJoin has.
type personOf struct {
	persons.ID
	number, key uint64
	find, use   bool
	persons.Invitation
}

func (x *PersonJoin) request() request {
	q := joinRequest{lane: x.Lane, hold: x.Hold, waited: x.Waited}.request()
	q.op, q.life, q.person = opPerson, x.Life, &personOf{ID: x.Person, number: x.Number, key: x.Key,
		find: x.Find, use: x.Use, Invitation: x.Invitation}
	return q
}

func (q *request) personJoin() (x PersonJoin, left time.Duration) {
	j, m := q.join(), q.person
	return PersonJoin{Person: m.ID, Lane: j.lane, Hold: j.hold, Waited: j.waited, Find: m.find,
		Use: m.use, Invitation: m.Invitation, Life: q.life, Number: m.number, Key: m.key}, j.left
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
	unproven     bool   // of a poll: the challenge of the ticket is not solved
	refused      bool   // of a poll: see TicketPoll
	first        uint64 // of a poll: the same
}

// A TicketPoll is what a visitor with a ticket shows.
type TicketPoll struct {
	Life, Number, Key uint64
	Unproven          bool   // the challenge of the ticket is not solved
	Refused           bool   // it holds no place for that, and waits for an operator who releases it
	First             uint64 // of a ticket that is refused, or in a lane: its first one of the ordinary line
}

func (x *TicketPoll) ticket() ticketRequest {
	return ticketRequest{x.Life, x.Number, x.Key, x.Unproven || x.Refused, x.Refused, x.First}
}

func (x ticketRequest) request(op op) request {
	return request{op: op, id: x.number, life: x.life,
		more: [3]int64{int64(flag(x.unproven, 1) | flag(x.refused, 2)), int64(x.key), int64(x.first)}}
}

func (q *request) ticket() ticketRequest {
	x := ticketRequest{life: q.life, number: q.id, key: uint64(q.more[1])}
	if q.op == opPoll {
		x.unproven, x.refused, x.first = q.more[0] != 0, q.more[0]&2 != 0, uint64(q.more[2])
	}
	return x
}

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
	q := ticketRequest{life: m.Life, number: m.Number, key: m.From}.request(opMove)
	q.more[0] = int64(m.To)
	return q
}

func (q *request) move() Move {
	t := q.ticket()
	return Move{Life: t.life, Number: t.number, From: t.key, To: uint64(q.more[0])}
}

// A ticketDesk sends requests about tickets to the host of a room, wherever it is.
type ticketDesk struct {
	askHost func(ctx context.Context, q request) (reply, error)
}

// JoinPerson returns the one place of a person; see Counter.JoinPerson.
func (d ticketDesk) JoinPerson(ctx context.Context, x PersonJoin) (PlaceInfo, slot.ClaimReply, error) {
	r, err := d.askHost(ctx, x.request())
	return r.place, r.claim, err
}

// Poll notes that the visitor of a ticket is present, and returns its place.
func (d ticketDesk) Poll(ctx context.Context, life, number, key uint64) (PlaceInfo, error) {
	r, err := d.askHost(ctx, ticketRequest{life: life, number: number, key: key}.request(opPoll))
	return r.place, err
}

// PollAs is Poll with all that is known of the ticket; see Counter.PollAs.
func (d ticketDesk) PollAs(ctx context.Context, x TicketPoll) (PlaceInfo, error) {
	r, err := d.askHost(ctx, x.ticket().request(opPoll))
	return r.place, err
}

// Claim turns a called ticket into a session; see Counter.Claim.
func (d ticketDesk) Claim(
	ctx context.Context, life, number, key uint64, hard time.Duration,
) (slot.ClaimReply, error) {
	t := ticketRequest{life: life, number: number, key: key}
	r, err := d.askHost(ctx, claimRequest{t, hard}.request())
	return r.claim, err
}

// SetNetwork notes the network of a visitor; see Counter.SetNetwork.
func (d ticketDesk) SetNetwork(ctx context.Context, life, number uint64, network uint32) error {
	_, err := d.askHost(ctx, request{op: opNetwork, id: number, life: life, more: [3]int64{int64(network)}})
	return err
}

// Leave gives up a place.
func (d ticketDesk) Leave(ctx context.Context, life, number, key uint64) error {
	_, err := d.askHost(ctx, ticketRequest{life: life, number: number, key: key}.request(opLeave))
	return err
}

// Move moves a place to another device; see Counter.Move.
func (d ticketDesk) Move(ctx context.Context, m Move) error {
	_, err := d.askHost(ctx, m.request())
	return err
}
