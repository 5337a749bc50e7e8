package deliver

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// start is the start time of the tests.
func start() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) }

func throttle(t testing.TB, p Pace) *Throttle {
	t.Helper()
	th, err := NewThrottle(p)
	if err != nil {
		t.Fatal(err)
	}
	return th
}

// most returns the largest number in any window, wherever it begins.
func most(at []time.Time, window time.Duration) int {
	n, from := 0, 0
	for i := range at {
		for at[i].Sub(at[from]) >= window {
			from++
		}
		n = max(n, i-from+1)
	}
	return n
}

// As in Azure's "Rate Limiting pattern": 100 operations per second, in groups of at most 20 per 200
// ms. A caller that tries each millisecond gets one per 10 ms.
func TestSpreadInsideTheSecond(t *testing.T) {
	for _, c := range []struct {
		look time.Duration
		each int
		gap  time.Duration
	}{
		{time.Millisecond, 1, 10 * time.Millisecond},
		{50 * time.Millisecond, 5, 50 * time.Millisecond},
		{200 * time.Millisecond, 20, 200 * time.Millisecond},
		{time.Second, 20, time.Second}, // a sleeper may not catch up completely
	} {
		th := throttle(t, Pace{Amount: 100})
		var at []time.Time
		var groups []int
		for now := start(); now.Before(start().Add(10 * time.Second)); now = now.Add(c.look) {
			n := 0
			for {
				ok, again := th.Pass(now, 1)
				if !ok {
					if !again.After(now) {
						t.Fatalf("ask again at %v, and it is %v", again, now)
					}
					break
				}
				at = append(at, now)
				n++
			}
			if n > 0 {
				groups = append(groups, n)
			}
		}
		for i, n := range groups[1:] {
			if n != c.each {
				t.Errorf("look each %v: %d at once, want %d (group %d)", c.look, n, c.each, i+1)
				break
			}
		}
		if n := most(at, time.Second); n > 100 {
			t.Errorf("look each %v: %d in a second", c.look, n)
		}
		if c.look <= catchUp && len(at) < 980 {
			t.Errorf("look each %v: %d in 10 s, want 1,000 but the first group", c.look, len(at))
		}
	}
}

// Callers wake up late, by up to 20 ms on a busy machine. They can catch up on what they missed,
// and never exceed the limit.
func TestLateCallersLoseNothing(t *testing.T) {
	for _, amount := range []int64{1, 3, 10, 100, 1000, 10_000} {
		th := throttle(t, Pace{Amount: amount})
		rng := rand.New(rand.NewPCG(1, uint64(amount)))
		var at []time.Time
		now, end := start(), start().Add(20*time.Second)
		for now.Before(end) {
			ok, again := th.Pass(now, 1)
			if ok {
				at = append(at, now)
				continue
			}
			now = again.Add(time.Duration(rng.Int64N(int64(20 * time.Millisecond))))
		}
		if n := most(at, time.Second); int64(n) > amount {
			t.Errorf("%d a second: %d in one", amount, n)
		}
		// A slot becomes free a second after it was taken, and waits 10 ms on average.
		if want := 0.99*float64(amount)*20/1.01 - 1; float64(len(at)) < want {
			t.Errorf("%d a second: %d in 20 s, want %.0f", amount, len(at), want)
		}
	}
}

func TestRetryAfterPausesTheTarget(t *testing.T) {
	for _, shared := range []bool{false, true} {
		th, now := throttle(t, Pace{Amount: 100, Shared: shared}), start()
		th.Pass(now, 1)
		th.Busy(now, 7*time.Second)
		th.Busy(now.Add(time.Second), 2*time.Second) // ends before
		until := now.Add(7 * time.Second)
		for _, when := range []time.Duration{0, time.Second, 7*time.Second - 1} {
			if ok, at := th.Pass(now.Add(when), 1); ok || !at.Equal(until) {
				t.Errorf("after %v: %v, again at %v", when, ok, at)
			}
		}
		var at []time.Time
		for when := until; when.Before(until.Add(time.Second)); when = when.Add(time.Millisecond) {
			if ok, _ := th.Pass(when, 1); ok {
				at = append(at, when)
			}
		}
		if len(at) == 0 || !at[0].Equal(until) {
			t.Errorf("%d pass after the pause, from %v on", len(at), at)
		}
		if n := most(at, 15*time.Millisecond); n > 2 {
			t.Errorf("%d pass within 15 ms after the pause: nothing is made up for", n)
		}
	}
	th := throttle(t, Pace{}) // of a target with unknown pace
	th.Busy(start(), 1000*time.Hour)
	if ok, at := th.Pass(start(), 1); ok || at.Sub(start()) != time.Hour {
		t.Errorf("%v, again in %v; a target may not stop its queue for ever", ok, at.Sub(start()))
	}
	if ok, _ := th.Pass(start().Add(time.Hour), 1000); !ok {
		t.Error("still paused")
	}
}

// A target without Retry-After is tried again after 1 s, 2 s, 4 s… up to a minute.
func TestATargetThatIsDownIsAskedSeldom(t *testing.T) {
	th, now := throttle(t, Pace{Amount: 100}), start()
	for _, want := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		for range 5 { // that were in flight together
			th.Busy(now, 0)
		}
		_, at := th.Pass(now, 1)
		if at.Sub(now) != time.Duration(want)*time.Second {
			t.Errorf("again in %v, want %d s", at.Sub(now), want)
		}
		now = at
	}
	th.Done(now)
	th.Busy(now, 0)
	if _, at := th.Pass(now, 1); at.Sub(now) != time.Second {
		t.Errorf("again in %v after a success, want 1 s", at.Sub(now))
	}
}

// The numbers of the issue: one 429 in a second halves the rate at once, then it rises by 5 % per
// second.
func TestASharedTargetHalvesAndRises(t *testing.T) {
	th, now := throttle(t, Pace{Amount: 1000, Shared: true}), start()
	level := func(after time.Duration, want float64) {
		t.Helper()
		if got := th.Level(now.Add(after)); math.Abs(got-want) > 1e-9 {
			t.Errorf("after %v: %v, want %v", after, got, want)
		}
	}
	level(0, 1)
	for ms := range 900 { // many 429 in a second count as one
		th.Busy(now.Add(time.Duration(ms)*time.Millisecond), 0)
	}
	level(0, 0.5)
	level(time.Second, 0.55)
	level(5*time.Second, 0.75)
	level(9600*time.Millisecond, 0.98) // it pauses
	level(28*time.Second, 0.98)
	level(28400*time.Millisecond, 1)
	level(time.Hour, 1)
	now = now.Add(time.Second)
	th.Busy(now, 0)
	level(0, 0.275)
	for range 60 {
		now = now.Add(time.Second)
		th.Busy(now, 0)
	}
	level(0, leastLevel)
	if got := th.Level(now.Add(30 * time.Second)); got < 0.9 {
		t.Errorf("%v after 30 s without a 429, want 0.9", got)
	}
	if ok, _ := th.Pass(now, 1); !ok {
		t.Error("nothing passes: nobody would ever learn that there is room again")
	}
}

func TestMoreThanEverPasses(t *testing.T) {
	th := throttle(t, Pace{Amount: 10})
	if ok, at := th.Pass(start(), 11); ok || !at.IsZero() {
		t.Errorf("%v %v", ok, at)
	}
	if ok, _ := th.Pass(start(), 10); !ok {
		t.Error("10 of 10 do not pass")
	}
	if ok, at := th.Pass(start(), 1); ok || at.Sub(start()) != time.Second {
		t.Errorf("%v, in %v", ok, at.Sub(start()))
	}
	if _, err := NewThrottle(Pace{Amount: -1}); err == nil {
		t.Error("a negative amount is taken")
	}
}

func TestWhoOnlyAsksTakesNothing(t *testing.T) {
	th, now := throttle(t, Pace{Amount: 10}), start()
	for range 100 {
		if ok, _ := th.Pass(now, 0); !ok {
			t.Fatal("it took some")
		}
	}
	th.Pass(now, 1)
	if ok, at := th.Pass(now, 0); ok || at.Sub(now) != 100*time.Millisecond {
		t.Errorf("%v, in %v", ok, at.Sub(now))
	}
	for range 9 {
		now = now.Add(100 * time.Millisecond)
		th.Pass(now, 1)
	}
	now = now.Add(100*time.Millisecond - 1)
	if ok, at := th.Pass(now, 0); ok || at.Sub(now) != 1 {
		t.Errorf("%v, in %v", ok, at.Sub(now))
	}
}

func TestThePaceCanBeChanged(t *testing.T) {
	th, now := throttle(t, Pace{Amount: 1, Window: time.Hour}), start()
	th.Pass(now, 1)
	if _, at := th.Pass(now, 1); at.Sub(now) != time.Hour {
		t.Errorf("again in %v", at.Sub(now))
	}
	if err := th.Change(now, Pace{Amount: 3600, Window: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, at := th.Pass(now, 1); at.Sub(now) != time.Second {
		t.Errorf("again in %v after the change", at.Sub(now))
	}
	if err := th.Change(now, Pace{Amount: -1}); err == nil {
		t.Error("a negative amount is taken")
	}
	th.Busy(now, time.Minute)
	if err := th.Change(now, Pace{Amount: 10_000}); err != nil {
		t.Fatal(err)
	}
	if _, at := th.Pass(now, 1); at.Sub(now) != time.Minute {
		t.Errorf("again in %v: a change ends no pause", at.Sub(now))
	}
}

// Whatever happens, no window exceeds the configured limit.
func TestNeverAboveTheLimit(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(2, seed))
		p := Pace{Amount: 1 + rng.Int64N(50), Window: time.Duration(1+rng.IntN(3)) * time.Second,
			Shared: rng.IntN(2) == 0}
		th := throttle(t, p)
		var at []time.Time
		now := start()
		for range 2000 {
			switch rng.IntN(20) {
			case 0:
				now = now.Add(time.Duration(rng.Int64N(int64(3 * time.Second))))
			case 1:
				th.Busy(now, time.Duration(rng.Int64N(2))*time.Duration(rng.Int64N(int64(time.Second))))
			case 2:
				th.Done(now)
			case 3, 4, 5:
				now = now.Add(time.Duration(rng.Int64N(int64(20 * time.Millisecond))))
			default:
				n := 1 + rng.IntN(min(3, int(p.Amount)))
				ok, again := th.Pass(now, n)
				if !ok && rng.IntN(2) == 0 {
					now = again
				}
				if ok {
					for range n {
						at = append(at, now)
					}
				}
			}
		}
		if n := most(at, p.Window); int64(n) > p.Amount || len(at) < 10 {
			t.Fatalf("seed %d: %d of %d in a window, %d in all", seed, n, p.Amount, len(at))
		}
	}
}

// A sharedTarget has its own limit, which other clients use too. It counts a sliding second and
// rejects what exceeds the limit. Other clients have precedence: free is what they leave.
type sharedTarget struct {
	limit        int
	ours, theirs []time.Time
}

// take counts one request at now, or rejects it if it is ours.
func (s *sharedTarget) take(now time.Time, ours bool) bool {
	for _, list := range []*[]time.Time{&s.ours, &s.theirs} {
		for len(*list) > 0 && now.Sub((*list)[0]) >= time.Second {
			*list = (*list)[1:]
		}
	}
	switch {
	case !ours:
		s.theirs = append(s.theirs, now)
	case len(s.ours)+len(s.theirs) >= s.limit:
		return false
	default:
		s.ours = append(s.ours, now)
	}
	return true
}

// A day is a day at a shared target, in steps of two milliseconds.
type day struct {
	strangers []float64 // load of other clients, one minute each
	retry     time.Duration
	answer    time.Duration // time until the answer arrives
	noise     bool          // other clients arrive at random
}

// live simulates a day and returns our allowed and rejected requests in each second.
func (d day) live(t *testing.T, th *Throttle, limit int) (let, refused []int) {
	t.Helper()
	target := &sharedTarget{limit: limit}
	rng := rand.New(rand.NewPCG(3, 4))
	type answer struct {
		at time.Time
		ok bool
	}
	var answers []answer
	seconds := 60 * len(d.strangers)
	let, refused = make([]int, seconds), make([]int, seconds)
	owed, again := 0.0, start()
	for step := range seconds * 500 {
		ms := 2 * step
		now := start().Add(time.Duration(ms) * time.Millisecond)
		for len(answers) > 0 && !answers[0].at.After(now) {
			if answers[0].ok {
				th.Done(now)
			} else {
				th.Busy(now, d.retry)
			}
			answers = answers[1:]
		}
		rate := d.strangers[ms/60_000] * float64(limit) / 500
		if d.noise {
			rate *= rng.ExpFloat64()
		}
		for owed += rate; owed >= 1; owed-- {
			target.take(now, false)
		}
		for !now.Before(again) {
			var ok bool
			if ok, again = th.Pass(now, 1); !ok {
				break
			}
			ok = target.take(now, true)
			if ok {
				let[ms/1000]++
			} else {
				refused[ms/1000]++
			}
			answers = append(answers, answer{now.Add(d.answer), ok})
		}
	}
	return let, refused
}

// The load of other clients changes each minute. From 30 s after a change, our clients get 90 % of
// what is free, and within 30 s the rate has reached that.
func TestWithStrangersNearlyAllThatIsFreeIsUsed(t *testing.T) {
	for _, c := range []struct {
		day
		least float64 // of what is free, in the second half of each minute
	}{
		{day{answer: 5 * time.Millisecond}, 0.9},
		{day{answer: 100 * time.Millisecond}, 0.9},
		// Free capacity varies by 3 % of the limit: of 5 % only little can be used.
		{day{answer: 20 * time.Millisecond, noise: true}, 0.5},
		{day{answer: 5 * time.Millisecond, retry: time.Second}, 0.8},
	} {
		if c.answer != 100*time.Millisecond && testing.Short() {
			continue // takes long, and the race detector finds nothing here
		}
		c.strangers = []float64{0, 0.5, 0.2, 0.9, 0.1, 0.7, 0, 0.95, 0, 0.4}
		const limit = 500
		let, refused := c.live(t, throttle(t, Pace{Amount: limit, Shared: true}), limit)
		lost := 0
		for minute, taken := range c.strangers {
			free := (1 - taken) * limit
			reached, sum := -1, 0
			for s := range 60 {
				n := let[minute*60+s]
				if reached < 0 && math.Abs(float64(n)-free) <= 0.1*free {
					reached = s + 1
				}
				if s >= 30 {
					sum += n
				}
				lost += refused[minute*60+s]
			}
			used := float64(sum) / 30 / free
			t.Logf("strangers take %3.0f %%: within 10 %% of what is free after %d s, then %.1f %% of it used",
				taken*100, reached, used*100)
			if reached < 0 || reached > 30 || used < c.least {
				t.Errorf("answer %v, retry %v: strangers %v: reached after %d s, %v used", c.answer,
					c.retry, taken, reached, used)
			}
		}
		total := 0
		for _, n := range let {
			total += n
		}
		t.Logf("answers after %v, Retry-After %v, noise %v: %d of %d refused", c.answer,
			c.retry, c.noise, lost, lost+total)
	}
}

func BenchmarkPass(b *testing.B) {
	th := throttle(b, Pace{Amount: 10_000})
	now := start()
	b.ReportAllocs()
	for b.Loop() {
		if ok, at := th.Pass(now, 1); !ok {
			now = at
		}
	}
}
