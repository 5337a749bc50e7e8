package plan

import (
	"encoding/json"
	"math"
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// An Outcome is the effect of limits on a traffic, until the last visitor is admitted.
type Outcome struct {
	Active      int64         // total active users
	New         int64         // new users a window
	Visitors    int64         //
	Waited      int64         // of them
	LongestWait time.Duration //
	MostWaiting int64         // at once
	MostActive  int64         // at once
	MostNew     int64         // in any window
	Last        time.Duration // when the last was admitted
}

// Unlimited is the value of a limit that never applies.
const Unlimited = math.MaxInt64

// MarshalJSON writes null for an unlimited limit, and times in seconds.
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

// A door admits visitors one after the other, each at the first moment that the limits allow.
type door struct {
	window, session time.Duration
	step            time.Duration // between two of the line; 0: no such limit
	out             Outcome

	ends   heap
	recent queue         // admissions of the last window
	line   queue         // admissions to come
	last   time.Duration // the last admission
	due    time.Duration // next admission of the line by the spread
}

func newDoor(active, fresh int64, l sim.Limits) *door {
	d := &door{window: l.Window, session: l.Session, out: Outcome{Active: active, New: fresh}}
	if fresh != Unlimited {
		d.step = l.Window / time.Duration(fresh)
	}
	return d
}

// visit admits a visitor that arrives after all earlier ones.
func (d *door) visit(a sim.Arrival) {
	o := &d.out
	at := max(a.At, d.last)
	d.clear(at)
	if d.last > a.At || d.full() {
		at = max(at, d.due)
		for d.clear(at); d.full(); d.clear(at) {
			if d.ends.len() >= o.Active {
				at = max(at, d.ends[0])
			}
			if d.recent.len() >= o.New {
				at = max(at, d.recent.first()+d.window)
			}
		}
		// As in the ideal strategy, a delay of up to half a second is made up for.
		d.due = max(d.due, at-min(d.step, time.Second/2)) + d.step
	}
	d.ends.push(at + a.Dwell + d.session)
	d.recent.push(at)
	d.last = at

	o.Visitors++
	o.Last = at
	o.MostActive = max(o.MostActive, d.ends.len())
	o.MostNew = max(o.MostNew, d.recent.len())
	d.line.drop(a.At)
	if at > a.At {
		d.line.push(at)
		o.Waited++
		o.LongestWait = max(o.LongestWait, at-a.At)
		o.MostWaiting = max(o.MostWaiting, d.line.len())
	}
}

// clear removes visitors that have left, and admissions older than a window.
func (d *door) clear(now time.Duration) {
	for d.ends.len() > 0 && d.ends[0] <= now {
		d.ends.pop()
	}
	d.recent.drop(now - d.window)
}

func (d *door) full() bool {
	return d.ends.len() >= d.out.Active || d.recent.len() >= d.out.New
}

// A queue holds times in order.
type queue struct {
	times []time.Duration
	head  int
}

func (q *queue) len() int64           { return int64(len(q.times) - q.head) }
func (q *queue) first() time.Duration { return q.times[q.head] }

func (q *queue) push(t time.Duration) {
	if q.head > len(q.times)/2 {
		q.times = q.times[:copy(q.times, q.times[q.head:])]
		q.head = 0
	}
	q.times = append(q.times, t)
}

// drop removes all times that are not later than t.
func (q *queue) drop(t time.Duration) {
	for q.head < len(q.times) && q.times[q.head] <= t {
		q.head++
	}
}

// A heap holds times; the first is the least.
type heap []time.Duration

func (h heap) len() int64 { return int64(len(h)) }

func (h *heap) push(t time.Duration) {
	s := append(*h, t)
	i := len(s) - 1
	for ; i > 0 && s[(i-1)/2] > t; i = (i - 1) / 2 {
		s[i] = s[(i-1)/2]
	}
	s[i] = t
	*h = s
}

func (h *heap) pop() {
	s := *h
	t := s[len(s)-1]
	s = s[:len(s)-1]
	i := 0
	for {
		low := 2*i + 1
		if low >= len(s) {
			break
		}
		if low+1 < len(s) && s[low+1] < s[low] {
			low++
		}
		if s[low] >= t {
			break
		}
		s[i], i = s[low], low
	}
	if len(s) > 0 {
		s[i] = t
	}
	*h = s
}
