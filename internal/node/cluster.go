package node

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
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
	clusterTry    = 1500 * time.Millisecond // for finding the records, then try again
	complainEvery = 10 * time.Second        // interval of log lines while they are not found
	clusterGap    = 250 * time.Millisecond
)

// openShared starts this node's part of a shared engine, or connects to it. It then waits until the
// records can be read: until enough of the engine's servers are running.
func (k *Node) openShared(ctx context.Context, cfg *config.Config) error {
	open := func() error { return k.openCluster(ctx, cfg.Cluster) }
	if cfg.Engine != nil {
		open = func() error { return k.openOwn(ctx, cfg.Engine) }
	}
	if err := open(); err != nil {
		return err
	}
	k.Bus = store.NewBus(k.Config.NATS)
	k.Config.Version, k.Config.Log, k.Config.Boot = k.options.Version, k.log, k.options.Boot
	return k.awaitRecords(ctx)
}

// openCluster opens the engine of a store node, or connects a worker to the store nodes.
func (k *Node) openCluster(ctx context.Context, c *config.Cluster) error {
	node := c.Node
	if node == "" {
		node = rights.Drawn(rand.Uint32())
	}
	k.Config.Node, k.Config.CanHost, k.Config.Replicas = node, c.IsStore(), len(c.Store)
	k.Config.SoleHost = c.IsStore() && len(c.Store) == 1
	k.About = api.Cluster{Datacenter: c.Datacenter, Store: c.Store}
	t, err := c.TLSConfig()
	if err != nil {
		return err
	}
	k.Worker, k.serial = !c.IsStore(), join.SerialText(t.Certificates[0].Leaf.SerialNumber)
	if c.IsStore() {
		if err := k.Folder.Claim(c.Datacenter + "/" + node); err != nil {
			return err
		}
		e := embedded.Config{Dir: k.Folder.Engine(), Log: k.log, Name: node, Dial: k.options.Dial}
		e.Cluster = &embedded.Cluster{
			Name: c.Datacenter, Listen: c.Listen, Routes: c.Routes(), Advertise: c.RouteTo(c.Node),
			Peers: c.Others(), TLS: t, Leaf: c.Leaf(), Others: others(c),
			Revoked: k.revokedHere(),
		}
		if k.Engine, err = embedded.Open(ctx, e); err != nil {
			return k.Folder.Fault("the engine does not start", err)
		}
		k.Config.NATS = k.Engine.Conn()
	} else if k.Config.NATS, err = embedded.Connect(ctx, embedded.Remote{
		Name: node, Servers: c.Servers(), TLS: t, Log: k.log, Dial: k.options.Dial,
	}); err != nil {
		return fmt.Errorf("connect to the store nodes: %w", err)
	}
	k.link(c)
	return nil
}

// others returns the data centers that store nodes are linked with.
func others(c *config.Cluster) (all []embedded.Datacenter) {
	for _, name := range slices.Sorted(maps.Keys(c.Datacenters)) {
		d := c.Datacenters[name]
		all = append(all, embedded.Datacenter{Name: name, Servers: d.URLs, CA: d.CA})
	}
	return all
}

// link connects the rooms of this node with the same rooms in other data centers, if there are any.
func (k *Node) link(c *config.Cluster) {
	if len(c.Datacenters) == 0 {
		return
	}
	k.Config.Datacenters = &headgate.Datacenters{
		Own: c.Datacenter, Home: c.Home, Others: slices.Sorted(maps.Keys(c.Datacenters)),
	}
	if k.Engine != nil {
		k.Config.Datacenters.Link = k.Engine.Link
	}
}

// awaitRecords opens the records as soon as they can be read. It gives up only if a person must
// first repair something, which embedded engines never need.
func (k *Node) awaitRecords(ctx context.Context) error {
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
		case unfit == nil || unfit.Transient:
			fit = time.Now()
		case time.Since(fit) > ownPatience:
			return unfit
		}
		if time.Since(told) > complainEvery {
			told = time.Now()
			k.tellWaiting(err, unfit)
		}
		select {
		case <-ctx.Done():
		case <-time.After(clusterGap):
		}
	}
}

func (k *Node) tellWaiting(err error, unfit *store.UnusableError) {
	switch {
	case k.About.Engine == "":
		k.log.Warn("waiting for the store nodes: more than half of them are needed",
			"store", strings.Join(k.About.Store, " "), "error", err)
	case unfit != nil:
		k.log.Warn("waiting for NATS", "engine", k.About.Engine, "error", unfit, "hint", unfit.Action)
	default:
		if last := k.Config.NATS.LastError(); last != nil && !k.Config.NATS.IsConnected() {
			err = last
		}
		k.log.Warn("waiting for NATS: more than half of its servers are needed",
			"engine", k.About.Engine, "error", err)
	}
}

// tryRecords opens the records once. It also tests the bus: a node that others cannot reach must
// not host.
func (k *Node) tryRecords(ctx context.Context) (err error) {
	ctx, stop := context.WithTimeout(ctx, clusterTry)
	defer stop()
	k.store, err = store.OpenNATS(ctx, store.NATSConfig{
		Conn: k.Config.NATS, Replicas: k.Config.Replicas, Log: k.log,
	})
	if err != nil {
		return err
	}
	k.keys = &sharedKeys{store: k.keysFrom(), now: time.Now}
	keys, err := k.keys.Keys()
	if err != nil {
		return err
	}
	if err = k.Bus.SelfTest(ctx, k.Config.Node); err != nil {
		return err
	}
	others := k.keysOfOthers()
	if err = k.signWith(keys, others); err != nil {
		return err
	}
	k.Config.Keys = ringOf(keys, others)
	k.Rooms, err = headgate.OpenEngine(ctx, k.Config)
	return err
}

// Describe returns the cluster as this node sees it, or api.ErrAlone.
func (k *Node) Describe(ctx context.Context) (api.Cluster, error) {
	if k.Bus == nil {
		return api.Cluster{}, api.ErrAlone
	}
	c := k.About
	c.Nodes = k.Rooms.Nodes()
	ctx, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	var err error
	if c.Leader, err = k.store.Leader(ctx); err != nil {
		c.Problem = "the records cannot be read: " + err.Error()
	}
	if k.Engine != nil && err == nil {
		if c.Revoked, _, err = k.revocations().Load(ctx); err != nil {
			c.Problem = err.Error()
		}
	}
	return c, nil
}
