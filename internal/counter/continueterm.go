package counter

import (
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A host may start while its data center is cut off from Anywhere. It then continues the term of
// the previous host: a loan is valid until its term ends, whichever process hosts the room.

// goOnAfter is how long a new host waits for Anywhere before it continues without it. Chosen: an
// answer takes one round trip, and a new host cannot call anybody for about as long anyway.
const goOnAfter = time.Second

// PreviousHost is what a process knows of the previous host, from the state that the host published
// each second.
type PreviousHost struct {
	Term     *slot.ParentTerm // nil: none, or unknown
	Estimate slot.Estimate    // of the previous host's counter time
	Leave    float64          // slots that become free per second, as measured; 0: unknown
}

// before returns what this process knows of the previous host.
func (s *Handle) before() (b PreviousHost) {
	if t := s.told.Load(); t != nil {
		b.Term, b.Leave = t.state.Term, t.state.Leave
	}
	if s.cfg.Estimate != nil {
		b.Estimate = s.cfg.Estimate()
	}
	return b
}

// term returns the term of the loan from Anywhere, to publish it. The caller holds the lock.
func (c *Counter) term(clk time.Duration) *slot.ParentTerm {
	if t, ok := c.pool.ParentTerm(clk); ok {
		return &t
	}
	return nil
}

// goOn continues the term of the previous host if Anywhere does not answer. The caller holds the
// lock.
func (c *Counter) goOn(clk time.Duration) {
	b, rho := &c.cfg.Previous, c.pool.Params().Drift
	if !c.pool.IsCold(clk) || b.Term == nil || b.Estimate.Epoch != b.Term.Epoch || clk-c.tookAt < goOnAfter ||
		!c.pool.ContinueTerm(clk, *b.Term, b.Estimate.Lo(clk, rho), b.Estimate.Hi(clk, rho)) {
		return
	}
	_, left := c.pool.ParentSeen(clk)
	c.cfg.Log.Warn("Anywhere does not answer: this host goes on with what the one before it was lent",
		"room", c.cfg.Room, "for", left.Round(time.Second))
	c.kick()
}
