package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
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
