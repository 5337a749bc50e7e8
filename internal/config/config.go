// Package config turns one strict YAML file, or the flags of headgate run,
// into a Config. Nothing else in headgate reads either.
//
// # The promise
//
// A Config that comes from [Load], [Parse] or [ParseRun] is complete: every
// default is filled in and every value has been checked, alone and against its
// neighbours, so that a reader needs no check of its own. What is wrong is
// told all at once: the error joins one [*Fault] for each mistake, with file,
// line, column, key and a hint. A key that does not exist is a mistake too. A
// key that is not written has its default, so the shortest room is a name, an
// origin and its two limits.
//
// What is allowed but odd does not fail; it is listed in Config.Warnings.
//
// # Concurrency and cost
//
// The package has no state: every function may be called by many goroutines
// at once. A file is at most 1 MB, 32 levels deep and 100,000 values long, an
// anchored value counted each time it is used; the worst file of that size
// takes about a second and 500 MB to refuse.
//
// # What it does not do
//
// It does not resolve names, open addresses or create folders. It reads no other
// files and no clock, but for cluster, whose join file or certificates are read,
// and whether they are over is seen, for engine, whose files are looked at, and for
// the time zones of limits, which are those of the machine.
// It does not replace environment variables in values, and it does not watch the
// file. The environment says what traces leaves out, and nothing else.
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

// A Config is all that headgate run needs to know.
type Config struct {
	// File is where the configuration was read from; "" when flags gave it.
	File string

	// Listen is the address, host:port, at which visitors arrive. Default ":8080".
	Listen string

	// AdminListen is the address of health, metrics and the management API.
	// Default "127.0.0.1:8081". It speaks plain http: keep it private.
	AdminListen string

	// Data is the folder that holds what must outlive the process. Default
	// "./headgate-data". It is created when it does not exist.
	Data string

	// DrainDelay is for how long a process that was told to end goes on taking
	// visitors while readiness says no, so that balancers turn away from it before its
	// listeners close. Default 2 s with Cluster or Engine, else none.
	DrainDelay time.Duration

	// TLS says where visitors arrive by https. The zero TLS is none.
	TLS TLS

	// TrustedProxies lists the networks whose forwarding headers are believed.
	// Default none. Networks are masked and written in IPv4 where they are IPv4.
	TrustedProxies []netip.Prefix

	// MaxConnections is how many connections one IPv4 address, or 64 bits of an IPv6 address, may
	// have at Listen and TLS.Listen together. Trusted proxies have no bound, and neither has this
	// machine itself unless BoundLoopback: the key is in the file. Default 256.
	MaxConnections int64
	BoundLoopback  bool

	// BodyTimeout is the longest silence within the body of a request, BodyRate the bytes a second
	// that a body needs to go on, and WriteTimeout how long a client may take for 32 KiB of an
	// answer. Defaults 30 s, 1,024 and 60 s.
	BodyTimeout, WriteTimeout time.Duration
	BodyRate                  int64

	// Cluster says which other processes are one room with this one; nil is none.
	Cluster *Cluster

	// Engine names the operator's own NATS that keeps the records; nil is none. It is
	// not beside Cluster.
	Engine *Engine

	// Limits are the rate limits, in the order of the file. Default none.
	Limits []Limit

	// Queues keep jobs for targets, in the order of the file. Default none.
	Queues []Queue

	// Webhooks are told of what happens, in the order of the file. Default none.
	Webhooks []Webhook

	// Envoy says where Envoy's rate limit service is answered; nil is nowhere.
	Envoy *Envoy

	// Lists are what the expressions of rules ask by in $name. Default none.
	Lists []List

	// Crawlers are verified beside those that are known. Default none.
	Crawlers []Crawler

	// Analytics says what is kept of what was counted.
	Analytics Analytics

	// Traces says what is recorded of requests and deliveries; nil is nothing.
	Traces *Traces

	// Zones are domains whose rooms are made by the management API, in the order of the file.
	// Default none: then all rooms are of one zone.
	Zones []Zone

	// Rooms are the waiting rooms, in the order of the file: at least one, unless there are
	// Limits, Queues or Zones, or Envoy asks.
	Rooms []Room

	// Warnings lists what is allowed but odd. It is empty in a good file.
	Warnings []Fault

	over  []flagValue // flags that stand above the file, for Again
	lists map[string]*rules.List
}

// The values of Room.Paths.
const (
	PathsClean      = "clean"        // the request is sent to the clean spelling, or refused
	PathsAsTheyCome = "as_they_come" // it passes, and the strictest decision counts
)

// CookieSecure says when the room's cookie carries the Secure attribute.
type CookieSecure string

// The values of Room.CookieSecure.
const (
	CookieSecureAuto   CookieSecure = "auto"   // when the visitor came by https
	CookieSecureAlways CookieSecure = "always" // also when headgate is asked by http
	CookieSecureNever  CookieSecure = "never"  // for sites that are http only
)

// A Room is one waiting room in front of one origin.
type Room struct {
	// Name identifies the room in the cookie, metrics and the data folder:
	// 1 to 64 of A-Z a-z 0-9 _ and -. Required and unique. The room of
	// headgate run without a file is named "main".
	Name string

	// Title is what visitors read. Default the name.
	Title string

	// Host is the host name the room stands for, in lower case, without a port
	// and without the brackets of an IPv6 address. "" is any host.
	Host string

	// Path is the folder the room stands for: itself and everything below it.
	// Default "/". It begins with a slash and, except for "/", ends without one. A star in it
	// is any characters but a slash, none among them.
	Path string

	// PathCaseSensitive tells /Shop and /shop apart. Default false: many origins do not.
	PathCaseSensitive bool

	// Paths says what becomes of a request whose path can be read in several ways that lead to
	// different decisions: clean or as_they_come. Default clean.
	Paths string

	// AdditionalRoutes are more hosts and folders of the room, at most 100. All hosts are one, or
	// have a domain in common of which browsers take a cookie along. Default none.
	AdditionalRoutes []route.Route

	// Origin is what is behind the room: an http or https URL with a host and
	// perhaps a path, and nothing else. Required.
	Origin *url.URL

	// TotalActiveUsers is how many visitors may be inside at once. Required,
	// at least 1.
	TotalActiveUsers int64

	// NewUsersPerMinute is how many visitors may enter in any minute. Required,
	// at least 1.
	NewUsersPerMinute int64

	// SessionDuration is how long a visitor stays inside after the last answer,
	// or after entering when SessionRenewal is false. 1 second to 30 days,
	// default 5 minutes.
	SessionDuration time.Duration

	// SessionRenewal lets each request of a visitor begin SessionDuration anew.
	// Default true.
	SessionRenewal bool

	// HardEnd is the longest stay, whatever renewal says. 0, the default, is
	// none; else at least SessionDuration.
	HardEnd time.Duration

	// Method says who is let in next: fifo, random, passthrough or reject. Default fifo.
	Method string

	// QueueAll holds the line: newcomers wait and nobody is called.
	QueueAll bool

	// Closed shuts the room: no newcomer gets a ticket and nobody is called. The
	// message says why; places and passes stand.
	Closed bool

	// Suspended switches the room off: everyone passes, uncounted.
	Suspended bool

	// Shadow counts and decides as usual, and lets everyone pass.
	Shadow bool

	// OpensAt holds the line until this time. The zero time is no opening.
	OpensAt time.Time

	// Message is shown to those who wait: plain text, at most 500 characters.
	Message string

	// QueueingStatusCode is the status of the waiting page: 200, 202, 429 or
	// 503. Default 503.
	QueueingStatusCode int

	// RefreshHeader adds the Refresh header to the waiting page, for clients
	// that understand neither scripts nor HTML. Default false.
	RefreshHeader bool

	// Spread spaces the calls evenly while anyone waits, so that the limits do
	// not pulse. Default true.
	Spread bool

	// MaxWaiting is the length of the line above which newcomers get no place.
	// Default 2,000,000.
	MaxWaiting int64

	// Hold is how long the place of a silent visitor is kept. 1 second to
	// 30 days, longer than PollMax, default 5 minutes.
	Hold time.Duration

	// HoldPhone is Hold for phones, whose browsers sleep in the pocket.
	// Default 15 minutes, or Hold when that is longer.
	HoldPhone time.Duration

	// CallHold is how long a slot is reserved for a visitor who was called.
	// 0, the default, is automatic: the longer of 5 seconds and twice the
	// polling interval the visitor was given.
	CallHold time.Duration

	// PollMin and PollMax bound the polling interval told to those who wait.
	// 100 milliseconds to 10 minutes, defaults 1 and 30 seconds.
	PollMin, PollMax time.Duration

	// Rules are asked about each request before all else, in this order. Default none.
	Rules []Rule

	// CrawlerBypass lets verified search engines pass uncounted. Default false.
	CrawlerBypass bool

	// Events change the room for a time. Default none.
	Events []Event

	// Exclude says which requests pass without being counted.
	Exclude Exclude

	// CORS says how preflights are answered; nil: the origin answers them. Default nil.
	CORS *cors.Rules

	// JoinLimit bounds how many join from one network.
	JoinLimit JoinLimit

	// PassSharing says what becomes of a pass that is used in many networks.
	PassSharing PassSharing

	// Bind is header:NAME: cookies are good with the value of that header alone with which they were
	// set. Default none.
	Bind string

	// Limits are the names of the limits that each request of the room meets. Default
	// none.
	Limits []string

	// FailOpenAfter is for how long the room's counter must have been asked in vain until visitors
	// pass uncounted. 1 second to 1 day; 0, the default, is never: they wait.
	FailOpenAfter time.Duration

	// CookieSuffix ends the name of the cookie, after "_". Needed with AdditionalRoutes.
	CookieSuffix string

	// CookieSecure says when the cookie carries Secure. Default auto.
	CookieSecure CookieSecure

	// CookieSameSite is SameSite of the cookie: lax, strict or none. A cookie that is not Secure
	// cannot be none: it is lax. Default lax.
	CookieSameSite string

	// DefaultTemplateLanguage is the language of those who ask for none that there is: one of
	// pages.Languages. Default en-US.
	DefaultTemplateLanguage string

	// Page is the room's own page. Default none.
	Page Page

	// Checkout is what the room does for those who pay. Default nothing.
	Checkout Checkout
}

// Exclude lists requests that pass uncounted: one match is enough. The
// defaults come first, unless the file says exclude.defaults: false.
type Exclude struct {
	// Paths begin with a slash. One that ends with a slash or a star stands
	// for all that begin like it (the star itself left out); any other stands
	// for itself alone. Defaults /robots.txt, /favicon.ico and /.well-known/.
	Paths []string

	// Methods are in capitals. Default none: preflights and HEAD have rules of
	// their own.
	Methods []string

	// CIDRs are networks of visitors.
	CIDRs []netip.Prefix

	// Headers are "Name", present with any value, or "Name: value", present
	// present with exactly this one. Names are in canonical form.
	Headers []string

	// Upgrade lets an excluded request open a WebSocket. Default false: what passes inside is
	// not counted either.
	Upgrade bool

	// MaxInFlight is how many excluded requests may be in flight at the same time, MaxPerAddr how
	// many of one IPv4 address or 64 bits of an IPv6 address. Defaults 1,000 and 100.
	MaxInFlight, MaxPerAddr int64
}

// JoinLimit bounds how many newcomers one network sends in a window while others wait, and twice
// as many the next wider one.
type JoinLimit struct {
	Amount   int64         // newcomers in a window, default 60; 0 is no limit
	Window   time.Duration // 1 second to 1 day, default 1 minute
	PrefixV4 int           // bits that make an IPv4 network, default 32
	PrefixV6 int           // bits that make an IPv6 network, default 64
	Action   string        // those above it: lane, the default, or refuse
}

// PassSharing says what becomes of a pass that is used in more than so many networks.
type PassSharing struct {
	Networks int    // 1 to 8, default 3
	Action   string // "mark", the default, "wait" or "end"
}

// BindHeader is the name of the header that Bind names, "" for none.
func (r *Room) BindHeader() string { return strings.TrimPrefix(r.Bind, bindHeader) }

const bindHeader = "header:"

// maxFile is the largest file that is read. Chosen: 1,000 rooms with all keys
// written out are about half of it.
const maxFile = 1 << 20

// Load reads and checks the file at path. See [Parse] for its errors; a file
// that cannot be read is a *Fault too, and unwraps to the reason.
func Load(path string) (*Config, error) {
	return load(path, nil)
}

// Parse checks b and returns the configuration in it. The name stands for the
// file in messages. The error joins one *Fault for each mistake; [Faults]
// takes it apart.
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

// readFile returns at most one byte more than may be, which parse refuses:
// path may be a pipe or a device without an end.
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
		// The path is in f.File already: say each fact once.
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

// defaultExclude is what no person at a browser asks for on purpose:
// files that robots and browsers fetch on their own.
func defaultExclude() Exclude {
	return Exclude{
		Paths:       []string{"/robots.txt", "/favicon.ico", "/.well-known/"},
		MaxInFlight: exclude.MaxInFlight, MaxPerAddr: exclude.MaxPerAddr,
	}
}
