// Package plan says which limits a traffic needs: how long people wait at those
// given, which are the smallest at which nobody waits or nobody waits longer than
// is bearable, and what a tenth more would buy.
//
// It lets people in as [sim.Ideal] does, the next in line at the moment when a
// slot comes back and the spread allows it, by a recurrence over the arrivals
// that is faster than the world's events and can stop at the first who waits too
// long. A test holds it against the ideal strategy itself. A real room is a little
// behind.
//
// It costs some 0.2 µs a visitor for each limit that is tried, a few dozen in
// all, and memory for who is inside and who waits. All is one goroutine.
//
// What it does not do: nobody gives up waiting, and nobody stays away.
package plan

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// An Outcome is what limits do to a traffic, until the last is let in.
type Outcome struct {
	Active      int64         // total active users
	New         int64         // new users a window
	Visitors    int64         //
	Waited      int64         // of them
	LongestWait time.Duration //
	MostWaiting int64         // at once
	MostActive  int64         // at once
	MostNew     int64         // in any window
	Last        time.Duration // when the last was let in
}

// Unlimited is the value of a limit that holds nobody back.
const Unlimited = math.MaxInt64

// MarshalJSON writes null for a limit that is lifted, and times in seconds.
func (o Outcome) MarshalJSON() ([]byte, error) {
	limit := func(n int64) *int64 {
		if n == Unlimited {
			return nil
		}
		return &n
	}
	return json.Marshal(map[string]any{
		"total_active_users": limit(o.Active), "new_users_per_minute": limit(o.New),
		"visitors": o.Visitors, "waited": o.Waited, "longest_wait_seconds": o.LongestWait.Seconds(),
		"most_waiting": o.MostWaiting, "most_active": o.MostActive, "most_new": o.MostNew,
		"last_admission_seconds": o.Last.Seconds(),
	})
}

// A Goal is the smallest limits at which nobody waits longer.
type Goal struct {
	Within  time.Duration
	Outcome Outcome
}

// MarshalJSON writes the time in seconds.
func (g Goal) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"within_seconds": g.Within.Seconds(), "outcome": g.Outcome})
}

// A Plan is the advice for a traffic and a room.
type Plan struct {
	Given      Outcome `json:"given"`
	OnlyActive Outcome `json:"only_active"` // the limit of new users lifted
	OnlyNew    Outcome `json:"only_new"`    // the limit of active users lifted
	More       Outcome `json:"ten_percent_more"`
	Goals      []Goal  `json:"goals"`
}

// waits are the goals: nobody waits; and what is bearable, chosen.
func waits() []time.Duration { return []time.Duration{0, 5 * time.Minute, 15 * time.Minute} }

// Make makes the plan for a scenario's traffic and limits.
func Make(ctx context.Context, s *sim.Scenario, seed uint64, progress func(done float64)) (*Plan, error) {
	m := &maker{ctx: ctx, s: s, seed: seed, step: progress}
	p := &Plan{}
	l := s.Limits
	p.Given = m.try(l.Active, l.New, Unlimited)
	if m.err == nil && p.Given.Visitors == 0 {
		return nil, sim.ErrNobody
	}
	p.OnlyActive = m.try(l.Active, Unlimited, Unlimited)
	p.OnlyNew = m.try(Unlimited, l.New, Unlimited)
	p.More = m.try(tenth(l.Active), tenth(l.New), Unlimited)
	free := m.try(Unlimited, Unlimited, Unlimited)
	for _, within := range waits() {
		p.Goals = append(p.Goals, m.goal(within, free))
	}
	if m.err != nil {
		return nil, m.err
	}
	return p, nil
}

// Play is what the limits of a scenario do to its traffic.
func Play(ctx context.Context, s *sim.Scenario, seed uint64) (Outcome, error) {
	m := &maker{ctx: ctx, s: s, seed: seed}
	return m.try(s.Limits.Active, s.Limits.New, Unlimited), m.err
}

// tenth is a tenth more, and at least one.
func tenth(n int64) int64 { return n + (n+9)/10 }

// A maker tries limits; after an error all it says is nothing.
type maker struct {
	ctx   context.Context
	s     *sim.Scenario
	seed  uint64
	step  func(done float64)
	tries int
	err   error
}

// expected is about how often limits are tried: for progress only.
const expected = 70

// try plays limits. It stops at the first wait that is longer than most, which
// LongestWait then is.
func (m *maker) try(active, fresh int64, most time.Duration) Outcome {
	if m.err != nil {
		return Outcome{}
	}
	m.tries++
	if m.step != nil {
		m.step(min(1, float64(m.tries)/expected))
	}
	d := newDoor(active, fresh, m.s.Limits)
	const often = 1 << 16 // visitors between two looks at the context, chosen: 10 ms
	for a := range m.s.Arrivals(m.seed) {
		if d.out.Visitors%often == 0 && m.ctx.Err() != nil {
			m.err = m.ctx.Err()
			return Outcome{}
		}
		if d.visit(a); d.out.LongestWait > most {
			break
		}
	}
	return d.out
}

// goal finds the smallest limits at which nobody waits longer than within. free
// is the traffic without limits.
//
// Each limit has a least value alone, with the other lifted. Both together make
// people wait longer, so both grow by the same factor until it is bearable, and
// then each shrinks as far as it can: neither of the two that come out can be
// smaller without the other being greater.
func (m *maker) goal(within time.Duration, free Outcome) Goal {
	top := Outcome{Active: max(1, free.MostActive), New: max(1, free.MostNew)}
	holds := func(active, fresh int64) bool {
		return m.try(active, fresh, within).LongestWait <= within
	}
	if within > 0 {
		active := m.least(1, top.Active, func(n int64) bool { return holds(n, Unlimited) })
		fresh := m.least(1, top.New, func(n int64) bool { return holds(Unlimited, n) })
		grown := func(n, most, k int64) int64 { return min(most, n+n*k/fine) }
		grow := max(factor(active, top.Active), factor(fresh, top.New))
		k := m.least(0, grow, func(k int64) bool {
			return holds(grown(active, top.Active, k), grown(fresh, top.New, k))
		})
		a, n := grown(active, top.Active, k), grown(fresh, top.New, k)
		top.Active = m.least(active, a, func(x int64) bool { return holds(x, n) })
		top.New = m.least(fresh, n, func(x int64) bool { return holds(top.Active, x) })
	}
	return Goal{Within: within, Outcome: m.try(top.Active, top.New, Unlimited)}
}

// fine is how finely limits are searched: within a quarter of a percent. Chosen.
const fine = 400

// factor is how many times n must grow by its part of fine to be most.
func factor(n, most int64) int64 { return (most-n)*fine/n + 1 }

// least is the least number from low to high, to a quarter of a percent, for
// which ok holds. It is taken to hold for high.
func (m *maker) least(low, high int64, ok func(int64) bool) int64 {
	for m.err == nil && high-low > high/fine {
		if middle := low + (high-low)/2; ok(middle) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return high
}
