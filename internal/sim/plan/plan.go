// Package plan computes which limits a given traffic needs: how long people wait at the given
// limits, what the smallest limits are at which nobody waits or nobody waits too long, and what a
// tenth more would change.
//
// It admits people as [sim.Ideal] does: the next in line enters at the moment when a slot is free
// and the spread allows it. It uses a recurrence over the arrivals, which is faster than the events
// of a World and can stop at the first visitor that waits too long. A test compares it with the
// ideal strategy itself. A real room is slightly slower.
//
// It costs about 0.2 µs a visitor for each limits that are tried, a few dozen in all, and memory
// for visitors inside and waiting. It uses one goroutine.
//
// It assumes that nobody gives up waiting, and nobody stays away.
package plan

import (
	"context"
	"encoding/json"
	"time"

	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/sim/traffic"
)

// A Goal holds the smallest limits at which nobody waits longer than a given time.
type Goal struct {
	Within  time.Duration
	Outcome Outcome
}

// MarshalJSON writes the time in seconds.
func (g Goal) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"within_seconds": g.Within.Seconds(), "outcome": g.Outcome})
}

// A Plan is the advice on limits for a traffic and a room.
type Plan struct {
	Given      Outcome `json:"given"`
	OnlyActive Outcome `json:"only_active"` // without the limit of new users
	OnlyNew    Outcome `json:"only_new"`    // without the limit of active users
	More       Outcome `json:"ten_percent_more"`
	Goals      []Goal  `json:"goals"`
	// Found is nil if the traffic is not from an access log.
	Found *traffic.Found `json:"found,omitempty"`
}

// waits returns the goals: nobody waits; and acceptable waits, chosen.
func waits() []time.Duration { return []time.Duration{0, 5 * time.Minute, 15 * time.Minute} }

// Make computes the plan for a scenario's traffic and limits.
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

// Play computes the effect of a scenario's limits on its traffic.
func Play(ctx context.Context, s *sim.Scenario, seed uint64) (Outcome, error) {
	m := &maker{ctx: ctx, s: s, seed: seed}
	return m.try(s.Limits.Active, s.Limits.New, Unlimited), m.err
}

// tenth returns n plus a tenth, and at least one more.
func tenth(n int64) int64 { return n + (n+9)/10 }

// A maker tries limits. After an error its results are zero.
type maker struct {
	ctx   context.Context
	s     *sim.Scenario
	seed  uint64
	step  func(done float64)
	tries int
	err   error
}

// expected is the approximate number of tries, for progress only.
const expected = 70

// try runs limits. It stops at the first wait longer than most, and LongestWait is then that wait.
func (m *maker) try(active, fresh int64, most time.Duration) Outcome {
	if m.err != nil {
		return Outcome{}
	}
	m.tries++
	if m.step != nil {
		m.step(min(1, float64(m.tries)/expected))
	}
	d := newDoor(active, fresh, m.s.Limits)
	const often = 1 << 16 // visitors between two checks of the context, chosen: 10 ms
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

// goal finds the smallest limits at which nobody waits longer than within. free is the traffic
// without limits.
//
// It first finds the least value of each limit with the other one lifted. Together they make people
// wait longer, so it raises both by the same factor until the wait is acceptable, and then lowers
// each as far as possible. Neither of the two resulting limits can be smaller unless the other is
// larger.
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

// fine is the precision of the search: a quarter of a percent. Chosen.
const fine = 400

// factor returns how many steps of 1/fine raise n to most.
func factor(n, most int64) int64 { return (most-n)*fine/n + 1 }

// least returns the smallest number from low to high, within a quarter of a percent, for which ok
// holds. It assumes that ok holds for high.
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
