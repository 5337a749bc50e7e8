package headgate

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/route"
	"github.com/headgate/headgate/status"
	"github.com/headgate/headgate/tests/virtual"
)

// sale changes a room as its events do.
func (g *gate) sale(begun, started bool) {
	g.t.Helper()
	start := time.Now().Add(time.Hour).Truncate(time.Second)
	if old := g.room.Config().Draw; old.Event != "" {
		start = old.StartsAt
	}
	if err := g.again(func(c *RoomConfig) {
		c.Draw = DrawPlan{Event: "sale", StartsAt: start, Begun: begun, Started: started}
		c.Event = Event{}
		if begun {
			c.Event = Event{Name: "sale", Active: true, Prequeue: !started, Shuffle: true,
				StartsAt: start, EndsAt: start.Add(time.Hour)}
		}
	}); err != nil {
		g.t.Fatal(err)
	}
}

// TestAShuffledEvent runs an event from its announcement to its first visitors, with a kill in
// between.
func TestAShuffledEvent(t *testing.T) {
	room := RoomConfig{TotalActiveUsers: 10, NewUsersPerMinute: 600, SessionDuration: 30 * time.Second}
	bubble(t, "prequeue, start, who comes late, a kill", func(t *testing.T) {
		g, p := openPlugged(t, room)
		g.sale(false, false)
		in := g.visitor()
		if !in.in() {
			t.Fatal("an event that is to come holds visitors")
		}
		hash := g.room.Status().Draw.Hash
		g.sale(true, false)
		var line []*visitor
		for range 30 {
			v := g.visitor()
			if v.in() {
				t.Fatal("let in during the prequeue")
			}
			line = append(line, v)
		}
		if !in.in() {
			t.Error("who was inside is sent away")
		}
		if s := line[7].poll(); s.State != StateOpensSoon || s.Position != 0 {
			t.Errorf("%+v, want no place before the draw", s)
		}
		m := line[7].cf()
		if m["isEventPrequeueing"] != true || m["isEventActive"] != true || m["waitTimeKnown"] != false ||
			m["shuffleAtEventStart"] != true || m["timeUntilEventStart"].(float64) < 59 {
			t.Errorf("%v", m)
		}
		line[7].accept = "application/json"
		if w := line[7].do("GET", "/"); !strings.Contains(w.Body.String(), `"draw":"`+hash+`"`) {
			t.Errorf("no hash in %s", w.Body)
		}
		if st := g.room.Status(); st.Status != "event_prequeueing" || st.Draw.Hash != hash ||
			st.Draw.Seed != "" || st.Event.Name != "sale" {
			t.Errorf("%+v %+v", st, st.Draw)
		}
		time.Sleep(time.Second)
		g, p = g.kill(p, time.Second) // the new process knows the same events
		defer p.pulled.Store(false)
		for _, v := range line {
			v.g = g
		}
		time.Sleep(3 * time.Second)
		g.sale(true, true)
		late := g.visitor()
		late.in()
		st := g.room.Status()
		if st.Draw.Hash != hash || st.Draw.Seed == "" || !st.Draw.Finished {
			t.Fatalf("%+v, want the hash %s", st.Draw, hash)
		}
		order := drawSome(t, g, line, 12)
		if slices.IsSorted(order) {
			t.Errorf("called in the order of arrival: %v", order)
		}
		called := g.room.counter.State(0, 0).Called
		if p := late.poll(); p.Position+called+int64(len(order)) < 30 {
			t.Errorf("who came late is at %d when %d are in and %d called", p.Position, len(order), called)
		}
	})
	bubble(t, "the page commits to the draw and then shows it", func(t *testing.T) {
		c := room
		c.TotalActiveUsers = 1
		g := openGate(t, c)
		g.sale(false, false)
		g.visitor().in()
		g.sale(true, false)
		q := func() View {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			q := &visitRequest{
				f: g.room.face.Load(), r: r, at: &route.Match{Path: "/"}, worker: g.room.worker,
			}
			return g.room.view(q, &counter.PlaceInfo{}, StateWaiting)
		}
		v := g.visitor()
		v.in()
		hash := q().Event.Draw
		g.sale(true, true)
		time.Sleep(time.Second)
		if shown := q().Event.Draw; len(hash) != 64 || strings.Count(shown, "/") != 2 {
			t.Errorf("before %q, after %q", hash, shown)
		}
	})
	bubble(t, "a prequeue holds though the store is down", func(t *testing.T) {
		g, p := openPlugged(t, room)
		p.pulled.Store(true)
		err := g.again(func(c *RoomConfig) {
			c.TotalActiveUsers, c.Event = 5, Event{Name: "sale", Active: true, Prequeue: true}
		})
		if err == nil || g.visitor().in() {
			t.Errorf("let in: %v", err)
		}
	})
}

// The host of a draw learns the networks of the visitors, and weighs those with many tickets.
func TestAnEventWeighsNetworks(t *testing.T) {
	for _, weight := range []int{0, 2} {
		bubble(t, fmt.Sprintf("many tickets of one network, with the weight %d", weight), func(t *testing.T) {
			g := openGate(t, RoomConfig{TotalActiveUsers: 10, NewUsersPerMinute: 600,
				SessionDuration: 30 * time.Second, JoinLimit: JoinLimit{Amount: 60, DrawWeight: weight}})
			g.sale(true, false)
			for i := range 6 {
				v := g.visitor()
				if v.addr = "203.0.113.9:1000"; i > 3 {
					v.addr = fmt.Sprintf("198.51.100.%d:1000", i)
				}
				v.in()
			}
			g.sale(true, true)
			if d := g.room.Status().Draw; !d.Finished || (d.Weights != "") != (weight > 0) {
				t.Errorf("%+v", d)
			}
		})
	}
}

// drawSome, in a bubble, lets people poll until at least n have been admitted, and returns which.
func drawSome(t *testing.T, g *gate, line []*visitor, n int) (order []int) {
	t.Helper()
	for range 600 {
		for i, v := range line {
			if !slices.Contains(order, i) && v.poll().State == StateCalled && v.in() {
				order = append(order, i)
			}
		}
		if len(order) >= n {
			return order
		}
		time.Sleep(250 * time.Millisecond)
	}
	t.Fatalf("%d let in, want %d", len(order), n)
	return nil
}

// shownDraw is what the page of a visitor shows of a draw, and of its own place.
type shownDraw struct {
	State    State  `json:"state"`
	Draw     string `json:"draw"`
	Number   uint64 `json:"number"`
	Position int64  `json:"position"`
}

func (v *visitor) shown() (s shownDraw) {
	v.g.t.Helper()
	old := v.extra
	v.extra, v.accept = http.Header{PollHeader: {"1"}}, "application/json"
	w := v.do("GET", "/")
	v.extra, v.accept = old, "text/html"
	decodeHeadgate(v.g.t, w, &s)
	return s
}

// ranker checks a draw as docs/events.md describes, from what pages have shown before and after the
// start. It returns the rank of a ticket, from 0, and the number of ranks.
func ranker(hash, after string) (rank func(ticket uint64) uint64, n uint64, err error) {
	parts := strings.Split(after, "/")
	if len(parts) != 3 {
		return nil, 0, errors.New("not seed/first/end: " + after)
	}
	seed, err := hex.DecodeString(parts[0])
	if sum := sha256.Sum256(seed); err != nil || hex.EncodeToString(sum[:]) != hash {
		return nil, 0, fmt.Errorf("not the seed whose hash was shown: %v", err)
	}
	var first, end uint64
	if _, err := fmt.Sscan(parts[1]+" "+parts[2], &first, &end); err != nil || end <= first {
		return nil, 0, fmt.Errorf("from %d to %d: %v", first, end, err)
	}
	n = end - first
	width := max(8, bits.Len64(n-1))
	half := uint(width+width%2) / 2
	return func(ticket uint64) uint64 {
		for x := ticket - first; ; {
			left, right := x>>half, x&(1<<half-1)
			for i := range 10 {
				block := append(slices.Clone(seed), byte(i))
				sum := sha256.Sum256(binary.BigEndian.AppendUint64(block, right))
				left, right = right, (left^binary.BigEndian.Uint64(sum[:8]))&(1<<half-1)
			}
			if x = left<<half | right; x < n {
				return x
			}
		}
	}, n, nil
}

// phase brings all data centers of a world to a phase of the same event.
func (w *world) phase(start time.Time, begun, started bool) {
	w.t.Helper()
	for name, g := range w.gates {
		if err := g.again(func(c *RoomConfig) {
			c.Draw = DrawPlan{Event: "sale", StartsAt: start, Begun: begun, Started: started}
			if c.Event = (Event{}); begun {
				c.Event = Event{Name: "sale", Active: true, Prequeue: !started, Shuffle: true,
					StartsAt: start, EndsAt: start.Add(time.Hour)}
			}
		}); err != nil {
			w.t.Fatal(name, err)
		}
	}
}

// Two nodes draw one order, whichever node gets a visitor's request. A repeated request, at either
// node, causes no second draw.
func TestADrawOverTwoNodes(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testADrawOverTwoNodes)
}

func testADrawOverTwoNodes(t *testing.T) {
	w, a, b := twoNodes(t, RoomConfig{Name: "shop", TotalActiveUsers: 1, NewUsersPerMinute: 600,
		SessionDuration: time.Hour, PollMin: time.Second, PollMax: 2 * time.Second})
	nodes := []*gate{a, b}
	w.until("one is inside", 15*time.Second, a.visitor().in)
	early, start := b.visitor(), time.Now().Add(time.Hour).Truncate(time.Second)
	early.in()
	w.phase(start, false, false)
	w.phase(start, true, false)
	var line []*visitor
	var was []shownDraw
	for i := range 24 {
		v := nodes[i%2].visitor()
		v.in()
		v.g = nodes[(i+1)%2] // the next request is another node's
		line, was = append(line, v), append(was, v.shown())
		if was[i].Draw != was[0].Draw || was[i].Position != 0 {
			t.Fatalf("in the prequeue %+v", was[i])
		}
	}
	w.phase(start, true, true)
	late := b.visitor()
	late.in()
	for _, g := range nodes {
		w.until("the seed is shown", 15*time.Second, func() bool {
			early.g = g
			return strings.Contains(early.shown().Draw, "/")
		})
	}
	rank, n, err := ranker(was[0].Draw, early.shown().Draw)
	if err != nil || n != 24 {
		t.Fatal(n, err)
	}
	for i, v := range line {
		for _, v.g = range nodes {
			now := v.shown()
			want := 1 + int64(rank(was[i].Number)) + 1
			if now.Number != was[i].Number || now.Position != want {
				t.Errorf("visitor %d was %+v and is %+v, want place %d", i, was[i], now, want)
			}
		}
	}
	if p, q := early.shown().Position, late.shown().Position; p != 1 || q != 26 {
		t.Errorf("who came before is at %d, who came after at %d", p, q)
	}
}

// Each data center draws its own order with its own seed. Visitors can check the order of their
// data center, and visitors from both enter evenly.
func TestADrawInEachDatacenter(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testADrawInEachDatacenter)
}

func testADrawInEachDatacenter(t *testing.T) {
	w := newWorld(t, RoomConfig{Name: "shop", TotalActiveUsers: 1, NewUsersPerMinute: 1000,
		SessionDuration: time.Hour, PollMin: time.Second, PollMax: 2 * time.Second,
		NoSpread: true}, "sjc", "lhr")
	last := w.in("sjc", 1)[0]
	start := time.Now().Add(time.Hour).Truncate(time.Second)
	w.phase(start, false, false)
	w.phase(start, true, false)
	const each = 6
	type drawn struct {
		*visitor
		site   string
		before shownDraw
	}
	var line []drawn
	for range each {
		for _, site := range []string{"sjc", "lhr"} {
			v := w.gates[site].visitor()
			if v.in() {
				t.Fatal("let in during the prequeue")
			}
			line = append(line, drawn{v, site, v.shown()})
		}
	}
	if a, b := line[0].before.Draw, line[1].before.Draw; len(a) != 64 || len(b) != 64 || a == b {
		t.Fatalf("the hashes are %q and %q", a, b)
	}
	away := *line[0].visitor
	away.g = w.gates["lhr"]
	if s := away.shown(); s.Draw != "" || s.Number != line[0].before.Number {
		t.Errorf("in another data center than its own it is shown that one's draw: %+v", s)
	}
	w.pause(each * time.Second) // a longer prequeue than data centers are apart: the ranks spread over it
	w.phase(start, true, true)
	order, ranks := map[string][]uint64{}, map[string]func(uint64) uint64{}
	for i, site := range []string{"sjc", "lhr"} {
		w.until("the seed is shown at "+site, 15*time.Second, func() bool {
			return strings.Contains(line[i].shown().Draw, "/")
		})
		rank, n, err := ranker(line[i].before.Draw, line[i].shown().Draw)
		if err != nil || n != each {
			t.Fatal(site, n, err)
		}
		ranks[site] = rank
	}
	late := w.gates["lhr"].visitor()
	late.in()
	w.revoke(last)
	for len(line) > 0 {
		w.until("the next one is in", 30*time.Second, func() bool {
			for i, v := range line {
				if s := v.shown(); s.Number != v.before.Number {
					t.Fatalf("was %+v and is %+v", v.before, s)
				} else if s.State == StateCalled && v.in() {
					order[v.site] = append(order[v.site], ranks[v.site](s.Number))
					line = slices.Delete(line, i, i+1)
					w.revoke(v.visitor)
					return true
				}
			}
			return false
		})
		if d := len(order["sjc"]) - len(order["lhr"]); d >= each-1 || -d >= each-1 {
			t.Errorf("not evenly: called so far are %v", order)
		}
		if s := late.shown().State; s == StateCalled && len(line) > 0 {
			t.Error("who came after the start is called before ", len(line))
		}
	}
	for site, ranks := range order {
		if len(ranks) != each || !slices.IsSorted(ranks) {
			t.Errorf("%s called the ranks %d", site, ranks)
		}
	}
}

// groupRoom is a room that knows people and their groups, gold and silver, by headers.
func groupRoom() RoomConfig {
	cfg := memberRoom(2, false)
	cfg.Lanes = []Lane{{Name: "gold", Share: 30}, {Name: "silver", Share: 20}}
	return cfg
}

// member returns the browser of a person of a group.
func (g *gate) member(person, group string) *visitor {
	v := g.device(person)
	v.extra["X-Group"] = []string{group}
	return v
}

// earlySale is the prequeue of a sale in which the first open groups come in.
func earlySale(start time.Time, open int) Event {
	e := Event{Name: "sale", Active: true, Prequeue: true, StartsAt: start, EndsAt: start.Add(time.Hour), Shuffle: true}
	for i, name := range []string{"gold", "silver"} {
		at := start.Add(time.Duration(5*i-30) * time.Minute)
		e.Early = append(e.Early, status.EarlyGroup{Group: name, StartsAt: at, Open: i < open})
	}
	return e
}

// event replaces the event of a room.
func (g *gate) event(e Event) {
	g.t.Helper()
	if err := g.again(func(c *RoomConfig) { c.Event = e }); err != nil {
		g.t.Fatal(err)
	}
}

// opens returns what a waiting page shows of its opening.
func (v *visitor) opens() (s struct {
	State    State      `json:"state"`
	OpensAt  *time.Time `json:"opens_at"`
	Position int64      `json:"position"`
	Ticket   string     `json:"ticket"`
}) {
	v.g.t.Helper()
	old := v.extra
	v.extra = http.Header{PollHeader: {"1"}, "X-Member": old["X-Member"], "X-Group": old["X-Group"]}
	v.accept = "application/json"
	w := v.do("GET", "/")
	v.extra, v.accept = old, "text/html"
	decodeHeadgate(v.g.t, w, &s)
	return s
}

// isHeldUntil checks that a visitor waits for a time.
func (v *visitor) isHeldUntil(what string, at time.Time) {
	v.g.t.Helper()
	if s := v.opens(); v.in() || s.State != StateOpensSoon || s.OpensAt == nil || !s.OpensAt.Equal(at) {
		v.g.t.Errorf("%s: %+v, want to open at %v", what, s, at)
	}
}

// An earlyCrowd waits for a sale: others, and members of gold, who come in in the order of the list.
type earlyCrowd struct {
	*gate
	start        time.Time
	others, gold []*visitor
	in           []int // of gold
}

// ask loads the page for each of gold, and checks the limit, and that nobody else comes in.
func (c *earlyCrowd) ask(gold ...*visitor) {
	c.t.Helper()
	for _, v := range gold {
		if i := slices.Index(c.gold, v); !slices.Contains(c.in, i) && v.in() {
			c.in = append(c.in, i)
		}
	}
	for i, v := range c.others {
		if v.in() {
			c.t.Fatalf("visitor %d came in early", i)
		}
	}
	if n := c.room.Status().ActiveUsers; n > 2 {
		c.t.Fatalf("%d inside of 2", n)
	}
}

// TestAGroupComesInEarly: in its order, within the limit, and nobody else, through a kill.
func TestAGroupComesInEarly(t *testing.T) {
	bubble(t, "in order, through a kill", testAGroupComesInEarly)
	bubble(t, "a visitor who signs in as one of the group moves to its line, once", testAMemberSignsInLate)
}

func testAGroupComesInEarly(t *testing.T) {
	g, p := openPlugged(t, groupRoom())
	c := &earlyCrowd{gate: g, start: time.Now().Add(31 * time.Minute).Truncate(time.Second)}
	g.event(earlySale(c.start, 0))
	time.Sleep(2 * time.Second)
	for i := range 5 {
		c.others = append(c.others, g.visitor(), g.device(fmt.Sprint("person ", i)))
		c.gold = append(c.gold, g.member(fmt.Sprint("gold ", i), "gold"))
		c.ask(c.gold[i])
	}
	silver := g.member("silver", "silver")
	for i, v := range c.gold {
		v.isHeldUntil(fmt.Sprint("gold ", i), c.start.Add(-30*time.Minute))
	}
	silver.in()
	silver.isHeldUntil("silver", c.start.Add(-25*time.Minute))
	c.others[0].isHeldUntil("a visitor", c.start)
	time.Sleep(time.Until(c.start.Add(-30 * time.Minute)))
	g.event(earlySale(c.start, 1))
	for range 3000 {
		if c.ask(c.gold...); len(c.in) == 2 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	s := c.gold[2].opens()
	if !slices.Equal(c.in, []int{0, 1}) || s.State != StateWaiting || s.Position != 1 {
		t.Fatalf("%v came in, want the first two; the next one is told %+v", c.in, s)
	}
	for i, v := range c.others {
		v.isHeldUntil(fmt.Sprint("visitor ", i), c.start)
	}
	silver.isHeldUntil("silver", c.start.Add(-25*time.Minute))
	for v, want := range map[*visitor]string{
		c.gold[2]: "", silver: "comes in from", c.others[0]: "the event starts at",
	} {
		x, err := g.room.FindTicket(t.Context(), v.opens().Ticket)
		if err != nil || !strings.Contains(x.Reason, want) || want == "" && strings.Contains(x.Reason, "nobody is called") {
			t.Errorf("%+v, %v: want %q", x, err, want)
		}
	}
	c.gate, _ = g.kill(p, time.Second)
	for _, v := range slices.Concat(c.others, c.gold) {
		v.g = c.gate
	}
	for range 1200 { // two minutes: the sessions of the first two end, and two more come in
		c.ask(c.gold[2:]...)
		time.Sleep(100 * time.Millisecond)
	}
	if len(c.in) < 4 || !slices.IsSorted(c.in) {
		t.Errorf("%v came in", c.in)
	}
	c.starts()
}

// starts checks what happens while the origin is down, and at the start.
func (c *earlyCrowd) starts() {
	late := c.member("late", "gold")
	c.room.SetOriginUp(false)
	late.in()
	if s := late.opens(); s.State != StateDown {
		c.t.Errorf("the origin is down, and it is told %+v", s)
	}
	c.room.SetOriginUp(true)
	e := earlySale(c.start, 2)
	e.Prequeue = false
	c.event(e)
	if s := c.others[0].opens(); s.State == StateOpensSoon {
		c.t.Errorf("after the start it is told %+v", s)
	}
	for range 6000 {
		if slices.ContainsFunc(c.others, (*visitor).in) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.t.Error("nobody else came in after the start")
}

func testAMemberSignsInLate(t *testing.T) {
	g := openGate(t, groupRoom())
	start := time.Now().Add(31 * time.Minute).Truncate(time.Second)
	g.event(earlySale(start, 0))
	time.Sleep(2 * time.Second)
	v := g.visitor()
	v.in()
	was := v.opens().Ticket
	v.extra = http.Header{"X-Member": {"ada"}}
	v.isHeldUntil("signed in", start)
	if s := v.opens(); s.Ticket != was {
		t.Errorf("signing in without a group changed the ticket %s to %s", was, s.Ticket)
	}
	v.extra["X-Group"] = []string{"gold"}
	v.isHeldUntil("of a group", start.Add(-30*time.Minute))
	now := v.opens().Ticket
	if other := g.member("ada", "gold"); other.in() || other.opens().Ticket != now || now == was {
		t.Errorf("the tickets are %s, %s and %s", was, now, other.opens().Ticket)
	}
	if n := g.room.Status().WaitingUsers; n != 1 {
		t.Errorf("%d wait, want 1", n)
	}
	time.Sleep(time.Until(start.Add(-30 * time.Minute)))
	g.event(earlySale(start, 1))
	delete(v.extra, "X-Group") // its token has ended
	delete(v.extra, "X-Member")
	if !v.comesIn(10 * time.Second) {
		t.Errorf("it is told %+v", v.opens())
	}
}

// TestAGroupComesInEarlyAtAnyNode: whichever node gets a request, and whichever hosts the line.
func TestAGroupComesInEarlyAtAnyNode(t *testing.T) { virtual.Test(t, testAGroupComesInEarlyAtAnyNode) }

func testAGroupComesInEarlyAtAnyNode(t *testing.T) {
	w, a, b := twoNodes(t, groupRoom())
	start := time.Now().Add(31 * time.Minute).Truncate(time.Second)
	a.event(earlySale(start, 0))
	b.event(earlySale(start, 0))
	var gold, others []*visitor
	for i := range 6 {
		g := []*gate{a, b}[i%2]
		v := g.visitor()
		w.until("a place", 15*time.Second, func() bool { v.in(); return v.opens().Ticket != "" })
		others = append(others, v)
		v = g.member(fmt.Sprint("gold ", i), "gold")
		w.until("a place", 15*time.Second, func() bool { v.in(); return v.opens().Ticket != "" })
		gold = append(gold, v)
	}
	w.pause(time.Until(start.Add(-30 * time.Minute)))
	a.event(earlySale(start, 1))
	b.event(earlySale(start, 1))
	in := []int{}
	next := func(g *gate) {
		t.Helper()
		w.until("the next two are inside", 3*time.Minute, func() bool {
			for i, v := range gold {
				v.g = g
				if !slices.Contains(in, i) && v.in() {
					in = append(in, i)
				}
			}
			for i, v := range others {
				if v.g = g; v.in() {
					t.Fatalf("visitor %d came in early", i)
				}
			}
			if n := g.room.Status().ActiveUsers; n > 2 {
				t.Fatalf("%d inside of 2", n)
			}
			return len(in)%2 == 0 && len(in) > 0
		})
	}
	next(a)
	host, other := "n1", b
	for _, n := range a.room.Config().Engine.Nodes() {
		if n.Name == "n2" && len(n.Rooms) > 0 {
			host, other = "n2", a
		}
	}
	w.stop[host]()
	was := len(in)
	w.until("two more are inside", 3*time.Minute, func() bool { next(other); return len(in) >= was+2 })
	for i := range in {
		if in[i] != i {
			t.Fatalf("they came in as %v", in)
		}
	}
	others[0].isHeldUntil("a visitor", start)
	other.event(Event{})
	w.until("the others come in", 5*time.Minute, others[0].in)
}

// A group comes in early over data centers: slots are lent for its people, and for nobody else.
func TestAGroupComesInEarlyOverDatacenters(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAGroupComesInEarlyOverDatacenters)
}

func testAGroupComesInEarlyOverDatacenters(t *testing.T) {
	cfg := groupRoom()
	cfg.Identity.Required, cfg.SessionDuration, cfg.PollMin = true, 20*time.Second, 400*time.Millisecond
	w := newWorld(t, cfg, "sjc", "lhr")
	both := []*gate{w.gates["lhr"], w.gates["sjc"]}
	start := time.Now().Add(31 * time.Minute).Truncate(time.Second)
	for _, g := range both {
		g.event(earlySale(start, 0))
	}
	var gold, others []*visitor
	for i := range 8 {
		others = append(others, both[i%2].device(fmt.Sprint("person ", i)))
		gold = append(gold, both[i%2].member(fmt.Sprint("gold ", i), "gold"))
		for _, v := range []*visitor{others[i], gold[i]} {
			w.until("a place", 30*time.Second, func() bool { v.in(); return v.opens().Ticket != "" })
		}
	}
	gold[0].isHeldUntil("gold", start.Add(-30*time.Minute))
	w.pause(time.Until(start.Add(-30 * time.Minute)))
	for _, g := range both {
		g.event(earlySale(start, 1))
	}
	in := map[int]bool{}
	w.until("all of the group came in", 10*time.Minute, func() bool {
		for i, v := range gold {
			in[i] = in[i] || v.in() // those inside leave
			if others[i].in() {
				t.Fatalf("visitor %d came in early", i)
			}
		}
		if n := both[0].room.Status().ActiveUsers; n > 2 {
			t.Fatalf("%d inside of 2", n)
		}
		w.pause(400 * time.Millisecond)
		return len(in) == 8 && !slices.Contains(slices.Collect(maps.Values(in)), false)
	})
}

// TestNobodyGetsIntoAGroupByAnotherWay: a place in the lane of a group is that of a person of the group.
func TestNobodyGetsIntoAGroupByAnotherWay(t *testing.T) {
	bubble(t, "by an invitation that was used", func(t *testing.T) { testNoWayByACode(t, false) })
	bubble(t, "by an invitation that has ended", func(t *testing.T) { testNoWayByACode(t, true) })
	bubble(t, "and members above join_limit move out of the lane of their network", testAMemberOfABusyNetwork)
	bubble(t, "and whoever signs in after the start keeps the place", testSignsInAfterTheStart)
	bubble(t, "and a place in the group is better than one that is held back", testTheGroupIsBetter)
}

// goldCodes is a room in which codes that begin with gold are of that group.
func goldCodes(after time.Duration) RoomConfig {
	cfg := invitedRoom(1, after)
	cfg.Lanes, cfg.Identity.Required = groupRoom().Lanes, false
	cfg.Identity.Of = func(r *http.Request) (string, string, bool) {
		id := r.Header.Get("X-Member")
		return id, map[bool]string{true: "gold"}[strings.HasPrefix(id, "gold")], true
	}
	return cfg
}

// waits returns how many wait in each lane with a name.
func (g *gate) waits(lane string) (n int64) {
	for _, x := range g.room.Status().Lanes {
		if x.Name == lane {
			n += x.Waiting
		}
	}
	return n
}

func testNoWayByACode(t *testing.T, ended bool) {
	after := time.Hour
	if ended {
		after = time.Minute
	}
	g := openGate(t, goldCodes(after))
	time.Sleep(5 * time.Second)
	if !ended {
		if v := g.device("gold"); !v.comesIn(10 * time.Second) {
			t.Fatal("an invitation does not let in")
		}
	}
	time.Sleep(2 * time.Minute)
	g.event(earlySale(time.Now().Add(31*time.Minute), 1))
	for i := range 5 {
		v := g.device("gold")
		if v.in(); v.in() || v.opens().State != StateOpensSoon {
			t.Errorf("device %d is told %+v", i, v.opens())
		}
	}
	if n := g.waits("gold"); n != 0 {
		t.Errorf("%d wait in the lane of the group", n)
	}
	if v := g.device("gold, another"); !ended && !v.comesIn(10*time.Second) {
		t.Errorf("a good invitation is told %+v", v.opens())
	}
}

func testAMemberOfABusyNetwork(t *testing.T) {
	cfg := groupRoom()
	cfg.JoinLimit = JoinLimit{Amount: 3}
	g := openGate(t, cfg)
	g.event(earlySale(time.Now().Add(31*time.Minute), 1))
	time.Sleep(2 * time.Second)
	var all []*visitor
	for range 6 {
		v := g.visitor()
		v.in()
		v.in()
		all = append(all, v)
	}
	if g.waits("network") == 0 {
		t.Fatal("nobody waits in the lane of the network")
	}
	late := all[5]
	late.extra = http.Header{"X-Member": {"ada"}, "X-Group": {"gold"}}
	if !late.comesIn(10 * time.Second) {
		t.Errorf("a member of a busy network is told %+v", late.opens())
	}
}

func testTheGroupIsBetter(t *testing.T) {
	g := openGate(t, groupRoom())
	g.event(earlySale(time.Now().Add(31*time.Minute), 0))
	time.Sleep(2 * time.Second)
	phone := g.visitor()
	phone.in() // the first of all
	phone.opens()
	var gold []*visitor
	for i := range 10 {
		v := g.member(fmt.Sprint("gold ", i), "gold")
		v.in()
		v.opens()
		gold = append(gold, v)
	}
	was := gold[5].opens()
	phone.extra = gold[5].extra
	phone.in()
	for name, v := range map[string]*visitor{"phone": phone, "desk": gold[5]} {
		if s := v.opens(); s.Ticket != was.Ticket || s.Position > was.Position {
			t.Errorf("the %s has %+v, before it signed in %+v", name, s, was)
		}
	}
}

func testSignsInAfterTheStart(t *testing.T) {
	g := openGate(t, groupRoom())
	g.room.SetOriginUp(false)
	e := earlySale(time.Now(), 2)
	e.Prequeue = false
	g.event(e)
	time.Sleep(2 * time.Second)
	first := g.visitor()
	first.in()
	was := first.opens()
	for i := range 5 {
		g.member(fmt.Sprint("gold ", i), "gold").in()
	}
	first.extra = http.Header{"X-Member": {"ada"}, "X-Group": {"gold"}}
	first.in()
	if s := first.opens(); was.Ticket == "" || s.Ticket != was.Ticket {
		t.Errorf("it has %+v, before it signed in %+v", s, was)
	}
}

// TestAPersonOfAnyHomeMovesToItsGroup: whoever becomes a member while it waits, at either data center.
func TestAPersonOfAnyHomeMovesToItsGroup(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		cfg := groupRoom()
		cfg.Identity.Required = true
		w := newWorld(t, cfg, "sjc", "lhr")
		both := []*gate{w.gates["lhr"], w.gates["sjc"]}
		start := time.Now().Add(31 * time.Minute).Truncate(time.Second)
		for _, g := range both {
			g.event(earlySale(start, 0))
		}
		for i := range 8 { // some are at home where they ask, and some are not
			v := both[i%2].device(fmt.Sprint("person ", i))
			w.until("a place", 30*time.Second, func() bool { v.in(); return v.opens().Ticket != "" })
			v.isHeldUntil(fmt.Sprint("person ", i), start)
			v.extra["X-Group"] = []string{"gold"}
			v.in()
			v.isHeldUntil(fmt.Sprint("member ", i), start.Add(-30*time.Minute))
		}
	})
}
