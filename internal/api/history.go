package api

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/manage"
)

func (a *API) zones(c *call, b *manage.Catalog) (any, error) {
	all := []manage.Zone{}
	for _, z := range b.Zones() {
		if c.who.mayZone(scopeRead, z.Name, "") {
			all = append(all, z)
		}
	}
	return map[string]any{"account_id": manage.AccountID(), "zones": all}, nil
}

// count parses a number in a query.
func count(q url.Values, name string, otherwise, most int64) (int64, error) {
	s := q.Get(name)
	if s == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, &problem{Status: http.StatusBadRequest, Code: "invalid_query",
			Detail: name + " must be a whole number from 1 to " + strconv.FormatInt(most, 10),
			Hint:   "leave it out to use " + strconv.FormatInt(otherwise, 10)}
	}
	return n, nil
}

// history handles GET /v1/history?zone=…&room=…&before=VERSION&count=N, newest first.
func (a *API) history(c *call) (any, error) {
	q := c.r.URL.Query()
	most, err := count(q, "count", 50, 200)
	if err != nil {
		return nil, err
	}
	before, err := count(q, "before", 0, 1<<53)
	if err != nil {
		return nil, err
	}
	b, err := a.cfg.Rooms.Book(c.r.Context())
	if err != nil {
		return nil, err
	}
	zone := q.Get("zone")
	if z, err := b.Zone(zone); err == nil { // by id; removed zones are in it by name only
		zone = z.Name
	}
	all := []*manage.Change{}
	for _, x := range b.History(zone, q.Get("room"), before, 1<<20) {
		if len(all) < int(most) && c.who.mayZone(scopeRead, x.Zone, x.Room) {
			all = append(all, x)
		}
	}
	return map[string]any{"changes": all}, nil
}

// changeOf returns the change that the path names.
func (a *API) changeOf(c *call, b *manage.Catalog, scope string) (*manage.Change, error) {
	n, err := strconv.ParseInt(c.r.PathValue("version"), 10, 64)
	if err != nil {
		return nil, manage.ErrNoChange
	}
	x, err := b.Change(n)
	if err != nil {
		return nil, err
	}
	if c.done.Room = x.Room; !c.who.mayZone(scope, x.Zone, x.Room) {
		return nil, a.refused(c, scope+":"+zoneScope+x.Zone)
	}
	return x, nil
}

func (a *API) oneChange(c *call, b *manage.Catalog) (any, error) {
	return a.changeOf(c, b, scopeRead)
}

// undo reverts a change.
func (a *API) undo(c *call) (any, error) {
	res, err := a.cfg.Rooms.Edit(c.r.Context(), func(b *manage.Catalog) (*manage.Result, error) {
		x, err := a.changeOf(c, b, scopeWrite)
		if err != nil {
			return nil, err
		}
		return b.Undo(x.Version, &manage.Op{By: c.who.String(), At: time.Now(),
			Fixed: !c.who.may(scopeWrite, "")})
	})
	if err != nil {
		return nil, err
	}
	a.note(c, res.Change)
	if r, ok := res.Value.(*manage.Room); ok {
		a.fill(r)
	}
	return map[string]any{"change": res.Change, "result": res.Value}, nil
}

// audit handles GET /v1/audit?count=N: the newest lines of this node's audit log, newest first.
func (a *API) audit(c *call) (any, error) {
	most, err := count(c.r.URL.Query(), "count", 100, 1000)
	if err != nil {
		return nil, err
	}
	all, err := a.cfg.Audit.Newest(int(most))
	if err != nil {
		return nil, err
	}
	return map[string]any{"entries": all}, nil
}
