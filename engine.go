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
	"github.com/headgate/headgate/internal/cluster"
	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/quota"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/status"
)

// EngineConfig configures where rooms store their records.
type EngineConfig struct {
	// NATS is a connection to a NATS server 2.15 or newer with JetStream and
	// sync_interval: always. Package embedded runs one in this process.
	NATS *nats.Conn
	// Copies is a folder for a second copy of each record. "" keeps no second copy.
	Copies string
	// Keys seal the visitors' cookies. If there are none, OpenEngine draws random keys, and no
	// cookie outlives the process.
	Keys SealingKeys
	// Exclusive says that no other process uses these records while this one lives, as with an
	// engine in a folder of its own. What an earlier process had borrowed is then taken back at
	// once instead of one term later.
	Exclusive bool
	// Node is the name of this process among the processes that share the engine, or "" if there are no
	// others. With a name, Run must be called, and each room is hosted by one of the processes.
	Node string
	// CanHost says that this process may host rooms. Without it the process only admits visitors.
	CanHost bool
	// SoleHost says that no other process may host, and that no other process of this name lives at
	// the same time. A lock on the only folder that has the records guarantees this, for example.
	SoleHost bool
	// Version is the program's version, shown to the other processes.
	Version string
	// Datacenters configures the other data centers that share their rooms with this engine.
	Datacenters *Datacenters
	// Replicas is the number of NATS servers that keep each record: 1 (the default) or 3. -1 means
	// 3 if NATS is a cluster and 1 if it is a single server.
	Replicas int
	// OnWriteFailure, if not nil, is called when the engine rejects a write. It must not block.
	OnWriteFailure func(error)
	Log            *slog.Logger // default: discard
	// Boot is the clock for all decisions, as RoomConfig.Boot is. Default: CLOCK_BOOTTIME.
	Boot func() time.Duration

	customStore
}

// customStore lets tests of this module keep the records elsewhere: see store.Custom.
type customStore = store.Custom

// Datacenters describes several engines, one in each data center, which share the same rooms.
type Datacenters struct {
	Own  string // name of this data center, 1 to 32 characters
	Home string // data center of the slots that belong to none, unless they were moved
	// Others are the names of the other data centers.
	Others []string
	// Link returns the connection to another data center. A message published on it must arrive at
	// the connection of the same pair at the other end, and nowhere else. Link is nil in a process
	// that hosts no rooms.
	Link func(other string) *nats.Conn
}

// SealingKeys are AES-256 keys by number. One of them seals; all of them open.
type SealingKeys struct {
	Current byte
	Keys    map[byte][32]byte
	// Foreign are the keys of other data centers, which may have the same numbers. They open a
	// cookie if Keys do not, and never seal.
	Foreign []map[byte][32]byte
}

// limitAccess is what package ratelimit needs of an Engine.
type limitAccess = quota.Access

// datacenterAccess is what headgate run needs of the data centers of an Engine.
type datacenterAccess = counter.DatacenterAccess

// An Engine stores the records of rooms and their sealing keys. Many rooms may share it, and many
// goroutines may use it at once.
type Engine struct {
	limitAccess
	datacenterAccess
	store       store.Store
	nats        *store.NATS
	alone       bool
	bus         *store.Bus
	members     *cluster.Members     // nil: no other processes
	datacenters *counter.Datacenters // nil: one data center
	keys        atomic.Pointer[ticket.Ring]
	logs        store.LogConfig

	rooms sync.Map // names of the open rooms
}

// OpenEngine opens or creates the stream of the records. Call Close when no room uses the engine
// any more. The caller keeps ownership of the connection.
func OpenEngine(ctx context.Context, cfg EngineConfig) (*Engine, error) {
	if len(cfg.Keys.Keys) == 0 {
		cfg.Keys = drawKeys()
	}
	e := &Engine{alone: cfg.Exclusive}
	if err := e.SetKeys(cfg.Keys); err != nil {
		return nil, err
	}
	e.store = cfg.Store
	if e.store == nil {
		s, err := store.OpenNATS(ctx, store.NATSConfig{
			Conn: cfg.NATS, Copies: cfg.Copies, Replicas: cfg.Replicas,
			OnWriteFailure: cfg.OnWriteFailure, Log: cfg.Log,
		})
		if err != nil {
			return nil, fmt.Errorf("open the engine: %w", err)
		}
		e.store, e.nats = s, s
		e.logs = store.LogConfig{Conn: cfg.NATS, Replicas: cfg.Replicas, OnWriteFailure: cfg.OnWriteFailure,
			Log: cfg.Log}
	}
	if cfg.Node != "" {
		if cfg.Log == nil {
			cfg.Log = slog.New(slog.DiscardHandler)
		}
		if cfg.Boot == nil {
			cfg.Boot = boot.New().Read
		}
		e.bus = store.NewBus(cfg.NATS)
		e.members = cluster.NewMembers(e.bus, cluster.Member{
			Name: cfg.Node, Life: rand.Uint64(), CanHost: cfg.CanHost,
			Version: cfg.Version, StartedAt: time.Now(),
		}, cfg.Boot, cfg.Log)
		e.joinDatacenters(&cfg)
		e.limitAccess = quota.NewAccess(quota.NewShared(quota.Config{
			Store: e.store, Bus: e.bus, Members: e.members, Boot: cfg.Boot, Log: cfg.Log,
			SoleHost: cfg.SoleHost, Datacenters: e.datacenters,
		}))
	}
	return e, nil
}

// joinDatacenters connects the rooms of this engine with the same rooms in other data centers.
func (e *Engine) joinDatacenters(cfg *EngineConfig) {
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
	e.datacenters = counter.NewDatacenters(c)
	e.datacenterAccess = counter.NewDatacenterAccess(e.datacenters)
}

// Run announces this process to the others that share the engine, and listens to them, until ctx
// ends. If there are no others it only waits.
func (e *Engine) Run(ctx context.Context) error {
	if e.members == nil {
		<-ctx.Done()
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, 3)
	var wg sync.WaitGroup
	wg.Go(func() { errs[0] = e.members.Run(ctx); stop() })
	wg.Go(func() { errs[1] = e.SharedLimits().Run(ctx); stop() })
	if e.datacenters != nil {
		wg.Go(func() { errs[2] = e.datacenters.Run(ctx); stop() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// CheckLimitHosts reports whether all hosts of the shared limits answer.
func (e *Engine) CheckLimitHosts(ctx context.Context) bool {
	return e.SharedLimits().CheckHosts(ctx)
}

// LimitShards returns the number of limit shards hosted by this process, and the number for which it is the
// standby. It counts the shards of the data center's limits and those of the limits of all data centers.
func (e *Engine) LimitShards() (hosted, standby int) { return e.SharedLimits().ShardCounts() }

// Leave announces that this process is about to end, and hands over the rooms that it hosts.
func (e *Engine) Leave() {
	if e.members != nil {
		e.members.Leave()
	}
}

// HostRank returns how many live processes should rather host what is named, such as a queue, than this
// one; ok is false while this process does not know. An engine that is not shared is the first.
func (e *Engine) HostRank(name string) (rank int, ok bool) {
	if e.members == nil {
		return 0, true
	}
	return e.members.Rank(name)
}

// Nodes returns the processes that share the engine, this one included, sorted by name.
func (e *Engine) Nodes() []status.Node {
	if e.members == nil {
		return nil
	}
	return counter.ReportNodes(e.members)
}

// memoryEngine returns an engine whose records end with the process.
func memoryEngine() *Engine {
	e := &Engine{store: &store.Memory{}, alone: true}
	if err := e.SetKeys(drawKeys()); err != nil {
		panic(err) // impossible: the key has the right length
	}
	return e
}

func drawKeys() SealingKeys {
	return SealingKeys{Current: 1, Keys: map[byte][32]byte{1: ticket.NewKey()}}
}

// SetKeys replaces the sealing keys of all rooms of the engine. A cookie stays valid as long as the
// key that sealed it is in the set.
func (e *Engine) SetKeys(k SealingKeys) error {
	ring, err := ticket.NewRing(k.Current, k.Keys, k.Foreign...)
	if err != nil {
		return fmt.Errorf("sealing keys: %w", err)
	}
	e.keys.Store(ring)
	return nil
}

// Close closes the second copies of the records.
func (e *Engine) Close() {
	if e.nats != nil {
		e.nats.Close()
	}
}
