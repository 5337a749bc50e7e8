package counter

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/status"
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
	if d := c.cfg.Datacenters; err == nil && d != nil {
		if of := d.origin(ctx); c.isAnywhere() && x.From != of || !c.isAnywhere() && of != d.Own() {
			err = fmt.Errorf("%w: of %q, it says that it is of %q", slot.ErrMessage, of, x.From)
		}
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
	x.Entered = r.Limits[1].Ends.After(now.Add(r.Limits[1].Per - cmp.Or(x.Length, signals.Every)))
	return x, senders
}

// The modes of a status.AutoLimit.
const (
	autoOn     = "on"
	autoShadow = "shadow" // what is found is shown, and changes nothing
	autoFrozen = "frozen" // the limits stay as they are
	autoEvent  = "event"  // an event has numbers of its own
)

// sought reports whether limits are found. A room that admits everybody has none.
func (s *Settings) sought() bool { return s.Auto.Max > 0 && !s.AdmitAll }

// adaptive returns what a controller needs.
func (s *Settings) adaptive() adaptive.Settings {
	a := &s.Auto
	return adaptive.Settings{Min: a.Min, Max: a.Max, MaxPerMinute: cmp.Or(a.MaxNew, s.New.N),
		Start: a.Start, TargetP95: a.TargetP95, TargetErrors: a.TargetErrors, SessionLength: s.Active.Per}
}

// fit sets the limits with which s follows was. While the limits are found they stay, and so does a number
// that is frozen. After a number, and after an event with numbers of its own, what was learned counts.
func (s *Settings) fit(r *slot.Record, was *Settings) {
	switch mode := s.Auto.Mode; {
	case mode == autoOn && was.sought(), mode == autoFrozen && was.Auto.Mode != autoEvent:
		s.bound(r.Limits[0].N, r.Limits[1].N)
	case mode == autoOn, mode == autoFrozen:
		if x := learnedOf(r); x.Known() {
			s.bound(x.Limits())
		}
	}
}

// resume sets the limits after a takeover: those that were learned, because an event may have set those of
// the record. Below Anywhere, the record has the limits that Anywhere found.
func (s *Settings) resume(r *slot.Record, below bool) {
	if s.Auto.Mode != autoOn && s.Auto.Mode != autoFrozen {
		return
	}
	if x := learnedOf(r); x.Known() && !below {
		s.bound(x.Limits())
	} else if below || s.Auto.Mode == autoFrozen {
		s.bound(r.Limits[0].N, r.Limits[1].N)
	}
}

// learnedOf returns what was learned, as far as it can be read.
func learnedOf(r *slot.Record) (x adaptive.State) {
	if x.UnmarshalBinary(r.Found) != nil {
		return adaptive.State{}
	}
	return x
}

// freeze notes the limits that are frozen in what was learned, so that the next host goes on with them. It
// reports whether that must be written.
func (c *Counter) freeze(s *Settings) bool {
	x := learnedOf(c.pool.Record())
	if active, fresh := x.Limits(); s.Auto.Mode != autoFrozen || !x.Known() ||
		active == s.Active.N && fresh == s.New.N {
		return false
	}
	x.SetLimits(s.Active.N, s.New.N)
	b, err := x.MarshalBinary()
	if err == nil {
		c.pool.SetFound(b)
	}
	return err == nil
}

// bound sets the limits that are found, within their bounds.
func (s *Settings) bound(active, fresh int64) {
	if !s.sought() {
		return
	}
	s.Active.N = min(max(active, s.Auto.Min), s.Auto.Max)
	if s.Auto.MaxNew > 0 {
		s.New.N = min(max(fresh, 1), s.Auto.MaxNew)
	}
}

// A pilot steers the limits of a room.
type pilot struct {
	of      adaptive.Settings
	control *adaptive.Controller // nil: nothing is sought
	said    adaptive.Reason      // why the limits were held when that was logged last
}

// steer finds the limits of the room while its settings say so, until ctx ends. Below Anywhere it sends
// on what was measured, and follows the limits that Anywhere has found: it lends slots that Anywhere
// has lent to it, but it spaces its calls by the limit.
func (c *Counter) steer(ctx context.Context) {
	var p pilot
	for wait(ctx, signals.Every) {
		c.mu.Lock()
		sought, number := c.cfg.sought(), c.cfg.Auto.Mode == ""
		if !sought {
			c.auto = nil
		}
		c.mu.Unlock()
		switch {
		case !sought:
			p = pilot{}
			if number { // so that earlier versions can read the record
				c.forget()
			}
			c.TakeSignals() // what was measured until now says nothing later
		case c.cfg.Datacenters == nil || c.isAnywhere():
			c.step(ctx, &p)
		default:
			c.forget() // Anywhere finds them
			c.followAnywhere(ctx)
		}
	}
}

// forget clears what was learned in the record.
func (c *Counter) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pool.Record().Found) > 0 {
		c.pool.SetFound(nil)
		c.kickWrite()
	}
}

// followAnywhere sends what this data center has measured to Anywhere, and takes its limits.
func (c *Counter) followAnywhere(ctx context.Context) {
	if x, senders := c.TakeSignals(); senders > 0 && x.Length > 0 {
		if err := c.cfg.Anywhere.SendSignals(ctx, x); err != nil && ctx.Err() == nil {
			c.cfg.Log.Debug("signals not sent to Anywhere", "room", c.cfg.Room, "error", err)
		}
	}
	if s := c.sitesState(); s != nil && s.Lends != nil {
		c.putLimits(ctx, s.Lends.Limit, s.Lends.New)
	}
}

// step finds the next limits from what all have measured, and puts them into force.
func (c *Counter) step(ctx context.Context, p *pilot) {
	x, senders := c.TakeSignals()
	c.mu.Lock()
	set, found := c.cfg.Settings, c.pool.Record().Found
	s := adaptive.Sample{
		At: time.Unix(0, int64(c.pool.CounterTime(c.cfg.Boot()))), Length: cmp.Or(x.Length, signals.Every),
		Inside: x.Inside, Waiting: x.Waiting, Entered: x.Entered, Limit: set.Active.N, New: set.New.N,
		InFlight: x.InFlight, Routes: x.Routes, Load: cmp.Or(x.Load, math.NaN()),
		Excess: x.Excess(), Frozen: set.Auto.Mode == autoFrozen,
	}
	c.mu.Unlock()
	p.fit(c, &set, found)
	d := p.control.Step(s)
	if set.Auto.MaxNew == 0 {
		d.PerMinute = set.New.N
	}
	learned, err := p.control.State().MarshalBinary()
	a := &status.Auto{
		Mode: set.Auto.Mode, Active: d.Active, New: d.PerMinute, Knee: d.Knee, P95: -1, Load: -1,
		Signal: string(d.Signal), Reason: string(d.Reason), Held: d.Held, Senders: senders,
		Trouble: x.Trouble,
	}
	if !math.IsNaN(d.P95) {
		a.P95 = d.P95
	}
	if x.Load > 0 {
		a.Load = x.Load
	}
	c.mu.Lock()
	if err == nil { // else the record keeps what it has
		c.pool.SetFound(learned)
	}
	was := c.auto
	c.auto = a
	if len(found) == 0 { // else it goes with the next write: while nobody comes, nothing is learned
		c.kickWrite()
	}
	c.mu.Unlock()
	p.log(c, was, a)
	if set.Auto.Mode == autoOn {
		c.putLimits(ctx, d.Active, d.PerMinute)
	}
}

// kickWrite makes a write necessary. The caller holds the lock.
func (c *Counter) kickWrite() {
	if c.written == nil {
		c.written = make(chan struct{})
	}
	c.kick()
}

// fit makes the controller anew, with what was learned, if there is none or the settings have changed.
func (p *pilot) fit(c *Counter, set *Settings, found []byte) {
	of := set.adaptive()
	if p.control != nil && p.of == of {
		return
	}
	var state adaptive.State
	switch {
	case p.control != nil:
		state = p.control.State()
	case len(found) > 0:
		if err := state.UnmarshalBinary(found); err != nil {
			c.cfg.Log.Warn("what was learned about the limits cannot be read: it is learned anew",
				"room", c.cfg.Room, "error", err)
		}
	}
	p.of, p.control = of, adaptive.New(of, state)
}

// log logs limits that have changed, and why others stay although the signals say otherwise.
func (p *pilot) log(c *Counter, was, a *status.Auto) {
	changed := was == nil || was.Active != a.Active || was.New != a.New || was.Mode != a.Mode
	reason := adaptive.Reason("")
	if a.Held {
		reason = adaptive.Reason(a.Reason)
	}
	if !changed && p.said == reason {
		return
	}
	p.said = reason
	c.cfg.Log.Info("limits found", "room", strings.TrimPrefix(c.cfg.Room, "@"), "mode", a.Mode,
		"total_active_users", a.Active, "new_users_per_minute", a.New, "knee", a.Knee, "p95_of_target", a.P95,
		"signal", a.Signal, "reason", a.Reason, "held", a.Held)
}

// putWait is how long a change of the limits may take until it is in the record. The next step repeats it.
const putWait = signals.Every

// putLimits puts limits that were found into force.
func (c *Counter) putLimits(ctx context.Context, active, fresh int64) {
	ctx, stop := context.WithTimeout(ctx, putWait)
	defer stop()
	c.setting.Lock()
	defer c.setting.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.cfg.Settings // they may have changed meanwhile
	if decides := c.cfg.Datacenters == nil || c.isAnywhere(); decides && s.Auto.Mode != autoOn {
		return
	}
	if s.bound(active, fresh); s.Active == c.cfg.Active && s.New == c.cfg.New {
		return
	}
	if err := c.reconfigure(ctx, s, c.limitRev); err != nil && ctx.Err() == nil {
		c.cfg.Log.Warn("limits that were found are not in force yet", "room", c.cfg.Room, "error", err)
	}
}

// accepting returns s with limits that another process has found, if they are within the bounds.
func (s *Settings) accepting(active, fresh int64) (x Settings) {
	x = *s
	x.bound(active, fresh)
	return x
}
