package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/holders"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
)

// A limitAsk is one object of a body: a limit, a key and a cost, and for some paths more.
type limitAsk struct {
	ratelimit.Check
	costs bool // the object has a cost

	held      bool // the object has a holderKey, in place of key and plan
	holderKey string

	settles bool   // the object has a reservation
	id      uint64 // 0: nothing to settle
	ttl     time.Duration
}

func badAsk(detail string) *problem {
	return &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_ask", Detail: detail,
		Hint: `send, for example, {"limit": "api", "key": "bob", "cost": 1}`}
}

// flag parses the only parameter of a query, which is true or false.
func flag(c *call, name string) (bool, error) {
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	s, twice := q.Get(name), len(q[name]) > 1
	if q.Del(name); err != nil || len(q) > 0 || twice || s != "" && s != "true" && s != "false" {
		p := badAsk("the query may only have " + name + "=true or " + name + "=false")
		p.Hint = "send ?" + name + "=true, or no query"
		return false, p
	}
	return s == "true", nil
}

// readAsks reads a body of objects with these fields.
func readAsks(c *call, fields ...string) (asks []limitAsk, array bool, err error) {
	c.quiet = true
	body, err := readBody(c, maxAsksBody, "check fewer at once")
	if err != nil {
		if p, ok := errors.AsType[*problem](err); ok && p.Code == "invalid_body" {
			p.Hint = badAsk("").Hint
		}
		return nil, false, err
	}
	return parseAsks(body, fields)
}

// parseAsks parses one object, or an array of them. encoding/json alone would accept duplicate
// names, where the last counts, names in any case, and text after the value.
func parseAsks(body []byte, fields []string) (asks []limitAsk, array bool, err error) {
	if !utf8.Valid(body) {
		return nil, false, badJSON()
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	switch first, err := d.Token(); {
	case err != nil:
		return nil, false, badJSON()
	case first == json.Delim('['):
		array = true
	case first != json.Delim('{'):
		return nil, false, badAsk("the body is not an object and not an array of objects")
	}
	for !array || d.More() {
		if array {
			if open, err := d.Token(); err != nil || open != json.Delim('{') {
				return nil, false, badAsk("an element of the array is not an object")
			}
		}
		if len(asks) == maxAsks {
			return nil, false, &problem{Status: http.StatusRequestEntityTooLarge, Code: "too_many_asks",
				Detail: "more than " + strconv.Itoa(maxAsks) + " at once", Hint: "check fewer at once"}
		}
		ask, err := parseAsk(d, fields)
		if err != nil {
			return nil, false, err
		}
		if asks = append(asks, ask); !array {
			break
		}
	}
	if array {
		if _, err := d.Token(); err != nil {
			return nil, false, badJSON()
		}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, false, badJSON()
	}
	if len(asks) == 0 {
		return nil, false, badAsk("the array is empty")
	}
	return asks, array, nil
}

func badJSON() *problem {
	p := badAsk("the body is not valid JSON, or there is more text after it")
	p.Status, p.Code = http.StatusBadRequest, "invalid_body"
	return p
}

// parseAsk parses an object after its opening brace.
func parseAsk(d *json.Decoder, fields []string) (limitAsk, error) {
	a := limitAsk{Check: ratelimit.Check{Cost: 1}, ttl: reserved}
	var seen []string
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return a, badJSON()
		}
		switch {
		case slices.Contains(seen, name):
			return a, badAsk("a field occurs twice")
		case !slices.Contains(fields, name):
			if !plainWord(name) {
				name = "a field"
			}
			return a, badAsk(name + " is not allowed; the fields are " + strings.Join(fields, ", "))
		}
		seen = append(seen, name)
		v, err := d.Token()
		if err != nil {
			return a, badJSON()
		}
		if err := a.set(name, v); err != nil {
			return a, err
		}
	}
	if _, err := d.Token(); err != nil {
		return a, badJSON()
	}
	switch {
	case a.Limit == "":
		return a, badAsk("the field limit is missing")
	case a.held && (slices.Contains(seen, "key") || slices.Contains(seen, "plan")):
		return a, badAsk(holderKeyField + " stands for key and plan")
	}
	return a, nil
}

// set sets one field.
func (a *limitAsk) set(name string, v json.Token) error {
	text, isText := v.(string)
	number, isNumber := v.(json.Number)
	switch name {
	case "limit", "key", "plan", holderKeyField:
		if !isText {
			return badAsk(name + " must be a string")
		}
		switch name {
		case "limit":
			a.Limit = text
		case "key":
			a.Key = text
		case holderKeyField:
			a.holderKey, a.held = text, true
		default:
			a.Plan = text
		}
	case "cost":
		n, err := strconv.ParseInt(string(number), 10, 64)
		if !isNumber || err != nil || n < -limit.MaxAmount || n > limit.MaxAmount {
			return badAsk("cost must be a whole number, up to " + strconv.Itoa(limit.MaxAmount))
		}
		a.Cost, a.costs = n, true
	case "reservation":
		if isNumber {
			text = string(number)
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return badAsk("reservation must be the number that reserve or check returned")
		}
		a.id, a.settles = n, true
	case "ttl_seconds":
		n, err := number.Float64()
		if !isNumber || err != nil || !(n >= 0.001 && n <= maxReserved.Seconds()) {
			return badAsk("ttl_seconds must be a number from 0.001 to " +
				strconv.Itoa(int(maxReserved.Seconds())))
		}
		a.ttl = time.Duration(n * float64(time.Second))
	}
	return nil
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
	Exceeded   bool     `json:"exceeded,omitempty"`    // it passes because the limit is soft or in shadow mode
	Shared     bool     `json:"shared,omitempty"`      // counted together with all keys beyond max_keys
	Alone      bool     `json:"unreachable,omitempty"` // its host did not answer: on_unreachable decided
	Name       string   `json:"name,omitempty"`        // name of the limit, if several were checked
	Holder     string   `json:"holder,omitempty"`      // of holder_key: the key to settle and renew
	Plan       string   `json:"plan,omitempty"`        // of the holder
}

const holderKeyField = "holder_key"

// findHolders finds the holders whose keys were sent: each is counted by its ID, under its plan.
func (a *API) findHolders(asks []limitAsk) error {
	for i := range asks {
		x := &asks[i]
		if !x.held { // an empty key is none that counts
			continue
		}
		book, err := a.book()
		if err != nil {
			return err
		}
		plan, o := book.Find(x.holderKey)
		id, ok := holders.Parse(x.holderKey)
		switch {
		case o == holders.Unsure:
			return &problem{Status: http.StatusServiceUnavailable, Code: "holders_unknown",
				Detail: "it is not known now whether this key of a holder counts",
				Hint:   "retry in some seconds"}
		case !ok || o != holders.Known:
			return &problem{Status: http.StatusForbidden, Code: "invalid_holder_key",
				Detail: "this key of a holder does not count: it is " + o.String(),
				Hint:   "reject the call; GET /v1/holders/{ID} shows the holder, if there is one"}
		}
		x.Key, x.Plan = id.String(), plan
	}
	return nil
}

func answerOf(v *ratelimit.Result) limitAnswer {
	a := limitAnswer{
		Allowed: v.Allowed, Limit: v.Amount, Remaining: v.Remaining, Reset: seconds(v.Reset),
		Wait: seconds(v.Wait), Exceeded: v.Exceeded, Shared: v.Shared, Alone: v.Local,
	}
	switch {
	case v.Allowed: // also beyond a soft limit
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
	asks, array, err := readAsks(c, "limit", "key", "plan", holderKeyField, "cost")
	if err == nil {
		err = a.findHolders(asks)
	}
	if err != nil {
		return nil, err
	}
	c.asks = asks
	all, err := flag(c, "all")
	if err != nil {
		return nil, err
	}
	rules, err := a.rules()
	if err != nil {
		return nil, err
	}
	if !array {
		v, err := rules.Allow(c.r.Context(), asks[0].Check)
		return a.tellLimits(c, []ratelimit.Result{v}, false, err)
	}
	list := make([]ratelimit.Check, len(asks))
	for i := range asks {
		list[i] = asks[i].Check
	}
	vs, err := rules.AllowAll(c.r.Context(), list, all)
	return a.tellLimits(c, vs, true, err)
}

// reserveLimit handles POST /v1/limits/reserve: {"limit", "key", "cost", "ttl_seconds"}.
func (a *API) reserveLimit(c *call) (any, error) {
	ask, rules, err := a.oneAsk(c, "limit", "key", "plan", holderKeyField, "cost", "ttl_seconds")
	if err != nil {
		return nil, err
	}
	c.asks = []limitAsk{ask}
	v, err := rules.Reserve(c.r.Context(), ask.Check, ask.ttl)
	c.reserves = true
	return a.tellLimits(c, []ratelimit.Result{v}, false, err)
}

// settleLimit handles POST /v1/limits/settle: {"limit", "key", "reservation", "cost"}.
func (a *API) settleLimit(c *call) (any, error) {
	ask, rules, err := a.oneAsk(c, "limit", "key", "plan", "cost", "reservation")
	if err != nil {
		return nil, err
	}
	if !ask.settles || !ask.costs {
		return nil, badAsk("reservation and cost are required")
	}
	if err := rules.Settle(c.r.Context(), ask.Check, ask.id); err != nil {
		return nil, limitProblem(err)
	}
	return map[string]bool{"settled": true}, nil
}

// renewLimit handles POST /v1/limits/renew: {"limit", "key", "reservation"}.
func (a *API) renewLimit(c *call) (any, error) {
	ask, rules, err := a.oneAsk(c, "limit", "key", "plan", "reservation")
	if err != nil {
		return nil, err
	}
	if ask.id == 0 {
		return nil, badAsk("the reservation of a call in progress is required")
	}
	if err := rules.Renew(c.r.Context(), ask.Check, ask.id); err != nil {
		return nil, limitProblem(err)
	}
	return map[string]bool{"renewed": true}, nil
}

// oneAsk reads a request about one reservation.
func (a *API) oneAsk(c *call, fields ...string) (ask limitAsk, rules ratelimit.Checker, err error) {
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
	err = a.findHolders(asks)
	return asks[0], rules, err
}

// rules returns the limits to check, or an error if there are none.
func (a *API) rules() (ratelimit.Checker, error) {
	if a.cfg.Limits.Rules == nil {
		return nil, limitProblem(ratelimit.ErrNoLimit)
	}
	return a.cfg.Limits.Rules, nil
}

// tellLimits answers with the results: 429 if any limit denied.
func (a *API) tellLimits(c *call, vs []ratelimit.Result, array bool, err error) (any, error) {
	if err != nil {
		return nil, limitProblem(err)
	}
	status := http.StatusOK
	answers := make([]limitAnswer, len(vs))
	for i := range vs {
		answers[i] = answerOf(&vs[i])
		if x := &c.asks[i]; x.held {
			answers[i].Holder, answers[i].Plan = x.Key, x.Plan
		}
		if v := &vs[i]; v.Allowed && v.ID == 0 && (c.reserves || isCall(v) && (v.Exceeded || v.Local)) {
			answers[i].ID = "0" // it exceeds the limit, or on_unreachable let it pass: settling "0" does nothing
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
func isCall(v *ratelimit.Result) bool {
	return v.Limit != nil && v.Limit.Algorithm == limit.Concurrency
}

// tellHeaders sets the headers that a gateway may pass on, each limit's in its own style.
func (a *API) tellHeaders(c *call, vs []ratelimit.Result) {
	styles := map[ratelimit.HeaderStyle][]ratelimit.Result{}
	for _, v := range vs {
		style := ratelimit.HeadersIETF
		if a.cfg.Limits.Style != nil && v.Limit != nil {
			style = a.cfg.Limits.Style(v.Limit.Name)
		}
		styles[style] = append(styles[style], v)
	}
	for style, some := range styles {
		ratelimit.SetHeaders(c.w.Header(), style, some)
	}
	if len(styles) > 1 { // Retry-After must consider the limits of all styles
		c.w.Header().Del("Retry-After")
		ratelimit.SetHeaders(c.w.Header(), ratelimit.HeadersNone, vs)
	}
}
