package api

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/limit"
)

// changeLimit is PATCH /v1/limits/{limit}: {"amount": 200, "shadow": true}. It holds until
// the next reload or restart. What keys have used stays used.
func (a *API) changeLimit(c *call) (any, error) {
	pairs, err := readPairs(c)
	if err != nil {
		return nil, err
	}
	name := c.r.PathValue("limit")
	if a.cfg.Limits.Keys == nil {
		return nil, limitProblem(headgate.ErrNoLimit)
	}
	var next headgate.LimitConfig
	before, after := map[string]string{"limit": name}, map[string]string{"limit": name}
	err = a.cfg.Limits.Keys.Update(name, func(l *headgate.LimitConfig) error {
		keys := limitKeysOf(l)
		for _, key := range slices.Sorted(maps.Keys(pairs)) {
			set, ok := keys[key]
			if !ok {
				return badChange(key + " cannot be changed here: there are " +
					strings.Join(slices.Sorted(maps.Keys(keys)), ", "))
			}
			before[key] = set.text()
			if !set.take(pairs[key]) {
				return badChange(key + " cannot be " + strconv.Quote(clip(pairs[key])))
			}
			after[key] = set.text()
		}
		next = *l
		return nil
	})
	p, said := errors.AsType[*problem](err)
	switch {
	case said:
		return nil, p
	case errors.Is(err, headgate.ErrNoLimit):
		return nil, limitProblem(err)
	case err != nil:
		c.done.Asked = asked(pairs)
		return nil, badChange(clip(err.Error()))
	}
	c.done.Before, c.done.After = before, after
	return shown(&next), nil
}

func (a *API) limitNamed(name string) (*headgate.LimitConfig, error) {
	if a.cfg.Limits.Keys != nil {
		for _, l := range a.cfg.Limits.Keys.Limits() {
			if l.Name == name {
				return l, nil
			}
		}
	}
	return nil, limitProblem(headgate.ErrNoLimit)
}

func badChange(detail string) *problem {
	return &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_change", Detail: detail,
		Hint: `send such as {"amount": 200, "shadow": true}; the file says the rest`}
}

// A limitKey is a part of a limit that can be changed while it is in use.
type limitKey struct {
	text func() string
	take func(string) bool
}

func limitKeysOf(l *headgate.LimitConfig) map[string]limitKey {
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
	return map[string]limitKey{
		"amount": count(&l.Amount), "burst": count(&l.Burst),
		"window": span(&l.Window), "lease": span(&l.Lease),
		"shadow": {
			func() string { return strconv.FormatBool(l.Shadow) },
			func(s string) bool {
				l.Shadow = s == "true"
				return s == "true" || s == "false"
			},
		},
	}
}
