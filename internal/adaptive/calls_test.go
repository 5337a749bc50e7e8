package adaptive

import (
	"math"
	"strings"
	"testing"
	"time"
)

// An api plays samples to a controller of calls: an origin of some servers that takes 100 ms for each.
type api struct {
	c       *Controller
	d       Decision
	servers float64
	wanted  float64 // calls that would be under way
	slow    float64 // slots that those who read slowly hold, of at most nine tenths
}

// newAPI returns an API of which the amount is found.
func newAPI(servers float64) *api {
	a := &api{servers: servers, wanted: 5 * servers}
	a.c = New(Settings{Min: 2, Max: 500, TargetP95: time.Second, Calls: true}, State{})
	a.d = a.c.Step(Sample{Load: math.NaN()})
	a.step(100, nil)
	return a
}

// step plays samples of five seconds, each after change.
func (a *api) step(n int, change func(*Sample)) Decision {
	for range n {
		limit := float64(a.d.Active)
		slow := min(a.slow, 0.9*limit)
		calls := min(a.wanted, limit-slow)
		rate := min(calls, a.servers) * 10
		s := Sample{Length: 5 * time.Second, Inside: calls + slow, Load: math.NaN(), Limit: a.d.Active}
		if a.wanted > calls {
			s.Waiting = int64(5 * rate)
		}
		s.Routes = make([]Route, 1, 2)
		s.Routes[0] = takes("GET /", int64(5*rate), time.Duration(calls/rate*float64(time.Second)))
		if change != nil {
			change(&s)
		}
		a.d = a.c.Step(s)
	}
	return a.d
}

// takes returns a route whose answers take about as long.
func takes(class string, n int64, mean time.Duration) Route {
	r := Route{Class: class, Answered: uint64(n)}
	for i := range n {
		r.Latency.Add(time.Duration(float64(mean)*(0.6+0.8*float64(i)/float64(n))), 1)
	}
	return r
}

// A burst of cheap calls changes what is usual. The amount is back within minutes after it.
func TestAmountComesBackAfterCheapCalls(t *testing.T) {
	for _, times := range []int64{2, 10} {
		a := newAPI(8)
		found := a.d.Active
		cheap := func(s *Sample) {
			s.Routes = append(s.Routes, takes("GET /none", times*int64(s.Routes[0].Answered), time.Millisecond))
		}
		a.step(60, cheap)
		low := a.step(60, func(s *Sample) {
			cheap(s)
			for i := range s.Routes {
				s.Routes[i].Failed = s.Routes[i].Answered * 4 / 5
			}
		})
		if low.Active != 2 {
			t.Fatalf("an origin that is down lowers %d to %d only", found, low.Active)
		}
		if d := a.step(180/5, nil); d.Active < found*8/10 {
			t.Errorf("%d times as many cheap calls: from %d to %d, and after 180 s %d: %s", times, found,
				low.Active, d.Active, d.Reason)
		}
	}
}

// refuse lets a share of the calls be refused.
func refuse(share float64) func(*Sample) {
	return func(s *Sample) { s.Routes[0].Refused = uint64(share*float64(s.Routes[0].Answered) + 0.5) }
}

// What fails or is refused however many calls there are keeps the amount for a minute or two only.
func TestFailuresThatDoNotDependOnTheAmount(t *testing.T) {
	for _, servers := range []float64{2, 8, 100} {
		for _, share := range []float64{0.05, 0.3} {
			for name, change := range map[string]func(*Sample){
				"refused": refuse(share),
				"failed": func(s *Sample) {
					refuse(share)(s)
					s.Routes[0].Refused, s.Routes[0].Failed = 0, s.Routes[0].Refused
				},
			} {
				a := newAPI(servers)
				found, futile := a.d.Active, false
				for range 180 / 5 {
					d := a.step(1, change)
					futile = futile || d.Reason == ReasonFutile.ofCalls() && d.Held && d.Active >= found
				}
				if a.d.Active < found*9/10 || !futile {
					t.Errorf("%v servers, %v %s: from %d to %d, futile: %v: %s", servers, share, name, found,
						a.d.Active, futile, a.d.Reason)
				}
				for range 200 {
					if d := a.step(1, change); d.Active < found*8/10 || d.Active > found*12/10 {
						t.Fatalf("%v servers, %v %s: later from %d to %d: %s", servers, share, name, found,
							d.Active, d.Reason)
					}
				}
				if d := a.step(6, refuse(0.6)); d.Active > found*2/3 {
					t.Errorf("%v servers, %v %s: more is refused, and %d stays %d", servers, share, name, found,
						d.Active)
				}
			}
		}
	}
}

// Such failures do not hide an origin that becomes slow, nor one that refuses what is too much.
func TestFailuresHideNoOverload(t *testing.T) {
	a := newAPI(8)
	a.step(60, refuse(0.05))
	found := a.d.Active
	a.servers = 1
	if d := a.step(24, refuse(0.05)); d.Active > found*2/3 {
		t.Errorf("an origin of an eighth: from %d to %d: %s", found, d.Active, d.Reason)
	}

	for servers, x := range map[float64]struct{ most, share float64 }{8: {6, 1}, 100: {8, 0.45}} {
		a = newAPI(servers)
		for range 200 {
			d := a.step(1, func(s *Sample) { refuse(x.share * max(0, s.Inside-x.most) / s.Inside)(s) })
			if d.Reason == ReasonFutile.ofCalls() {
				t.Fatalf("it refuses what is above %v, and %d is in force: %s", x.most, d.Active, d.Reason)
			}
		}
		if float64(a.d.Active) > x.most+1 {
			t.Errorf("it refuses what is above %v, and %d is in force: %s", x.most, a.d.Active, a.d.Reason)
		}
	}

	a = newAPI(8)
	found = a.d.Active
	for k := range 60 {
		d := a.step(1, func(s *Sample) {
			s.Routes[0] = takes("GET /", int64(s.Routes[0].Answered), 2*time.Second)
			refuse(0.05)(s)
		})
		if k > 3 && d.Active > found*2/3 {
			t.Fatalf("%d answers that take too long are let in again, of %d: %s", d.Active, found, d.Reason)
		}
	}
}

// What failed long ago says nothing about what may fail now.
func TestFailuresAreForgotten(t *testing.T) {
	a := newAPI(8)
	found := a.d.Active
	a.step(60, refuse(0.3))
	a.step(120, nil)
	if d := a.step(4, refuse(0.3)); d.Active > found*9/10 {
		t.Errorf("ten minutes after such failures, others keep %d of %d: %s", d.Active, found, d.Reason)
	}
}

// Callers that read slowly take slots, and the origin has nothing to do for them: the amount rises to a few
// times of what it should be. When they leave, it is back within a minute.
func TestSlowReaders(t *testing.T) {
	for _, servers := range []float64{8, 40} {
		a := newAPI(servers)
		found := a.d.Active
		a.slow = 1000
		if d := a.step(120, nil); d.Active > found*7/2 {
			t.Errorf("%v servers: slow readers raise %d to %d: %s", servers, found, d.Active, d.Reason)
		}
		a.slow, a.wanted = 0, 1000
		if d := a.step(60/5, nil); d.Active > found*3/2 {
			t.Errorf("%v servers: a minute after slow readers %d is %d: %s", servers, found, d.Active, d.Reason)
		}
	}
}

// A flood right after slow readers, of which an amount far too high was learned, halves it each 10 s.
func TestFloodAfterSlowReaders(t *testing.T) {
	a := newAPI(8)
	found := a.d.Active
	a.c.state.active, a.c.state.perPerson = 16*found, 0.5
	a.d.Active, a.wanted = 16*found, 1000
	if d := a.step(20/5, nil); d.Active > 4*found {
		t.Errorf("%d was right, and 20 s of a flood lower %d to %d: %s", found, 16*found, d.Active, d.Reason)
	}
	if d := a.step(180/5, nil); d.Active > found*3/2 {
		t.Errorf("%d was right, and a flood lowers %d to %d: %s", found, 16*found, d.Active, d.Reason)
	}
}

// An amount that nothing is known about yet does not rise without end.
func TestFailureBeforeCallsAreKnown(t *testing.T) {
	a := &api{c: New(Settings{Min: 1, Max: 100, Calls: true}, State{})}
	few := func(failed uint64) Decision {
		r := takes("GET /", 100, 30*time.Millisecond)
		r.Failed = failed
		return a.c.Step(Sample{Length: 5 * time.Second, Inside: 0.6, Load: math.NaN(), Waiting: 100,
			Routes: []Route{r}})
	}
	for range 10 {
		few(0)
	}
	few(30)
	was := a.c.state.active
	for range 60 {
		few(0)
	}
	if a.c.state.perPerson == 0 || a.c.state.active > 2*was {
		t.Errorf("with a knee of %v and %v calls a second of a slot, %d becomes %d", a.c.state.knee,
			a.c.state.perPerson, was, a.c.state.active)
	}
}

// The only reason with figures has none as a label, whatever the figures are.
func TestLabelsOfReasons(t *testing.T) {
	for _, calls := range []bool{false, true} {
		labels := map[string]bool{}
		for ms := range time.Duration(50) {
			r := reasonSlowIdle(ms*37*time.Millisecond, ms*time.Millisecond)
			if calls {
				r = r.ofCalls()
			}
			labels[Label(string(r))] = true
			if strings.Contains(string(r), "nobody") == calls {
				t.Error(r)
			}
		}
		want := "the origin takes longer than its target when almost nobody is inside: change the target"
		if calls {
			want = strings.Replace(want, "nobody is inside", "no call is under way", 1)
		}
		if len(labels) != 1 || !labels[want] {
			t.Errorf("%d labels: %v", len(labels), labels)
		}
	}
	for _, r := range []Reason{ReasonStart, ReasonRaised, ReasonLatency, ReasonErrors} {
		if Label(string(r)) != string(r) {
			t.Error(r)
		}
	}
}
