package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/signals"
)

// jwks handles GET /.headgate/jwks.json: the public keys, for backends that cannot reach the rooms.
func (a *API) jwks(c *call) (any, error) {
	a.cfg.JWKS.ServeHTTP(c.w, c.r)
	return nil, nil
}

const maxPass = 16 << 10 // size of a body; a signed pass is below 1 KB. Chosen

// endVisit handles POST /v1/rooms/{name}/passes/complete and abandon.
func (a *API) endVisit(c *call, abandoned bool) (any, error) {
	const hint = `send {"token": "…"} with the header Headgate-Pass, or {"pass": "…"} with its jti`
	body, err := readBody(c, maxPass, hint)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	var said struct{ Token, Pass string }
	bad := d.Decode(&said) != nil
	if _, err := d.Token(); bad || !errors.Is(err, io.EOF) || (said.Token == "") == (said.Pass == "") {
		return nil, &problem{Status: http.StatusBadRequest, Code: "invalid_body",
			Detail: "the body must name exactly one pass", Hint: hint}
	}
	ended, err := a.cfg.Process.EndSession(c.r.Context(), c.room,
		SessionRequest{Token: said.Token, Pass: said.Pass, Abandoned: abandoned})
	if errors.Is(err, ErrNoPass) {
		return nil, &problem{Status: http.StatusUnprocessableEntity, Code: "no_such_pass",
			Detail: err.Error(),
			Hint:   "send the unchanged value of the header Headgate-Pass, from a request that passed this room"}
	}
	if err != nil {
		return nil, err
	}
	return map[string]bool{"ended": ended}, nil
}

// MostReport is the longest time for which a monitor may report an origin down.
const MostReport = time.Hour

const originPath = "/v1/rooms/{name}/origin"

// Bounds of a report of a load.
const (
	maxReport  = 256 << 10 // bytes. Chosen: the times of some ten thousand answers
	maxSeconds = 3600
	maxClass   = 64 // bytes of the name of a route

	// MostLoad is how many times what is full a load may be.
	MostLoad = 1000

	// LeastLoad stands for a load of 0, because 0 is no load that is known.
	LeastLoad = 1e-9
)

// An originReport is the body of a report: whether the origin is up, or how it answers.
type originReport struct {
	Up      *bool    `json:"up"`
	For     *int     `json:"for_seconds"`
	Load    *float64 `json:"load"`
	Answers []struct {
		Route           string
		Seconds         []float64 // of each answer, also of those that failed
		Failed, Refused uint64
	} `json:"answers"`
}

// reportOrigin handles POST /v1/rooms/{name}/origin: what a monitor or the origin itself knows.
func (a *API) reportOrigin(c *call) (any, error) {
	const hint = `send {"up": false, "for_seconds": 60}, and again while it is down; then {"up": true}. ` +
		`Or send {"load": 0.83}, where 1 is full, or ` +
		`{"answers": [{"route": "cart", "seconds": [0.2, 0.4], "failed": 0}]}`
	body, err := readBody(c, maxReport, hint)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	var said originReport
	bad := d.Decode(&said) != nil
	_, err = d.Token()
	measured := said.Load != nil || said.Answers != nil
	if bad || !errors.Is(err, io.EOF) || (said.Up != nil) == measured {
		return nil, &problem{Status: http.StatusBadRequest, Code: "invalid_body",
			Detail: "the body must say whether the origin is up, or how it answers", Hint: hint}
	}
	if measured {
		return a.reportLoad(c, &said, hint)
	}
	if !c.who.mayRoom(scopePass, c.room) {
		return nil, a.missing(c, scopePass)
	}
	if !*said.Up && (said.For == nil || *said.For < 1 || *said.For > int(MostReport/time.Second)) {
		return nil, &problem{Status: http.StatusBadRequest, Code: "invalid_body",
			Detail: "the body must say whether the origin is up, and if not, for 1 to 3600 seconds", Hint: hint}
	}
	lasts := time.Duration(0)
	if said.For != nil {
		lasts = time.Duration(*said.For) * time.Second
	}
	return map[string]bool{"up": *said.Up}, a.cfg.Process.ReportOrigin(c.room, *said.Up, lasts)
}

// reportLoad takes a report of how the origin answers.
func (a *API) reportLoad(c *call, said *originReport, hint string) (any, error) {
	if !c.who.mayRoom(scopeLoad, c.room) {
		return nil, a.missing(c, scopeLoad)
	}
	x := &signals.Report{}
	good := said.For == nil && len(said.Answers) <= adaptive.MaxRoutes
	if said.Load != nil {
		good = good && *said.Load >= 0 && *said.Load <= MostLoad
		x.Load = max(*said.Load, LeastLoad)
	}
	for i := range min(len(said.Answers), adaptive.MaxRoutes) {
		r := &said.Answers[i]
		n := uint64(len(r.Seconds))
		good = good && r.Route != "" && len(r.Route) <= maxClass && r.Failed <= n && r.Refused <= n-r.Failed
		y := adaptive.Route{Class: r.Route, Answered: n, Failed: r.Failed, Refused: r.Refused}
		for _, s := range r.Seconds {
			good = good && s >= 0 && s <= maxSeconds
			y.Latency.Add(time.Duration(s*float64(time.Second)), 1)
		}
		x.Routes = append(x.Routes, y)
	}
	if !good {
		return nil, &problem{Status: http.StatusBadRequest, Code: "invalid_body",
			Detail: "a load is a number from 0 to 1000; an answer takes 0 to 3600 seconds; " +
				"at most 64 routes have names of at most 64 bytes, and not more answers failed and were " +
				"refused than there are times", Hint: hint}
	}
	return map[string]bool{"taken": true}, a.cfg.Process.ReportLoad(c.room, x)
}
