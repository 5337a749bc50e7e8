package figure

import (
	"math/rand/v2"
	"time"
)

// The document's limit: 100 calls a minute for a client.
const (
	perMinute = 100
	minute    = time.Minute
)

// word is the size of one stored number: a time or a count of 64 bits, without the cache's own
// keys.
const word = 8

// An estimator estimates how many calls came in the last minute, (at − 1 min, at]. Its times must
// not decrease.
type estimator interface {
	add(at time.Duration)
	rate(at time.Duration) float64
	spent() spent
}

// A spent is the cost of an estimator so far.
type spent struct {
	read, written int // numbers
	bytes         int // maximum stored at once
}

// A calls stores the time of every call of the last minute: the perfect sliding window, and the
// reference for the others.
type calls struct {
	times []time.Duration
	cost  spent
}

func (c *calls) add(at time.Duration) {
	c.times = append(c.times, at)
	c.cost.written++
	c.cost.bytes = max(c.cost.bytes, word*len(c.times))
}

func (c *calls) rate(at time.Duration) float64 {
	before, kept := len(c.times), c.times[:0]
	for _, t := range c.times {
		if t > at-minute {
			kept = append(kept, t)
		}
	}
	c.cost.read += before
	c.cost.written += before - len(kept) // dropped calls
	c.times = kept
	return float64(len(kept))
}

func (c *calls) spent() spent { return c.cost }

// A windows counts calls in windows of fixed length. Windows inside the last minute count in full.
// A window that began before it counts in proportion, as if its calls were evenly spread; the plain
// fixed window leaves it out.
type windows struct {
	size   time.Duration
	part   bool    // count the oldest window in proportion
	counts []int64 // ring, by number of the window
	now    int64   // number of the current window
	cost   spent
}

// fixed returns one counter for each minute.
func fixed() *windows { return &windows{size: minute, counts: make([]int64, 1)} }

// sliding estimates the last minute from n sub-windows and a part of one more. With n = 1 it is the
// document's estimate from this minute and the last.
func sliding(n int) *windows {
	return &windows{size: minute / time.Duration(n), part: true, counts: make([]int64, n+1)}
}

// current advances to the window of a time and returns its counter.
func (w *windows) current(at time.Duration) *int64 {
	n := int64(len(w.counts))
	for to := int64(at / w.size); w.now < to; {
		w.now++
		w.counts[w.now%n] = 0
	}
	return &w.counts[w.now%n]
}

func (w *windows) add(at time.Duration) {
	*w.current(at)++
	w.cost.written++
}

func (w *windows) rate(at time.Duration) float64 {
	w.current(at)
	w.cost.read += len(w.counts)
	var sum float64
	for _, c := range w.counts {
		sum += float64(c)
	}
	if w.part {
		oldest := w.counts[(w.now+1)%int64(len(w.counts))]
		sum -= float64(oldest) * float64(at%w.size) / float64(w.size)
	}
	return sum
}

func (w *windows) spent() spent {
	return spent{w.cost.read, w.cost.written, word * len(w.counts)}
}

// These constants define the stream of calls. Chosen: rates near the limit, so that the true count
// crosses it often, with changes faster than a minute, so that windows become outdated. The
// documents only mention a "random stream".
const (
	hold            = 15 * time.Second // how long a rate holds
	slowest, widest = 20, 160          // calls a minute: 20 to 180, 100 on average
)

// stream draws the times of calls: at random, with a rate that changes every hold.
func stream(r *rand.Rand, length time.Duration) []time.Duration {
	var times []time.Duration
	for from := time.Duration(0); from < length; from += hold {
		gap := float64(minute) / (slowest + widest*r.Float64())
		for at := from; ; {
			at += time.Duration(r.ExpFloat64() * gap)
			if at >= from+hold {
				break
			}
			times = append(times, at)
		}
	}
	return times
}
