package counter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/persons"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/status"
)

// Open takes over the record of the room, or makes the first one, and returns the room's host. It
// answers nothing until Run is called. It calls recall, with no lock held, when the borrowers
// should Sync now; recall must not block.
func Open(ctx context.Context, cfg Config, recall func()) (*Counter, error) {
	c := &Counter{
		wake: make(chan struct{}, 1), upWake: make(chan struct{}, 1), recall: recall,
		syncs:  map[*slot.Sync]chan slot.Answer{},
		claims: map[slot.SessionID][]chan slot.ClaimReply{},
	}
	c.cfg, c.desk.again = cfg, c.kick
	rec, first, err := c.takeOver(ctx)
	if errors.Is(err, slot.ErrRecord) || errors.Is(err, store.ErrDamaged) {
		c.refuse(err)
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("take over room %q: %w", cfg.Room, err)
	}
	c.sites.began = cfg.Boot()
	c.persons = persons.New(persons.Config{
		Room: cfg.Room, Life: cmp.Or(rec.Before, rec.Name.Life), Open: cfg.Persons, Lives: c.live,
		Log: cfg.Log,
	})
	if cfg.Known {
		c.persons.IsReady()
	}
	if err := c.begin(rec, first, cfg.Boot()); err != nil { // it decodes but is inconsistent
		c.refuse(fmt.Errorf("%w: %w", slot.ErrRecord, err))
	}
	return c, nil
}

// Run writes, answers and calls until ctx ends or the host is fenced.
func (c *Counter) Run(ctx context.Context) error {
	if c.damaged != nil {
		<-ctx.Done()
		return nil
	}
	var above sync.WaitGroup
	up, stop := context.WithCancel(ctx)
	above.Go(func() { c.borrow(up) })
	above.Go(func() { c.show(up) })
	above.Go(func() { c.steer(up) })
	above.Go(func() { c.persons.Run(up) })
	err := c.rounds(ctx)
	// Not deferred: a panic leaves the lock held. Waiting for the lock would keep a process alive
	// that hosts the room and answers nobody.
	stop()
	above.Wait()
	c.drop()
	return err
}

// rounds is the loop of Run.
func (c *Counter) rounds(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	// A write in flight is completed even if ctx ends.
	writing, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWrite, giveUp) })()
	for {
		select {
		case <-ctx.Done():
			c.farewell(writing)
			return nil
		case <-c.wake:
		case <-timer.C:
		}
		next, err := c.round(writing)
		if err != nil {
			return fmt.Errorf("room %q: %w", c.cfg.Room, err)
		}
		timer.Reset(next)
	}
}

// round builds and stores one write, delivers the answers and calls the visitors that may be
// called. It returns how long until the next round is due.
func (c *Counter) round(ctx context.Context) (time.Duration, error) {
	c.mu.Lock()
	clk := c.cfg.Boot()
	if wait := c.lastTry + groupGap - clk; wait > 0 && c.lastTry > 0 {
		c.mu.Unlock()
		return wait, nil
	}
	c.lastTry = clk
	if c.gone() {
		c.mu.Unlock()
		c.drop()
		return 0, ErrFenced
	}
	c.goOn(clk)
	rolled := c.pool.RolledBack()
	now, wr := c.build(clk, c.written != nil || rolled)
	c.deliver(now, nil)
	if c.pool.IsCold(clk) {
		c.dropSyncs()
	}
	c.mu.Unlock()

	began := clk
	if wr != nil {
		if err := c.store(ctx, wr); err != nil {
			c.drop()
			if ctx.Err() != nil {
				return 0, nil
			}
			return 0, err
		}
	}

	c.mu.Lock()
	clk = c.cfg.Boot()
	c.awake(clk) // the process may have been suspended during the write
	if wr != nil {
		c.noteWrite(clk - began)
		c.deliver(c.pool.Confirm(clk))
		c.leftFor(wr.MovedTo)
		if rolled { // no other host wrote: confirmed writes are lost
			c.quarantine(clk)
		}
		c.wroteLocked()
		c.fore.update(&c.desk, clk)
	}
	recall, next := c.look(clk)
	if c.pool.IsCold(clk) && c.cfg.Previous.Term != nil {
		next = min(next, lookEvery)
	}
	c.mu.Unlock()
	c.kickUp()
	if recall && c.recall != nil {
		c.recall()
	}
	return next, nil
}

// leftFor ends this host when its record has moved to another data center: no write can follow.
func (c *Counter) leftFor(site string) {
	if site != "" {
		c.fenced = true
		c.dropSyncs()
		c.kick()
	}
}

// Sync answers one Sync of a borrower. It blocks until the record with the answer is written.
func (c *Counter) Sync(ctx context.Context, x *slot.Sync) (slot.Answer, error) {
	ch := make(chan slot.Answer, 1)
	c.mu.Lock()
	if c.gone() {
		c.mu.Unlock()
		return slot.Answer{}, ErrFenced
	}
	c.syncs[x] = ch
	c.put(x, c.cfg.Boot())
	c.mu.Unlock()
	c.kick()
	select {
	case a, ok := <-ch:
		if !ok {
			return a, ErrFenced
		}
		return a, nil
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.syncs, x)
		c.mu.Unlock()
		return slot.Answer{}, ctx.Err()
	}
}

// Reconfigure applies new settings while visitors are inside or wait. It blocks until the limits
// are in the record. On an error nothing has changed.
func (c *Counter) Reconfigure(ctx context.Context, s Settings) error {
	c.setting.Lock()
	defer c.setting.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	s.fit(c.pool.Record(), &c.cfg.Settings)
	if c.freeze(&s) { // before its number is in force: the next host goes on with what is in the record
		for c.pool.FoundPending() {
			if err := c.awaitWrite(ctx); err != nil {
				return err
			}
		}
	}
	return c.reconfigure(ctx, s, c.nextRev())
}

// reconfigure is Reconfigure with the locks held. rev is the revision of the limits: limits that were found
// have that of the configuration.
func (c *Counter) reconfigure(ctx context.Context, s Settings, rev uint64) error {
	if c.fenced { // it writes nothing, so its limits are not those of the room
		return ErrFenced
	}
	old := c.cfg.Settings
	if s.Active != old.Active || s.New != old.New {
		c.setLimits(rev, s.Active, s.New)
		for c.pool.LimitsPending() {
			if err := c.awaitWrite(ctx); err != nil {
				c.setLimits(rev, old.Active, old.New)
				return err
			}
		}
		if c.fenced { // by the write that it waited for
			return ErrFenced
		}
	}
	c.cfg.Settings = s
	c.spread()
	c.setLanes()
	c.fore.update(&c.desk, c.cfg.Boot())
	c.kick()
	return nil
}

// Hold stops or resumes calls and admissions: for queue_all, for a room that is not open yet, or
// while the origin does not answer. Open sessions continue. The groups of early that are open are called all
// the same.
func (c *Counter) Hold(yes bool, early ...status.EarlyGroup) {
	c.mu.Lock()
	c.hold(yes, early, c.cfg.Boot())
	c.mu.Unlock()
	c.kick()
}

// SetPlan sets the plan. It blocks until the required step is in the record.
func (c *Counter) SetPlan(ctx context.Context, p Plan) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	clk := c.cfg.Boot()
	c.desk.take(p, clk)
	if c.fenced {
		return ErrFenced
	}
	c.desk.follow(clk)
	for c.drawing() {
		if err := c.awaitWrite(ctx); err != nil {
			return err
		}
	}
	return nil
}

// setPlan sets the plan and does not wait.
func (c *Counter) setPlan(p Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.desk.take(p, c.cfg.Boot())
}

// refuse makes a host that serves nobody and writes nothing. Its record is unreadable, and a new
// record would take every visitor's place away.
func (c *Counter) refuse(err error) {
	c.cfg.Log.Error("record cannot be read: this room lets nobody in until it is restored",
		"room", c.cfg.Room, "error", err, "hint", "headgate doctor says what to do")
	c.damaged, c.fenced = err, true
	c.pool = slot.NewPool(c.cfg.Params, c.cfg.Host, slot.NewRecord(0, nil, c.cfg.Active, c.cfg.New))
	c.line = slot.NewLines()
	c.pace = newPace(c.cfg.Settings)
}

// Damaged returns why this host serves nobody, nil if it serves.
func (c *Counter) Damaged() error { return c.damaged }

// takeoverTries limits how often a takeover may lose the race against writes of the old host. A
// host that writes every few milliseconds is not dead.
const takeoverTries = 20

// takeOver reads the record and writes it with the next epoch. If the old host still writes, the
// write fails; takeOver then reads and tries again.
func (c *Counter) takeOver(ctx context.Context) (rec *slot.Record, first bool, err error) {
	for range takeoverTries {
		if rec, first, err = c.load(ctx); err != nil {
			return nil, false, err
		}
		c.pool = slot.NewPool(c.cfg.Params, c.cfg.Host, rec)
		err = c.store(ctx, c.pool.Takeover(c.cfg.Boot()))
		if !errors.Is(err, ErrFenced) {
			return rec, first, err
		}
	}
	return nil, false, err
}

// farewell makes the last write of a clean stop. It leaves no number reserved, so that the next
// host knows exactly which tickets wait.
func (c *Counter) farewell(ctx context.Context) {
	c.mu.Lock()
	if c.fenced || c.pool.Writing() {
		c.mu.Unlock()
		return
	}
	c.fenced = true // no more numbers are issued
	clk := c.cfg.Boot()
	c.lapse(clk)
	part := c.linePart(clk)
	c.pool.PutLine(part)
	c.pool.Resign()
	now, wr := c.pool.Begin(clk, true)
	c.deliver(now, nil)
	c.mu.Unlock()
	if wr == nil {
		return
	}
	if err := c.store(ctx, wr); err != nil {
		c.cfg.Log.Warn("last write of a clean stop failed", "room", c.cfg.Room, "error", err)
		return
	}
	c.mu.Lock()
	c.deliver(c.pool.Confirm(c.cfg.Boot()))
	c.mu.Unlock()
}

// goOnAfter is how long a new host waits for Anywhere before it continues without it. Chosen: an
// answer takes one round trip, and a new host cannot call anybody for about as long anyway.
const goOnAfter = time.Second

// before returns what this process knows of the previous host.
func (s *Handle) before() (b PreviousHost) {
	if t := s.told.Load(); t != nil {
		b.Term, b.Leave = t.state.Term, t.state.Leave
	}
	if s.cfg.Estimate != nil {
		b.Estimate = s.cfg.Estimate()
	}
	return b
}

// term returns the term of the loan from Anywhere, to publish it. The caller holds the lock.
func (c *Counter) term(clk time.Duration) *slot.ParentTerm {
	if t, ok := c.pool.ParentTerm(clk); ok {
		return &t
	}
	return nil
}

// goOn continues the term of the previous host if Anywhere does not answer. The caller holds the
// lock.
func (c *Counter) goOn(clk time.Duration) {
	b, rho := &c.cfg.Previous, c.pool.Params().Drift
	if !c.pool.IsCold(clk) || b.Term == nil || b.Estimate.Epoch != b.Term.Epoch || clk-c.tookAt < goOnAfter ||
		!c.pool.ContinueTerm(clk, *b.Term, b.Estimate.Lo(clk, rho), b.Estimate.Hi(clk, rho)) {
		return
	}
	_, left := c.pool.ParentSeen(clk)
	c.cfg.Log.Warn("Anywhere does not answer: this host goes on with what the one before it was lent",
		"room", c.cfg.Room, "for", left.Round(time.Second))
	c.kick()
}
