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
//
// # The files
//
// From the top down; a file uses only those below it.
//
//	load, amend, limitjson    entry: a file, flags, a change of one room, one limit as JSON
//	check                     values against each other, after all are read; warnings
//	fields                    every key and its reader
//	clusterkeys, engine, ...  sections: how a group of keys is read and checked
//	decode                    the walk of the nodes; it collects the mistakes
//	address, scalar           how a single value is read
//	config, room, cluster     the types of the result
//	fault                     mistakes
package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/limit"
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

	// Plans are other amounts of limits, by the plan of the caller; nil is none.
	Plans *Plans

	// Queues keep jobs and deliver them to targets, in the order of the file. Default none.
	Queues []Queue

	// Webhooks receive messages about events, in the order of the file. Default none.
	Webhooks []Webhook

	// Envoy configures the rate limit service for Envoy; nil is none.
	Envoy *Envoy

	// Decide configures the address at which proxies ask about requests that they forward
	// themselves; nil is none.
	Decide *Decide

	// Lists are the lists that the expressions of rules refer to as $name. Default none.
	Lists []List

	// Crawlers are verified in addition to the built-in ones. Default none.
	Crawlers []Crawler

	// Analytics configures how long statistics are kept.
	Analytics Analytics

	// Traces configures the recording of requests and deliveries; nil is none.
	Traces *Traces

	// Turnstile has the widgets of Cloudflare's Turnstile that rooms of the management API may show, in
	// the order of TurnstileModes. Default none.
	Turnstile []Widget

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

// A flagValue is the value of a flag, with the key that the flag sets.
type flagValue struct{ key, text string }

// flagName returns the flag of a key: --session-duration for rooms[0].session_duration.
func flagName(key string) string {
	key = key[strings.LastIndexByte(key, '.')+1:]
	return "--" + strings.ReplaceAll(key, "_", "-")
}

// TLS configures HTTPS for visitors and the source of the certificate: two files, or ACME.
type TLS struct {
	// Listen is the address, host:port, at which visitors connect by HTTPS. "" is no HTTPS; when
	// tls is written the default is ":8443".
	Listen string

	// Certificate and Key are PEM files: the certificate of the site, followed by its
	// intermediates, and its private key. Both or none.
	Certificate, Key string

	// ACME obtains and renews certificates instead. It is in use if it has domains.
	ACME ACME

	// Redirect sends visitors from HTTP to HTTPS. Default true.
	Redirect bool

	// HSTS is how long browsers must use only HTTPS for the host. 0, the default, sends no HSTS
	// header.
	HSTS time.Duration
}

// On reports whether visitors can connect by HTTPS.
func (t *TLS) On() bool { return t.Listen != "" }

// ACME configures the issuer of certificates and their domains.
type ACME struct {
	Domains   []string // host names in lower case; one certificate for each
	Email     string   // contact address for the issuer; may be ""
	Directory string   // https URL of the issuer; default Let's Encrypt
	Root      string   // PEM file of the CA of Directory; "" is the system's
}

// Traces configures which requests and deliveries are traced, and where the traces are sent.
type Traces struct {
	// Endpoint is the full URL of a collector of OTLP over HTTP. The default is
	// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT of the environment, else
	// http://localhost:4318/v1/traces.
	Endpoint string

	// Headers are sent with each batch: "Name: value". The default is
	// OTEL_EXPORTER_OTLP_TRACES_HEADERS or OTEL_EXPORTER_OTLP_HEADERS of the environment.
	Headers []string

	// Sample is the fraction of requests and deliveries without a trusted parent that is recorded:
	// 0 to 1. The default is OTEL_TRACES_SAMPLER_ARG of the environment, else 0.01.
	Sample float64

	// Parents are the peers whose traceparent header is trusted. Default none.
	Parents []netip.Prefix

	// Service is the service name of this process. "" is the name in the environment, else
	// headgate.
	Service string

	// Paths allows the recording of URL paths. Default true.
	Paths bool
}

// Analytics configures how long statistics are kept in the data folder.
type Analytics struct {
	// Enabled stores statistics on disk. Default true.
	Enabled bool

	// Keep is how long per-minute statistics are kept. A day to a year, in whole days, default 30.
	Keep time.Duration

	// KeepHours is how long hourly statistics are kept. A day to ten years, in whole days, default
	// 365.
	KeepHours time.Duration

	// MaxBytes is how much disk space the statistics may take. 10 MB to 1 TB, default 1 GB.
	MaxBytes int64
}

func defaultAnalytics() Analytics {
	return Analytics{Enabled: true, Keep: 30 * day, KeepHours: 365 * day, MaxBytes: 1 << 30}
}

// A Webhook receives messages about rooms and limits by HTTP.
type Webhook struct {
	// Name identifies the webhook in the API and in metrics: 1 to 56 of A-Z a-z 0-9 _ and -.
	// Required and unique.
	Name string

	// URL is where messages are posted: http or https. The part after the host is never shown,
	// because many services put a secret there. Required.
	URL string

	// SecretFiles are files that each hold a secret for signatures, whsec_ and base64. At least one
	// is required, and more than one while a secret is rotated.
	SecretFiles []string

	// On lists the kinds of messages to send. Default all of webhook.Kinds.
	On []string

	// Rooms lists the rooms whose messages are sent. Default none: messages of all rooms and
	// limits.
	Rooms []string

	// Dashboard is the address of the dashboard, for links in messages. Default none.
	Dashboard string
}

// WebhookQueue is the prefix of the names of webhook queues.
const WebhookQueue = "webhook_"

// An Engine configures the operator's own NATS, which keeps the records of all processes that share
// it. Its files existed when the configuration was read; they are read again for each connection.
type Engine struct {
	// URLs are nats://host:port or tls://host:port, at least one.
	URLs []string

	// Credentials is the path of a file that only its owner may read; "" is none.
	Credentials string

	// Kind is the kind of Credentials, "" for none.
	Kind CredentialKind

	// CA is a PEM file with the trusted authorities; "" uses those of the system.
	CA string

	// Cert and Key are PEM files with which this process authenticates itself. Both or none.
	Cert, Key string

	// Replicas is the number of servers that keep each record: 1 or 3. 0, the default, is three in
	// a NATS cluster and one on a single server.
	Replicas int

	// Name is the name of this process among those that share the engine. "" is a random name,
	// chosen when it starts.
	Name string
}

// CredentialKind is the kind of a file of credentials.
type CredentialKind string

// An Envoy configures the rate limit service for Envoy and its rules.
type Envoy struct {
	// Listen is the address, host:port, of the gRPC service. Required. It serves plain HTTP/2: keep
	// it private.
	Listen string

	// Rules are files in the format of envoyproxy/ratelimit, one for each domain. A
	// relative path starts at the folder of the configuration file.
	Rules []string

	// Headers makes Envoy add RateLimit-Limit, -Remaining and -Reset to its answers.
	Headers bool

	// Decide answers external authorization: whether a request may pass the rooms. Without it,
	// Rules are required.
	Decide bool
}

// Asked reports whether proxies ask about requests that they forward themselves.
func (c *Config) Asked() bool { return c.Decide != nil || c.Envoy != nil && c.Envoy.Decide }

// A Decide configures the address at which proxies ask whether a request may pass.
type Decide struct {
	// Listen is the address, host:port. Required. Only TrustedProxies may ask there. It serves plain
	// HTTP: keep it private.
	Listen string
}

// A Zone is a domain whose rooms are created by the management API.
type Zone struct {
	// Name is the domain: the zone contains the rooms of this name and of all names below it.
	// Required.
	Name string

	// ID identifies the zone in the paths of the API: 1 to 64 of A-Z a-z 0-9 _ and -, such as the
	// 32 digits of a Cloudflare zone ID. "" is an ID derived from the name.
	ID string

	// Origin is the origin of rooms that do not set their own. nil is none.
	Origin *url.URL
}

// A Limit bounds how often each key may do something.
type Limit struct {
	// Name is the name by which rooms and the API refer to it: 1 to 64 of A-Z a-z 0-9 _ and -.
	// Required and unique.
	Name string

	// Rule is the arithmetic. Its algorithm and amount are required, and so is its window, unless
	// the algorithm or the calendar determines it. Parts, Lease and Zone are filled in; Burst 0 is
	// the amount.
	limit.Rule

	// Auto finds the amount of a concurrency limit by what the origin answers to its calls. Amount is
	// then the one to start with.
	Auto Auto

	// Unit is the unit of the amount: requests, units, request_bytes or response_bytes. Default
	// requests.
	Unit string

	// Key lists the parts of a request that are counted separately. An empty Key is one key for all
	// requests.
	Key []KeyPart

	// Cost is the cost of a call, at least 1. Default 1. For the units in bytes the size of the
	// body is the cost.
	Cost int64

	// CostHeader is the request header that contains the cost of a call; "" is none. A call without
	// the header costs 1.
	CostHeader string

	// CostField leads to a number in the JSON body of a call, which is added to Cost: keys with dots between
	// them. "" is none.
	CostField string

	// Settle says where the answer tells what a call has cost. The zero value is nowhere.
	Settle Settle

	// Overrides are amounts for particular keys.
	Overrides map[string]int64

	// Plans are amounts for callers with a plan. In the file, they stand under plans.amounts.
	Plans map[string]int64

	// Soft counts and marks calls beyond the amount, and never denies.
	Soft bool

	// Shadow counts but never denies, and marks nothing.
	Shadow bool

	// Scope is the set of processes that share the limit: worker (each process has its own),
	// datacenter, or global (all). Default global.
	Scope string

	// OnUnreachable is what happens when the host of the key's shard cannot be reached: local, deny
	// or allow. Default local.
	OnUnreachable string

	// MaxKeys bounds how many keys are held at once. Default 1,000,000.
	MaxKeys int

	// Usage records what each key uses, by hour and by day.
	Usage bool

	// Headers is the style of the limit headers in answers: ietf, draft06, draft03, legacy or none.
	// Default ietf.
	Headers string
}

// A Settle says where an answer tells what its call has cost: in a header, in a field of its JSON, or by
// the tokens of a model, of which each costs Input or Output.
type Settle struct {
	Header, Field string
	Input, Output int64
}

// A KeyPart is one property of a request that distinguishes callers.
type KeyPart struct {
	// Kind is one of the kinds below.
	Kind string

	// Name is the name of the header, in canonical form, or of the cookie.
	Name string

	// Prefix4 and Prefix6 are how many bits of an address count: 1 to 32, default 32, and 1 to 128,
	// default 64, which is what one caller usually has (RFC 7421 §1).
	Prefix4, Prefix6 int
}

// String returns the part in the notation of the file.
func (p KeyPart) String() string {
	switch p.Kind {
	case KeyAddress:
		return fmt.Sprintf("%s/%d/%d", p.Kind, p.Prefix4, p.Prefix6)
	case KeyHeader, KeyCookie:
		return p.Kind + ":" + p.Name
	}
	return p.Kind
}

// The kinds of key parts.
const (
	KeyAddress = "client_address" // of the visitor, resolved through trusted proxies
	KeyHeader  = "header"
	KeyCookie  = "cookie"
	KeyPath    = "path"
	KeyMethod  = "method"
	KeyHost    = "host"
	KeySession = "session" // the room's session; without one the visitor's address
	KeyPerson  = "person"  // the person whom the room knows; without one as KeySession
	KeyHolder  = "holder"  // the holder of the key that the call sends; without one the visitor's address
)

// A Queue keeps jobs and delivers them to a target at the pace that limits allow, or hands them to workers
// that claim them.
type Queue struct {
	// Name identifies the queue in the API, metrics and the data folder: 1 to 64 of A-Z
	// a-z 0-9 _ and -. Required and unique.
	Name string

	// Target is where the jobs are delivered. Its URL is required, except with Pull.
	Target QueueTarget

	// Pull makes a queue whose jobs are claimed by workers. Default: they are delivered to the target.
	Pull QueuePull

	// Limits are the names of the limits that each job needs: a job takes from all of them or from
	// none. Default none.
	Limits []string

	// TenantLimits are like Limits, but each tenant has a key of its own. Default none.
	TenantLimits []string

	// Weight is the weight of this queue among those that share a limit. 1 to 1,000, default 1.
	Weight int

	// Reserved is the part of each of its Limits, in the limit's unit and window, that only this
	// queue may take. 0, the default, is nothing.
	Reserved int64

	// Tenants maps tenants to weights, 1 to 1,000. Default 1 each.
	Tenants map[string]int64

	// Spread sends jobs evenly over the window of a limit, not all at its beginning. Default true.
	Spread bool

	// Auto finds the rate by what the target answers. Rate is then the one to start with.
	Auto Auto

	// Rate is the maximum number of jobs per second, in addition to the limits. 0, the default, is
	// no bound.
	Rate int64

	// Concurrency is the maximum number of jobs under way. Default 64, and 10,000 with Pull.
	Concurrency int

	// MaxAttempts is how often a job is tried before it counts as dead. Default 20.
	MaxAttempts int

	// MinBackoff and MaxBackoff bound the delay before the next attempt. Defaults 1 second and 5
	// minutes.
	MinBackoff, MaxBackoff time.Duration

	// MaxAge is the maximum age of a job that does not set its own. 0, the default, is no bound.
	MaxAge time.Duration

	// KeyWindow is how long the idempotency key of a job is remembered. 0 is not at all, default 1
	// hour.
	KeyWindow time.Duration

	// Outcomes is how many tries, outcomes and changes of jobs are remembered, each for OutcomeAge at
	// most. 0 is none. Defaults 100,000 and a day.
	Outcomes   int
	OutcomeAge time.Duration

	// Schedules put jobs at certain times. Default none.
	Schedules []QueueSchedule

	// Completion names a queue that gets a job for each job of this one that has ended. Default none.
	Completion QueueCompletion

	// MaxWaiting is the maximum number of jobs. Default 5,000,000.
	MaxWaiting int64

	// MaxBytes is the maximum disk space of the jobs. Default 16 GB.
	MaxBytes int64
}

// A QueueSchedule puts a job at certain times.
type QueueSchedule struct {
	Name     string // 1 to 64 of A-Z a-z 0-9 _ and -
	Cron     string // five fields, or one such as @daily
	TimeZone string // default UTC
	Missed   string // once, the default, skip or all
	Job      string // a JSON object, as queue.ParseJob reads it
}

// A QueueCompletion says which queue gets the completions of jobs: that they have ended, and how.
type QueueCompletion struct {
	Queue string   // "": none
	On    []string // the states that count, of queue.Ends; default all of them
}

// A QueuePull says how workers claim the jobs of a queue.
type QueuePull struct {
	// Lease is the time that a worker has for a job if it does not ask for another one. 1 second to 12
	// hours, default 30 seconds. 0: the queue has a target.
	Lease time.Duration
}

// A QueueTarget is the HTTP endpoint that jobs are delivered to.
type QueueTarget struct {
	URL         string   // http or https
	Method      string   // default POST
	Headers     []string // "Name: value"
	SecretFiles []string // each holds a secret for signatures
	Timeout     time.Duration
	CA          string // PEM files
	Certificate string
	Key         string
	Shared      bool // other senders use it too
}

// A List is a list of addresses or of texts that expressions refer to as $name.
type List struct {
	Name      string
	Addresses []string // addresses, networks and ranges
	Texts     []string
}

func (l *List) compile() (*rules.List, error) {
	if l.Texts != nil {
		return rules.NewTextList(l.Texts)
	}
	return rules.NewAddressList(l.Addresses)
}

// A Crawler is a search engine whose identity is verified by the DNS names of its addresses.
type Crawler struct {
	Name    string
	Agents  []string // parts of its User-Agent; one match is enough
	Domains []string // its addresses have names in one of these domains
}

// RuleLists returns the compiled lists that expressions refer to. They are shared and never change.
func (c *Config) RuleLists() map[string]*rules.List { return c.lists }

// NewCrawlers returns a verifier for the built-in crawlers and those of the file.
func (c *Config) NewCrawlers() (*rules.Crawlers, error) {
	all := rules.KnownCrawlers()
	for _, x := range c.Crawlers {
		all = append(all, rules.Crawler{Name: x.Name, Agents: x.Agents, Domains: x.Domains})
	}
	return rules.NewCrawlers(all, nil)
}

// paced returns the first limit of a queue that is a rate of jobs, or nil if there is none.
func (q *Queue) paced(known map[string]*Limit) *Limit {
	for _, name := range q.Limits {
		if l := known[name]; l != nil && l.Window > 0 && l.Unit == "requests" && l.Amount > 0 &&
			l.Algorithm != limit.Concurrency {
			return l
		}
	}
	return nil
}

// Pace returns the rate of jobs that a queue's limits allow, or nil if none of them is a rate.
func (c *Config) Pace(q *Queue) *Limit {
	known := map[string]*Limit{}
	for i := range c.Limits {
		known[c.Limits[i].Name] = &c.Limits[i]
	}
	return q.paced(known)
}

// The kinds of credentials.
const (
	CredentialJWT      CredentialKind = "jwt"      // a user's JWT and seed, as nsc writes them
	CredentialSeed     CredentialKind = "nkey"     // a user's seed alone
	CredentialPassword CredentialKind = "password" // one line, user:password
)
