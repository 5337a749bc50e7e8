package deliver

import (
	"math"
	"sync"
	"time"

	"github.com/headgate/headgate/limit"
)

// A Pace is what a target can take.
type Pace struct {
	Amount int64         // in each Window; 0: not known, and only the target's own word slows down
	Window time.Duration // default a second
	Shared bool          // others use the target too, and nobody knows how much
}

// A Throttle is how fast a whole target is fed. Its caller asks Pass before each delivery
// and says by Busy and Done how it went.
//
// Promise: at most Amount in every window, wherever it begins, and w/Amount apart while
// somebody asks; who comes late may make up for 200 ms at most. After a target's Retry-After
// nothing passes before it is over.
//
// A target that is shared has been overrun by somebody whom nobody here can count. When it
// says so the rate is halved at once, but once a second at most, and then rises by 5 % of the
// full rate a second. Just below where it was overrun it rests, for each attempt to find more
// costs a halving: so that nearly all of what is free is used, and still 90 % of all within
// 30 s after the others have gone.
//
// It may be used by many goroutines at once, takes the time as an argument, and costs some
// 100 KB at most.
type Throttle struct {
	mu    sync.Mutex
	pace  Pace
	began time.Time
	table limit.Table // the exact count

	next   time.Time // when the next may pass, as the rate is
	hungry bool      // somebody was told to wait, and has not caught up yet

	pause  time.Time // nothing passes before
	silent int       // pauses without a word of how long, since the last delivery

	level  float64   // part of the rate that is used, at since
	since  time.Time // of level
	halved time.Time
	knee   float64   // where the rise rests…
	rest   time.Time // …until then
}

// The figures of a slow-down. Once a second, 5 % and 30 s are the rule of Azure's pattern as
// headgate promises it; the others are chosen: they were tried against strangers who take a
// changing share.
const (
	halvedOnce = time.Second      // one halving in it
	risePerSec = 0.05             // of the full rate
	recovered  = 28 * time.Second // of 30 s, with time to notice
	enough     = 0.9              // what is reached by then when all is free
	kneeBelow  = 0.98             // of where the target was overrun
	leastLevel = 1.0 / 64         // or nothing would be learnt any more

	catchUp = 200 * time.Millisecond // Azure's pattern: 20 each 200 ms of 100 a second

	firstPause, lastPause = time.Second, time.Minute // when the target does not say how long
)

// NewThrottle makes a Throttle that lets pass at the full pace.
func NewThrottle(p Pace) (*Throttle, error) {
	t := &Throttle{level: 1, knee: 1}
	return t, t.set(0, p)
}

// Change sets another pace. What has passed stays counted, and a slow-down goes on.
func (t *Throttle) Change(now time.Time, p Pace) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.set(t.time(now), p); err != nil {
		return err
	}
	if later := now.Add(t.apart(now, 1)); t.next.After(later) && t.pause.Before(later) {
		t.next = later // what was far apart need not be any more
	}
	return nil
}

func (t *Throttle) set(now limit.Time, p Pace) error {
	if p.Window == 0 {
		p.Window = time.Second
	}
	rules, err := limit.Compile(
		limit.Rule{Algorithm: limit.SlidingLog, Amount: p.Amount, Window: p.Window}, nil)
	if err != nil {
		return err
	}
	t.table.SetRules(now, rules, 1)
	t.pace = p
	return nil
}

// time is now as the table has it.
func (t *Throttle) time(now time.Time) limit.Time {
	if t.began.IsZero() {
		t.began = now
	}
	return limit.Time(max(0, now.Sub(t.began)))
}

// Pass takes n if they may go now. Else it says when to ask again; the zero time is never:
// n is more than ever passes at once. An n of 0 takes nothing and asks whether 1 may go: for
// who needs something else too.
func (t *Throttle) Pass(now time.Time, n int) (ok bool, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.pause) {
		return false, t.pause
	}
	if t.pace.Amount == 0 {
		return true, now
	}
	if int64(n) > t.pace.Amount {
		return false, time.Time{}
	}
	if now.Before(t.next) {
		t.hungry = true
		return false, t.next
	}
	d := t.table.Peek(t.time(now), 0, "", 1)
	var err error
	if n > 0 {
		d, err = t.table.Take(t.time(now), 0, "", int64(n))
	}
	if err != nil || !d.Allowed {
		t.hungry = true
		return false, now.Add(max(d.Retry, 1))
	}
	if n < 1 {
		return true, now
	}
	from := now
	if t.hungry {
		owed := max(0, min(catchUp, t.pace.Window/5)-t.apart(now, 1))
		if from = t.next; from.Before(now.Add(-owed)) {
			from = now.Add(-owed)
		}
	}
	t.next = from.Add(t.apart(now, n))
	t.hungry = t.hungry && !t.next.After(now)
	return true, now
}

// apart is how long n take at the rate of now.
func (t *Throttle) apart(now time.Time, n int) time.Duration {
	if t.pace.Amount == 0 {
		return 0
	}
	d := math.Ceil(float64(t.pace.Window) * float64(n) / (float64(t.pace.Amount) * t.levelAt(now)))
	return time.Duration(min(d, float64(limit.MaxWindow)))
}

// Level is the part of the full rate that passes at now, above 0 and up to 1.
func (t *Throttle) Level(now time.Time) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.levelAt(now)
}

func (t *Throttle) levelAt(now time.Time) float64 {
	there := t.since.Add(seconds((t.knee - t.level) / risePerSec)) // at the knee
	if now.Before(there) {
		return t.level + risePerSec*max(0, now.Sub(t.since).Seconds())
	}
	if there.Before(t.rest) {
		there = t.rest
	}
	return min(1, t.knee+risePerSec*max(0, now.Sub(there).Seconds()))
}

// Busy notes that the target has said that it is overrun, and for how long it wants to be
// left alone; 0 is that it did not say.
func (t *Throttle) Busy(now time.Time, after time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	paused := now.Before(t.pause)
	switch {
	case after > 0:
		t.hold(now.Add(min(after, mostAfter)))
	case !t.pace.Shared && !paused: // those that were under way by then say nothing new
		t.hold(now.Add(min(firstPause<<min(t.silent, 10), lastPause)))
		t.silent++
	}
	if !t.pace.Shared || now.Sub(t.halved) < halvedOnce {
		return
	}
	// What the target has counted was sent within its last second: half a second ago in the mean.
	level, counted := t.levelAt(now), t.levelAt(now.Add(-halvedOnce/2))
	t.halved = now
	t.level, t.since = max(leastLevel, level/2), now
	if t.pause.After(now) {
		t.since = t.pause // nobody learns anything meanwhile
	}
	t.knee = max(t.level, kneeBelow*min(level, counted))
	t.rest = now.Add(max(0, recovered-seconds(max(0, enough-t.knee)/risePerSec)))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// hold lets nothing pass before until.
func (t *Throttle) hold(until time.Time) {
	if until.After(t.pause) {
		t.pause = until
	}
	if until.After(t.next) {
		t.next, t.hungry = until, false
	}
}

// Done notes that a delivery went well.
func (t *Throttle) Done(time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.silent = 0
}
