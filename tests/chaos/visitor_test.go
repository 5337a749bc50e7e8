package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/tests/virtual"
)

// A person comes with a browser, again and again until peace has come.
type person struct {
	c    *chaos
	r    *rand.Rand
	name string
	site string // where it likes to go
	rule string
	jar  *jar
	old  []jar // cookies of before

	// of the judges, with their lock
	state   headgate.State
	regular time.Time // since when it asks as it is told
	moved   map[string]bool
}

// A jar is what a browser knows.
type jar struct {
	value string
	tok   ticket.Token // what is in it
	shown int64        // the position that was shown last
	heard time.Time    // when it was last told its place, in answer to a request with its ticket
}

// same reports whether both hold the same ticket or pass.
func (j *jar) same(as *jar) bool {
	return j.tok.ID == as.tok.ID && j.tok.Kind == as.tok.Kind && j.tok.Life == as.tok.Life
}

// A chaosAnswer is what a browser is told.
type chaosAnswer struct {
	Inside   bool           `json:"-"`
	Code     int            `json:"-"`
	State    headgate.State `json:"state"`
	Number   uint64
	Position int64
	Waiting  int64
	After    float64 `json:"poll_after_seconds"`
	Method   string
	MoveLink string `json:"move_link"`

	stay, pass string
	left       time.Duration
}

func newPerson(c *chaos, i int) *person {
	p := &person{c: c, r: rand.New(rand.NewPCG(c.seed, uint64(1000+i))), name: fmt.Sprint("p", i),
		moved: map[string]bool{}, jar: &jar{}}
	p.site = c.sites[p.r.IntN(len(c.sites))]
	c.mu.Lock()
	c.alive++
	c.mu.Unlock()
	return p
}

func (p *person) chance(n int) bool { return p.r.IntN(n) == 0 }

// between draws a time.
func (p *person) between(a, b time.Duration) time.Duration {
	return a + time.Duration(p.r.Int64N(int64(b-a)+1))
}

// live is a life: it comes, waits, is inside, goes, and comes again.
func (p *person) live() {
	c := p.c
	defer func() {
		c.mu.Lock()
		c.alive--
		delete(c.waiting, p)
		c.mu.Unlock()
	}()
	c.pause(p.between(0, 90*time.Second))
	for first := true; !c.over.Load() && (first || !c.atPeace()); first = false {
		p.rule = ""
		if p.chance(3) {
			p.rule = fmt.Sprint("lane", p.r.IntN(4))
		} else if p.chance(30) {
			p.rule = []string{"deny", "bypass"}[p.r.IntN(2)]
			p.fetch(p.node(), p.jar, request{path: "/"})
			p.rule = ""
		}
		if a, ok := p.wait(); ok {
			p.visit(a)
		}
		if j := p.has(); j.value != "" {
			p.old = append(p.old, j)
		}
		switch p.r.IntN(4) {
		case 0: // the same browser, with what it has
		case 1: // a cookie of before
			if len(p.old) > 0 {
				j := p.old[p.r.IntN(len(p.old))]
				j.shown, j.heard = 0, time.Time{}
				p.jar = &j
			}
		default:
			p.jar = &jar{}
		}
		c.pause(p.between(0, 60*time.Second))
	}
}

// has is what is in the jar now: other tabs write it too.
func (p *person) has() jar {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return *p.jar
}

func (c *chaos) atPeace() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peaceful
}

// node is where the next request goes: mostly to where it likes to go.
func (p *person) node() *chaosNode {
	if p.chance(40) {
		p.site = p.c.sites[p.r.IntN(len(p.c.sites))]
	}
	return p.c.node(p.r, p.site)
}

// A request of a browser.
type request struct {
	method, path string
	poll, json   bool
	form         string
	header       http.Header
}

// fetch is one request, and what its answer does to the jar. Not ok: nobody answers.
func (p *person) fetch(n *chaosNode, j *jar, q request) (a chaosAnswer, ok bool) {
	c := p.c
	if n == nil {
		nap(time.Second)
		return a, false
	}
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	if q.method == "" {
		q.method = "GET"
	}
	r := httptest.NewRequestWithContext(ctx, q.method, q.path, strings.NewReader(q.form))
	maps.Copy(r.Header, q.header)
	r.Header.Set("X-Person", p.name)
	r.Header.Set("Accept", "text/html")
	if q.poll || q.json {
		r.Header.Set("Accept", "application/json")
	}
	if q.poll {
		r.Header.Set(headgate.PollHeader, "1")
	}
	if q.form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if p.rule != "" {
		r.Header.Set("X-Rule", p.rule)
	}
	c.mu.Lock()
	was := *j
	c.mu.Unlock()
	if was.value != "" {
		r.Header.Set("Cookie", was.value)
	}
	asked, w := time.Now(), httptest.NewRecorder()
	n.h.ServeHTTP(w, r)
	if n.dead.Load() {
		return a, false
	}
	body := w.Body.String()
	virtual.Note(p.name+" at "+n.name+" "+q.path, w.Body.Bytes())
	a.Code, a.Inside = w.Code, isOrigin(body)
	if !a.Inside && strings.HasPrefix(body, "{") {
		all := struct{ Headgate *chaosAnswer }{&a}
		if err := json.Unmarshal([]byte(body), &all); err != nil {
			c.fail("%d %v: %s", w.Code, err, body)
		}
	}
	a.stay, a.pass = w.Header().Get("X-Stay"), w.Header().Get("X-Pass")
	left, _ := strconv.ParseInt(w.Header().Get("X-Left"), 10, 64)
	a.left = time.Duration(left)
	if q.poll {
		c.judgePoll(n, p, &was, &a, asked)
	}
	p.learn(j, &was, &a, w)
	return a, true
}

// learn takes a cookie in.
func (p *person) learn(j *jar, was *jar, a *chaosAnswer, w *httptest.ResponseRecorder) {
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	now := *was
	for _, x := range w.Result().Cookies() {
		now = jar{value: x.Name + "=" + x.Value}
		if x.MaxAge < 0 {
			now = jar{}
		} else if err := c.ring.Open(&now.tok, "shop", x.Value); err != nil {
			now = jar{}
		}
		if now.tok.Life > 0 && c.lives[now.tok.Life].IsZero() {
			c.lives[now.tok.Life] = time.Now()
		}
		if now.same(was) {
			now.shown, now.heard = was.shown, was.heard
		}
	}
	if now.tok.Kind == ticket.Ticket && now.tok.ID > 0 && a.Number == now.tok.ID && a.Waiting > 0 {
		if now.same(was) { // before its cookie has come back, a place is provisional
			now.heard = time.Now()
		}
		if a.Position > 0 {
			now.shown = a.Position
		}
	}
	if j.value == was.value || now.value != was.value {
		*j = now
	}
}

// irregular notes that the person does not ask as it is told.
func (p *person) irregular(until time.Duration) {
	p.c.mu.Lock()
	p.regular = time.Now().Add(until)
	p.c.mu.Unlock()
}

// wait comes, and waits until it is in. Not ok: it went away.
func (p *person) wait() (a chaosAnswer, ok bool) {
	c := p.c
	c.mu.Lock()
	p.state, p.regular = "", time.Now()
	c.waiting[p] = true
	c.mu.Unlock()
	defer func() { c.mu.Lock(); delete(c.waiting, p); c.mu.Unlock() }()
	load := true // the page
	for !c.over.Load() {
		n := p.node()
		a, ok = p.fetch(n, p.jar, request{path: "/", poll: !load})
		c.mu.Lock()
		p.state = a.State
		c.mu.Unlock()
		switch {
		case !ok:
			p.irregular(0)
			nap(time.Second)
			continue
		case a.Inside:
			return a, true
		case a.State == headgate.StateCalled:
			load = true
			continue
		case a.State == headgate.StateMoved, a.State == headgate.StateLeft, a.State == headgate.StateNoCookie:
			load = true
			nap(2 * time.Second)
			continue
		}
		if load {
			load = false
			nap(10 * time.Millisecond)
			continue
		}
		nap(time.Duration(max(0.01, a.After) * float64(time.Second)))
		if c.atPeace() {
			continue
		}
		switch p.r.IntN(120) {
		case 0, 1: // a sleeping phone
			d := p.between(time.Second, chaosHold+20*time.Second)
			p.irregular(d)
			nap(d)
		case 2:
			p.fetch(n, p.jar, request{method: "POST", path: "/.headgate/leave", header: http.Header{
				"Sec-Fetch-Site": {"same-origin"}}})
			if p.chance(2) {
				return a, false
			}
			load = true
		case 3, 4:
			p.move()
		case 5, 6:
			p.tabs()
		case 7:
			return a, false // gone without a word
		case 8:
			load = true
		}
	}
	return a, false
}

// tabs opens some more of the same browser.
func (p *person) tabs() {
	j := p.jar
	for range 1 + p.r.IntN(3) {
		r, n := p.r.Uint64(), 1+p.r.IntN(6)
		q := *p
		q.r = rand.New(rand.NewPCG(r, 1))
		p.c.going.Go(func() {
			for range n {
				if p.c.over.Load() {
					return
				}
				a, _ := q.fetch(q.node(), j, request{path: "/", poll: !q.chance(4)})
				nap(time.Duration(a.After*float64(time.Second)) + q.between(0, time.Second))
			}
		})
	}
}

// move takes the place to another device, and goes on there; the first one asks on for a while.
func (p *person) move() {
	const path = "/.headgate/move"
	n, first := p.node(), p.jar
	a, ok := p.fetch(n, first, request{path: path, json: true})
	if !ok || a.MoveLink == "" {
		return
	}
	u, err := url.Parse(a.MoveLink)
	if err != nil {
		p.c.fail("link %q: %v", a.MoveLink, err)
		return
	}
	phone := &jar{}
	a, ok = p.fetch(n, phone, request{path: path + "?" + u.RawQuery, json: true})
	if !ok || a.State != headgate.StateMoveHere {
		return
	}
	c := p.c
	c.mu.Lock()
	was := first.tok
	c.mu.Unlock()
	form := url.Values{"place": {a.MoveLink}}.Encode()
	p.fetch(p.node(), phone, request{method: "POST", path: path, form: form})
	c.mu.Lock()
	moved := phone.tok.Kind == ticket.Ticket && phone.tok.ID == was.ID
	if moved { // the first device knows it no more
		phone.heard, phone.shown = time.Now(), 0
		p.moved[fmt.Sprint(was.Life, "/", was.ID)] = true
	}
	c.mu.Unlock()
	if moved {
		p.jar = phone
		p.old = append(p.old, *first)
	}
}

// visit is inside until it has seen enough.
func (p *person) visit(a chaosAnswer) {
	c := p.c
	began, dwell := time.Now(), p.between(0, 60*time.Second)
	if c.atPeace() {
		dwell = p.between(0, 10*time.Second)
	}
	pass, stay := a.pass, a.stay
	for time.Since(began) < dwell && !c.over.Load() {
		if a.left <= 0 {
			return // it passed without a stay
		}
		pass, stay = a.pass, a.stay
		d := p.between(0, a.left*8/10)
		told, end := time.Now(), a.left-a.left/100-1500*time.Millisecond
		if p.has().tok.Probation { // its slot may go to somebody who waits
			end = min(end, probation-1500*time.Millisecond)
		}
		nap(d)
		q := request{path: []string{"/", "/", "/pay/", "/more"}[p.r.IntN(4)]}
		if p.chance(10) {
			q.header = http.Header{"X-Slow": {p.between(0, 3*time.Second).String()}}
		}
		next, ok := p.fetch(p.node(), p.jar, q)
		if !ok {
			nap(100 * time.Millisecond)
			next, ok = p.fetch(p.node(), p.jar, q)
		}
		if !ok {
			return
		}
		c.mu.Lock()
		two := c.stays[stay] != nil && c.stays[stay].two
		thrown := !next.Inside && !two && time.Since(told) < end &&
			told.After(c.disturb) && told.After(c.lost)
		c.mu.Unlock()
		if thrown {
			c.fail("who is inside stays: %s (%s) had %v left %v ago, and is told %+v", p.name, stay, a.left,
				time.Since(told), next)
		}
		if !next.Inside {
			return
		}
		if next.stay != stay && next.stay != "" && time.Since(told) < end && !c.disturbed(told) {
			c.fail("who is inside stays: %s was %s, had %v left %v ago and is %s", p.name, stay, a.left,
				time.Since(told), next.stay)
		}
		a = next
	}
	if c.over.Load() || stay == "" {
		return
	}
	p.old = append(p.old, p.has())
	switch p.r.IntN(3) {
	case 0: // it goes without a word
		c.pause(max(0, a.left))
	case 1:
		p.fetch(p.node(), p.jar, request{path: "/", header: http.Header{"X-Revoke": {"1"}}})
	case 2:
		n := p.node()
		if n == nil || pass == "" {
			return
		}
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		if ended, err := n.room.EndSession(ctx, pass); ended && err == nil {
			c.leaves(stay)
		}
	}
}

func (c *chaos) disturbed(since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return since.Before(c.disturb) || since.Before(c.lost)
}
