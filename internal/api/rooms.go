package api

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/headgate/headgate"
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
