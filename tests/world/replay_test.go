package world

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

// TestASolutionIsForOnePlaceInACluster replays solutions as somebody would who sells them: for another
// ticket, in another room, at other nodes, at two nodes at once, and after their end. All but those of the
// ticket itself are refused and counted, and people keep their places meanwhile.
func TestASolutionIsForOnePlaceInACluster(t *testing.T) {
	virtual.Test(t, testASolutionIsForOnePlaceInACluster)
}

// A tally is what the nodes together have counted of a room's challenges.
type tally struct {
	Solved  int64
	Refused map[string]int64
}

func tallyOf(w *World, room string) (sum tally) {
	w.T.Helper()
	sum.Refused = map[string]int64{}
	for _, n := range w.Nodes() {
		text, err := w.Ask(n, "GET", "/v1/rooms/"+room, n.Token(), "")
		var x struct{ Challenges tally }
		if err == nil {
			err = json.Unmarshal([]byte(text), &x)
		}
		if err != nil {
			w.T.Fatal(err)
		}
		sum.Solved += x.Challenges.Solved
		for why, n := range x.Challenges.Refused {
			sum.Refused[why] += n
		}
	}
	return sum
}

func testASolutionIsForOnePlaceInACluster(t *testing.T) {
	names := []string{"n1", "n2", "n3"}
	w := New(t, Config{Seed: 250, Servers: names})
	defer w.Close()
	host := challengedNodes(w, names)
	others := w.Others(host)
	a, b := others[0], others[1]
	must := placed(t)
	first, other := &newcomer{w: w}, &newcomer{w: w, path: "other"}
	for _, v := range []*newcomer{first, other} { // nobody else waits in their rooms
		must(v.asks(a, ""))
		if x := must(v.asks(b, "")); x.Challenge != nil || x.Position != 1 {
			t.Fatalf("%+v", x)
		}
	}

	isAt := func(y, of told, position int64) bool {
		return y.Challenge == nil && y.Ticket == of.Ticket && y.Position == position
	}

	// A person solves at one node, and their page sends it again at another one.
	person := &newcomer{w: w}
	x := must(person.asks(a, ""))
	solution := x.Challenge.solve(t)
	for _, node := range []string{b, host} {
		if y := must(person.asks(node, solution)); !isAt(y, x, 2) {
			t.Errorf("at %s: %+v", node, y)
		}
	}

	// Another ticket at each node, another room, and a ticket of this room as one of the other room.
	for _, node := range names {
		for _, path := range []string{"", "other"} {
			thief := &newcomer{w: w, path: path}
			own := must(thief.asks(node, ""))
			y := must(thief.asks(a, solution))
			if y.Challenge == nil || y.Challenge.Signature != own.Challenge.Signature {
				t.Errorf("/%s at %s: a place for the solution of another one: %+v", path, node, y)
			}
		}
	}
	stolen := &newcomer{w: w, path: "other", cookie: strings.Replace(person.cookie, "_shop=", "_other=", 1)}
	if stolen.cookie == person.cookie {
		t.Fatalf("the cookie is %s", person.cookie)
	}
	if y := must(stolen.asks(b, solution)); y.Challenge == nil || y.Ticket == x.Ticket {
		t.Errorf("a ticket of one room is good in another: %+v", y)
	}

	// The same ticket and the same solution at two nodes at once: one place.
	twin := &newcomer{w: w}
	z := must(twin.asks(host, ""))
	again := z.Challenge.solve(t)
	var wg sync.WaitGroup
	for _, node := range []string{a, b} {
		copied := *twin
		wg.Go(func() {
			if y, ok := copied.asks(node, again); !ok || !isAt(y, z, 3) {
				t.Errorf("at %s at once: %v, %+v", node, ok, y)
			}
		})
	}
	wg.Wait()

	// After its end, to a ticket that is over.
	late := &newcomer{w: w}
	old := must(late.asks(a, "")).Challenge.solve(t)
	before := tallyOf(w, "shop")
	if before.Solved != 3 || before.Refused["foreign"] != 3 || tallyOf(w, "other").Refused["foreign"] != 3 {
		t.Errorf("%+v, %+v", before, tallyOf(w, "other"))
	}
	for range 70 {
		w.Rest(time.Second)
		for position, v := range []*newcomer{first, person, twin} {
			if y := must(v.asks(b, "")); y.Position != int64(position)+1 || y.Challenge != nil || y.Notice != "" {
				t.Fatalf("%+v, not at %d", y, position+1)
			}
		}
	}
	if y := must(late.asks(b, old)); y.Challenge == nil || y.Notice != "new_challenge" {
		t.Errorf("a place for a solution that came too late: %+v", y)
	}
	if n := tallyOf(w, "shop"); n.Solved != 3 || n.Refused["expired"] != 1 {
		t.Errorf("%+v", n)
	}
	if y, ok := autoOf(w, w.Node(host)); !ok || y.Waiting != 3 {
		t.Errorf("%d wait, not 3", y.Waiting)
	}
}
