package headgate

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/boot"
	"github.com/headgate/headgate/internal/challenge"
	"github.com/headgate/headgate/internal/cors"
	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/sessions"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/status"
)

// RoomConfig configures a waiting room. The zero value of a field is a working default, except that
// the two limits must be set: with 0 the room admits nobody.
type RoomConfig struct {
	Name  string // name of the room in cookies, metrics and messages
	Title string // shown to visitors; default Name
	Host  string // "" matches any host
	Path  string // the room is everything below it; default "/"; * stands for any characters except /

	Routes              []Route       // more locations of the room
	IgnoreCase          bool          // /Shop and /shop are the same
	AllowAmbiguousPaths bool          // allow paths with several readings: the strictest decision applies
	CookieSuffix        string        // the cookie's name ends with "_" and this suffix
	CookieDomain        string        // the cookie's domain; "" is the request's host
	FailOpenAfter       time.Duration // all pass after this time without a counter; 0: never

	TotalActiveUsers  int64            // maximum inside at once; exact
	NewUsersPerMinute int64            // maximum in every 60 s; exact
	Auto              status.AutoLimit // finds these limits, in headgate run; zero: they stay as they are
	SessionDuration   time.Duration    // after the last byte of an answer; default 5 m
	FixedSession      bool             // the session ends SessionDuration after it began
	HardEnd           time.Duration    // maximum length of a session; 0: unlimited

	Method    Method    // default MethodFIFO
	QueueAll  bool      // all newcomers have to wait
	Closed    bool      // newcomers get no place; Message gives the reason
	Suspended bool      // the room is off: all requests pass
	Shadow    bool      // decide and count, but hold nobody
	OpensAt   time.Time // the room admits nobody before
	Message   string    // shown to waiting visitors; plain text

	StatusCode    int  // of the waiting page: 503 (default), 200, 202 or 429
	RefreshHeader bool // also send Refresh; it conflicts with the page's script (WCAG 2.2.1)
	NoSpread      bool // call in bursts instead of spacing the calls evenly

	MaxWaiting int64         // the room is then full; default 2,000,000
	Hold       time.Duration // how long an absent visitor keeps the place; default 5 m
	HoldPhone  time.Duration // the same for phones; default 15 m
	CallHold   time.Duration // of a called ticket; default two poll intervals, at least 5 s
	PollMin    time.Duration // default 1 s
	PollMax    time.Duration // default 30 s

	Grace Grace    // paths on which sessions do not end
	Event Event    // the current event; its field Draw is ignored
	Draw  DrawPlan // planned or past draw

	Rules     Rules  // checked before everything else; nil: no rules
	Lanes     []Lane // lanes to which Rules may send newcomers
	Exclude   Exclude
	JoinLimit JoinLimit
	Challenge Challenge // while others wait, a place counts once this is solved

	CORS        *CORS       // answers to preflights; nil: the handler behind the room answers them
	PassSharing PassSharing // what happens to a pass that is used in many networks
	BindHeader  string      // request header: a cookie is valid only with the value with which it was set
	Identity    Identity    // how the room knows people

	Page       Page                             // default: plain text
	ClientAddr func(r *http.Request) netip.Addr // default: RemoteAddr
	Secure     func(r *http.Request) bool       // reports whether the cookie is Secure; default: r.TLS != nil
	SameSite   http.SameSite                    // default Lax, also in place of None without Secure
	Log        *slog.Logger                     // default: discard
	Wall       func() time.Time                 // wall clock for display; default time.Now
	Boot       func() time.Duration             // clock for decisions; default CLOCK_BOOTTIME
	Engine     *Engine                          // stores the records; nil: in memory only
	sealing    *ticket.Ring                     // for tests
	params     slot.Params                      // for tests
}

// ErrConfig is wrapped by every error about an invalid configuration.
var ErrConfig = errors.New("invalid room")

func (c RoomConfig) withDefaults() (RoomConfig, error) {
	c.SessionDuration = cmp.Or(c.SessionDuration, 5*time.Minute)
	c.Hold, c.HoldPhone = cmp.Or(c.Hold, 5*time.Minute), cmp.Or(c.HoldPhone, 15*time.Minute)
	c.PollMin, c.PollMax = cmp.Or(c.PollMin, time.Second), cmp.Or(c.PollMax, 30*time.Second)
	c.MaxWaiting, c.StatusCode = cmp.Or(c.MaxWaiting, 2_000_000), cmp.Or(c.StatusCode, 503)
	c.Path = cmp.Or(c.Path, "/")
	if len(c.Path) > 1 { // /shop/ also matches /shop, and a cookie for /shop/ would not come back from there
		c.Path = strings.TrimSuffix(c.Path, "/")
	}
	c.Method, c.Title = cmp.Or(c.Method, MethodFIFO), cmp.Or(c.Title, c.Name)
	if len(c.Grace.Paths) == 0 {
		c.Grace.For = 0
	}
	c.wire()
	var errs []error
	reject := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("%w: %w", ErrConfig, fmt.Errorf(format, args...)))
		}
	}
	reject(c.CookieSuffix == "" && len(c.Routes) > 0, "further routes need a cookie suffix")
	rules, err := (*cors.Rules)(c.CORS).Fill()
	c.CORS = (*CORS)(rules)
	lim, lanes, asked := c.limits(), slot.CheckLanes(c.lanes()), (*challenge.Config)(&c.Challenge).Check()
	for _, err := range []error{lim[0].Check(), lim[1].Check(), err, asked, lanes} {
		reject(err != nil, "%w", err)
	}
	reject(c.Name == "" || len(c.Name) > 64, "a name of 1 to 64 characters is needed")
	codes := []int{200, 202, 429, 503}
	reject(c.Path[0] != '/' || c.SessionDuration < 0 || !slices.Contains(codes, c.StatusCode),
		"path %q does not begin with /, session %v is below 0, or status %d is none of %v",
		c.Path, c.SessionDuration, c.StatusCode, codes)
	reject(!slices.Contains([]Method{MethodFIFO, MethodRandom, MethodPassthrough, MethodReject}, c.Method),
		"method %q: there are fifo, random, passthrough and reject", c.Method)
	reject(c.Identity.Of != nil && (!c.Identity.Required || c.Identity.Invitation != nil) &&
		c.Engine != nil && c.Engine.datacenters != nil, "a room of several data centers requires an ID, "+
		"and knows no invitations")
	errs = append(errs, (*sessions.Sharing)(&c.PassSharing).SetDefaults(ErrConfig))
	reject(c.HardEnd != 0 && c.HardEnd < c.SessionDuration,
		"hard end %v is before the session duration %v", c.HardEnd, c.SessionDuration)
	return c, errors.Join(errs...)
}

// wire fills in the defaults of what a program may replace.
func (c *RoomConfig) wire() {
	c.Page = cmp.Or[Page](c.Page, plainPage{})
	if c.ClientAddr == nil {
		c.ClientAddr = wire.RemoteAddr
	}
	if c.Secure == nil {
		c.Secure = func(r *http.Request) bool { return r.TLS != nil }
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Boot == nil {
		c.Boot = boot.New().Read
	}
}

// limits returns the room's two limits: users at once, and new users per minute.
func (c *RoomConfig) limits() [2]slot.Limit {
	active, fresh := c.TotalActiveUsers, c.NewUsersPerMinute
	if c.Method == MethodPassthrough && active > 0 && fresh > 0 {
		active, fresh = unlimited, unlimited
	}
	return [2]slot.Limit{
		{Kind: slot.AtOnce, N: active, Per: c.longest()},
		{Kind: slot.PerWindow, N: fresh, Per: time.Minute},
	}
}

// settings returns the settings of the counter that may change.
func (c *RoomConfig) settings() counter.Settings {
	lim := c.limits()
	return counter.Settings{
		Active: lim[0], New: lim[1], Spread: !c.NoSpread && c.Method != MethodPassthrough,
		RandomOrder: c.Method == MethodRandom, AdmitAll: c.Method == MethodPassthrough,
		Line: counter.LineConfig{
			MaxWaiting: c.MaxWaiting, PollMin: c.PollMin, PollMax: c.PollMax,
			CallHold: c.CallHold, Hold: max(c.Hold, c.HoldPhone),
		},
		Lanes: c.lanes(), Auto: c.Auto, DrawWeight: c.JoinLimit.DrawWeight,
		Endless: c.Challenge.Endless && c.Method != MethodPassthrough,
		AtClaim: c.Challenge.On == challenge.Claim && c.Method != MethodPassthrough,
	}
}

// lanes returns the lanes of the room.
func (c *RoomConfig) lanes() (lanes []slot.Lane) {
	for _, x := range c.Lanes {
		lanes = append(lanes, slot.Lane(x))
	}
	if c.Challenge.Kind != "" {
		lanes = append(lanes, challenge.Lane())
	}
	return lanes
}

// A Challenge is what the browsers of newcomers have to do before their places count, or are called.
type Challenge struct {
	Kind              string            // "work", "turnstile", "hcaptcha" or "recaptcha"; "" is none
	On                string            // "claim" or "draw": when it is asked; "" is the join
	PublicKey, Secret string            // of a third party: for its widget, and for its endpoint
	VerifyURL         string            // default: that of the third party
	Hostnames         []string          // of the pages with the widget; default: the host of the request
	FailOpen          bool              // tickets need no token while the third party does not answer
	Endless           bool              // of a third party: whoever fails waits without end, not in a lane
	ByRules           bool              // only newcomers for whom Rules return RuleChallenge have it
	Transport         http.RoundTripper // to the third party; default http.DefaultTransport
}

// A Route is an additional location of a room: a host ("" is any host) and a folder with everything
// below it.
type Route struct{ Host, Path string }

// Exclude selects requests that pass without being counted, such as payment webhooks. The zero
// value is the defaults: OPTIONS, HEAD, /robots.txt, /favicon.ico and /.well-known/.
type Exclude struct {
	NoDefaults bool     // if false, also /robots.txt, /favicon.ico and /.well-known/
	Paths      []string // a path that ends with / or * is a prefix
	Methods    []string
	CIDRs      []netip.Prefix
	Headers    []string // "Name", or "Name: value"

	Upgrade     bool // these requests may also open a WebSocket
	MaxInFlight int  // at the same time; 0 is 1,000, or 100 of one address
	MaxPerAddr  int  // an IPv4 address, or 64 bits of an IPv6 address
}

// A JoinLimit limits how many newcomers one network may send in a window while others wait.
// Newcomers above the limit wait in a lane of their own, with a tenth of the calls. The next wider
// network, which contains 256 or 65,536 such networks, may send twice as many. Requests from this
// machine's own address are not limited.
type JoinLimit struct {
	Amount   int           // 0 is off
	Window   time.Duration // default 1 m
	PrefixV4 int           // default 32
	PrefixV6 int           // default 64
	Refuse   bool          // newcomers above the limit get no place
	// DrawWeight is how many chances all tickets of one network have together in draws; 0: no bound.
	DrawWeight int
}

// PassSharing configures what happens when a pass is used from more than a number of networks.
type PassSharing struct {
	Networks int // default 3
	// Action is "mark" (the default: the session is counted), "wait" (the request is handled as a
	// newcomer's) or "end" (the session ends).
	Action string
}

// CORS configures which pages of other origins may send which requests. The room then answers
// preflights itself, in every state, and lets these pages read its own answers. It does not change
// the answers of the handler behind it.
type CORS struct {
	// Origins are scheme://host, in lower case, with the port unless it is the scheme's default. A
	// host that begins with "*." matches any host below that domain. "*" matches all origins.
	Origins []string

	Methods     []string      // in capitals, or "*"; default GET, HEAD and POST
	Headers     []string      // in canonical form; "*" does not include Authorization
	MaxAge      time.Duration // how long browsers may cache the answer to a preflight; default 5 s
	Credentials bool          // requests may contain cookies; not with "*"
}

// A Lane is a line beside the ordinary line. Of any hundred calls it gets at most Share while a
// present visitor waits in the ordinary line. A visitor who joins a lane stays in it.
type Lane struct {
	Name  string
	Share int // 1 to 99
}

// Grace keeps sessions from ending on some paths, such as those of the checkout: no session ends
// within For after a request on such a path, except at its hard end. A fixed session is extended by
// For in total. The slot stays taken, and the later end is in the record before the answer is sent.
type Grace struct {
	Paths []string // a path that ends with / or * is a prefix
	For   time.Duration
}

// A Method selects which visitor is admitted next.
type Method string

// Methods of a room. When the method changes, all visitors keep their place and time of arrival.
const (
	// MethodFIFO calls visitors in the order of arrival. It is the default.
	MethodFIFO Method = "fifo"
	// MethodRandom calls visitors at random: each present visitor is equally likely.
	MethodRandom Method = "random"
	// MethodPassthrough admits all visitors and counts them. The limits are not in force.
	MethodPassthrough Method = "passthrough"
	// MethodReject admits no newcomers and gives them no place.
	MethodReject Method = "reject"
)

// unlimited is the limit of a room that admits all visitors. It is larger than any number of
// visitors, and small enough that no arithmetic of limits overflows.
const unlimited = 1_000_000_000
