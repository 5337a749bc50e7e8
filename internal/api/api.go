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
// # The files
//
// From the top down: routes has every route and the scope that it needs. Handlers stand by subject:
// rooms, cluster, analytics, history, previews, managed (Cloudflare's API), limits (with limitchange
// and limitcheck), queues, putjobs, webhooks, passes, holder (the dashboard). dispatch admits a call
// and writes the audit line. problem turns every error into a problem document. call, access, tokens,
// tokenfile and audit are what they use, and this file has the types.
//
// # What it does not do
//
// It does not listen, and it accesses rooms only through Process. It has no encryption of its own:
// keep admin_listen reachable from this machine or a private network only.
package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/headgate/headgate/internal/analytics"
	"github.com/headgate/headgate/internal/invite"
	"github.com/headgate/headgate/internal/manage"
	"github.com/headgate/headgate/internal/pages"
	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/ratelimit"
	"github.com/headgate/headgate/status"
)

// A Process is what the API operates on. Its methods may be called by many goroutines at once.
// Change and Reload block until their changes are in force and durable.
type Process interface {
	// Rooms returns the state of the rooms, in the order of the configuration.
	Rooms() []status.Room
	// FindTicket finds a ticket of a room. It returns ErrNoRoom or headgate.ErrNoTicket.
	FindTicket(ctx context.Context, room, ticket string) (status.Ticket, error)
	// ReleaseTicket gives a visitor that waits for the solution of a challenge the place of its arrival. It
	// returns ErrNoRoom, headgate.ErrNoTicket or a RejectedError.
	ReleaseTicket(ctx context.Context, room, ticket string) (status.Ticket, error)
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
	// ReportOrigin notes that the origin of a room is up, or down for a time. It returns ErrNoRoom.
	ReportOrigin(room string, up bool, lasts time.Duration) error
	// ReportLoad notes what the origin of a room, or who watches it, has measured. It returns ErrNoRoom, or a
	// RejectedError.
	ReportLoad(room string, x *signals.Report) error
	// MakeCodes makes invitations of a room, with serial numbers from that of first. It returns ErrNoRoom or
	// ErrNoCodes.
	MakeCodes(room string, first invite.Code, count int) ([]string, error)
	// ReviseCodes revokes and allows batches and codes of a room, and returns which are revoked now, and were
	// before. It returns ErrNoRoom, ErrNoCodes, invite.ErrTooMany or a RejectedError.
	ReviseCodes(
		ctx context.Context, room string, revoke, allow []string, by string,
	) (after, before []string, err error)
	// About describes the process itself.
	About() About
}

// The errors of a Process that callers distinguish.
var (
	ErrNoRoom  = errors.New("there is no such room")
	ErrBusy    = errors.New("headgate is starting or draining")
	ErrDamaged = errors.New("the record of the room cannot be read")
	ErrAlone   = errors.New("this headgate is not part of a cluster")
	ErrNoCodes = errors.New("the room takes no invitations")
)

// A Cluster describes the nodes that share the rooms.
type Cluster struct {
	Datacenter string        `json:"datacenter"`
	Store      []string      `json:"store"`
	Engine     string        `json:"engine,omitempty"` // the operator's own NATS, else ""
	Leader     string        `json:"leader"`           // the store node that orders writes; "" for none
	Problem    string        `json:"problem,omitempty"`
	Nodes      []status.Node `json:"nodes"`
	Revoked    []Revoked     `json:"revoked,omitempty"` // not known to a worker
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
	Status        status.Room
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
	Holders Holders

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
	waits    waitRoom      // requests that wait for jobs
	previews previews
}

// A route is one method of one path.
type route struct {
	method, path string
	scope        string // read, write, or "" if no token is needed
	some         bool   // a token for one room is enough: the answer contains only that room
	handle       func(*call) (any, error)
}

// Analytics provides the statistics of a process. Its methods may be called by many goroutines at
// once.
type Analytics interface {
	// Rows adds up the statistics of the nodes of this data center; missing names the nodes that
	// did not answer. It blocks for some seconds at most. It returns ErrNoAnalytics.
	Rows(ctx context.Context, q *analytics.Query) (rows []analytics.Row, missing []string, err error)
	// Facts returns the settings of a room; false if there is no room of that name.
	Facts(room string) (analytics.RoomSettings, bool)
}

// Rooms manages the rooms that operators make by the API. Its methods may be called by many
// goroutines at once.
type Rooms interface {
	// Book reads all rooms from the store.
	Book(ctx context.Context) (*manage.Catalog, error)
	// Edit makes one change. It may call edit again, on top of changes that others have made
	// meanwhile. It returns the result of edit, ErrBusy or a NotPersistedError.
	Edit(ctx context.Context, edit func(*manage.Catalog) (*manage.Result, error)) (*manage.Result, error)
	// InForce reports whether a room is open in this process as it is stored, or why not.
	InForce(r *manage.Room) (yes bool, problem string)
}

// Limits gives access to the limits of a process. The zero value has none.
type Limits struct {
	Rules ratelimit.Checker
	Keys  LimitKeys
	Style func(limit string) ratelimit.HeaderStyle // style of the headers of answers; nil: the default
	// Change stores a change and puts it into force in all processes that share the limit. It may
	// block. Its error may be a NotPersistedError. Nil: only this process has the limit.
	Change func(ctx context.Context, limit string, pairs map[string]string) error
	// Make makes and stores a limit from a JSON object with the keys that it would have in the
	// file, or replaces one that Make has made. Remove removes such a limit, and reports whether
	// the file has one of that name, which stays. They may block. Their errors may be faults of
	// package config, a RejectedError or a NotPersistedError. Nil: no limit can be made.
	Make   func(ctx context.Context, limit string, rule []byte) (isNew bool, err error)
	Remove func(ctx context.Context, limit string) (stays bool, err error)
	// Source returns the source of a limit: FromFile, FromAPI or FromEnvoy. Nil: the source is not
	// shown.
	Source func(limit string) string
	// Found returns what was found about the amount of a limit, or nil. Nil: no amount is found.
	Found func(limit string) *status.AutoAmount
	// Usage has what the keys of limits have used. Nil: it cannot be read here.
	Usage *usage.Keeper
}

// LimitKeys gives access to limits and to the usage of their keys. Its methods may be called by
// many goroutines at once; Peek, Keys and Reset block for a round trip at most. For an unknown
// limit they return ratelimit.ErrNoLimit.
type LimitKeys interface {
	// Limits returns all limits, by name. The caller must not change them.
	Limits() []*ratelimit.Limit
	// Keys returns up to count keys with usage. from is the next of the call before; "" starts at
	// the beginning. A next of "" means that there are no more.
	Keys(limit, from string, count int) (all []limit.Usage, next string, err error)
	// Peek reports whether a call would pass, and if not, when. It takes nothing.
	Peek(ctx context.Context, a ratelimit.Check) (ratelimit.Result, error)
	// Update changes a limit by change, without another change in between, or returns what is wrong
	// with the result. It returns an error of change unchanged.
	Update(limit string, change func(*ratelimit.Limit) error) error
	// Reset deletes the usage of a key.
	Reset(limit, key string) error
}

// Webhooks gives access to the webhooks of a process. The zero value has none.
type Webhooks struct {
	// List returns the state of all webhooks. It may block.
	List func(ctx context.Context) []Webhook
	// Test sends a message of the kind test to a webhook, and returns its id when it is on the disk. It
	// returns ErrNoWebhook, or an error of package queue.
	Test func(ctx context.Context, name, by string) (id string, err error)
}

// A Webhook is the state of a webhook. Its address is scheme and host: the rest may be a secret.
type Webhook struct {
	Name    string   `json:"name"`
	Address string   `json:"address"`
	On      []string `json:"on"`
	Rooms   []string `json:"rooms"` // none: all
	// OffSince is when its receiver answered 410 Gone. Nothing has been sent since. Null: it is on.
	OffSince *time.Time `json:"off_since"`
	Node     string     `json:"node,omitempty"` // the node that sends
	Waiting  int        `json:"waiting"`        // messages not delivered yet
	Oldest   float64    `json:"oldest_seconds"` // age of the oldest of them
	Why      string     `json:"why"`            // why the figures of waiting messages are missing
	Sent     int64      `json:"sent"`           // since the webhook was first configured
	Failed   int64      `json:"failed"`         // attempts
	Dropped  int64      `json:"dropped"`        // messages

	LastSuccess *WebhookSuccess `json:"last_success"`
	LastFailure *WebhookFailure `json:"last_failure"`
}

// A WebhookSuccess is a message that the receiver accepted.
type WebhookSuccess struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
}

// A WebhookFailure is a failed attempt.
type WebhookFailure struct {
	ID  string    `json:"id"`
	At  time.Time `json:"at"`
	Why string    `json:"why"` // without the text of the receiver's answer
}

// Keys manages the sealing keys of a process, or of its cluster.
type Keys struct {
	List   func() ([]Key, error)
	Rotate func() (RotateResult, error)
	Forget func(id int) error // returns ErrNoKey, ErrKeySeals
}

// A Key is a sealing key without its secret.
type Key struct {
	Key        int       `json:"key"`                  // its number in its data center
	Datacenter string    `json:"datacenter,omitempty"` // "" with only one data center
	MadeAt     time.Time `json:"made_at"`
	Seals      bool      `json:"seals"`
}

// RotateResult is the result of a rotation of the sealing key.
type RotateResult struct {
	Key     int     `json:"key"`              // number of the new key
	SealsIn float64 `json:"seals_in_seconds"` // until it seals: all nodes must know it first
}

// A SessionRequest identifies the session of a visitor, as the backend behind the room knows it.
type SessionRequest struct {
	Token string // the signed pass, or
	Pass  string // its jti

	Abandoned bool // not completed
}

// ErrNoAnalytics reports that no statistics are kept.
var ErrNoAnalytics = errors.New("analytics are off")

// ErrNoWebhook reports that there is no webhook of that name.
var ErrNoWebhook = errors.New("there is no such webhook")

// ErrNoPass reports that a text is neither a signed pass of the room nor the jti of one.
var ErrNoPass = errors.New("this is not a pass of this room")

// Reasons why a key cannot be removed.
var (
	ErrNoKey    = errors.New("there is no such sealing key")
	ErrKeySeals = errors.New("this key seals cookies now, or will do so soon")
)
