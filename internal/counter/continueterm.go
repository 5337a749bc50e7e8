package counter

import (
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A host that begins while its data center is cut off from Anywhere goes on with the term of the host
// before: what was lent is lent until that ends, whoever hosts the room.

// goOnAfter is how long a new host waits for Anywhere before it goes on without it. Chosen: an answer takes
// a round trip, and who takes over hears nobody for as long.
const goOnAfter = time.Second

// Before is what a process knows of the host before it, as that said each second.
type PreviousHost struct {
	Term     *slot.ParentTerm // nil: none, or not known
	Estimate slot.Estimate    // of that host's counter time
	Leave    float64          // slots that come free a second, measured over a while; 0: not known
}

// before returns what this process knows of the host before it.
func (s *Handle) before() (b PreviousHost) {
	if t := s.told.Load(); t != nil {
		b.Term, b.Leave = t.state.Term, t.state.Leave
	}
	if s.cfg.Estimate != nil {
		b.Estimate = s.cfg.Estimate()
	}
	return b
}

// term is that of what Anywhere has lent, for others to know. Holds the lock.
func (c *Counter) term(clk time.Duration) *slot.ParentTerm {
	if t, ok := c.pool.ParentTerm(clk); ok {
		return &t
	}
	return nil
}

// goOn goes on with the term of the host before if Anywhere does not answer. Holds the lock.
func (c *Counter) goOn(clk time.Duration) {
	b, rho := &c.cfg.Previous, c.pool.Params().Rho
	if !c.pool.IsCold(clk) || b.Term == nil || b.Estimate.Epoch != b.Term.Epoch || clk-c.tookAt < goOnAfter ||
		!c.pool.ContinueTerm(clk, *b.Term, b.Estimate.Lo(clk, rho), b.Estimate.Hi(clk, rho)) {
		return
	}
	_, left := c.pool.ParentSeen(clk)
	c.cfg.Log.Warn("Anywhere does not answer: this host goes on with what the one before it was lent",
		"room", c.cfg.Room, "for", left.Round(time.Second))
	c.kick()
}
