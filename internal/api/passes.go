package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"
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

// reportOrigin handles POST /v1/rooms/{name}/origin: what a monitor knows about the origin.
func (a *API) reportOrigin(c *call) (any, error) {
	const hint = `send {"up": false, "for_seconds": 60}, and again while it is down; then {"up": true}`
	body, err := readBody(c, maxPass, hint)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	said := struct {
		Up  *bool
		For *int `json:"for_seconds"`
	}{}
	bad := d.Decode(&said) != nil
	if _, err := d.Token(); bad || !errors.Is(err, io.EOF) || said.Up == nil ||
		!*said.Up && (said.For == nil || *said.For < 1 || *said.For > int(MostReport/time.Second)) {
		return nil, &problem{Status: http.StatusBadRequest, Code: "invalid_body",
			Detail: "the body must say whether the origin is up, and if not, for 1 to 3600 seconds", Hint: hint}
	}
	lasts := time.Duration(0)
	if said.For != nil {
		lasts = time.Duration(*said.For) * time.Second
	}
	return map[string]bool{"up": *said.Up}, a.cfg.Process.ReportOrigin(c.room, *said.Up, lasts)
}
