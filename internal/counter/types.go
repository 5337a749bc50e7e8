package counter

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/cluster"
	"github.com/headgate/headgate/internal/persons"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/status"
)

// The errors of a Counter.
var (
	// ErrFenced reports that another host has taken over; send the request there.
	ErrFenced = errors.New("another host serves this room")
	// ErrFull reports that max_waiting visitors already wait.
	ErrFull = errors.New("the line is full")
	// ErrSlow reports that the record was not written in time; retry.
	ErrSlow = errors.New("the record is not written in time")
	// ErrNotCalled reports that the ticket is not called yet.
	ErrNotCalled = errors.New("the ticket is not called")
	// ErrNotHeldBack reports that the ticket waits in no lane from which it can be released, is that of a
	// visitor who is or was inside, or holds no place while nobody asks for it.
	ErrNotHeldBack = errors.New("the ticket does not wait for the solution of a challenge")
	// ErrUsed reports that the invitation has let somebody in before.
	ErrUsed = errors.New("the invitation was used")
)

// Config describes the counter of one room.
type Config struct {
	Room   string
	Host   string // name of this process
	Store  store.Store
	Params slot.Params
	Settings
	Plan        Plan         // for the draw of an event
	After       uint64       // 1 + revision of the limits in Settings; 0: newer than any
	Datacenters *Datacenters // the data centers that share this room; nil: one data center

	Anywhere *Handle              // of this room, if this node may host it
	Estimate func() slot.Estimate // of the counter time, from this process's worker; nil: none
	// Persons opens the log of the tickets of known people; nil: they are in memory only.
	Persons  func(context.Context) (persons.Log, error)
	Known    bool                 // the room asks who its visitors are
	Previous PreviousHost         // what this process knows of the previous host; set by a Handle
	Boot     func() time.Duration // own clock, which includes suspend
	Log      *slog.Logger

	Random func() float64 // for jitter and random order, in [0, 1); nil: math/rand
}

// Settings can change while visitors are inside or wait.
type Settings struct {
	Active      slot.Limit // sessions at once
	New         slot.Limit // new users per window
	Spread      bool       // space calls evenly while anyone waits
	RandomOrder bool       // the next visitor is chosen at random
	DrawWeight  int        // chances of one network in a draw; 0: as many as tickets
	AdmitAll    bool       // everybody is admitted: the line delays nobody
	Line        LineConfig
	Lanes       []slot.Lane      // beside the ordinary line, at most slot.MaxLanes
	Auto        status.AutoLimit // finds the N of Active, and perhaps that of New
	Endless     bool             // nobody is called whose challenge is not solved; it is not sent
	AtClaim     bool             // the challenge is asked when a turn comes, not for a place; it is not sent
}

// LineConfig describes the waiting line.
type LineConfig struct {
	MaxWaiting int64
	PollMin    time.Duration
	PollMax    time.Duration
	CallHold   time.Duration // 0: computed from the poll interval, at least 5 s
	Hold       time.Duration // the longest hold of any ticket
}

// Datacenters holds what one process knows of the data centers that share its rooms: the links to
// them and the home of Anywhere. It may be used by many goroutines at once. Run owns the only
// goroutine.
type Datacenters struct {
	cfg  DatacentersConfig
	said map[string]*atomic.Int64 // messages sent to each
	mu   sync.Mutex
	home AnywhereHome
	sure bool   // another data center has confirmed this home
	left string // destination of an Anywhere that left here and did not arrive
	news []chan struct{}
}

// DatacentersConfig describes the data centers.
type DatacentersConfig struct {
	Own   string
	Home  string                // home of Anywhere, until it moves
	Links map[string]*store.Bus // to each other data center; nil on a worker, which has none
	Names []string              // of the others
	Bus   *store.Bus            // between the nodes of the own data center
	Store store.Store
	Log   *slog.Logger
}

// AnywhereHome is the data center in which Anywhere lives, and the number of its moves. Of two
// values, the one with more moves is valid.
type AnywhereHome struct {
	Datacenter string `json:"site"` // as in older data folders
	Moves      uint64 `json:"moves"`
}

// PreviousHost is what a process knows of the previous host, from the state that the host published
// each second.
type PreviousHost struct {
	Term     *slot.ParentTerm // nil: none, or unknown
	Estimate slot.Estimate    // of the previous host's counter time
	Leave    float64          // slots that become free per second, as measured; 0: unknown
}

// A Handle is the counter of a room as one of many processes uses it. The counter runs in this
// process or in another one. The host may change at any time; a request that meets such a change is
// sent again. A Handle may be used by many goroutines at once.
type Handle struct {
	ticketDesk
	cfg     Config // Host is the name of this process
	bus     *store.Bus
	members *cluster.Members
	recall  func()
	out     outbox

	host atomic.Pointer[Counter] // nil: another process hosts the room
	told atomic.Pointer[toldState]

	leftAt time.Duration // used by Run only: see leftSince

	mu   sync.Mutex
	set  Settings
	rev  uint64 // revision of the record's limits when set was learned
	held bool
	plan Plan

	early []status.EarlyGroup // the lanes that are called although held is true, if they are Open
}

func (s *Handle) name(kind string) string { return kind + "." + s.cfg.Room }

// isAnywhere reports whether this is the handle of a room's Anywhere.
func (s *Handle) isAnywhere() bool { return s.cfg.Params.Counters }

// toldState is the last state that the host published, and when it was received.
type toldState struct {
	state State
	at    time.Duration
}

// aboveTry is the timeout after which a Sync to Anywhere is repeated: Anywhere may hold a request
// for the recall wait, and the network distance is long. Chosen.
const aboveTry = time.Second

// A Plan is the next or current event with a draw. The zero Plan means none.
type Plan struct {
	Event string // distinguishes this draw from all others
	Start int64  // seconds of Unix time
	Phase Phase
}

// A Phase is the phase of an event.
type Phase uint8

// A Snapshot is what a data center shows the others of a room.
type Snapshot struct {
	Datacenter  string                 `json:"datacenter"`
	Home        AnywhereHome           `json:"home"`
	Life        uint64                 `json:"life"`  // of its counter
	Epoch       uint64                 `json:"epoch"` // of its time
	Time        slot.Time              `json:"time"`
	Active      int64                  `json:"active"` // sessions that were reported
	Waiting     int64                  `json:"waiting"`
	Called      int64                  `json:"called"`
	Served      uint64                 `json:"served"`           // all lower tickets were called
	Lanes       []uint64               `json:"lanes,omitempty"`  // the same for each lane, by line
	Passed      []uint64               `json:"passed,omitempty"` // exceptions: lower tickets that still wait
	New         int64                  `json:"new"`              // slots of the window in use
	Held        int64                  `json:"held"`             // slots of the first limit that Anywhere has lent to it
	Unused      int64                  `json:"unused"`           // of Held: used by nobody
	Workers     int                    `json:"workers"`          // workers that borrow there
	Rate        float64                `json:"rate"`             // calls a second
	Minutes     []int64                `json:"minutes"`          // new users by minute, the newest first
	Oldest      time.Duration          `json:"oldest"`           // how long the first visitor has waited
	Uncertainty time.Duration          `json:"unsure"`           // uncertainty of arrivals, in Anywhere's time
	Seen        slot.WriteName         `json:"seen"`             // newest write of Anywhere that it knows
	Lends       *status.AnywhereTotals `json:"lends,omitempty"`
}

// Parameters of a Handle. Chosen: a host releases a room within milliseconds, a takeover needs one
// or two writes, and no visitor waits for either longer than for a page.
const (
	lookEvery   = 250 * time.Millisecond
	stateEvery  = time.Second
	takeWait    = 5 * time.Second
	repeatEvery = 250 * time.Millisecond
	askAgain    = 30 * time.Millisecond
	serveWait   = 5 * time.Second
	retakeAfter = 250 * time.Millisecond
)

// anywhere returns the name of a room's Anywhere. It cannot be the name of a room: those have
// letters, digits, - and _ only.
func anywhere(room string) string { return "@" + room }

// A gallery holds the snapshots of the other data centers.
type gallery struct {
	mu    sync.Mutex
	sites map[string]*seen
	began time.Duration // own clock: snapshots can arrive since then
}

// of returns what is known of a data center. The caller holds the gallery's lock.
func (g *gallery) of(site string) *seen {
	if g.sites == nil {
		g.sites = map[string]*seen{}
	}
	if g.sites[site] == nil {
		g.sites[site] = &seen{Snapshot: Snapshot{Datacenter: site}}
	}
	return g.sites[site]
}

// seen is what is known of another data center.
type seen struct {
	Snapshot
	at  time.Duration // own clock at its arrival; 0: never
	est slot.Estimate // of its counter's time
	rtt time.Duration // smoothed; 0: not measured

	stamp uint64 // stamp and time of the last answer that we sent
	told  time.Duration
	of    uint64 // stamp of the last answer we received, and our time then
	got   slot.Time
}

// A greeting is a snapshot as it is sent. It also has what its receiver needs to estimate the
// sender's time: when the previous snapshot arrived.
type greeting struct {
	Snapshot Snapshot  `json:"picture"`
	Stamp    uint64    `json:"stamp"`         // of an answer: to be sent back
	Of       uint64    `json:"of,omitempty"`  // the stamp of the last answer
	Got      slot.Time `json:"got,omitempty"` // the sender's time when that answer arrived
}
