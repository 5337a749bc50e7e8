package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
)

// changeLimit handles PATCH /v1/limits/{limit}: {"amount": 200, "overrides.bob": 1000}. The change
// is in force until the file changes the limit. It does not change what keys have used.
func (a *API) changeLimit(c *call) (any, error) {
	pairs, err := readPairs(c)
	if err != nil {
		return nil, err
	}
	name := c.r.PathValue("limit")
	l, err := a.limitNamed(name)
	if err != nil {
		return nil, err
	}
	next := *l
	before, after, err := setLimit(&next, pairs)
	if err != nil {
		return nil, err
	}
	_, err = ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{next}})
	if err != nil {
		c.done.Asked = askedOf(pairs)
		return nil, badChange(clip(err.Error()))
	}
	change := a.cfg.Limits.Change
	if change == nil {
		change = a.changeHere
	}
	if err := change(c.by(), name, pairs); err != nil {
		c.done.Asked = askedOf(pairs)
		return nil, notChanged(err)
	}
	before["limit"], after["limit"] = name, name
	c.done.Before, c.done.After = before, after
	if l, err = a.limitNamed(name); err != nil {
		return nil, err
	}
	return a.shown(l), nil
}

// askedOf returns the requested values in the form of the audit log.
func askedOf(pairs map[string]string) map[string]string {
	told := map[string]string{}
	for part, value := range pairs {
		told[toldOf(part)] = value
	}
	return asked(told)
}

func (a *API) changeHere(_ context.Context, name string, pairs map[string]string) error {
	return a.cfg.Limits.Keys.Update(name, func(l *ratelimit.Limit) error { return SetLimit(l, pairs) })
}

// A NotPersistedError is a change of a limit that is not in force because it could not be stored.
type NotPersistedError struct {
	Reason, Do string
	Err        error
}

func (e *NotPersistedError) Error() string { return e.Reason + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *NotPersistedError) Unwrap() error { return e.Err }

// SetLimit changes a limit as PATCH /v1/limits/{limit} does.
func SetLimit(l *ratelimit.Limit, pairs map[string]string) error {
	_, _, err := setLimit(l, pairs)
	return err
}

// setLimit changes a limit, and returns the values before and after.
func setLimit(l *ratelimit.Limit, pairs map[string]string) (before, after map[string]string, err error) {
	before, after = map[string]string{}, map[string]string{}
	l.Overrides, l.Plans = maps.Clone(l.Overrides), maps.Clone(l.Plans) // the maps are shared
	keys := limitKeysOf(l)
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		set, ok := keys[key]
		if whose, of := strings.CutPrefix(key, ofKey); of {
			set = amountIn(&l.Overrides, whose, mostOverrides)
			ok = whose != "" && len(whose) <= ratelimit.MaxKey
		} else if plan, of := strings.CutPrefix(key, ofPlan); of {
			set = amountIn(&l.Plans, plan, ratelimit.MaxPlans)
			ok = ratelimit.IsPlan(plan)
		}
		if !ok {
			return nil, nil, badChange(clip(key) + " cannot be changed here; the keys are " +
				strings.Join(slices.Sorted(maps.Keys(keys)), ", ") + ", " + ofKey + " with a key, and " +
				ofPlan + " with a plan")
		}
		told := toldOf(key)
		before[told] = set.text()
		if !set.take(pairs[key]) {
			return nil, nil, badChange(clip(key) + " cannot be " + strconv.Quote(clip(pairs[key])))
		}
		after[told] = set.text()
	}
	if l.Auto.Mode != "" && (l.Shadow || len(l.Overrides) > 0 || len(l.Plans) > 0) { // as in the file
		return nil, nil, badChange("overrides, plans and shadow: true do not stand beside an amount that is found: " +
			"set them to none and false, or set a number as the amount")
	}
	return before, after, nil
}

// ofKey is the prefix of the amount of one key, such as overrides.big-client, and ofPlan that of a
// plan. noOverride is the value of a key or a plan without an amount. mostOverrides bounds the overrides,
// as in the file.
const (
	ofKey         = "overrides."
	ofPlan        = "plans."
	noOverride    = "none"
	mostOverrides = 10_000
)

// amountIn returns the accessors of the amount of one key or plan, of which all may have most.
func amountIn(all *map[string]int64, key string, most int) limitKey {
	return limitKey{
		func() string {
			if n, ok := (*all)[key]; ok {
				return strconv.FormatInt(n, 10)
			}
			return noOverride
		},
		func(s string) bool {
			n, err := strconv.ParseInt(s, 10, 64)
			_, known := (*all)[key]
			switch {
			case s == noOverride:
				delete(*all, key)
				return true
			case err != nil || n < 0 || n > limit.MaxAmount || !known && len(*all) >= most:
				return false
			case *all == nil:
				*all = map[string]int64{}
			}
			(*all)[key] = n
			return true
		},
	}
}

// toldOf returns the name of a changed value in the audit log. A key may be an address or a secret,
// so its hash is logged.
func toldOf(part string) string {
	key, ok := strings.CutPrefix(part, ofKey)
	if !ok {
		return part
	}
	sum := sha256.Sum256([]byte(key))
	return ofKey + "sha256:" + hex.EncodeToString(sum[:])
}

func badChange(detail string) *problem {
	return &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_change", Detail: detail,
		Hint: `send, for example, {"amount": 200, "shadow": true}; the file sets the other keys`}
}

// A limitKey is a value of a limit that can be changed while the limit is in use.
type limitKey struct {
	text func() string
	take func(string) bool
}

// autoWord is the value of an amount that is found.
const autoWord = "auto"

// amountOf returns the accessors of the amount, which may be one that is found: then it is auto, shadow or
// frozen, or a number until it is found again.
func amountOf(l *ratelimit.Limit, number limitKey) limitKey {
	if l.Auto.Max == 0 {
		return number
	}
	return limitKey{
		func() string {
			switch l.Auto.Mode {
			case "":
				return number.text()
			case limit.AutoOn:
				return autoWord
			}
			return l.Auto.Mode
		},
		func(s string) bool {
			switch s {
			case autoWord:
				l.Auto.Mode = limit.AutoOn
			case limit.AutoShadow, limit.AutoFrozen:
				l.Auto.Mode = s
			default:
				l.Auto.Mode = ""
				return number.take(s)
			}
			l.Amount = l.Auto.Start
			return true
		},
	}
}

// limitKeysOf returns the keys of a limit that can change while it is in use, with how to read and
// write each.
func limitKeysOf(l *ratelimit.Limit) map[string]limitKey {
	count := func(n *int64) limitKey {
		return limitKey{
			func() string { return strconv.FormatInt(*n, 10) },
			func(s string) (ok bool) {
				v, err := strconv.ParseInt(s, 10, 64)
				*n = v
				return err == nil && v >= 0 && v <= limit.MaxAmount
			},
		}
	}
	span := func(d *time.Duration) limitKey {
		return limitKey{d.String, func(s string) (ok bool) {
			v, err := time.ParseDuration(s)
			*d = v
			return err == nil && v > 0
		}}
	}
	truth := func(b *bool) limitKey {
		return limitKey{func() string { return strconv.FormatBool(*b) }, func(s string) bool {
			*b = s == "true"
			return s == "true" || s == "false"
		}}
	}
	window := span(&l.Window)
	if l.Align >= limit.Minute { // the calendar determines the window
		window.take = func(string) bool { return false }
	}
	return map[string]limitKey{
		"amount": amountOf(l, count(&l.Amount)), "burst": count(&l.Burst),
		"window": window, "lease": span(&l.Lease),
		"soft": truth(&l.Soft), "shadow": truth(&l.Shadow),
	}
}

// The sources of a limit.
const (
	FromFile  = "file"
	FromAPI   = "made" // by the API, while headgate runs
	FromEnvoy = "envoy"
)

// putLimit handles PUT /v1/limits/{limit}: the keys of a limit in the file, as a JSON object. It
// answers 201 for a new limit and 200 for one that the API made before. It does not change what
// keys have used.
func (a *API) putLimit(c *call) (any, error) {
	name := c.r.PathValue("limit")
	body, err := readBody(c, maxBody, "set amounts of single keys under overrides in the configuration")
	if p, ok := errors.AsType[*problem](err); ok && p.Code == "invalid_body" {
		p.Hint = "send one JSON object with the keys that a limit has in the configuration file"
	}
	if err == nil && a.cfg.Limits.Make == nil {
		err = limitProblem(ratelimit.ErrNoLimit)
	}
	if err != nil {
		return nil, err
	}
	before, _ := a.limitNamed(name)
	isNew, err := a.cfg.Limits.Make(c.by(), name, body)
	if err != nil {
		c.done.Asked = askedLimit(name, body)
		return nil, notChanged(err)
	}
	l, err := a.limitNamed(name)
	if err != nil {
		return nil, err
	}
	c.done.After = auditLimit(l)
	if isNew {
		c.status = http.StatusCreated
	} else {
		c.done.Before = auditLimit(before)
	}
	return a.shown(l), nil
}

// removeLimit handles DELETE /v1/limits/{limit}.
func (a *API) removeLimit(c *call) (any, error) {
	name := c.r.PathValue("limit")
	if a.cfg.Limits.Remove == nil {
		return nil, limitProblem(ratelimit.ErrNoLimit)
	}
	before, _ := a.limitNamed(name)
	stays, err := a.cfg.Limits.Remove(c.by(), name)
	if err != nil {
		c.done.Asked = map[string]string{"limit": clip(name)}
		return nil, notChanged(err)
	}
	c.done.Before = map[string]string{"limit": name}
	if !stays {
		c.done.Before = auditLimit(before)
	}
	return struct {
		Removed bool `json:"removed"`
		Stays   bool `json:"in_file"` // the file has a limit of this name, which stays in force
	}{true, stays}, nil
}

// askedLimit returns the requested limit in the form of the audit log, without values that may be
// secret.
func askedLimit(name string, body []byte) map[string]string {
	told := flat(body)
	told["limit"] = clip(name)
	return asked(told)
}

// flat returns the plain values of a JSON object, by key.
func flat(b []byte) map[string]string {
	told, all := map[string]string{}, map[string]any{}
	if json.Unmarshal(b, &all) != nil {
		return told
	}
	for k, v := range all {
		switch v := v.(type) {
		case string:
			told[k] = v
		case float64:
			told[k] = strconv.FormatFloat(v, 'f', -1, 64)
		case bool:
			told[k] = strconv.FormatBool(v)
		}
	}
	return told
}

// refusedAsItIs reports whether an error already explains what is wrong and what to do.
func refusedAsItIs(err error) bool {
	_, refused := errors.AsType[*RejectedError](err)
	return refused || config.Faults(err) != nil
}
