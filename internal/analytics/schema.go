package analytics

import "github.com/headgate/headgate/internal/histogram"

// A Kind is the kind of a series.
type Kind byte

// These are the kinds. Files contain the numbers.
const (
	Room Kind = iota + 1
	Limit
	Queue
)

// String returns the name used in queries.
func (k Kind) String() string {
	switch k {
	case Room:
		return "room"
	case Limit:
		return "limit"
	case Queue:
		return "queue"
	}
	return "none"
}

// A Series is something recorded over time.
type Series struct {
	Kind Kind
	Name string
}

// These are the columns of a room. Files contain their numbers, so new ones must come last.
const (
	RoomSeen       = iota // seconds that a host of the room was observed
	RoomActive            // user seconds
	RoomActiveMax         //
	RoomWaiting           // user seconds
	RoomWaitingMax        //
	RoomActiveLimit
	RoomNewLimit
	RoomAdmitted
	RoomJoined
	RoomLeft    // places given up
	RoomExpired // places that expired
	RoomRevoked
	RoomPolls
	RoomPassesBack
	RoomPlacesBack
	RoomOrigin2xx // and 1xx
	RoomOrigin3xx
	RoomOrigin4xx
	RoomOrigin5xx
	RoomOriginNone // no response
	RoomOriginGone // the client disconnected
	RoomPassesShared
	RoomPassesRefused // requests with a refused pass
	roomColumns
)

// These are the histograms of a room.
const (
	RoomWaited = iota
	RoomInside
	RoomSilent
	RoomOrigin
	roomTallies
)

// These are the columns of a limit.
const (
	LimitAllowed = iota
	LimitRefused
	LimitExceeded
	LimitUnreachable
	limitColumns
)

// These are the columns of a queue.
const (
	QueueSeen  = iota // as RoomSeen, at the same number
	QueueDepth        // job seconds
	QueueDepthMax
	QueuePut
	QueueDelivered
	QueueRetried
	QueueBusy
	QueueDied
	QueueDead // current
	queueColumns
)

const (
	mostColumns = roomColumns
	mostTallies = roomTallies
)

// A column defines how a value is stored.
type column byte

const (
	total   column = iota // a running counter; stores the increase. Adds up
	level                 // a current level; stores value times seconds. Adds up
	highest               // a current level; stores the maximum
)

// columns returns the columns of a kind, and its number of histograms.
func (k Kind) columns() (all []column, tallies int) {
	switch k {
	case Room:
		all = make([]column, roomColumns)
		for _, i := range []int{RoomSeen, RoomActive, RoomWaiting} {
			all[i] = level
		}
		for _, i := range []int{RoomActiveMax, RoomWaitingMax, RoomActiveLimit, RoomNewLimit} {
			all[i] = highest
		}
		return all, roomTallies
	case Limit:
		return make([]column, limitColumns), 0
	case Queue:
		all = make([]column, queueColumns)
		all[QueueSeen], all[QueueDepth], all[QueueDepthMax], all[QueueDead] = level, level, highest, highest
		return all, 0
	}
	return nil, 0
}

// A Sample is the current state of a series: a value for each column, counted since the process
// began, and its histograms.
type Sample struct {
	Series
	Values  []int64
	Tallies []*histogram.Histogram
}
