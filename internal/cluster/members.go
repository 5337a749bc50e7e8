// Package cluster knows which processes share a store, which of them live, and which one should host
// a room, a queue or whatever else has a name: the first by rendezvous hashing of those that may.
//
//	Members  heartbeats of all processes, twice a second
//	Role     what this process should do for a name, by Score
//	Rank     how many processes should rather host a name
//
// All of it is a preference, and two processes may have different ones for a while. Whoever hosts
// has a fence of its own against a host that does not know of its successor (docs/architecture.md,
// "Who hosts what").
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/seldom"
	"github.com/headgate/headgate/internal/store"
)

// Parameters of the membership. No guarantee depends on it: when two nodes both consider themselves
// the host of a room, the record decides. Chosen: three heartbeats may be lost, and a failed host
// is replaced after two seconds.
const (
	silentFor  = 2 * time.Second
	settledFor = 2 * time.Second // a new node hosts nothing that another node hosts
	maxMembers = 4096
)

// Members holds the processes that share the store, from their heartbeats twice a second. It may be
// used by many goroutines at once. Run owns the only goroutine.
type Members struct {
	bus  *store.Bus
	boot func() time.Duration
	log  *slog.Logger
	poke chan struct{}

	mu      sync.Mutex
	self    Member
	others  map[string]*Member
	waiting []chan struct{}
	began   time.Duration
	said    time.Duration // the last heartbeat
	lines   seldom.Lines
}

// NewMembers returns the membership of one process. The others do not know the process until Run is
// called.
func NewMembers(
	bus *store.Bus, self Member, boot func() time.Duration, log *slog.Logger,
) *Members {
	return &Members{
		bus: bus, self: self, boot: boot, log: log, poke: make(chan struct{}, 1),
		others: map[string]*Member{}, began: boot(), said: boot(),
	}
}

// Run sends and receives heartbeats until ctx ends. Then it announces that this process leaves.
func (m *Members) Run(ctx context.Context) error {
	stop, err := hearAll(m.bus, m.hear)
	if err != nil {
		return err
	}
	defer stop()
	tick := time.NewTicker(HeartbeatInterval)
	defer tick.Stop()
	for {
		m.say()
		m.forget()
		select {
		case <-ctx.Done():
			m.Leave()
			return nil
		case <-tick.C:
		case <-m.poke:
		}
	}
}

// Leave announces that this process is about to stop, so that it is chosen as the host of nothing.
func (m *Members) Leave() {
	m.mu.Lock()
	m.self.Leaving = true
	m.mu.Unlock()
	m.say()
	m.wake()
}

// say sends a heartbeat. A process that was suspended begins anew: others may have taken its place.
func (m *Members) say() {
	m.mu.Lock()
	clk := m.boot()
	if clk-m.said > silentFor { // it was suspended: the others went on without it
		m.began = clk
	}
	m.said = clk
	m.self.Wall = time.Now()
	b, err := json.Marshal(&m.self)
	name := beatName
	if !m.self.CanHost {
		name = workersName
	}
	m.mu.Unlock()
	if err == nil {
		err = m.bus.Publish(name, b)
	}
	if err != nil {
		m.log.Debug("heartbeat not sent", "error", err)
	}
}

// hear handles a heartbeat.
func (m *Members) hear(x *Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x.heard, x.Skew = m.boot(), time.Until(x.Wall)
	if x.Name == m.self.Name {
		if x.Life != m.self.Life && !x.Leaving && x.CanHost == m.self.CanHost && m.lines.Due("name") {
			m.log.Error("two processes have the same name in the cluster", "node", x.Name,
				"hint", "give each its own cluster.node, and its own join file")
		}
		return
	}
	was := m.others[x.Name]
	switch {
	case was != nil && was.CanHost && !x.CanHost: // a worker that uses the name of a store node
		return
	case was == nil && !x.CanHost && len(m.others) >= maxMembers:
		return
	case was == nil || was.Life != x.Life || x.heard-was.heard > silentFor:
		x.first = x.heard
	default:
		x.first = was.first
	}
	m.others[x.Name] = x
	if (was == nil || was.Life != x.Life) && !x.Leaving { // it does not know us either
		select {
		case m.poke <- struct{}{}:
		default:
		}
	}
	if was == nil || was.Leaving != x.Leaving || !slices.Equal(was.Rooms, x.Rooms) {
		m.wakeLocked()
	}
}

// forget removes members that have been silent for long, and wakes the watchers when a member has
// just become silent.
func (m *Members) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clk := m.boot()
	for name, x := range m.others {
		if silent := clk - x.heard; silent > time.Hour || x.Leaving && silent > silentFor {
			delete(m.others, name)
		} else if silent > silentFor && silent <= silentFor+2*HeartbeatInterval {
			m.wakeLocked()
		}
	}
}

func (m *Members) wake() {
	m.mu.Lock()
	m.wakeLocked()
	m.mu.Unlock()
}

func (m *Members) wakeLocked() {
	for _, ch := range m.waiting {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// Watch returns a channel that receives when a member joins, leaves or hosts another room, until stop
// is called.
func (m *Members) Watch() (ch chan struct{}, stop func()) {
	ch = make(chan struct{}, 1)
	m.mu.Lock()
	m.waiting = append(m.waiting, ch)
	m.mu.Unlock()
	return ch, func() {
		m.mu.Lock()
		m.waiting = slices.DeleteFunc(m.waiting, func(x chan struct{}) bool { return x == ch })
		m.mu.Unlock()
	}
}

// Self returns this process as the others see it.
func (m *Members) Self() Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.self
	x.Rooms, x.heard = slices.Clone(x.Rooms), m.boot()
	return x
}

// All returns this process and the members seen within the last hour, sorted by name.
func (m *Members) All() []Member {
	all := []Member{m.Self()}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.others)) {
		all = append(all, *m.others[name])
	}
	slices.SortFunc(all, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// askOthersWait is how long another process has to answer, and askOthersTries is how often it is
// asked. Chosen: it answers within milliseconds, and a suspended process counts as dead after 2 s.
const (
	askOthersWait  = 2 * time.Second
	askOthersTries = 3
)

// ErrNoResponse reports that a live process has not answered. It may have received the request.
var ErrNoResponse = errors.New("a node that lives does not answer")

// RequestAll sends a request to each other live process, under a name of its own, and returns the
// answers. A process that dies meanwhile or does not serve the name has no answer. ErrNoResponse
// means that a process may have received the request or not.
func (m *Members) RequestAll(
	ctx context.Context, name func(node string) string, msg []byte,
) (answers [][]byte, err error) {
	all := m.All()
	got, errs := make([][]byte, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i := range all {
		if x := &all[i]; x.Name != m.Self().Name && m.IsAlive(x) {
			wg.Go(func() { got[i], errs[i] = m.askOne(ctx, x.Name, name(x.Name), msg) })
		}
	}
	wg.Wait()
	got = slices.DeleteFunc(got, func(b []byte) bool { return b == nil })
	return got, errors.Join(errs...)
}

// Heard returns how many others have sent a heartbeat within the last d, also if they have left.
func (m *Members) Heard(d time.Duration) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range m.others {
		if m.boot()-x.heard < d {
			n++
		}
	}
	return n
}

// askOne repeats a request to one process while that process is alive.
func (m *Members) askOne(ctx context.Context, node, name string, msg []byte) ([]byte, error) {
	for range askOthersTries {
		try, stop := context.WithTimeout(ctx, askOthersWait)
		b, err := m.bus.Request(try, name, msg)
		stop()
		lives := slices.ContainsFunc(m.All(), func(x Member) bool { return x.Name == node && m.IsAlive(&x) })
		switch {
		case err == nil:
			return b, nil
		case errors.Is(err, store.ErrNoResponder) || !lives:
			return nil, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %q: %w", ErrNoResponse, node, ctx.Err())
		}
	}
	return nil, fmt.Errorf("%w: %q", ErrNoResponse, node)
}

// IsAlive reports whether a member sent a heartbeat lately.
func (m *Members) IsAlive(x *Member) bool { return m.SilentFor(x) < silentFor }

// IsStable reports whether a member has sent heartbeats for d without a silence, or was there when
// this process started.
func (m *Members) IsStable(x *Member, d time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boot()-x.first >= d || x.first-m.began < settledFor
}

// SilentFor returns the time since the last heartbeat of a member.
func (m *Members) SilentFor(x *Member) time.Duration { return m.boot() - x.heard }

// IsSettled reports whether this process has listened long enough to know the other members.
func (m *Members) IsSettled() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boot()-m.began >= silentFor && !m.self.Leaving
}

// Announce publishes that this process hosts a room, or stopped hosting it.
func (m *Members) Announce(room string, hosts bool) {
	m.mu.Lock()
	m.self.Rooms = slices.DeleteFunc(slices.Clone(m.self.Rooms), func(x string) bool { return x == room })
	if hosts {
		m.self.Rooms = append(m.self.Rooms, room)
		slices.Sort(m.self.Rooms)
	}
	m.mu.Unlock()
	m.say()
}
