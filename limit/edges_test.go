package limit

import (
	"testing"
	"time"
)

// Whoever is refused because of calls under way is not told to wait for the ends of their leases.
func TestCallsMayEndBeforeTheirLeases(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{time.Hour: time.Second, 1e8: 1e8} {
		table := newTable(t, Rule{Algorithm: Concurrency, Amount: 1, Lease: lease}, nil, 10)
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

// One old reservation that is open keeps every later one from giving back, once the bucket
// has been empty: the least level is that since the oldest.
func TestAnOldReservationKeepsOthersFromGivingBack(t *testing.T) {
	r := Rule{Algorithm: TokenBucket, Amount: 60, Window: time.Minute}
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

// Settling an estimate that was right is no call, but opens a window from the first hit.
func TestSettleOpensAWindowOfTheFirstHit(t *testing.T) {
	r := Rule{Algorithm: FixedWindow, Amount: 10, Window: time.Minute, Align: FirstHit}
	table, now := newTable(t, r, nil, 10), Time(1e18)
	a, _ := table.Reserve(now, 1, "k", 1, time.Hour)
	now += 120e9
	table.Settle(now, 1, a.ID, 1) // as estimated: nothing is taken
	now += 59e9
	passed := take2(table, now, 20) // the first call after the last window
	now += 2e9
	if passed += take2(table, now, 20); passed > 10 {
		t.Errorf("%d of 10 in a minute from the first call on, within 2 s", passed)
	}
}

// A key that was counted with the rest and then gets an entry of its own has its amount again.
func TestAKeyOfTheRestBecomesKnownAndHasAllAgain(t *testing.T) {
	r := Rule{Algorithm: SlidingLog, Amount: 10, Window: time.Minute}
	table, now := newTable(t, r, nil, 1), Time(1e18)
	table.Take(now, 7, "known", 1)
	now += 59e9
	passed := take2(table, now, 20) // of the rest
	now += 3e9                      // known is forgotten
	if passed += take2(table, now, 20); passed > 10 {
		t.Errorf("%d of 10 a minute within 3 s", passed)
	}
}

// What a key with an amount of its own may do depends on who else is there: a key that is
// shut out passes when the table is full.
func TestAFullTableForgetsOverrides(t *testing.T) {
	r := Rule{Algorithm: SlidingLog, Amount: 10, Window: time.Minute}
	table, now := newTable(t, r, map[string]int64{"k": 0}, 1), Time(1e18)
	table.Take(now, 7, "known", 1)
	if n := take2(table, now, 20); n > 0 {
		t.Errorf("%d calls of a key that may make none", n)
	}
}

// Who is counted with the rest cannot give back.
func TestTheRestTakesNothingBack(t *testing.T) {
	r := Rule{Algorithm: SlidingLog, Amount: 10, Window: time.Minute}
	table, now := newTable(t, r, nil, 1), Time(1e18)
	table.Take(now, 7, "known", 1)
	table.Take(now, 1, "k", 10)
	if d, _ := table.Take(now, 1, "k", -10); d.Remaining != 10 {
		t.Errorf("10 taken, 10 given back, %d remain of 10", d.Remaining)
	}
}

// Paced calls go w/N apart, but not after one was given back: two go at once.
func TestPacedCallsGoAtOnceAfterGivingBack(t *testing.T) {
	r := Rule{Algorithm: LeakyBucket, Amount: 6, Window: time.Minute, Paced: true}
	table, now := newTable(t, r, nil, 10), Time(1e18)
	a, _ := table.Reserve(now, 1, "k", 1, time.Hour)
	table.Take(now, 1, "k", 1)
	c, _ := table.Take(now, 1, "k", 1)
	table.Settle(now, 1, a.ID, 0)
	if d, _ := table.Take(now, 1, "k", 1); d.Wait < c.Wait+10*time.Second {
		t.Errorf("one is to go in %v, the next in %v; want 10 s between", c.Wait, d.Wait)
	}
}

// What is given back first is taken from who reserved last, who then has nothing to give.
func TestALogTakesBackFromSomebodyElse(t *testing.T) {
	r := Rule{Algorithm: SlidingLog, Amount: 10, Window: time.Minute}
	table, now := newTable(t, r, nil, 10), Time(1e18)
	table.Take(now, 1, "k", 5)
	a, _ := table.Reserve(now+1, 1, "k", 5, time.Hour)
	table.Take(now+2, 1, "k", -5)
	table.Settle(now+3, 1, a.ID, 0)
	if d := table.Peek(now+4, 1, "k", 10); !d.Allowed {
		t.Errorf("10 taken, 10 given back, %d remain of 10", d.Remaining)
	}
}

// Reset is until Remaining is Amount again; of a log whose last call was given back it is not.
func TestResetOfALogCountsWhatWasGivenBack(t *testing.T) {
	r := Rule{Algorithm: SlidingLog, Amount: 10, Window: time.Minute}
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

// After a step back of the clock the time to wait is that of the clock that stands still.
func TestRetryAfterAStepBackIsTooShort(t *testing.T) {
	r := Rule{Algorithm: FixedWindow, Amount: 1, Window: time.Minute}
	table, now := newTable(t, r, nil, 10), Time(1.2e18)
	table.Take(now, 1, "k", 1)
	now -= 1800e9
	d, _ := table.Take(now, 1, "k", 1)
	if then := table.Peek(now+Time(d.Retry), 1, "k", 1); !then.Allowed {
		t.Errorf("after the %v that were said: %+v", d.Retry, then)
	}
}

// More than ever passes is refused for ever; Peek takes any cost, and the sum runs over.
func TestPeekOfTooMuchOverflows(t *testing.T) {
	r := Rule{Algorithm: TokenBucket, Amount: 5, Window: time.Second}
	table, now := newTable(t, r, nil, 10), Time(1e18)
	a, _ := table.Reserve(now, 1, "k", 1, time.Hour)
	table.Settle(now, 1, a.ID, 50) // owed
	const most = 1<<63 - 1
	if d := table.Peek(now, 1, "k", most); d.Retry >= 0 {
		t.Errorf("%d is to pass in %v", int64(most), d.Retry)
	}
}

// Times near the greatest: the end of the window runs over, and each call begins another.
func TestTimesNearTheGreatest(t *testing.T) {
	for _, r := range []Rule{
		{Algorithm: SlidingLog, Amount: 1, Window: time.Minute},
		{Algorithm: SlidingWindow, Amount: 1, Window: time.Minute},
		{Algorithm: FixedWindow, Amount: 1, Window: time.Minute},
		{Algorithm: FixedWindow, Amount: 1, Window: time.Minute, Align: FirstHit},
		{Algorithm: FixedWindow, Amount: 1, Align: Day},
		{Algorithm: TokenBucket, Amount: 1, Window: time.Minute},
		{Algorithm: Concurrency, Amount: 1},
	} {
		table := newTable(t, r, nil, 10)
		if n := take2(table, Never-1e9, 5); n != 1 {
			t.Errorf("%s: %d of 1 pass", name(r), n)
		}
	}
}
