package crowd

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/platform"
)

// A progress counts events and prints a line at intervals.
type progress struct {
	n       int
	arrived atomic.Int64
	inside  atomic.Int64
	done    atomic.Int64 // left, sent back or gave up
	errors  atomic.Int64
}

func (p *progress) observe(e Event) {
	switch e.What {
	case EventArrived:
		p.arrived.Add(1)
	case EventAdmitted:
		p.inside.Add(1)
	case EventLeft, EventSentBack:
		p.inside.Add(-1)
		p.done.Add(1)
	case EventGaveUp: // left the line, not a session
		p.done.Add(1)
	case EventError:
		p.errors.Add(1)
	}
}

// line reads the counters one by one, so the figures may differ by the events between two reads.
func (p *progress) line(since time.Duration, color bool) string {
	arrived, inside, done := p.arrived.Load(), p.inside.Load(), p.done.Load()
	errs := fmt.Sprintf("errors %d", p.errors.Load())
	if color && p.errors.Load() > 0 {
		errs = "\x1b[31m" + errs + "\x1b[0m"
	}
	return fmt.Sprintf("%4ds  arriving %d  waiting %d  inside %d  done %d  %s",
		int(since.Seconds()), int64(p.n)-arrived, max(0, arrived-inside-done), inside, done, errs)
}

// run prints to w until ctx is done: each second on a terminal, and each 10 s in a log, where a
// line each second would hide the rest.
func (p *progress) run(ctx context.Context, w io.Writer, env func(string) string) {
	tty := platform.IsScreen(w)
	every := 10 * time.Second
	if tty {
		every = time.Second
	}
	color := tty && env("NO_COLOR") == ""
	start := time.Now()
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			fmt.Fprintln(w, p.line(time.Since(start), color))
		case <-ctx.Done():
			return
		}
	}
}
