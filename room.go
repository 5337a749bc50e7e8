package headgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/challenge"
	"github.com/headgate/headgate/internal/chanmutex"
	"github.com/headgate/headgate/internal/cors"
	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/exclude"
	"github.com/headgate/headgate/internal/histogram"
	"github.com/headgate/headgate/internal/persons"
	"github.com/headgate/headgate/internal/route"
	"github.com/headgate/headgate/internal/sessions"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/status"
)

// A roomCounter is a room's counter, in this process or at its host.
type roomCounter interface {
	lender
	Join(ctx context.Context, lane uint64, hold, waited time.Duration) (counter.PlaceInfo, error)
	JoinPerson(ctx context.Context, x counter.PersonJoin) (counter.PlaceInfo, slot.ClaimReply, error)
	placeCounter
	Release(ctx context.Context, find func(life uint64) (uint64, bool)) error
	Trace(ctx context.Context, find func(life uint64) (uint64, bool)) (counter.TicketTrace, error)
	State(of slot.LoanID, opened int64) counter.State
	Roam(ctx context.Context, id uint64, came slot.Time) (counter.PlaceInfo, error)
	RemoteTime(ctx context.Context, datacenter string) (counter.RemoteTime, error)
	Reachability(datacenter string) (late, silent bool)
	Hold(yes bool, early ...status.EarlyGroup)
	SetPlan(ctx context.Context, p counter.Plan) error
	Reconfigure(ctx context.Context, s counter.Settings) error
	sender
	Damaged() error
	Run(ctx context.Context) error
}

// A Room admits at most as many visitors as its origin can take. The others wait in line. A Room
// may be used by many goroutines at once.
type Room struct {
	durations
	sender
	boot    func() time.Duration
	keys    *atomic.Pointer[ticket.Ring]
	counter roomCounter
	above   *counter.Handle // of Anywhere; nil with one data center
	worker  *worker
	abroad  map[string]*abroad // the same room in other data centers
	people  *counter.People
	face    atomic.Pointer[face]
	doc     wire.Second[[]byte]
	draw    wire.Second[string]
	live    atomic.Pointer[live]
	liveMu  chanmutex.Mutex // one change at a time
	counts  counts
	gate    challenge.Gate
	flights exclude.Flights // requests that pass by
	lets    wire.Second[bool]
	leases  *sessions.Leases
	bufs    sync.Pool // *bytes.Buffer
	ran     atomic.Bool
	telling sessions.Background
}

// A face is a snapshot of the configuration for requests. A request keeps the face that it began with.
type face struct {
	cfg         RoomConfig
	lanes       []slot.Lane
	exclude     exclude.Set
	grace       exclude.Set
	joins       *exclude.Joins
	solutions   *exclude.Joins // checked solutions of networks
	places      *route.Set
	cors        *cors.Policy
	http, https []string // cookie names: the first is used to set it, the others are also read
}

func newFace(cfg RoomConfig, old *face) *face {
	routes := []route.Route{{Host: cfg.Host, Path: cfg.Path}}
	for _, x := range cfg.Routes {
		routes = append(routes, route.Route(x))
	}
	f := &face{cfg: cfg, lanes: cfg.lanes(), places: route.New(routes, cfg.IgnoreCase)}
	f.http, f.https = route.CookieNames(cfg.Name, cfg.CookieSuffix,
		cfg.CookieDomain == "" && f.places.CookiePath() == "/")
	// A path in another case may be another page.
	f.exclude = exclude.New(exclude.Requests(cfg.Exclude), false)
	f.grace = exclude.New(exclude.Requests{NoDefaults: true, Paths: cfg.Grace.Paths}, cfg.IgnoreCase)
	f.joins, f.cors = exclude.NewJoins(exclude.JoinLimit(cfg.JoinLimit)), cors.New((*cors.Rules)(cfg.CORS))
	f.solutions = challenge.NewChecks(f.joins.Limit)
	if old != nil && old.joins.Limit == f.joins.Limit { // keep the counts so far
		f.joins, f.solutions = old.joins, old.solutions
	}
	return f
}

// cookieNames returns the names of the visitor's cookie.
func (f *face) cookieNames(r *http.Request) []string {
	if f.cfg.Secure(r) {
		return f.https
	}
	return f.http
}

// sealName returns the name under which the visitor's cookie is sealed.
func (f *face) sealName(r *http.Request) string {
	if f.cfg.BindHeader == "" {
		return f.cfg.Name
	}
	return ticket.Bound(f.cfg.Name, r.Header.Values(f.cfg.BindHeader))
}

// A live is a snapshot of what can change while the room runs.
type live struct {
	queueAll, suspended, closed, reject, down, early, prequeue bool

	damaged bool // the record cannot be read: nothing is known
	message string
	groups  []status.EarlyGroup // come in before the end of the prequeue, if it alone holds the others
}

func (l *live) holdsAll() bool { return l.queueAll || l.down || l.early || l.closed || l.reject }

func (l *live) holds() bool { return l.holdsAll() || l.prequeue }

// set copies the settings from the configuration.
func (l *live) set(cfg *RoomConfig) {
	l.queueAll, l.suspended, l.closed = cfg.QueueAll, cfg.Suspended, cfg.Closed
	l.early, l.reject, l.groups = cfg.isEarly(), cfg.Method == MethodReject, cfg.Event.Early
	l.message, l.prequeue = cfg.Message, cfg.Event.Active && cfg.Event.Prequeue
}

// OpenRoom opens the room and takes over its counter. The room admits nobody until Run is called. A room
// whose record is damaged opens too: it admits nobody and loses no place, and its Status gives the reason.
func OpenRoom(ctx context.Context, cfg RoomConfig) (*Room, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.Engine == nil {
		cfg.Engine = memoryEngine()
	}
	if _, open := cfg.Engine.rooms.LoadOrStore(cfg.Name, true); open { // two would host one line
		return nil, fmt.Errorf("%w: room %q is open already on this engine", ErrConfig, cfg.Name)
	}
	r := &Room{boot: cfg.Boot, keys: &cfg.Engine.keys, gate: challenge.Gate{Log: cfg.Log}}
	if cfg.sealing != nil {
		r.keys = &atomic.Pointer[ticket.Ring]{}
		r.keys.Store(cfg.sealing)
	}
	r.face.Store(newFace(cfg, nil))
	host := fmt.Sprintf("%016x", rand.Uint64())
	if cfg.Engine.members != nil {
		host = cfg.Engine.members.Self().Name
	}
	cfg.params.Alone = cfg.Engine.alone
	datacenters := cfg.Engine.datacenters
	if datacenters != nil {
		cfg.params.RecallWait, cfg.params.Datacenter = counter.RecallWaitBelow, datacenters.Own()
	}
	r.worker = newWorker(cfg, host, slot.LoanID(rand.Uint64()|1), false)
	ccfg := counter.Config{
		Room: cfg.Name, Host: host, Store: cfg.Engine.store, Params: cfg.params,
		Settings: cfg.settings(), Plan: cfg.Draw.plan(), Boot: cfg.Boot, Datacenters: datacenters,
		Persons: persons.Opener(cfg.Engine.logs, cfg.Name), Known: cfg.Identity.Of != nil, Log: cfg.Log,
	}
	if datacenters != nil {
		r.above = counter.NewAnywhere(ccfg, cfg.Engine.bus, cfg.Engine.members)
		ccfg.Anywhere, ccfg.Estimate = r.above, r.worker.clock.Estimate
	}
	if cfg.Engine.members != nil {
		r.counter = counter.NewHandle(ccfg, cfg.Engine.bus, cfg.Engine.members, r.worker.kick)
	} else if r.counter, err = counter.Open(ctx, ccfg, r.worker.kick); err != nil {
		cfg.Engine.rooms.Delete(cfg.Name)
		return nil, err
	}
	r.worker.lender, r.sender = r.counter, r.counter
	r.durations = durations{Waited: &histogram.Histogram{}, Inside: &r.worker.visits.Inside,
		Silent: &r.worker.visits.Silent}
	if bus := cfg.Engine.bus; bus != nil {
		r.worker.clock.Ask = func(ctx context.Context, msg []byte) ([]byte, error) {
			return bus.Request(ctx, r.timeName(), msg)
		}
	}
	r.openAbroad(cfg, ccfg)
	r.leases = sessions.NewLeases(cfg.Boot, r.worker.cutOff)
	for _, w := range r.workers() {
		w.visits.Ended = func(id slot.SessionID) {
			_, _, life, _ := w.clock.Bounds()
			r.leases.End((&ticket.Token{Life: life, ID: uint64(id)}).SessionName())
		}
	}
	l := &live{damaged: r.counter.Damaged() != nil}
	l.set(&cfg)
	r.apply(l)
	return r, nil
}

// reconfigureWait is how long a new configuration waits until it is in the record.
const reconfigureWait = 5 * time.Second

// Reconfigure replaces the configuration of the room as one snapshot, while visitors are inside and
// wait. A higher limit applies at once. A lower one is in force once enough visitors have left; no
// visitor is sent away. Fields that only a program can set (Page, Engine, Boot, …) keep their value
// if they are nil. On an error nothing has changed, except that a prequeue holds all newcomers.
func (r *Room) Reconfigure(ctx context.Context, cfg RoomConfig) error {
	r.liveMu.Lock()
	defer r.liveMu.Unlock()
	old := r.face.Load()
	cfg.inherit(&old.cfg)
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	if cfg.Name != old.cfg.Name {
		return fmt.Errorf("%w: room %q cannot become %q", ErrConfig, old.cfg.Name, cfg.Name)
	}
	ctx, stop := context.WithTimeout(ctx, reconfigureWait)
	defer stop()
	if cfg.Event.Active && cfg.Event.Prequeue { // whatever the store returns
		l := *r.live.Load()
		l.prequeue, l.groups = true, cfg.Event.Early
		r.apply(&l)
	}
	if cfg.Draw.Event != "" || old.cfg.Draw.Event != "" {
		if err := r.counter.SetPlan(ctx, cfg.Draw.plan()); err != nil {
			return fmt.Errorf("room %q: the draw is not written: %w", cfg.Name, err)
		}
	}
	var backs []func()
	for _, w := range r.workers() {
		backs = append(backs, w.changing(&cfg))
	}
	if err := r.reconfigure(ctx, cfg.settings(), old.cfg.settings()); err != nil {
		for _, back := range backs {
			back()
		}
		return fmt.Errorf("room %q: %w", cfg.Name, err)
	}
	for _, w := range r.workers() {
		w.reconfigure(&cfg)
	}
	r.face.Store(newFace(cfg, old))
	r.doc.Forget()
	r.draw.Forget()
	l := *r.live.Load()
	l.set(&cfg)
	r.apply(&l)
	return nil
}

// reconfigure sends the settings to the counters. Anywhere comes first: it must know of a longer
// session before a visitor is admitted for that long.
func (r *Room) reconfigure(ctx context.Context, set, old counter.Settings) error {
	if r.above == nil {
		return r.counter.Reconfigure(ctx, set)
	}
	if err := r.above.Reconfigure(ctx, set); err != nil {
		return fmt.Errorf("all data centers together: %w", err)
	}
	err := r.counter.Reconfigure(ctx, set)
	if err != nil {
		back, stop := context.WithTimeout(context.WithoutCancel(ctx), reconfigureWait)
		defer stop()
		err = errors.Join(err, r.above.Reconfigure(back, old))
	}
	return err
}

// inherit copies from old what only a program can set.
func (c *RoomConfig) inherit(old *RoomConfig) {
	c.Page = cmp.Or(c.Page, old.Page)
	if c.ClientAddr == nil {
		c.ClientAddr = old.ClientAddr
	}
	if c.Secure == nil {
		c.Secure = old.Secure
	}
	c.Log, c.Wall, c.Boot, c.Engine = old.Log, old.Wall, old.Boot, old.Engine
	c.sealing, c.params = old.sealing, old.params
}

// HasCounterTime reports whether the room has received its counter's time. Until then it requests
// the time when a visitor with a pass comes.
func (r *Room) HasCounterTime() bool { return r.worker.clock.Load() != nil }

// timeName returns the name under which nodes answer requests for the counter time.
func (r *Room) timeName() string { return "clock." + r.Config().Name }

// Run lends, calls and renews until ctx ends, and then closes the room. Call it once: it returns an
// error if the room already runs or has run, or if the room cannot continue.
func (r *Room) Run(ctx context.Context) error {
	cfg := r.Config()
	if r.ran.Swap(true) {
		return fmt.Errorf("%w: room %q runs already, or has run", ErrConfig, cfg.Name)
	}
	defer cfg.Engine.rooms.Delete(cfg.Name)
	if r.counter.Damaged() != nil { // it serves nobody; the other rooms go on
		<-ctx.Done()
		return nil
	}
	if bus := cfg.Engine.bus; bus != nil {
		deaf, err := bus.Serve(r.sessionName(cfg.Engine.members.Self().Name), r.answerSession)
		if err != nil {
			return err
		}
		defer deaf()
		if cfg.Engine.members.Self().CanHost { // a node that may not host may not set the time of others
			deaf, err := bus.Serve(r.timeName(), r.worker.clock.Answer)
			if err != nil {
				return err
			}
			defer deaf()
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// The worker ends first: its last report and the slots that it gives back are still written.
	serving, done := context.WithCancel(context.WithoutCancel(ctx))
	errs := make([]error, 3)
	var wg, away sync.WaitGroup
	for _, a := range r.abroad {
		away.Go(func() { _ = a.worker.run(ctx) }) // ends with ctx alone
	}
	wg.Go(func() { errs[0] = r.counter.Run(serving); stop() })
	if r.above != nil {
		wg.Go(func() { errs[2] = r.above.Run(serving); stop() })
	}
	wg.Go(func() { errs[1] = r.worker.run(ctx); stop(); away.Wait(); done() })
	wg.Go(func() { r.waitOpening(ctx) })
	r.telling.Begin(ctx)
	wg.Wait()
	r.telling.End()
	return errors.Join(errs...)
}

// waitOpening opens the room at OpensAt by the wall clock. It checks each second, to notice a
// stepped clock and a new configuration.
func (r *Room) waitOpening(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		var soon <-chan time.Time
		if r.live.Load().early {
			cfg := &r.face.Load().cfg
			left := cfg.OpensAt.Sub(cfg.Wall())
			if left <= 0 { // the configuration is read again: OpensAt may just have been postponed
				r.change(func(l *live) { l.early = r.face.Load().cfg.isEarly() })
			} else if left < time.Second {
				soon = time.After(left)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-soon:
		case <-tick.C:
		}
	}
}

func (c *RoomConfig) isEarly() bool { return !c.OpensAt.IsZero() && c.Wall().Before(c.OpensAt) }

// change replaces the snapshot of what can change and informs the counter.
func (r *Room) change(f func(*live)) {
	r.liveMu.Lock()
	defer r.liveMu.Unlock()
	l := *r.live.Load()
	f(&l)
	r.apply(&l)
}

func (r *Room) apply(l *live) {
	r.live.Store(l)
	r.counter.Hold(l.holds(), status.EarlyIn(l.prequeue, l.holdsAll(), l.groups)...)
	r.worker.hold(l.holds())
}

// SetOriginUp sets whether the origin answers. While it does not, the room calls and admits nobody,
// and no visitor loses a place.
func (r *Room) SetOriginUp(up bool) { r.change(func(l *live) { l.down = !up }) }

// SetQueueAll makes all newcomers wait, or lets them in again.
func (r *Room) SetQueueAll(yes bool) { r.change(func(l *live) { l.queueAll = yes }) }

// SetSuspended turns the room off, so that all requests pass uncounted, or on again.
func (r *Room) SetSuspended(yes bool) { r.change(func(l *live) { l.suspended = yes }) }

// SetMessage changes the message that waiting visitors read.
func (r *Room) SetMessage(text string) { r.change(func(l *live) { l.message = text }) }

// Matches reports whether the room is responsible for this host and any reading of a decoded path,
// and how specific the match is. Of several rooms the most specific one applies.
func (r *Room) Matches(host, path string) (specific int, ok bool) {
	return r.face.Load().places.MatchAny(host, path)
}

// Config returns the configuration in force, with the defaults filled in.
func (r *Room) Config() RoomConfig { return r.face.Load().cfg }

// A DrawPlan describes a random draw, planned or past: at StartsAt the engine draws the order of
// all visitors who joined since the prequeue began. The zero DrawPlan is no draw. A program that
// changes it calls Reconfigure when the prequeue begins and when it is over.
type DrawPlan struct {
	Event    string // identifies the draw among all draws of the room
	StartsAt time.Time
	Begun    bool // the prequeue has begun: visitors who join now take part
	Started  bool // the draw is due; visitors who join now stand behind it
}

func (p *DrawPlan) plan() counter.Plan {
	return counter.NewPlan(p.Event, p.StartsAt, p.Begun, p.Started)
}

// drawn returns the hash of the draw's seed, or the data with which anyone can check the order. It
// is at most one second old.
func (r *Room) drawn() string {
	return r.draw.Get(r.boot(), func() string { return r.counter.State(r.worker.opened()).Draw.Text() })
}

// event returns what visitors see of the current event.
func (r *Room) event(cfg *RoomConfig) Event {
	e := cfg.Event
	switch {
	case !e.Active:
		return Event{}
	case e.Shuffle:
		e.Draw = r.drawn()
	}
	return e
}

// unordered reports whether a ticket has no place in an order yet, because the next visitor is
// drawn at random. The draw of an event is for the ordinary line only.
func (c *RoomConfig) unordered(ticket uint64) bool {
	return c.Method == MethodRandom ||
		c.Event.Active && c.Event.Prequeue && c.Event.Shuffle && slot.LaneIndex(ticket) == 0
}

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
