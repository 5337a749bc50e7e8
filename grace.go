package headgate

import (
	"time"

	"github.com/headgate/headgate/internal/sessions"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
)

// Grace keeps visits from ending on some paths, such as those on which visitors pay: none ends
// within For of a request there, unless at its hard end. Fixed sessions are prolonged by For in
// all. The slot stays taken, and the later end is in the record before the answer is sent.
type Grace struct {
	Paths []string // ending with / or *: a prefix
	For   time.Duration
}

// slack is how much more a request asks for than it needs, so that not each one has to.
func (g *Grace) slack() time.Duration { return min(g.For/10, 30*time.Second) }

// longest is how far from a sighting the end of a stay may be.
func (c *RoomConfig) longest() time.Duration {
	return max(c.SessionDuration, c.Grace.For+c.Grace.slack())
}

// rules are how long stays last.
func (c *RoomConfig) rules(par *slot.Params) *sessions.Rules {
	return &sessions.Rules{Session: c.SessionDuration, Longest: c.longest(),
		Grid: par.Grid(c.limits()[0]), Fixed: c.FixedSession}
}

// claims is how long a stay that is claimed lasts at most, 0 for a session without a hard end:
// the counter takes what is longest for a session, and rounds this down to its grid.
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

// endAt notes the end of a stay in its pass. What a fixed session got by grace is noted beside:
// it is bounded.
func (c *RoomConfig) endAt(t *ticket.Token, end slot.Time) {
	if more := end - slot.Time(t.End); c.FixedSession && more > 0 {
		t.Joined += uint32((more + slot.Time(time.Millisecond) - 1) / slot.Time(time.Millisecond))
	}
	t.End = int64(end)
}

// grace gives a stay a later end if its request is on a path of grace and it might end too soon.
// It asks the counter, for the end must be in the record; while nobody answers it stays as it is.
func (r *Room) grace(q *visitRequest, id slot.StayID, last slot.Time) slot.Time {
	g, w := &q.f.cfg.Grace, q.worker
	if !q.does.Grace {
		return last
	}
	lo, _, _, ok := w.now()
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
	// An end lies on the grid: what is less than a step of it is no more.
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
