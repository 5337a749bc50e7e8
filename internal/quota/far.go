package quota

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/store"
)

// A far carries requests to hosts in the home of all data centers, wherever the home is.
type far struct {
	near  *near // used while the home is here
	sites *counter.Datacenters
	chart atomic.Pointer[ShardMap]
	home  atomic.Pointer[string] // the data center of the shard map
	poke  chan struct{}
}

// farEvery is the interval at which the shard map of another data center is read when there are no
// errors. Chosen: it has 10 KB.
const farEvery = 10 * time.Second

func (w *far) here() bool { return w.sites.Home() == w.sites.Own() }

// known returns the shard map in force, or nil.
func (w *far) known() *ShardMap {
	if w.here() {
		return w.near.chart.Load()
	}
	if home := w.home.Load(); home == nil || *home != w.sites.Home() {
		return nil
	}
	return w.chart.Load()
}

// Host implements Transport.
func (w *far) Host(shard byte) string { return w.known().host(shard) }

// Lost implements Transport.
func (w *far) Lost(shard byte) {
	w.near.Lost(shard)
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// Borrowers implements Transport. It assumes that each data center has as many borrowers as this
// one.
func (w *far) Borrowers() int { return w.near.Borrowers() * (1 + len(w.sites.Names())) }

// A passed is a message that another process passes on to the home.
type passed struct {
	Name string `json:"name"`
	Msg  []byte `json:"msg"`
}

// Request implements Transport.
func (w *far) Request(ctx context.Context, name string, msg []byte) ([]byte, error) {
	name = w.near.cfg.Prefix + name
	if w.here() {
		return w.near.cfg.Bus.Request(ctx, name, msg)
	}
	if w.sites.IsLinked() {
		return w.sites.Request(ctx, w.sites.Home(), name, msg)
	}
	by, ok := w.near.other() // it has a link; this process has none and hosts nothing
	if !ok {
		return nil, store.ErrNoResponder
	}
	b, err := json.Marshal(passed{name, msg})
	if err != nil {
		return nil, err
	}
	return w.near.cfg.Bus.Request(ctx, w.near.cfg.Prefix+"pass."+by, b)
}

// run keeps the shard map up to date.
func (w *far) run(ctx context.Context) {
	tick := time.NewTicker(farEvery)
	defer tick.Stop()
	for {
		if home := w.sites.Home(); home != w.sites.Own() {
			try, stop := context.WithTimeout(ctx, chartWait)
			b, err := w.Request(try, "chart", nil)
			stop()
			c := &ShardMap{}
			if err == nil && json.Unmarshal(b, c) == nil {
				w.chart.Store(c)
				w.home.Store(&home)
			}
		}
		select { // never more often, whatever fails
		case <-ctx.Done():
			return
		case <-time.After(failEach):
		}
		select {
		case <-ctx.Done():
			return
		case <-w.poke:
		case <-tick.C:
		}
	}
}

// serveFar answers requests of other data centers, and passes on requests of this data center.
func (n *Node) serveFar() (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	s := n.cfg.Datacenters
	if s == nil || n.host == nil {
		return stop, nil
	}
	name := nameOf(n.host.self)
	for what, answer := range map[string]func(context.Context, []byte) []byte{
		"at." + name:      n.host.ledger.answer,
		"uses." + name:    n.host.tellUses,
		"signals." + name: n.host.putSignals,
		"chart":           n.tellChart,
	} {
		one, err := s.Serve(n.cfg.Prefix+what, answer)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, one)
	}
	one, err := n.cfg.Bus.Serve(n.cfg.Prefix+"pass."+name, func(ctx context.Context, msg []byte) []byte {
		var p passed
		if json.Unmarshal(msg, &p) != nil || !strings.HasPrefix(p.Name, n.cfg.Prefix) {
			return []byte{} // a malicious worker could request the home's sealing keys
		}
		ctx, stop := context.WithTimeout(ctx, chartWait)
		defer stop()
		b, err := s.Request(ctx, s.Home(), p.Name, p.Msg)
		if err != nil {
			return nil
		}
		return b
	})
	if err != nil {
		stop()
		return nil, err
	}
	stops = append(stops, one)
	// Processes without a link receive recalls of the home through processes that have one.
	recall := n.cfg.Prefix + "recall"
	one, err = s.SubscribeRemote(recall, func(msg []byte) { _ = n.cfg.Bus.Publish(recall, msg) })
	if err != nil {
		stop()
		return nil, err
	}
	stops = append(stops, one)
	return stop, nil
}

// tellChart sends another data center the shard map, if this data center is the home.
func (n *Node) tellChart(ctx context.Context, msg []byte) []byte {
	if n.cfg.Datacenters.Home() != n.cfg.Datacenters.Own() {
		return nil
	}
	return n.near.tell(ctx, msg)
}
