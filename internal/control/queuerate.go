package control

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/status"
)

// A QueueRate finds the rate of one queue: jobs a second in the place of people, each of whom makes one
// request a second. The node that delivers finds it; the others follow its record.
type QueueRate struct {
	Meter *signals.Meter // of the deliveries

	node   *node.Node
	log    *slog.Logger
	name   string
	found  atomic.Pointer[foundAmount]
	bounds atomic.Pointer[config.Queue]
	seeker
}

// NewQueueRate returns the rate of a queue. SetBounds must be called.
func NewQueueRate(n *node.Node, name string, log *slog.Logger) *QueueRate {
	q := &QueueRate{Meter: signals.NewCallMeter(), node: n, log: log.With("queue", name), name: name}
	q.found.Store(&foundAmount{})
	return q
}

// SetBounds sets the configuration of the queue.
func (q *QueueRate) SetBounds(c *config.Queue) { q.bounds.Store(c) }

// Rate returns the rate in force, in jobs per second.
func (q *QueueRate) Rate() float64 {
	c := q.bounds.Load()
	n := q.found.Load().in(c.Auto.Mode)
	if n == 0 {
		return float64(c.Rate)
	}
	return float64(min(max(n, c.Auto.Min), c.Auto.Max))
}

// Here returns what this process has found, or nil if another one delivers.
func (q *QueueRate) Here() (mode string, a *status.AutoAmount) {
	return q.bounds.Load().Auto.Mode, q.shown.Load()
}

func (q *QueueRate) adopt(x foundAmount) {
	if x.Version > q.found.Load().Version {
		q.found.Store(&x)
	}
}

// Seek takes what was measured since the last call, and finds the next rate if this process delivers. Calls
// must not overlap.
func (q *QueueRate) Seek(ctx context.Context, delivers bool) {
	x := q.Meter.Read()
	doc := &store.Doc[foundAmount]{Store: q.node.Records, Key: "queue-rate." + q.name, Try: editTry, Log: q.log,
		Lost: func(err error) { q.log.Error("the rate that was found is lost: it is found anew", "error", err) }}
	if !delivers || q.control == nil {
		v, _, err := doc.Load(ctx)
		if err != nil {
			return
		}
		q.adopt(v)
	}
	if !delivers {
		q.control = nil
		q.shown.Store(nil)
		return
	}
	answered := 0.0
	for i := range x.Routes {
		answered += float64(x.Routes[i].Latency.Total())
	}
	if x.Length > 0 {
		x.Inside = answered / x.Length.Seconds()
	}
	a := &q.bounds.Load().Auto
	inForce := int64(q.Rate())
	next := q.step(&seeking{log: q.log, mode: a.Mode, found: *q.found.Load(), inForce: inForce, senders: 1,
		of: adaptive.Settings{Min: a.Min, Max: a.Max, Start: q.bounds.Load().Rate, Own: true}}, x)
	q.keep(ctx, doc, *q.found.Load(), next, inForce, q.adopt)
}
