package quota

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	random "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/cluster"
	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/store"
)

// Config configures a Node.
type Config struct {
	Prefix  string // of records and messages; one per group of processes
	Store   store.Store
	Bus     *store.Bus
	Members *cluster.Members
	Boot    func() time.Duration // own clock, including suspend
	Log     *slog.Logger
	Rules   func(name string) *Definition
	// Datacenters are the data centers that share these limits. The home hosts them. Nil: a single data
	// center.
	Datacenters *counter.Datacenters
	Lease       time.Duration // of a host without a standby; 0: 15 s
	// SoleHost reports that no other process can host, and that no other process with this name
	// runs at the same time.
	SoleHost bool
}

// A Node is the part of one process in shared limits: it sends requests, and may host shards. Run
// must be called.
type Node struct {
	*Client
	cfg  Config
	near *near
	far  *far  // nil: one data center
	host *Host // nil: this process hosts nothing
}

// NewNode returns a Node.
func NewNode(cfg Config) *Node {
	self := cfg.Members.Self()
	n := &Node{cfg: cfg, near: newNear(&cfg)}
	// Anyone who knows this number can return and close the loans of this process. Therefore it is
	// only in messages to the hosts.
	var who [8]byte
	rand.Read(who[:])
	n.Client = NewClient(binary.LittleEndian.Uint64(who[:]), n.near, cfg.Boot)
	if cfg.Datacenters != nil {
		n.far = &far{near: n.near, sites: cfg.Datacenters, poke: make(chan struct{}, 1)}
		n.Client.way = n.far
	}
	if self.CanHost {
		n.host = NewHost(cfg, n.recall)
	}
	return n
}

// public returns the name of a borrower for messages that all processes receive. The borrower's
// number cannot be derived from it.
func public(who uint64) uint64 {
	sum := sha256.Sum256(codec.AppendFixed(nil, who))
	return binary.LittleEndian.Uint64(sum[:])
}

// recall asks a borrower, in any data center, to return its units of a key.
func (n *Node) recall(who uint64, msg []byte) {
	msg = append(codec.AppendFixed(nil, public(who)), msg...)
	err := n.cfg.Bus.Publish(n.cfg.Prefix+"recall", msg)
	if n.cfg.Datacenters != nil {
		err = errors.Join(err, n.cfg.Datacenters.PublishRemote(n.cfg.Prefix+"recall", msg))
	}
	if err != nil {
		n.cfg.Log.Debug("recall not published", "error", err)
	}
}

// Run sends requests and hosts shards until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	stop, err := n.cfg.Bus.Subscribe(n.cfg.Prefix+"recall", n.Recalled)
	if err != nil {
		return err
	}
	defer stop()
	unserve, err := n.serveUses()
	if err != nil {
		return err
	}
	defer unserve()
	if n.host != nil {
		silent, err := n.cfg.Bus.Serve(n.cfg.Prefix+"chart."+nameOf(n.host.self), n.near.tell)
		if err != nil {
			return err
		}
		defer silent()
	}
	cut, err := n.serveFar()
	if err != nil {
		return err
	}
	defer cut()
	asking, end := context.WithCancel(context.WithoutCancel(ctx))
	hosting, leave := context.WithCancel(asking)
	var wg sync.WaitGroup
	wg.Go(func() { // held units are returned before their host hands over
		defer leave()
		select {
		case <-ctx.Done():
			n.Client.giveBack()
		case <-asking.Done():
		}
	})
	wg.Go(func() { n.near.run(asking) })
	if n.far != nil {
		wg.Go(func() { n.far.run(asking) })
	}
	wg.Go(func() { n.Client.Run(asking) })
	if n.host == nil {
		<-hosting.Done()
	} else {
		err = n.host.Run(hosting)
	}
	end()
	wg.Wait()
	return err
}

// A near carries requests to hosts in the same data center.
type near struct {
	cfg   *Config
	chart atomic.Pointer[ShardMap]
	poke  chan struct{}
}

func newNear(cfg *Config) *near { return &near{cfg: cfg, poke: make(chan struct{}, 1)} }

// Host implements Transport.
func (w *near) Host(shard byte) string {
	return w.chart.Load().host(shard)
}

// Lost implements Transport.
func (w *near) Lost(byte) {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// Request implements Transport.
func (w *near) Request(ctx context.Context, name string, msg []byte) ([]byte, error) {
	return w.cfg.Bus.Request(ctx, w.cfg.Prefix+name, msg)
}

// Borrowers implements Transport.
func (w *near) Borrowers() int { return len(w.cfg.Members.All()) }

// run keeps the shard map up to date.
func (w *near) run(ctx context.Context) {
	stop, err := w.cfg.Bus.Subscribe(w.cfg.Prefix+"chart", func(msg []byte) { w.learn(msg); w.Lost(0) })
	if err == nil {
		defer stop()
	}
	tick := time.NewTicker(chartEvery)
	defer tick.Stop()
	for failed := false; ; {
		if failed { // a process that was cut off is back before the store has a leader
			w.askChart(ctx)
		}
		c, err := load(ctx, w.cfg.Store, w.cfg.Prefix+"chart")
		switch failed = err != nil; {
		case failed:
			w.cfg.Log.Debug("chart of the limits not read", "error", err)
		case c.rev > 0:
			w.chart.Store(c)
		}
		select { // never more often, whatever fails
		case <-ctx.Done():
			return
		case <-time.After(movedEach):
		}
		select {
		case <-ctx.Done():
			return
		case <-w.poke:
		case <-tick.C:
		}
	}
}

// tell returns the shard map that this process knows, or nil.
func (w *near) tell(context.Context, []byte) []byte {
	return w.chart.Load().told()
}

// askChart requests the shard map of another process and uses it if it is newer.
func (w *near) askChart(ctx context.Context) {
	name, ok := w.other()
	if !ok {
		return
	}
	ctx, stop := context.WithTimeout(ctx, probe)
	defer stop()
	if b, err := w.cfg.Bus.Request(ctx, w.cfg.Prefix+"chart."+name, nil); err == nil {
		w.learn(b)
	}
}

// learn uses a shard map received from another process if it is newer. The store may have no leader
// from which to read it.
func (w *near) learn(msg []byte) {
	c := heardChart(msg)
	for c != nil {
		now := w.chart.Load()
		if now != nil && c.rev <= now.rev || w.chart.CompareAndSwap(now, c) {
			return
		}
	}
}

// other returns another process of this data center that can host.
func (w *near) other() (name string, ok bool) {
	n, self := 0, w.cfg.Members.Self().Name
	for _, m := range w.cfg.Members.All() {
		if m.Name != self && m.CanHost && !m.Leaving && w.cfg.Members.IsAlive(&m) {
			if n++; random.IntN(n) == 0 { // each one is equally likely
				name = m.Name
			}
		}
	}
	return name, n > 0
}

// Ready reports whether the hosts of all keys are known.
func (n *Node) Ready() bool {
	for i := range Shards {
		if n.Client.way.Host(byte(i)) == "" {
			return false
		}
	}
	return true
}

// CheckHosts sends a request to the hosts of all keys, and reports whether each one answers that it
// is the host. The shard map may name earlier hosts if all processes were restarted.
func (n *Node) CheckHosts(ctx context.Context) bool {
	of := map[string][]*request{}
	for i := range Shards {
		host := n.Client.way.Host(byte(i))
		if host == "" {
			return false
		}
		of[host] = append(of[host], &request{kind: kindPeek, shard: byte(i)}) // for no limit
	}
	for host, qs := range of {
		try, stop := context.WithTimeout(ctx, askTry)
		b, err := n.Client.way.Request(try, "at."+host, appendRequests(nil, n.Client.who, qs))
		stop()
		var rs []reply
		if err == nil {
			rs, err = parseReplies(b)
		}
		away := slices.ContainsFunc(rs, func(r reply) bool { return r.status == moved })
		if err != nil || len(rs) != len(qs) || away {
			n.Client.way.Lost(qs[0].shard)
			return false
		}
	}
	return true
}

// ShardCounts returns how many shards this process hosts, and for how many it is the standby.
func (n *Node) ShardCounts() (hosted, standby int) {
	if n.host == nil {
		return 0, 0
	}
	for i := range Shards {
		switch n.host.ledger.roleOf(i) {
		case hosts, paused:
			hosted++
		case stands:
			standby++
		}
	}
	return hosted, standby
}
