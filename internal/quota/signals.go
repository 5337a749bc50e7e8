package quota

import (
	"context"
	"maps"
	"sync"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/signals"
)

// A callSignals holds what processes report about the calls of limits, until it is taken. Only takeSignals
// adds a limit: a report may name any.
type callSignals struct {
	mu sync.Mutex
	of map[string]*signals.Collector // by limit
}

// putSignals collects a report of a limit whose reports are taken here.
func (h *Host) putSignals(_ context.Context, msg []byte) []byte {
	d := codec.NewReader(msg)
	name := d.Text(mostName)
	x, err := signals.ReadReport(d.Rest())
	c := &h.signals
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || c.of[name] == nil {
		return []byte{}
	}
	c.of[name].MakeRoom(x.From, h.senders)
	if !c.of[name].Put(x) {
		return []byte{}
	}
	return []byte{1}
}

// senderOf returns the name of a member in its reports: those of data centers may be the same.
func senderOf(member string, d *counter.Datacenters) string {
	if d != nil {
		return d.Own() + "/" + member
	}
	return member
}

// senders returns the names of all members in their reports. Other names may be made up.
func (h *Host) senders() map[string]bool {
	all := map[string]bool{}
	for _, m := range h.cfg.Members.All() {
		all[senderOf(m.Name, h.cfg.Datacenters)] = true
	}
	return all
}

// takeSignals returns what all have reported about a limit since the last call, if this process decides
// about its calls. Otherwise it forgets what was reported here.
func (h *Host) takeSignals(name string) (x *signals.Report, senders int, hosted bool) {
	role := h.ledger.roleOf(int(shardOf(name, "")))
	hosted = (role == hosts || role == paused) && h.may()
	c := &h.signals
	c.mu.Lock()
	defer c.mu.Unlock()
	if !hosted || c.of[name] == nil {
		if c.of == nil {
			c.of = map[string]*signals.Collector{}
		}
		c.of[name] = &signals.Collector{}
		return &signals.Report{}, 0, hosted
	}
	x, senders = c.of[name].Take()
	return x, senders, true
}

// keepSignals forgets the limits whose reports are not taken any more.
func (h *Host) keepSignals(taken func(name string) bool) {
	c := &h.signals
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.of, func(name string, _ *signals.Collector) bool { return !taken(name) })
}

// SendSignals gives what this process has measured of the calls of a limit to the process that decides
// about them: the host of the key "". A report that is lost is not sent again.
func (s *Shared) SendSignals(ctx context.Context, name string, global bool, x *signals.Report) error {
	n := s.node(global)
	x.From = senderOf(n.cfg.Members.Self().Name, n.cfg.Datacenters)
	host := n.Client.way.Host(shardOf(name, ""))
	if host == "" {
		return ErrUnreachable
	}
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	_, err := n.Client.way.Request(ctx, "signals."+host, x.Append(codec.AppendText(nil, name)))
	return err
}

// TakeSignals returns what all processes have measured of the calls of a limit since the last call, and how
// many they are, if this process decides about them.
func (s *Shared) TakeSignals(name string, global bool) (x *signals.Report, senders int, hosted bool) {
	if n := s.node(global); n.host != nil {
		return n.host.takeSignals(name)
	}
	return &signals.Report{}, 0, false
}

// KeepSignals forgets what was reported about limits that are not taken any more.
func (s *Shared) KeepSignals(taken func(name string) bool) {
	for _, n := range []*Node{s.near, s.far} {
		if n != nil && n.host != nil {
			n.host.keepSignals(taken)
		}
	}
}

// node returns the part that shares a limit of all data centers, or of this one.
func (s *Shared) node(global bool) *Node {
	if global && s.far != nil {
		return s.far
	}
	return s.near
}
