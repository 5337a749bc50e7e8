package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/limit"
)

// Limits gives access to the limits of a process. The zero value has none.
type Limits struct {
	Rules headgate.LimitRules
	Keys  LimitKeys
	Style func(limit string) headgate.HeaderStyle // style of the headers of answers; nil: the default
	// Change stores a change and puts it into force in all processes that share the limit. It may
	// block. Its error may be a NotPersistedError. Nil: only this process has the limit.
	Change func(ctx context.Context, limit string, pairs map[string]string) error
	// Make makes and stores a limit from a JSON object with the keys that it would have in the
	// file, or replaces one that Make has made. Remove removes such a limit, and reports whether
	// the file has one of that name, which stays. They may block. Their errors may be faults of
	// package config, a RejectedError or a NotPersistedError. Nil: no limit can be made.
	Make   func(ctx context.Context, limit string, rule []byte) (isNew bool, err error)
	Remove func(ctx context.Context, limit string) (stays bool, err error)
	// Source returns the source of a limit: FromFile, FromAPI or FromEnvoy. Nil: the source is not
	// shown.
	Source func(limit string) string
}

// LimitKeys gives access to limits and to the usage of their keys. Its methods may be called by
// many goroutines at once; Peek, Keys and Reset block for a round trip at most. For an unknown
// limit they return headgate.ErrNoLimit.
type LimitKeys interface {
	// Limits returns all limits, by name. The caller must not change them.
	Limits() []*headgate.LimitConfig
	// Keys returns up to count keys with usage. from is the next of the call before; "" starts at
	// the beginning. A next of "" means that there are no more.
	Keys(limit, from string, count int) (all []headgate.KeyUsage, next string, err error)
	// Peek reports whether a call would pass, and if not, when. It takes nothing.
	Peek(ctx context.Context, a headgate.LimitCheck) (headgate.LimitResult, error)
	// Update changes a limit by change, without another change in between, or returns what is wrong
	// with the result. It returns an error of change unchanged.
	Update(limit string, change func(*headgate.LimitConfig) error) error
	// Reset deletes the usage of a key.
	Reset(limit, key string) error
}

// Bounds of one request. Chosen.
const (
	maxAsks      = 1000
	maxAsksBody  = 1 << 20
	maxKeysShown = 1000
	keysShown    = 100            // the default
	mostTold     = 16             // limits in the headers of one answer; the body has them all
	maxReserved  = 24 * time.Hour // the same as the middleware's
	reserved     = time.Minute    // the default
)

func (a *API) limitRoutes() []route {
	const one = "/v1/limits/{limit}"
	return []route{
		{"POST", "/v1/limits/check", scopeRead, false, a.checkLimits},
		{"POST", "/v1/limits/reserve", scopeRead, false, a.reserveLimit},
		{"POST", "/v1/limits/settle", scopeRead, false, a.settleLimit},
		{"POST", "/v1/limits/renew", scopeRead, false, a.renewLimit},
		{"GET", "/v1/limits", scopeRead, false, a.limits},
		{"GET", one, scopeRead, false, a.limit},
		{"PUT", one, scopeWrite, false, a.putLimit},
		{"PATCH", one, scopeWrite, false, a.changeLimit},
		{"DELETE", one, scopeWrite, false, a.removeLimit},
		{"GET", one + "/keys", scopeRead, false, a.limitKeys},
		{"GET", one + "/keys/{key...}", scopeRead, false, a.limitKey},
		{"DELETE", one + "/keys/{key...}", scopeWrite, false, a.resetLimitKey},
	}
}

// A limitAnswer is the result of a limit check. Times are rounded up to milliseconds.
type limitAnswer struct {
	Allowed    bool     `json:"allowed"`
	Limit      int64    `json:"limit"` // the most that passes at once
	Remaining  int64    `json:"remaining"`
	Reset      float64  `json:"reset_seconds"`
	RetryAfter *float64 `json:"retry_after_seconds"` // null: never
	Wait       float64  `json:"wait_seconds,omitempty"`
	ID         string   `json:"reservation,omitempty"` // text: too long for a number in JavaScript
	Shadowed   bool     `json:"shadowed,omitempty"`
	Shared     bool     `json:"shared,omitempty"`      // counted together with all keys beyond max_keys
	Alone      bool     `json:"unreachable,omitempty"` // its host did not answer: on_unreachable decided
	Name       string   `json:"name,omitempty"`        // name of the limit, if several were checked
}

func answerOf(v *headgate.LimitResult) limitAnswer {
	a := limitAnswer{
		Allowed: v.Allowed, Limit: v.Amount, Remaining: v.Remaining, Reset: seconds(v.Reset),
		Wait: seconds(v.Wait), Shadowed: v.Shadowed, Shared: v.Shared, Alone: v.Local,
	}
	switch {
	case v.Allowed: // in shadow mode too
		a.RetryAfter = new(float64)
	case v.Retry >= 0:
		a.RetryAfter = new(seconds(v.Retry))
	}
	if v.ID != 0 {
		a.ID = strconv.FormatUint(v.ID, 10)
	}
	return a
}

func seconds(d time.Duration) float64 {
	return math.Ceil(float64(d)/float64(time.Millisecond)) / 1000
}

// checkLimits handles POST /v1/limits/check: {"limit": "api", "key": "bob", "cost": 1}, or an array
// of these.
func (a *API) checkLimits(c *call) (any, error) {
	asks, array, err := readAsks(c, "limit", "key", "cost")
	if err != nil {
		return nil, err
	}
	all, err := flag(c, "all")
	if err != nil {
		return nil, err
	}
	rules, err := a.rules()
	if err != nil {
		return nil, err
	}
	if !array {
		v, err := rules.Allow(c.r.Context(), asks[0].LimitCheck)
		return a.tellLimits(c, []headgate.LimitResult{v}, false, err)
	}
	list := make([]headgate.LimitCheck, len(asks))
	for i := range asks {
		list[i] = asks[i].LimitCheck
	}
	vs, err := rules.AllowAll(c.r.Context(), list, all)
	return a.tellLimits(c, vs, true, err)
}

// reserveLimit handles POST /v1/limits/reserve: {"limit", "key", "cost", "ttl_seconds"}.
func (a *API) reserveLimit(c *call) (any, error) {
	ask, rules, err := a.oneAsk(c, "limit", "key", "cost", "ttl_seconds")
	if err != nil {
		return nil, err
	}
	v, err := rules.Reserve(c.r.Context(), ask.LimitCheck, ask.ttl)
	c.reserves = true
	return a.tellLimits(c, []headgate.LimitResult{v}, false, err)
}

// settleLimit handles POST /v1/limits/settle: {"limit", "key", "reservation", "cost"}.
func (a *API) settleLimit(c *call) (any, error) {
	ask, rules, err := a.oneAsk(c, "limit", "key", "cost", "reservation")
	if err != nil {
		return nil, err
	}
	if !ask.settles || !ask.costs {
		return nil, badAsk("reservation and cost are required")
	}
	if err := rules.Settle(c.r.Context(), ask.LimitCheck, ask.id); err != nil {
		return nil, limitProblem(err)
	}
	return map[string]bool{"settled": true}, nil
}

// renewLimit handles POST /v1/limits/renew: {"limit", "key", "reservation"}.
func (a *API) renewLimit(c *call) (any, error) {
	ask, rules, err := a.oneAsk(c, "limit", "key", "reservation")
	if err != nil {
		return nil, err
	}
	if ask.id == 0 {
		return nil, badAsk("the reservation of a call in progress is required")
	}
	if err := rules.Renew(c.r.Context(), ask.LimitCheck, ask.id); err != nil {
		return nil, limitProblem(err)
	}
	return map[string]bool{"renewed": true}, nil
}

// oneAsk reads a request about one reservation.
func (a *API) oneAsk(c *call, fields ...string) (ask limitAsk, rules headgate.LimitRules, err error) {
	asks, array, err := readAsks(c, fields...)
	if err == nil {
		rules, err = a.rules()
	}
	switch {
	case err != nil:
		return ask, nil, err
	case array:
		return ask, nil, badAsk("send one reservation per request")
	}
	return asks[0], rules, nil
}

// rules returns the limits to check, or an error if there are none.
func (a *API) rules() (headgate.LimitRules, error) {
	if a.cfg.Limits.Rules == nil {
		return nil, limitProblem(headgate.ErrNoLimit)
	}
	return a.cfg.Limits.Rules, nil
}

// tellLimits answers with the results: 429 if any limit denied.
func (a *API) tellLimits(c *call, vs []headgate.LimitResult, array bool, err error) (any, error) {
	if err != nil {
		return nil, limitProblem(err)
	}
	status := http.StatusOK
	answers := make([]limitAnswer, len(vs))
	for i := range vs {
		answers[i] = answerOf(&vs[i])
		if v := &vs[i]; v.Allowed && v.ID == 0 && (c.reserves || isCall(v) && (v.Shadowed || v.Local)) {
			answers[i].ID = "0" // passed by shadow mode or on_unreachable: settling "0" does nothing
		}
		if array && vs[i].Limit != nil {
			answers[i].Name = vs[i].Limit.Name
		}
		if !vs[i].Allowed {
			status = http.StatusTooManyRequests
		}
	}
	if len(vs) <= mostTold {
		a.tellHeaders(c, vs)
	}
	if array {
		writeJSON(c.w, "application/json", status, answers)
	} else {
		writeJSON(c.w, "application/json", status, answers[0])
	}
	return nil, nil
}

// isCall reports whether an allowed call must be settled when it ends.
func isCall(v *headgate.LimitResult) bool {
	return v.Limit != nil && v.Limit.Algorithm == limit.Concurrency
}

// tellHeaders sets the headers that a gateway may pass on, each limit's in its own style.
func (a *API) tellHeaders(c *call, vs []headgate.LimitResult) {
	styles := map[headgate.HeaderStyle][]headgate.LimitResult{}
	for _, v := range vs {
		style := headgate.HeadersIETF
		if a.cfg.Limits.Style != nil && v.Limit != nil {
			style = a.cfg.Limits.Style(v.Limit.Name)
		}
		styles[style] = append(styles[style], v)
	}
	for style, some := range styles {
		headgate.SetLimitHeaders(c.w.Header(), style, some)
	}
	if len(styles) > 1 { // Retry-After must consider the limits of all styles
		c.w.Header().Del("Retry-After")
		headgate.SetLimitHeaders(c.w.Header(), headgate.HeadersNone, vs)
	}
}

// A limitShown is a limit in the form of the file.
type limitShown struct {
	Name      string           `json:"name"`
	Algorithm string           `json:"algorithm"`
	Amount    int64            `json:"amount"`
	Unit      string           `json:"unit"`
	Window    string           `json:"window,omitempty"`
	Parts     int              `json:"parts,omitempty"`
	Burst     int64            `json:"burst,omitempty"`
	Align     string           `json:"align,omitempty"`
	TimeZone  string           `json:"time_zone,omitempty"`
	Paced     bool             `json:"paced,omitempty"`
	Lease     string           `json:"lease,omitempty"`
	Shadow    bool             `json:"shadow"`
	Scope     string           `json:"scope"`
	Without   string           `json:"on_unreachable"`
	MaxKeys   int              `json:"max_keys"`
	Overrides map[string]int64 `json:"overrides,omitempty"`
	Source    string           `json:"source,omitempty"`
}

// shown returns a limit in the form of the file, with its source.
func (a *API) shown(l *headgate.LimitConfig) limitShown {
	s := shown(l)
	if a.cfg.Limits.Source != nil {
		s.Source = a.cfg.Limits.Source(l.Name)
	}
	return s
}

func shown(l *headgate.LimitConfig) limitShown {
	s := limitShown{
		Name: l.Name, Algorithm: l.Algorithm.String(), Amount: l.Amount, Unit: string(l.Unit),
		Parts: l.Parts, Burst: l.Burst, Paced: l.Paced, Shadow: l.Shadow, MaxKeys: l.MaxKeys,
		Overrides: l.Overrides, Scope: string(l.Scope), Without: string(l.OnUnreachable),
	}
	if l.Window > 0 && l.Align < limit.Minute {
		s.Window = l.Window.String()
	}
	if l.Lease > 0 {
		s.Lease = l.Lease.String()
	}
	if l.Algorithm == limit.FixedWindow {
		s.Align = l.Align.String()
	}
	if l.Zone != nil {
		s.TimeZone = l.Zone.String()
	}
	return s
}

// limits handles GET /v1/limits. It leaves out overrides; GET /v1/limits/{limit} has them.
func (a *API) limits(*call) (any, error) {
	all := []limitShown{}
	if a.cfg.Limits.Keys != nil {
		for _, l := range a.cfg.Limits.Keys.Limits() {
			s := a.shown(l)
			s.Overrides = nil
			all = append(all, s)
		}
	}
	return map[string]any{"limits": all}, nil
}

// limit handles GET /v1/limits/{limit}.
func (a *API) limit(c *call) (any, error) {
	l, err := a.limitNamed(c.r.PathValue("limit"))
	if err != nil {
		return nil, err
	}
	return a.shown(l), nil
}

// A keyShown is a key in the list of a limit's keys.
type keyShown struct {
	Key       string  `json:"key"`
	Used      int64   `json:"used"`
	Limit     int64   `json:"limit"`
	Remaining int64   `json:"remaining"`
	Reset     float64 `json:"reset_seconds"`
}

// limitKeys handles GET /v1/limits/{limit}/keys?after=&count=.
func (a *API) limitKeys(c *call) (any, error) {
	count := keysShown
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if s := q.Get("count"); err == nil && s != "" {
		count, err = strconv.Atoi(s)
	}
	if err != nil || count < 1 || count > maxKeysShown {
		p := badAsk("count must be a whole number from 1 to " + strconv.Itoa(maxKeysShown))
		p.Hint = "send, for example, ?count=100&after=3.7"
		return nil, p
	}
	if a.cfg.Limits.Keys == nil {
		return nil, limitProblem(headgate.ErrNoLimit)
	}
	uses, next, err := a.cfg.Limits.Keys.Keys(c.r.PathValue("limit"), q.Get("after"), count)
	if err != nil {
		return nil, limitProblem(err)
	}
	answer := struct {
		Keys []keyShown `json:"keys"`
		Next string     `json:"next,omitempty"` // send it as after; "" means that there are no more
	}{[]keyShown{}, next}
	for _, u := range uses {
		answer.Keys = append(answer.Keys, keyShown{u.Key, u.Used, u.Amount, u.Remaining, seconds(u.Reset)})
	}
	return answer, nil
}

// limitKey handles GET /v1/limits/{limit}/keys/{key}?cost=: whether a call of that cost would pass.
func (a *API) limitKey(c *call) (any, error) {
	ask := headgate.LimitCheck{Limit: c.r.PathValue("limit"), Key: c.r.PathValue("key"), Cost: 1}
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if s := q.Get("cost"); err == nil && s != "" {
		ask.Cost, err = strconv.ParseInt(s, 10, 64)
	}
	if q.Del("cost"); err != nil || len(q) > 0 || ask.Cost < 0 || ask.Cost > limit.MaxAmount {
		p := badAsk("the query may only have cost, a whole number from 0 to " + strconv.Itoa(limit.MaxAmount))
		p.Hint = "send, for example, ?cost=50, or no query"
		return nil, p
	}
	if a.cfg.Limits.Keys == nil {
		return nil, limitProblem(headgate.ErrNoLimit)
	}
	v, err := a.cfg.Limits.Keys.Peek(c.r.Context(), ask)
	if err != nil {
		return nil, limitProblem(err)
	}
	return struct {
		Key string `json:"key"`
		limitAnswer
		Rule limitShown `json:"rule"`
	}{c.r.PathValue("key"), answerOf(&v), func() limitShown {
		s := a.shown(v.Limit)
		s.Overrides = nil
		return s
	}()}, nil
}

// resetLimitKey handles DELETE /v1/limits/{limit}/keys/{key}. A key may be an address or a secret,
// so the audit log has its hash.
func (a *API) resetLimitKey(c *call) (any, error) {
	name, key := c.r.PathValue("limit"), c.r.PathValue("key")
	sum := sha256.Sum256([]byte(key))
	told := map[string]string{"limit": clip(name), "key_sha256": hex.EncodeToString(sum[:])}
	err := headgate.ErrNoLimit
	if a.cfg.Limits.Keys != nil {
		err = a.cfg.Limits.Keys.Reset(name, key)
	}
	if err != nil {
		c.done.Asked = told
		return nil, limitProblem(err)
	}
	c.done.Before = told
	return map[string]bool{"reset": true}, nil
}

// limitProblem converts an error of limits to a problem.
func limitProblem(err error) error {
	switch {
	case errors.Is(err, headgate.ErrNoLimit):
		return &problem{Status: http.StatusNotFound, Code: "no_such_limit", Detail: clip(err.Error()),
			Hint: "GET /v1/limits lists them"}
	case errors.Is(err, headgate.ErrKey):
		return &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_key",
			Detail: clip(err.Error()),
			Hint: "a key has up to " + strconv.Itoa(headgate.MaxKey) +
				" bytes: send a hash of a longer key; set after to the next of the previous answer"}
	case errors.Is(err, headgate.ErrCost):
		return &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_cost",
			Detail: clip(err.Error()),
			Hint:   "end calls in progress with their reservation; the cost of a reservation is at least 1"}
	case errors.Is(err, headgate.ErrNoReservation):
		return &problem{Status: http.StatusNotFound, Code: "no_such_reservation", Detail: err.Error(),
			Hint: "settle once, within ttl_seconds, and renew before the lease ends; send the limit and the key of the reservation"}
	case errors.Is(err, headgate.ErrUnreachable):
		return &problem{Status: http.StatusServiceUnavailable, Code: "host_unreachable", cause: err,
			Detail: "the node that counts this key does not answer",
			Hint:   "retry in some seconds; headgate cluster status lists the nodes that are up"}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &problem{Status: http.StatusServiceUnavailable, Code: "not_in_time", cause: err,
			Detail: "the limits did not answer in time", Hint: "retry"}
	}
	return err
}
