// Package server is the process: it opens the rooms of a configuration, listens for visitors and
// operators, and drains.
//
// # The promise
//
// Visitors and operators never share a listener. A stop lets requests in flight finish for at most
// drainFor; before that, the readiness check fails.
//
// # Concurrency
//
// Run owns every goroutine and waits for them. The set of rooms is one immutable snapshot: a
// request keeps the one it began with. Only one change of the set, a reload or a live change, is
// made at a time, and it is stored before it takes effect.
//
// # What it does not do
//
// It decides nothing about a visitor: the Room of the root package does.
//
// # The files
//
// From the top down:
//
//	open                      entry: opens the parts, runs them, drains
//	change, events, admin     what operators and the calendar change
//	dynamicrooms, reload      rooms made at run time; a new configuration, prepared and committed
//	gate                      opens, starts and ends one room
//	metrics                   what each part counts
//	webhookevents, webhooks, webhookpost, target
//	                          notices: what happened, for whom, how it is delivered
//	queues, limits, rules, ...
//	                          the parts: each opens, reloads and closes its own
//	server                    the types of all parts, and Server, which has them
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/analytics"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/certs"
	"github.com/headgate/headgate/internal/chanmutex"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/internal/cors"
	"github.com/headgate/headgate/internal/dashboard"
	"github.com/headgate/headgate/internal/deliver"
	"github.com/headgate/headgate/internal/envoy"
	"github.com/headgate/headgate/internal/guard"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/histogram"
	"github.com/headgate/headgate/internal/holders"
	"github.com/headgate/headgate/internal/invite"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/pages"
	"github.com/headgate/headgate/internal/platform"
	"github.com/headgate/headgate/internal/proxy"
	"github.com/headgate/headgate/internal/route"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/traces"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/internal/webhook"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/ratelimit"
)

// Timeouts and sizes against slow and greedy clients. Chosen: a browser needs far less, and
// net/http itself answers 431 for larger headers.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	maxStreams    = 250      // concurrent requests of an HTTP/2 connection, net/http's default
	maxFrame      = 16 << 10 // of HTTP/2; a connection has memory for one as soon as it is announced
	// emptyTable is a size of the HPACK table of answers that no field fits in. net/http changes the
	// table in one goroutine when a client changes its size, and in another when it writes an
	// answer: with entries in it, a client could end the process (golang.org/issue/47882).
	emptyTable = 1
	drainFor   = 30 * time.Second
	errorRetry = 5 * time.Second // after which the page of an origin that is down reloads
)

// A Server runs the rooms of one configuration.
type Server struct {
	cfg     *config.Config // as at the start: the keys that a reload does not change
	log     *slog.Logger
	machine Machine
	began   time.Time
	ready   atomic.Bool
	ending  atomic.Bool
	awaits  atomic.Pointer[string] // why the process is not ready
	conns   guard.Connections      // connections of visitors
	public  net.Listener
	admin   net.Listener
	asks    net.Listener // of proxies that ask; nil without decide
	https   *https       // nil without tls; see tls.go
	node    *node.Node
	book    *pages.DefaultPages // the default pages
	board   *dashboard.Dashboard

	crawlers    *rules.Crawlers
	changes     *control.RoomChanges
	revoked     *control.RevokedCodes
	holders     *holders.Book
	usage       *usage.Keeper // nil on a worker
	holderUsage *usage.HolderServer
	rooms       *control.Rooms
	limits      *callLimits
	jobs        *jobQueues
	hooks       *webhooks
	signIns     signIns    // of sites that know people
	envoy       *envoyGate // nil without envoy; see envoy.go

	analytics *analytics.Recorder // nil: nothing is kept
	traces    *traces.Tracer      // nil: nothing is recorded

	set  atomic.Pointer[roomSet]
	read atomic.Pointer[reading]
	turn chanmutex.Mutex // serializes changes of the set; no visitor waits for it
	crew *crew           // guarded by turn; nil unless Run serves

	running chan struct{} // closed when Run has begun
}

// addressError reports an address that could not be bound. The key is listen, admin_listen,
// envoy.listen, decide.listen or tls.listen.
func addressError(key, addr string, err error) error {
	return &hint.Error{Text: key + " " + addr, Do: addressHint(key, err), Err: err}
}

// addressHint returns what the operator can do.
func addressHint(key string, err error) string {
	if !strings.Contains(key, ".") { // keys with a dot have no flag
		key = "--" + strings.ReplaceAll(key, "_", "-")
	}
	switch {
	case errors.Is(err, syscall.EACCES):
		return "ports below 1024 need a right that this user lacks: see As a service in " +
			"docs/service.md, or set " + key + " to a higher port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this machine does not have that address: set " + key + " to one of its own, or leave the host out"
	case errors.Is(err, syscall.EADDRINUSE):
		return "another program may use it: stop that one or set " + key + " to a free address"
	}
	return "set " + key + " to an address of this machine, such as :8080"
}

// Addr returns the address of the visitors' listener.
func (s *Server) Addr() net.Addr { return s.public.Addr() }

// AdminAddr returns the address of the operators' listener.
func (s *Server) AdminAddr() net.Addr { return s.admin.Addr() }

// DecideAddr returns the address at which proxies ask about requests, or nil if there is none.
func (s *Server) DecideAddr() net.Addr {
	if s.asks == nil {
		return nil
	}
	return s.asks.Addr()
}

// unready returns why the process takes no visitors, or "" if it does.
func (s *Server) unready() string {
	what := s.awaits.Load()
	switch {
	case s.ending.Load():
		return "draining"
	case s.ready.Load():
		return ""
	case what != nil:
		return "starting: " + *what
	}
	return "starting"
}

func (s *Server) httpServer(h http.Handler) *http.Server {
	p := &http.Protocols{}
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, Protocols: p,
		DisableGeneralOptionsHandler: true, // it would wait for a body without end
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrame, WriteByteTimeout: idleTimeout,
			MaxEncoderHeaderTableSize: emptyTable,
		},
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// collectWait bounds how long a scrape waits for the host of a queue. Chosen.
const collectWait = time.Second

// A roomSet is one snapshot of all rooms, as requests see them. It never changes.
type roomSet struct {
	cfg   *config.Config // from the last read of the file
	gates []*gate        // in the order of cfg
	names vouchedNames
}

// first returns the first one that is wanted, or nil.
func first[T any](all []*T, wanted func(*T) bool) *T {
	if i := slices.IndexFunc(all, wanted); i >= 0 {
		return all[i]
	}
	return nil
}

func (s *roomSet) find(name string) *gate {
	return first(s.gates, func(g *gate) bool { return g.file.Name == name })
}

// with returns a copy of the set in which g replaces the gate of the same name.
func (s *roomSet) with(g *gate) *roomSet {
	next := &roomSet{cfg: s.cfg}
	for _, old := range s.gates {
		if old.file.Name == g.file.Name {
			old = g
		}
		next.gates = append(next.gates, old)
	}
	return next
}

// gate is one room with the connection to its origin. It never changes: a change makes another gate
// around the same room.
type gate struct {
	file config.Room  // as in the file
	now  config.Room  // with the live changes
	live *api.Live    // nil: none
	made *dynamicRoom // nil: the room is in the file

	room      *headgate.Room
	places    *route.Set
	look      *look
	proxy     *proxy.Proxy
	handler   http.Handler
	preflight http.Handler // nil without cors
	relay     http.Handler // for proxies that ask and relay answers; nil without decide
	check     http.Handler // for proxies that ask and relay none; nil without decide
	connect   http.Handler // for connectors; nil without decide
	renew     http.Handler // for what connectors have let in by a pass; nil without decide
	revoke    http.Handler // for commands of the origin that a proxy relays; nil without decide
	cors      *cors.Policy // nil: preflights go to the origin
	ended     *endings
	origin    *originCounts
	codes     *invite.Counts
	state     *originState
	measures  *measures
	broken    *brokenAnswers

	runs, probes *task // Run of the room and of the proxy
}

// damaged reports whether the room's record cannot be read. Such a room cannot change until the
// record is restored.
func (g *gate) damaged() bool { return g.room.Status().Record.Damaged != "" }

// A crew starts tasks while Run serves.
type crew struct {
	ctx  context.Context
	wg   *sync.WaitGroup
	fail func(error)
}

// start runs f in a goroutine. An error of f ends Run, unless the task was ended.
func (c *crew) start(f func(context.Context) error) *task {
	ctx, stop := context.WithCancel(c.ctx)
	t := &task{stop: stop, done: make(chan struct{})}
	c.wg.Go(func() {
		defer close(t.done)
		if err := f(ctx); err != nil && ctx.Err() == nil {
			c.fail(err)
		}
	})
	return t
}

// A task runs until it is ended or Run ends.
type task struct {
	stop context.CancelFunc
	done chan struct{}
}

// end stops the task and waits for it.
func (t *task) end() {
	t.stop()
	<-t.done
}

// leave stops a task and notes it among those that are leaving, without the ones that have ended.
func leave(leaving map[string]*task, name string, t *task) {
	maps.DeleteFunc(leaving, func(_ string, t *task) bool {
		select {
		case <-t.done:
			return true
		default:
			return false
		}
	})
	leaving[name] = t
	t.stop()
}

// A Machine is the environment of a process. A nil field uses the real machine. Tests provide
// others, to run many nodes in one process and to simulate failures of each.
type Machine struct {
	// Listen opens the addresses of visitors, operators and Envoy.
	Listen func(network, addr string) (net.Listener, error)
	// Dial opens the connections to origins and to the targets of queues and webhooks.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Engine opens a connection to an account of the engine, in place of an engine that headgate
	// starts or finds by its address.
	Engine func(account string) (net.Conn, error)
	// Boot is the clock that decisions are based on.
	Boot func() time.Duration
}

func (m *Machine) listen(addr, key string) (l net.Listener, err error) {
	if m.Listen != nil {
		l, err = m.Listen("tcp", addr)
	} else {
		l, err = net.Listen("tcp", addr)
	}
	if err != nil {
		return nil, addressError(key, addr, err)
	}
	return l, nil
}

type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// A build describes the origin of the binary.
type build struct{ version, revision, golang string }

func readBuild() build {
	b := build{version: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.golang = info.GoVersion
	if info.Main.Version != "" {
		b.version = info.Main.Version
	}
	for _, set := range info.Settings {
		if set.Key == "vcs.revision" {
			b.revision = set.Value
		}
	}
	return b
}

// jobQueues holds the queues of the process. A reload makes another set of them.
type jobQueues struct {
	capacity *queue.Capacity
	room     *diskRoom
	set      atomic.Pointer[[]*openQueue]

	rates     map[string]*control.QueueRate // that are found, by queue; guarded by turn
	throttles map[string]*deliver.Throttle  // by scheme and host of the target; guarded by turn
	leaving   map[string]*task              // removed, but not ended yet, by name; guarded by turn
}

// all returns the current queues.
func (j *jobQueues) all() (all []*queue.Queue) {
	for _, q := range *j.set.Load() {
		all = append(all, q.Queue)
	}
	return all
}

func (j *jobQueues) find(name string) *openQueue {
	return first(*j.set.Load(), func(q *openQueue) bool { return q.file.Name == name })
}

// An openQueue is a queue of the configuration.
type openQueue struct {
	*queue.Queue
	file   config.Queue
	pace   string  // the limit that is the full rate of a target with other users
	target *target // nil: workers claim the jobs
	config queue.Config
	rate   *control.QueueRate // nil: it is a number
	runs   *task              // guarded by turn
}

// callLimits holds the rate limits of the process, and which of them apply to the requests of each
// room.
type callLimits struct {
	*control.Limits
	traces *traces.Tracer // nil: nothing is recorded
	met    atomic.Pointer[metLimits]
	planOf func(*config.Config) *ratelimit.PlanSource

	holders   *holders.Book
	keyCounts holders.Counts
}

// metLimits is one snapshot of the limits of the file that can apply to requests of rooms, by name.
type metLimits struct {
	known map[string]ratelimit.RequestLimit
	gate  *holders.Gate // nil: nobody has a key

	ofHolders map[string]bool // limits whose usage holders may read: theirs is that of one key
}

// A look holds the content of a room's pages, as read from its files.
type look struct {
	asked  string      // the kind of challenges of its newcomers
	secret string      // for the third party that checks them
	codes  *invite.Key // of invitations; nil: none
	page   *pages.Page
	assets *pages.Assets // nil: none
	places *route.Set    // the routes of the room
}

// webhooks holds the webhooks of the process. A reload makes another set of them.
type webhooks struct {
	set     atomic.Pointer[[]*openWebhook]
	leaving map[string]*task    // removed, but not ended yet, by name; guarded by turn
	watched map[string]*watched // rooms with their counter here, and the limits; used by one goroutine
}

func (h *webhooks) all() []*openWebhook { return *h.set.Load() }

func (h *webhooks) find(name string) *openWebhook {
	return first(h.all(), func(w *openWebhook) bool { return w.file.Name == name })
}

// wants reports whether any webhook wants messages of this kind about the room.
func (h *webhooks) wants(kind, room string) bool {
	return slices.ContainsFunc(h.all(), func(w *openWebhook) bool { return w.choice.Wants(kind, room) })
}

// An openWebhook is a webhook of the configuration. When a webhook is changed, its queue and its
// post stay the same.
type openWebhook struct {
	*queue.Queue
	file   config.Webhook
	choice webhook.Filter
	target *target
	post   *webhookPost
	runs   *task // guarded by turn
}

// A reading is the result of the last read of the configuration.
type reading struct {
	at   time.Time
	good time.Time // the last successful read; the first is the one at the start
	err  error
}

// A swap is a reload in progress. undo takes back the steps done so far, most recent first.
type swap struct {
	s        *Server
	old, new *roomSet
	trust    bool // trusted_proxies have changed
	lists    bool // lists have changed
	made     bool // only rooms of the store may be new
	got      api.ReloadResult

	wants          []want
	added, changed []*gate // parts of new
	rules          *envoy.Rules
	jobs           []*openQueue
	hooks          []*openWebhook
	undo           []func() error
}

// https serves visitors by HTTPS. A Server without HTTPS has nil.
type https struct {
	listener net.Listener
	keeper   keeper
	set      atomic.Pointer[config.TLS] // in force; a reload changes it
}

// A keeper holds the certificates of the HTTPS listener. Certificate, Ready and Token never block;
// Run does, until its context ends.
type keeper interface {
	Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Ready(host string) bool
	Token(path string) (string, bool)
	States() ([]certs.State, bool)
	Run(context.Context) error
}

// A dynamicRoom holds what a gate knows of a room that is not in the file.
type dynamicRoom struct {
	id      string
	revokes bool
}

// A want is a room that should be open.
type want struct {
	room config.Room
	look *look
	made *dynamicRoom
}

// originCounts counts the results of the requests to a room's origin.
type originCounts struct {
	c2xx, c3xx, c4xx, c5xx, none, gone atomic.Int64
	took                               histogram.Histogram // until the headers of the answer
	nanos                              atomic.Int64        // sum of all durations
}

// answers returns how many requests the origin answered.
func (o *originCounts) answers() int64 {
	return o.c2xx.Load() + o.c3xx.Load() + o.c4xx.Load() + o.c5xx.Load()
}

// add counts one request; see proxy.Config.OnAnswer for status.
func (o *originCounts) add(status int, took time.Duration) {
	switch {
	case status == 0:
		o.none.Add(1)
		return
	case status == proxy.StatusClientGone:
		o.gone.Add(1)
		return
	case status < 300:
		o.c2xx.Add(1)
	case status < 400:
		o.c3xx.Add(1)
	case status < 500:
		o.c4xx.Add(1)
	default:
		o.c5xx.Add(1)
	}
	o.took.Add(took)
	o.nanos.Add(int64(took))
}

// brokenAnswers decides which of a room's unanswered requests are logged.
type brokenAnswers struct {
	mu      sync.Mutex
	gateway brokenSince // 502
	timeout brokenSince // 504
}

type brokenSince struct {
	told time.Time
	more int // since then
}

// endings counts the sessions of a room that backends have ended since the start.
type endings struct{ completed, abandoned atomic.Int64 }

// roomRules are the compiled rules of a room. They never change.
type roomRules struct {
	set      *rules.Set
	secure   func(*http.Request) bool
	crawlers *rules.Crawlers // nil: crawlers are treated like other visitors
	anyCase  bool            // the origin may ignore the case of paths
}

// A target delivers jobs as configured, with the current content of its files.
type target struct {
	queue   string
	file    config.QueueTarget
	keyIsID bool // see deliver.Target
	log     *slog.Logger
	around  func(http.RoundTripper) http.RoundTripper
	dial    dialFunc
	current atomic.Pointer[deliver.HTTP]

	mu   sync.Mutex // guards the fields below
	seen certs.Stamps
	told string // the last logged error, to log each only once
}

// throttle is the throttle of a target with other users. Its full rate is the amount of a limit,
// which may change while it runs.
type throttle struct {
	*deliver.Throttle
	rules ratelimit.Checker
	limit string

	mu     sync.Mutex
	looked time.Time
	pace   deliver.Pace
}

// envoyGate serves Envoy's rate limit service; nil is none.
type envoyGate struct {
	listener net.Listener
	service  *envoy.Service
	rules    *envoy.Rules // in force; guarded by turn
}

// A watched is the state of a room, or of the limits, while this process detects what happens to
// it.
type watched struct {
	since    time.Time
	loaded   bool
	rec      webhook.Record
	revision uint64
	watch    webhook.Watch
}

// A postState is the record of a webhook's deliveries, for all nodes and across restarts.
type postState struct {
	Gone    string              `json:"gone,omitempty"` // digest of the URL that answered 410
	GoneAt  time.Time           `json:"gone_at,omitzero"`
	Sent    int64               `json:"sent"`
	Failed  int64               `json:"failed"`
	Dropped int64               `json:"dropped"`
	Success *api.WebhookSuccess `json:"last_success,omitempty"`
	Failure *api.WebhookFailure `json:"last_failure,omitempty"`
}

// A webhookPost delivers the messages of one webhook to its receiver. It is the queue.Handler of
// the webhook's queue. The host of the queue calls it for one message at a time.
type webhookPost struct {
	name  string
	store store.Store
	log   *slog.Logger
	set   atomic.Pointer[openWebhook] // the current configuration

	sent, failed, dropped atomic.Int64 // by this process

	keeping sync.Mutex // serializes writes of the record

	mu  sync.Mutex // guards the fields below
	was postState  // as last read or written
	due postState  // not in the record yet: counts are to be added
}

// A diskRoom keeps jobs from filling the disk of the data folder. On a full disk no room admits
// anyone, and no job can be marked as done or removed, so the disk would stay full. It may be used
// by many goroutines at once.
type diskRoom struct {
	dir  string
	look func(dir string) (free, size uint64, err error)

	mu   sync.Mutex
	at   time.Time // time of the last check
	left int64     // bytes that may still be written
	kept int64
}

// take reserves space for that many bytes of jobs, or returns an error that explains why they may
// not be written.
func (d *diskRoom) take(bytes int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); now.Sub(d.at) >= lookAgain {
		free, size, err := d.look(d.dir)
		if err != nil { // free space unknown: the engine rejects what does not fit
			return nil
		}
		d.kept = int64(min(keptFree, size/keptFreePart))
		d.at, d.left = now, int64(free)-d.kept
	}
	if bytes > d.left {
		return fmt.Errorf("the disk of the data folder has too little room: %d MB are kept free for all else",
			max(1, d.kept>>20))
	}
	d.left -= bytes
	return nil
}

func newDiskRoom(dir string) *diskRoom { return &diskRoom{dir: dir, look: platform.Space} }

func (m *dynamicRoom) same(x *dynamicRoom) bool { return m == x || m != nil && x != nil && *m == *x }

// obeys reports whether the origin may end sessions. In a room of the file it always may.
func (m *dynamicRoom) obeys() bool { return m == nil || m.revokes }

// Parameters of diskRoom. Chosen: docs/repair.md says that 100 MB of free space is enough for
// everything but jobs. A small disk has less. Jobs that are written between two checks are counted.
const (
	keptFree     = 100 << 20
	keptFreePart = 20 // of the disk, if that is less
	lookAgain    = 100 * time.Millisecond
)
