package counter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// Parameters of the membership. Nothing is promised by it: two nodes that both think
// they are to host a room are told apart by the record. Chosen: three heartbeats may be
// lost, and a host that died is replaced after two seconds.
const (
	beatEvery  = 500 * time.Millisecond
	silentFor  = 2 * time.Second
	settledFor = 2 * time.Second // a node that has just come hosts nothing that another hosts
	maxMembers = 4096
)

// beatName is told by processes that may host rooms, workersName by all others. A worker
// may not tell under the first (package rights): one that lied about what it hosts would
// make the hosts of all rooms give way.
const (
	beatName    = "members"
	workersName = "workers"
)

// A Member is a process that shares the engine with others.
type Member struct {
	Name      string    `json:"name"`
	Life      uint64    `json:"life"` // random, drawn at the start
	CanHost   bool      `json:"hosts"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"began"`
	Wall      time.Time `json:"wall"`
	Rooms     []string  `json:"rooms"` // whose counters it hosts now
	Leaving   bool      `json:"leaving,omitempty"`

	Skew         time.Duration `json:"-"` // its wall clock less ours when it was heard
	heard, first time.Duration // own clock
}

// Members knows who shares the engine, by what they say twice a second. It may be used
// by many goroutines at once; Run owns the only one.
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
}

// NewMembers makes the membership of one process. Run must be called for the others to
// hear of it.
func NewMembers(
	bus *store.Bus, self Member, boot func() time.Duration, log *slog.Logger,
) *Members {
	return &Members{
		bus: bus, self: self, boot: boot, log: log, poke: make(chan struct{}, 1),
		others: map[string]*Member{}, began: boot(), said: boot(),
	}
}

// Run speaks and listens until ctx ends, then says that it leaves.
func (m *Members) Run(ctx context.Context) error {
	stop, err := hearAll(m.bus, m.hear)
	if err != nil {
		return err
	}
	defer stop()
	tick := time.NewTicker(beatEvery)
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

// Leave says to the others that this process is about to end: it is to host nothing.
func (m *Members) Leave() {
	m.mu.Lock()
	m.self.Leaving = true
	m.mu.Unlock()
	m.say()
	m.wake()
}

func (m *Members) say() {
	m.mu.Lock()
	clk := m.boot()
	if clk-m.said > silentFor { // it stood still: the others have done without it
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

// hear takes a heartbeat in.
func (m *Members) hear(x *Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x.heard, x.Skew = m.boot(), time.Until(x.Wall)
	if x.Name == m.self.Name {
		if x.Life != m.self.Life && !x.Leaving && x.CanHost == m.self.CanHost {
			m.log.Error("two processes have the same name in the cluster", "node", x.Name,
				"hint", "give each its own cluster.node, and its own join file")
		}
		return
	}
	was := m.others[x.Name]
	switch {
	case was != nil && was.CanHost && !x.CanHost: // a worker that calls itself as a store node is called
		return
	case was == nil && !x.CanHost && len(m.others) >= maxMembers:
		return
	case was == nil || was.Life != x.Life || x.heard-was.heard > silentFor:
		x.first = x.heard
	default:
		x.first = was.first
	}
	m.others[x.Name] = x
	if (was == nil || was.Life != x.Life) && !x.Leaving { // it has not heard of us either
		select {
		case m.poke <- struct{}{}:
		default:
		}
	}
	if was == nil || was.Leaving != x.Leaving || !slices.Equal(was.Rooms, x.Rooms) {
		m.wakeLocked()
	}
}

// forget drops those who were silent for long, and wakes whoever waits when somebody
// has just fallen silent.
func (m *Members) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clk := m.boot()
	for name, x := range m.others {
		if silent := clk - x.heard; silent > time.Hour || x.Leaving && silent > silentFor {
			delete(m.others, name)
		} else if silent > silentFor && silent <= silentFor+2*beatEvery {
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

// watch gives a channel that hears when somebody has come, gone, or hosts another room.
func (m *Members) watch() (ch chan struct{}, stop func()) {
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

// Self is this process, as the others hear of it.
func (m *Members) Self() Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.self
	x.Rooms, x.heard = slices.Clone(x.Rooms), m.boot()
	return x
}

// All are this process and those that were heard of within the last hour, by name.
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

// askOthersWait is how long another process has to answer, askOthersTries how often it is asked. Chosen: it
// answers within milliseconds, and one that stands still counts as dead after 2 s.
const (
	askOthersWait  = 2 * time.Second
	askOthersTries = 3
)

// ErrUnheard: a process that lives has not answered.
var ErrNoResponse = errors.New("a node that lives does not answer")

// AskOthers asks each other process that lives, under a name of its own, and returns what they answer. One
// that dies meanwhile, or does not serve the name, answers nothing. ErrUnheard says that one may have heard,
// or may not.
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

// askOne asks a process for as long as it lives.
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

// Alive reports whether a member was heard of lately.
func (m *Members) IsAlive(x *Member) bool { return m.SilentFor(x) < silentFor }

// Stays reports whether a member was heard of for so long without a silence, or was there as
// this process came.
func (m *Members) IsStable(x *Member, d time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boot()-x.first >= d || x.first-m.began < settledFor
}

// Silent is how long nothing was heard of a member.
func (m *Members) SilentFor(x *Member) time.Duration { return m.boot() - x.heard }

// Settled reports whether this process has listened for long enough to know who is there.
func (m *Members) IsSettled() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boot()-m.began >= silentFor && !m.self.Leaving
}

// claim notes that this process hosts a room, or does no more, and says so at once.
func (m *Members) claim(room string, hosts bool) {
	m.mu.Lock()
	m.self.Rooms = slices.DeleteFunc(slices.Clone(m.self.Rooms), func(x string) bool { return x == room })
	if hosts {
		m.self.Rooms = append(m.self.Rooms, room)
		slices.Sort(m.self.Rooms)
	}
	m.mu.Unlock()
	m.say()
}

// A part is what one process has to do with a room.
type part uint8

const (
	guest  part = iota // another hosts it, or is to
	heir               // it is to host the room, once whoever still does has let go
	holder             // it is to host it now
)

// part says what this process has to do with a room: the first by rendezvous hashing
// of those that live and may host it. Who has just come takes over from nobody.
func (m *Members) part(room string) part {
	m.mu.Lock()
	defer m.mu.Unlock()
	clk := m.boot()
	if !m.self.CanHost || m.self.Leaving || clk-m.began < silentFor {
		return guest
	}
	best, taken := score(room, m.self.Name), false
	for _, x := range m.others {
		if clk-x.heard >= silentFor || x.Leaving && !slices.Contains(x.Rooms, room) {
			continue
		}
		taken = taken || slices.Contains(x.Rooms, room)
		settled := clk-x.first >= settledFor || x.first-m.began < settledFor // or it was there as we came
		if x.CanHost && !x.Leaving && settled && score(room, x.Name) > best {
			return guest
		}
	}
	if taken {
		return heir
	}
	return holder
}

// score ranks a node for a room (highest random weight hashing, Thaler and Ravishankar
// 1998): each node ranks by itself, and one that goes moves only its own rooms.
func score(room, node string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s", room, node)
	x := h.Sum64() // FNV alone spreads its last bytes badly: mixed as in MurmurHash3
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
