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

// RoomConfig describes a waiting room. Zero fields are working defaults, but
// the two limits must be set: with 0 nobody is let in.
type RoomConfig struct {
	Name  string // names the room in cookies, metrics and messages
	Title string // what visitors read; default Name
	Host  string // "" is any
	Path  string // the room is everything below; default "/"; a * is any characters but a slash

	Routes              []Route       // more places of the room
	IgnoreCase          bool          // /Shop and /shop are one
	AllowAmbiguousPaths bool          // paths with several readings pass: the strictest decision counts
	CookieSuffix        string        // "_" and this end the name of the cookie
	CookieDomain        string        // of the cookie; "" is the host that was asked
	FailOpenAfter       time.Duration // without an answer of the counter for so long all pass; 0 is never

	TotalActiveUsers  int64         // at once; exact
	NewUsersPerMinute int64         // in every 60 s; exact
	SessionDuration   time.Duration // after the last byte, 5 m
	FixedSession      bool          // the session ends SessionDuration after it began
	HardEnd           time.Duration // nobody stays longer, 0 is no end

	Method    Method    // default MethodFIFO
	QueueAll  bool      // nobody new is let in
	Closed    bool      // nobody new gets a place; Message says why
	Suspended bool      // the room is off: all pass
	Shadow    bool      // decide and count, hold nobody
	OpensAt   time.Time // nobody is let in before
	Message   string    // shown to those who wait, plain text

	StatusCode    int  // of the waiting page: 503 (default), 200, 202 or 429
	RefreshHeader bool // also send Refresh: it fights the page's script (WCAG 2.2.1)
	NoSpread      bool // let calls pulse instead of spacing them evenly

	MaxWaiting int64         // then the room is full, 2,000,000
	Hold       time.Duration // an absent ticket keeps its place, 5 m
	HoldPhone  time.Duration // the same for phones, 15 m
	CallHold   time.Duration // of a called ticket; default two intervals, 5 s at least
	PollMin    time.Duration // 1 s
	PollMax    time.Duration // 30 s

	Grace Grace    // on which paths nobody's time runs out
	Event Event    // that is on; of its fields Draw is not read
	Draw  DrawPlan // what there is to draw from

	Rules     Rules  // asked before all else; nil: none
	Lanes     []Lane // that rules may send newcomers to
	Exclude   Exclude
	JoinLimit JoinLimit

	CORS        *CORS       // how preflights are answered; nil: the program behind answers them
	PassSharing PassSharing // what becomes of passes that many use
	BindHeader  string      // of requests: a cookie is good with the value alone with which it was set

	Page       Page                             // default: plain text
	ClientAddr func(r *http.Request) netip.Addr // default: RemoteAddr
	Secure     func(r *http.Request) bool       // is the cookie Secure; default: r.TLS != nil
	SameSite   http.SameSite                    // of the cookie; default Lax, and of None without Secure
	Log        *slog.Logger                     // default: discard
	Wall       func() time.Time                 // for what is shown; default time.Now
	Boot       func() time.Duration             // decides; default CLOCK_BOOTTIME
	Engine     *Engine                          // keeps what must not be forgotten; nil: memory
	sealing    *ticket.Ring                     // tests
	params     slot.Params                      // tests
}

// ErrConfig is wrapped by every error about an impossible configuration.
var ErrConfig = errors.New("impossible room")

func (c RoomConfig) withDefaults() (RoomConfig, error) {
	c.SessionDuration = cmp.Or(c.SessionDuration, 5*time.Minute)
	c.Hold, c.HoldPhone = cmp.Or(c.Hold, 5*time.Minute), cmp.Or(c.HoldPhone, 15*time.Minute)
	c.PollMin, c.PollMax = cmp.Or(c.PollMin, time.Second), cmp.Or(c.PollMax, 30*time.Second)
	c.MaxWaiting, c.StatusCode = cmp.Or(c.MaxWaiting, 2_000_000), cmp.Or(c.StatusCode, 503)
	c.Path = cmp.Or(c.Path, "/")
	if len(c.Path) > 1 { // /shop/ is also /shop, and a cookie for /shop/ would not come back there
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

// wire fills in what a program may replace.
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

// limits are the room's two limits: users at once, and new users per minute.
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

// desk is a room's counter: in this process, or wherever its host is.
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

// A Room lets in at most as many visitors as its origin can take; the others
// wait in line. It may be used by many goroutines at once.
type Room struct {
	boot    func() time.Duration
	keys    *atomic.Pointer[ticket.Ring]
	counter desk
	above   *counter.Handle // of Anywhere, nil with one data centre
	worker  *worker
	abroad  map[string]*abroad // the same room in other data centres
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

// face is the configuration as requests see it, as one snapshot: a request keeps
// the one it began with.
type face struct {
	cfg         RoomConfig
	exclude     exclude.Set
	grace       exclude.Set
	joins       *exclude.Joins
	places      *route.Set
	cors        *cors.Policy
	http, https []string // names of the cookie: by the first it is set, by the others it may come
}

func newFace(cfg RoomConfig, old *face) *face {
	routes := append([]Route{{Host: cfg.Host, Path: cfg.Path}}, cfg.Routes...)
	f := &face{cfg: cfg, places: route.New(routes, cfg.IgnoreCase)}
	f.http, f.https = route.CookieNames(cfg.Name, cfg.CookieSuffix,
		cfg.CookieDomain == "" && f.places.CookiePath() == "/")
	f.exclude = exclude.New(cfg.Exclude, false) // of another case is perhaps another page
	f.grace = exclude.New(Exclude{NoDefaults: true, Paths: cfg.Grace.Paths}, cfg.IgnoreCase)
	f.joins, f.cors = exclude.NewJoins(cfg.JoinLimit), cors.New(cfg.CORS)
	if old != nil && old.joins.Limit == f.joins.Limit { // what it has counted still counts
		f.joins = old.joins
	}
	return f
}

// cookieNames are the names of the visitor's cookie.
func (f *face) cookieNames(r *http.Request) []string {
	if f.cfg.Secure(r) {
		return f.https
	}
	return f.http
}

// sealName is under which the visitor's cookie is sealed.
func (f *face) sealName(r *http.Request) string {
	if f.cfg.BindHeader == "" {
		return f.cfg.Name
	}
	return ticket.Bound(f.cfg.Name, r.Header.Values(f.cfg.BindHeader))
}

// live is what can change while the room runs, as one snapshot.
type live struct {
	queueAll, suspended, closed, reject, down, early, prequeue bool

	damaged bool // the record cannot be read: nobody knows anything
	message string
}

func (l *live) holds() bool {
	return l.queueAll || l.down || l.early || l.closed || l.reject || l.prequeue
}

// set takes what the configuration says over.
func (l *live) set(cfg *RoomConfig) {
	l.queueAll, l.suspended, l.closed = cfg.QueueAll, cfg.Suspended, cfg.Closed
	l.early = !cfg.OpensAt.IsZero() && cfg.Wall().Before(cfg.OpensAt)
	l.reject, l.prequeue = cfg.Method == MethodReject, cfg.Event.Active && cfg.Event.Prequeue
	l.message = cfg.Message
}

// OpenRoom opens the room and takes its counter over. Run must be called for
// anybody to be let in. A room whose record is damaged opens all the same: it
// lets nobody in and loses nobody, and its Status says why.
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
		cfg.params.RecallWait, cfg.params.Site = counter.RecallWaitBelow, sites.Own()
	}
	r.worker = newWorker(cfg, host, slot.LoanID(rand.Uint64()|1), false)
	ccfg := counter.Config{
		Room: cfg.Name, Host: host, Store: cfg.Engine.store, Params: cfg.params,
		Settings: cfg.settings(), Plan: cfg.Draw.plan(), Boot: cfg.Boot, Log: cfg.Log, Sites: sites,
	}
	if sites != nil {
		r.above = counter.NewAnywhere(ccfg, cfg.Engine.bus, cfg.Engine.members)
		ccfg.Anywhere, ccfg.Estimate = r.above, r.worker.estimate
	}
	if cfg.Engine.members != nil {
		r.counter = counter.NewHandle(ccfg, cfg.Engine.bus, cfg.Engine.members, r.worker.kick)
	} else if r.counter, err = counter.Open(ctx, ccfg, r.worker.kick); err != nil {
		cfg.Engine.release(cfg.Name)
		return nil, err
	}
	r.worker.lender = r.counter
	r.openAbroad(cfg, ccfg)
	l := &live{damaged: r.counter.Damaged() != nil}
	l.set(&cfg)
	r.live.Store(l)
	r.counter.Hold(l.holds())
	return r, nil
}

// settings are what the counter needs to know and may change.
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

// reconfigureWait bounds how long a new configuration waits for the record.
const reconfigureWait = 5 * time.Second

// Reconfigure takes a new configuration of the same room while people are
// inside and wait, as one snapshot. A higher limit counts at once; a lower one is
// in force once enough have left, and nobody is sent away. Fields that only a
// program can set (Page, Engine, Boot, …) stay as they were when they are nil.
// On an error nothing has changed, but that a prequeue holds everybody who is new.
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
	if cfg.Event.Active && cfg.Event.Prequeue { // whatever the store says
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

// reconfigure tells the counters: Anywhere first, which must know of a longer stay before
// anybody is let in for so long.
func (r *Room) reconfigure(ctx context.Context, set, old counter.Settings) error {
	if r.above == nil {
		return r.counter.Reconfigure(ctx, set)
	}
	if err := r.above.Reconfigure(ctx, set); err != nil {
		return fmt.Errorf("all data centres together: %w", err)
	}
	err := r.counter.Reconfigure(ctx, set)
	if err != nil {
		back, stop := context.WithTimeout(context.WithoutCancel(ctx), reconfigureWait)
		defer stop()
		err = errors.Join(err, r.above.Reconfigure(back, old))
	}
	return err
}

// inherit fills in what only a program can set.
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

// KnowsTime reports whether the room has heard of its counter's time: before, it asks
// for it when a visitor with a pass comes.
func (r *Room) HasCounterTime() bool { return r.worker.sight.Load() != nil }

// Run lends, calls and renews until ctx ends, and closes the room. It returns an error
// only if the room cannot go on, or runs or ran already: it is called once.
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
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// The worker ends first: its last report and what it gives back are still written.
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

// waitOpening opens the doors at OpensAt by the wall clock, looked at each
// second so that a stepped clock and a new configuration are seen.
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

// doors opens the room if its moment has come, by the configuration that is in
// force when no other change is under way: opens_at may just have been postponed.
func (r *Room) doors() {
	r.change(func(l *live) {
		cfg := &r.face.Load().cfg
		l.early = !cfg.OpensAt.IsZero() && cfg.Wall().Before(cfg.OpensAt)
	})
}

// change swaps the snapshot of what can change and tells the counter.
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

// OriginUp tells the room whether its origin answers: while it does not, nobody
// is called or let in, and nobody loses a place.
func (r *Room) SetOriginUp(up bool) { r.change(func(l *live) { l.down = !up }) }

// QueueAll holds everybody new, or lets them in again.
func (r *Room) SetQueueAll(yes bool) { r.change(func(l *live) { l.queueAll = yes }) }

// Suspend turns the room off, so that all pass uncounted, or on again.
func (r *Room) SetSuspended(yes bool) { r.change(func(l *live) { l.suspended = yes }) }

// Message changes what those who wait read.
func (r *Room) SetMessage(text string) { r.change(func(l *live) { l.message = text }) }

// Matches reports whether the room stands in front of this host and any reading of a decoded path,
// and how specific it is; the most specific room decides.
func (r *Room) Matches(host, path string) (specific int, ok bool) {
	return r.face.Load().places.MatchAny(host, path)
}

// Config is the configuration in force, defaults filled in.
func (r *Room) Config() RoomConfig { return r.face.Load().cfg }
