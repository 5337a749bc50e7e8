package counter

import (
	"math"
	"slices"
	"time"
)

// A course is a forecast of how many waiting visitors are called by which time, if visitors behave
// as a pattern describes. The numbers of visitors are averages and not integers.
type course struct {
	at    []float64 // seconds from the record, ascending
	calls []float64 // called by then
	ended []float64 // slots freed by then through ends in the record
	fell  []float64 // sessions that became silent in the step up to then
	slope float64   // calls per second after the last step
}

// A pattern describes the behavior of visitors as rates per second: of active visitors that leave
// explicitly or become silent, and of silent visitors that leave explicitly.
type pattern struct{ left, leftSilent, fell float64 }

// The steps of a course: the first take half a second, the later ones a fortieth of the time so
// far. A course ends after two sessions, when the visitors that come in now have been replaced
// again. After that it continues at the rate of the second session. If sessions were shortened,
// some earlier ends lie beyond the first session; the course then ends one session after the last
// of them. Chosen: about 200 steps for five minutes, 600 for a month.
const (
	firstStep = 0.5
	stepShare = 0.025
	sessions  = 2.1
)

// play simulates the room forward. While the rate at which visitors become silent is unknown, it
// assumes that visitors inside make no further request, and that called visitors make their last one
// Idle after their first.
func (c *course) play(o *outlook, p pattern) {
	share, stay := o.activeShare(p.fell), 0.0
	p.fell /= share
	if !o.sureFell {
		share, p.fell, stay = 0, 10/o.idle.Seconds(), o.idle.Seconds()
	}
	c.begin(float64(o.free - o.called)) // when the called visitors come in is unknown
	session, free := o.session.Seconds(), float64(o.free)
	active := float64(o.active) * share
	silent := float64(o.silent+o.active) - active
	end, fell, back, t := 0, 0, 0, 0.0
	last := session
	if n := len(o.ends); n > 0 {
		last = max(last, o.ends[n-1].End.Sub(o.now).Seconds())
	}
	for t < last+(sessions-1)*session+stay {
		dt := max(t*stepShare, min(firstStep, session/100))
		t += dt
		ends := 0.0
		for ; end < len(o.ends); end++ { // the end in the record moves when a visitor continues
			left := o.ends[end].End.Sub(o.now).Seconds()
			if left > t {
				break
			}
			n := float64(o.ends[end].N) * math.Exp(-p.leftSilent*max(0, left))
			if left > session-o.idle.Seconds() {
				n *= 1 - share
			}
			ends += n
		}
		lapse := ends
		for ; fell+1 < len(c.at) && c.at[fell+1] <= t-session-stay; fell++ {
			lapse += c.fell[fell+1] * math.Exp(-p.leftSilent*session)
		}
		for ; back+1 < len(c.at) && c.at[back+1] <= t-leastHold.Seconds(); back++ {
			free += (c.calls[back+1] - c.calls[back]) * o.absent
		}
		word := silent * -math.Expm1(-p.leftSilent*dt)
		free += lapse + word + p.left*active*dt
		call := max(0, free)
		if o.step > 0 {
			call = min(call, dt/o.step.Seconds())
		}
		rest, mean := p.stir(active, call*(1-o.absent), dt)
		free += p.left*(mean-active)*dt - call
		silent = max(0, silent+p.fell*mean*dt-lapse-word)
		active = rest
		c.add(t, call, ends, p.fell*mean*dt)
	}
	c.end(t-session-stay, float64(o.active+o.silent)/(100*session))
}

// stir returns how many of the active visitors are active after dt seconds, and the average over
// that time, while some leave or become silent and others are called. It is the solution of a' =
// called/dt − (left + fell)·a.
func (p *pattern) stir(active, called, dt float64) (rest, mean float64) {
	all := p.left + p.fell
	if all*dt < 1e-9 {
		return active + called, active + called/2
	}
	even, gone := called/dt/all, -math.Expm1(-all*dt)
	return active + (even-active)*gone, even + (active-even)*gone/(all*dt)
}

// begin starts a course with the slots that are certainly free.
func (c *course) begin(free float64) {
	c.at, c.calls, c.fell = append(c.at[:0], 0), append(c.calls[:0], 0), append(c.fell[:0], 0)
	c.ended = append(c.ended[:0], max(0, free))
}

func (c *course) add(t, calls, ended, fell float64) {
	last := len(c.at) - 1
	c.at, c.fell = append(c.at, t), append(c.fell, fell)
	c.calls, c.ended = append(c.calls, c.calls[last]+calls), append(c.ended, c.ended[last]+ended)
}

// end sets the rate after the last step: the average since from, and at least least.
func (c *course) end(from, least float64) {
	i, _ := slices.BinarySearch(c.at, from)
	last := len(c.at) - 1
	i = min(i, last-1) // a step may be longer than a session
	c.slope = max(least, 1e-9, (c.calls[last]-c.calls[i])/(c.at[last]-c.at[i]))
}

// of returns when the k-th visitor is called. chance moves the result by that many standard
// deviations: visitors that do not wait for an end in the record are called at random times.
func (c *course) of(k int64, chance float64) time.Duration {
	n := float64(k)
	i, _ := slices.BinarySearch(c.calls, n-nearly)
	n += chance * math.Sqrt(max(0, n-c.ended[min(i, len(c.ended)-1)]))
	i, _ = slices.BinarySearch(c.calls, n-nearly)
	switch last := len(c.calls) - 1; {
	case i == 0:
		return 0
	case i > last:
		return seconds(c.at[last] + (n-c.calls[last])/c.slope)
	}
	part := min(1, (n-c.calls[i-1])/(c.calls[i]-c.calls[i-1]))
	return seconds(c.at[i-1] + (c.at[i]-c.at[i-1])*part)
}

// nearly allows for rounding.
const nearly = 1e-6

// seconds converts n to a Duration, three years at most.
func seconds(n float64) time.Duration { return time.Duration(min(n, 1e8) * float64(time.Second)) }
