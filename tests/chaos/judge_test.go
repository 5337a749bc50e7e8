package chaos_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/status"
	"github.com/headgate/headgate/tests/virtual"
)

// judges compare what TestChaos sees with the guarantees.
type judges struct {
	stays   map[string]*chaosStay
	news    []time.Time // when a stay began
	bounds  []chaosBound
	draws   map[string]map[string]*slot.Order // by data center and event
	told    map[string]chaosCall              // by data center and lane: the last of whom was called
	claimed map[string]bool                   // tickets that let somebody in
	alive   int                               // people who are not done
	waiting map[*person]bool
	lives   map[uint64]time.Time // since when they are known

	calm     time.Time // since when nothing has happened that may change an order
	disturb  time.Time // since when no slot can be free and presumed used
	open     time.Time // no judge looks at requests without a stay before
	lost     time.Time // places told before are not known any more
	rolled   bool      // a record went back: what was issued since may be issued again
	random   time.Time // until when anybody may have been called
	peaceful bool
	idle     time.Time // since when a slot is free and somebody waits
}

// A chaosStay is somebody inside, as the origin sees it.
type chaosStay struct {
	until time.Time // surely inside up to then, if not over
	maybe time.Time // surely not inside after that, if nothing more is heard
	over  bool
	who   string // that came in first
	seen  time.Time
	two   bool // another came in: the number of a lost record was issued once more
}

// A chaosBound is the value of both limits from a time on.
type chaosBound struct {
	at            time.Time
	active, fresh int64
}

// A chaosCall is the last of a line, in its order, of whom is known that it was called.
type chaosCall struct {
	key, ticket uint64
	at          time.Time
}

func (j *judges) init() {
	j.stays, j.draws = map[string]*chaosStay{}, map[string]map[string]*slot.Order{}
	j.told, j.claimed = map[string]chaosCall{}, map[string]bool{}
	j.waiting, j.lives = map[*person]bool{}, map[uint64]time.Time{}
	j.open, j.lost, j.calm, j.disturb = time.Now(), time.Now(), time.Now(), time.Now()
	j.idle = time.Now()
}

// wrote reads what is in a record: the bounds at the root, and draws.
func (c *chaos) wrote(site, key string, value []byte) {
	virtual.Note("write "+site+" "+key, value)
	root := "counter.shop"
	if len(c.sites) > 1 {
		root = "counter.@shop"
	}
	if key != root && key != "counter.shop" {
		return
	}
	var r slot.Record
	if err := r.UnmarshalBinary(value); err != nil {
		c.fail("a record of %s that cannot be read: %v", site, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if key == root && r.MovedTo == "" && len(r.Limits) == 2 {
		b := chaosBound{time.Now(), r.Limits[0].InForce, r.Limits[1].InForce}
		if n := len(c.bounds); n == 0 || c.bounds[n-1].active != b.active || c.bounds[n-1].fresh != b.fresh {
			c.bounds = append(c.bounds, b)
		}
	}
	if key != "counter.shop" {
		return
	}
	for _, d := range r.Draws {
		if d.To == 0 {
			continue
		}
		if c.draws[site] == nil {
			c.draws[site] = map[string]*slot.Order{}
		}
		name := fmt.Sprint(r.Name.Life, d.Event, d.Start)
		if c.draws[site][name] == nil {
			c.draws[site][name] = d.Order()
			c.unordered()
		}
	}
}

// bound returns the highest limits of the last moments, because a request may be in progress.
func (j *judges) bound(now time.Time) (b chaosBound) {
	for i := len(j.bounds) - 1; i >= 0; i-- {
		b.active, b.fresh = max(b.active, j.bounds[i].active), max(b.fresh, j.bounds[i].fresh)
		if now.Sub(j.bounds[i].at) > 1500*time.Millisecond {
			break
		}
	}
	return b
}

// unordered begins to look at the order anew.
func (j *judges) unordered() {
	clear(j.told)
	j.calm = time.Now()
}

// origin is the handler behind the room.
func (n *chaosNode) origin(w http.ResponseWriter, r *http.Request) {
	c := n.c
	if n.dead.Load() {
		return
	}
	s, ok := headgate.SessionOf(w)
	c.entered(n, r, &s, ok)
	if d, err := time.ParseDuration(r.Header.Get("X-Slow")); err == nil {
		nap(d)
	}
	if ok {
		w.Header().Set("X-Stay", s.ID)
		w.Header().Set("X-Pass", s.Pass())
		w.Header().Set("X-Left", strconv.FormatInt(int64(s.Remaining), 10))
	}
	if r.Header.Get("X-Revoke") != "" {
		w.Header().Set(headgate.CommandHeader, "revoke")
		c.leaves(s.ID)
	}
	fmt.Fprintln(w, "origin")
}

// leaves records that a session is over.
func (c *chaos) leaves(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.stays[id]; s != nil && !s.over {
		s.over, s.maybe = true, time.Now().Add(5*time.Second)
	}
}

// entered checks that a visitor may be inside: the limit is never exceeded.
func (c *chaos) entered(n *chaosNode, r *http.Request, s *headgate.Session, ok bool) {
	now := time.Now()
	if !ok {
		c.mu.Lock()
		free := now.Sub(c.open) < 5*time.Second || r.Header.Get("X-Rule") == "bypass" ||
			now.Before(c.lost) // the time has just gone back, or is about to be heard
		var tok ticket.Token
		_, value, _ := strings.Cut(r.Header.Get("Cookie"), "=")
		if c.ring.Open(&tok, "shop", value) == nil {
			// Of a data center that is out of reach: what is seen so is reported nowhere.
			free = free || tok.Kind == ticket.Pass && tok.Home != n.site && tok.Home != ""
		}
		c.mu.Unlock()
		if !free {
			c.fail("%s is inside without a stay, at %s", r.Header.Get("X-Person"), n.name)
		}
		return
	}
	var tok ticket.Token
	c.mu.Lock()
	if err := c.ring.Open(&tok, "pass shop", s.Pass()); err != nil {
		c.t.Errorf("the pass of %s: %v", s.ID, err)
	}
	x, b := c.stays[s.ID], c.bound(now)
	fresh := x == nil
	if fresh {
		x = &chaosStay{who: r.Header.Get("X-Person")}
		c.stays[s.ID], c.news = x, append(c.news, now)
		c.claimed[fmt.Sprint(tok.Life, "/", tok.ID)] = true
	}
	x.seen = now
	x.two = x.two || x.who != r.Header.Get("X-Person")
	twice := x.two && !c.rolled
	cfg := n.room.Config()
	longest := max(cfg.SessionDuration, cfg.Grace.For+min(cfg.Grace.For/10, 30*time.Second))
	sure := s.Remaining
	if tok.Probation || time.Since(s.Entered) < 2*probation { // it may have nothing confirmed yet
		sure = min(sure, probation-time.Second)
	}
	if end := now.Add(sure - sure/200 - 100*time.Millisecond); end.After(x.until) {
		x.until = end
	}
	if end := now.Add(max(longest, s.Remaining) + longest/50 + 6*time.Second); end.After(x.maybe) {
		x.maybe = end
	}
	if now.Before(c.lost) { // nobody who knows more than the record is left
		b = chaosBound{active: unlimited, fresh: unlimited}
	}
	inside, recent, others := c.inside(now), int64(0), c.others(now)
	for _, at := range c.news {
		if now.Sub(at) < time.Minute-50*time.Millisecond {
			recent++
		}
	}
	c.mu.Unlock()
	if twice {
		c.fail("one place is one person's: %s is inside as %s, as %s is", r.Header.Get("X-Person"), s.ID, x.who)
	}
	if !fresh {
		return
	}
	if inside > b.active {
		c.fail("never over: %s comes in at %s as %s, and is one of %d inside; the limit is %d:%s",
			r.Header.Get("X-Person"), n.name, s.ID, inside, b.active, others)
	}
	if recent > b.fresh {
		c.fail("never over: %s comes in at %s, the %d. of a minute; the limit is %d",
			r.Header.Get("X-Person"), n.name, recent, b.fresh)
	}
}

// inside counts the visitors who are certainly inside.
func (j *judges) inside(now time.Time) (n int64) {
	for _, x := range j.stays {
		if !x.over && x.until.After(now) {
			n++
		}
	}
	return n
}

// others lists the visitors whom inside counts.
func (j *judges) others(now time.Time) (list string) {
	for id, x := range j.stays {
		if !x.over && x.until.After(now) {
			list += fmt.Sprintf(" %s of %s, last seen %v ago, until %v from now", id, x.who,
				now.Sub(x.seen), x.until.Sub(now))
		}
	}
	return list
}

// perhaps counts the visitors who may be inside, and those who may count as new.
func (j *judges) perhaps(now time.Time) (inside, fresh int64) {
	for _, x := range j.stays {
		if x.maybe.After(now) {
			inside++
		}
	}
	for _, at := range j.news {
		if now.Sub(at) < 66*time.Second {
			fresh++
		}
	}
	return inside, fresh
}

// key is where a ticket stands in its line, and which line that is.
func (j *judges) key(home string, t *ticket.Token) (line string, key uint64) {
	key = t.ID
	for _, o := range j.draws[home] {
		if t.ID >= o.From && t.ID < o.To {
			key = o.Rank(t.ID)
		}
	}
	return fmt.Sprint(home, "/", t.Life, "/", slot.LaneIndex(t.ID)), key
}

// judgePoll judges what a visitor with a ticket is told: its place is kept, shown no further back, and
// in its order.
func (c *chaos) judgePoll(n *chaosNode, p *person, was *jar, a *chaosAnswer, asked time.Time) {
	if was.tok.Kind != ticket.Ticket || was.tok.ID == 0 {
		return
	}
	now, home := time.Now(), cmp.Or(was.tok.Home, c.sites[0])
	// Who was in is sent to the page too.
	called := a.State == headgate.StateCalled && a.Number == was.tok.ID &&
		c.where(home, &was.tok).Status == "called"
	c.mu.Lock()
	out := false
	lost, why := a.Number != was.tok.ID && a.State != headgate.StateMoved && a.State != headgate.StateLeft, ""
	id := fmt.Sprint(was.tok.Life, "/", was.tok.ID)
	switch {
	case !lost, c.lives[was.tok.Life].Before(c.lost), c.claimed[id], p.moved[id],
		now.Sub(was.heard) > chaosHold-5*time.Second, was.heard.Before(c.lost):
	default:
		why = fmt.Sprintf("a place is kept: %s had %d of %q, heard %v ago, at %d, and is told %+v", p.name,
			was.tok.ID, was.tok.Home, now.Sub(was.heard), was.shown, *a)
	}
	if a.Number == was.tok.ID && a.Position > 0 && was.shown > 0 && a.Position > was.shown &&
		!c.lives[was.tok.Life].Before(c.lost) {
		why = fmt.Sprintf("no place goes back: %s with %d was told %d and is told %+v", p.name, was.tok.ID,
			was.shown, *a)
	}
	line, key := c.key(home, &was.tok)
	ordered := a.Method == string(headgate.MethodFIFO) && now.Sub(c.calm) > 25*time.Second
	last, ok := c.told[line]
	switch {
	case a.Number != was.tok.ID || !ordered:
	case called:
		if c.told[line].key < key {
			c.told[line] = chaosCall{key, was.tok.ID, now}
		}
	case ok && key < last.key && asked.After(last.at) && p.regular.Before(c.calm.Add(20*time.Second)) &&
		p.regular.Before(last.at.Add(-20*time.Second)) && a.State == headgate.StateWaiting:
		out = true
		why = fmt.Sprintf("in order: %s with %d (%d in line %s) is told %+v, and %d was called %v before",
			p.name, was.tok.ID, key, line, *a, last.key, now.Sub(last.at))
	}
	c.mu.Unlock()
	if why != "" {
		if w := c.where(home, &was.tok); w.Status == "called" && out {
			return // held at the door until its second has come
		} else if !out || w.Status != "" {
			why += fmt.Sprintf("\n         cookie %+v; its host says %+v", was.tok, w)
			c.fail("%s", why)
		}
	}
}

// where asks the host of a ticket about it.
func (c *chaos) where(home string, t *ticket.Token) (w status.Ticket) {
	c.mu.Lock()
	nodes := c.nodes
	c.mu.Unlock()
	for _, n := range nodes {
		if n.site == home && n.room.Status().Hosted {
			w, _ = n.room.FindTicket(context.Background(), ticket.ShortID(t.Life, t.ID)) // unknown is ""
		}
	}
	return w
}

// watch checks the whole room every second: nobody waits while a slot is free.
func (c *chaos) watch() {
	for ; !c.over.Load(); nap(time.Second) {
		now := time.Now()
		if x := c.config(now); x.Method == headgate.MethodRandom {
			c.mu.Lock()
			c.random = now
			c.mu.Unlock()
		}
		c.mu.Lock()
		inside, fresh := c.perhaps(now)
		b := chaosBound{active: c.cfg.TotalActiveUsers, fresh: c.cfg.NewUsersPerMinute}
		if len(c.bounds) > 0 {
			last := c.bounds[len(c.bounds)-1]
			b.active, b.fresh = min(b.active, last.active), min(b.fresh, last.fresh)
		}
		ready, called, who := int64(0), int64(0), ""
		for p := range c.waiting {
			switch {
			case p.state == headgate.StateCalled:
				called++
			case p.state == headgate.StateWaiting && now.Sub(p.regular) > 30*time.Second:
				ready++
				who += " " + p.name
			}
		}
		free := min(b.active-inside, b.fresh-fresh) - called
		if ready == 0 || free <= 0 || !c.disturb.Before(now) || len(c.list) > 0 {
			c.idle = now
		}
		most := 30*time.Second + time.Minute/time.Duration(max(1, b.fresh))
		if len(c.sites) > 1 {
			most += 20 * time.Second
		}
		idle := now.Sub(c.idle)
		c.mu.Unlock()
		if idle > most {
			c.fail("never idle: %d of %d slots are free for %v, %d of %d in the minute, and%s wait",
				b.active-inside,
				b.active, idle, fresh, b.fresh, who)
		}
	}
}

// quiet says for how long slots may be presumed used after something has happened.
func (c *chaos) quiet(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := time.Now().Add(d); t.After(c.disturb) {
		c.disturb = t
	}
}

// empty reports whether all nodes report an empty room.
func (c *chaos) empty() bool {
	c.mu.Lock()
	nodes := c.nodes
	c.mu.Unlock()
	for _, n := range nodes {
		s := n.room.Status()
		if s.ActiveUsers != 0 || s.WaitingUsers != 0 || s.Called != 0 || s.NewUsersLastMinute != 0 {
			return false
		}
		if d := s.Datacenters; d != nil {
			for _, x := range d.Datacenters {
				if x.Active != 0 || x.Waiting != 0 || x.Called != 0 || x.New != 0 {
					return false
				}
			}
		}
	}
	return true
}

// isOrigin reports whether the origin has answered.
func isOrigin(body string) bool { return strings.HasPrefix(body, "origin") }
