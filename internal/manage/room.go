package manage

import (
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/challenge"
	"github.com/headgate/headgate/internal/pages"
)

// Bounds. Cloudflare's own are only those of its plans, such as 200 users and 30 minutes, and do
// not apply here.
const (
	mostUsers   = 1<<31 - 1
	mostMinutes = 30 * 24 * 60 // of a session
	mostSeconds = mostMinutes * 60
	mostText    = 1000 // bytes of a description
	// MaxPage is the size of a room's own page: what one record can hold, nearly Cloudflare's
	// 1,048,576.
	MaxPage = 1_000_000
	// mostEvents and mostRules are the maximum of one room. The first is chosen, the second is that
	// of package rules.
	mostEvents = 100
	mostRules  = 200
)

// A Room is a waiting room with the members of Cloudflare's API and those of headgate.
type Room struct {
	ID                      string           `json:"id"`
	CreatedOn               time.Time        `json:"created_on"`
	ModifiedOn              time.Time        `json:"modified_on"`
	Name                    string           `json:"name"`
	Description             string           `json:"description"`
	Host                    string           `json:"host"`
	Path                    string           `json:"path"`
	AdditionalRoutes        []Route          `json:"additional_routes"`
	TotalActiveUsers        int64            `json:"total_active_users"`
	NewUsersPerMinute       int64            `json:"new_users_per_minute"`
	SessionDuration         int64            `json:"session_duration"` // minutes, rounded up
	DisableSessionRenewal   bool             `json:"disable_session_renewal"`
	QueueingMethod          string           `json:"queueing_method"`
	QueueAll                bool             `json:"queue_all"`
	QueueingStatusCode      int64            `json:"queueing_status_code"`
	JSONResponseEnabled     bool             `json:"json_response_enabled"`
	CustomPageHTML          string           `json:"custom_page_html"` // in a record: the key of the page
	DefaultTemplateLanguage string           `json:"default_template_language"`
	CookieAttributes        CookieAttributes `json:"cookie_attributes"`
	CookieSuffix            string           `json:"cookie_suffix"`
	EnabledOriginCommands   []string         `json:"enabled_origin_commands"`
	Suspended               bool             `json:"suspended"`
	TurnstileMode           string           `json:"turnstile_mode"`
	TurnstileAction         string           `json:"turnstile_action"`
	NextEventPrequeue       *string          `json:"next_event_prequeue_start_time"` // only in answers
	NextEventStart          *string          `json:"next_event_start_time"`          // only in answers
	Own                     RoomExtensions   `json:"headgate"`
}

// A Route is an additional host and path of a room.
type Route struct {
	Host string `json:"host"`
	Path string `json:"path"`
}

// CookieAttributes are the attributes of the visitor's cookie.
type CookieAttributes struct {
	SameSite string `json:"samesite"`
	Secure   string `json:"secure"`
}

// A draft is a room as read from a body, with what only the body contains.
type draft struct {
	*Room
	page string // the page itself; the room has only its key
}

func (d *draft) fields() []field {
	r := d.Room
	return []field{
		ignored("id"), ignored("created_on"), ignored("modified_on"),
		ignored("next_event_prequeue_start_time"), ignored("next_event_start_time"),
		text("name", &r.Name, "", 64).required(),
		text("description", &r.Description, "", mostText),
		text("host", &r.Host, "", 253).required(),
		text("path", &r.Path, "/", 1024),
		routes("additional_routes", &r.AdditionalRoutes),
		whole("total_active_users", &r.TotalActiveUsers, 0, 1, mostUsers).required(),
		whole("new_users_per_minute", &r.NewUsersPerMinute, 0, 1, mostUsers).required(),
		whole("session_duration", &r.SessionDuration, 5, 1, mostMinutes),
		truth("disable_session_renewal", &r.DisableSessionRenewal, false),
		word("queueing_method", &r.QueueingMethod, "fifo", methods()...),
		truth("queue_all", &r.QueueAll, false),
		number("queueing_status_code", &r.QueueingStatusCode, 200, 200, 202, 429),
		truth("json_response_enabled", &r.JSONResponseEnabled, false),
		text("custom_page_html", &d.page, "", MaxPage),
		word("default_template_language", &r.DefaultTemplateLanguage, "en-US", pages.Languages()...),
		group("cookie_attributes", []field{
			word("samesite", &r.CookieAttributes.SameSite, "auto", "auto", "lax", "none", "strict"),
			word("secure", &r.CookieAttributes.Secure, "auto", "auto", "always", "never"),
		}, false),
		text("cookie_suffix", &r.CookieSuffix, "", 64),
		words("enabled_origin_commands", &r.EnabledOriginCommands, "revoke"),
		truth("suspended", &r.Suspended, false),
		word("turnstile_mode", &r.TurnstileMode, turnstileInvisible, turnstiles()...),
		word("turnstile_action", &r.TurnstileAction, challenge.Log, turnstileActions()...),
		// A client that replaces a room may not know headgate's members: if they are missing, they
		// stay as they are.
		group("headgate", r.Own.fields(), true),
	}
}

func methods() []string { return strings.Fields("fifo random passthrough reject") }

func routes(name string, dst *[]Route) field {
	return list(name, dst, mostItems, "list only the top folders",
		func(r *reader, at string, v any, all []Route) []Route {
			var one Route
			r.object(at, v, []field{
				text("host", &one.Host, "", 253).required(), text("path", &one.Path, "/", 1024),
			})
			return append(all, one)
		})
}

// newDraft returns a room before anything is written to it.
func newDraft() *draft {
	d := &draft{Room: &Room{}}
	group("", d.fields(), false).std()
	return d
}

// read reads a body into the draft. session_duration and headgate.session_seconds are two names of
// one value, and so are queueing_status_code and headgate.status_code. Writing one of them sets
// both. If both are written and agree, the more precise one counts.
func (d *draft) read(body []byte, all bool) error {
	v, err := parse(body)
	if err != nil {
		return err
	}
	r := &reader{whole: all}
	was := *d.Room
	r.object("", v, d.fields())
	o, _ := v.(*object)
	theirs, ours := valued(o, "session_duration"), valued(o, "headgate", "session_seconds")
	switch {
	case ours && d.Own.SessionSeconds > 0:
		minutes := (d.Own.SessionSeconds + 59) / 60
		if theirs && minutes != d.SessionDuration {
			r.wrong("/headgate/session_seconds", CodeConflict, "remove one of the two",
				"is %d minutes, but session_duration is %d", minutes, d.SessionDuration)
		}
		d.SessionDuration = minutes
	case named(o, "session_duration") || all || d.Own.SessionSeconds == 0:
		d.Own.SessionSeconds = d.SessionDuration * 60
	}
	theirs, ours = valued(o, "queueing_status_code"), valued(o, "headgate", "status_code")
	switch {
	case ours && d.Own.StatusCode > 0:
		shown := shownStatus(d.Own.StatusCode)
		if theirs && shown != d.QueueingStatusCode {
			r.wrong("/headgate/status_code", CodeConflict, "remove one of the two",
				"is shown as %d, but queueing_status_code is %d", shown, d.QueueingStatusCode)
		}
		d.QueueingStatusCode = shown
	case named(o, "queueing_status_code") || all || d.Own.StatusCode == 0:
		d.Own.StatusCode = d.QueueingStatusCode
	}
	if d.ID != "" && was.Name != "" && d.Name != was.Name {
		r.wrong("/name", CodeConflict, "create a room of that name, and delete this one when it is empty",
			"cannot change: waiting visitors hold tickets of %s", quote(was.Name))
	}
	d.check(r)
	return r.err()
}

// shownStatus converts a status code to one that Cloudflare's API allows.
func shownStatus(code int64) int64 {
	if code == 503 {
		return 200
	}
	return code
}

// named reports whether a body has a member. null counts too: it writes the default.
func named(o *object, name string) bool {
	if o == nil {
		return false
	}
	_, there := o.members[name]
	return there
}

// valued reports whether a body has a member with a value that is not null.
func valued(o *object, path ...string) bool {
	for i, name := range path {
		if o == nil {
			return false
		}
		v := o.members[name]
		if i == len(path)-1 {
			return v != nil
		}
		o, _ = v.(*object)
	}
	return false
}

// check finds faults that package config does not check: in pages, and values without effect.
func (d *draft) check(r *reader) {
	if d.CookieAttributes.SameSite == "none" && d.CookieAttributes.Secure == "never" {
		r.wrong("/cookie_attributes/secure", CodeConflict, "write auto or always",
			"browsers reject a cookie with samesite none that is not secure")
	}
	if len(d.AdditionalRoutes) > 0 && d.CookieSuffix == "" {
		r.wrong("/cookie_suffix", CodeRequired, "add a suffix", "is required with additional_routes")
	}
	checkPage(r, "/custom_page_html", d.page)
	d.Own.Page.check(r, d.page)
}

// ReadPreview reads the body of a preview: a page that belongs to no room.
func ReadPreview(body []byte) (string, error) {
	v, err := parse(body)
	if err != nil {
		return "", err
	}
	r, html := &reader{whole: true}, ""
	r.object("", v, []field{text("custom_html", &html, "", MaxPage).required()})
	checkPage(r, "/custom_html", html)
	return html, r.err()
}

func checkPage(r *reader, at, html string) {
	if html == "" {
		return
	}
	_, err := pages.ParseCustom([]byte(html))
	for _, m := range pages.TemplateErrors(err) {
		r.wrong(at, CodeValue, m.Hint, "%s", m.Error())
	}
}

// revokes reports whether the origin may end a visitor's session.
func (r *Room) revokes() bool { return slices.Contains(r.EnabledOriginCommands, "revoke") }
