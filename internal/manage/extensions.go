package manage

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/challenge"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/cors"
	"github.com/headgate/headgate/internal/exclude"
	"github.com/headgate/headgate/internal/pages"
)

// RoomExtensions holds the members that headgate adds to Cloudflare's rooms.
type RoomExtensions struct {
	Source    string `json:"source"` // store or file
	Zone      string `json:"zone"`   // its name; only in answers
	Version   int64  `json:"version"`
	ChangedBy string `json:"changed_by"`
	// InForce and Problem describe the state in the process that answers. They are only in answers.
	InForce bool   `json:"in_force"`
	Problem string `json:"problem"`

	Origin           string    `json:"origin"` // "" is the origin of the zone
	Title            string    `json:"title"`  // "" is the name
	SessionSeconds   int64     `json:"session_seconds"`
	StatusCode       int64     `json:"status_code"`
	HardEndSeconds   int64     `json:"hard_end_seconds"`
	Closed           bool      `json:"closed"`
	Shadow           bool      `json:"shadow"`
	Message          string    `json:"message"`
	OpensAt          *string   `json:"opens_at"`
	Spread           bool      `json:"spread"`
	RefreshHeader    bool      `json:"refresh_header"`
	MaxWaiting       int64     `json:"max_waiting"`
	HoldSeconds      int64     `json:"hold_seconds"`
	HoldPhoneSeconds int64     `json:"hold_phone_seconds"`
	CallHoldSeconds  int64     `json:"call_hold_seconds"`
	PollMinSeconds   int64     `json:"poll_min_seconds"`
	PollMaxSeconds   int64     `json:"poll_max_seconds"`
	JoinLimit        JoinLimit `json:"join_limit"`

	PathCaseSensitive    bool        `json:"path_case_sensitive"`
	Paths                string      `json:"paths"`                   // clean or as_they_come
	FailOpenAfterSeconds int64       `json:"fail_open_after_seconds"` // 0 is never
	Exclude              Exclude     `json:"exclude"`
	CORS                 CORS        `json:"cors"`
	Limits               []string    `json:"limits"`
	Checkout             Checkout    `json:"checkout"`
	Page                 Page        `json:"page"`
	Challenge            Challenge   `json:"challenge"`
	PassSharing          PassSharing `json:"pass_sharing"`
	Bind                 string      `json:"bind"` // header:NAME; "" is none
}

// Challenge configures what a newcomer's browser has to do before its place counts.
type Challenge struct {
	Kind string `json:"kind"` // none or work
	On   string `json:"on"`   // when it is asked, also that of turnstile_mode
}

// PassSharing configures what happens to a pass that is used in more than Networks networks.
type PassSharing struct {
	Networks int64  `json:"networks"`
	Action   string `json:"action"`
}

// JoinLimit bounds how many newcomers one network sends.
type JoinLimit struct {
	Amount        int64  `json:"amount"`
	WindowSeconds int64  `json:"window_seconds"`
	PrefixV4      int64  `json:"prefix_v4"`
	PrefixV6      int64  `json:"prefix_v6"`
	Action        string `json:"action"` // lane or refuse; "" in an old record is lane
	DrawWeight    int64  `json:"draw_weight"`
}

// Exclude selects requests that pass uncounted, in addition to the defaults.
type Exclude struct {
	Defaults bool     `json:"defaults"`
	Paths    []string `json:"paths"`
	Methods  []string `json:"methods"`
	CIDRs    []string `json:"cidrs"`
	Headers  []string `json:"headers"`

	Upgrade     bool  `json:"upgrade"`
	MaxInFlight int64 `json:"max_in_flight"`
	MaxPerAddr  int64 `json:"max_in_flight_per_address"`
}

// CORS configures how headgate answers preflights. Without origins the room's origin answers them.
type CORS struct {
	Origins       []string `json:"origins"`
	Methods       []string `json:"methods"`
	Headers       []string `json:"headers"`
	MaxAgeSeconds int64    `json:"max_age_seconds"`
	Credentials   bool     `json:"credentials"`
}

// Checkout configures what the room does for the pages on which a visitor pays.
type Checkout struct {
	Pass         bool     `json:"pass"`
	GracePaths   []string `json:"grace_paths"`
	GraceSeconds int64    `json:"grace_seconds"`
	WarnSeconds  int64    `json:"warn_seconds"`
}

// Page holds the parts of a room's own page. In a record its texts and files are keys of pages.
type Page struct {
	Policy       string            `json:"content_security_policy"`
	Translations map[string]string `json:"translations"` // by language
	Assets       []Asset           `json:"assets"`       // by name
}

// An Asset is a file of a page.
type Asset struct {
	Name   string `json:"name"`
	Base64 string `json:"base64"`
}

// Bounds of lists. Chosen: longer lists are hard to read, and all rooms share one record.
const (
	mostItems  = 100
	mostAssets = 200
)

// UnmarshalJSON implements json.Unmarshaler. Members that are missing in an older record get their
// defaults.
func (o *RoomExtensions) UnmarshalJSON(b []byte) error {
	type plain RoomExtensions
	var x RoomExtensions
	x.JoinLimit.DrawWeight = config.DrawWeight
	for _, f := range newMembers(&x) {
		f.std()
	}
	if err := json.Unmarshal(b, (*plain)(&x)); err != nil {
		return err
	}
	// Rooms that were written before policies were checked stay valid.
	x.Page.Policy = pages.CleanPolicy(x.Page.Policy)
	*o = x
	return nil
}

func (o *RoomExtensions) fields() []field {
	j := &o.JoinLimit
	return append([]field{
		ignored("source"), ignored("zone"), ignored("version"), ignored("changed_by"),
		ignored("in_force"), ignored("problem"),
		text("origin", &o.Origin, "", 2000),
		text("title", &o.Title, "", 400),
		whole("session_seconds", &o.SessionSeconds, 0, 1, mostSeconds),
		number("status_code", &o.StatusCode, 0, 200, 202, 429, 503),
		whole("hard_end_seconds", &o.HardEndSeconds, 0, 0, mostSeconds),
		truth("closed", &o.Closed, false),
		truth("shadow", &o.Shadow, false),
		text("message", &o.Message, "", 2000),
		maybe(&o.OpensAt, func(s *string) field { return moment("opens_at", s) }),
		truth("spread", &o.Spread, true),
		truth("refresh_header", &o.RefreshHeader, false),
		whole("max_waiting", &o.MaxWaiting, 2_000_000, 1, mostUsers),
		whole("hold_seconds", &o.HoldSeconds, 300, 1, mostSeconds),
		whole("hold_phone_seconds", &o.HoldPhoneSeconds, 900, 1, mostSeconds),
		whole("call_hold_seconds", &o.CallHoldSeconds, 0, 0, 3600),
		whole("poll_min_seconds", &o.PollMinSeconds, 1, 1, 600),
		whole("poll_max_seconds", &o.PollMaxSeconds, 30, 1, 600),
		group("join_limit", []field{
			whole("amount", &j.Amount, 60, 0, mostUsers),
			whole("window_seconds", &j.WindowSeconds, 60, 1, 86400),
			whole("prefix_v4", &j.PrefixV4, 32, 1, 32),
			whole("prefix_v6", &j.PrefixV6, 64, 1, 128),
			word("action", &j.Action, "lane", "lane", "refuse"),
			whole("draw_weight", &j.DrawWeight, config.DrawWeight, 0, mostUsers),
		}, false),
	}, newMembers(o)...)
}

// newMembers returns the fields that older records do not have.
func newMembers(o *RoomExtensions) []field {
	e, c, p, s, x := &o.Exclude, &o.Checkout, &o.Page, &o.PassSharing, &o.CORS
	methods := texts("methods", &x.Methods, 64)
	methods.std = func() { x.Methods = cors.DefaultMethods() }
	return []field{
		truth("path_case_sensitive", &o.PathCaseSensitive, false),
		word("paths", &o.Paths, config.PathsClean, config.PathsClean, config.PathsAsTheyCome),
		whole("fail_open_after_seconds", &o.FailOpenAfterSeconds, 0, 0, 86400),
		group("exclude", []field{
			truth("defaults", &e.Defaults, true),
			texts("paths", &e.Paths, 1024), texts("methods", &e.Methods, 64),
			texts("cidrs", &e.CIDRs, 64), texts("headers", &e.Headers, 1024),
			truth("upgrade", &e.Upgrade, false),
			whole("max_in_flight", &e.MaxInFlight, exclude.MaxInFlight, 1, 1e9),
			whole("max_in_flight_per_address", &e.MaxPerAddr, exclude.MaxPerAddr, 1, 1e9),
		}, false),
		group("cors", []field{
			texts("origins", &x.Origins, 300), methods, texts("headers", &x.Headers, 256),
			whole("max_age_seconds", &x.MaxAgeSeconds, int64(cors.DefaultMaxAge.Seconds()), 0, 86400),
			truth("credentials", &x.Credentials, false),
		}, false),
		texts("limits", &o.Limits, 64),
		group("checkout", []field{
			truth("pass", &c.Pass, false),
			texts("grace_paths", &c.GracePaths, 1024),
			whole("grace_seconds", &c.GraceSeconds, 600, 1, 86400),
			whole("warn_seconds", &c.WarnSeconds, 0, 0, 86400),
		}, false),
		group("challenge", []field{
			word("kind", &o.Challenge.Kind, challenge.None, challenge.None, challenge.Kind),
			word("on", &o.Challenge.On, challenge.Join, challenge.Join, challenge.Claim, challenge.Draw),
		}, false),
		group("pass_sharing", []field{
			whole("networks", &s.Networks, 3, 1, 8),
			word("action", &s.Action, "mark", "mark", "wait", "end"),
		}, false),
		text("bind", &o.Bind, "", 300),
		group("page", []field{
			text("content_security_policy", &p.Policy, "", 4000),
			translations("translations", &p.Translations),
			assets("assets", &p.Assets),
		}, false),
	}
}

// texts is the field of a list of texts, each of at most that many bytes and without duplicates.
func texts(name string, dst *[]string, most int) field {
	return unique(name, dst, func(s *string) field { return text(name, s, "", most) })
}

// translations is the field of pages by language.
func translations(name string, dst *map[string]string) field {
	std := func() { *dst = map[string]string{} }
	return field{name: name, std: std, read: func(r *reader, at string, v any) {
		all, whole := map[string]string{}, r.whole
		var fields []field
		for _, tag := range pages.Languages() {
			fields = append(fields, field{name: tag, std: func() {}, read: func(r *reader, at string, v any) {
				var html string
				text("", &html, "", MaxPage).read(r, at, v)
				all[tag] = html
			}})
		}
		r.whole = false
		r.object(at, v, fields)
		r.whole = whole
		*dst = all
	}}
}

// assets is the field of files, sorted by name.
func assets(name string, dst *[]Asset) field {
	return list(name, dst, mostAssets, "remove some", func(r *reader, at string, v any, all []Asset) []Asset {
		var one Asset
		before := len(r.faults)
		r.object(at, v, []field{
			text("name", &one.Name, "", 200).required(),
			text("base64", &one.Base64, "", (MaxPage+2)/3*4).required(),
		})
		if len(r.faults) == before {
			checkAsset(r, at, &one, all)
		}
		i, _ := slices.BinarySearchFunc(all, one.Name,
			func(a Asset, name string) int { return strings.Compare(a.Name, name) })
		return slices.Insert(all, i, one)
	})
}

func checkAsset(r *reader, at string, x *Asset, others []Asset) {
	if err := pages.CheckAsset(x.Name); err != nil {
		r.wrong(at+"/name", CodeValue, "write a name such as img/logo.svg", "%s", err.Error())
	}
	if slices.ContainsFunc(others, func(y Asset) bool { return y.Name == x.Name }) {
		r.wrong(at+"/name", CodeTaken, "remove one of the two", "%s occurs twice", quote(x.Name))
	}
	b, err := base64.StdEncoding.Strict().DecodeString(x.Base64)
	switch {
	case err != nil:
		r.wrong(at+"/base64", CodeValue, "encode the file as base64 of RFC 4648, with padding", "is not base64")
	case len(b) == 0:
		r.wrong(at+"/base64", CodeValue, "remove the file", "is empty")
	}
}

// check finds faults that package config does not check.
func (p *Page) check(r *reader, own string) {
	if own == "" && len(p.Translations) > 0 {
		r.wrong("/headgate/page/translations", CodeConflict, "set the page in the room's language as "+
			"custom_page_html", "are translations, but custom_page_html is empty")
	}
	for _, tag := range slices.Sorted(maps.Keys(p.Translations)) {
		if html := p.Translations[tag]; html == "" {
			r.wrong("/headgate/page/translations/"+tag, CodeValue, "leave it out", "is empty")
		} else {
			checkPage(r, "/headgate/page/translations/"+tag, html)
		}
	}
}

// files returns the assets by name.
func (p *Page) files() map[string][]byte {
	all := map[string][]byte{}
	for _, x := range p.Assets {
		all[x.Name], _ = base64.StdEncoding.DecodeString(x.Base64) // checked before
	}
	return all
}

// shownPage returns a page as the API shows it.
func (b *Catalog) shownPage(p *Page) Page {
	x := Page{Policy: p.Policy, Translations: map[string]string{}, Assets: []Asset{}}
	for tag, key := range p.Translations {
		x.Translations[tag] = b.page(key)
	}
	for _, a := range p.Assets {
		a.Base64 = base64.StdEncoding.EncodeToString([]byte(b.page(a.Base64)))
		x.Assets = append(x.Assets, a)
	}
	return x
}

// keepPage stores the parts of a page, and returns the page with their keys.
func (b *Catalog) keepPage(p *Page) Page {
	x := Page{Policy: p.Policy, Translations: map[string]string{}, Assets: []Asset{}}
	for tag, html := range p.Translations {
		x.Translations[tag] = b.keep(html)
	}
	files := p.files()
	for _, a := range p.Assets {
		a.Base64 = b.keep(string(files[a.Name]))
		x.Assets = append(x.Assets, a)
	}
	return x
}
