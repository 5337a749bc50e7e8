// Package crowd is a crowd of simulated visitors. It waits in a room as real visitors do: it opens
// the page, polls exactly when the answer says so, loads the page when it is called, has a session
// and leaves. It is used for rehearsals (headgate crowd) and for tests that judge a whole room.
//
// The log keeps every answer that a visitor received, with its time. A reader of the Result can
// check order, waits and estimates without trusting the server. What a visitor decides by itself
// (when it comes, how long its session is, how it leaves) depends only on the seed and its number.
//
// Each visitor has one goroutine, started when it arrives. Run returns when the last one has ended.
// A visitor uses about 10 KB of stack, and 150 bytes per answer while it waits. All visitors share
// at most Config.MaxConns connections, so 5,000 visitors need neither 5,000 sockets nor 5,000
// handshakes. Each visitor has its own cookies.
//
// A visitor solves the proof of work that a room asks for, on the processors of this machine, which the
// whole crowd shares. It cannot solve challenges of third parties: it waits as a browser does that
// blocks their script.
//
// The crowd does not run JavaScript, load images, follow redirects (a redirect is the origin's
// answer) or use a proxy. Its cookie jar keeps only the newest value of each name: no paths, no
// domains, and no expiry other than deletion. It connects only to loopback unless the caller
// declares that the site is its own: a crowd sent to another person's site is an attack.
//
// # The files
//
// From the top down: command is headgate crowd, with progress; crowd runs the visitors. visitor is one of
// them, plan what it decides by itself, wire what it sends and reads, solve its proof of work, event what
// it notes. result is the
// log of all, and summary its figures; target keeps the crowd away from sites of others.
package crowd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"time"
)

// A Mode is the way visitors poll.
type Mode string

// These are the modes.
const (
	ModePage Mode = "page" // as the waiting page: polls, then loads the page when called
	ModeJSON Mode = "json" // as an app: requests JSON until the origin answers
)

// A Shape is the distribution of arrivals over Config.Arrive.
type Shape string

// These are the shapes.
const (
	ShapeUniform Shape = "uniform" // at random, at a constant rate
	ShapeBurst   Shape = "burst"   // nine in ten within the first tenth of the time
)

// VisitorHeader carries the visitor's number, from 1, on every request, so that an origin under
// test can identify visitors.
const VisitorHeader = "X-Visitor"

// A Config defines the crowd. The zero value works for each field except URL and N.
type Config struct {
	URL     string // the page that the crowd requests
	Host    string // Host header, if not the one in URL
	Foreign bool   // allows a URL outside loopback: the site is the caller's own

	N      int           // number of visitors
	Arrive time.Duration // arrivals are spread over this; 0 means 30 s
	Shape  Shape         // "" means uniform
	Seed   uint64        // for everything that visitors decide

	// StayMin and StayMax limit the length of a session, counted from the answer that admitted the
	// visitor. The visitor makes a request each ThinkMin to ThinkMax. A pair of zeros means 2 s to
	// 15 s, and 0.5 s to 2 s.
	SessionMin, SessionMax time.Duration
	ThinkMin, ThinkMax     time.Duration

	// LeavePath, joined to URL, is a page of the origin that answers with "Headgate-Command:
	// revoke". A share RevokeShare of the visitors loads it last; 0 means half. The others, and all
	// if LeavePath is empty, just stop.
	LeavePath   string
	RevokeShare float64

	// GiveUpShare is the share of visitors that close the page after waiting for a random time up
	// to GiveUpAfter (0 means 60 s).
	GiveUpShare float64
	GiveUpAfter time.Duration

	// Solvers is the number of processors that solve proofs of work, for all visitors together. 0 means
	// all of this machine, and below 0 none: the visitors wait as browsers without JavaScript do.
	Solvers int

	// Codes are invitations. Visitor n opens the link of the n-th one, and begins again after the last.
	Codes []string

	Duration   time.Duration // end of the run; 0 means when all visitors have ended
	Timeout    time.Duration // of one request; 0 means 30 s
	MaxConns   int           // connections shared by all; 0 means 1,000
	Mode       Mode          // "" means page
	UserAgents []string      // each visitor uses one; nil means one that names the crowd

	// Transport carries the requests, if not nil. The caller must then ensure that it connects only
	// to loopback, and MaxConns has no effect.
	Transport http.RoundTripper
}

// These are the defaults of Config.
const (
	defaultArrive   = 30 * time.Second
	defaultStayMin  = 2 * time.Second
	defaultStayMax  = 15 * time.Second
	defaultThinkMin = 500 * time.Millisecond
	defaultThinkMax = 2 * time.Second
	defaultRevoke   = 0.5
	defaultGiveUp   = time.Minute
	defaultTimeout  = 30 * time.Second
	// defaultMaxConns leaves most of the usual 20,000 descriptors to a server and an origin in the
	// same process, and is twice a room of 500.
	defaultMaxConns  = 1000
	defaultUserAgent = "Mozilla/5.0 (compatible; headgate-crowd)"
)

func (c *Config) setDefaults() {
	c.Arrive = cmp.Or(c.Arrive, defaultArrive)
	c.Shape = cmp.Or(c.Shape, ShapeUniform)
	if c.SessionMin == 0 && c.SessionMax == 0 {
		c.SessionMin, c.SessionMax = defaultStayMin, defaultStayMax
	}
	if c.ThinkMin == 0 && c.ThinkMax == 0 {
		c.ThinkMin, c.ThinkMax = defaultThinkMin, defaultThinkMax
	}
	c.RevokeShare = cmp.Or(c.RevokeShare, defaultRevoke)
	c.GiveUpAfter = cmp.Or(c.GiveUpAfter, defaultGiveUp)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.MaxConns = cmp.Or(c.MaxConns, defaultMaxConns)
	c.Mode = cmp.Or(c.Mode, ModePage)
	c.Solvers = max(0, cmp.Or(c.Solvers, runtime.GOMAXPROCS(0)))
	if len(c.UserAgents) == 0 {
		c.UserAgents = []string{defaultUserAgent}
	}
}

// A ConfigError holds all faults of a Config, one per line.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// Hint returns advice on an error, or "" if there is none.
func Hint(err error) string {
	if errors.Is(err, ErrForeign) {
		return "sending a crowd to a site that is not yours is an attack; " +
			"if the site is yours, add --yes-this-is-my-site"
	}
	if _, ok := errors.AsType[*ConfigError](err); ok {
		return "headgate crowd -h lists all flags"
	}
	return ""
}

// validate reports all faults at once, in terms of the command's flags.
func (c *Config) validate() error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	fault(c.N < 1, "n: %d visitors: must be at least 1", c.N)
	fault(c.Arrive < 0, "arrive: %v: must not be negative", c.Arrive)
	fault(c.Duration < 0, "duration: %v: must not be negative", c.Duration)
	fault(c.Timeout < 0, "timeout: %v: must not be negative", c.Timeout)
	fault(c.GiveUpAfter < 0, "give-up-after: %v: must not be negative", c.GiveUpAfter)
	fault(c.MaxConns < 1, "max-conns: %d: must be at least 1", c.MaxConns)
	fault(c.SessionMin < 0 || c.SessionMax < c.SessionMin,
		"stay: %v..%v: the first must not be above the second", c.SessionMin, c.SessionMax)
	fault(c.ThinkMin <= 0 || c.ThinkMax < c.ThinkMin,
		"think: %v..%v: both must be above 0, the first not above the second",
		c.ThinkMin, c.ThinkMax)
	fault(c.RevokeShare < 0 || c.RevokeShare > 1,
		"revoke-share: %v: must be a share from 0 to 1", c.RevokeShare)
	fault(c.GiveUpShare < 0 || c.GiveUpShare > 1,
		"give-up: %v: must be a share from 0 to 1", c.GiveUpShare)
	fault(c.Shape != ShapeUniform && c.Shape != ShapeBurst,
		"shape: %q: must be uniform or burst", c.Shape)
	fault(c.Mode != ModePage && c.Mode != ModeJSON, "mode: %q: must be page or json", c.Mode)
	if len(errs) == 0 {
		return nil
	}
	return &ConfigError{errors.Join(errs...)}
}

// A crowd is one run. It is read-only once visitors have started.
type crowd struct {
	cfg       Config
	page      *url.URL
	leave     *url.URL // nil: nobody revokes
	transport http.RoundTripper
	start     time.Time
	observe   func(Event)

	solvers chan struct{} // has room for those that compute at the same time
}

// Run starts the crowd of cfg and blocks until the last visitor has ended, cfg.Duration is over or
// ctx is done; the last two are no errors. If observe is not nil, it is called for each event, by
// many goroutines at once. It blocks the visitor of the event, so it must be fast.
func Run(ctx context.Context, cfg Config, observe func(Event)) (*Result, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	page, err := parseTarget(ctx, cfg.URL, cfg.Foreign || cfg.Transport != nil)
	if err != nil {
		return nil, err
	}
	c := &crowd{cfg: cfg, page: page, transport: cfg.Transport, observe: observe,
		solvers: make(chan struct{}, cfg.Solvers)}
	if cfg.LeavePath != "" {
		c.leave = page.JoinPath(cfg.LeavePath)
	}
	if c.transport == nil {
		t := newTransport(cfg.MaxConns, cfg.Foreign)
		defer t.CloseIdleConnections()
		c.transport = t
	}
	if observe == nil {
		c.observe = func(Event) {}
	}
	if cfg.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.Duration)
		defer cancel()
	}
	return c.run(ctx), nil
}

func (c *crowd) run(ctx context.Context) *Result {
	plans := plansOf(&c.cfg)
	r := &Result{Seed: c.cfg.Seed, Visitors: make([]Visitor, len(plans))}
	for i := range r.Visitors {
		r.Visitors[i] = newVisitor(plans[i].id)
	}
	c.start = time.Now()
	r.StartedAt = c.start
	var wg sync.WaitGroup
	for i, p := range plans {
		if !sleepUntil(ctx, c.start.Add(p.arrive)) {
			break
		}
		v := &visitor{crowd: c, plan: p, log: &r.Visitors[i], rng: p.rng()}
		wg.Go(func() { v.live(ctx) })
	}
	wg.Wait()
	r.Took = time.Since(c.start)
	return r
}

// sleepUntil reports whether it slept until the end, rather than being interrupted by ctx.
func sleepUntil(ctx context.Context, at time.Time) bool {
	d := time.Until(at)
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
