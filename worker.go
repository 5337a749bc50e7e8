package headgate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/borrower"
	"github.com/headgate/headgate/internal/countertime"
	"github.com/headgate/headgate/internal/sessions"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
)

// A lender is the counter as a worker sees it. Sync blocks until the answer is written; it does not keep x.
type lender interface {
	Sync(ctx context.Context, x *slot.Sync) (slot.Answer, error)
}

const (
	sweepEvery = 10 * time.Second // interval of removing ended sessions
	askWait    = time.Second      // timeout for a pass whose end has passed
)

// A worker is the borrower's side of a room in this process: it admits visitors from its share,
// notes which visitors were seen and reports them in batches. run owns the only goroutine; many
// goroutines may call the other methods.
type worker struct {
	boot   func() time.Duration
	clock  *countertime.Clock
	rules  sessions.RuleHistory
	par    slot.Params
	lender lender
	away   bool // of another data center's visitors: it sends requests only when one comes
	wake   chan struct{}
	held   atomic.Bool // admit no newcomers: queue_all, origin down, not open yet
	visits *sessions.Set

	mu       sync.Mutex
	share    *slot.Share
	borrower *borrower.Borrower[*wish, chan slot.Time]
	noLine   bool          // waiting visitors do not block newcomers
	lastGone time.Duration // time of the last sweep of sessions
	unproven slot.Unproven // who was admitted by admitUnproven in the last minute

	short, shortTook atomic.Int64 // newcomers for whom the share had no slot, and their waits in ns
}

// A wish is a newcomer who waits for a slot.
type wish struct {
	id         slot.SessionID
	trial      time.Duration // length of the probation; 0: none
	last, hard time.Duration
	done       chan slot.Session // closed without a value: no slot
}

// changing keeps passes from noting ends that other rules would not give.
func (w *worker) changing(cfg *RoomConfig) (back func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.rules.Load()
	w.rules.Announce(cfg.rules(&w.par))
	return func() { w.mu.Lock(); w.rules.Change(old); w.mu.Unlock() }
}

// reconfigure sets new rules for new sessions. The counter has written them, and expects no longer ones.
func (w *worker) reconfigure(cfg *RoomConfig) {
	lim := cfg.limits()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.share.SetLimits(lim[0], lim[1])
	w.noLine = cfg.Method == MethodPassthrough
	w.rules.Change(cfg.rules(&w.par))
}

func newWorker(cfg RoomConfig, name string, loan slot.LoanID, away bool) *worker {
	lim := cfg.limits()
	w := &worker{
		noLine: cfg.Method == MethodPassthrough, away: away,
		boot: cfg.Boot, par: cfg.params.WithDefaults(), wake: make(chan struct{}, 1),
		share: slot.NewShare(cfg.params, name, loan, lim[0], lim[1]),
	}
	w.rules.Change(cfg.rules(&w.par))
	w.clock = countertime.New(w.boot, w.par.Drift)
	w.visits = sessions.New(func() (lo, hi slot.Time) { lo, hi, _, _ = w.clock.Bounds(); return lo, hi },
		func() time.Duration { s := w.rules.Load().Longest; return s + s/100 })
	w.borrow()
	return w
}

// borrow creates the borrower. Its functions are called with mu held.
func (w *worker) borrow() {
	w.borrower = borrower.New(borrower.Config[*wish, chan slot.Time]{
		Share: w.share, Term: w.par.Term, Remote: w.away,
		Inside: w.visits.Any, Report: w.report, Learn: w.learn,
		Open: func(clk time.Duration, q *wish) bool {
			o, ok := w.share.OpenProbation(clk, q.id, q.trial, q.last, q.hard)
			if ok {
				q.done <- o // never blocks: the channel has room for one
			}
			return ok
		},
		Refuse: func(q *wish) { close(q.done) },
		Answer: func(done chan slot.Time, end slot.Time) { done <- end }, // never blocks
	})
}

// kick makes run check for work now. It does not block.
func (w *worker) kick() {
	w.mu.Lock()
	w.borrower.Hurry()
	w.mu.Unlock()
	w.poke()
}

func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *worker) hold(yes bool) {
	w.held.Store(yes)
	w.kick()
}

// run borrows, reports and gives back until ctx ends.
func (w *worker) run(ctx context.Context) error {
	if !w.away {
		w.kick() // get the counter's time at once
	}
	tick := time.NewTicker(borrower.FlushEvery)
	defer tick.Stop()
	for {
		flush := false
		select {
		case <-ctx.Done():
			w.farewell(ctx)
			w.failAll()
			return nil
		case <-w.wake:
		case <-tick.C:
			flush = true
		}
		for again := true; again; flush = false {
			var err error
			if again, err = w.round(ctx, flush); err != nil {
				if ctx.Err() != nil {
					w.farewell(ctx)
					w.failAll()
					return nil
				}
				w.failAll()
				return err
			}
		}
	}
}

// round sends one Sync if there is anything to send, and processes the answer. again is true if the
// answer requests another Sync at once.
func (w *worker) round(ctx context.Context, flush bool) (again bool, err error) {
	w.mu.Lock()
	x := w.borrower.Build(w.boot(), flush)
	w.mu.Unlock()
	if x == nil {
		return false, nil
	}
	a, err := w.lender.Sync(ctx, x)
	if err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.borrower.Receive(w.boot(), x, &a), nil
}

// farewellWait is the timeout of the last Sync of a clean stop. Chosen.
const farewellWait = 2 * time.Second

// farewell reports all visitors who were seen and gives the whole share back, so that the next
// process does not have to assume that slots are in use.
func (w *worker) farewell(ctx context.Context) {
	if w.away && w.clock.Load() == nil {
		return // no visitor has come
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), farewellWait)
	defer stop()
	for range 2 { // the one in progress, and the last
		w.mu.Lock()
		w.borrower.ReturnShare()
		w.mu.Unlock()
		if _, err := w.round(ctx, true); err != nil {
			return
		}
	}
}

// report notes the visitors who were seen since the last report. It reports whether it noted all of them.
func (w *worker) report(clk time.Duration, lo slot.Time, note func(slot.Item) bool) (all bool) {
	if clk-w.lastGone > sweepEvery {
		w.lastGone = clk
		w.visits.Sweep(lo)
	}
	all = w.visits.Report(lo, w.rules.Reporting(), note)
	if all {
		w.rules.Reported()
	}
	return all
}

// learn processes what an answer contains about the counter's time and about sessions.
func (w *worker) learn(clk time.Duration, a *slot.Answer) {
	w.clock.Learn(&countertime.Known{
		Time: w.share.Estimate(), Life: a.Name.Life, Sure: a.Sure, Until: w.share.Until(), Latest: a.Latest,
		Heard: clk,
	})
	w.visits.Confirmed(a, w.rules.Load().Fixed)
}

// failAll rejects everybody who waits for an answer, because the process ends.
func (w *worker) failAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	newcomers, passes := w.borrower.Clear()
	for _, q := range newcomers {
		close(q.done)
	}
	for _, done := range passes {
		close(done)
	}
}

// admit gives a newcomer a slot for at most last, on probation first, if a slot is due anywhere and
// nobody waits. It blocks only if the share is empty: for one round trip, or for at most
// borrower.SlotWait while the counter recalls slots from others.
func (w *worker) admit(
	ctx context.Context, id slot.SessionID, last, hard time.Duration,
) (o slot.Session, ok bool) {
	if w.held.Load() {
		return o, false
	}
	if last == 0 {
		last = w.rules.Load().Session
	}
	clk, trial := w.boot(), min(probation, last)
	w.mu.Lock()
	if w.borrower.Arrived() {
		if o, ok = w.share.OpenProbation(clk, id, trial, last, hard); ok {
			low := w.borrower.Opened(clk)
			w.mu.Unlock()
			if low { // request more before the next one has to wait
				w.poke()
			}
			return o, true
		}
	}
	if !w.borrower.CanWait(clk, w.noLine) {
		w.mu.Unlock()
		return o, false
	}
	q := &wish{id: id, trial: trial, last: last, hard: hard, done: make(chan slot.Session, 1)}
	w.borrower.Wait(q)
	w.mu.Unlock()
	w.poke()
	defer func() {
		w.short.Add(1)
		w.shortTook.Add(int64(w.boot() - clk))
	}()
	timer := time.NewTimer(borrower.SlotWait)
	defer timer.Stop()
	select {
	case o, ok = <-q.done:
		return o, ok
	case <-timer.C:
	case <-ctx.Done():
	}
	return w.giveUp(q)
}

// admitUnproven is admit for a request that may not come from a person: a part of a page without a
// cookie, or a newcomer of a network above its join limit. Such requests get only a part of the new
// users of a minute; otherwise a burst of them would leave no slots for the people who come after it.
func (w *worker) admitUnproven(
	ctx context.Context, id slot.SessionID, last, hard time.Duration,
) (o slot.Session, ok bool) {
	clk := slot.Time(w.boot())
	w.mu.Lock()
	end, ok := w.unproven.Take(w.share.LimitOf(slot.PerWindow), clk)
	w.mu.Unlock()
	if !ok {
		return o, false
	}
	if o, ok = w.admit(ctx, id, last, hard); !ok {
		w.mu.Lock()
		w.unproven.Return(end)
		w.mu.Unlock()
	}
	return o, ok
}

// yields ends a session whose first request has a slow body and no answer yet, if somebody waits.
// It reports whether it ended the session.
func (w *worker) yields(id slot.SessionID) bool {
	w.mu.Lock()
	waits := w.share.Waiting()
	w.mu.Unlock()
	return waits && w.visits.RevokeUnanswered(id)
}

// giveUp withdraws a wish. If a slot arrived at the last moment, it is used.
func (w *worker) giveUp(q *wish) (o slot.Session, ok bool) {
	w.mu.Lock()
	waited := w.borrower.Withdraw(q)
	w.mu.Unlock()
	if waited {
		return o, false
	}
	o, ok = <-q.done
	return o, ok
}

var errUnreachable = errors.New("the counter does not answer")

// ask requests that a session may go on for last from now. It blocks for at most askWait. The end
// is 0 if the session is over.
func (w *worker) ask(
	ctx context.Context, id slot.SessionID, from slot.Time, last time.Duration, hard slot.Time,
) (slot.Time, error) {
	w.mu.Lock()
	lo, ok := w.share.Lo(w.boot())
	if !ok || !w.borrower.CanAsk() {
		w.mu.Unlock()
		return 0, errUnreachable
	}
	done := make(chan slot.Time, 1)
	w.borrower.Ask(slot.Item{Op: slot.Ask, ID: id, From: from, At: lo,
		Hard: w.rules.Load().Hard(lo, last, hard)}, done)
	w.mu.Unlock()
	w.kick()
	timer := time.NewTimer(askWait)
	defer timer.Stop()
	select {
	case end, ok := <-done:
		if !ok {
			return 0, errUnreachable
		}
		return end, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return 0, errUnreachable
}

// note adds an item to the next Sync.
func (w *worker) note(it slot.Item) {
	w.mu.Lock()
	w.share.AddItem(it)
	w.mu.Unlock()
}

// leave reports with the next Sync, which is sent at once, that a session is over whose slot ends
// at from. passed says that a visitor may have a pass of it. With leased, the slot is held for a lease.
func (w *worker) leave(id slot.SessionID, from slot.Time, passed, leased bool) {
	lo, hi, _, known := w.clock.Bounds()
	it := slot.Item{Op: slot.Leave, ID: id, From: from, At: lo}
	if leased && !known {
		it.Use = slot.Never
	} else if leased {
		it.Use = hi.Add(w.par.Drift.Up(sessions.Lease))
	}
	if !passed {
		it.Hard = -1
	}
	w.note(it)
	w.kick()
}

// learnTime waits for the counter's time, or for the time of t's host if that is later. It waits
// for at most askWait.
func (w *worker) learnTime(ctx context.Context, t *ticket.Token) bool {
	ctx, stop := context.WithTimeout(ctx, askWait)
	defer stop()
	return w.clock.Await(ctx, w.kick, func() bool { return w.clock.Load() != nil && !w.behind(t) })
}

// learnEnd waits until this process knows by the time of a host of this epoch or a later one
// whether a session that ends at end is over, for at most askWait. If an answer comes long after
// its request, as after a suspension, the bounds of the time are as far apart.
func (w *worker) learnEnd(ctx context.Context, epoch uint64, end slot.Time) bool {
	ctx, stop := context.WithTimeout(ctx, askWait)
	defer stop()
	return w.clock.Await(ctx, w.kick, func() bool {
		lo, hi, _, _ := w.clock.Bounds()
		return w.epoch() >= epoch && (hi < end || end <= lo)
	})
}

// lifeEvery is the minimum time between requests to another data center's counter whether it has
// begun a new life. Chosen.
const lifeEvery = time.Second

// learnLife requests from the counter of another data center whether a life is its current one, at
// most once in lifeEvery, and waits for the answer for at most askWait.
func (w *worker) learnLife(ctx context.Context, life uint64) {
	s := w.clock.Load()
	if !w.away || s == nil || s.Life == life || w.boot()-s.Heard < lifeEvery {
		return
	}
	ctx, stop := context.WithTimeout(ctx, askWait)
	defer stop()
	w.clock.Await(ctx, w.kick, func() bool { return w.clock.Load() != s })
}

// entitled returns the end of a pass: the confirmed end in it, or a later end that was requested
// when its visitor was last seen, if that is certainly in the record.
func (w *worker) entitled(t *ticket.Token) slot.Time {
	s := w.clock.Load()
	if t.Pending > t.End && s != nil && slot.Holds(s.Sure, t.Epoch, slot.Time(t.Seen)) {
		return slot.Time(t.Pending)
	}
	return slot.Time(t.End)
}

// asked notes in a pass the end that was requested when its visitor was seen now. If the pass does
// not come back before this process ends, the record will contain the end. After the term nothing
// is noted, because the counter may then never receive the request.
func (w *worker) asked(t *ticket.Token, seen slot.Time) {
	rules, s := w.rules.Load(), w.clock.Load()
	t.Epoch, t.Seen, t.Pending = 0, 0, 0
	if s != nil {
		t.Epoch = s.Time.Epoch
	}
	if rules.Fixed || rules.Changing || s == nil || w.away || w.boot() >= s.Until {
		return
	}
	l := slot.Limit{Kind: slot.AtOnce, Per: rules.Longest}
	end := w.par.CeilEnd(l, seen.Add(rules.Session))
	if t.Hard > 0 {
		end = min(end, w.par.FloorEnd(l, slot.Time(t.Hard)))
	}
	t.Seen, t.Pending = int64(seen), int64(end)
}

// beyond reports whether a pass has a later end than any pass of an earlier epoch can have: then
// the record was rolled back, and counter time with it.
func (w *worker) beyond(t *ticket.Token, end slot.Time) bool {
	s := w.clock.Load()
	return s != nil && t.Epoch != s.Time.Epoch && end > s.Latest && !w.behind(t)
}

// behind reports whether a pass was issued by a later host than this worker knows: its counter time
// is that host's. A process without others knows all hosts. If a counter still answers long after
// the pass was issued, it is the latest host, and the record was rolled back.
func (w *worker) behind(t *ticket.Token) bool {
	s := w.clock.Load()
	return !w.par.Alone && (s == nil || t.Epoch > s.Time.Epoch &&
		(w.boot()-s.Heard > askWait || time.Since(time.Unix(t.Checked, 0)) < rolledBack))
}

const rolledBack = time.Minute // longer than a replaced host still sends. Chosen

// cutAfter is how long a counter must not answer before it counts as unreachable. Chosen: shorter
// than askWait, so that a visitor inside waits only once.
const cutAfter = askWait * 9 / 10

// cutOff reports whether a request to the counter has been without an answer for longer than cutAfter.
func (w *worker) cutOff() bool { return w.silence() > cutAfter }

// silence returns how long a request to the counter has been without an answer.
func (w *worker) silence() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.share.InFlight() == nil {
		return 0
	}
	return w.boot() - w.borrower.LastSync()
}

// epoch returns the epoch of the counter time this worker knows, or 0 before it knows any.
func (w *worker) epoch() uint64 {
	est := w.clock.Estimate()
	return est.Epoch
}

// opened returns this worker's loan and the number of its slots used so far.
func (w *worker) opened() (slot.LoanID, int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.share.Opened()
}
