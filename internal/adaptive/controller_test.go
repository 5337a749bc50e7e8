package adaptive

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// A room plays samples to a controller. Visitors fill it to its limit and make a request in 10 s each.
type room struct {
	c    *Controller
	d    Decision
	base time.Duration // what an answer takes at the mean
	each time.Duration // the length of a sample
	at   time.Time
}

func newRoom(learned State) *room {
	r := &room{base: 100 * time.Millisecond, each: 5 * time.Second}
	r.at = time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	r.c = New(Settings{Min: 100, Max: 2000, MaxPerMinute: 3000, TargetP95: 400 * time.Millisecond}, learned)
	r.d = r.c.Step(Sample{At: r.at, Load: math.NaN()})
	return r
}

// step plays samples, each after change.
func (r *room) step(n int, change func(*Sample)) Decision {
	for range n {
		r.at = r.at.Add(r.each)
		s := Sample{At: r.at, Length: r.each, Inside: float64(r.d.Active), Waiting: 1000,
			Entered: r.d.Active / 60, Limit: r.d.Active, Load: math.NaN()}
		answers := r.d.Active * int64(r.each/time.Second) / 10
		for _, class := range []string{"GET /", "GET /product", "POST /cart"} {
			route := Route{Class: class, Answered: uint64(answers / 3)}
			for i, tenths := range []time.Duration{6, 8, 10, 12, 14} {
				route.Latency.Add(r.base*tenths/10, (answers/3+int64(i))/5)
			}
			s.Routes = append(s.Routes, route)
		}
		if change != nil {
			change(&s)
		}
		r.d = r.c.Step(s)
	}
	return r.d
}

// fail lets one answer in n fail.
func fail(n uint64) func(*Sample) {
	return func(s *Sample) {
		for i := range s.Routes {
			s.Routes[i].Failed = s.Routes[i].Answered / n
		}
	}
}

func TestRaisesInStepsToMax(t *testing.T) {
	r := newRoom(State{})
	last := r.d.Active
	if last != 100 {
		t.Fatal("it begins at", last)
	}
	for range 100 {
		d := r.step(1, nil)
		if d.Active > last+last*21/100 || d.Active < last {
			t.Fatalf("from %d to %d: %s", last, d.Active, d.Reason)
		}
		last = d.Active
	}
	if last != 2000 || r.d.Reason != ReasonMax {
		t.Error(last, r.d.Reason)
	}
}

// A room so small that ten seconds have too few answers is judged by more of them.
func TestRaisesWhereFewAsk(t *testing.T) {
	r := newRoom(State{})
	r.c = New(Settings{Min: 20, Max: 2000, MaxPerMinute: 3000, TargetP95: 400 * time.Millisecond}, State{})
	r.d.Active = 20
	if d := r.step(60, nil); d.Active < 100 {
		t.Errorf("the limit is %d: %s", d.Active, d.Reason)
	}
}

// Nothing is learned about a higher limit from any of these.
func TestDoesNotRaiseOnSamplesThatSayNothing(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Sample)
		reason Reason
		held   bool
	}{
		"empty":     {func(s *Sample) { s.Inside, s.Routes = 0, s.Routes[:1]; s.Routes[0] = Route{Class: "GET /"} }, ReasonFew, false},
		"half full": {func(s *Sample) { s.Inside /= 2 }, ReasonNotFull, false},
		"one route": {func(s *Sample) { s.Routes = s.Routes[2:] }, ReasonOneRoute, true},
		"lost":      {func(s *Sample) { s.Routes = nil }, ReasonLost, true},
		"frozen":    {func(s *Sample) { s.Frozen = true }, ReasonFrozen, true},
		"slow, but with a low load": {func(s *Sample) {
			s.Load = 0.3
			for i := range s.Routes {
				s.Routes[i].Latency.Add(time.Second, 50)
			}
		}, ReasonContradict, true},
	} {
		r := newRoom(State{})
		before := r.step(10, nil).Active
		r.step(15, c.change) // what was seen before is no longer looked at
		before = max(before, r.d.Active)
		if d := r.step(40, c.change); d.Active != before || d.Reason != c.reason || d.Held != c.held {
			t.Errorf("%s: from %d to %d, held %v: %s", name, before, d.Active, d.Held, d.Reason)
		}
	}
}

func TestLowersAtOnce(t *testing.T) {
	slow := func(s *Sample) {
		for i := range s.Routes {
			s.Routes[i].Latency = [len(s.Routes[i].Latency)]int64{}
			s.Routes[i].Answered /= 2
			s.Routes[i].Latency.Add(2*time.Second, int64(s.Routes[i].Answered))
		}
	}
	for name, c := range map[string]struct {
		change func(*Sample)
		reason Reason
	}{
		"errors": {fail(5), ReasonErrors},
		"refused": {func(s *Sample) {
			fail(5)(s)
			for i := range s.Routes {
				s.Routes[i].Failed, s.Routes[i].Refused = 0, s.Routes[i].Failed
			}
		}, ReasonRefused},
		"latency": {slow, ReasonLatency},
		"load":    {func(s *Sample) { s.Load = 1.5 }, ReasonLoad},
	} {
		r := newRoom(State{})
		before := r.step(40, nil).Active
		if d := r.step(3, c.change); d.Active > before*3/4 {
			t.Errorf("%s: from %d to %d: %s", name, before, d.Active, d.Reason)
		}
		seen := false
		for range 500 {
			d := r.step(1, c.change)
			if seen = seen || d.Reason == c.reason; d.Active < 100 {
				t.Fatalf("%s: %d is below min", name, d.Active)
			}
		}
		if !seen && r.d.Reason != ReasonMin && r.d.Reason != ReasonFutile {
			t.Errorf("%s: %s", name, r.d.Reason)
		}
	}
}

// One client network adds at most MaxPerNetwork answers to a sample.
func TestOneNetworkDoesNotLower(t *testing.T) {
	r := newRoom(State{})
	before := r.step(6, nil).Active // few others
	for range 200 {
		r.step(1, func(s *Sample) {
			x := &s.Routes[1]
			x.Answered += 500
			x.Failed += MaxPerNetwork
			x.Latency.Add(8*time.Second, MaxPerNetwork)
		})
		if r.d.Active < before {
			t.Fatalf("from %d to %d: %s", before, r.d.Active, r.d.Reason)
		}
	}
}

// What one network has more than any other is no throughput: it would make visitors look busier.
func TestOneNetworkIsNoThroughput(t *testing.T) {
	r, quiet := newRoom(State{}), newRoom(State{})
	quiet.step(2, nil)
	r.step(2, func(s *Sample) {
		s.Routes[0].Latency.Add(100*time.Millisecond, 30)
		s.Excess.Counted = 30
	})
	if got, want := r.c.read(fastOver).rate, quiet.c.read(fastOver).rate; got != want {
		t.Errorf("%v requests a second with a busy network, %v without it", got, want)
	}
}

// A number that is frozen, and what an event has left, is where the limit goes on.
func TestFrozenHoldsWhatIsInForce(t *testing.T) {
	r := newRoom(State{})
	learned := r.step(20, nil).Active
	r.step(3, func(s *Sample) { s.Limit, s.New, s.Frozen = 150, 70, true })
	state := r.c.State()
	active, fresh := state.Limits()
	if learned < 300 || r.d.Active != 150 || active != 150 || r.d.PerMinute != 70 || fresh != 70 {
		t.Errorf("after %d it is frozen at 150 and 70: %+v, and %d and %d are kept", learned, r.d, active, fresh)
	}
	if d := r.step(1, nil); d.Active < 150 || d.Active > 200 {
		t.Errorf("it goes on with %d", d.Active)
	}
}

// A target that the origin misses when almost nobody is inside is told, and nothing is raised.
func TestSlowWhenIdle(t *testing.T) {
	r := newRoom(State{})
	r.base = 900 * time.Millisecond
	d := r.step(60, nil)
	want := "the origin takes 1.4s when almost nobody is inside, more than its target of 400ms: change the target"
	if string(d.Reason) != want || !d.Held || d.Active != 100 {
		t.Errorf("%d, held %v: %s", d.Active, d.Held, d.Reason)
	}
}

// What was learned goes on after a kill: the limit, the knee, and what routes take.
func TestContinuesAfterAKill(t *testing.T) {
	r := newRoom(State{})
	r.step(40, nil)
	before := r.step(60, func(s *Sample) { // the origin has become full
		for i := range s.Routes {
			s.Routes[i].Latency.Add(200*time.Millisecond, int64(s.Routes[i].Answered))
		}
	})
	if before.Knee == 0 {
		t.Fatal("no knee is known")
	}
	b, _ := r.c.State().MarshalBinary()
	var s State
	if err := s.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	next := newRoom(s)
	if next.d.Active != before.Active || next.d.Knee != before.Knee || len(next.c.state.routes) != 3 {
		t.Errorf("after the kill %+v, before %+v", next.d, before)
	}
}

// An origin that fails for another reason than people keeps some of them inside.
func TestFutile(t *testing.T) {
	r := newRoom(State{})
	before := r.step(40, nil).Active
	if d := r.step(200, fail(5)); d.Reason != ReasonFutile || !d.Held || d.Active < before/10 {
		t.Errorf("from %d to %d, held %v: %s", before, d.Active, d.Held, d.Reason)
	}
}

// A deploy that makes every answer three times as slow, within the target, is learned: it is no queue.
func TestSlowerByNature(t *testing.T) {
	r := newRoom(State{active: 1000})
	r.step(60, nil)
	before := r.d.Active
	r.base *= 2
	least := before
	for range 400 {
		least = min(least, r.step(1, nil).Active)
	}
	if r.d.Active <= least*11/10 {
		t.Errorf("from %d down to %d, and then only %d: %s", before, least, r.d.Active, r.d.Reason)
	}
}

// In shadow mode another limit is in force, and the controller finds its own.
func TestShadow(t *testing.T) {
	r := newRoom(State{})
	d := r.step(60, func(s *Sample) { s.Limit, s.Inside = 700, 700 })
	if d.Active < 600 || d.Active > 900 {
		t.Errorf("%d: %s", d.Active, d.Reason)
	}
}

// Intervals of other lengths give the same.
func TestLengthOfIntervals(t *testing.T) {
	for _, each := range []time.Duration{time.Second, 2 * time.Second, 10 * time.Second, 30 * time.Second} {
		r := newRoom(State{})
		r.each = each
		if d := r.step(int(30*time.Minute/each), nil); d.Active != 2000 {
			t.Errorf("%v: %d, %s", each, d.Active, d.Reason)
		}
		if long := r.c.read(longOver).seconds; long < 60 {
			t.Errorf("%v: %.0f s are remembered", each, long)
		}
	}
}

// A site gets other addresses: after as many routes as are kept, new ones are learned in place of old ones.
// One client that asks for ever new addresses keeps nothing from being learned.
func TestNewRoutesAreLearned(t *testing.T) {
	r := newRoom(State{})
	phase := 0
	rename := func(s *Sample) {
		for i := range s.Routes {
			s.Routes[i].Class += fmt.Sprint(phase)
		}
		for k := range MaxRoutes - len(s.Routes) { // three answers in an interval are all that a network has
			rare := Route{Class: fmt.Sprint("GET /", r.at.Unix(), "/", k), Answered: 1}
			rare.Latency.Add(r.base, 1)
			s.Routes = append(s.Routes, rare)
		}
	}
	for phase = range MaxRoutes {
		r.step(20, rename)
		if r.c.base(hash(fmt.Sprint("GET /", phase))) == nil {
			t.Fatalf("phase %d: its routes are not learned", phase)
		}
	}
	if n := len(r.c.state.routes); n > MaxRoutes || len(r.c.lessons) > MaxRoutes {
		t.Errorf("%d routes and %d lessons are kept", n, len(r.c.lessons))
	}
}

// Answers faster than the clock of a report can say divide by nothing.
func TestAnswersOfNoTime(t *testing.T) {
	r := newRoom(State{})
	r.base = 0
	d := r.step(100, nil)
	if !(d.Knee >= 0) || d.PerMinute < 10 {
		t.Errorf("%+v", d)
	}
	b, err := r.c.State().MarshalBinary()
	if err == nil {
		err = new(State).UnmarshalBinary(b)
	}
	if err != nil {
		t.Error(err)
	}
}

// Visitors who stay for half a minute: as many are let in as leave, also
// when most have left while the limit was lower, and a knee is known.
func TestShortVisits(t *testing.T) {
	r := newRoom(State{active: 1000, knee: 100, perPerson: 0.1})
	r.c.settings.MaxPerMinute = 1 << 20
	inside := 100.0
	for range 60 {
		r.step(1, func(s *Sample) {
			left := inside / 6 // of half a minute
			entered := min(float64(r.d.PerMinute)/12, float64(r.d.Active)-inside+left)
			inside += entered - left
			s.Inside, s.Entered = inside, int64(entered)
			for i := range s.Routes {
				n := int64(s.Routes[i].Latency.Total()) * int64(inside) / r.d.Active
				s.Routes[i].Answered, s.Routes[i].Latency = uint64(n), [len(s.Routes[i].Latency)]int64{}
				s.Routes[i].Latency.Add(r.base, n)
			}
		})
	}
	if inside < 0.95*float64(r.d.Active) {
		t.Errorf("%.0f of %d are inside, %d enter in a minute: %s", inside, r.d.Active, r.d.PerMinute, r.d.Reason)
	}
}
