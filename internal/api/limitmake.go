package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
)

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
		err = limitProblem(headgate.ErrNoLimit)
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
		return nil, limitProblem(headgate.ErrNoLimit)
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

// auditLimit returns a limit in the form of the audit log. Keys under overrides may be addresses or
// secrets, and many, so only their number is logged.
func auditLimit(l *headgate.LimitConfig) map[string]string {
	if l == nil {
		return nil
	}
	s := shown(l)
	s.Overrides = nil
	b, err := json.Marshal(s)
	told := flat(b)
	if err == nil && len(l.Overrides) > 0 {
		told["overrides"] = strconv.Itoa(len(l.Overrides))
	}
	return told
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
