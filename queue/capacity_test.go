package queue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
)

func rate(amount int64) ratelimit.Limit {
	return ratelimit.Limit{Name: "db",
		Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: amount, Window: time.Second}}
}

// takeOne takes for a member, and waits as long as it is denied.
func takeOne(t *testing.T, c *Capacity, m *member, ld load) taken {
	t.Helper()
	for {
		got, no, err := c.take(t.Context(), m, []LimitUse{{Limit: "db"}}, ld)
		if err != nil {
			t.Fatal(err)
		}
		if no == nil {
			return got
		}
		if no.never != "" {
			t.Fatalf("%d never pass", ld.cost)
		}
		time.Sleep(time.Until(no.until))
	}
}

func TestWhatIsTakenComesBackOneWindowAfterTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := limiter(t, rate(10)), &member{weight: 1, smooth: true}
		var all []taken
		for range 10 {
			all = append(all, takeOne(t, c, m, load{cost: 1}))
		}
		time.Sleep(5 * time.Second) // the answers are late
		if _, no, _ := c.take(t.Context(), m, []LimitUse{{Limit: "db"}}, load{cost: 1}); no == nil {
			t.Fatal("an eleventh goes while ten are under way")
		}
		answered := time.Now()
		for _, x := range all {
			c.answered(x)
		}
		takeOne(t, c, m, load{cost: 1})
		if d := time.Since(answered); d != time.Second {
			t.Errorf("the next went %v after the answers, want a second", d)
		}
	})
}

func TestSendingIsSpreadOverTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := limiter(t, rate(100)), &member{weight: 1, smooth: true}
		var at []time.Time
		for range 300 {
			x := takeOne(t, c, m, load{cost: 1})
			at = append(at, time.Now())
			c.answered(x)
		}
		for i := 30; i < len(at); i++ { // E2: 20 per 200 ms, of 100 per second
			if d := at[i].Sub(at[i-21]); d < 200*time.Millisecond {
				t.Fatalf("21 within %v", d)
			}
		}
		if d := at[299].Sub(at[0]); d > 3*time.Second {
			t.Errorf("300 took %v, want 3 s at most", d)
		}
	})
}

func TestCostCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rate(20_000)
		r.Unit = ratelimit.CostUnits
		c, m := limiter(t, r), &member{weight: 1, smooth: true}
		begin := time.Now()
		for range 10_000 { // E1: 10,000 records of 10 RU at 20,000 RU per second
			c.answered(takeOne(t, c, m, load{cost: 10}))
		}
		if d := time.Since(begin); d < 4*time.Second || d > 5*time.Second+10*time.Millisecond {
			t.Errorf("it took %v, want 5 s", d)
		}
		_, no, _ := c.take(t.Context(), m, []LimitUse{{Limit: "db"}}, load{cost: 20_001})
		if no == nil || no.never != "db" {
			t.Errorf("more than the limit: got %+v, want never", no)
		}
	})
}

func TestQueuesShareByWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := limiter(t, rate(100))
		heavy, light := &member{weight: 3, smooth: true}, &member{weight: 1, smooth: true}
		counts := make(chan *member, 10_000)
		end := time.Now().Add(10 * time.Second)
		for _, m := range []*member{heavy, light} {
			go func() {
				for time.Now().Before(end) {
					c.answered(takeOne(t, c, m, load{cost: 1}))
					counts <- m
				}
			}()
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		n := map[*member]int{}
		for len(counts) > 0 {
			n[<-counts]++
		}
		if all := n[heavy] + n[light]; all < 985 || all > 1010 {
			t.Errorf("%d went in 10 s, want 1,000", all)
		}
		if share := float64(n[heavy]) / float64(n[light]); share < 2.7 || share > 3.3 {
			t.Errorf("%d and %d went, want 3 to 1", n[heavy], n[light])
		}
	})
}

func TestWhoWantsNothingHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := limiter(t, rate(100))
		a, b := &member{weight: 1, smooth: true}, &member{weight: 1, smooth: true}
		c.answered(takeOne(t, c, a, load{cost: 1}))
		begin := time.Now()
		for range 200 {
			c.answered(takeOne(t, c, b, load{cost: 1}))
		}
		if d := time.Since(begin); d > 2*time.Second+100*time.Millisecond {
			t.Errorf("200 took %v, want 2 s", d)
		}
	})
}

// A reserved part is used first, and no other queue takes it. A queue without one gets its share of
// the rest.
func TestAReservedPartIsNobodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rate(100)
		r.Reserved, r.Unit = map[string]int64{"mine": 20}, ratelimit.CostUnits
		c := limiter(t, r)
		mine, other := &member{weight: 1}, &member{weight: 1}
		uses := []LimitUse{{Limit: "db", Reserved: "mine"}}
		n := 0
		for ; ; n++ { // all that is not reserved
			if _, no, err := c.take(t.Context(), other, []LimitUse{{Limit: "db"}},
				load{cost: 1}); err != nil {
				t.Fatal(err)
			} else if no != nil {
				break
			}
		}
		if n != 80 {
			t.Errorf("others took %d of 100, want 80", n)
		}
		for n = 0; n < 30; n++ {
			if _, no, _ := c.take(t.Context(), mine, uses, load{cost: 1}); no != nil {
				break
			}
		}
		if n != 20 {
			t.Errorf("who has 20 of its own took %d", n)
		}
		if _, no, _ := c.take(t.Context(), mine, uses, load{cost: 90}); no == nil || no.never != "db" {
			t.Errorf("more than either part: %+v, want never", no)
		}
		if _, no, _ := c.take(t.Context(), mine, uses, load{cost: 50}); no == nil || no.never != "" {
			t.Errorf("more than what is reserved: %+v, want to wait", no)
		}
	})
}

// If one of several limits denies a job, the others get their units back.
func TestAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		few := rate(1)
		few.Name = "few"
		c, m := limiter(t, rate(10), few), &member{weight: 1}
		uses := []LimitUse{{Limit: "db"}, {Limit: "few"}}
		first, no, err := c.take(t.Context(), m, uses, load{cost: 1})
		if no != nil || err != nil {
			t.Fatal(no, err)
		}
		for range 50 {
			if _, no, _ := c.take(t.Context(), m, uses, load{cost: 1}); no == nil {
				t.Fatal("two pass the limit of one")
			}
		}
		c.answered(first)
		for i := range 9 {
			if _, no, _ := c.take(t.Context(), m, []LimitUse{{Limit: "db"}}, load{cost: 1}); no != nil {
				t.Fatalf("%d of the nine that are left pass", i)
			}
		}
	})
}

// A queue waits after another process for as long as a limit needs to become fully available.
func TestWholeAfter(t *testing.T) {
	now := time.Date(2026, 5, 4, 10, 0, 15, 0, time.UTC)
	rule := func(a limit.Algorithm, window time.Duration, burst int64, align limit.Align) limit.Rule {
		return limit.Rule{Algorithm: a, Amount: 10, Window: window, Burst: burst, Align: align}
	}
	for _, x := range []struct {
		rule limit.Rule
		want time.Duration
	}{
		{rule(limit.SlidingLog, time.Second, 0, 0), time.Second},
		{rule(limit.TokenBucket, time.Second, 50, 0), 5 * time.Second},
		{rule(limit.FixedWindow, time.Minute, 0, limit.Minute), 45 * time.Second},
		{rule(limit.Concurrency, 0, 0, 0), 0},
	} {
		if got := wholeAfter(x.rule, now); got != x.want {
			t.Errorf("%v: %v, want %v", x.rule.Algorithm, got, x.want)
		}
	}
}

// A changed pace is in force at once, however long the wait was before.
func TestAChangedPaceIsInForceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rate(1)
		r.Window = time.Hour
		limits, err := ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{r}})
		if err != nil {
			t.Fatal(err)
		}
		c, m := NewCapacity(limits), &member{weight: 1, smooth: true}
		c.answered(takeOne(t, c, m, load{cost: 1}))
		_, no, _ := c.take(t.Context(), m, []LimitUse{{Limit: "db"}}, load{cost: 1})
		if no == nil {
			t.Fatal("a second one within the hour")
		}
		r.Amount, r.Window = 100, time.Second
		if err := limits.SetLimit(r); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		c.answered(takeOne(t, c, m, load{cost: 1}))
		c.answered(takeOne(t, c, m, load{cost: 1}))
		if d := time.Since(begin); d > 2*time.Second {
			t.Errorf("two went after %v", d)
		}
	})
}

// What comes back from a queue that has left its ledgers does not make it a member again.
func TestWhoHasLeftStaysAway(t *testing.T) {
	c, gone, stays := limiter(t, rate(10)), &member{weight: 1}, &member{weight: 1}
	got := takeOne(t, c, gone, load{cost: 1})
	takeOne(t, c, stays, load{cost: 1})
	c.leave(gone)
	c.giveBack(gone, got)
	for _, l := range c.ledgers {
		if len(l.members) != 1 {
			t.Errorf("%d members, want the one that has not left", len(l.members))
		}
	}
}
