package counter

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// anOutlook returns an outlook with 150 active and 50 silent visitors, whose sessions end one after
// the other, and with a completely known pattern.
func anOutlook(step time.Duration, p pattern) *outlook {
	o := &outlook{
		clk: time.Hour, now: 1, session: 5 * time.Minute, idle: 75 * time.Second, step: step,
		watched: time.Hour, active: 150, silent: 50, sureLeft: true, sureFell: true, played: true,
	}
	for i := range 50 { // by 200 s
		o.ends = append(o.ends, slot.EndCount{End: o.now.Add(time.Duration(i+1) * 4 * time.Second), N: 1})
	}
	for i := range 75 { // active within the last 75 s
		o.ends = append(o.ends, slot.EndCount{
			End: o.now.Add(o.session - o.idle + time.Duration(i+1)*time.Second - 1), N: 2,
		})
	}
	o.left, o.leftSilent = bound{p.left, p.left, p.left}, bound{p.leftSilent, p.leftSilent, p.leftSilent}
	o.fell = bound{p.fell, p.fell, p.fell}
	return o
}

// A course is the average over many rooms in which each visitor behaves as the pattern describes.
func TestACourseIsTheAverageOfManyRooms(t *testing.T) {
	if testing.Short() {
		return // long, and nothing for the race detector: make all runs it
	}
	for _, c := range []struct {
		name string
		step time.Duration
		p    pattern
	}{
		{"by a word", 0, pattern{left: 1 / 60.}},
		{"without one", 0, pattern{fell: 1 / 200.}},
		{"both", 0, pattern{left: 1 / 150., fell: 1 / 150., leftSilent: 1 / 400.}},
		{"spaced calls", 600 * time.Millisecond, pattern{left: 1 / 40., fell: 1 / 300.}},
		{"nobody leaves who is active", 0, pattern{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := anOutlook(c.step, c.p)
			o.play()
			const rooms = 20
			r, times := rand.New(rand.NewPCG(1, 2)), []float64{30, 90, 180, 300, 420, 600}
			sum := make([]float64, len(times))
			for range rooms {
				for i, n := range playRoom(r, o, c.p, times) {
					sum[i] += n
				}
			}
			for i, at := range times {
				want := sum[i] / rooms
				k, _ := slices.BinarySearch(o.mid.at, at)
				if got := o.mid.calls[k]; math.Abs(got-want) > 4+want*0.06 {
					t.Errorf("%.0f called within %.0f s, want %.0f", got, at, want)
				}
			}
		})
	}
}

// playRoom simulates one room with an endless line in steps of 0.1 s, and returns the number of
// calls at each time.
func playRoom(r *rand.Rand, o *outlook, p pattern, times []float64) (calls []float64) {
	const dt = 0.1
	share := o.activeShare(p.fell)
	p.fell /= share
	session := o.session.Seconds()
	var silent []float64 // ends
	active := 0
	for _, e := range o.ends {
		left := e.End.Sub(o.now).Seconds()
		for range e.N {
			if left > session-o.idle.Seconds() && r.Float64() < share {
				active++
			} else {
				silent = append(silent, left)
			}
		}
	}
	free, called, due := int(o.free), 0, 0.0
	for now := 0.0; len(calls) < len(times); now += dt {
		for range active {
			switch x := r.Float64(); {
			case x < p.left*dt:
				active--
				free++
			case x < (p.left+p.fell)*dt:
				active--
				silent = append(silent, now+session)
			}
		}
		silent = slices.DeleteFunc(silent, func(end float64) bool {
			gone := now >= end || r.Float64() < p.leftSilent*dt
			if gone {
				free++
			}
			return gone
		})
		for ; free > 0 && now >= due; free-- {
			due = max(due, now-dt) + o.step.Seconds()
			called++
			active++
		}
		if now >= times[len(calls)] {
			calls = append(calls, float64(called))
		}
	}
	return calls
}

// For any counts, each place has an expected time within its range, and the times rise from place
// to place.
func TestAnyOutlookHasARange(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	some := func(n int64) int64 { return r.Int64N(n+1) * r.Int64N(2) }
	upTo := func(d time.Duration) time.Duration { return time.Duration(some(int64(d))) }
	for i := range 300 {
		o := &outlook{
			clk: time.Hour, now: slot.Time(time.Hour), free: some(50) - some(20),
			watched: upTo(3 * time.Hour),
			session: 1 + upTo(time.Second<<r.IntN(22)), step: upTo(time.Second),
		}
		o.idle = slot.Idle(slot.Limit{Per: o.session})
		longest := o.session // or the previous length
		if i%3 == 0 {
			longest += upTo(time.Second << r.IntN(22))
		}
		for range some(400) {
			e := slot.EndCount{End: o.now.Add(upTo(longest) - 1), N: 1 + some(1000)}
			o.ends = append(o.ends, e)
			if e.End.Sub(o.now) > o.session-o.idle {
				o.active += e.N
			} else {
				o.silent += e.N
			}
		}
		slices.SortFunc(o.ends, func(a, b slot.EndCount) int { return int(a.End - b.End) })
		var often [5]int64 // some of the events never happen
		for n := range often {
			often[n] = r.Int64N(2)
		}
		for range 100 {
			for n := range o.counts {
				o.counts[n].add(o.clk, float64(often[n]*(some(1000)-some(100))))
			}
			o.clk += upTo(5 * time.Second)
		}
		before := span{}
		for _, k := range []int64{1, 2, 3, 10, 100, 1000, 1e6, 1e12} {
			x, surely := o.at(k, 0)
			if surely {
				continue
			}
			if x.low < before.low || x.mid < before.mid || x.high < before.high || x.low > x.high {
				t.Fatalf("room %d, place %d: %v after %v", i, k, x, before)
			}
			all, most := o.active+o.silent+o.free, 200*longest+2*o.watched+time.Minute
			if k <= all && x.high > most {
				t.Fatalf("room %d, place %d of %d inside: %v, with sessions of %v", i, k, all, x, o.session)
			}
			before = x
		}
	}
}

// Visitors inside stay until the end that they were given. After that, slots return at the rate of
// the new session length: called visitors make their last request Idle after their first.
func TestASessionThatWasShortened(t *testing.T) {
	for _, session := range []time.Duration{time.Second, 90 * time.Second, 290 * time.Second} {
		o := &outlook{clk: time.Hour, now: slot.Time(time.Hour), session: session, active: 1,
			idle: slot.Idle(slot.Limit{Per: session})}
		o.ends = []slot.EndCount{{End: o.now.Add(300 * time.Second), N: 1}}
		for k := range int64(3) {
			x, _ := o.at(k+1, 0)
			want := 300*time.Second + time.Duration(k)*(session+o.idle)
			if off := x.mid - want; off < -want/10 || off > want/10+time.Duration(k)*session/4 {
				t.Errorf("place %d with sessions of %v: %v, not about %v", k+1, session, x.mid, want)
			}
		}
	}
}

// A forecast far back costs no more than one at the head, and a poll between two writes allocates
// nothing.
func TestARangeAllocatesNothing(t *testing.T) {
	o := anOutlook(300*time.Millisecond, pattern{left: 0.01, fell: 0.01})
	o.played = false
	o.at(1, 0)
	for name, f := range map[string]func(){
		"a poll":           func() { o.at(1e6, 0) },
		"the first of all": func() { o.played = false; o.at(1e6, 0) },
	} {
		if n := testing.AllocsPerRun(100, f); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkOutlook(b *testing.B) {
	o := anOutlook(300*time.Millisecond, pattern{left: 0.01, fell: 0.01})
	for _, first := range []bool{true, false} {
		name := "a poll"
		if first {
			name = "the first after a write"
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				o.played = o.played && !first
				o.at(100, 0)
			}
		})
	}
}
