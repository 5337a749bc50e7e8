package limittable

import (
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

// A reservation that is open when a limit becomes Concurrency is not a call in progress, but was
// subtracted from their number when settled.
func TestReservationOfABucketEndsACallUnderWay(t *testing.T) {
	now := Time(1e18)
	table := newTable(t, limit.Rule{Algorithm: limit.TokenBucket, Amount: 60, Window: time.Minute}, nil, 10)
	a, _ := table.Reserve(now, 1, "k", 1, time.Hour)
	now += 60e9 // it has come back with time
	table.SetRules(now, compiled(t, limit.Rule{Algorithm: limit.Concurrency, Amount: 2}, nil), 10)
	under := take2(table, now, 5)
	table.Settle(now, 1, a.ID, 0)
	if under += take2(table, now, 5); under > 2 {
		t.Errorf("%d under way, of 2 at once", under)
	}
}

// Concurrency, another algorithm, and back, while calls are in progress: they were held, but not
// counted.
func TestConcurrencyThereAndBackForgetsCalls(t *testing.T) {
	now := Time(1e18)
	calls := limit.Rule{Algorithm: limit.Concurrency, Amount: 2, Lease: time.Hour}
	table := newTable(t, calls, nil, 10)
	under := take2(table, now, 2)
	table.SetRules(now, compiled(t, limit.Rule{Algorithm: limit.TokenBucket, Amount: 60,
		Window: time.Minute}, nil), 10)
	now += 60e9
	table.SetRules(now, compiled(t, calls, nil), 10)
	if under += take2(table, now, 5); under > 2 {
		t.Errorf("%d under way, of 2 at once", under)
	}
}

// The usage of other algorithms became calls in progress that nobody can end. For the keys beyond
// most, which are never swept, this lasted forever.
func TestUseBecomesCallsThatNeverEnd(t *testing.T) {
	now := Time(1e18)
	table := newTable(t, limit.Rule{Algorithm: limit.FixedWindow, Amount: 5, Window: time.Second}, nil, 1)
	table.Take(now, 7, "known", 1)
	take2(table, now, 5) // among the rest
	calls := compiled(t, limit.Rule{Algorithm: limit.Concurrency, Amount: 5, Lease: time.Hour}, nil)
	table.SetRules(now, calls, 1)
	table.Take(now, 7, "known", 1)
	for range 200 { // 200 minutes
		now += 60e9
		table.Take(now, 7, "known", 1)
		if d, _ := table.Take(now, 1, "k", 1); d.Allowed {
			return
		}
	}
	d, _ := table.Take(now, 1, "k", 1)
	t.Errorf("nothing was ever under way here, but three hours later: %+v", d)
}

// A bucket that replaces other rules gave back nothing of open reservations: renew calls the empty
// bucket first, which sets the lowest level to 0.
func TestNothingIsGivenBackAfterAChangeToABucket(t *testing.T) {
	for _, before := range []limit.Rule{
		{Algorithm: limit.FixedWindow, Amount: 10, Window: time.Hour},
		{Algorithm: limit.TokenBucket, Amount: 10, Window: time.Hour},
		{Algorithm: limit.LeakyBucket, Amount: 10, Window: time.Minute},
	} {
		now := Time(1e18)
		table := newTable(t, before, nil, 10)
		a, _ := table.Reserve(now, 1, "k", 10, time.Hour)
		after := limit.Rule{Algorithm: limit.TokenBucket, Amount: 10, Window: time.Minute}
		table.SetRules(now, compiled(t, after, nil), 10)
		if err := table.Settle(now, 1, a.ID, 0); err != nil {
			t.Fatal(err)
		}
		if d := table.Peek(now, 1, "k", 10); !d.Allowed {
			t.Errorf("from %s: all was given back, and %d remain of 10", name(before), d.Remaining)
		}
	}
}

// The same for logs, sub-windows and windows from the first hit: after rebooking, the usage is no
// longer where its reservation says.
func TestNothingIsGivenBackAfterAChangeToAWindow(t *testing.T) {
	for _, after := range []limit.Rule{
		{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Minute},
		{Algorithm: limit.SlidingWindow, Amount: 10, Window: time.Minute, Parts: 6},
		{Algorithm: limit.FixedWindow, Amount: 10, Window: time.Minute, Align: limit.FirstHit},
	} {
		now := Time(1.2e18)
		table := newTable(t, limit.Rule{Algorithm: limit.TokenBucket, Amount: 10, Window: 24 * time.Hour},
			nil, 10)
		a, _ := table.Reserve(now, 1, "k", 10, time.Hour)
		now += 20e9
		table.SetRules(now, compiled(t, after, nil), 10)
		table.Settle(now, 1, a.ID, 0)
		if d := table.Peek(now, 1, "k", 10); !d.Allowed {
			t.Errorf("to %s: all was given back, and %d remain of 10", name(after), d.Remaining)
		}
	}
}

// Another amount alone is neither another algorithm nor another window. Above 4,096, everything
// used was still taken again.
func TestALogOfMoreThan4096TakesAllAnew(t *testing.T) {
	now := Time(1.2e18)
	r := limit.Rule{Algorithm: limit.SlidingLog, Amount: 4096, Window: time.Minute}
	table := newTable(t, r, nil, 10)
	table.Take(now, 1, "k", 4096)
	now += 59e9
	r.Amount = 4097
	table.SetRules(now, compiled(t, r, nil), 10)
	now += 1.1e9
	if d := table.Peek(now, 1, "k", 4096); !d.Allowed {
		t.Errorf("61 s after the only call of a minute: %+v", d)
	}
}

// A call whose lease is over is no usage, but was booked as usage.
func TestALapsedLeaseIsBookedByTheNextRules(t *testing.T) {
	now := Time(1.2e18)
	table := newTable(t, limit.Rule{Algorithm: limit.Concurrency, Amount: 5, Lease: time.Second}, nil, 10)
	take2(table, now, 5)
	now += 3600e9
	table.SetRules(now, compiled(t, limit.Rule{Algorithm: limit.FixedWindow, Amount: 5, Window: time.Hour},
		nil), 10)
	if d := table.Peek(now, 1, "k", 5); !d.Allowed {
		t.Errorf("an hour after the last lease: %+v", d)
	}
}

// A bucket whose amount is lowered: a client that used its old amount was rejected for as long as
// the old amount takes at the new rate, here 16 hours for a limit by the minute.
func TestALoweredBucketShutsOutForHours(t *testing.T) {
	now := Time(1.2e18)
	table := newTable(t, limit.Rule{Algorithm: limit.TokenBucket, Amount: 10_000, Window: time.Minute},
		nil, 10)
	table.Take(now, 1, "k", 10_000)
	table.SetRules(now, compiled(t, limit.Rule{Algorithm: limit.TokenBucket, Amount: 10,
		Window: time.Minute}, nil), 10)
	if d := table.Peek(now, 1, "k", 1); d.Retry > time.Minute {
		t.Errorf("of 10 a minute one passes in %v", d.Retry)
	}
}
