package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// Open opens the stored data of a queue, and creates it if there is none. Call Run next. The
// connection remains owned by the caller.
func Open(ctx context.Context, cfg Config) (*Queue, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	q := &Queue{cfg: cfg, changed: make(chan struct{}, 1), puts: make(chan *piece),
		ended: make(chan struct{}), asks: make(chan struct{}, farAsks)}
	q.set.Store(&cfg)
	lc := store.LogConfig{
		Conn: cfg.NATS, Replicas: cfg.Replicas, OnWriteFailure: cfg.OnWriteFailure, Log: cfg.Log,
	}
	var err error
	lc.Name = cfg.Name + "_notes"
	if q.notes, err = store.OpenLog(ctx, lc); err != nil {
		return nil, fmt.Errorf("queue %q: %w", cfg.Name, err)
	}
	lc.Name, lc.MaxBytes = cfg.Name+"_jobs", cfg.MaxBytes
	if q.jobs, err = store.OpenLog(ctx, lc); err != nil {
		return nil, fmt.Errorf("queue %q: %w", cfg.Name, err)
	}
	if cfg.Node != "" {
		q.bus = store.NewBus(cfg.NATS)
	}
	return q, nil
}

// Run accepts jobs, and delivers them if this process hosts the queue, until ctx ends. Then it
// waits some seconds for deliveries in flight. It returns an error if the queue is already running.
func (q *Queue) Run(ctx context.Context) error {
	if q.running.Swap(true) {
		return fmt.Errorf("%w: it runs already", ErrConfig)
	}
	defer close(q.ended)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { q.writePuts(ctx) })
	for ctx.Err() == nil {
		err := q.host(ctx)
		if ctx.Err() != nil {
			break
		}
		level := slog.LevelWarn
		if errors.Is(err, errFenced) {
			level = slog.LevelInfo // another node has taken over
		}
		q.cfg.Log.Log(ctx, level, "queue is not delivered by this node", "queue", q.cfg.Name, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(hostAgain):
		}
	}
	return nil
}

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
