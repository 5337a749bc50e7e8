package deliver

import (
	"math"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
)

// A Pace is the load that a target can take.
type Pace struct {
	Amount int64         // per Window; 0: unknown, only the target's answers slow down
	Window time.Duration // default one second
	Shared bool          // others use the target too, by an unknown amount
}

// A Throttle controls the pace of all deliveries to one target. Its caller calls Pass before each
// delivery, and Busy or Done with the result.
//
// A Throttle allows at most Amount in every window, wherever the window begins. While there is
// demand, deliveries are Window/Amount apart; a late caller may catch up by at most 200 ms. Nothing
// passes before a Retry-After of the target is over.
//
// A shared target may be overloaded by other clients that nobody here can count. When it reports an
// overload, the rate is halved at once, but at most once per second. It then rises by 5 % of the
// full rate per second. It pauses just below the rate at which the target was overloaded, because
// each attempt to go higher costs a halving. In this way nearly all free capacity is used, and 90 %
// of the full rate is reached within 30 s after the other clients have stopped.
//
// A Throttle is safe for concurrent use, takes the time as an argument, and needs at most about 100
// KB.
type Throttle struct {
	mu    sync.Mutex
	pace  Pace
	began time.Time
	table limittable.Table // the exact count

	next   time.Time // when the next one may pass at the current rate
	hungry bool      // a caller had to wait and has not caught up yet

	pause  time.Time // nothing passes before this time
	silent int       // pauses without Retry-After since the last delivery

	level  float64   // fraction of the full rate in use at time since
	since  time.Time // time of level
	halved time.Time
	knee   float64   // the level at which the rise pauses…
	rest   time.Time // …until then
}

// Parameters of the slowdown. Once per second, 5 % and 30 s are the rule of Azure's pattern, which
// headgate promises. The others are chosen after trials against clients that take a changing share.
const (
	halvedOnce = time.Second      // at most one halving in this time
	risePerSec = 0.05             // of the full rate
	recovered  = 28 * time.Second // of 30 s, minus the time to notice
	enough     = 0.9              // level reached by then when all is free
	kneeBelow  = 0.98             // of the level at which the target was overloaded
	leastLevel = 1.0 / 64         // lower, and nothing would be learned any more

	catchUp = 200 * time.Millisecond // as in Azure's pattern: 20 per 200 ms of 100 per second

	firstPause, lastPause = time.Second, time.Minute // when the target sends no Retry-After
)

// NewThrottle returns a Throttle at the full pace.
func NewThrottle(p Pace) (*Throttle, error) {
	t := &Throttle{level: 1, knee: 1}
	return t, t.set(0, p)
}

// Change sets another pace. Past deliveries stay counted, and a slowdown continues.
func (t *Throttle) Change(now time.Time, p Pace) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.set(t.time(now), p); err != nil {
		return err
	}
	if later := now.Add(t.apart(now, 1)); t.next.After(later) && t.pause.Before(later) {
		t.next = later // the longer spacing does not apply any more
	}
	return nil
}

func (t *Throttle) set(now limittable.Time, p Pace) error {
	if p.Window == 0 {
		p.Window = time.Second
	}
	rules, err := limittable.Compile(
		limit.Rule{Algorithm: limit.SlidingLog, Amount: p.Amount, Window: p.Window}, nil)
	if err != nil {
		return err
	}
	t.table.SetRules(now, rules, 1)
	t.pace = p
	return nil
}

// time converts now to the time of the table.
func (t *Throttle) time(now time.Time) limittable.Time {
	if t.began.IsZero() {
		t.began = now
	}
	return limittable.Time(max(0, now.Sub(t.began)))
}

// Pass takes n if they may leave now. Otherwise it returns when to try again; the zero time means
// never, because n is more than can ever pass at once. If n is 0, Pass takes nothing and reports
// whether 1 may leave: for callers that need something else too.
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

// apart returns how long n take at the current rate.
func (t *Throttle) apart(now time.Time, n int) time.Duration {
	if t.pace.Amount == 0 {
		return 0
	}
	d := math.Ceil(float64(t.pace.Window) * float64(n) / (float64(t.pace.Amount) * t.levelAt(now)))
	return time.Duration(min(d, float64(limit.MaxWindow)))
}

// Level returns the fraction of the full rate in use at now, above 0 and up to 1.
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

// Busy records that the target reported an overload. after is its Retry-After, or 0 if there was
// none.
func (t *Throttle) Busy(now time.Time, after time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	paused := now.Before(t.pause)
	switch {
	case after > 0:
		t.hold(now.Add(min(after, mostAfter)))
	case !t.pace.Shared && !paused: // those already in flight report nothing new
		t.hold(now.Add(min(firstPause<<min(t.silent, 10), lastPause)))
		t.silent++
	}
	if !t.pace.Shared || now.Sub(t.halved) < halvedOnce {
		return
	}
	// What the target has counted was sent within the last second, so half a second ago on average.
	level, counted := t.levelAt(now), t.levelAt(now.Add(-halvedOnce/2))
	t.halved = now
	t.level, t.since = max(leastLevel, level/2), now
	if t.pause.After(now) {
		t.since = t.pause // nothing is learned during the pause
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

// Done records a successful delivery.
func (t *Throttle) Done(time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.silent = 0
}
