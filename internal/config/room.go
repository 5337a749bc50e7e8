package config

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/challenge"
	"github.com/headgate/headgate/internal/cors"
	"github.com/headgate/headgate/internal/events"
	"github.com/headgate/headgate/internal/exclude"
	"github.com/headgate/headgate/internal/route"
	"github.com/headgate/headgate/internal/rules"
)

// A Room is one waiting room in front of one origin.
type Room struct {
	// Name identifies the room in the cookie, metrics and the data folder:
	// 1 to 64 of A-Z a-z 0-9 _ and -. Required and unique. The room of
	// headgate run without a file is named "main".
	Name string

	// Title is the name shown to visitors. Default the name.
	Title string

	// Host is the host name that the room covers, in lower case, without a port and without the
	// brackets of an IPv6 address. "" is any host.
	Host string

	// Path is the path that the room covers, with everything below it. Default "/". It begins with
	// a slash and, except for "/", ends without one. A star in it matches any number of characters
	// except a slash, also none.
	Path string

	// PathCaseSensitive makes /Shop and /shop different paths. Default false, as for many origins.
	PathCaseSensitive bool

	// Paths selects what happens to a request whose path has several readings that lead to
	// different decisions: clean or as_they_come. Default clean.
	Paths string

	// AdditionalRoutes are more hosts and paths of the room, at most 100. All hosts are the same,
	// or share a domain that browsers accept for a cookie. Default none.
	AdditionalRoutes []route.Route

	// Origin is the URL of the site behind the room: http or https, a host and perhaps a path, and
	// nothing else. Required.
	Origin *url.URL

	// TotalActiveUsers is how many visitors may be inside at once. Required,
	// at least 1.
	TotalActiveUsers int64

	// NewUsersPerMinute is how many visitors may enter in any minute. Required,
	// at least 1.
	NewUsersPerMinute int64

	// Auto finds these limits. The zero Auto leaves them as they are.
	Auto Auto

	// SessionDuration is how long a session lasts after the last answer, or after admission when
	// SessionRenewal is false. 1 second to 30 days, default 5 minutes.
	SessionDuration time.Duration

	// SessionRenewal restarts SessionDuration at each request of a visitor. Default true.
	SessionRenewal bool

	// HardEnd is the longest session, with or without renewal. 0, the default, is none; else at
	// least SessionDuration.
	HardEnd time.Duration

	// Method selects the visitor to admit next: fifo, random, passthrough or reject. Default fifo.
	Method string

	// QueueAll stops the line: newcomers wait and nobody is called.
	QueueAll bool

	// Closed closes the room: newcomers get no ticket and nobody is called. Message explains why.
	// Tickets and passes stay valid.
	Closed bool

	// Suspended switches the room off: every request passes and is not counted.
	Suspended bool

	// Shadow counts and decides as usual, but lets every request pass.
	Shadow bool

	// OpensAt stops the line until this time. The zero time is no opening time.
	OpensAt time.Time

	// Message is shown to waiting visitors: plain text, at most 500 characters.
	Message string

	// QueueingStatusCode is the status of the waiting page: 200, 202, 429 or
	// 503. Default 503.
	QueueingStatusCode int

	// RefreshHeader adds the Refresh header to the waiting page, for clients
	// that understand neither scripts nor HTML. Default false.
	RefreshHeader bool

	// Spread spaces the calls evenly while visitors wait, so that they do not arrive in bursts.
	// Default true.
	Spread bool

	// MaxWaiting is the maximum length of the line. Newcomers beyond it get no ticket. Default
	// 2,000,000.
	MaxWaiting int64

	// Hold is how long the place of a visitor who stops polling is kept. 1 second to 30 days,
	// longer than PollMax, default 5 minutes.
	Hold time.Duration

	// HoldPhone is Hold for phones, whose browsers stop polling while the screen is off. Default 15
	// minutes, or Hold when that is longer.
	HoldPhone time.Duration

	// CallHold is how long a slot is reserved for a visitor who was called. 0, the default, is
	// automatic: the longer of 5 seconds and twice the visitor's polling interval.
	CallHold time.Duration

	// PollMin and PollMax bound the polling interval of waiting visitors. 100 milliseconds to 10
	// minutes, defaults 1 and 30 seconds.
	PollMin, PollMax time.Duration

	// Rules are evaluated for each request before anything else, in this order. Default none.
	Rules []Rule

	// CrawlerBypass lets verified search engines pass without being counted. Default false.
	CrawlerBypass bool

	// Events change the room's settings for a time. Default none.
	Events []Event

	// Exclude selects the requests that pass without being counted.
	Exclude Exclude

	// CORS configures how preflights are answered; nil: the origin answers them. Default nil.
	CORS *cors.Rules

	// JoinLimit bounds how many newcomers join the line from one network.
	JoinLimit JoinLimit

	// Challenge is what a newcomer's browser has to do before its place counts.
	Challenge Challenge

	// PassSharing configures what happens to a pass that is used in many networks.
	PassSharing PassSharing

	// Bind is header:NAME. A cookie is valid only with the value of that header with which it was
	// set. Default none.
	Bind string

	// Identity configures how the room knows people. Default not at all.
	Identity Identity

	// Limits are the names of the limits that apply to each request of the room. Default none.
	Limits []string

	// FailOpenAfter is how long the room's counter must be unreachable before visitors pass
	// uncounted. 1 second to 1 day. 0, the default, is never: visitors wait.
	FailOpenAfter time.Duration

	// CookieSuffix is appended to the name of the cookie, after "_". Required with
	// AdditionalRoutes.
	CookieSuffix string

	// CookieSecure selects when the cookie has the Secure attribute. Default auto.
	CookieSecure CookieSecure

	// CookieSameSite is the SameSite attribute of the cookie: lax, strict or none. Browsers reject
	// none without Secure, so a cookie without Secure gets lax instead. Default lax.
	CookieSameSite string

	// DefaultTemplateLanguage is the language for visitors who request none of the available ones:
	// one of pages.Languages. Default en-US.
	DefaultTemplateLanguage string

	// Page is the room's own waiting page. Default none.
	Page Page

	// Checkout configures what the room does for visitors who pay. Default nothing.
	Checkout Checkout
}

// Identity configures how a room knows who its visitors are: by a header, by a JWT or by an invitation.
// The zero value is not at all.
type Identity struct {
	// Header is the request header with the ID of a person, in canonical form. It counts from
	// TrustedProxies only. "" is none.
	Header string

	// JWT is the token of the site's sign-in. An empty JWKS is none.
	JWT JWT

	// CodesFile is the file with the secret of the room's invitations. "" is none.
	CodesFile string

	// GroupHeader is the request header with the groups of a person, with commas, beside Header.
	GroupHeader string `json:",omitempty"`

	// Groups are groups of people. Each is a lane of the room, which only its people join: those whose
	// header or token names it, or whose invitation is of its batches. Of several groups of a person, the
	// first one here counts.
	Groups []Group `json:",omitempty"`

	// Required gives visitors without an ID neither a place nor a slot. Default false.
	Required bool

	// SignIn is the page of the site where such visitors sign in: a path, or a URL of https. {url} in
	// it is the address that they wanted, and {reason} why their invitation does not count. A path of the
	// room is excluded. Required with Required.
	SignIn string
}

// A JWT configures which signed tokens count, and which claim has the ID of a person.
type JWT struct {
	JWKS     string // a file, or a URL of https
	Issuer   string
	Audience string
	Claim    string // default "sub"
	Cookie   string // name of a cookie with the token; "": only Authorization: Bearer

	GroupClaim string `json:",omitempty"` // the claim with the groups of a person; "" is none
}

// A Group is a group of people that the site knows.
type Group struct {
	Name    string // as that of a lane
	Share   int    // percentage of the calls while others wait, as that of a lane. Default 20
	Batches []int  // of invitations
}

// An Early lets a group in before the start of an event.
type Early struct {
	Group  string
	Before time.Duration
}

// Knows reports whether the room knows people.
func (i *Identity) Knows() bool { return i.Header != "" || i.JWT.JWKS != "" || i.CodesFile != "" }

// SignInPath returns the path of SignIn, or "" if it is a URL or not set.
func (i *Identity) SignInPath() string {
	if !strings.HasPrefix(i.SignIn, "/") {
		return ""
	}
	path, _, _ := strings.Cut(i.SignIn, "?")
	return path
}

// BindHeader returns the name of the header in Bind, or "".
func (r *Room) BindHeader() string { return strings.TrimPrefix(r.Bind, bindHeader) }

const bindHeader = "header:"

// CookieSecure selects when the room's cookie has the Secure attribute.
type CookieSecure string

// The values of Room.CookieSecure.
const (
	CookieSecureAuto   CookieSecure = "auto"   // when the visitor came by HTTPS
	CookieSecureAlways CookieSecure = "always" // also when headgate receives plain HTTP
	CookieSecureNever  CookieSecure = "never"  // for sites that use only HTTP
)

// The values of Room.Paths.
const (
	PathsClean      = "clean"        // redirect the request to the clean spelling, or reject it
	PathsAsTheyCome = "as_they_come" // let it pass; the strictest decision counts
)

// Exclude selects requests that pass without being counted: one match is enough. The defaults come
// first, unless the file sets exclude.defaults to false.
type Exclude struct {
	// Paths begin with a slash. A path that ends with a slash or a star matches everything that
	// begins like it (the star itself left out); any other path matches only itself. Defaults
	// /robots.txt, /favicon.ico and /.well-known/.
	Paths []string

	// Methods are in capitals. Default none: preflights and HEAD are handled separately.
	Methods []string

	// CIDRs are networks of visitors.
	CIDRs []netip.Prefix

	// Headers are "Name", present with any value, or "Name: value", present with exactly this
	// value. Names are in canonical form.
	Headers []string

	// Upgrade lets an excluded request open a WebSocket. Default false, because the traffic inside
	// a WebSocket is not counted.
	Upgrade bool

	// MaxInFlight is how many excluded requests may be in flight at the same time. MaxPerAddr is
	// the same for one IPv4 address or 64 bits of an IPv6 address. Defaults 1,000 and 100.
	MaxInFlight, MaxPerAddr int64
}

// WithDefaults returns e with the default exclusions added.
func (e Exclude) WithDefaults() Exclude {
	std := defaultExclude()
	e.Paths, e.Methods = union(std.Paths, e.Paths), union(std.Methods, e.Methods)
	return e
}

// DrawWeight is the default of join_limit.draw_weight. Chosen: few homes and small offices have more
// people in one line, and a bot with two hundred tickets of an address gains ten chances. An address
// that a mobile network shares has ten chances, too.
const DrawWeight = 10

// JoinLimit bounds how many newcomers one network sends in a window while others wait. The next
// wider network may send twice as many.
type JoinLimit struct {
	Amount   int64         // newcomers in a window, default 60; 0 is no limit
	Window   time.Duration // 1 second to 1 day, default 1 minute
	PrefixV4 int           // bits that make an IPv4 network, default 32
	PrefixV6 int           // bits that make an IPv6 network, default 64
	Action   string        // for newcomers above it: lane, the default, or refuse
	// DrawWeight is how many chances one network has in draws, default 10; 0: as many as tickets.
	DrawWeight int64
}

// Challenge configures what a newcomer's browser has to do before its place counts.
type Challenge struct {
	// Kind is "none", the default, "work": a proof of work, or the third party whose widget the waiting
	// page shows: "turnstile", "hcaptcha" or "recaptcha".
	Kind string

	// On is when it is asked: "join", the default, "claim": when the visitor's turn comes, or "draw".
	On string

	// PublicKey and SecretFile are the keys of the third party. Required with one.
	PublicKey, SecretFile string

	// VerifyURL is where tokens are checked. "" is the third party's own address.
	VerifyURL string

	// Hostnames are the hosts of sites on which tokens may be made. None is the host of the request.
	Hostnames []string

	// FailOpen makes tickets count without a token while tokens cannot be checked. Default false:
	// their visitors wait in the lane of those who have not solved it, and come in.
	FailOpen bool

	// Action is what happens to those who fail: "log", the default, is that lane. With
	// "infinite_queue", of a third party, they wait without end, and are not told.
	Action string
}

// Endless reports whether nobody comes in from the line without a solution.
func (c *Challenge) Endless() bool { return c.Action == challenge.InfiniteQueue }

// A Widget is one of Turnstile. Its mode is set at Cloudflare, and here it is its name.
type Widget struct {
	Mode      string
	Challenge Challenge
}

// TurnstileModes returns the modes of widgets, as Cloudflare's API for waiting rooms calls them.
func TurnstileModes() []string {
	return []string{"invisible", "visible_non_interactive", "visible_managed"}
}

// Moment returns when it is asked, "" for the join.
func (c *Challenge) Moment() string {
	if c.On == challenge.Join {
		return ""
	}
	return c.On
}

// Asked returns the kind of challenge, "" for none.
func (c *Challenge) Asked() string {
	if c.Kind == challenge.None {
		return ""
	}
	return c.Kind
}

// PassSharing configures what happens to a pass that is used in more than Networks networks.
type PassSharing struct {
	Networks int    // 1 to 8, default 3
	Action   string // "mark", the default, "wait" or "end"
}

// A Page configures the waiting page of a room where it differs from the default one. A relative
// path of a file starts at the folder of the configuration file.
type Page struct {
	// HTMLFile is a mustache template in the room's language. "" is the default page.
	HTMLFile string

	// Translations are templates in other languages, by tag.
	Translations map[string]string

	// Assets is a folder of files that headgate serves for the page. "" is none.
	Assets string

	// ContentSecurityPolicy is the policy of the page. "" is pages.CustomPolicy.
	ContentSecurityPolicy string
}

// An Event changes a room for a time: its settings apply from its prequeue until its end.
type Event struct {
	// Name identifies the event within its room. Required.
	Name string

	// Start and End are required; Start is before End.
	Start, End time.Time

	// PrequeueStart is the time from which all newcomers are queued. It is before Start; the zero
	// time is no prequeue.
	PrequeueStart time.Time

	// Every is the interval at which the event repeats. 0, the default, is once.
	Every time.Duration

	// Shuffle draws a random order of the visitors in the prequeue when the event starts.
	Shuffle bool

	// Suspended cancels the event.
	Suspended bool

	// The settings that differ from the room. A zero value keeps the room's.
	TotalActiveUsers, NewUsersPerMinute int64 // both or none
	SessionDuration                     time.Duration
	SessionRenewal                      *bool
	Method, Message                     string

	// Early are the groups that come in before Start, during the prequeue.
	Early []Early `json:",omitempty"`

	// HTMLFile is the page of the event, a mustache template that replaces the page of the room.
	// Its path is resolved like that of Page.HTMLFile. "" is the page of the room.
	HTMLFile string
}

// A Rule decides what happens to the requests of a room that match its expression.
type Rule struct {
	// Action is bypass, deny, lane or challenge. Required.
	Action string

	// Expression is written in the language of docs/rules.md. Required.
	Expression string

	// Description is a note for readers of the file: at most 500 bytes.
	Description string

	// Lane is the lane in which matching visitors wait, with the action lane: at most 32 of A-Z,
	// a-z, 0-9, _ and -. At most three lanes.
	Lane string

	// Share is the maximum percentage of calls that go to the lane while others wait: 1 to 89, and
	// at most 89 for all lanes together. Only with the action lane.
	Share int

	// Enabled switches the rule on. Default true.
	Enabled bool
}

// Rule converts the rule to the type of package rules.
func (r *Rule) Rule() (rules.Rule, error) {
	a, err := rules.ParseAction(r.Action)
	return rules.Rule{Action: a, Expression: r.Expression, Description: r.Description,
		Lane: r.Lane, Share: r.Share, Disabled: !r.Enabled}, err
}

const actionChallenge = "challenge"

// ChallengesByRules reports whether only the newcomers that a rule names have the room's challenge. A
// rule that is off counts too: with the last one off nobody has it, and not all.
func (r *Room) ChallengesByRules() bool {
	return slices.ContainsFunc(r.Rules, func(x Rule) bool { return x.Action == actionChallenge })
}

// A Checkout configures what a room does for the pages on which a visitor pays.
type Checkout struct {
	// Pass adds a signed pass to each request of a session that goes to the origin, in the header
	// Headgate-Pass. Default false.
	Pass bool

	// GracePaths are paths that keep a session open: it does not end within Grace of a request for
	// one of them. A path that ends with a slash or a star matches everything that begins like it;
	// any other path matches only itself.
	GracePaths []string

	// Grace is the time that GracePaths grant. 1 second to 1 day, default 10 minutes.
	Grace time.Duration

	// Warn is how long before the end of a session its pages show a warning. 0, the default, is
	// never.
	Warn time.Duration
}

// DefaultGrace is the default of Checkout.Grace: long enough to pay for a visitor who has to find a
// card first. Chosen.
const DefaultGrace = 10 * time.Minute

func defaultRoom() Room {
	return Room{
		Path:               "/",
		Paths:              PathsClean,
		Method:             "fifo",
		SessionDuration:    5 * time.Minute,
		SessionRenewal:     true,
		QueueingStatusCode: 503,
		Spread:             true,
		MaxWaiting:         2_000_000,
		Hold:               5 * time.Minute,
		HoldPhone:          15 * time.Minute,
		PollMin:            time.Second,
		PollMax:            30 * time.Second,
		Exclude:            defaultExclude(),
		JoinLimit: JoinLimit{Amount: 60, Window: time.Minute, PrefixV4: 32, PrefixV6: 64,
			Action: "lane", DrawWeight: DrawWeight},
		Challenge:      Challenge{Kind: challenge.None, On: challenge.Join, Action: challenge.Log},
		PassSharing:    PassSharing{Networks: 3, Action: "mark"},
		CookieSecure:   CookieSecureAuto,
		CookieSameSite: "lax",

		DefaultTemplateLanguage: "en-US",
	}
}

// defaultExclude returns the paths of files that robots and browsers fetch on their own and that no
// visitor opens on purpose.
func defaultExclude() Exclude {
	return Exclude{
		Paths:       []string{"/robots.txt", "/favicon.ico", "/.well-known/"},
		MaxInFlight: exclude.MaxInFlight, MaxPerAddr: exclude.MaxPerAddr,
	}
}

// DecidesBySession reports whether the decision about a request of a session depends on nothing else:
// it is in the one folder of the room, so it passes and prolongs the session. The default exclusions
// may differ. A connector lets such requests in by the signed pass alone. It does not know which invitations
// are revoked.
func (r *Room) DecidesBySession() bool {
	x, std := &r.Exclude, defaultExclude()
	return r.Checkout.Pass && len(r.Checkout.GracePaths) == 0 && !r.Suspended && !r.Shadow &&
		len(r.Rules) == 0 && !r.CrawlerBypass && len(r.Limits) == 0 && r.Bind == "" &&
		r.Identity.CodesFile == "" &&
		r.PassSharing.Action == defaultRoom().PassSharing.Action && len(r.AdditionalRoutes) == 0 &&
		strings.Trim(r.Path, folderBytes) == "" && len(x.Methods)+len(x.CIDRs)+len(x.Headers) == 0 &&
		len(union(std.Paths, x.Paths)) == len(std.Paths)
}

// folderBytes are the bytes of a folder that everybody spells and compares in the same way.
const folderBytes = "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Places returns all routes of a room, with the main one first.
func (r *Room) Places() *route.Set {
	return route.New(r.routes(), !r.PathCaseSensitive)
}

func (r *Room) routes() []route.Route {
	return append([]route.Route{{Host: r.Host, Path: r.Path}}, r.AdditionalRoutes...)
}

// EventList returns the events of a room, with only their times.
func (r *Room) EventList() []events.Event {
	list := make([]events.Event, len(r.Events))
	for i := range r.Events {
		e := &r.Events[i]
		list[i] = events.Event{Name: e.Name, Prequeue: e.PrequeueStart, Start: e.Start, End: e.End,
			Every: e.Every, Shuffle: e.Shuffle, Suspended: e.Suspended}
	}
	return list
}

// At returns the room with the settings that its events give it at a time, and the state of the
// events.
func (r *Room) At(now time.Time) (Room, events.State) {
	c, m := *r, events.At(r.EventList(), now)
	if m.Active == nil {
		return c, m
	}
	e := &r.Events[m.Active.Index]
	if e.TotalActiveUsers > 0 {
		c.TotalActiveUsers, c.NewUsersPerMinute = e.TotalActiveUsers, e.NewUsersPerMinute
		if c.Auto.Mode != "" {
			c.Auto.Mode = AutoEvent
		}
	}
	if e.SessionDuration > 0 {
		c.SessionDuration = e.SessionDuration
	}
	if e.SessionRenewal != nil {
		c.SessionRenewal = *e.SessionRenewal
	}
	if e.Method != "" {
		c.Method = e.Method
	}
	if e.Message != "" {
		c.Message = e.Message
	}
	return c, m
}

// union returns a, followed by the elements of b that are not in a.
func union(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}
