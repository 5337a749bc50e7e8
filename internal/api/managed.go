package api

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/manage"
	"github.com/headgate/headgate/status"
)

// maxManaged is the maximum size of a body with a page in it, each byte of which may be escaped.
// Chosen.
const maxManaged = 4 << 20

// booked answers with what f makes of the rooms.
func (a *API) booked(f func(*call, *manage.Catalog) (any, error)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		b, err := a.cfg.Rooms.Book(c.r.Context())
		if err != nil {
			return nil, err
		}
		return f(c, b)
	}
}

// inZone is booked for the zone of the path, unless the sender may not access it.
func (a *API) inZone(
	scope string, f func(*call, *manage.Catalog, manage.Zone) (any, error),
) func(*call) (any, error) {
	return a.booked(func(c *call, b *manage.Catalog) (any, error) {
		z, err := b.Zone(c.r.PathValue("zone"))
		if err != nil {
			return nil, err
		}
		room := b.Name(z.Name, c.r.PathValue("room"))
		if c.done.Room = room; !c.who.mayZone(scope, z.Name, room) {
			return nil, a.refused(c, scope+":"+zoneScope+z.Name)
		}
		return f(c, b, z)
	})
}

// refused returns the problem of a token that is valid but lacks a scope.
func (a *API) refused(c *call, needs string) *problem {
	hint := "create one on the machine that runs headgate: headgate token create --scope " + needs
	if !a.refusals.take(c.who.token.ID, time.Now()) {
		return &problem{Status: http.StatusTooManyRequests, Code: "too_many_refusals",
			Detail: "too many requests that this token does not allow", Hint: hint}
	}
	return &problem{Status: http.StatusForbidden, Code: "scope_missing",
		Detail: "this token does not allow it; the scopes of the token are: " + strings.Join(c.who.token.Scopes, ", "), Hint: hint}
}

// see answers with one object, or a list of the objects of a room.
func (a *API) see(what string) func(*call) (any, error) {
	return a.inZone(scopeRead, func(c *call, b *manage.Catalog, z manage.Zone) (any, error) {
		res, err := b.Read(&manage.Query{What: what, Zone: z.Name, Room: c.r.PathValue("room"),
			Target: c.r.PathValue("event")})
		if err != nil {
			return nil, err
		}
		if events, ok := res.Value.([]*manage.Event); ok {
			return paged(c, events)
		}
		return a.envelope(c, res), nil
	})
}

// write makes a change.
func (a *API) write(what, verb string) func(*call) (any, error) {
	return a.inZone(scopeWrite, func(c *call, _ *manage.Catalog, z manage.Zone) (any, error) {
		match, err := ifMatch(c.r)
		if err != nil {
			return nil, err
		}
		op := &manage.Op{What: what, Verb: verb, Zone: z.Name, Room: c.r.PathValue("room"),
			Target: cmp.Or(c.r.PathValue("event"), c.r.PathValue("rule")), By: c.who.String(),
			At: time.Now(), Fixed: !c.who.may(scopeWrite, ""), Match: match}
		if verb != manage.Delete {
			if op.Body, err = readBody(c, maxManaged, "a page may have at most 1,000,000 bytes"); err != nil {
				return nil, err
			}
		}
		res, err := a.cfg.Rooms.Edit(c.r.Context(), func(b *manage.Catalog) (*manage.Result, error) {
			return b.Do(op)
		})
		if err != nil {
			return nil, err
		}
		a.note(c, res.Change)
		return a.envelope(c, res), nil
	})
}

// ifMatch returns the version that the object must have, 0 for any.
func ifMatch(r *http.Request) (int64, error) {
	s := strings.TrimSpace(r.Header.Get("If-Match"))
	if s == "" || s == "*" {
		return 0, nil
	}
	n, err := strconv.ParseInt(strings.Trim(strings.TrimPrefix(s, "W/"), `"`), 10, 64)
	if err != nil || n < 1 {
		return 0, manage.ErrVersion
	}
	return n, nil
}

// note adds a change to the audit log: the members that differ.
func (a *API) note(c *call, x *manage.Change) {
	if x == nil {
		return
	}
	c.done.Room = x.Room
	c.done.Before, c.done.After = x.Differences()
	c.done.After["version"] = strconv.FormatInt(x.Version, 10)
}

// An envelope is the object that wraps the answers of Cloudflare's API.
type envelope struct {
	Success  bool        `json:"success"`
	Errors   []told      `json:"errors"`
	Messages []told      `json:"messages"`
	Result   any         `json:"result"`
	Info     *resultInfo `json:"result_info,omitempty"`
}

// A told is an error or a message in an envelope.
type told struct {
	Code    int       `json:"code"`
	Message string    `json:"message"`
	Source  *source   `json:"source,omitempty"`
	Own     *toldOurs `json:"headgate,omitempty"`
}

type source struct {
	Pointer string `json:"pointer"`
}

// toldOurs holds the fields that headgate adds.
type toldOurs struct {
	Code      string `json:"code"`
	Hint      string `json:"hint"`
	RequestID string `json:"request_id,omitempty"`
}

type resultInfo struct {
	Page       int `json:"page"`
	PerPage    int `json:"per_page"`
	Count      int `json:"count"`
	TotalCount int `json:"total_count"`
	TotalPages int `json:"total_pages"`
}

// Numbers of errors. Cloudflare documents only the first of its own. The others are ours: 11000
// plus the status. headgate.code has the name of the error.
const (
	numberAuth = 10000
	numberBase = 11000
)

func (a *API) envelope(c *call, res *manage.Result) *envelope {
	e := &envelope{Success: true, Errors: []told{}, Messages: []told{}, Result: res.Value}
	if res.Version > 0 {
		c.w.Header().Set("ETag", `"`+strconv.FormatInt(res.Version, 10)+`"`)
	}
	if r, ok := res.Value.(*manage.Room); ok {
		a.fill(r)
		if !r.Own.InForce && c.r.Method != http.MethodGet {
			e.Messages = append(e.Messages, told{Code: numberBase,
				Message: "stored, but not in force on this node: " + r.Own.Problem,
				Own:     &toldOurs{Code: "not_in_force", Hint: "read the room again in some seconds"}})
		}
	}
	return e
}

// fill adds the state of a room in this process.
func (a *API) fill(r *manage.Room) { r.Own.InForce, r.Own.Problem = a.cfg.Rooms.InForce(r) }

// paged answers with one page of a list. A page after the last is empty, which ends a client's
// loop.
func paged[T any](c *call, all []T) (any, error) {
	info := &resultInfo{Page: 1, PerPage: 25, TotalCount: len(all)}
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, badQuery("", "the query is invalid")
	}
	for _, p := range []struct {
		name        string
		to          *int
		most, times int
	}{{"page", &info.Page, 1 << 30, 1}, {"per_page", &info.PerPage, 1000, 5}} {
		s := query.Get(p.name)
		if s == "" {
			continue
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > p.most || n%p.times != 0 {
			return nil, badQuery(p.name, "is not a page number, or not a multiple of 5 up to 1000")
		}
		*p.to = n
	}
	info.TotalPages = (len(all) + info.PerPage - 1) / info.PerPage
	from := min(len(all), (info.Page-1)*info.PerPage)
	page := slices.Clone(all[from:min(len(all), from+info.PerPage)])
	if page == nil {
		page = []T{}
	}
	info.Count = len(page)
	return &envelope{Success: true, Errors: []told{}, Messages: []told{}, Result: page, Info: info}, nil
}

func badQuery(name, problem string) error {
	return manage.Faults{{Pointer: "/" + name, Code: manage.CodeValue, Problem: problem,
		Hint: "write, for example, page=2&per_page=50"}}
}

// listRooms lists the rooms of a zone.
func (a *API) listRooms(c *call, b *manage.Catalog) (any, error) {
	z, err := b.Zone(c.r.PathValue("zone"))
	if err != nil {
		return nil, err
	}
	return a.listOf(c, b.Rooms(z.Name))
}

// listAll lists the rooms of all zones. There is only one account, so any account id matches.
func (a *API) listAll(c *call, b *manage.Catalog) (any, error) {
	return a.listOf(c, b.Rooms(""))
}

func (a *API) listOf(c *call, all []*manage.Room) (any, error) {
	all = slices.DeleteFunc(all, func(r *manage.Room) bool {
		return !c.who.mayZone(scopeRead, r.Own.Zone, r.Name)
	})
	for _, r := range all {
		a.fill(r)
	}
	return paged(c, all)
}

// A shownZone is a zone in the format of Cloudflare's API, with the fields that clients read.
type shownZone struct {
	manage.Zone
	Status  string            `json:"status"`
	Account map[string]string `json:"account"`
}

func showZone(z manage.Zone) shownZone {
	return shownZone{z, "active", map[string]string{"id": manage.AccountID(), "name": "headgate"}}
}

// listZones lists the zones that the caller may read, or the one with the given name.
func (a *API) listZones(c *call, b *manage.Catalog) (any, error) {
	name := c.r.URL.Query().Get("name")
	var all []shownZone
	for _, z := range b.Zones() {
		if (name == "" || z.Name == name) && c.who.mayZone(scopeRead, z.Name, "") {
			all = append(all, showZone(z))
		}
	}
	return paged(c, all)
}

func (a *API) oneZone(c *call, b *manage.Catalog, z manage.Zone) (any, error) {
	return a.envelope(c, &manage.Result{Value: showZone(z)}), nil
}

// A shownStatus is the state of a room in the format of Cloudflare's API.
type shownStatus struct {
	Status  string      `json:"status"`
	EventID string      `json:"event_id"`
	Queued  int64       `json:"estimated_queued_users"`
	Active  int64       `json:"estimated_total_active_users"`
	Minutes int64       `json:"max_estimated_time_minutes"`
	Own     status.Room `json:"headgate"`
}

// roomStatus returns the state of a room in the form of Cloudflare's API.
func (a *API) roomStatus(c *call, b *manage.Catalog, z manage.Zone) (any, error) {
	res, err := b.Read(&manage.Query{What: manage.Rooms, Zone: z.Name, Room: c.r.PathValue("room")})
	if err != nil {
		return nil, err
	}
	r := res.Value.(*manage.Room)
	for _, s := range a.cfg.Process.Rooms() {
		if s.Name != r.Name {
			continue
		}
		x := shownStatus{Status: s.Status, Queued: s.WaitingUsers, Active: s.ActiveUsers, Own: s}
		if s.MaxWaitSeconds > 0 {
			x.Minutes = int64(s.MaxWaitSeconds+59) / 60
		}
		if s.Event != nil {
			x.EventID = b.EventID(z.Name, r.ID, s.Event.Name)
		}
		if x.Status == "damaged" { // it admits nobody
			x.Status = "queueing"
		}
		res.Value = &x
		return a.envelope(c, res), nil
	}
	_, why := a.cfg.Rooms.InForce(r)
	return nil, &problem{Status: http.StatusBadRequest, Code: "not_in_force",
		Detail: "the room is not open on this node: " + why, Hint: "read the room: headgate.problem has the reason"}
}
