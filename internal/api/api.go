// Package api is the management API: what an operator reads and changes while headgate runs, over
// HTTP on admin_listen.
//
// # The promise
//
// A change always needs a token. Reading needs none from this machine itself, and one from anywhere
// else. A web page in the operator's browser counts as elsewhere, whatever name it uses for
// 127.0.0.1. A token is never stored, logged or shown again: only its hash is stored. Each change,
// also a rejected one, is a line in the audit log, and the answer is sent after that line is on the
// disk. A client that is rejected too often gets 429 and no line, so that nobody can push entries
// out of the log. Every error is a problem document (RFC 9457) with a code, what to do, and a
// request id that is in the log too.
//
// # Concurrency and cost
//
// An API may be used by many goroutines at once. A request costs a stat of the token file and a
// hash; a change costs what the room and the disk take.
//
// # What it does not do
//
// It does not listen, and it accesses rooms only through Process. It has no encryption of its own:
// keep admin_listen reachable from this machine or a private network only.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pages"
	"github.com/headgate/headgate/queue"
)

// A Process is what the API operates on. Its methods may be called by many goroutines at once.
// Change and Reload block until their changes are in force and durable.
type Process interface {
	// Rooms returns the state of the rooms, in the order of the configuration.
	Rooms() []headgate.Status
	// FindTicket finds a ticket of a room. It returns ErrNoRoom or headgate.ErrNoTicket.
	FindTicket(ctx context.Context, room, ticket string) (headgate.TicketInfo, error)
	// Change sets keys of a room, all or none. It returns ErrNoRoom, ErrDamaged, a RollbackError,
	// or faults of package config.
	Change(ctx context.Context, room string, pairs map[string]string, by string) (ChangeResult, error)
	// Reload reads the configuration again, all or nothing. It returns config.ErrNoFile, a
	// RollbackError, or faults of package config.
	Reload(ctx context.Context) (ReloadResult, error)
	// MoveAnywhere moves the Anywhere counters to another data center. gone says that their present
	// home is down. It returns ErrAlone, or a RejectedError.
	MoveAnywhere(ctx context.Context, to string, gone bool) (MoveResult, error)
	// MarkDatacentersDown takes back the slots that are lent to data centers that are down. It
	// returns ErrAlone, or a RejectedError.
	MarkDatacentersDown(ctx context.Context, datacenters []string) (MoveResult, error)
	// Revoke rejects a certificate of the cluster from now on, and creates a new sealing key. It
	// returns ErrAlone, a RejectedError or a NotPersistedError.
	Revoke(ctx context.Context, r Revoked) (RotateResult, error)
	// Cluster describes the cluster of this process, or returns ErrAlone.
	Cluster(ctx context.Context) (Cluster, error)
	// EndSession ends a session of a room, if it has not ended. It returns ErrNoRoom or ErrNoPass.
	EndSession(ctx context.Context, room string, v SessionRequest) (ended bool, err error)
	// About describes the process itself.
	About() About
}

// The errors of a Process that callers distinguish.
var (
	ErrNoRoom  = errors.New("there is no such room")
	ErrBusy    = errors.New("headgate is starting or draining")
	ErrDamaged = errors.New("the record of the room cannot be read")
	ErrAlone   = errors.New("this headgate is not part of a cluster")
)

// A Cluster describes the nodes that share the rooms.
type Cluster struct {
	Datacenter string          `json:"datacenter"`
	Store      []string        `json:"store"`
	Engine     string          `json:"engine,omitempty"` // the operator's own NATS, else ""
	Leader     string          `json:"leader"`           // the store node that orders writes; "" for none
	Problem    string          `json:"problem,omitempty"`
	Nodes      []headgate.Node `json:"nodes"`
	Revoked    []Revoked       `json:"revoked,omitempty"` // not known to a worker
}

// A Revoked is a certificate of the cluster that is rejected.
type Revoked struct {
	Serial string    `json:"serial"`         // hexadecimal
	Node   string    `json:"node,omitempty"` // its owner, as given by the caller that revoked it
	At     time.Time `json:"at"`
	By     string    `json:"by,omitempty"`
}

// MoveResult is where the Anywhere counters are hosted.
type MoveResult struct {
	Home string `json:"home"`
	// Missing lists the data centers that have not reported what they hold since the former home
	// was lost. Their slots count as lent for as long as they might be used.
	Missing []string `json:"missing"`
}

// A RejectedError is a command that is not possible in the current state.
type RejectedError struct {
	Reason, Do string
	Err        error
}

func (e *RejectedError) Error() string { return e.Reason }

// Unwrap returns the reason.
func (e *RejectedError) Unwrap() error { return e.Err }

// A RollbackError is the error of a change that failed and could not be undone completely.
type RollbackError struct {
	Left string // what remains of the change
	Do   string // what to do
	Err  error  // why both failed
}

func (e *RollbackError) Error() string { return e.Left + ": " + e.Err.Error() }

// Unwrap returns the reasons.
func (e *RollbackError) Unwrap() error { return e.Err }

// ChangeResult is the result of a live change.
type ChangeResult struct {
	Before, After map[string]string // the values of the changed keys
	Status        headgate.Status
}

// ReloadResult is the result of a reload.
type ReloadResult struct {
	Rooms        NameChanges `json:"rooms"`
	Limits       NameChanges `json:"limits"` // including those of the rules for Envoy
	Queues       NameChanges `json:"queues"`
	Webhooks     NameChanges `json:"webhooks"`
	Settings     []string    `json:"settings"`             // other changed keys
	Dropped      []string    `json:"dropped_live_changes"` // rooms that had live changes
	Covered      []string    `json:"covered_limits"`       // made by the API, but overridden by the file
	NeedsRestart []string    `json:"needs_restart"`        // changed keys that were not applied
}

// NameChanges lists the names of what was added, removed and changed.
type NameChanges struct {
	Added   []string `json:"added"`
	Removed []string `json:"removed"`
	Changed []string `json:"changed"`
}

// About describes the process in the answer of GET /v1/status.
type About struct {
	Version       string      `json:"version"`
	Revision      string      `json:"revision"`
	StartedAt     time.Time   `json:"started_at"`
	UptimeSeconds float64     `json:"uptime_seconds"`
	ConfigFile    string      `json:"config_file"` // "" when the room came from flags
	Data          string      `json:"data"`        // the data folder
	LastReload    LastReload  `json:"last_reload"`
	Rooms         []RoomAbout `json:"rooms"`
}

// LastReload is the result of the last read of the configuration; the first is the one at the
// start.
type LastReload struct {
	At         time.Time `json:"at"`
	Successful bool      `json:"successful"`
	Error      string    `json:"error"`
}

// RoomAbout names a room and its changes since its file was read.
type RoomAbout struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Live   *Live  `json:"live_changes"` // null: as in the file
}

// Live holds the live changes of a room.
type Live struct {
	Pairs map[string]string `json:"keys"`
	At    time.Time         `json:"at"`
	By    string            `json:"by"` // id and name of the last token
}

// A Config holds the dependencies of New; all fields but Limits, Queues and Log are required.
type Config struct {
	Process Process
	Tokens  *Tokens
	Audit   *Audit
	Unready func() string // why no visitors are accepted; "": they are
	Keys    Keys
	Limits  Limits
	Queues  func() []*queue.Queue // the current ones

	Webhooks Webhooks

	Rooms   Rooms
	Zone    func(room string) string // returns the name of a room's zone, "" for no room; nil: no zones
	History Analytics
	Pages   *pages.DefaultPages // for previews
	Metrics http.Handler        // serves GET /metrics
	JWKS    http.Handler        // serves GET /.headgate/jwks.json

	// ParentIn returns the traceparent of a request that puts jobs, if it is to be stored with
	// them, else "". Nil stores none.
	ParentIn func(http.Header) string

	// Preview renders the waiting page of a room for the parameters of a query. It returns
	// ErrNoRoom, or an error about a parameter.
	Preview func(room string, q url.Values) (*pages.Preview, error)
	Log     *slog.Logger // default: discard
}

// An API is the handler of the management API.
type API struct {
	cfg      Config
	mux      *http.ServeMux
	attempts bucket        // requests without a valid token
	refusals buckets       // rejected changes, by token
	bulks    chan struct{} // requests with many jobs in memory
	previews previews
}

// New builds the API. It starts nothing and opens no file.
func New(cfg Config) *API {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Queues == nil {
		cfg.Queues = func() []*queue.Queue { return nil }
	}
	a := &API{cfg: cfg, mux: http.NewServeMux(), bulks: make(chan struct{}, maxBulks)}
	paths := map[string][]route{}
	for _, e := range a.allRoutes() {
		paths[e.path] = append(paths[e.path], e)
	}
	for path, routes := range paths {
		a.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			a.dispatch(w, r, routes)
		})
	}
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { a.dispatch(w, r, nil) })
	return a
}

// allRoutes returns all routes; openapi.json describes each.
func (a *API) allRoutes() []route {
	return slices.Concat(a.routes(), a.limitRoutes(), a.queueRoutes(), a.webhookRoutes(), a.passRoutes(),
		a.managedRoutes(), a.historyRoutes(), a.analyticsRoutes())
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// A route is one method of one path.
type route struct {
	method, path string
	scope        string // read, write, or "" if no token is needed
	some         bool   // a token for one room is enough: the answer contains only that room
	handle       func(*call) (any, error)
}

func (a *API) routes() []route {
	const one = "/v1/rooms/{name}"
	return []route{
		{"GET", "/livez", "", false, a.livez},
		{"GET", "/readyz", "", false, a.readyz},
		{"GET", "/metrics", scopeRead, false, a.metrics},
		{"GET", "/v1/status", scopeRead, false, a.about},
		{"GET", "/v1/cluster", scopeRead, false, a.cluster},
		{"POST", "/v1/cluster/anywhere", scopeWrite, false, a.moveAnywhere},
		{"POST", "/v1/cluster/off", scopeWrite, false, a.off},
		{"POST", "/v1/cluster/revoke", scopeWrite, false, a.revoke},
		{"GET", "/v1/rooms", scopeRead, true, a.rooms},
		{"GET", one, scopeRead, false, a.room},
		{"PATCH", one, scopeWrite, false, a.change},
		{"GET", one + "/preview", scopeRead, false, a.preview},
		{"GET", one + "/tickets/{id}", scopeRead, false, a.ticket},
		{"GET", "/v1/tickets/{id}", scopeRead, true, a.tickets},
		{"POST", "/v1/reload", scopeWrite, false, a.reload},
		{"GET", "/v1/keys", scopeRead, false, a.keys},
		{"POST", "/v1/keys/rotate", scopeWrite, false, a.rotate},
		{"DELETE", "/v1/keys/{id}", scopeWrite, false, a.forget},
	}
}

func (a *API) livez(c *call) (any, error) {
	io.WriteString(c.w, "ok\n")
	return nil, nil
}

func (a *API) readyz(c *call) (any, error) {
	if why := a.cfg.Unready(); why != "" {
		http.Error(c.w, "not ready: "+why, http.StatusServiceUnavailable)
		return nil, nil
	}
	return a.livez(c)
}

func (a *API) metrics(c *call) (any, error) {
	a.cfg.Metrics.ServeHTTP(c.w, c.r)
	return nil, nil
}

func (a *API) about(*call) (any, error) { return a.cfg.Process.About(), nil }

func (a *API) cluster(c *call) (any, error) {
	x, err := a.cfg.Process.Cluster(c.r.Context())
	c.quiet = errors.Is(err, ErrAlone) // being alone is a valid answer, not an error
	return x, err
}

func (a *API) rooms(c *call) (any, error) {
	rooms := []headgate.Status{}
	for _, s := range a.cfg.Process.Rooms() {
		if c.who.mayRoom(scopeRead, s.Name) {
			rooms = append(rooms, s)
		}
	}
	return map[string]any{"rooms": rooms}, nil
}

func (a *API) room(c *call) (any, error) {
	for _, s := range a.cfg.Process.Rooms() {
		if s.Name == c.room {
			return s, nil
		}
	}
	return nil, ErrNoRoom
}

// preview returns the waiting page as a visitor would get it.
func (a *API) preview(c *call) (any, error) {
	return nil, a.render(c, func() (*pages.Preview, error) {
		return a.cfg.Preview(c.room, c.r.URL.Query())
	})
}

func (a *API) ticket(c *call) (any, error) {
	return a.cfg.Process.FindTicket(c.r.Context(), c.room, c.r.PathValue("id"))
}

// tickets searches all rooms that the caller may read.
func (a *API) tickets(c *call) (any, error) {
	for _, s := range a.cfg.Process.Rooms() {
		if !c.who.mayRoom(scopeRead, s.Name) {
			continue
		}
		w, err := a.cfg.Process.FindTicket(c.r.Context(), s.Name, c.r.PathValue("id"))
		if err == nil {
			return w, nil
		}
		if !errors.Is(err, headgate.ErrNoTicket) && !errors.Is(err, ErrNoRoom) {
			return nil, err
		}
	}
	return nil, headgate.ErrNoTicket
}

func writeJSON(w http.ResponseWriter, kind string, status int, v any) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // an error means that the client is gone
}
