package cluster

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	judge "github.com/headgate/headgate/tests/crowd"
)

// oneWay is how late everything between data centers is. Chosen: half of the round trip
// between the coasts of North America and Europe, about.
const oneWay = 40 * time.Millisecond

// Data centers of these runs. The first is the home of Anywhere.
const (
	sjc = "sjc"
	lhr = "lhr"
	del = "del"
)

func siteNames() []string { return []string{sjc, lhr, del} }

// A doors is the balancers of data centers, one each. A visitor comes to one of them and
// stays with it, unless it strays.
type doors struct {
	mu     sync.Mutex
	rng    *rand.Rand
	all    map[string]*balancer
	shares map[string]float64
	of     map[string]string // visitors
	stray  float64           // of all requests go to any of them
	shut   string            // whose visitors go to another for good
}

func newDoors(st *stage) *doors {
	d := &doors{rng: rand.New(rand.NewPCG(2, 2)), all: map[string]*balancer{}, of: map[string]string{}}
	for _, name := range st.plan.sites {
		d.all[name] = newBalancer(st.t, st.outside)
		d.all[name].lone = true
	}
	return d
}

// lean sends a share of those who come from now on to one data center, and the rest to
// the others alike; "" is all alike.
func (st *stage) lean(to string, share float64) {
	d := st.doors
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shares = map[string]float64{}
	for _, name := range st.plan.sites {
		rest := float64(len(st.plan.sites))
		if d.shares[name] = 1 / rest; name == to {
			d.shares[name] = share
		} else if to != "" {
			d.shares[name] = (1 - share) / (rest - 1)
		}
	}
}

// door is the balancer before a node.
func (st *stage) door(name string) *balancer {
	if st.doors == nil {
		return st.balancer
	}
	return st.doors.all[name]
}

// doorOf is the balancer that a visitor comes to.
func (st *stage) doorOf(visitor string) *balancer {
	d := st.doors
	if d == nil {
		return st.balancer
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := d.of[visitor]; at == "" || at == d.shut {
		d.of[visitor] = d.draw(st.plan.sites)
	} else if d.rng.Float64() < d.stray {
		return d.all[d.draw(st.plan.sites)]
	}
	return d.all[d.of[visitor]]
}

// draw takes one by the shares.
func (d *doors) draw(sites []string) (at string) {
	left := d.rng.Float64()
	for _, at = range sites {
		if left -= d.shares[at]; left < 0 {
			break
		}
	}
	return at
}

// shut lets the visitors of one data center go to the others from now on.
func (st *stage) shut(name string) {
	st.lean(name, 0)
	st.doors.mu.Lock()
	st.doors.shut = name
	st.doors.mu.Unlock()
}

// stray sends a share of all requests to any data center.
func (st *stage) stray(share float64) {
	st.doors.mu.Lock()
	st.doors.stray = share
	st.doors.mu.Unlock()
}

// A world is what a node says of its data centers: GET /v1/rooms/{room}.
type world struct {
	Own      string  `json:"own"`
	Home     string  `json:"home"`
	Moves    int     `json:"moves"`
	Unsure   float64 `json:"uncertainty_seconds"`
	Anywhere struct {
		Age      float64 `json:"age_seconds"` // -1: never heard of
		Limit    int     `json:"limit"`
		Free     int     `json:"free"`
		Presumed int     `json:"presumed"`
	} `json:"anywhere"`
	Sites []worldSite `json:"datacenters"`
}

type worldSite struct {
	Name    string  `json:"name"`
	Age     float64 `json:"age_seconds"` // of the picture, -1: never heard of
	Active  int     `json:"active"`
	Waiting int     `json:"waiting"`
	Held    int     `json:"held"`
	Unused  int     `json:"unused"`
}

func (w *world) site(name string) worldSite {
	for _, s := range w.Sites {
		if s.Name == name {
			return s
		}
	}
	return worldSite{Name: name, Age: -1}
}

// world asks one node.
func (st *stage) world(name, room string) (*world, error) {
	var said struct {
		Datacenters *world `json:"datacenters"`
	}
	err := st.ask(st.get(name), http.MethodGet, "/v1/rooms/"+room, "", "", &said)
	if err == nil && said.Datacenters == nil {
		err = fmt.Errorf("%s says nothing of datacenters in /v1/rooms/%s", name, room)
	}
	return said.Datacenters, err
}

// pictureAge is how old a picture of another data center may be when all is well (the
// issue "Datacenters").
const pictureAge = 2.0

// wrong says what of a node's picture of the world is not as it must be when all is well,
// "" if nothing.
func (w *world) wrong(sites []string) string {
	held, faults := 0, []string{}
	for _, name := range sites {
		s := w.site(name)
		if held += s.Held; s.Age < 0 || s.Age > pictureAge {
			faults = append(faults, fmt.Sprintf("picture of %s is %.1f s old", name, s.Age))
		}
	}
	a := w.Anywhere
	if a.Age < 0 || a.Age > pictureAge {
		faults = append(faults, fmt.Sprintf("picture of Anywhere is %.1f s old", a.Age))
	}
	// Pictures are of different moments: what is on the way is in none, or in two. At home
	// all is counted by one.
	off := a.Limit / 5
	if w.Own == w.Home {
		off = a.Limit / 20
	}
	if sum := held + a.Free + a.Presumed; max(sum, a.Limit)-min(sum, a.Limit) > off {
		faults = append(faults, fmt.Sprintf("held %d, free %d and presumed %d are %d of %d", held, a.Free,
			a.Presumed, sum, a.Limit))
	}
	return strings.Join(faults, ", ")
}

// right waits until every node that runs has the right picture, and gives how long it
// took and what was wrong last.
func (st *stage) right(most time.Duration) (took time.Duration, last string) {
	st.t.Helper()
	from := st.clock()
	for {
		wrong := ""
		for _, n := range st.nodes {
			if !n.runs() {
				continue
			}
			w, err := st.world(n.name, room)
			if err != nil {
				wrong = err.Error()
			} else if why := w.wrong(st.plan.sites); why != "" {
				wrong = n.name + ": " + why
			}
		}
		if took = st.clock() - from; wrong == "" || took > most {
			return took, cmp.Or(wrong, last)
		}
		last = wrong
		st.rest(50 * time.Millisecond)
	}
}

// acquainted waits until all data centers have heard of each other.
func (st *stage) acquainted() {
	st.t.Helper()
	st.lean("", 0)
	var last error
	for end := time.Now().Add(settled); time.Now().Before(end); st.rest(100 * time.Millisecond) {
		last = nil
		for _, n := range st.nodes {
			w, err := st.world(n.name, room)
			if err == nil && slices.ContainsFunc(st.plan.sites, func(s string) bool {
				return w.site(s).Age < 0 || w.Anywhere.Age < 0
			}) {
				err = fmt.Errorf("%s has not heard of all: %+v", n.name, *w)
			}
			if err != nil {
				last = err
			}
		}
		if last == nil {
			return
		}
	}
	st.t.Fatalf("the data centers do not know each other after %v: %v", settled, last)
}

// A look is what all nodes said of the world at a moment.
type look struct {
	at     time.Duration
	worlds map[string]*world
}

// own is what a data center said of itself.
func (l *look) own(name string) (s worldSite, ok bool) {
	if w := l.worlds[name]; w != nil {
		return w.site(name), true
	}
	return s, false
}

// lookWorld asks all nodes again and again, until the end of ctx.
func (st *stage) lookWorld(ctx context.Context) {
	const every = 250 * time.Millisecond // chosen: the nodes hardly notice
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		l := look{at: st.clock(), worlds: map[string]*world{}}
		for _, name := range st.plan.sites {
			if w, err := st.world(name, room); err == nil {
				l.worlds[name] = w
			}
		}
		st.mu.Lock()
		st.looks = append(st.looks, l)
		st.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// crossed is how many messages the nodes have sent to other data centers.
func (st *stage) crossed() (sum int) {
	st.t.Helper()
	const metric = "headgate_datacenter_messages_total"
	for _, n := range st.nodes {
		if !n.runs() {
			continue
		}
		text, err := st.answer(n, http.MethodGet, "/metrics", "", "")
		if err != nil {
			st.t.Fatal(err)
		}
		v, ok := judge.Metric(string(text), metric)
		if !ok {
			st.t.Fatalf("%s has no %s in its metrics", n.name, metric)
		}
		sum += int(v)
	}
	return sum
}
