package cluster

import (
	"encoding/json"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// HeartbeatInterval is the longest time between two heartbeats of a node. Chosen.
const HeartbeatInterval = 500 * time.Millisecond

// A Member is a process that shares the store with others.
type Member struct {
	Name      string    `json:"name"`
	Life      uint64    `json:"life"` // random, chosen at the start
	CanHost   bool      `json:"hosts"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"began"`
	Wall      time.Time `json:"wall"`
	Rooms     []string  `json:"rooms"` // rooms whose counters it hosts now
	Leaving   bool      `json:"leaving,omitempty"`

	Skew         time.Duration `json:"-"` // its wall clock less ours at its last heartbeat
	heard, first time.Duration // own clock: last and first heartbeat
}

// Processes that may host rooms publish under beatName, all others under workersName. A worker has
// no right to publish under beatName (package rights): with a false list of hosted rooms it could
// make all hosts give up their rooms.
const (
	beatName    = "members"
	workersName = "workers"
)

// ListenHeartbeats calls f with each heartbeat of every node, one after the other, until stop is
// called. It is for processes that watch the nodes and are not nodes themselves.
func ListenHeartbeats(bus *store.Bus, f func(Member)) (stop func(), err error) {
	return hearAll(bus, func(x *Member) {
		x.Skew = time.Until(x.Wall)
		f(*x)
	})
}

// hearAll calls f with each heartbeat until stop is called. Two goroutines may call f at once.
func hearAll(bus *store.Bus, f func(*Member)) (stop func(), err error) {
	one, err := bus.Subscribe(beatName, func(msg []byte) { parseMember(msg, true, f) })
	if err != nil {
		return nil, err
	}
	two, err := bus.Subscribe(workersName, func(msg []byte) { parseMember(msg, false, f) })
	if err != nil {
		one()
		return nil, err
	}
	return func() { one(); two() }, nil
}

// Limits of a heartbeat. Chosen: the names of 1,000 rooms fit.
const (
	mostBeat       = 128 << 10
	mostMemberName = 64
)

// parseMember calls f with a heartbeat if it is plausible. A heartbeat of a worker hosts nothing.
func parseMember(msg []byte, hosts bool, f func(*Member)) {
	x := &Member{}
	if len(msg) > mostBeat || json.Unmarshal(msg, x) != nil || x.Name == "" || len(x.Name) > mostMemberName {
		return
	}
	if !hosts {
		x.CanHost, x.Rooms = false, nil
		x.Version = x.Version[:min(len(x.Version), mostMemberName)]
	}
	f(x)
}
