package signals

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
)

// A Sender gives reports to the host of a room. A Room embeds it under an unexported name, so that its
// documentation has no type that users cannot import.
type Sender interface {
	SendSignals(ctx context.Context, x *Report) error
}

// Every is how often a node sends a report. Chosen: a limit follows the origin within some of them,
// and a thousand nodes send 200 messages a second.
const Every = 5 * time.Second

// Each calls begin once in each interval of Every, until ctx ends. What begin starts in wg may take longer:
// the next call waits for it.
func Each(ctx context.Context, begin func(wg *sync.WaitGroup)) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var wg sync.WaitGroup
		begin(&wg)
		wg.Wait()
	}
}

// Bounds of a collector. Chosen: a node that has missed three reports is down, and its visitors ask other
// nodes. A route takes a kilobyte, twice. Of more than 32 nodes each has fewer routes of its own, so that
// made up ones fill some megabytes.
const (
	mostSenders = 1024
	mostMissed  = 3
	mostRoutes  = 32 * adaptive.MaxRoutes // of senders with as many each
	leastRoutes = 4
)

// A Collector holds the reports of the nodes, or of the data centers, of one room until they are
// taken as one. The zero Collector is empty. Its caller guards it.
type Collector struct{ of map[string]*sender }

// A sender is what is known of one of them.
type sender struct {
	sum    Report // since the last Take: InFlight and Inside times seconds
	last   Report // what sum was at the last Take that found anything
	missed int    // Takes in a row that found nothing
}

// longest is the longest report that counts. Chosen: what a node saw that stood still is not of now, and
// it would be spread over the time of the others.
const longest = 3 * Every

// Put adds a report, and reports whether it counts and there was room for its sender.
func (c *Collector) Put(x *Report) bool {
	if x.Length > longest {
		return false
	}
	s := c.of[x.From]
	if s == nil {
		if len(c.of) >= mostSenders {
			return false
		}
		if c.of == nil {
			c.of = map[string]*sender{}
		}
		s = &sender{}
		c.of[x.From] = s
	}
	s.sum.add(x)
	s.sum.Routes = bound(s.sum.Routes, max(leastRoutes, min(mostRoutes/len(c.of), adaptive.MaxRoutes)))
	s.sum.Length += x.Length
	s.sum.InFlight += x.InFlight * x.Length.Seconds()
	s.sum.Inside += x.Inside * x.Length.Seconds()
	s.sum.Waiting = x.Waiting
	s.sum.Entered += x.Entered
	return true
}

// MakeRoom forgets a sender that nobody knows, if there is no room for one that is known.
func (c *Collector) MakeRoom(from string, known func() map[string]bool) {
	if c.of[from] != nil || len(c.of) < mostSenders {
		return
	}
	names := known()
	if !names[from] {
		return
	}
	for other := range c.of {
		if !names[other] {
			delete(c.of, other)
			return
		}
	}
}

// Complete reports whether every known sender has sent something since the last Take.
func (c *Collector) Complete() bool {
	for _, s := range c.of {
		if s.sum.Length == 0 {
			return false
		}
	}
	return len(c.of) > 0
}

// Take returns everything since the last Take as one report, and how many senders it contains.
//
// A sender that is silent still has its visitors inside. Without its requests, the origin would look
// less used than it is. So its last report stands in for a missing one, a few times, without what
// failed then and without its load: old failures must not lower a limit again.
func (c *Collector) Take() (x *Report, senders int) {
	x = &Report{}
	for from, s := range c.of {
		if s.sum.Length > 0 {
			s.last, s.sum, s.missed = s.sum, Report{}, 0
		} else if s.missed++; s.missed > mostMissed {
			delete(c.of, from)
			continue
		} else if s.missed == 1 {
			s.last.withoutFailures()
		}
		senders++
		seconds := s.last.Length.Seconds()
		x.add(&s.last)
		x.Length = max(x.Length, s.last.Length)
		x.InFlight += s.last.InFlight / seconds
		x.Inside += s.last.Inside / seconds
		x.Waiting += s.last.Waiting
		x.Entered += s.last.Entered
	}
	return x, senders
}

// withoutFailures keeps only the requests that were answered. The times of those that failed cannot
// be told from the others; a report with failures loses all its times.
func (x *Report) withoutFailures() {
	for i := range x.Routes {
		r := &x.Routes[i]
		if r.Failed+r.Refused > 0 {
			r.Latency = [len(r.Latency)]int64{}
		}
		r.Failed, r.Refused = 0, 0
	}
	x.Load, x.by.failed, x.by.slow = 0, groups{}, groups{}
}
