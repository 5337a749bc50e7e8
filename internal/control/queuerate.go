package control

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/signals"
)

// rateKey, with the name of a queue, is the key of the record with the rate that was found.
const rateKey = "queue-rate."

// A QueueRate finds the rate of one queue: jobs a second in the place of people, each of whom makes one
// request a second. The node that delivers finds it, and the next one goes on with its record.
type QueueRate struct {
	Meter *signals.Meter // of the deliveries

	log    *slog.Logger
	bounds atomic.Pointer[config.Queue]
	hosts  atomic.Bool // this process has begun to deliver since the last Seek
	seeker
}

// NewQueueRate returns the rate of a queue. SetBounds must be called.
func NewQueueRate(n *node.Node, name string, log *slog.Logger) *QueueRate {
	q := &QueueRate{Meter: signals.NewCallMeter(), log: log.With("queue", name)}
	q.finding = newFinding(n, rateKey+name, &sync.Mutex{}, nil, q.log)
	return q
}

// ForgetRate forgets the rate that was found for a queue whose rate is a number now.
func ForgetRate(ctx context.Context, n *node.Node, name string, log *slog.Logger) {
	if err := NewQueueRate(n, name, log).erase(ctx); err != nil {
		log.Warn("a rate that was found is not forgotten", "queue", name, "error", err)
	}
}

// SetBounds sets the configuration of the queue.
func (q *QueueRate) SetBounds(c *config.Queue) { q.bounds.Store(c) }

// Rate returns the rate in force, in jobs per second. It is the least that may be until the record is read:
// the node that delivered before may have found as little.
func (q *QueueRate) Rate() float64 {
	c, k := q.bounds.Load(), q.known.Load()
	n := k.inForce().amountIn(c.Auto.Mode)
	switch {
	case !k.isRead && c.Auto.Mode != config.AutoShadow:
		n = c.Auto.Min
	case n == 0:
		return float64(c.Rate)
	}
	return float64(min(max(n, c.Auto.Min), c.Auto.Max))
}

// Host prepares this process to deliver the queue: it goes on with the rate of the node before.
func (q *QueueRate) Host(ctx context.Context) {
	q.forget()
	q.hosts.Store(true)
	q.resumeOrLog(ctx)
}

func (q *QueueRate) resumeOrLog(ctx context.Context) bool {
	err := q.resume(ctx)
	if err != nil && ctx.Err() == nil {
		q.log.Warn("the rate that was found is not read yet: jobs leave at min", "error", err)
	}
	return err == nil
}

// Seek takes what was measured since the last call, and finds the next rate if this process delivers at it.
// Calls must not overlap.
func (q *QueueRate) Seek(ctx context.Context, delivers bool) {
	x := q.Meter.Read()
	if q.hosts.Swap(false) || !delivers {
		q.rest()
	}
	if !delivers {
		return
	}
	begins := q.begins()
	if begins && !q.resumeOrLog(ctx) {
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
	next := q.step(&seeking{log: q.log, mode: a.Mode, begins: begins, inForce: inForce, senders: 1,
		of: adaptive.Settings{Min: a.Min, Max: a.Max, Start: q.bounds.Load().Rate, Own: true}}, x)
	q.keep(ctx, next, inForce)
}
