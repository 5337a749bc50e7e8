// Package config turns one strict YAML file, or the flags of headgate run, into a Config. No other
// package of headgate reads either of them.
//
// # The promise
//
// A Config that comes from [Load], [Parse] or [ParseRun] is complete: every default is filled in
// and every value has been checked, alone and against the others, so that its users need no checks
// of their own. All mistakes are reported at once: the error joins one [*Fault] for each mistake,
// with file, line, column, key and a hint. An unknown key is a mistake too. A key that is not
// written has its default, so the shortest room is a name, an origin and its two limits.
//
// What is allowed but odd does not fail; it is listed in Config.Warnings.
//
// # Concurrency and cost
//
// The package has no state: every function may be called by many goroutines at once. A file is at
// most 1 MB, 32 levels deep and 100,000 values long, where an anchored value counts each time it is
// used. The worst file of that size takes about a second and 500 MB to reject.
//
// # What it does not do
//
// It does not resolve names, open addresses or create folders. It reads no other files and no
// clock, with three exceptions: for cluster it reads the join file or the certificates and checks
// that they have not expired, for engine it checks the files, and for limits it reads the time
// zones of the machine. It does not replace environment variables in values, and it does not watch
// the file. The environment supplies only what traces leaves out.
package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/cors"
	"github.com/headgate/headgate/internal/exclude"
	"github.com/headgate/headgate/internal/route"
	"github.com/headgate/headgate/internal/rules"
)

// A Config holds everything that headgate run needs.
type Config struct {
	// File is the path of the file that the configuration came from; "" when it came from flags.
	File string

	// Listen is the address, host:port, at which visitors connect. Default ":8080".
	Listen string

	// AdminListen is the address of health, metrics and the management API. Default
	// "127.0.0.1:8081". It serves plain HTTP: keep it private.
	AdminListen string

	// Data is the folder for what must survive a restart. Default "./headgate-data". It is created
	// when it does not exist.
	Data string

	// DrainDelay is how long a process that is shutting down still serves visitors while its
	// readiness check fails, so that load balancers stop sending requests to it before its
	// listeners close. Default 2 s with Cluster or Engine, else none.
	DrainDelay time.Duration

	// TLS configures HTTPS for visitors. The zero TLS is none.
	TLS TLS

	// TrustedProxies lists the networks whose forwarding headers are trusted. Default none.
	// Networks are masked, and IPv4-mapped ones are written as IPv4.
	TrustedProxies []netip.Prefix

	// MaxConnections is how many connections one IPv4 address, or 64 bits of an IPv6 address, may
	// have at Listen and TLS.Listen together. Trusted proxies have no limit. Loopback addresses
	// have one only if BoundLoopback is set, which means that the key is written in the file.
	// Default 256.
	MaxConnections int64
	BoundLoopback  bool

	// BodyTimeout is the longest pause within the body of a request, BodyRate the bytes per second
	// that a body must keep up, and WriteTimeout how long a client may take for 32 KiB of an
	// answer. Defaults 30 s, 1,024 and 60 s.
	BodyTimeout, WriteTimeout time.Duration
	BodyRate                  int64

	// Cluster configures the cluster that this process belongs to; nil is none.
	Cluster *Cluster

	// Engine configures the operator's own NATS, which keeps the records; nil is none. It excludes
	// Cluster.
	Engine *Engine

	// Limits are the rate limits, in the order of the file. Default none.
	Limits []Limit

	// Queues keep jobs and deliver them to targets, in the order of the file. Default none.
	Queues []Queue

	// Webhooks receive messages about events, in the order of the file. Default none.
	Webhooks []Webhook

	// Envoy configures the rate limit service for Envoy; nil is none.
	Envoy *Envoy

	// Lists are the lists that the expressions of rules refer to as $name. Default none.
	Lists []List

	// Crawlers are verified in addition to the built-in ones. Default none.
	Crawlers []Crawler

	// Analytics configures how long statistics are kept.
	Analytics Analytics

	// Traces configures the recording of requests and deliveries; nil is none.
	Traces *Traces

	// Zones are domains whose rooms are created by the management API, in the order of the file.
	// Default none: then all rooms belong to one zone.
	Zones []Zone

	// Rooms are the waiting rooms, in the order of the file: at least one, unless there are Limits,
	// Queues, Zones or Envoy.
	Rooms []Room

	// Warnings lists what is allowed but odd. It is empty in a good file.
	Warnings []Fault

	over  []flagValue // flags that override the file, for Again
	lists map[string]*rules.List
}

// The values of Room.Paths.
const (
	PathsClean      = "clean"        // redirect the request to the clean spelling, or reject it
	PathsAsTheyCome = "as_they_come" // let it pass; the strictest decision counts
)

// CookieSecure selects when the room's cookie has the Secure attribute.
type CookieSecure string

// The values of Room.CookieSecure.
const (
	CookieSecureAuto   CookieSecure = "auto"   // when the visitor came by HTTPS
	CookieSecureAlways CookieSecure = "always" // also when headgate receives plain HTTP
	CookieSecureNever  CookieSecure = "never"  // for sites that use only HTTP
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

	// PassSharing configures what happens to a pass that is used in many networks.
	PassSharing PassSharing

	// Bind is header:NAME. A cookie is valid only with the value of that header with which it was
	// set. Default none.
	Bind string

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

// JoinLimit bounds how many newcomers one network sends in a window while others wait. The next
// wider network may send twice as many.
type JoinLimit struct {
	Amount   int64         // newcomers in a window, default 60; 0 is no limit
	Window   time.Duration // 1 second to 1 day, default 1 minute
	PrefixV4 int           // bits that make an IPv4 network, default 32
	PrefixV6 int           // bits that make an IPv6 network, default 64
	Action   string        // for newcomers above it: lane, the default, or refuse
}

// PassSharing configures what happens to a pass that is used in more than Networks networks.
type PassSharing struct {
	Networks int    // 1 to 8, default 3
	Action   string // "mark", the default, "wait" or "end"
}

// BindHeader returns the name of the header in Bind, or "".
func (r *Room) BindHeader() string { return strings.TrimPrefix(r.Bind, bindHeader) }

const bindHeader = "header:"

// maxFile is the size of the largest file that is read. Chosen: 1,000 rooms with all keys written
// out are about half of it.
const maxFile = 1 << 20

// Load reads and checks the file at path. See [Parse] for its errors. A file that cannot be read is
// a *Fault too, which unwraps to the reason.
func Load(path string) (*Config, error) {
	return load(path, nil)
}

// Parse checks b and returns the configuration in it. Messages refer to the file by name. The error
// joins one *Fault for each mistake; [Faults] takes it apart.
func Parse(name string, b []byte) (*Config, error) {
	return parse(name, b, nil)
}

// load is Load with flags that override keys of the file.
func load(path string, over []flagValue) (*Config, error) {
	b, err := readFile(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	return parse(path, b, over)
}

// parse is Parse with flags that override keys of the file.
func parse(name string, b []byte, over []flagValue) (*Config, error) {
	d := newDecoder(name)
	c := defaultConfig()
	c.File, c.over = name, over
	if root := d.tree(b); root != nil {
		d.mapping("", root, configFields(&c))
		d.override(configFields(&c), "", over)
	}
	return d.finish(&c)
}

// readFile reads at most one byte more than maxFile, which parse then rejects: path may be a pipe
// or a device without an end.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// unreadable explains why a file could not be read.
func unreadable(path string, err error) *Fault {
	f := &Fault{File: path, cause: err}
	switch {
	case path == "":
		f.Key = "--config"
		f.Problem, f.Hint = "names no file", "write --config headgate.yaml"
	case errors.Is(err, fs.ErrNotExist):
		f.Problem = "there is no such file"
		f.Hint = "name the configuration with --config FILE"
	case errors.Is(err, fs.ErrPermission):
		f.Problem = "may not be read by this user"
		f.Hint = "run headgate as a user who may read it, or change its permissions"
	default:
		// The path is in f.File already: do not repeat it.
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err
		}
		f.Problem = fmt.Sprintf("cannot be read: %v", err)
		f.Hint = "name a plain file with --config FILE"
	}
	return f
}

func defaultConfig() Config {
	return Config{
		Listen:      ":8080",
		AdminListen: "127.0.0.1:8081",
		Data:        "./headgate-data",
		Analytics:   defaultAnalytics(),

		MaxConnections: 256,
		BodyTimeout:    30 * time.Second,
		BodyRate:       1024,
		WriteTimeout:   time.Minute,
	}
}

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
			Action: "lane"},
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
