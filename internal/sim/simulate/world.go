package simulate

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/sim/plan"
	"github.com/headgate/headgate/internal/sim/traffic"
)

// room takes the limits from a room of a configuration.
func (s *simFlags) room() error {
	l := &s.limits
	if l.config == "" {
		return nil
	}
	c, err := config.Load(l.config)
	if err != nil {
		return err
	}
	var room *config.Room
	var names []string
	for i := range c.Rooms {
		names = append(names, c.Rooms[i].Name)
		if c.Rooms[i].Name == l.room || l.room == "" && len(c.Rooms) == 1 {
			room = &c.Rooms[i]
		}
	}
	known := "the rooms of " + l.config + " are " + strings.Join(names, ", ")
	switch {
	case room == nil && l.room == "":
		return &config.Fault{Key: "--room", Problem: "is missing", Hint: known}
	case room == nil:
		return &config.Fault{Key: "--room", Problem: fmt.Sprintf("there is no room %q", l.room),
			Hint: known}
	}
	l.active, l.fresh = room.TotalActiveUsers, room.NewUsersPerMinute
	l.session, l.auto = room.SessionDuration, room.Auto
	switch {
	case !room.SessionRenewal:
		l.renewed = func(time.Duration) time.Duration { return 0 }
	case room.HardEnd > 0:
		most := room.HardEnd - room.SessionDuration
		l.renewed = func(dwell time.Duration) time.Duration { return min(dwell, most) }
	}
	return nil
}

// world returns the requested scenario, before the limits of the flags are applied. The file is nil
// if the traffic does not come from one; else the caller must close it.
func (s *simFlags) world(
	ctx context.Context, scenarios []sim.Scenario, tell *teller,
) (*sim.Scenario, *traffic.Traffic, error) {
	l := &s.limits
	if s.arrivals == "" {
		scenario, err := sim.Find(scenarios, s.scenario)
		if err != nil {
			return nil, nil, err
		}
		l.apply(scenario)
		return scenario, nil, nil
	}
	if l.session == 0 {
		l.session = sessionDefault
	}
	s.read.Session, s.read.Progress = l.session, tell.of("reading "+s.arrivals)
	if s.plan {
		s.read.Auto = l.sought()
	}
	file, err := traffic.Open(ctx, s.arrivals, s.read)
	if err != nil {
		return nil, nil, err
	}
	if file.OneAddress() {
		tell.clear()
		fmt.Fprintf(tell.w, "headgate: warning: all lines of %s have the same address\nhint: let the "+
			"server log the visitor's address, not that of the proxy before it\n", s.arrivals)
	}
	scenario := file.Scenario(sim.Limits{Window: time.Minute})
	l.apply(&scenario)
	// Runs until the line is empty, but not much longer than the file: chosen.
	o, err := plan.Play(ctx, &scenario, s.seed)
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	drained := max(scenario.Length, o.Last+scenario.Limits.Window)
	scenario.Length = min(drained, 2*scenario.Length+time.Hour)
	return &scenario, file, nil
}

// sought returns how the room would find its limit. Without a configuration everything is learned.
func (l *simLimits) sought() *adaptive.Settings {
	a := &l.auto
	return &adaptive.Settings{Min: max(a.Min, 1), Max: cmp.Or(a.Max, math.MaxInt32),
		MaxPerMinute: math.MaxInt32, TargetP95: a.TargetP95, TargetErrors: a.TargetErrors,
		SessionLength: l.session}
}

// apply sets the limits of the flags in a scenario.
func (l *simLimits) apply(s *sim.Scenario) {
	to := &s.Limits
	if l.active > 0 {
		to.Active = l.active
	}
	if l.fresh > 0 {
		to.New = max(1, int64(float64(l.fresh)*float64(to.Window)/float64(time.Minute)))
	}
	if l.session > 0 {
		to.Session = l.session
	}
	if l.renewed == nil {
		return
	}
	all := s.Arrivals
	s.Arrivals = func(seed uint64) iter.Seq[sim.Arrival] {
		return func(yield func(sim.Arrival) bool) {
			for a := range all(seed) {
				a.Dwell = l.renewed(a.Dwell)
				if !yield(a) {
					return
				}
			}
		}
	}
}
