package sim

import (
	"math"
	"math/bits"
	"time"
)

// A judge counts the figures for the promises.
type judge struct {
	admitted, waited, early int64
	messages                int64
	firstUse                float64 // +Inf: nobody waited
	overActive, overNew     int64
	peakActive, peakWaiting int64
	overtaken               int64
	worst                   time.Duration
	latency, waits          histogram
	errors                  histogram // |waited − expected| / waited, in millionths
	swings                  histogram // (last − first expected time of entry) / waited, in millionths
	within, expects         int64
	by                      int64 // admitted before the mark
	mark                    time.Duration
	series                  Series
	sampled                 int64 // arrivals at the last sample
	lastWait                time.Duration
}

// counts checks a new admission against both limits.
func (j *judge) counts(active, fresh int64, l *Limits) {
	j.overActive = max(j.overActive, active-l.Active)
	j.overNew = max(j.overNew, fresh-l.New)
	j.peakActive = max(j.peakActive, active)
}

// someoneWaits moves the end of the period in which somebody waits. The ideal counter counts up to
// there if no other run has set a mark.
func (j *judge) someoneWaits(now time.Duration) {
	j.lastWait = now
	if j.mark == 0 {
		j.by = j.admitted
	}
}

// told judges a visitor that has to wait. The wait is early if more slots were free and due than
// people waited before it.
func (j *judge) told(w *World, x *Visitor) {
	j.waited++
	j.someoneWaits(w.now)
	if min(w.free(), w.due()) > w.waiting {
		j.early++
	}
	if w.waiting == 0 {
		active, fresh := w.Inside()
		l := &w.scenario.Limits
		use := max(float64(active+w.reserved)/float64(l.Active), float64(fresh+w.reserved)/float64(l.New))
		j.firstUse = min(j.firstUse, use)
	}
	j.peakWaiting = max(j.peakWaiting, w.waiting+1)
}

// sameMoment is how much later a visitor may have arrived without counting as overtaking, since
// message delays differ. Chosen: nobody notices less.
const sameMoment = 100 * time.Millisecond

// order judges a visitor that waited and is admitted, or still waits at the end. It was overtaken
// if a visitor that arrived later than it was admitted before it.
func (j *judge) order(x *Visitor, latest time.Duration) {
	if d := latest - x.Arrival.At; d > sameMoment {
		j.overtaken++
		j.worst = max(j.worst, d)
	}
}

// expected compares the wait of an admitted visitor with its first estimate.
func (j *judge) expected(x *Visitor, now time.Duration) {
	e := x.expect
	if e.low > e.high {
		return
	}
	waited := (now - x.told).Milliseconds()
	j.expects++
	if waited >= int64(e.low) && waited <= int64(e.high) {
		j.within++
	}
	off := math.Abs(float64(waited-int64(e.expect))) / max(float64(waited), 1000)
	j.errors.add(time.Duration(off * 1e6))
}

// longWait is the shortest wait that is judged by how steady its estimate was. Chosen: below it,
// the page shows seconds, and a single poll decides.
const longWait = time.Minute

// steady judges how much the estimated time of entry of a waiting visitor has changed.
func (j *judge) steady(e entry, waited time.Duration) {
	if waited >= longWait {
		j.swings.add(time.Duration(float64(e.last-e.first) / float64(waited) * 1e6))
	}
}

// A histogram counts durations in buckets of 1/32 of their size. Percentiles are accurate to 3 %.
type histogram struct {
	n     int64
	count [64 * 32]int64
	most  time.Duration
}

func (h *histogram) add(d time.Duration) {
	h.n++
	h.most = max(h.most, d)
	h.count[bucket(uint64(max(0, d)))]++
}

func bucket(x uint64) int {
	if x < 32 {
		return int(x)
	}
	e := bits.Len64(x) - 6
	return (e+1)*32 + int(x>>e) - 32
}

// at returns the p-quantile, 0 ≤ p ≤ 1, or 0 if the histogram is empty.
func (h *histogram) at(p float64) time.Duration {
	rank, sum := int64(math.Ceil(p*float64(h.n))), int64(0)
	for i, c := range h.count {
		if sum += c; sum >= rank && c > 0 {
			if i < 32 {
				return time.Duration(i)
			}
			e := i/32 - 1
			return min(h.most, time.Duration(uint64(i%32+32)<<e+uint64(1)<<e/2))
		}
	}
	return 0
}
