package queue

import (
	"context"
	"fmt"
)

// Reconfigure changes the configuration of a running queue. Name, NATS, Capacity, Replicas, Node,
// HostRank, OnWriteFailure, Space and Log keep the values passed to Open. Deliveries in flight end under the
// old configuration; a lower Concurrency takes effect as they end. A rate set with SetRate stays in
// force if the configured rate does not change. If Reconfigure returns an error, nothing has
// changed.
func (q *Queue) Reconfigure(ctx context.Context, cfg Config) error {
	was := q.set.Load()
	cfg.Name, cfg.NATS, cfg.Capacity, cfg.Replicas = was.Name, was.NATS, was.Capacity, was.Replicas
	cfg.Node, cfg.OnWriteFailure, cfg.Space, cfg.Log = was.Node, was.OnWriteFailure, was.Space, was.Log
	cfg.HostRank = was.HostRank
	if err := cfg.check(); err != nil {
		return err
	}
	if cfg.MaxBytes != was.MaxBytes {
		if err := q.jobs.SetMaxBytes(ctx, cfg.MaxBytes); err != nil {
			return fmt.Errorf("queue %q: %w", cfg.Name, err)
		}
	}
	q.set.Store(&cfg)
	select {
	case q.changed <- struct{}{}:
	default: // the dispatcher is about to look
	}
	if h := q.lead.Load(); h != nil {
		h.nudge()
	}
	return nil
}
