package manage

import (
	"cmp"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/cors"
	"github.com/headgate/headgate/internal/route"
)

// values returns a room as values by key for package config. To support a new feature of config and
// the root package, add its key here .
func (r *Room) values(origin string) map[string]any {
	o := &r.Own
	span := func(n int64) string {
		if n == 0 {
			return "0"
		}
		return strconv.FormatInt(n, 10) + "s"
	}
	v := map[string]any{
		"name": r.Name, "host": r.Host, "path": r.Path, "origin": origin,
		"total_active_users":   strconv.FormatInt(r.TotalActiveUsers, 10),
		"new_users_per_minute": strconv.FormatInt(r.NewUsersPerMinute, 10),
		"session_duration":     span(o.SessionSeconds),
		"session_renewal":      strconv.FormatBool(!r.DisableSessionRenewal),
		"hard_end":             span(o.HardEndSeconds),
		"method":               r.QueueingMethod,
		"queue_all":            strconv.FormatBool(r.QueueAll),
		"closed":               strconv.FormatBool(o.Closed),
		"suspended":            strconv.FormatBool(r.Suspended),
		"shadow":               strconv.FormatBool(o.Shadow),
		"message":              o.Message,
		"queueing_status_code": strconv.FormatInt(o.StatusCode, 10),
		"refresh_header":       strconv.FormatBool(o.RefreshHeader),
		"spread":               strconv.FormatBool(o.Spread),
		"max_waiting":          strconv.FormatInt(o.MaxWaiting, 10),
		"hold":                 span(o.HoldSeconds),
		"hold_phone":           span(o.HoldPhoneSeconds),
		"call_hold":            span(o.CallHoldSeconds),
		"join_limit": map[string]any{
			"amount": strconv.FormatInt(o.JoinLimit.Amount, 10), "window": span(o.JoinLimit.WindowSeconds),
			"prefix_v4": strconv.FormatInt(o.JoinLimit.PrefixV4, 10),
			"prefix_v6": strconv.FormatInt(o.JoinLimit.PrefixV6, 10),
			"action":    cmp.Or(o.JoinLimit.Action, "lane"),

			"draw_weight": strconv.FormatInt(o.JoinLimit.DrawWeight, 10),
		},
		"pass_sharing": map[string]any{
			"networks": strconv.FormatInt(o.PassSharing.Networks, 10), "action": o.PassSharing.Action,
		},
		"path_case_sensitive": strconv.FormatBool(o.PathCaseSensitive),
		"paths":               o.Paths,
		"fail_open_after":     span(o.FailOpenAfterSeconds),
		"exclude": map[string]any{ // only the room's own; see Wanted
			"defaults": "false", "paths": o.Exclude.Paths, "methods": o.Exclude.Methods,
			"cidrs": o.Exclude.CIDRs, "headers": o.Exclude.Headers,
			"upgrade":                   strconv.FormatBool(o.Exclude.Upgrade),
			"max_in_flight":             strconv.FormatInt(o.Exclude.MaxInFlight, 10),
			"max_in_flight_per_address": strconv.FormatInt(o.Exclude.MaxPerAddr, 10),
		},
		"limits": o.Limits,
		"page":   map[string]any{"content_security_policy": o.Page.Policy},

		"cookie_secure":             r.CookieAttributes.Secure,
		"default_template_language": r.DefaultTemplateLanguage,
	}
	if o.Bind != "" {
		v["bind"] = o.Bind
	}
	if x := &o.CORS; x.written() {
		v["cors"] = map[string]any{"origins": x.Origins, "methods": x.Methods, "headers": x.Headers,
			"max_age": span(x.MaxAgeSeconds), "credentials": strconv.FormatBool(x.Credentials)}
	}
	var routes []any
	for _, x := range r.AdditionalRoutes {
		routes = append(routes, map[string]any{"host": x.Host, "path": x.Path})
	}
	v["additional_routes"] = routes
	if r.CookieSuffix != "" {
		v["cookie_suffix"] = r.CookieSuffix
	}
	checkout := map[string]any{"pass": strconv.FormatBool(o.Checkout.Pass),
		"grace_paths": o.Checkout.GracePaths, "warn": span(o.Checkout.WarnSeconds)}
	if len(o.Checkout.GracePaths) > 0 {
		checkout["grace"] = span(o.Checkout.GraceSeconds)
	}
	v["checkout"] = checkout
	if s := r.CookieAttributes.SameSite; s != "auto" {
		v["cookie_samesite"] = s
	}
	if o.PollMinSeconds > 0 { // older records do not have it
		v["poll_min"], v["poll_max"] = span(o.PollMinSeconds), span(o.PollMaxSeconds)
	}
	if o.Title != "" {
		v["title"] = o.Title
	}
	if o.OpensAt != nil {
		v["opens_at"] = *o.OpensAt
	}
	return v
}

// pointerOf returns the JSON pointer of a key of package config.
func pointerOf(key string) string {
	key = strings.NewReplacer("[", "/", "]", "", ".", "/").Replace(key)
	group, _, _ := strings.Cut(key, "/")
	switch key {
	case "method":
		return "/queueing_method"
	case "session_duration":
		return "/headgate/session_seconds"
	case "session_renewal":
		return "/disable_session_renewal"
	case "queueing_status_code":
		return "/headgate/status_code"
	case "cookie_secure":
		return "/cookie_attributes/secure"
	case "cookie_samesite":
		return "/cookie_attributes/samesite"
	case "poll_min", "poll_max", "hard_end", "hold", "hold_phone", "call_hold", "fail_open_after",
		"join_limit/window", "checkout/grace", "checkout/warn", "cors/max_age":
		return "/headgate/" + key + "_seconds"
	}
	switch group {
	case "closed", "shadow", "message", "refresh_header", "spread", "max_waiting", "title", "opens_at",
		"origin", "path_case_sensitive", "paths", "exclude", "cors", "limits", "checkout", "page",
		"join_limit", "challenge", "pass_sharing", "bind":
		return "/headgate/" + key
	}
	return "/" + key
}

// room converts a room to the type of package config and checks it. origin is its effective origin.
func (b *Catalog) room(r *Room, origin string) (*config.Room, error) {
	values, all := r.values(origin), Faults(nil)
	asked, wrong := b.challengeOf(r)
	if wrong == nil {
		values["challenge"] = asked
	} else if f, ok := errors.AsType[Faults](wrong); ok {
		all = f
	}
	c, err := b.cfg.Make(values)
	if err == nil && wrong == nil {
		return c, nil
	}
	for _, f := range config.Faults(err) {
		if f.Key == "host" && strings.HasPrefix(f.Hint, "leave") { // this hint applies only to the file
			f.Hint = "write one host, such as shop.example.com"
		}
		all = append(all, &Fault{pointerOf(f.Key), CodeValue, f.Problem, f.Hint})
	}
	return nil, all
}

// written takes over the values that package config has normalized, such as addresses and paths, as
// they are compared with requests.
func (d *draft) written(c *config.Room) {
	d.Host, d.Path = c.Host, c.Path
	d.AdditionalRoutes = routesOf(c)
	e := &d.Own.Exclude
	e.Paths, e.Methods, e.CIDRs, e.Headers = excludeOf(&c.Exclude)
	if c.CORS != nil {
		d.Own.CORS = corsOf(c.CORS)
	}
	d.Own.Checkout.GracePaths = orNone(c.Checkout.GracePaths)
	d.Own.Bind = c.Bind
}

func routesOf(c *config.Room) []Route {
	all := []Route{}
	for _, x := range c.AdditionalRoutes {
		all = append(all, Route(x))
	}
	return all
}

func excludeOf(e *config.Exclude) (paths, methods, cidrs, headers []string) {
	cidrs = []string{}
	for _, p := range e.CIDRs {
		cidrs = append(cidrs, p.String())
	}
	return orNone(e.Paths), orNone(e.Methods), cidrs, orNone(e.Headers)
}

// written reports whether there is anything to check.
func (x *CORS) written() bool {
	return len(x.Origins)+len(x.Headers) > 0 || !slices.Equal(x.Methods, cors.DefaultMethods()) ||
		x.MaxAgeSeconds != int64(cors.DefaultMaxAge.Seconds()) || x.Credentials
}

func corsOf(c *cors.Rules) CORS {
	return CORS{orNone(c.Origins), orNone(c.Methods), orNone(c.Headers), int64(c.MaxAge.Seconds()),
		c.Credentials}
}

func orNone(all []string) []string { return append([]string{}, all...) }

// place returns the part of a room that determines its routes.
func (r *Room) place() *config.Room {
	c := &config.Room{Name: r.Name, Host: r.Host, Path: r.Path, CookieSuffix: r.CookieSuffix,
		PathCaseSensitive: r.Own.PathCaseSensitive}
	for _, x := range r.AdditionalRoutes {
		c.AdditionalRoutes = append(c.AdditionalRoutes, route.Route(x))
	}
	return c
}

// originOf returns the effective origin of a room: its own, that of its zone, or that of the file's
// room that covers its path.
func (b *Catalog) originOf(r *Room) string {
	if r.Own.Origin != "" {
		return r.Own.Origin
	}
	zone := zoneOf(b.zones, r.Host)
	for i := range b.cfg.Zones {
		if z := &b.cfg.Zones[i]; z.Name == zone.Name && z.Origin != nil {
			return z.Origin.String()
		}
	}
	var best *url.URL
	most := -1
	for i := range b.cfg.Rooms {
		f := &b.cfg.Rooms[i]
		base := strings.TrimSuffix(f.Path, "/")
		below := r.Path == base || strings.HasPrefix(r.Path, base+"/")
		n := 2 * len(base)
		if f.Host != "" {
			n++
		}
		if (f.Host == "" || f.Host == r.Host) && below && n > most {
			best, most = f.Origin, n
		}
	}
	if best == nil {
		return ""
	}
	return best.String()
}

// A DesiredRoom is a room that should be open.
type DesiredRoom struct {
	ID   string
	Room config.Room
	Page string // its own page, "" for the default one
	// EventPages are the own pages of events, by the event's name; "" is the default page.
	EventPages map[string]string
	// Translations are its own page in other languages, by tag. Assets are the files of the page.
	Translations map[string]string
	Assets       map[string][]byte
	Revokes      bool   // the origin may end sessions
	Problem      string // why the room cannot be opened, or ""
}

// Wanted returns the rooms of the store that should be open in addition to those of the file.
func (b *Catalog) Wanted() []DesiredRoom {
	var all []DesiredRoom
	for _, k := range b.state.Rooms {
		w := DesiredRoom{ID: k.ID, Page: b.pages[k.CustomPageHTML], Revokes: k.revokes()}
		c, err := b.room(&k.Room, b.originOf(&k.Room))
		if err == nil {
			if k.Own.Exclude.Defaults {
				c.Exclude = c.Exclude.WithDefaults()
			}
			page := b.shownPage(&k.Own.Page)
			w.Translations, w.Assets = page.Translations, page.files()
			c.Rules = forFile(k.Rules)
			c.CrawlerBypass = b.settings(zoneOf(b.zones, k.Host).Name).CrawlerBypass
			c.Events = forFileEvents(k.Events)
			w.EventPages = map[string]string{}
			for _, e := range k.Events {
				if e.CustomPageHTML != nil {
					w.EventPages[e.Name] = b.pages[*e.CustomPageHTML]
				}
			}
		}
		switch {
		// A room that cannot be opened is listed with the reason, so that the API can show it: the
		// file may have changed since it was created.
		case err != nil:
			w.Problem = err.Error()
			w.Room.Name = k.Name
		case slices.ContainsFunc(b.cfg.Rooms, func(f config.Room) bool { return f.Name == k.Name }):
			w.Problem = "the configuration file has a room of the same name; rename one of them"
			w.Room = *c
		case slices.ContainsFunc(b.cfg.Rooms, func(f config.Room) bool {
			_, place, cookie := f.Taken(c)
			return place || cookie
		}):
			w.Problem = "the configuration file has a room with the same host and path; change one of them"
			w.Room = *c
		default:
			w.Room = *c
		}
		all = append(all, w)
	}
	return all
}
