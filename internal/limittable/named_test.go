package limittable

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

// at returns a time of day in UTC.
func at(clock string) Time {
	day, err := time.Parse("2006-01-02 15:04:05.999999999", "2024-03-12 "+clock)
	if err != nil {
		panic(err)
	}
	return Time(day.UnixNano())
}

func perMinute(t *testing.T, n int64, r limit.Rule) *Table {
	t.Helper()
	r.Amount, r.Window = n, time.Minute
	table := newTable(t, r, nil, 100)
	return table
}

// take returns how many of n calls pass, one after the other at one moment.
func take(t *testing.T, table *Table, now Time, n int) (passed int) {
	t.Helper()
	for range n {
		d, err := table.Take(now, 1, "client", 1)
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			passed++
		}
	}
	return passed
}

// Criteo's "timestamp log" is exact. The last minute at 07:10:23 is
// 07:09:23–07:10:23.
func TestCriteoTimestampLog(t *testing.T) {
	table := perMinute(t, 100, limit.Rule{Algorithm: limit.SlidingLog})
	take(t, table, at("07:09:22.9"), 30)
	take(t, table, at("07:09:23.1"), 50)
	if got := take(t, table, at("07:10:22.8"), 200); got != 20 {
		t.Errorf("%d pass while all 80 lie in the last minute, want 20", got)
	}
	if got := take(t, table, at("07:10:23"), 200); got != 30 {
		t.Errorf("%d pass at 07:10:23, want the 30 of 07:09:22.9", got)
	}
}

// "fixed window": up to 100 calls at 07:09:59 and 100 more at 07:10:00 pass.
func TestCriteoFixedWindow(t *testing.T) {
	table := perMinute(t, 100, limit.Rule{Algorithm: limit.FixedWindow})
	a, b := take(t, table, at("07:09:59"), 150), take(t, table, at("07:10:00"), 150)
	if a != 100 || b != 100 {
		t.Errorf("%d and %d pass, want 100 and 100", a, b)
	}
}

// "token bucket": half a minute idle adds 50 tokens; capped at the burst.
func TestCriteoTokenBucket(t *testing.T) {
	table := perMinute(t, 100, limit.Rule{Algorithm: limit.TokenBucket})
	take(t, table, at("07:00:00"), 100)
	if got := take(t, table, at("07:00:30"), 100); got != 50 {
		t.Errorf("%d pass after half a minute, want 50", got)
	}
	if got := take(t, table, at("07:59:00"), 300); got != 100 {
		t.Errorf("%d pass after an hour, want the burst", got)
	}
}

// "leaky bucket": calls leave at a constant rate; overflow is rejected.
func TestCriteoLeakyBucket(t *testing.T) {
	table := perMinute(t, 60, limit.Rule{Algorithm: limit.LeakyBucket, Paced: true, Burst: 10})
	now := at("07:00:00")
	for i := range 12 {
		d, err := table.Take(now, 1, "client", 1)
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed != (i < 10) || d.Allowed && d.Wait != time.Duration(i)*time.Second {
			t.Errorf("call %d: %+v, want ten a second apart and the rest refused", i, d)
		}
	}
	if d, _ := table.Take(now+Time(3*time.Second), 1, "client", 1); !d.Allowed || d.Wait != 7*time.Second {
		t.Errorf("three have left: %+v, want to go after the seven that are there", d)
	}
}

// "sliding window, 2 counters": at 00:01:43 the rate is count(00:01) + 17/60·count(00:00).
func TestCriteoTwoCounters(t *testing.T) {
	table := perMinute(t, 100, limit.Rule{Algorithm: limit.SlidingWindow})
	take(t, table, at("00:00:10"), 60)
	take(t, table, at("00:01:05"), 20) // 60·55/60 + 20 = 75 then
	want := int64(100 - 20 - 17)       // 17/60·60 = 17
	if d := table.Peek(at("00:01:43"), 1, "client", 1); d.Remaining != want {
		t.Errorf("%d remain at 00:01:43, want %d", d.Remaining, want)
	}
}

// The two-counter estimate is too high when the calls of the last minute came early in it, and too
// low when they came late.
func TestCriteoTwoCountersAreTooHighAndTooLow(t *testing.T) {
	for _, of := range []struct {
		came string
		real int
	}{{"00:00:01", 100}, {"00:00:59", 0}} { // what a log has left at 00:01:30
		table := perMinute(t, 100, limit.Rule{Algorithm: limit.SlidingWindow})
		log := perMinute(t, 100, limit.Rule{Algorithm: limit.SlidingLog})
		take(t, table, at(of.came), 100)
		take(t, log, at(of.came), 100)
		estimate, perfect := take(t, table, at("00:01:30"), 100), take(t, log, at("00:01:30"), 100)
		if estimate != 50 || perfect != of.real {
			t.Errorf("calls at %s: %d pass by two counters, want 50; %d by the log, want %d", of.came, estimate,
				perfect, of.real)
		}
	}
}

// "5 s and 1 s sub-windows come closer to the perfect window, at more cost."
func TestCriteoMoreSubWindowsComeCloser(t *testing.T) {
	off := map[int]float64{}
	for _, parts := range []int{1, 12, 60} {
		table := perMinute(t, 100, limit.Rule{Algorithm: limit.SlidingWindow, Parts: parts})
		log := perMinute(t, 100, limit.Rule{Algorithm: limit.SlidingLog})
		random := rand.New(rand.NewPCG(1, 1))
		now := at("07:00:00")
		for range 5000 {
			now += Time(random.ExpFloat64() * 0.5e9 * (1.5 + float64(now/Time(45*time.Second)%2*4)) / 3)
			n := table.Peek(now, 1, "client", 0).Remaining
			m := log.Peek(now, 1, "client", 0).Remaining
			off[parts] += float64(max(n-m, m-n)) / 5000
			if d, _ := log.Take(now, 1, "client", 1); d.Allowed { // both count the same calls
				_, e := table.slot(1)
				if e == nil {
					e = table.add(1, "client", now)
				}
				table.rules.law.spare(e, now)
				table.rules.law.book(e, now, 1)
			}
		}
	}
	t.Logf("off by %.2f, %.2f and %.2f of 100 on average", off[1], off[12], off[60])
	if off[12] > off[1]/3 || off[60] > off[12]/2 {
		t.Errorf("off by %v: want more sub-windows to come closer", off)
	}
}
