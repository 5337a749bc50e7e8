package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/invite"
	"github.com/headgate/headgate/internal/pages"
	"github.com/headgate/headgate/status"
)

func (a *API) livez(c *call) (any, error) {
	io.WriteString(c.w, "ok\n")
	return nil, nil
}

func (a *API) readyz(c *call) (any, error) {
	if why := a.cfg.Unready(); why != "" {
		http.Error(c.w, "not ready: "+why, http.StatusServiceUnavailable)
		return nil, nil
	}
	return a.livez(c)
}

func (a *API) metrics(c *call) (any, error) {
	a.cfg.Metrics.ServeHTTP(c.w, c.r)
	return nil, nil
}

func (a *API) about(*call) (any, error) { return a.cfg.Process.About(), nil }

func (a *API) rooms(c *call) (any, error) {
	rooms := []status.Room{}
	for _, s := range a.cfg.Process.Rooms() {
		if c.who.mayRoom(scopeRead, s.Name) {
			rooms = append(rooms, s)
		}
	}
	return map[string]any{"rooms": rooms}, nil
}

func (a *API) room(c *call) (any, error) {
	for _, s := range a.cfg.Process.Rooms() {
		if s.Name == c.room {
			return s, nil
		}
	}
	return nil, ErrNoRoom
}

// preview returns the waiting page as a visitor would get it.
func (a *API) preview(c *call) (any, error) {
	return nil, a.render(c, func() (*pages.Preview, error) {
		return a.cfg.Preview(c.room, c.r.URL.Query())
	})
}

func (a *API) ticket(c *call) (any, error) {
	return a.cfg.Process.FindTicket(c.r.Context(), c.room, c.r.PathValue("id"))
}

// releaseTicket handles POST /v1/rooms/{name}/tickets/{id}/release.
func (a *API) releaseTicket(c *call) (any, error) {
	id := c.r.PathValue("id")
	c.done.Asked = map[string]string{"release": clip(id)}
	was, err := a.cfg.Process.FindTicket(c.r.Context(), c.room, id)
	if err != nil {
		return nil, err
	}
	now, err := a.cfg.Process.ReleaseTicket(c.r.Context(), c.room, id)
	if err != nil {
		return nil, err
	}
	c.done.Before = map[string]string{"released": strconv.FormatBool(was.Released)}
	c.done.After = map[string]string{"released": strconv.FormatBool(now.Released)}
	return now, nil
}

// tickets searches all rooms that the caller may read.
func (a *API) tickets(c *call) (any, error) {
	for _, s := range a.cfg.Process.Rooms() {
		if !c.who.mayRoom(scopeRead, s.Name) {
			continue
		}
		w, err := a.cfg.Process.FindTicket(c.r.Context(), s.Name, c.r.PathValue("id"))
		if err == nil {
			return w, nil
		}
		if !errors.Is(err, headgate.ErrNoTicket) && !errors.Is(err, ErrNoRoom) {
			return nil, err
		}
	}
	return nil, headgate.ErrNoTicket
}

// change handles PATCH /v1/rooms/{name}.
func (a *API) change(c *call) (any, error) {
	pairs, err := readPairs(c)
	if err != nil {
		return nil, err
	}
	got, err := a.cfg.Process.Change(c.r.Context(), c.room, pairs, c.who.String())
	if err != nil {
		c.done.Asked = asked(pairs)
		return nil, err
	}
	c.done.Before, c.done.After = got.Before, got.After
	return got.Status, nil
}

// maxCodes limits the invitations of one request. Chosen: an answer of 400 KB.
const maxCodes = 10_000

// readExact reads a JSON object into v, which has all of its keys.
func readExact(c *call, v any, hint string) error {
	body, err := readBody(c, maxBody, "send at most 64 KB")
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return &problem{Status: http.StatusBadRequest, Code: "invalid_body",
			Detail: "the body is not the JSON object that is wanted: " + clip(err.Error()), Hint: "send " + hint}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return &problem{Status: http.StatusBadRequest, Code: "invalid_body",
			Detail: "the body is more than one JSON object", Hint: "send " + hint}
	}
	return nil
}

// makeCodes handles POST /v1/rooms/{name}/codes.
func (a *API) makeCodes(c *call) (any, error) {
	const hint = `{"batch": 1, "first": 1, "count": 1000, "uses": 1, "until": "2026-12-24T20:00:00Z"}`
	asked := struct {
		Batch, First, Count, Uses int
		Until                     time.Time
	}{First: 1, Uses: 1}
	if err := readExact(c, &asked, hint); err != nil {
		return nil, err
	}
	first := invite.Code{Batch: asked.Batch, Serial: asked.First, Uses: asked.Uses, End: -1}
	if !asked.Until.After(invite.Latest()) {
		first.End = invite.EndAt(asked.Until)
	}
	last := first
	last.Serial += asked.Count - 1
	err := errors.Join(first.Check(), last.Check())
	if asked.Count < 1 || asked.Count > maxCodes {
		err = fmt.Errorf("count: %d is not from 1 to %d", asked.Count, maxCodes)
	}
	if err != nil {
		return nil, &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_codes",
			Detail: err.Error(), Hint: "send " + hint}
	}
	codes, err := a.cfg.Process.MakeCodes(c.room, first, asked.Count)
	if err != nil {
		return nil, err
	}
	until := first.Until()
	c.done.After = map[string]string{"batch": strconv.Itoa(first.Batch), "first": strconv.Itoa(first.Serial),
		"count": strconv.Itoa(asked.Count), "uses": strconv.Itoa(asked.Uses), "until": until.Format(time.RFC3339)}
	return map[string]any{"batch": first.Batch, "first": first.Serial, "uses": first.Uses, "until": until,
		"codes": codes}, nil
}

// revokedCodes handles GET /v1/rooms/{name}/codes/revoked.
func (a *API) revokedCodes(c *call) (any, error) {
	now, _, err := a.cfg.Process.ReviseCodes(c.r.Context(), c.room, nil, nil, "")
	return map[string]any{"revoked": now}, err
}

// reviseCodes handles POST /v1/rooms/{name}/codes/revoked.
func (a *API) reviseCodes(c *call) (any, error) {
	const hint = `{"revoke": ["3", "4-15"], "allow": ["2"]}`
	var asked struct{ Revoke, Allow []string }
	if err := readExact(c, &asked, hint); err != nil {
		return nil, err
	}
	after, before, err := a.cfg.Process.ReviseCodes(c.r.Context(), c.room, asked.Revoke, asked.Allow,
		c.who.String())
	if err != nil {
		return nil, err
	}
	c.done.Before = map[string]string{"revoked": strings.Join(before, " ")}
	c.done.After = map[string]string{"revoked": strings.Join(after, " ")}
	return map[string]any{"revoked": after}, nil
}

// reload handles POST /v1/reload.
func (a *API) reload(c *call) (any, error) {
	got, err := a.cfg.Process.Reload(c.r.Context())
	if err != nil {
		return nil, err
	}
	c.done.After = map[string]string{
		"added": strings.Join(got.Rooms.Added, " "), "removed": strings.Join(got.Rooms.Removed, " "),
		"changed":              strings.Join(got.Rooms.Changed, " "),
		"dropped_live_changes": strings.Join(got.Dropped, " "),
	}
	return got, nil
}
