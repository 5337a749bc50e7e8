package siege

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/crowd"
	room "github.com/headgate/headgate/tests/crowd"
)

// at is a moment of a run, in seconds from its start.
func at(seconds float64) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).
		Add(time.Duration(seconds * float64(time.Second)))
}

func after(seconds float64) time.Duration { return at(seconds).Sub(at(0)) }

func request(visitor string, from float64) room.Request {
	return room.Request{Visitor: visitor, Span: room.Span{From: at(from), To: at(from + 0.1)}}
}

// person1 waits from 1 to 5 and was told 4 seconds, or what is said.
func person1(told float64) crowd.Visitor {
	return crowd.Visitor{ID: 1, AdmittedAt: after(5), LeftAt: crowd.Never, CalledAt: crowd.Never,
		Polls: []crowd.Poll{{Ask: crowd.AskPage, State: "waiting", DueAt: after(1), AnswerAt: after(1),
			ETAKnown: true, ETA: after(told)}, {Ask: crowd.AskPage, DueAt: after(5), AnswerAt: after(5)}}}
}

func recordOf(v ...crowd.Visitor) *record {
	return &record{slots: 10, session: after(10),
		people: &crowd.Result{StartedAt: at(0), Took: after(10), Visitors: v}}
}

func TestHandedOutCountsOnlyWhilePeopleWait(t *testing.T) {
	r := recordOf(person1(4))
	r.origin = []room.Request{
		request("a0/before", 0.5), request("a0/x", 2), request("a0/x", 3), // one jar, one slot
		request("a0/y", 3), request("a1/z", 4), request("a2/z", 4.5), // a copy
		request("1", 5), request("a3/after", 6), request("a0/before", 4),
	}
	if h, want := r.handedOut(), (handed{honest: 1, attackers: 3, network: 2, copies: 2}); h != want {
		t.Errorf("%+v, want %+v", h, want)
	}
}

func TestFirstPlaces(t *testing.T) {
	r := recordOf()
	r.places = 3
	r.origin = []room.Request{request("1", 4), request("a0/x", 2), request("a1/x", 3), request("a2/y", 5),
		request("2", 6)}
	if hostile, all := r.firstPlaces(); hostile != 2 || all != 3 {
		t.Errorf("%d of %d, want 2 of 3: a jar has one place, and the fourth comes too late", hostile, all)
	}
}

func TestExpectedWait(t *testing.T) {
	// The truth is 4 s, and a second is given.
	for told, want := range map[float64]float64{4: 0, 5: 0, 3: 0, 6: 25, 9: 100, 1: 50} {
		r := recordOf(person1(told))
		off, right, n, _ := r.expected()
		if n != 1 || math.Abs(off-want) > 0.01 || (right == 100) != (want <= 20) {
			t.Errorf("told %v s: off %v %%, right %v %%, judged %d; want %v %%", told, off, right, n, want)
		}
	}
	r := recordOf(crowd.Visitor{AdmittedAt: crowd.Never})
	if _, _, n, _ := r.expected(); n != 0 || r.served() != 0 {
		t.Errorf("judged %d, served %v: nobody was", n, r.served())
	}
}

func TestEmptyCountsSlotsThatPeopleCouldHave(t *testing.T) {
	r := recordOf(person1(4))
	for s := 0.0; s <= 8; s++ { // 3 free all the time, one person waits for 4 seconds
		r.looks = append(r.looks, room.Sample{At: at(s), Active: 7, Called: 3})
	}
	if got := r.empty(); math.Abs(got-5) > 0.01 { // looks at 1, 2, 3, 4 and 5
		t.Errorf("empty for %v s, want 5", got)
	}
	if got := r.kept(); math.Abs(got-98) > 0.01 { // one of ten in one of five looks
		t.Errorf("kept %v %%, want 98", got)
	}
	for i := range r.looks {
		r.looks[i].Active = 10
	}
	if got := r.empty(); got != 0 {
		t.Errorf("empty for %v s in a full room", got)
	}
}

func TestAttackersRequestsAtOnce(t *testing.T) {
	r := recordOf()
	r.origin = []room.Request{request("a0/x", 1), request("a0/x", 1.05), request("1", 1.05)}
	if got := r.held(); got != 2 {
		t.Errorf("%d at once, want 2", got)
	}
}

// TestEachBoundCanBeMissed holds a run in which everything is bad against the bounds.
func TestEachBoundCanBeMissed(t *testing.T) {
	v := person1(40)
	v.Errors = map[string]int{"status 500": 1}
	risen := v.Polls[0]
	v.Polls[0].Position, risen.Position = 1, 2
	v.Polls = append([]crowd.Poll{v.Polls[0], risen}, v.Polls[1:]...)
	r := recordOf(v, crowd.Visitor{ID: 2, AdmittedAt: crowd.Never})
	for i := range 20 { // of fewer slots nobody's share is judged
		r.origin = append(r.origin, request(fmt.Sprintf("a0/%d", i), 2))
	}
	r.looks = []room.Sample{{At: at(0), Active: 0, Called: 11}, {At: at(5), Active: 0}}
	r.memory = []int64{1 << 20, 1 << 20, 100 << 20}
	r.polls = []time.Duration{time.Second}
	for _, m := range r.measures(ghosts(), time.Millisecond) {
		if m.judged = m.judged || m.name == "slots of one network, %"; m.judged && m.ok() {
			t.Errorf("%s: %v is within %v", m.name, m.reached, m.bound)
		}
	}
}
