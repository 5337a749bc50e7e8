package analytics

import "github.com/headgate/headgate/internal/histogram"

// A Kind is what a series is of.
type Kind byte

// The kinds. Their numbers are in files.
const (
	Room Kind = iota + 1
	Limit
	Queue
)

// String is the word of queries.
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

// A Series is what is followed over time.
type Series struct {
	Kind Kind
	Name string
}

// The columns of a room. Their places are in files: new ones come last.
const (
	RoomSeen       = iota // for how long a host of the room has looked, in seconds
	RoomActive            // user seconds
	RoomActiveMax         //
	RoomWaiting           // user seconds
	RoomWaitingMax        //
	RoomActiveLimit
	RoomNewLimit
	RoomAdmitted
	RoomJoined
	RoomLeft    // places given up
	RoomExpired // places whose hold was over
	RoomRevoked
	RoomPolls
	RoomPassesBack
	RoomPlacesBack
	RoomOrigin2xx // and 1xx
	RoomOrigin3xx
	RoomOrigin4xx
	RoomOrigin5xx
	RoomOriginNone // no answer
	RoomOriginGone // the client did not wait for it
	RoomPassesShared
	RoomPassesRefused // requests with such a pass
	roomColumns
)

// The histograms of a room.
const (
	RoomWaited = iota
	RoomInside
	RoomSilent
	RoomOrigin
	roomTallies
)

// The columns of a limit.
const (
	LimitAllowed = iota
	LimitRefused
	LimitShadowed
	LimitUnreachable
	limitColumns
)

// The columns of a queue.
const (
	QueueSeen  = iota // as RoomSeen, and in its place
	QueueDepth        // job seconds
	QueueDepthMax
	QueuePut
	QueueDelivered
	QueueRetried
	QueueBusy
	QueueDied
	QueueDead // as of now
	queueColumns
)

const (
	mostColumns = roomColumns
	mostTallies = roomTallies
)

// A column says what becomes of a value.
type column byte

const (
	total   column = iota // counted on and on; what is kept is how many more there are. Adds up
	level                 // as it stands; what is kept is value times seconds. Adds up
	highest               // as it stands; what is kept is the most
)

// columns are those of a kind, and how many histograms it has.
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

// A Reading is where a series stands now: a value for each of its columns, as its counters have it
// since the process began, and its histograms.
type Sample struct {
	Series
	Values  []int64
	Tallies []*histogram.Histogram
}
