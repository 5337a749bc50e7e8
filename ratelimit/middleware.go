package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/numbers"
	"github.com/headgate/headgate/internal/quota"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/limit"
)

// A RequestLimit configures how a limit applies to the requests of a handler.
type RequestLimit struct {
	Name string
	Key  []KeyPart // requests with the same key count together; none: one key for all

	// Cost is the cost of a request, default 1. CostHeader is the name of a request header that
	// overrides it. Limits in bytes use the real size instead.
	Cost       int64
	CostHeader string

	// CostField, if not "", leads to a number in the JSON body of a request, such as max_tokens: the keys,
	// with dots between them. That number, times Settle.Output if it is set, is added to Cost. If it
	// occurs twice, the greater one counts. The body is read before the limits are checked. Requests with
	// more than 4 MB are answered with 413, compressed ones with 415, those that take longer than 30 s with
	// 408, and those in whose body the field cannot be read with 400.
	CostField string

	// Settle, if not nil, says what the call has really cost. Until then Cost, CostHeader and CostField
	// are an estimate. When the handler is done, what it did not cost is given back, and what it cost
	// beyond it is owed. The handler is asked for an answer that is not compressed.
	Settle *Settle

	// Unit is what is counted, default Requests. For a request body the Content-Length is taken in
	// advance. For a body without one, and for an answer, 1 is taken. When the handler is done,
	// what was not read is given back, and what was read beyond it is owed. The answer to HEAD and
	// data after a connection was hijacked are not counted.
	Unit Unit

	// Plan, if not nil, names the plan of the caller. Limits with the same one ask it once for a request.
	Plan *PlanSource

	Headers HeaderStyle                      // style of the answer's headers
	Addr    func(r *http.Request) netip.Addr // the client's address; default: RemoteAddr

	// OnError, if not nil, receives the error when the limit could not be checked or settled, and
	// reports whether the request passes uncounted. By default the request is answered with 503.
	OnError func(r *http.Request, err error) bool
}

// A PlanSource names the plan of a caller. Of returns it, or "" for none. It must not be what a client
// claims: the client would choose its amount.
type PlanSource struct {
	Of func(r *http.Request) string
}

// Middleware returns a handler that puts limits in front of next. A request is checked against
// all of them. Either all limits take its cost, or none does and WriteRefusal answers the request.
// A call that a Paced limit delays waits. What a Concurrency limit counts is given back when next
// has returned or panicked. A request beyond a soft limit passes with ExceededHeader.
//
// An allowed request costs one call of rules if no limit counts it in bytes and none is a
// Concurrency limit.
func Middleware(rules Checker, limits []RequestLimit, next http.Handler) http.Handler {
	if len(limits) == 0 {
		return next
	}
	g := &gate{rules: rules, limits: slices.Clone(limits), next: next, bodies: &bodyReader{}}
	for i := range g.limits {
		l := &g.limits[i]
		if l.Cost = cmp.Or(l.Cost, 1); l.Addr == nil {
			l.Addr = wire.RemoteAddr
		}
		l.CostHeader = http.CanonicalHeaderKey(l.CostHeader)
		g.reads = g.reads || l.CostField != ""
		if l.Settle != nil {
			s := *l.Settle
			s.Header = http.CanonicalHeaderKey(s.Header)
			l.Settle = &s
		}
		l.Headers = cmp.Or(l.Headers, HeadersIETF)
		if !slices.Contains(g.styles, l.Headers) {
			g.styles = append(g.styles, l.Headers)
		}
	}
	return g
}

// A gate is the handler of Middleware.
type gate struct {
	rules  Checker
	limits []RequestLimit
	styles []HeaderStyle // of the limits, each once
	next   http.Handler
	reads  bool // a limit has a CostField
	bodies *bodyReader
}

// ServeHTTP checks the limits, and calls the next handler if they allow the request.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{gate: g, w: w, r: r}
	defer c.end()
	delete(r.Header, ExceededHeader)
	if c.readBody() && c.price() && c.reserve() && c.take() {
		c.keep()
		c.tell()
		c.mark()
		if c.wait() {
			c.serve()
		}
	}
}

// A call is one request while its limits are checked.
type call struct {
	*gate
	w        http.ResponseWriter
	r        *http.Request
	met      []*RequestLimit // first those with a known cost, then those with an estimate
	known    int             // number of limits with a known cost
	asks     []Check         // in the order of met
	verdicts []Result        // in the same order; Limit is nil if there is none
	read     *wire.CountedBody
	wrote    *wire.CountedAnswer
	kept     []*quota.LeaseRenewer
	body     *readBody
	fields   map[*RequestLimit]*numbers.Scanner // of the body
	metered  *meteredAnswer
	done     bool // the handler has returned

	few struct { // memory for most calls
		met      [2]*RequestLimit
		asks     [2]Check
		verdicts [2]Result
	}
}

// estimated reports whether the cost is known only when the request is done.
func (c *call) estimated(l *RequestLimit) bool {
	return l.Settle != nil || l.Unit == ResponseBytes || l.Unit == RequestBytes && c.r.ContentLength != 0
}

// readBody reads the body of the request if the cost is in it, or answers the request if that fails.
func (c *call) readBody() bool {
	if !c.reads || c.r.Body == nil || c.r.Body == http.NoBody {
		return true
	}
	c.fields = map[*RequestLimit]*numbers.Scanner{}
	for i := range c.limits {
		if l := &c.limits[i]; l.CostField != "" {
			c.fields[l] = numbers.NewScanner(l.CostField)
		}
	}
	var fault *bodyError
	if c.body, fault = c.bodies.read(c.w, c.r, c.fields); fault != nil {
		wire.WriteProblem(c.w, c.r, fault.status, fault.text)
		return false
	}
	return true
}

// price determines the cost of the request, or answers the request if that fails.
func (c *call) price() bool {
	c.met, c.asks, c.verdicts = c.few.met[:0], c.few.asks[:0], c.few.verdicts[:]
	if n := len(c.limits); n > len(c.few.met) {
		c.met, c.asks = make([]*RequestLimit, 0, n), make([]Check, 0, n)
		c.verdicts = make([]Result, n)
	}
	c.verdicts = c.verdicts[:len(c.limits)]
	for _, estimated := range [...]bool{false, true} {
		for i := range c.limits {
			l := &c.limits[i]
			if c.estimated(l) != estimated {
				continue
			}
			cost, ok := c.cost(l)
			if !ok {
				wire.WriteProblem(c.w, c.r, http.StatusBadRequest, "The header "+l.CostHeader+
					" must be one whole number from 0 to "+strconv.FormatInt(limit.MaxAmount, 10)+".")
				return false
			}
			a := Check{Limit: l.Name, Cost: cost,
				Key: keyOf(l.Key, keySource{Request: c.r, Addr: l.Addr, Answer: c.w})}
			same := func(m *RequestLimit) bool { return m.Plan == l.Plan }
			if at := slices.IndexFunc(c.met, same); at >= 0 {
				a.Plan = c.asks[at].Plan
			} else if l.Plan != nil {
				a.Plan = l.Plan.Of(c.r)
			}
			c.met, c.asks = append(c.met, l), append(c.asks, a)
		}
		if !estimated {
			c.known = len(c.met)
		}
	}
	return true
}

func (c *call) cost(l *RequestLimit) (n int64, ok bool) {
	said := c.r.Header[l.CostHeader]
	switch {
	case l.Unit == RequestBytes && c.r.ContentLength >= 0:
		return min(c.r.ContentLength, limit.MaxAmount), true
	case l.Settle == nil && c.estimated(l):
		return 1, true
	case l.CostHeader == "" || said == nil:
		if s := c.fields[l]; s != nil {
			many, _ := s.Value(0)
			return l.estimate(many), true
		}
		return l.Cost, true
	case len(said) != 1 || said[0] == "" || said[0][0] == '+': // + is no digit
		return 0, false
	}
	n, err := strconv.ParseInt(said[0], 10, 64)
	if n == 0 && l.Settle != nil {
		return 1, err == nil // a reservation of nothing could not be settled
	}
	return n, err == nil && n >= 0 && n <= limit.MaxAmount
}

// reservationLife is how long a body may take before its estimate counts as the cost. Chosen:
// longer than any transfer that a server should allow.
const reservationLife = 24 * time.Hour

// reserve takes the estimates. It comes before take, because a reservation can be given back
// completely.
func (c *call) reserve() bool {
	for i := c.known; i < len(c.met); i++ {
		v, err := c.rules.Reserve(c.r.Context(), c.asks[i], reservationLife)
		if err != nil {
			if !c.forgiven(c.met[i:i+1], err) {
				return false
			}
			continue
		}
		if c.verdicts[i] = v; !v.Allowed {
			return c.refuse()
		}
	}
	return true
}

// take takes the known costs, all or nothing. If a limit was just removed, it checks the others
// without it.
func (c *call) take() bool {
	err := c.askKnown()
	for range c.known {
		if c.known < 2 || !errors.Is(err, ErrNoLimit) {
			break
		}
		if !c.leaveGone() {
			return false
		}
		err = c.askKnown()
	}
	vs := c.verdicts[:c.known]
	if err != nil {
		clear(vs)
		return c.forgiven(c.met[:c.known], err)
	}
	if slices.ContainsFunc(vs, func(v Result) bool { return !v.Allowed }) {
		return c.refuse()
	}
	return true
}

func (c *call) askKnown() (err error) {
	switch c.known {
	case 0:
	case 1:
		c.verdicts[0], err = c.rules.Allow(c.r.Context(), c.asks[0])
	default:
		var got []Result
		got, err = c.rules.AllowAll(c.r.Context(), c.asks[:c.known], true)
		copy(c.verdicts[:c.known], got)
	}
	return err
}

// leaveGone drops the limits that no longer exist, or answers the request.
func (c *call) leaveGone() bool {
	for i := c.known - 1; i >= 0; i-- {
		a := c.asks[i]
		a.Cost = 0
		_, err := c.rules.Allow(c.r.Context(), a)
		switch {
		case !errors.Is(err, ErrNoLimit):
			continue
		case !c.forgiven(c.met[i:i+1], err):
			clear(c.verdicts[:c.known])
			return false
		}
		c.met, c.asks = slices.Delete(c.met, i, i+1), slices.Delete(c.asks, i, i+1)
		c.verdicts = slices.Delete(c.verdicts, i, i+1)
		c.known--
	}
	return true
}

// forgiven calls OnError of the limits that could not be checked. It reports whether the request
// passes all the same, and answers the request if not.
func (c *call) forgiven(met []*RequestLimit, err error) bool {
	for _, l := range met {
		if l.OnError == nil || !l.OnError(c.r, err) {
			wire.WriteProblem(c.w, c.r, http.StatusServiceUnavailable,
				"The limits of this request cannot be asked now. Try again later.")
			return false
		}
	}
	return true
}

// tell sets the headers, for each limit in its own style.
func (c *call) tell() {
	h := c.w.Header()
	if len(c.styles) == 1 {
		setStyle(h, c.styles[0], c.verdicts)
		return
	}
	for _, style := range c.styles {
		var vs []Result
		for i, l := range c.met {
			if l.Headers == style {
				vs = append(vs, c.verdicts[i])
			}
		}
		setStyle(h, style, vs)
	}
}

// mark names the soft limits that the call exceeds, for the next handler and for the client.
func (c *call) mark() {
	if names := exceeded(c.verdicts); names != "" {
		c.r.Header[ExceededHeader] = []string{names}
		c.w.Header()[ExceededHeader] = []string{names}
	}
}

func (c *call) refuse() bool {
	c.tell()
	setRetryAfter(c.w.Header(), c.verdicts)
	writeRefusal(c.w, c.r, c.verdicts)
	return false
}

// wait waits until all limits let the call proceed.
func (c *call) wait() bool {
	var d time.Duration
	for i := range c.verdicts {
		d = max(d, c.verdicts[i].Wait)
	}
	if d == 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.r.Context().Done():
		wire.WriteProblem(c.w, c.r, http.StatusServiceUnavailable,
			"The request ended before it was its turn.")
		return false
	}
}

// serve calls the next handler, and counts the bodies if a limit counts bytes that are not known
// yet.
func (c *call) serve() {
	w := c.w
	for i, l := range c.met[c.known:] {
		switch {
		case l.Settle != nil:
			if c.metered == nil {
				c.metered = &meteredAnswer{CountedAnswer: wire.CountedAnswer{ResponseWriter: w}}
				w = c.metered
			}
			c.metered.add(c.known+i, l.Settle)
		case l.Unit == ResponseBytes && c.wrote == nil:
			c.wrote = &wire.CountedAnswer{ResponseWriter: w}
			w = c.wrote
		case l.Unit == RequestBytes && c.read == nil:
			// The request is not copied: net/http removes the form files only of its own request.
			body := c.r.Body
			c.read = &wire.CountedBody{ReadCloser: body}
			c.r.Body = c.read
			defer func() { c.r.Body = body }()
		}
	}
	if c.metered != nil {
		coding := c.r.Header["Accept-Encoding"]
		c.r.Header["Accept-Encoding"] = []string{"identity"}
		defer func() {
			if delete(c.r.Header, "Accept-Encoding"); coding != nil {
				c.r.Header["Accept-Encoding"] = coding
			}
		}()
	}
	c.next.ServeHTTP(w, c.r)
	c.done = true
	if c.metered != nil && c.metered.status == 0 {
		c.metered.begin(http.StatusOK) // net/http sends the header of a handler that writes nothing
	}
}

// keep renews the leases of calls in progress. If a lease has ended, it takes a new one as soon as
// the limit allows.
func (c *call) keep() {
	for i := range c.verdicts[:c.known] {
		v := &c.verdicts[i]
		if v.ID == 0 {
			continue
		}
		k := &quota.LeaseRenewer{}
		c.kept = append(c.kept, k)
		k.Start(v.Limit.Lease, func() {
			ctx, stop := c.settling()
			defer stop()
			if err := c.rules.Renew(ctx, c.asks[i], v.ID); errors.Is(err, ErrNoReservation) {
				if got, err := c.rules.Allow(ctx, c.asks[i]); err == nil && got.ID != 0 {
					v.ID = got.ID
				}
			}
		})
	}
}

// settleTime is the timeout for settling a request that is over. Chosen.
const settleTime = 5 * time.Second

// settling returns a context with a timeout. The request's context cannot be used: it has ended if
// the client is gone.
func (c *call) settling() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.r.Context()), settleTime)
}

// end settles the estimates and ends the calls in progress. It is deferred, because a proxy panics
// when the client is gone.
func (c *call) end() {
	for _, k := range c.kept {
		k.Stop()
	}
	c.body.end(c.r)
	for i, l := range c.met {
		v := &c.verdicts[i]
		if v.ID == 0 || !v.Allowed {
			continue
		}
		a := c.asks[i]
		a.Cost = 0
		switch {
		case i < c.known: // a lease
		case l.Settle != nil:
			a.Cost = c.metered.cost(c, i)
		case l.Unit == ResponseBytes && c.r.Method == http.MethodHead:
		case l.Unit == ResponseBytes && c.wrote != nil:
			a.Cost = min(c.wrote.N, limit.MaxAmount)
		case l.Unit == RequestBytes && c.read != nil:
			a.Cost = min(c.read.N.Load(), limit.MaxAmount)
		}
		ctx, stop := c.settling()
		err := c.rules.Settle(ctx, a, v.ID)
		stop()
		if err != nil && !errors.Is(err, ErrNoReservation) && l.OnError != nil {
			l.OnError(c.r, err)
		}
	}
}
