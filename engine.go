package headgate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/boot"
	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/quota"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/ticket"
)

// EngineConfig says where rooms keep what must not be forgotten.
type EngineConfig struct {
	// NATS is a connection to a NATS server 2.15 or newer with JetStream and
	// sync_interval: always. Package embedded runs one in this process.
	NATS *nats.Conn
	// Copies is a folder for a second copy of each record, "" for none.
	Copies string
	// Keys seal the visitors' cookies. Without any, keys are drawn and no cookie
	// outlives the process.
	Keys SealingKeys
	// Alone says that no other process uses these records while this one lives, as
	// with an engine in a folder of its own. Then what a dead process had borrowed is
	// taken back at once and not a term later.
	Exclusive bool
	// Node names this process among those that share the engine, "" if it is alone.
	// Then Run must be called, and each room is hosted by one of them.
	Node string
	// Hosts says that this process may host rooms, and not only let visitors in.
	CanHost bool
	// OnlyHost says that no other process may host, and none of this name lives while this one
	// does, as with the lock of the only folder that has the records.
	SoleHost bool
	// Version of the program, for the others to see.
	Version string
	// Datacenters says which other data centres' rooms are one with those of this engine.
	Datacenters *Datacenters
	// Replicas is on how many servers of the engine a record is kept: 1 (default) or 3;
	// -1 is three where NATS is a cluster, one where it is a server that is alone.
	Replicas int
	// Heal is told when the engine refuses to write, nil for nobody. It must not
	// block.
	OnWriteFailure func(error)
	Log            *slog.Logger // default: discard
	// Boot is the clock that decides, as RoomConfig.Boot. Default: CLOCK_BOOTTIME.
	Boot func() time.Duration
}

// Datacenters are several engines, each in a data centre of its own, whose rooms are one.
type Datacenters struct {
	Own  string // the name of this one, 1 to 32 characters
	Home string // where the slots live that belong to no data centre, unless they were moved
	// Others are the names of the others.
	Others []string
	// Link gives the connection to another. What is said on it must be heard on that of the
	// same pair at the other end, and nowhere else. Nil in a process that hosts no rooms.
	Link func(other string) *nats.Conn
}

// SealingKeys are AES-256 keys by number. One seals, all open.
type SealingKeys struct {
	Current byte
	Keys    map[byte][32]byte
	// Others are the keys of other data centres, which may have the same numbers. They
	// open, after Keys, and never seal.
	Foreign []map[byte][32]byte
}

// An Engine keeps the records of rooms, and their sealing keys. It may be shared
// by many rooms and used by many goroutines at once.
type Engine struct {
	store       store.Store
	nats        *store.NATS
	alone       bool
	bus         *store.Bus
	members     *counter.Members     // nil: alone
	sites       *counter.Datacenters // nil: one data centre
	limits      *quota.Node          // of this data centre; nil: alone
	worldLimits *quota.Node          // of all data centres; nil: there is one
	limiter     atomic.Pointer[Limiter]
	keys        atomic.Pointer[ticket.Ring]

	mu    sync.Mutex
	rooms map[string]bool // open now
}

// take notes that a room is open. A second one of the same name in this process
// would take its counter over while it lives.
func (e *Engine) take(name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rooms[name] {
		return fmt.Errorf("%w: room %q is open already on this engine", ErrConfig, name)
	}
	if e.rooms == nil {
		e.rooms = map[string]bool{}
	}
	e.rooms[name] = true
	return nil
}

// release notes that a room is open no more.
func (e *Engine) release(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.rooms, name)
}

// OpenEngine finds or makes the stream of the records. Close must follow when no
// room uses it any more; the connection stays the caller's.
func OpenEngine(ctx context.Context, cfg EngineConfig) (*Engine, error) {
	if len(cfg.Keys.Keys) == 0 {
		cfg.Keys = drawKeys()
	}
	e := &Engine{alone: cfg.Exclusive}
	if err := e.SetKeys(cfg.Keys); err != nil {
		return nil, err
	}
	s, err := store.OpenNATS(ctx, store.NATSConfig{
		Conn: cfg.NATS, Copies: cfg.Copies, Replicas: cfg.Replicas,
		OnWriteFailure: cfg.OnWriteFailure, Log: cfg.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("open the engine: %w", err)
	}
	e.store, e.nats = s, s
	if cfg.Node != "" {
		if cfg.Log == nil {
			cfg.Log = slog.New(slog.DiscardHandler)
		}
		if cfg.Boot == nil {
			cfg.Boot = boot.New().Read
		}
		e.bus = store.NewBus(cfg.NATS)
		e.members = counter.NewMembers(e.bus, counter.Member{
			Name: cfg.Node, Life: rand.Uint64(), CanHost: cfg.CanHost,
			Version: cfg.Version, StartedAt: time.Now(),
		}, cfg.Boot, cfg.Log)
		e.joinSites(&cfg)
		near := quota.Config{Prefix: "limits.", Store: e.store, Bus: e.bus, Members: e.members,
			Boot: cfg.Boot, Log: cfg.Log, Rules: e.limitRules, SoleHost: cfg.SoleHost}
		e.limits, e.worldLimits = quota.NewNode(near), nil
		if far := near; e.sites != nil {
			far.Prefix, far.Sites = "global.", e.sites
			e.worldLimits = quota.NewNode(far)
		}
	}
	return e, nil
}

// joinSites makes the rooms of this engine one with those of other data centres.
func (e *Engine) joinSites(cfg *EngineConfig) {
	d := cfg.Datacenters
	if d == nil {
		return
	}
	c := counter.DatacentersConfig{
		Own: d.Own, Home: d.Home, Names: d.Others,
		Links: map[string]*store.Bus{}, Bus: e.bus, Store: e.store, Log: cfg.Log,
	}
	for _, name := range d.Others {
		if d.Link != nil {
			c.Links[name] = store.NewBus(d.Link(name))
		}
	}
	e.sites = counter.NewDatacenters(c)
}

// Run lets the others that share the engine hear of this process until ctx ends, and
// hears of them. Alone it only waits.
func (e *Engine) Run(ctx context.Context) error {
	if e.members == nil {
		<-ctx.Done()
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, 4)
	var wg sync.WaitGroup
	wg.Go(func() { errs[0] = e.members.Run(ctx); stop() })
	wg.Go(func() { errs[1] = e.limits.Run(ctx); stop() })
	if e.sites != nil {
		wg.Go(func() { errs[2] = e.sites.Run(ctx); stop() })
		wg.Go(func() { errs[3] = e.worldLimits.Run(ctx); stop() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// lane is where the keys of a limit are asked for, nil if they are counted here.
func (e *Engine) lane(d *definition) *quota.LimitClient {
	if e == nil || e.limits == nil || d.Scope == ScopeWorker {
		return nil
	}
	if d.Scope == ScopeGlobal && e.worldLimits != nil {
		return e.worldLimits.Limit(d.Name)
	}
	return e.limits.Limit(d.Name)
}

// limitRules are those of a limit as they are in force here, nil if it is not shared.
func (e *Engine) limitRules(name string) *quota.Definition {
	l := e.limiter.Load()
	if l == nil {
		return nil
	}
	k := (*l.set.Load())[name]
	if k == nil {
		k = l.brought(name)
	}
	if k == nil || k.cfg.Load().Scope == ScopeWorker {
		return nil
	}
	return &k.cfg.Load().quota
}

// LimitHostsAnswer asks whether those who count the limits that are shared answer, all of them.
func (e *Engine) CheckLimitHosts(ctx context.Context) bool {
	return e.limits == nil ||
		e.limits.CheckHosts(ctx) && (e.worldLimits == nil || e.worldLimits.CheckHosts(ctx))
}

// LimitShards is of how many shards of the keys of limits this process is the host, and for
// how many it stands by: of the data centre's limits and of those of all.
func (e *Engine) LimitShards() (hosted, standby int) {
	for _, n := range []*quota.Node{e.limits, e.worldLimits} {
		if n != nil {
			a, b := n.ShardCounts()
			hosted, standby = hosted+a, standby+b
		}
	}
	return hosted, standby
}

// Leave tells the others that this process is about to end: it hands over the rooms
// that it hosts.
func (e *Engine) Leave() {
	if e.members != nil {
		e.members.Leave()
	}
}

// A Node is a process that shares the engine with others.
type Node struct {
	Name      string    `json:"name"`
	CanHost   bool      `json:"store"`
	Alive     bool      `json:"alive"`
	SilentFor float64   `json:"silent_seconds"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"began"`
	Skew      float64   `json:"clock_seconds"` // its wall clock less ours, the way here not taken off
	Rooms     []string  `json:"rooms"`         // that it hosts
}

// Nodes are the processes that share the engine, this one included, by name.
func (e *Engine) Nodes() []Node {
	if e.members == nil {
		return nil
	}
	nodes := []Node{}
	for _, m := range e.members.All() {
		nodes = append(nodes, Node{
			Name: m.Name, CanHost: m.CanHost, Alive: e.members.IsAlive(&m),
			Version: m.Version, StartedAt: m.StartedAt,
			SilentFor: counter.RoundTenths(e.members.SilentFor(&m)), Skew: counter.RoundTenths(m.Skew),
			Rooms: append([]string{}, m.Rooms...),
		})
	}
	return nodes
}

// memoryEngine forgets when the process ends.
func memoryEngine() *Engine {
	e := &Engine{store: &store.Memory{}, alone: true}
	if err := e.SetKeys(drawKeys()); err != nil {
		panic(err) // a key of the right length that was just drawn
	}
	return e
}

func drawKeys() SealingKeys {
	return SealingKeys{Current: 1, Keys: map[byte][32]byte{1: ticket.NewKey()}}
}

// SetKeys replaces the sealing keys of all rooms of the engine. Cookies that a
// key sealed are good as long as it is among them.
func (e *Engine) SetKeys(k SealingKeys) error {
	numbered := func(from map[byte][32]byte) map[byte]ticket.Key {
		keys := make(map[byte]ticket.Key, len(from))
		for id, key := range from {
			keys[id] = key
		}
		return keys
	}
	others := make([]map[byte]ticket.Key, len(k.Foreign))
	for i, from := range k.Foreign {
		others[i] = numbered(from)
	}
	ring, err := ticket.NewRing(k.Current, numbered(k.Keys), others...)
	if err != nil {
		return fmt.Errorf("sealing keys: %w", err)
	}
	e.keys.Store(ring)
	return nil
}

// Close closes the second copies.
func (e *Engine) Close() {
	if e.nats != nil {
		e.nats.Close()
	}
}
