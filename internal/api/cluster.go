package api

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

func (a *API) cluster(c *call) (any, error) {
	x, err := a.cfg.Process.Cluster(c.r.Context())
	c.quiet = errors.Is(err, ErrAlone) // being alone is a valid answer, not an error
	return x, err
}

// moveAnywhere handles POST /v1/cluster/anywhere: {"to": "lhr", "home_is_off": false}.
func (a *API) moveAnywhere(c *call) (any, error) {
	pairs, err := readOnly(c, `{"to": "lhr"}`, "to", "home_is_off")
	if err != nil {
		return nil, err
	}
	off := pairs["home_is_off"]
	if pairs["to"] == "" || off != "" && off != "true" && off != "false" {
		return nil, unclear(`{"to": "lhr", "home_is_off": false}`)
	}
	c.done.Asked = asked(pairs)
	got, err := a.cfg.Process.MoveAnywhere(c.r.Context(), pairs["to"], off == "true")
	if err != nil {
		return nil, err
	}
	c.done.After = map[string]string{"home": got.Home}
	return got, nil
}

// off handles POST /v1/cluster/off: {"datacenters": "lhr,del"}.
func (a *API) off(c *call) (any, error) {
	pairs, err := readOnly(c, `{"datacenters": "lhr"}`, "datacenters")
	if err != nil {
		return nil, err
	}
	c.done.Asked = asked(pairs)
	got, err := a.cfg.Process.MarkDatacentersDown(c.r.Context(), strings.Split(pairs["datacenters"], ","))
	if err != nil {
		return nil, err
	}
	c.done.After = pairs
	return got, nil
}

// revoke handles POST /v1/cluster/revoke: {"serial": "6f3a…", "node": "w7"}.
func (a *API) revoke(c *call) (any, error) {
	pairs, err := readOnly(c, `{"serial": "6f3a"}`, "serial", "node")
	if err != nil {
		return nil, err
	}
	if len(pairs["serial"]) > 64 || len(pairs["node"]) > 64 {
		return nil, unclear(`{"serial": "6f3a"}`)
	}
	c.done.Asked = asked(pairs)
	r := Revoked{Serial: strings.ToLower(pairs["serial"]), Node: pairs["node"], At: time.Now().UTC(),
		By: c.who.String()}
	got, err := a.cfg.Process.Revoke(c.r.Context(), r)
	if err != nil {
		return nil, err
	}
	c.done.After = pairs
	return got, nil
}

// readOnly reads an object that has only these keys, of which the first is required.
func readOnly(c *call, example string, keys ...string) (map[string]string, error) {
	pairs, err := readPairs(c)
	if err != nil {
		return nil, err
	}
	known := 0
	for _, k := range keys {
		if _, ok := pairs[k]; ok {
			known++
		}
	}
	if _, ok := pairs[keys[0]]; !ok || known < len(pairs) {
		return nil, unclear(example)
	}
	return pairs, nil
}

func unclear(example string) *problem {
	return &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_change",
		Detail: "the body does not have the right keys", Hint: "send " + example}
}

// keys handles GET /v1/keys.
func (a *API) keys(*call) (any, error) { return a.cfg.Keys.List() }

// rotate handles POST /v1/keys/rotate.
func (a *API) rotate(c *call) (any, error) {
	got, err := a.cfg.Keys.Rotate()
	if err != nil {
		return nil, err
	}
	c.done.After = map[string]string{"key": strconv.Itoa(got.Key)}
	return got, nil
}

// forget handles DELETE /v1/keys/{id}. It answers with the remaining keys.
func (a *API) forget(c *call) (any, error) {
	id, err := strconv.Atoi(c.r.PathValue("id"))
	if err != nil {
		return nil, ErrNoKey
	}
	if err := a.cfg.Keys.Forget(id); err != nil {
		return nil, err
	}
	c.done.Before = map[string]string{"key": strconv.Itoa(id)}
	return a.cfg.Keys.List()
}
