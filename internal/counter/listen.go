package counter

import (
	"encoding/json"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// BeatEvery is how often a node is heard at least.
const HeartbeatInterval = beatEvery

// Listen calls f with each heartbeat of every node, one after the other, until
// stop: for who wants to know of them without being one.
func ListenHeartbeats(bus *store.Bus, f func(Member)) (stop func(), err error) {
	return hearAll(bus, func(x *Member) {
		x.Skew = time.Until(x.Wall)
		f(*x)
	})
}

// hearAll calls f with each heartbeat until stop. It may be called by two goroutines at once.
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

// Bounds of a heartbeat. Chosen: the names of 1,000 rooms fit.
const (
	mostBeat       = 128 << 10
	mostMemberName = 64
)

// parseMember calls f with a heartbeat that may be believed. That of a worker hosts nothing.
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
