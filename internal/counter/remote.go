package counter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// This file carries requests to the host of a room. One message has many requests, and each sender
// has one message under way.
const (
	senders  = 8
	mostAsks = 512 // requests in one message. Chosen
)

// An ask is a request that waits for its answer.
type ask struct {
	request
	until time.Duration
	done  chan reply // never blocks: buffered
}

// An outbox holds the requests that no sender has taken.
type outbox struct {
	wake chan struct{}
	mu   sync.Mutex
	asks []*ask
}

func (o *outbox) init() { o.wake = make(chan struct{}, senders) }

func (o *outbox) put(asks ...*ask) {
	o.mu.Lock()
	o.asks = append(o.asks, asks...)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take removes and returns up to mostAsks requests whose callers still wait.
func (o *outbox) take(clk time.Duration) []*ask {
	o.mu.Lock()
	defer o.mu.Unlock()
	var got []*ask
	n := 0
	for _, a := range o.asks {
		if len(got) == mostAsks {
			break
		}
		if n++; a.until > clk {
			got = append(got, a)
		}
	}
	if o.asks = o.asks[n:]; len(o.asks) == 0 {
		o.asks = nil
	} else { // wake another sender
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
	return got
}

// send carries requests to the host until ctx ends.
func (s *Handle) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.out.wake:
		}
		for {
			asks := s.out.take(s.cfg.Boot())
			if len(asks) == 0 {
				break
			}
			if again := s.carry(ctx, asks); len(again) > 0 {
				if !wait(ctx, askAgain) {
					return
				}
				s.out.put(again...)
			}
		}
	}
}

// carry sends requests to the host. It returns those to send again: the host has changed or has not
// answered.
func (s *Handle) carry(ctx context.Context, asks []*ask) (again []*ask) {
	replies := make([]reply, 0, len(asks))
	if c := s.host.Load(); c != nil {
		for _, a := range asks { // this process has become the host meanwhile
			replies = append(replies, c.do(ctx, &a.request))
		}
	} else {
		requests := make([]request, len(asks))
		clk := s.cfg.Boot()
		for i, a := range asks {
			requests[i] = a.request
			if a.op == opJoin || a.op == opPerson { // a number that nobody receives would delay the line
				requests[i].more[1] = int64(max(1, a.until-clk))
			}
		}
		ctx, stop := context.WithTimeout(ctx, writeWait+repeatEvery)
		defer stop()
		b, err := s.bus.Request(ctx, s.name("asks"), appendRequests(nil, requests))
		if err == nil {
			replies, err = parseReplies(b)
		}
		if err != nil || len(replies) != len(asks) {
			return asks
		}
	}
	for i, a := range asks {
		if errors.Is(replies[i].fault.err(), ErrFenced) {
			again = append(again, a)
			continue
		}
		a.done <- replies[i]
	}
	return again
}

// ask sends a request to the host, wherever it is, and waits for at most writeWait.
func (s *Handle) ask(ctx context.Context, q request) (reply, error) {
	if c := s.host.Load(); c != nil {
		if r := c.do(ctx, &q); !errors.Is(r.fault.err(), ErrFenced) {
			return r, r.fault.err()
		}
	}
	a := &ask{request: q, until: s.cfg.Boot() + writeWait, done: make(chan reply, 1)}
	s.out.put(a)
	timer := time.NewTimer(writeWait)
	defer timer.Stop()
	select {
	case r := <-a.done:
		return r, r.fault.err()
	case <-timer.C:
		return reply{}, ErrSlow
	case <-ctx.Done():
		return reply{}, ctx.Err()
	}
}

// Join adds a visitor to the end of the line; see Counter.Join.
func (s *Handle) Join(ctx context.Context, lane uint64, hold, waited time.Duration) (PlaceInfo, error) {
	r, err := s.ask(ctx, joinRequest{lane: lane, hold: hold, waited: waited}.request())
	return r.place, err
}

// Roam notes that a visitor of another data center is present; see Counter.Roam.
func (s *Handle) Roam(ctx context.Context, id uint64, came slot.Time) (PlaceInfo, error) {
	r, err := s.ask(ctx, roamRequest{id, came}.request())
	return r.place, err
}

// ReportSuspectPass reports to the host a pass that cannot exist if the record is complete.
func (s *Handle) ReportSuspectPass(ctx context.Context) {
	if _, err := s.ask(ctx, request{op: opSuspect}); err != nil {
		s.cfg.Log.Warn("old record not reported to the host", "room", s.cfg.Room, "error", err)
	}
}

// Trace finds a ticket and changes nothing; see Counter.Trace.
func (s *Handle) Trace(ctx context.Context, find func(life uint64) (uint64, bool)) (TicketTrace, error) {
	life := s.State(0, 0).Life
	number, ok := find(life)
	if !ok {
		return TicketTrace{}, ErrNoTicket
	}
	r, err := s.ask(ctx, ticketRequest{life: life, number: number}.request(opTrace))
	r.trace.Number = number
	return r.trace, err
}

// Release takes a ticket out of the lane of those whose challenge is not solved; see Counter.Release. The
// request is a message of its own: an older host would reject all that come with it.
func (s *Handle) Release(ctx context.Context, find func(life uint64) (uint64, bool)) error {
	ctx, stop := context.WithTimeout(ctx, serveWait)
	defer stop()
	life := s.State(0, 0).Life
	number, ok := find(life)
	if !ok {
		return ErrNoTicket
	}
	q := ticketRequest{life: life, number: number}.request(opRelease)
	for {
		var all []reply
		if c := s.host.Load(); c != nil {
			all = []reply{c.do(ctx, &q)}
		} else if b, err := s.bus.Request(ctx, s.name("asks"), appendRequests(nil, []request{q})); err == nil {
			all, _ = parseReplies(b) // an older host answers nothing
		}
		if len(all) == 1 && !errors.Is(all[0].fault.err(), ErrFenced) {
			return all[0].fault.err()
		}
		if !wait(ctx, askAgain) {
			return ErrSlow
		}
	}
}

// silentLong is after how long an unresponsive host is logged. Chosen: longer than a takeover.
const silentLong = 5 * time.Second

// Sync sends a Sync to the host until the host answers or ctx ends.
func (s *Handle) Sync(ctx context.Context, x *slot.Sync) (slot.Answer, error) {
	var b []byte
	began, told := s.cfg.Boot(), false
	for {
		if c := s.host.Load(); c != nil {
			if a, err := c.Sync(ctx, x); !errors.Is(err, ErrFenced) {
				return a, err
			}
		} else {
			if b == nil {
				var err error
				// Encoded once: the same Sync is sent until it is answered, and the host recognizes
				// a repeated one.
				if b, err = x.AppendBinary(nil); err != nil {
					return slot.Answer{}, err
				}
			}
			a, err := s.syncOnce(ctx, b)
			if err == nil {
				return a, nil
			}
			if !told && s.cfg.Boot()-began > silentLong && ctx.Err() == nil {
				told = true
				s.cfg.Log.Warn("the room's host does not answer: who is inside stays, newcomers wait",
					"room", s.cfg.Room, "error", err)
			}
		}
		if !wait(ctx, askAgain) {
			return slot.Answer{}, ctx.Err()
		}
	}
}

func (s *Handle) syncOnce(ctx context.Context, b []byte) (a slot.Answer, err error) {
	par := s.cfg.Params.WithDefaults()
	ctx, stop := context.WithTimeout(ctx, par.RecallWait+repeatEvery)
	defer stop()
	got, err := s.bus.Request(ctx, s.name("sync"), b)
	if err == nil {
		err = a.UnmarshalBinary(got)
	}
	return a, err
}

// answer serves requests to a host until stop is called.
func (s *Handle) answer(c *Counter) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	// Whatever a node of this data center asks, nodes of another may ask too, by way of its own
	// nodes.
	answers := map[string]func(context.Context, []byte) []byte{
		"asks": c.answerAsks, "sync": c.answerSync, "settings": c.answerSettings,
		"signals": c.answerSignals,
	}
	if s.isAnywhere() {
		answers["move"], answers["off"] = c.answerMove, c.answerOff
	}
	if s.cfg.Datacenters != nil && !s.isAnywhere() {
		answers["picture"], answers["time"] = c.answerPicture, c.answerTime
	}
	for kind, f := range answers {
		one, err := s.bus.Serve(s.name(kind), f)
		if err == nil {
			stops = append(stops, one)
			one, err = s.cfg.Datacenters.Serve(s.name(kind), f)
		}
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, one)
	}
	if s.cfg.Datacenters == nil || s.isAnywhere() {
		return stop, nil
	}
	// A worker has no link to other data centers: its host passes the requests on.
	for site := range s.cfg.Datacenters.cfg.Links {
		for _, kind := range passes() {
			one, err := s.bus.Serve(via(site, kind, s.cfg.Room), s.cfg.Datacenters.passOn(site, s.name(kind)))
			if err != nil {
				stop()
				return nil, err
			}
			stops = append(stops, one)
		}
	}
	return stop, nil
}

// answerAsks handles the requests of one message concurrently, because some wait for a write.
func (c *Counter) answerAsks(ctx context.Context, msg []byte) []byte {
	requests, err := parseRequests(msg)
	if err != nil {
		c.refused(err)
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, writeWait) // the caller does not wait longer
	defer stop()
	replies := make([]reply, len(requests))
	var wg sync.WaitGroup
	for i := range requests {
		if requests[i].op == opPoll && c.ready() { // most are polls, and they do not wait
			replies[i] = c.do(ctx, &requests[i])
			continue
		}
		wg.Go(func() { replies[i] = c.do(ctx, &requests[i]) })
	}
	wg.Wait()
	return appendReplies(nil, replies)
}

// refused logs a message that no correct process sends. A stolen worker can send many.
func (c *Counter) refused(err error) {
	if c.said.Due("refused") {
		c.cfg.Log.Error("message refused", "room", c.cfg.Room, "error", err)
	}
}

// ready reports whether a poll can be answered without a write.
func (c *Counter) ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pool.Fresh(c.cfg.Boot(), fresh)
}

// do handles one request.
func (c *Counter) do(ctx context.Context, q *request) (r reply) {
	var err error
	switch q.op {
	case opJoin:
		x := q.join()
		if x.left > 0 {
			var stop context.CancelFunc
			// The visitor at the other node waits no longer: a place that it never learns of would
			// be lost in the line.
			ctx, stop = context.WithTimeout(ctx, x.left)
			defer stop()
		}
		r.place, err = c.Join(ctx, x.lane, x.hold, x.waited)
	case opPerson:
		x, left := q.personJoin()
		ctx, stop := context.WithTimeout(ctx, cmp.Or(left, writeWait))
		defer stop()
		r.place, r.claim, err = c.JoinPerson(ctx, x)
	case opPoll:
		x := q.ticket()
		r.place, err = c.poll(ctx, x)
	case opClaim:
		x := q.claim()
		r.claim, err = c.Claim(ctx, x.life, x.number, x.key, x.hard)
	case opLeave:
		x := q.ticket()
		err = c.Leave(ctx, x.life, x.number, x.key)
	case opTrace:
		x := q.ticket()
		r.trace, err = c.Trace(ctx, func(life uint64) (uint64, bool) { return x.number, life == x.life })
	case opSuspect:
		c.ReportSuspectPass(ctx)
	case opMove:
		err = c.Move(ctx, q.move())
	case opRelease:
		err = c.Release(ctx, func(life uint64) (uint64, bool) { return q.id, life == q.life })
	case opNetwork:
		err = c.SetNetwork(ctx, q.life, q.id, uint32(q.more[0]))
	case opRoam:
		x := q.roam()
		r.place, err = c.Roam(ctx, x.id, x.came)
	}
	r.op, r.fault = q.op, faultOf(err)
	return r
}

// answerSync answers a Sync of another node. A data center can only report for itself: the
// connection proves its name.
func (c *Counter) answerSync(ctx context.Context, msg []byte) []byte {
	x := &slot.Sync{}
	err := x.UnmarshalBinary(msg)
	if err == nil {
		err = c.checkSync(x)
	}
	if err == nil && c.isAnywhere() && x.Borrower != c.cfg.Datacenters.origin(ctx) {
		err = fmt.Errorf("%w: it says that it is of %q", slot.ErrMessage, x.Borrower)
	}
	if err != nil {
		c.refused(err)
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, serveWait)
	defer stop()
	a, err := c.Sync(ctx, x)
	if err != nil {
		return nil // the caller retries, here or elsewhere
	}
	b, err := a.AppendBinary(nil)
	if err != nil {
		c.cfg.Log.Error("answer not sent", "room", c.cfg.Room, "error", err)
		return nil
	}
	return b
}

// checkSync rejects what only a malicious node sends, and limits absurd times.
func (c *Counter) checkSync(x *slot.Sync) error {
	if err := x.Check(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.pool.Record()
	if x.Ahead(r.Name) {
		return fmt.Errorf("%w: it has seen a record of the epoch %d, and ours is %d", slot.ErrMessage,
			x.Seen.Epoch, r.Name.Epoch)
	}
	x.Clamp(c.pool.CounterTime(c.cfg.Boot()), r.Limits[0].Longest)
	return nil
}

// answerSettings returns the limits in the record.
func (c *Counter) answerSettings(context.Context, []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fenced {
		return nil
	}
	set, limits := c.cfg.Settings, c.pool.Record().Limits
	set.Active, set.New = limits[0].Limit, limits[1].Limit
	return appendSettings(nil, &set)
}
