package adaptive

import "math"

// A Controller finds the limit of one room.
type Controller struct {
	settings Settings
	state    State
}

// New returns a controller that continues from what was learned; the zero State has learned nothing.
func New(s Settings, learned State) *Controller {
	if learned.active == 0 {
		learned.active = s.Start
	}
	return &Controller{settings: s, state: learned}
}

// State returns what must survive a kill and a takeover.
func (c *Controller) State() State { return c.state }

// Step takes the sample of one interval and returns what is in force from now on.
func (c *Controller) Step(s Sample) Decision {
	s0 := &c.settings
	active := min(max(c.state.active, s0.Min), s0.Max)
	return Decision{Active: active, PerMinute: s0.MaxPerMinute, P95: math.NaN(), Signal: SignalNone,
		Reason: ReasonStart, Held: s.Frozen}
}
