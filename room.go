package headgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/boot"
	"github.com/headgate/headgate/internal/chanmutex"
	"github.com/headgate/headgate/internal/cors"
	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/exclude"
	"github.com/headgate/headgate/internal/route"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/internal/wire"
)

// RoomConfig configures a waiting room. The zero value of a field is a working default, except that
// the two limits must be set: with 0 the room admits nobody.
type RoomConfig struct {
	Name  string // name of the room in cookies, metrics and messages
	Title string // shown to visitors; default Name
	Host  string // "" matches any host
	Path  string // the room is everything below it; default "/"; * stands for any characters except /

	Routes              []Route       // more locations of the room
	IgnoreCase          bool          // /Shop and /shop are the same
	AllowAmbiguousPaths bool          // allow paths with several readings: the strictest decision applies
	CookieSuffix        string        // the cookie's name ends with "_" and this suffix
	CookieDomain        string        // the cookie's domain; "" is the request's host
	FailOpenAfter       time.Duration // all pass after this time without a counter; 0: never

	TotalActiveUsers  int64         // maximum inside at once; exact
	NewUsersPerMinute int64         // maximum in every 60 s; exact
	SessionDuration   time.Duration // after the last byte of an answer; default 5 m
	FixedSession      bool          // the session ends SessionDuration after it began
	HardEnd           time.Duration // maximum length of a session; 0: unlimited

	Method    Method    // default MethodFIFO
	QueueAll  bool      // all newcomers have to wait
	Closed    bool      // newcomers get no place; Message gives the reason
	Suspended bool      // the room is off: all requests pass
	Shadow    bool      // decide and count, but hold nobody
	OpensAt   time.Time // the room admits nobody before
	Message   string    // shown to waiting visitors; plain text

	StatusCode    int  // of the waiting page: 503 (default), 200, 202 or 429
	RefreshHeader bool // also send Refresh; it conflicts with the page's script (WCAG 2.2.1)
	NoSpread      bool // call in bursts instead of spacing the calls evenly

	MaxWaiting int64         // the room is then full; default 2,000,000
	Hold       time.Duration // how long an absent visitor keeps the place; default 5 m
	HoldPhone  time.Duration // the same for phones; default 15 m
	CallHold   time.Duration // of a called ticket; default two poll intervals, at least 5 s
	PollMin    time.Duration // default 1 s
	PollMax    time.Duration // default 30 s

	Grace Grace    // paths on which sessions do not end
	Event Event    // the current event; its field Draw is ignored
	Draw  DrawPlan // planned or past draw

	Rules     Rules  // checked before everything else; nil: no rules
	Lanes     []Lane // lanes to which Rules may send newcomers
	Exclude   Exclude
	JoinLimit JoinLimit

	CORS        *CORS       // answers to preflights; nil: the handler behind the room answers them
	PassSharing PassSharing // what happens to a pass that is used in many networks
	BindHeader  string      // request header: a cookie is valid only with the value with which it was set

	Page       Page                             // default: plain text
	ClientAddr func(r *http.Request) netip.Addr // default: RemoteAddr
	Secure     func(r *http.Request) bool       // reports whether the cookie is Secure; default: r.TLS != nil
	// of the cookie; default Lax, also in place of None without Secure
	SameSite http.SameSite
	Log      *slog.Logger         // default: discard
	Wall     func() time.Time     // wall clock for display; default time.Now
	Boot     func() time.Duration // clock for decisions; default CLOCK_BOOTTIME
	Engine   *Engine              // stores the records; nil: in memory only
	sealing  *ticket.Ring         // for tests
	params   slot.Params          // for tests
}

// ErrConfig is wrapped by every error about an invalid configuration.
var ErrConfig = errors.New("invalid room")

func (c RoomConfig) withDefaults() (RoomConfig, error) {
	c.SessionDuration = cmp.Or(c.SessionDuration, 5*time.Minute)
	c.Hold, c.HoldPhone = cmp.Or(c.Hold, 5*time.Minute), cmp.Or(c.HoldPhone, 15*time.Minute)
	c.PollMin, c.PollMax = cmp.Or(c.PollMin, time.Second), cmp.Or(c.PollMax, 30*time.Second)
	c.MaxWaiting, c.StatusCode = cmp.Or(c.MaxWaiting, 2_000_000), cmp.Or(c.StatusCode, 503)
	c.Path = cmp.Or(c.Path, "/")
	if len(c.Path) > 1 { // /shop/ also matches /shop, and a cookie for /shop/ would not come back from there
		c.Path = strings.TrimSuffix(c.Path, "/")
	}
	c.Method, c.Title = cmp.Or(c.Method, MethodFIFO), cmp.Or(c.Title, c.Name)
	if len(c.Grace.Paths) == 0 {
		c.Grace.For = 0
	}
	c.wire()
	var errs []error
	if c.CookieSuffix == "" && len(c.Routes) > 0 {
		errs = append(errs, fmt.Errorf("%w: further routes need a cookie suffix", ErrConfig))
	}
	for _, l := range c.limits() {
		if err := l.Check(); err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", ErrConfig, err))
		}
	}
	if c.Name == "" || len(c.Name) > 64 {
		errs = append(errs, fmt.Errorf("%w: a name of 1 to 64 characters is needed", ErrConfig))
	}
	codes := []int{200, 202, 429, 503}
	if c.Path[0] != '/' || c.SessionDuration < 0 || !slices.Contains(codes, c.StatusCode) {
		errs = append(errs, fmt.Errorf("%w: path %q does not begin with /, session %v is below 0, or "+
			"status %d is none of %v", ErrConfig, c.Path, c.SessionDuration, c.StatusCode, codes))
	}
	errs = append(errs, c.Method.check(), c.PassSharing.SetDefaults(ErrConfig))
	var err error
	if c.CORS, err = c.CORS.Fill(); err != nil {
		errs = append(errs, fmt.Errorf("%w: %w", ErrConfig, err))
	}
	if err := slot.CheckLanes(c.Lanes); err != nil {
		errs = append(errs, fmt.Errorf("%w: %w", ErrConfig, err))
	}
	if c.HardEnd != 0 && c.HardEnd < c.SessionDuration {
		errs = append(errs, fmt.Errorf("%w: hard end %v is before the session duration %v",
			ErrConfig, c.HardEnd, c.SessionDuration))
	}
	return c, errors.Join(errs...)
}

// wire fills in the defaults of what a program may replace.
func (c *RoomConfig) wire() {
	if c.Page == nil {
		c.Page = plainPage{}
	}
	if c.ClientAddr == nil {
		c.ClientAddr = wire.RemoteAddr
	}
	if c.Secure == nil {
		c.Secure = func(r *http.Request) bool { return r.TLS != nil }
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Boot == nil {
		c.Boot = boot.New().Read
	}
}

// limits returns the room's two limits: users at once, and new users per minute.
func (c *RoomConfig) limits() [2]slot.Limit {
	active, fresh := c.TotalActiveUsers, c.NewUsersPerMinute
	if c.Method == MethodPassthrough && active > 0 && fresh > 0 {
		active, fresh = unlimited, unlimited
	}
	return [2]slot.Limit{
		{Kind: slot.AtOnce, N: active, Per: c.longest()},
		{Kind: slot.PerWindow, N: fresh, Per: time.Minute},
	}
}

// A desk is a room's counter, in this process or at its host.
type desk interface {
	lender
	Join(ctx context.Context, lane uint64, hold, waited time.Duration) (counter.PlaceInfo, error)
	placeDesk
	Trace(ctx context.Context, find func(life uint64) (uint64, bool)) (counter.TicketTrace, error)
	State(of slot.LoanID, opened int64) counter.State
	Roam(ctx context.Context, id uint64, came slot.Time) (counter.PlaceInfo, error)
	RemoteTime(ctx context.Context, site string) (counter.RemoteTime, error)
	Reachability(site string) (late, silent bool)
	Hold(yes bool)
	SetPlan(ctx context.Context, p counter.Plan) error
	Reconfigure(ctx context.Context, s counter.Settings) error
	Damaged() error
	Run(ctx context.Context) error
}

// A Room admits at most as many visitors as its origin can take. The others wait in line. A Room
// may be used by many goroutines at once.
type Room struct {
	boot    func() time.Duration
	keys    *atomic.Pointer[ticket.Ring]
	counter desk
	above   *counter.Handle // of Anywhere; nil with one data center
	worker  *worker
	abroad  map[string]*abroad // the same room in other data centers
	face    atomic.Pointer[face]
	doc     wire.Second[[]byte]
	draw    wire.Second[string]
	live    atomic.Pointer[live]
	liveMu  chanmutex.Mutex // one change at a time
	counts  counts
	flights exclude.Flights // requests that pass by
	lets    wire.Second[bool]
	bufs    sync.Pool // *bytes.Buffer
	ran     atomic.Bool
}

// A face is a snapshot of the configuration for requests. A request keeps the face that it began
// with.
type face struct {
	cfg         RoomConfig
	exclude     exclude.Set
	grace       exclude.Set
	joins       *exclude.Joins
	places      *route.Set
	cors        *cors.Policy
	http, https []string // cookie names: the first is used to set it, the others are also read
}

func newFace(cfg RoomConfig, old *face) *face {
	routes := append([]Route{{Host: cfg.Host, Path: cfg.Path}}, cfg.Routes...)
	f := &face{cfg: cfg, places: route.New(routes, cfg.IgnoreCase)}
	f.http, f.https = route.CookieNames(cfg.Name, cfg.CookieSuffix,
		cfg.CookieDomain == "" && f.places.CookiePath() == "/")
	f.exclude = exclude.New(cfg.Exclude, false) // a path in another case may be another page
	f.grace = exclude.New(Exclude{NoDefaults: true, Paths: cfg.Grace.Paths}, cfg.IgnoreCase)
	f.joins, f.cors = exclude.NewJoins(cfg.JoinLimit), cors.New(cfg.CORS)
	if old != nil && old.joins.Limit == f.joins.Limit { // keep the counts so far
		f.joins = old.joins
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
}

func (l *live) holds() bool {
	return l.queueAll || l.down || l.early || l.closed || l.reject || l.prequeue
}

// set copies the settings from the configuration.
func (l *live) set(cfg *RoomConfig) {
	l.queueAll, l.suspended, l.closed = cfg.QueueAll, cfg.Suspended, cfg.Closed
	l.early = !cfg.OpensAt.IsZero() && cfg.Wall().Before(cfg.OpensAt)
	l.reject, l.prequeue = cfg.Method == MethodReject, cfg.Event.Active && cfg.Event.Prequeue
	l.message = cfg.Message
}

// OpenRoom opens the room and takes over its counter. The room admits nobody until Run is called. A
// room whose record is damaged opens too: it admits nobody and loses no place, and its Status gives
// the reason.
func OpenRoom(ctx context.Context, cfg RoomConfig) (*Room, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.Engine == nil {
		cfg.Engine = memoryEngine()
	}
	if err := cfg.Engine.take(cfg.Name); err != nil {
		return nil, err
	}
	r := &Room{boot: cfg.Boot, keys: &cfg.Engine.keys}
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
	sites := cfg.Engine.sites
	if sites != nil {
		cfg.params.RecallWait, cfg.params.Datacenter = counter.RecallWaitBelow, sites.Own()
	}
	r.worker = newWorker(cfg, host, slot.LoanID(rand.Uint64()|1), false)
	ccfg := counter.Config{
		Room: cfg.Name, Host: host, Store: cfg.Engine.store, Params: cfg.params,
		Settings: cfg.settings(), Plan: cfg.Draw.plan(), Boot: cfg.Boot, Log: cfg.Log, Datacenters: sites,
	}
	if sites != nil {
		r.above = counter.NewAnywhere(ccfg, cfg.Engine.bus, cfg.Engine.members)
		ccfg.Anywhere, ccfg.Estimate = r.above, r.worker.clock.Estimate
	}
	if cfg.Engine.members != nil {
		r.counter = counter.NewHandle(ccfg, cfg.Engine.bus, cfg.Engine.members, r.worker.kick)
	} else if r.counter, err = counter.Open(ctx, ccfg, r.worker.kick); err != nil {
		cfg.Engine.release(cfg.Name)
		return nil, err
	}
	r.worker.lender = r.counter
	if bus := cfg.Engine.bus; bus != nil {
		r.worker.clock.Ask = func(ctx context.Context, msg []byte) ([]byte, error) {
			return bus.Request(ctx, r.timeName(), msg)
		}
	}
	r.openAbroad(cfg, ccfg)
	l := &live{damaged: r.counter.Damaged() != nil}
	l.set(&cfg)
	r.live.Store(l)
	r.counter.Hold(l.holds())
	return r, nil
}

// settings returns the settings of the counter that may change.
func (c *RoomConfig) settings() counter.Settings {
	lim := c.limits()
	return counter.Settings{
		Active: lim[0], New: lim[1], Spread: !c.NoSpread && c.Method != MethodPassthrough,
		RandomOrder: c.Method == MethodRandom, AdmitAll: c.Method == MethodPassthrough,
		Line: counter.LineConfig{
			MaxWaiting: c.MaxWaiting, PollMin: c.PollMin, PollMax: c.PollMax,
			CallHold: c.CallHold, Hold: max(c.Hold, c.HoldPhone),
		},
		Lanes: c.Lanes,
	}
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
		l.prequeue = true
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
	if c.Page == nil {
		c.Page = old.Page
	}
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
	defer cfg.Engine.release(cfg.Name)
	if r.counter.Damaged() != nil { // it serves nobody; the other rooms go on
		<-ctx.Done()
		return nil
	}
	if bus := cfg.Engine.bus; bus != nil {
		deaf, err := bus.Serve(r.stayName(cfg.Engine.members.Self().Name), r.answerStay)
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
	// The worker ends first, so that its last report and the slots that it gives back are still
	// written.
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
	wg.Wait()
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
			if left <= 0 {
				r.doors()
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

// doors opens the room if OpensAt has come. It reads the configuration while no other change is in
// progress, because OpensAt may just have been postponed.
func (r *Room) doors() {
	r.change(func(l *live) {
		cfg := &r.face.Load().cfg
		l.early = !cfg.OpensAt.IsZero() && cfg.Wall().Before(cfg.OpensAt)
	})
}

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
	r.counter.Hold(l.holds())
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
