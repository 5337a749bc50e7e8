package headgate

import (
	"time"

	"github.com/headgate/headgate/internal/sessions"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
)

// Grace keeps sessions from ending on some paths, such as those of the checkout: no session ends
// within For after a request on such a path, except at its hard end. A fixed session is extended by
// For in total. The slot stays taken, and the later end is in the record before the answer is sent.
type Grace struct {
	Paths []string // a path that ends with / or * is a prefix
	For   time.Duration
}

// slack is the extra time that a request gets beyond its need, so that not every request has to
// extend the session.
func (g *Grace) slack() time.Duration { return min(g.For/10, 30*time.Second) }

// longest returns the longest time between a visitor's request and the end of the session.
func (c *RoomConfig) longest() time.Duration {
	return max(c.SessionDuration, c.Grace.For+c.Grace.slack())
}

// rules returns the rules for the length of sessions.
func (c *RoomConfig) rules(par *slot.Params) *sessions.Rules {
	return &sessions.Rules{Session: c.SessionDuration, Longest: c.longest(),
		Grid: par.Grid(c.limits()[0]), Fixed: c.FixedSession}
}

// claims returns the longest duration of a claimed session, or 0 for a session without a hard end:
// the counter then uses the longest session, and rounds this value down to its grid.
func (c *RoomConfig) claims() time.Duration {
	if c.longest() == c.SessionDuration {
		return c.HardEnd
	}
	session := c.SessionDuration + c.longest()/100
	if c.HardEnd > 0 {
		session = min(session, c.HardEnd)
	}
	return session
}

// endAt stores the end of a session in its pass. It also stores how much of it a fixed session got
// by grace, because that amount is limited.
func (c *RoomConfig) endAt(t *ticket.Token, end slot.Time) {
	if more := end - slot.Time(t.End); c.FixedSession && more > 0 {
		t.Joined += uint32((more + slot.Time(time.Millisecond) - 1) / slot.Time(time.Millisecond))
	}
	t.End = int64(end)
}

// grace extends a session whose request is on a path of Grace if the session might end too soon. It
// requests the later end from the counter, because the end must be in the record. While the counter
// does not answer, the end stays as it is.
func (r *Room) grace(q *visitRequest, id slot.SessionID, last slot.Time) slot.Time {
	g, w := &q.f.cfg.Grace, q.worker
	if !q.does.Grace {
		return last
	}
	lo, _, _, ok := w.clock.Bounds()
	need := lo.Add(g.For)
	want := need.Add(g.slack())
	if q.f.cfg.FixedSession {
		most := slot.Time(q.tok.End).Add(g.For - time.Duration(q.tok.Joined)*time.Millisecond)
		need, want = min(need, most), min(want, most)
	}
	hard := slot.Time(q.tok.Hard)
	if hard > 0 {
		need, want = min(need, hard), min(want, hard)
	}
	// An end lies on the grid: an extension shorter than one step has no effect.
	if !ok || need-last <= w.rules.Load().Grid || w.cutOff() {
		return last
	}
	got, err := w.ask(q.r.Context(), id, last, want.Sub(lo), hard)
	if err != nil || got <= last {
		return last
	}
	w.visits.Learn(id, got)
	return got
}
