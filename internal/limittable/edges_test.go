package limittable

import (
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

// A caller that is rejected because of calls in progress must not have to wait for the ends of
// their leases.
func TestCallsMayEndBeforeTheirLeases(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{time.Hour: time.Second, 1e8: 1e8} {
		table := newTable(t, limit.Rule{Algorithm: limit.Concurrency, Amount: 1, Lease: lease}, nil, 10)
		first, _ := table.Take(1e18, 1, "k", 1)
		second, _ := table.Take(1e18, 1, "k", 1)
		if !first.Allowed || second.Allowed || second.Retry != want || second.Reset != lease {
			t.Errorf("lease %v: %+v, then %+v: want to come again after %v", lease, first, second, want)
		}
		if never, _ := table.Take(1e18, 1, "k", 2); never.Retry >= 0 {
			t.Errorf("two of one at once: %+v", never)
		}
	}
}

// One old open reservation kept every later one from giving back, once the bucket had been empty:
// the lowest level is that since the oldest reservation.
func TestAnOldReservationKeepsOthersFromGivingBack(t *testing.T) {
	r := limit.Rule{Algorithm: limit.TokenBucket, Amount: 60, Window: time.Minute}
	table, now := newTable(t, r, nil, 10), Time(1e18)
	table.Reserve(now, 1, "k", 1, time.Hour) // a long stream
	now += 120e9
	table.Peek(now, 1, "k", 0) // empty
	a, _ := table.Reserve(now, 1, "k", 60, time.Minute)
	table.Settle(now, 1, a.ID, 0) // in the same instant
	if d := table.Peek(now, 1, "k", 60); !d.Allowed {
		t.Errorf("60 reserved, 60 given back, and %d remain of 60", d.Remaining)
	}
}

// Settling an estimate that was exact is no call, but opened a window from the first hit.
func TestSettleOpensAWindowOfTheFirstHit(t *testing.T) {
	r := limit.Rule{Algorithm: limit.FixedWindow, Amount: 10, Window: time.Minute, Align: limit.FirstHit}
	table, now := newTable(t, r, nil, 10), Time(1e18)
	a, _ := table.Reserve(now, 1, "k", 1, time.Hour)
	now += 120e9
	table.Settle(now, 1, a.ID, 1) // as estimated: nothing more is taken
	now += 59e9
	passed := take2(table, now, 20) // the first call after the last window
	now += 2e9
	if passed += take2(table, now, 20); passed > 10 {
		t.Errorf("%d of 10 in a minute from the first call on, within 2 s", passed)
	}
}

// A key that was counted with the rest and then gets an entry of its own has its full amount again.
func TestAKeyOfTheRestBecomesKnownAndHasAllAgain(t *testing.T) {
	r := limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Minute}
	table, now := newTable(t, r, nil, 1), Time(1e18)
	table.Take(now, 7, "known", 1)
	now += 59e9
	passed := take2(table, now, 20) // of the rest
	now += 3e9                      // known is removed
	if passed += take2(table, now, 20); passed > 10 {
		t.Errorf("%d of 10 a minute within 3 s", passed)
	}
}

// What a key with an amount of its own may use depended on the other keys: a rejected key was
// allowed when the table was full.
func TestAFullTableForgetsOverrides(t *testing.T) {
	r := limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Minute}
	table, now := newTable(t, r, map[string]int64{"k": 0}, 1), Time(1e18)
	table.Take(now, 7, "known", 1)
	if n := take2(table, now, 20); n > 0 {
		t.Errorf("%d calls of a key that may make none", n)
	}
}

// Keys counted with the rest could not give back.
func TestTheRestTakesNothingBack(t *testing.T) {
	r := limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Minute}
	table, now := newTable(t, r, nil, 1), Time(1e18)
	table.Take(now, 7, "known", 1)
	table.Take(now, 1, "k", 10)
	if d, _ := table.Take(now, 1, "k", -10); d.Remaining != 10 {
		t.Errorf("10 taken, 10 given back, %d remain of 10", d.Remaining)
	}
}

// Paced calls leave w/N apart, but not after one was given back: two left at once.
func TestPacedCallsGoAtOnceAfterGivingBack(t *testing.T) {
	r := limit.Rule{Algorithm: limit.LeakyBucket, Amount: 6, Window: time.Minute, Paced: true}
	table, now := newTable(t, r, nil, 10), Time(1e18)
	a, _ := table.Reserve(now, 1, "k", 1, time.Hour)
	table.Take(now, 1, "k", 1)
	c, _ := table.Take(now, 1, "k", 1)
	table.Settle(now, 1, a.ID, 0)
	if d, _ := table.Take(now, 1, "k", 1); d.Wait < c.Wait+10*time.Second {
		t.Errorf("one is to go in %v, the next in %v; want 10 s between", c.Wait, d.Wait)
	}
}

// What was given back first was taken from the latest reservation, which then had nothing to give
// back.
func TestALogTakesBackFromSomebodyElse(t *testing.T) {
	r := limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Minute}
	table, now := newTable(t, r, nil, 10), Time(1e18)
	table.Take(now, 1, "k", 5)
	a, _ := table.Reserve(now+1, 1, "k", 5, time.Hour)
	table.Take(now+2, 1, "k", -5)
	table.Settle(now+3, 1, a.ID, 0)
	if d := table.Peek(now+4, 1, "k", 10); !d.Allowed {
		t.Errorf("10 taken, 10 given back, %d remain of 10", d.Remaining)
	}
}

// Reset is the time until Remaining is Amount again. For a log whose last call was given back it
// was not.
func TestResetOfALogCountsWhatWasGivenBack(t *testing.T) {
	r := limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Minute}
	table, now := newTable(t, r, nil, 10), Time(1e18)
	table.Take(now, 1, "k", 1)
	table.Take(now+1, 1, "k", 1)
	now += 50e9
	table.Take(now, 1, "k", 1)
	d, _ := table.Take(now, 1, "k", -1)
	if then := table.Peek(now+11e9, 1, "k", 0); then.Remaining == 10 && d.Reset > 11*time.Second {
		t.Errorf("whole again after 11 s, not in %v", d.Reset)
	}
}

// After the clock steps back, the time to wait includes the time for which the table's time stands
// still.
func TestRetryAfterAStepBackIsTooShort(t *testing.T) {
	r := limit.Rule{Algorithm: limit.FixedWindow, Amount: 1, Window: time.Minute}
	table, now := newTable(t, r, nil, 10), Time(1.2e18)
	table.Take(now, 1, "k", 1)
	now -= 1800e9
	d, _ := table.Take(now, 1, "k", 1)
	if then := table.Peek(now+Time(d.Retry), 1, "k", 1); !then.Allowed {
		t.Errorf("after the %v that were said: %+v", d.Retry, then)
	}
}

// A cost that can never pass is always rejected. Peek accepts any cost, and the sum overflowed.
func TestPeekOfTooMuchOverflows(t *testing.T) {
	r := limit.Rule{Algorithm: limit.TokenBucket, Amount: 5, Window: time.Second}
	table, now := newTable(t, r, nil, 10), Time(1e18)
	a, _ := table.Reserve(now, 1, "k", 1, time.Hour)
	table.Settle(now, 1, a.ID, 50) // owed
	const most = 1<<63 - 1
	if d := table.Peek(now, 1, "k", most); d.Retry >= 0 {
		t.Errorf("%d is to pass in %v", int64(most), d.Retry)
	}
}

// Times near the maximum: the end of the window overflowed, and each call began another window.
func TestTimesNearTheGreatest(t *testing.T) {
	for _, r := range []limit.Rule{
		{Algorithm: limit.SlidingLog, Amount: 1, Window: time.Minute},
		{Algorithm: limit.SlidingWindow, Amount: 1, Window: time.Minute},
		{Algorithm: limit.FixedWindow, Amount: 1, Window: time.Minute},
		{Algorithm: limit.FixedWindow, Amount: 1, Window: time.Minute, Align: limit.FirstHit},
		{Algorithm: limit.FixedWindow, Amount: 1, Align: limit.Day},
		{Algorithm: limit.TokenBucket, Amount: 1, Window: time.Minute},
		{Algorithm: limit.Concurrency, Amount: 1},
	} {
		table := newTable(t, r, nil, 10)
		if n := take2(table, Never-1e9, 5); n != 1 {
			t.Errorf("%s: %d of 1 pass", name(r), n)
		}
	}
}
