package kills

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/crowd"
)

func secs(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// asked is a request in one life that was sent on time and answered at once.
func asked(kind string, at float64, life int, state string, number uint64, position int64) ask {
	return ask{kind: kind, due: secs(at), sent: secs(at), answered: secs(at + 0.01),
		life: [2]int{life, life}, state: state, number: number, position: position, after: secs(1.5)}
}

// goodRun is a run without fault: eight visitors let in one after the other, one
// each ten seconds, over a kill at 42 s. Each is asked for at every second.
func goodRun() *run {
	r := &run{
		limits: limits{total: 2, fresh: 7, clients: 8, kills: 1, inFlight: 1},
		began:  time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), lives: 2,
		kills: []kill{{at: secs(42), inFlight: "fsync engine", aimed: true, started: secs(42.1),
			ready: secs(42.2)}},
		replays: []replay{
			{name: "r1", number: 1, age: secs(40), answered: true, got: 90, revoked: never},
			{name: "r2", number: 2, age: secs(4), answered: true, got: 91, revoked: secs(30)},
			{name: "r3", number: 3, age: secs(4), answered: true, admitted: true, revoked: never},
			{name: "r4", number: 4, age: secs(4), answered: true, admitted: true, revoked: secs(41.9)},
		},
		fsyncs: []time.Duration{time.Millisecond},
	}
	life := func(at float64) int {
		if at > 42 {
			return 1
		}
		return 0
	}
	for i := range 8 {
		v := &visit{name: fmt.Sprint(i)}
		in := float64(10*i + 10)
		kind := askJoin
		for at := 0.5 + float64(i)/100; at < in; at++ {
			position := int64(i) - int64(at/10) + 1
			v.asks = append(v.asks, asked(kind, at, life(at), stateWaiting, uint64(i+1), position))
			kind = askPoll
		}
		v.asks = append(v.asks, asked(askPoll, in, life(in), stateCalled, uint64(i+1), 0))
		for _, after := range []float64{0.1, 3, 6} {
			v.asks = append(v.asks, asked(askVisit, in+after, life(in+after), "", 0, 0))
			r.seen(v.name, in+after)
		}
		r.visits = append(r.visits, v)
	}
	for at := range 90 {
		r.gauges = append(r.gauges, gauge{at: secs(float64(at)), life: life(float64(at)), active: 2,
			fresh: 6, writes: float64(at)})
	}
	return r
}

// at finds the first request of a visitor that is not sent before a moment.
func (r *run) at(visitor int, s float64) *ask {
	for i := range r.visits[visitor].asks {
		if a := &r.visits[visitor].asks[i]; a.sent >= secs(s) {
			return a
		}
	}
	panic("no such request")
}

// seen adds a request that the origin saw.
func (r *run) seen(visitor string, s float64) {
	from := r.began.Add(secs(s))
	r.origin = append(r.origin, crowd.Request{Visitor: visitor,
		Span: crowd.Span{From: from, To: from.Add(time.Millisecond)}})
}

// Each line of the verdict fails when it should, and only then.
func TestVerdictFindsFaults(t *testing.T) { //nolint:funlen // a list of cases
	tests := []struct {
		lines string // that must fail, no others; "" when all is well
		name  string
		spoil func(*run)
	}{
		{"", "all is well", func(*run) {}},
		{"", "an answer that was not read tells nothing", func(r *run) {
			a := r.at(7, 50)
			a.answered, a.number, a.position = never, 99, 99
		}},
		{"kills|kills with|the same of revoked", "no kill", func(r *run) { r.kills = nil }},
		{"kills with", "no write in flight", func(r *run) { r.kills[0].inFlight = "" }},
		{"tickets lost", "another number after the kill", func(r *run) { r.at(7, 43).number = 9 }},
		{"tickets lost", "no number", func(r *run) { r.at(7, 43).number = 0 }},
		{"places shown", "further back", func(r *run) { r.at(7, 43).position = 8 }},
		{"overtaken", "the later one is called, the earlier told to wait", func(r *run) {
			r.at(7, 60).state = stateCalled
		}},
		{"", "called by one process, told to wait by the next", func(r *run) {
			r.at(7, 41.5).state = stateCalled
		}},
		{"", "a second has its share: the call is told a moment later", func(r *run) {
			r.at(7, 60).state = stateCalled
			for i := 5; i < 7; i++ {
				r.visits[i].asks = slices.DeleteFunc(r.visits[i].asks, func(a ask) bool {
					return a.sent > secs(60.5) && a.waits()
				})
				r.at(i, 60).after = secs(0.2)
			}
		}},
		{"overtaken", "a moment later it is told to wait again", func(r *run) {
			r.at(7, 60).state = stateCalled
			for i := 5; i < 7; i++ {
				for j := range r.visits[i].asks {
					r.visits[i].asks[j].after = secs(0.2)
				}
			}
		}},
		{"", "a claim of the process before is answered by the next", func(r *run) {
			a := r.at(7, 41)
			a.kind, a.answered = askEnter, never
			r.at(7, 60).state = stateCalled
		}},
		{"visitors late", "overtaken, but late by itself", func(r *run) {
			r.at(7, 60).state = stateCalled
			for i := 5; i < 7; i++ {
				r.at(i, 44).sent += secs(0.7)
			}
		}},
		{"overtaken", "a newcomer is let in past the line", func(r *run) {
			r.visits = append(r.visits, &visit{name: "x", asks: []ask{
				asked(askJoin, 55, 1, "", 0, 0), asked(askVisit, 56, 1, "", 0, 0)}})
		}},
		{"used tickets", "a used ticket lets in", func(r *run) { r.replays[0].admitted = true }},
		{"used tickets", "a used ticket has a place", func(r *run) { r.replays[0].got, r.replays[0].place = 1, 7 }},
		{"", "it is told to wait, and has no place", func(r *run) { r.replays[0].got = 1 }},
		{"the same of revoked", "a ticket of a revoked stay has a place", func(r *run) {
			r.replays[1].got, r.replays[1].place = 2, 7
		}},
		{"the same of revoked", "a revoked stay is entered again", func(r *run) {
			r.replays[1].admitted = true
		}},
		{"visitors inside sent", "made to wait", func(r *run) {
			r.visits[3].asks[len(r.visits[3].asks)-1].state = stateWaiting
		}},
		{"inside at once", "two at once, never both with a request", func(r *run) {
			r.seen("0", 35)
			r.limits.total = 1
			r.gauges = nil
		}},
		{"inside at once|requests of", "two with a request", func(r *run) {
			r.seen("x", 10.1)
			r.limits.total = 1
			r.gauges = nil
		}},
		{"new visitors", "one too many in a minute", func(r *run) {
			r.seen("x", 17.5)
			r.seen("y", 27.5)
		}},
		{"active and called", "one too many by its own account", func(r *run) {
			r.gauges[50].called = 1
		}},
		{"new in the last", "the same for new ones", func(r *run) { r.gauges[50].fresh = 8 }},
		{"visitors who joined", "too few came through", func(r *run) { r.visits = r.visits[1:] }},
		{"visitors late", "the machine was too busy", func(r *run) {
			r.at(1, 5).sent += secs(1)
			r.at(2, 5).sent += secs(1)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := goodRun()
			tt.spoil(r)
			want := strings.FieldsFunc(tt.lines, func(c rune) bool { return c == '|' })
			figures, _ := r.verdict()
			for _, f := range figures {
				named := slices.IndexFunc(want, func(line string) bool {
					return strings.HasPrefix(f.Name, line)
				})
				switch {
				case !f.OK() && named < 0:
					t.Errorf("%s: %v, limit %v %s", f.Name, f.Reach, f.Limit, f.Note)
				case !f.OK():
					want = slices.Delete(want, named, named+1)
				}
			}
			for _, line := range want {
				t.Errorf("the line %q found nothing", line)
			}
		})
	}
}

// The times that are only shown are right.
func TestTimes(t *testing.T) {
	shown := map[string]float64{}
	for _, f := range goodRun().times() {
		shown[f.Name] = f.Reach
	}
	for name, want := range map[string]float64{
		"start to ready, ms: median":               100,
		"kill to the first answer, ms: median":     550,
		"ready to the first admission, ms: median": 7900,
		"4 KB written and synced here, ms: median": 1,
		"writes of the record per second":          1,
	} {
		if got, ok := shown[name]; !ok || got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
