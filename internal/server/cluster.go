package server

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/rights"
	"github.com/headgate/headgate/internal/store"
)

// Parameters of a node of a cluster. Chosen.
const (
	clusterTry  = 1500 * time.Millisecond // for the records to be found, then again
	clusterTell = 10 * time.Second        // between complaints that they are not
	clusterGap  = 250 * time.Millisecond
	followEvery = 5 * time.Second // a change that was told and not heard is found so late
)

// liveName is told when the live changes of a room have changed: its name.
const liveName = "live"

// openShared starts this node's part of an engine that others share, or connects to
// it, and waits until the records can be read: until enough of its servers are there.
func (k *durable) openShared(ctx context.Context, cfg *config.Config) error {
	open := func() error { return k.openCluster(ctx, cfg.Cluster) }
	if cfg.Engine != nil {
		open = func() error { return k.openOwn(ctx, cfg.Engine) }
	}
	if err := open(); err != nil {
		return err
	}
	k.bus = store.NewBus(k.node.NATS)
	k.node.Version, k.node.Log, k.node.Boot = readBuild().version, k.log, k.machine.Boot
	return k.awaitRecords(ctx)
}

func (k *durable) openCluster(ctx context.Context, c *config.Cluster) error {
	node := c.Node
	if node == "" {
		node = rights.Drawn(rand.Uint32())
	}
	k.node.Node, k.node.Hosts, k.node.Replicas = node, c.IsStore(), len(c.Store)
	k.node.OnlyHost = c.IsStore() && len(c.Store) == 1
	k.about = api.Cluster{Datacenter: c.Datacenter, Store: c.Store}
	t, err := c.TLSConfig()
	if err != nil {
		return err
	}
	k.worker, k.serial = !c.IsStore(), join.SerialText(t.Certificates[0].Leaf.SerialNumber)
	if c.IsStore() {
		if err := k.folder.Claim(c.Datacenter + "/" + node); err != nil {
			return err
		}
		e := embedded.Config{Dir: k.folder.Engine(), Log: k.log, Name: node, Dial: k.machine.Engine}
		e.Cluster = &embedded.Cluster{
			Name: c.Datacenter, Listen: c.Listen, Routes: c.Routes(), Advertise: c.RouteTo(c.Node),
			Peers: c.Others(), TLS: t, Leaf: c.Leaf(), Others: others(c),
			Revoked: k.revokedHere(),
		}
		if k.engine, err = embedded.Open(ctx, e); err != nil {
			return k.folder.Fault("the engine does not start", err)
		}
		k.node.NATS = k.engine.Conn()
	} else if k.node.NATS, err = embedded.Connect(ctx, embedded.Remote{
		Name: node, Servers: c.Servers(), TLS: t, Log: k.log, Dial: k.machine.Engine,
	}); err != nil {
		return fmt.Errorf("connect to the store nodes: %w", err)
	}
	k.link(c)
	return nil
}

// others are the data centres that store nodes are joined with.
func others(c *config.Cluster) (all []embedded.Datacenter) {
	for _, name := range slices.Sorted(maps.Keys(c.Datacenters)) {
		d := c.Datacenters[name]
		all = append(all, embedded.Datacenter{Name: name, Servers: d.URLs, CA: d.CA})
	}
	return all
}

// link makes the rooms of this node one with those of other data centres, if there are any.
func (k *durable) link(c *config.Cluster) {
	if len(c.Datacenters) == 0 {
		return
	}
	k.node.Datacenters = &headgate.Datacenters{
		Own: c.Datacenter, Home: c.Home, Others: slices.Sorted(maps.Keys(c.Datacenters)),
	}
	if k.engine != nil {
		k.node.Datacenters.Link = k.engine.Cross
	}
}

// awaitRecords opens the records as soon as they can be read. It gives up only what a
// person must mend first: never the embedded engines.
func (k *durable) awaitRecords(ctx context.Context) error {
	told, fit := time.Now(), time.Now()
	for {
		err := k.tryRecords(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		unfit := k.unfit(err)
		switch {
		case unfit == nil || unfit.Passes:
			fit = time.Now()
		case time.Since(fit) > ownPatience:
			return unfit
		}
		if time.Since(told) > clusterTell {
			told = time.Now()
			k.tellWaiting(err, unfit)
		}
		select {
		case <-ctx.Done():
		case <-time.After(clusterGap):
		}
	}
}

func (k *durable) tellWaiting(err error, unfit *store.UnfitError) {
	switch {
	case k.about.Engine == "":
		k.log.Warn("waiting for the store nodes: more than half of them are needed",
			"store", strings.Join(k.about.Store, " "), "error", err)
	case unfit != nil:
		k.log.Warn("waiting for NATS", "engine", k.about.Engine, "error", unfit, "hint", unfit.Do)
	default:
		if last := k.node.NATS.LastError(); last != nil && !k.node.NATS.IsConnected() {
			err = last
		}
		k.log.Warn("waiting for NATS: more than half of its servers are needed",
			"engine", k.about.Engine, "error", err)
	}
}

func (k *durable) tryRecords(ctx context.Context) (err error) {
	ctx, stop := context.WithTimeout(ctx, clusterTry)
	defer stop()
	k.store, err = store.OpenNATS(ctx, store.NATSConfig{
		Conn: k.node.NATS, Replicas: k.node.Replicas, Log: k.log,
	})
	if err != nil {
		return err
	}
	k.keys = &sharedKeys{store: k.keysFrom(), now: time.Now}
	keys, err := k.keys.Keys()
	if err != nil {
		return err
	}
	if err = k.bus.Try(ctx, k.node.Node); err != nil {
		return err
	}
	others := k.keysOfOthers()
	if err = k.signWith(keys, others); err != nil {
		return err
	}
	k.node.Keys = ringOf(keys, others)
	k.rooms, err = headgate.OpenEngine(ctx, k.node)
	return err
}

// Cluster implements api.Process.
func (s *Server) Cluster(ctx context.Context) (api.Cluster, error) {
	k := s.durable
	if k.bus == nil {
		return api.Cluster{}, api.ErrAlone
	}
	c := k.about
	c.Nodes = k.rooms.Nodes()
	ctx, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	var err error
	if c.Leader, err = k.store.Leader(ctx); err != nil {
		c.Problem = "the records cannot be read: " + err.Error()
	}
	if k.engine != nil && err == nil {
		if c.Revoked, _, err = k.loadRevoked(ctx); err != nil {
			c.Problem = err.Error()
		}
	}
	return c, nil
}

// tellLive tells the other nodes that the live changes of a room are new.
func (s *Server) tellLive(room string) {
	if s.durable.bus == nil {
		return
	}
	if err := s.durable.bus.Tell(liveName, []byte(room)); err != nil {
		s.log.Warn("change not told to the other nodes: they find it themselves", "room", room,
			"error", err)
	}
}

// follow takes the live changes that other nodes have made, until ctx ends.
func (s *Server) follow(ctx context.Context) error {
	if s.durable.bus == nil {
		return nil
	}
	heard := make(chan string, 64)
	stop, err := s.durable.bus.Hear(liveName, func(room []byte) {
		select {
		case heard <- string(room):
		default: // they are found a moment later
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	limits := make(chan struct{}, 1)
	deaf, err := s.durable.bus.Hear(limitName, func([]byte) {
		select {
		case limits <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer deaf()
	silent, err := s.durable.bus.Serve(knowName+s.durable.node.Node, s.knowLimits)
	if err != nil {
		return err
	}
	defer silent()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		rooms := []string{}
		select {
		case <-ctx.Done():
			return nil
		case room := <-heard:
			rooms = append(rooms, room)
		case <-limits:
			s.followLimits(ctx)
		case <-tick.C:
			s.followLimits(ctx)
			for _, g := range s.set.Load().gates {
				rooms = append(rooms, g.file.Name)
			}
			s.finishMove(ctx, rooms)
		}
		for _, room := range rooms {
			if err := s.takeLive(ctx, room); err != nil && ctx.Err() == nil {
				s.log.Warn("change of another node not taken yet", "room", room, "error", err)
			}
		}
	}
}

// takeLive puts the live changes that the store has of a room into force here.
func (s *Server) takeLive(ctx context.Context, room string) error {
	s.change.Lock()
	defer s.change.Unlock()
	ctx, stop := context.WithTimeout(ctx, changeWait)
	defer stop()
	set := s.set.Load()
	g := set.find(room)
	if g == nil || g.made != nil || g.damaged() {
		return nil
	}
	now, live, err := s.recall(ctx, &g.file)
	if err != nil || reflect.DeepEqual(live, g.live) {
		return err
	}
	next := *g
	next.now, next.live = *now, live
	rc, err := s.roomConfig(set.cfg, now)
	if err == nil {
		err = g.room.Reconfigure(ctx, rc)
	}
	if err != nil {
		return err
	}
	s.set.Store(set.with(&next))
	by := ""
	if live != nil {
		by = live.By
	}
	s.log.Info("change of another node taken", "room", room, "by", by)
	return nil
}
