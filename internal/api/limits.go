package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
	"github.com/headgate/headgate/status"
)

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
	Soft      bool             `json:"soft,omitempty"`
	Shadow    bool             `json:"shadow"`
	Scope     string           `json:"scope"`
	Without   string           `json:"on_unreachable"`
	MaxKeys   int              `json:"max_keys"`
	Usage     bool             `json:"usage,omitempty"`
	Overrides map[string]int64 `json:"overrides,omitempty"`
	Plans     map[string]int64 `json:"plans,omitempty"`
	Source    string           `json:"source,omitempty"`

	// Auto is how the amount is found; Found is what the process that finds it knows, or what it wrote last.
	Auto *autoShown `json:"auto,omitempty"`
}

// An autoShown is how an amount is found.
type autoShown struct {
	Mode  string             `json:"mode"` // on, shadow or frozen
	Min   int64              `json:"min"`
	Max   int64              `json:"max"`
	Found *status.AutoAmount `json:"found,omitempty"`
}

// shown returns a limit in the form of the file, with its source.
func (a *API) shown(l *ratelimit.Limit) limitShown {
	s := shown(l)
	if a.cfg.Limits.Source != nil {
		s.Source = a.cfg.Limits.Source(l.Name)
	}
	if s.Auto != nil && a.cfg.Limits.Found != nil {
		s.Auto.Found = a.cfg.Limits.Found(l.Name)
	}
	return s
}

func shown(l *ratelimit.Limit) limitShown {
	s := limitShown{
		Name: l.Name, Algorithm: l.Algorithm.String(), Amount: l.Amount, Unit: string(l.Unit),
		Parts: l.Parts, Burst: l.Burst, Paced: l.Paced, Soft: l.Soft, Shadow: l.Shadow, MaxKeys: l.MaxKeys,
		Usage:     l.Usage,
		Overrides: l.Overrides, Plans: l.Plans, Scope: string(l.Scope), Without: string(l.OnUnreachable),
	}
	if x := &l.Auto; x.Mode != "" {
		s.Auto = &autoShown{Mode: x.Mode, Min: x.Min, Max: x.Max}
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
		return nil, limitProblem(ratelimit.ErrNoLimit)
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
	ask := ratelimit.Check{Limit: c.r.PathValue("limit"), Key: c.r.PathValue("key"), Cost: 1}
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
		return nil, limitProblem(ratelimit.ErrNoLimit)
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
	err := ratelimit.ErrNoLimit
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

// usage handles GET /v1/usage: what the keys of a limit have used, by hour or by day.
func (a *API) usage(c *call) (any, error) {
	values, err := queryOf(c.r, append(usage.Parameters(), "format")...)
	if err != nil {
		return nil, err
	}
	format, err := formatOf(values, c.r.Header)
	if err != nil {
		return nil, err
	}
	q, err := usage.ParseRequest(values, format, time.Now())
	if e, ok := errors.AsType[*usage.ParameterError](err); ok {
		return nil, badParameter(e.Name, e.Problem, e.Do)
	}
	if a.cfg.Limits.Usage == nil {
		return nil, &problem{Status: http.StatusServiceUnavailable, Code: "no_usage_here",
			Detail: "a worker cannot read usage", Hint: "ask a store node of the cluster"}
	}
	if q.Key != nil {
		key := ratelimit.UsageKey(*q.Key)
		q.Key = &key
	}
	err = a.cfg.Limits.Usage.Serve(c.r.Context(), c.w, q, format)
	if errors.Is(err, usage.ErrGone) {
		return nil, &problem{Status: http.StatusGone, Code: "cursor_too_old", Detail: err.Error(),
			Hint: "send from in place of cursor, and note that some usage was not read"}
	}
	return nil, err
}

// limitProblem converts an error of limits to a problem.
func limitProblem(err error) error {
	switch {
	case errors.Is(err, ratelimit.ErrNoLimit):
		return &problem{Status: http.StatusNotFound, Code: "no_such_limit", Detail: clip(err.Error()),
			Hint: "GET /v1/limits or headgate limit list lists them"}
	case errors.Is(err, ratelimit.ErrKey):
		return &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_key",
			Detail: clip(err.Error()),
			Hint: "a key has up to " + strconv.Itoa(ratelimit.MaxKey) +
				" bytes: send a hash of a longer key; set after to the next of the previous answer"}
	case errors.Is(err, ratelimit.ErrCost):
		return &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_cost",
			Detail: clip(err.Error()),
			Hint:   "end calls in progress with their reservation; the cost of a reservation is at least 1"}
	case errors.Is(err, ratelimit.ErrNoReservation):
		return &problem{Status: http.StatusNotFound, Code: "no_such_reservation", Detail: err.Error(),
			Hint: "settle once, within ttl_seconds, and renew before the lease ends; send the limit and the key of the reservation"}
	case errors.Is(err, ratelimit.ErrUnreachable):
		return &problem{Status: http.StatusServiceUnavailable, Code: "host_unreachable", cause: err,
			Detail: "the node that counts this key does not answer",
			Hint:   "retry in some seconds; headgate cluster status lists the nodes that are up"}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &problem{Status: http.StatusServiceUnavailable, Code: "not_in_time", cause: err,
			Detail: "the limits did not answer in time", Hint: "retry"}
	}
	return err
}

func (a *API) limitNamed(name string) (*ratelimit.Limit, error) {
	if a.cfg.Limits.Keys != nil {
		for _, l := range a.cfg.Limits.Keys.Limits() {
			if l.Name == name {
				return l, nil
			}
		}
	}
	return nil, limitProblem(ratelimit.ErrNoLimit)
}

func notChanged(err error) error {
	e, ok := errors.AsType[*NotPersistedError](err)
	p, said := errors.AsType[*problem](err)
	switch {
	case ok:
		return &problem{Status: http.StatusServiceUnavailable, Code: "not_kept", cause: err,
			Detail: e.Reason, Hint: e.Do}
	case said:
		return p
	case refusedAsItIs(err):
		return err
	case errors.Is(err, ratelimit.ErrNoLimit):
		return limitProblem(err)
	}
	return badChange(clip(err.Error())) // another change was made at the same time
}
