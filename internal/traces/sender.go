package traces

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// These constants limit sending. Chosen: a span uses about 2 KB of memory, so an unreachable
// collector costs 10 MB; a batch is half a megabyte; a restart of a collector takes seconds.
const (
	maxQueued = 4096
	maxBatch  = 512
	sendEvery = 2 * time.Second
	firstWait = time.Second // before a retry; doubled each time up to
	lastWait  = 16 * time.Second
	maxTries  = 6 // 31 s in total
	flushFor  = 3 * time.Second
	sayEvery  = time.Minute // between log lines, for an unstable collector
)

// A sender sends spans to the collector. It is a span processor of the SDK. The SDK's own processor
// does not count dropped spans, and its end cannot be awaited.
type sender struct {
	queue    chan sdk.ReadOnlySpan
	to       *collector
	exporter *otlptrace.Exporter
	log      *slog.Logger

	sent, full, refused, ended atomic.Uint64

	over atomic.Bool // run has returned or will soon

	failing bool      // the last batch failed; only run uses it
	told    bool      // the failure was logged; only run uses it
	said    time.Time // last failure logged; only run uses it
}

func newSender(to *collector, log *slog.Logger) *sender {
	return &sender{queue: make(chan sdk.ReadOnlySpan, maxQueued), to: to, log: log,
		exporter: otlptrace.NewUnstarted(to)}
}

// OnStart implements sdk.SpanProcessor.
func (s *sender) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd implements sdk.SpanProcessor. It never blocks.
func (s *sender) OnEnd(span sdk.ReadOnlySpan) {
	if s.over.Load() {
		s.ended.Add(1)
		return
	}
	select {
	case s.queue <- span:
	default:
		s.full.Add(1)
	}
}

// Shutdown implements sdk.SpanProcessor: run ends with its context.
func (s *sender) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdk.SpanProcessor.
func (s *sender) ForceFlush(context.Context) error { return nil }

// run sends spans until ctx ends. A request in flight at that time may complete: canceling and
// resending it would duplicate its spans.
func (s *sender) run(ctx context.Context) {
	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	context.AfterFunc(ctx, func() { time.AfterFunc(flushFor, kill) })
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	batch := make([]sdk.ReadOnlySpan, 0, maxBatch)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case span := <-s.queue:
			if batch = append(batch, span); len(batch) == maxBatch {
				batch = s.send(ctx, life, batch)
			}
		case <-tick.C:
			batch = s.send(ctx, life, batch)
		}
	}
	s.flush(life, batch)
}

// send sends a batch, with retries if that may help. It returns the rest when ctx has ended.
func (s *sender) send(ctx, life context.Context, batch []sdk.ReadOnlySpan) []sdk.ReadOnlySpan {
	for try := 1; len(batch) > 0; try++ {
		err := s.try(life, batch)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return batch
		}
		s.fails(err)
		var r *refusal
		if !errors.As(err, &r) || !r.again || try == maxTries {
			s.refused.Add(uint64(len(batch)))
			break
		}
		wait := time.NewTimer(max(min(firstWait<<(try-1), lastWait), min(r.after, lastWait)))
		select {
		case <-ctx.Done():
			wait.Stop()
			return batch
		case <-wait.C:
		}
	}
	clear(batch) // releases the spans
	return batch[:0]
}

// try sends a batch once, and counts the accepted spans.
func (s *sender) try(ctx context.Context, batch []sdk.ReadOnlySpan) error {
	ctx, stop := context.WithTimeout(ctx, tryFor)
	defer stop()
	err := s.exporter.ExportSpans(ctx, batch)
	var part *partial
	if errors.As(err, &part) {
		lost := min(part.rejected, uint64(len(batch)))
		s.refused.Add(lost)
		s.sent.Add(uint64(len(batch)) - lost)
		s.fails(part)
		return nil
	}
	if err == nil {
		s.sent.Add(uint64(len(batch)))
		s.works()
	}
	return err
}

// flush sends the remaining batches, each once, until one fails.
func (s *sender) flush(ctx context.Context, batch []sdk.ReadOnlySpan) {
	s.over.Store(true)
	for {
		select {
		case span := <-s.queue:
			if batch = append(batch, span); len(batch) < maxBatch {
				continue
			}
		default:
		}
		if len(batch) == 0 {
			return
		}
		if err := s.try(ctx, batch); err != nil {
			s.fails(err)
			s.ended.Add(uint64(len(batch) + len(s.queue)))
			return
		}
		batch = batch[:0]
	}
}

// fails logs the beginning of a failure, not each failed batch.
func (s *sender) fails(err error) {
	was := s.failing
	s.failing = true
	if was || time.Since(s.said) < sayEvery && !s.said.IsZero() {
		return
	}
	s.said, s.told = time.Now(), true
	s.log.Warn("the collector does not take traces: they are kept for a while, then dropped",
		"error", err.Error(), "hint", "look at the collector, and at endpoint and headers of traces")
}

func (s *sender) works() {
	s.failing = false
	if s.told {
		s.told = false
		s.log.Info("the collector takes traces again", "dropped", s.full.Load()+s.refused.Load())
	}
}
