package queue

import (
	"context"
	"fmt"
)

// Reconfigure puts another configuration of the queue into force while it runs. Name, NATS,
// Capacity, Replicas, Node, Heal, Room and Log stay those of Open. Deliveries under way end as they
// began; a lower Concurrency is reached as they end. A rate that somebody has set stays in
// force if the configuration's is the same as before. On an error nothing has changed.
func (q *Queue) Reconfigure(ctx context.Context, cfg Config) error {
	was := q.set.Load()
	cfg.Name, cfg.NATS, cfg.Capacity, cfg.Replicas = was.Name, was.NATS, was.Capacity, was.Replicas
	cfg.Node, cfg.OnWriteFailure, cfg.Space, cfg.Log = was.Node, was.OnWriteFailure, was.Space, was.Log
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
