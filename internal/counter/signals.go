package counter

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/internal/slot"
)

// Each node sends what it has measured of the origin to the host of the room. With several data
// centers, each host sends the sum to Anywhere. A report that is lost is not sent again: the next one
// follows in signals.Every.

// signalsWait is how long a host may take to accept a report. Chosen: below signals.Every.
const signalsWait = 2 * time.Second

// SendSignals gives what this process has measured to the host, wherever it is.
func (s *Handle) SendSignals(ctx context.Context, x *signals.Report) error {
	if x.From = s.cfg.Host; s.isAnywhere() {
		x.From = s.cfg.Datacenters.Own()
	}
	if c := s.host.Load(); c != nil {
		c.putSignals(x)
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, signalsWait)
	defer stop()
	_, err := s.askHost(ctx, "signals", x.Append(nil))
	return err
}

// SendSignals collects what this process has measured.
func (c *Counter) SendSignals(_ context.Context, x *signals.Report) error {
	x.From = c.cfg.Host
	c.putSignals(x)
	return nil
}

// putSignals collects a report. If too many senders are known, it is dropped: the others go on.
func (c *Counter) putSignals(x *signals.Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.signals.Put(x)
}

// answerSignals accepts the report of another process.
func (c *Counter) answerSignals(ctx context.Context, msg []byte) []byte {
	x, err := signals.ReadReport(msg)
	if err == nil && c.isAnywhere() && x.From != c.cfg.Datacenters.origin(ctx) {
		err = fmt.Errorf("%w: it says that it is of %q", slot.ErrMessage, x.From)
	}
	if err != nil {
		c.refused(err)
		return nil
	}
	c.putSignals(x)
	return []byte{1} // it has arrived
}

// TakeSignals returns what all senders have measured since the last call, as one report, and how many
// senders it contains. At Anywhere the senders are data centers, and the people are those that they
// report. Elsewhere they are those of this counter.
func (c *Counter) TakeSignals() (x *signals.Report, senders int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x, senders = c.signals.Take()
	if c.isAnywhere() || c.damaged != nil {
		return x, senders
	}
	r := c.pool.Record()
	now := c.pool.CounterTime(c.cfg.Boot())
	x.Inside, x.Waiting = float64(r.Limits[0].Ends.After(now)), c.waiting()
	// An entry counts in the window until Per after it.
	x.Entered = r.Limits[1].Ends.After(now.Add(r.Limits[1].Per - x.Length))
	return x, senders
}
