package origin

import (
	"testing"
	"time"
)

// The limit of calls is found within two minutes, from two calls at once on, and stays within 20 % of
// the number with which the most calls are served within the target, by trying. Calls come at twice the
// rate that the origin can answer.
func TestLimitOfCallsIsFound(t *testing.T) {
	for servers, x := range map[int]struct {
		rate float64
		best int64 // by trying all numbers with seed 1
	}{2: {60, 6}, 4: {120, 10}, 8: {180, 18}, 40: {1000, 75}} {
		if testing.Short() && servers != 8 {
			continue
		}
		c := &Calls{Length: 8 * time.Minute, Rate: x.rate}
		if servers != 8 {
			c.Change = func(p *Plant, now time.Duration) {
				for s, n := range map[int]int{application: servers, database: 40, lock: 100, reports: 100} {
					p.stations[s].servers, p.stations[s].contention, p.stations[s].coherency = n, 0, 0
				}
			}
		}
		best := PlayCalls(c, Fixed("", x.best), 1)
		for _, n := range []int64{x.best * 2 / 3, x.best*3/2 + 1} {
			if r := PlayCalls(c, Fixed("", n), 1); r.Served > best.Served {
				t.Errorf("%d servers: a limit of %d serves %d, the best serves %d", servers, n, r.Served, best.Served)
			}
		}
		for seed := uint64(1); seed <= 3; seed++ {
			r := PlayCalls(c, Ours(), seed)
			found, want := r.Limit(2*time.Minute, c.Length), float64(x.best)
			t.Logf("%d servers, seed %d: %.1f, the best is %d; %d of %d served, %d slow of %d",
				servers, seed, found, x.best, r.Served, best.Served, r.Slow, best.Slow)
			if found < 0.8*want || found > 1.2*want {
				t.Errorf("%d servers, seed %d: the limit is %.1f, want %d", servers, seed, found, x.best)
			}
			if r.Served < best.Served*17/20 {
				t.Errorf("%d servers, seed %d: %d served, want %d", servers, seed, r.Served, best.Served)
			}
		}
	}
}

// When the origin loses half of its capacity, the limit falls with it: after 30 s few calls are slow.
// It rises again when the capacity is back. An origin that becomes three times slower is held where most
// calls are answered in time, or nothing more can be done.
func TestLimitOfCallsFollowsCapacity(t *testing.T) {
	const fall, back = 4 * time.Minute, 8 * time.Minute
	c := &Calls{Length: 14 * time.Minute, Rate: 180, Change: func(p *Plant, now time.Duration) {
		switch now {
		case fall:
			p.Scale(0.5, now)
		case back:
			p.Scale(2, now)
		}
	}}
	for seed := uint64(1); seed <= 3; seed++ {
		r := PlayCalls(c, Ours(), seed)
		before, low := r.Limit(3*time.Minute, fall), r.Limit(fall+time.Minute, back)
		prompt := r.Limit(fall+10*time.Second, fall+30*time.Second)
		again := r.Limit(back+3*time.Minute, c.Length)
		late := int64(0)
		for _, n := range r.Late[(fall+30*time.Second)/time.Second : back/time.Second] {
			late += n
		}
		share := float64(late) / (back - fall - 30*time.Second).Seconds() / 45
		t.Logf("seed %d: %.1f, then %.1f, %.1f, and %.1f; %.3f late", seed, before, prompt, low, again, share)
		if prompt > 0.9*before || low > 0.7*before || low < 0.4*before {
			t.Errorf("seed %d: the limit falls from %.1f to %.1f in 30 s, and to %.1f", seed, before, prompt, low)
		}
		if share > maxSlow {
			t.Errorf("seed %d: %.3f of the calls are late 30 s after the fall", seed, share)
		}
		if again < 0.8*before {
			t.Errorf("seed %d: the limit was %.1f, and rises to %.1f only", seed, before, again)
		}
	}
}

// Few callers say nothing about a higher limit.
func TestLimitOfCallsStaysWhereFewCall(t *testing.T) {
	r := PlayCalls(&Calls{Length: 10 * time.Minute, Rate: 8}, Ours(), 1)
	if last := r.Limits[len(r.Limits)-1]; last > 8 {
		t.Errorf("the limit is %d, and about one call is under way", last)
	}
}
