package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A sharer asks from an address of its own, with the cookie that it was given or has copied.
type sharer struct {
	t            *testing.T
	url          string
	addr, member string
	cookie       string
}

// get asks for a path and returns the status and the body.
func (c *sharer) get(path string) (int, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), "GET", c.url+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	r.Header.Set("X-Forwarded-For", c.addr)
	if c.member != "" {
		r.Header.Set("X-Member", c.member)
	}
	if c.cookie != "" {
		r.Header.Set("Cookie", c.cookie)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, x := range res.Cookies() {
		c.cookie = x.Name + "=" + x.Value
	}
	loads(c.t, r, string(body), c.cookie)
	return res.StatusCode, string(body)
}

// in reports whether the origin answers.
func (c *sharer) in() bool {
	code, body := c.get("/")
	return code == 200 && strings.HasPrefix(body, "first for")
}

// shared is a room of one, behind a proxy that is trusted.
const shared = "trusted_proxies: [127.0.0.0/8]\nrooms:\n  - name: shop\n    origin: ORIGIN\n" +
	"    total_active_users: 1\n    new_users_per_minute: 1000\n    session_duration: 1h\n"

func (p *process) client(addr string) *sharer { return &sharer{t: p.t, url: p.visitors, addr: addr} }

// copies are clients of other networks with the cookie of c.
func (c *sharer) copies(n int) (all []*sharer) {
	for i := range n {
		x := *c
		x.addr = fmt.Sprintf("203.%d.%d.7", i/250, i%250)
		all = append(all, &x)
	}
	return all
}

// Finding 8: 1,000 clients from 1,000 addresses with one cookie were all served, and nothing showed it.
func TestOnePassFromAThousandAddresses(t *testing.T) {
	t.Run("mark", func(t *testing.T) {
		p := run(t, shared)
		owner := p.client("198.51.100.1")
		owner.in()
		for _, addr := range []string{"198.51.100.2", "2001:db8:1::1", "2001:db8:1:2::3", "192.0.2.1"} {
			c := *owner
			if c.addr = addr; !c.in() {
				t.Errorf("%s: a phone that changes its network is not in", addr)
			}
		}
		if p.metric(`headgate_passes_shared_total{room="shop"}`) != 0 {
			t.Error("three networks are shown as shared")
		}
		for _, c := range owner.copies(1000) {
			if !c.in() {
				t.Fatalf("%s is not in: nobody is punished by default", c.addr)
			}
		}
		if p.metric(`headgate_passes_shared_total{room="shop"}`) != 1 ||
			p.metric(`headgate_refused_pass_sharing_total{room="shop"}`) != 0 {
			t.Error("not shown")
		}
		eventually(t, "shown in the past", func() bool {
			got := p.past("room=shop").Total
			return got["passesShared"] == 1.0 && got["passesRefused"] == 0.0
		})
	})
	t.Run("wait", func(t *testing.T) {
		p := run(t, shared+"    checkout: {pass: true}\n    pass_sharing: {networks: 3, action: wait}\n")
		owner := p.client("198.51.100.1")
		owner.in()
		copies := owner.copies(100)
		in := 0
		for _, c := range copies {
			if c.in() {
				in++
			} else if c.cookie == owner.cookie {
				t.Fatal("no place in the line")
			}
		}
		if in != 2 || !owner.in() || !copies[0].in() {
			t.Errorf("%d of 100 networks are in, want the first two beside the owner", in)
		}
		late := owner.copies(101)[100]
		if code, _ := late.get("/.headgate/pass"); code != 404 {
			t.Errorf("a copy gets a signed pass: %d", code)
		}
		if code, _ := owner.get("/.headgate/pass"); code != 200 {
			t.Errorf("the owner gets no signed pass: %d", code)
		}
		if s := p.status("shop"); s.WaitingUsers != 98 || s.ActiveUsers != 1 {
			t.Errorf("%d wait, %d inside", s.WaitingUsers, s.ActiveUsers)
		}
		if p.metric(`headgate_refused_pass_sharing_total{room="shop"}`) != 98 {
			t.Error("not shown")
		}
	})
	t.Run("end", func(t *testing.T) {
		p := run(t, shared+"    pass_sharing: {networks: 2, action: end}\n")
		owner, next := p.client("198.51.100.1"), p.client("192.0.2.1")
		owner.in()
		if next.in() {
			t.Fatal("two at once")
		}
		copies := owner.copies(3)
		if !copies[0].in() || !owner.in() {
			t.Error("two networks are allowed")
		}
		if copies[1].in() || copies[2].in() || owner.in() || copies[0].in() {
			t.Error("the visit goes on")
		}
		eventually(t, "in by the slot that came back", next.in)
	})
}

// Finding 8: 20 clients with one ticket that is called were all let in.
func TestOneCalledTicketAndTwentyClients(t *testing.T) {
	p := run(t, shared)
	first, owner := p.client("192.0.2.1"), p.client("198.51.100.1")
	if !first.in() || owner.in() {
		t.Fatal("want one inside and one in the line")
	}
	copies := owner.copies(20)
	if code, text := p.patch("shop", `{"total_active_users": 2}`); code != 200 {
		t.Fatal(code, text)
	}
	eventually(t, "called and in", owner.in)
	if !owner.in() { // the pass has come back
		t.Fatal("not in")
	}
	eventually(t, "refused", func() bool { probe := *copies[0]; return !probe.in() })
	for _, c := range copies {
		if c.in() {
			t.Errorf("%s is in with a used ticket", c.addr)
		}
	}
	if s := p.status("shop"); s.ActiveUsers != 2 || !owner.in() {
		t.Errorf("%d inside, want the first and the owner", s.ActiveUsers)
	}
}

// A limit with the key visit counts a pass that many share as one, whatever their addresses.
func TestALimitByVisitIsOneForAllWhoShareAPass(t *testing.T) {
	p := run(t, "limits: [{name: each, algorithm: sliding_log, amount: 10, window: 1h, key: [visit]}]\n"+
		shared+"    limits: [each]\n    exclude: {paths: [/free]}\n")
	owner := p.client("198.51.100.1")
	owner.in()
	served := 1
	for _, c := range owner.copies(50) {
		if code, _ := c.get("/"); code == 200 {
			served++
		} else if code != 429 {
			t.Fatal(code)
		}
	}
	if served != 10 {
		t.Errorf("%d served, want 10", served)
	}
	for i := range 12 { // what belongs to no visit is counted by its address
		code, _ := p.client("192.0.2.1").get("/free")
		if want := map[bool]int{true: 200, false: 429}[i < 10]; code != want {
			t.Errorf("excluded request %d: %d, want %d", i, code, want)
		}
	}
	if code, _ := p.client("192.0.2.2").get("/free"); code != 200 {
		t.Errorf("excluded, from another address: %d", code)
	}
}

// With bind a cookie is good for the client alone to whom it was given.
func TestABoundCookieIsGoodForItsClientAlone(t *testing.T) {
	p := run(t, shared+"    bind: header:x-member\n")
	ann := p.client("198.51.100.1")
	ann.member = "ann"
	for range 2 {
		if !ann.in() {
			t.Fatal("not in")
		}
	}
	for _, member := range []string{"bob", "", "an"} {
		x := *ann
		if x.member = member; x.in() {
			t.Errorf("in with the value %q", member)
		}
	}
	bob := p.client("198.51.100.2")
	bob.member = "bob"
	bob.in()
	ticket := bob.cookie
	if s := p.status("shop"); s.WaitingUsers != 4 { // three above who joined, and bob
		t.Errorf("%d wait", s.WaitingUsers)
	}
	bob.in()
	if s := p.status("shop"); s.WaitingUsers != 4 {
		t.Errorf("%d wait: bob joined twice", s.WaitingUsers)
	}
	eve := p.client("198.51.100.3")
	eve.member, eve.cookie = "eve", ticket
	eve.in()
	if s := p.status("shop"); s.WaitingUsers != 5 || eve.cookie == ticket {
		t.Errorf("%d wait: a place was taken over with its cookie", s.WaitingUsers)
	}
	if !ann.in() {
		t.Error("ann is out")
	}
}

// A cookie from before a room bound its cookies keeps what it has.
func TestACookieFromBeforeABindingCounts(t *testing.T) {
	p := run(t, shared)
	old := p.client("198.51.100.1")
	old.in()
	p.write(shared + "    bind: header:x-member\n")
	p.reload()
	if old.member = "ann"; !old.in() {
		t.Error("out")
	}
}
