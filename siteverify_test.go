package headgate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/tests/virtual"
)

// A thirdParty answers for a siteverify endpoint: tokens that begin with "good" are good once.
type thirdParty struct {
	mu    sync.Mutex
	spent map[string]bool
	away  bool
	asked int
}

func (p *thirdParty) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := r.ParseForm(); err != nil {
		return nil, err
	}
	p.asked++
	token, body := r.PostForm.Get("response"), `{"success":true,"hostname":"shop.example"}`
	switch {
	case p.away:
		return nil, io.ErrUnexpectedEOF
	case !strings.HasPrefix(token, "good"):
		body = `{"success":false,"error-codes":["invalid-input-response"]}`
	case p.spent[token]:
		body = `{"success":false,"error-codes":["timeout-or-duplicate"]}`
	}
	p.spent[token] = true
	answer := io.NopCloser(strings.NewReader(body))
	return &http.Response{StatusCode: http.StatusOK, Body: answer, Request: r}, nil
}

func (p *thirdParty) challenge() Challenge {
	return Challenge{Kind: "turnstile", PublicKey: "0x4AAA", Secret: "secret", Transport: p,
		Hostnames: []string{"shop.example"}}
}

// A token of a third party is as a solution: with it a ticket has the place of its arrival, once. Whoever
// sends none, a wrong one or that of somebody else waits in the lane in the end, and comes in.
func TestATokenIsAsASolution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &thirdParty{spent: map[string]bool{}}
		g, first := challenged(t, RoomConfig{TotalActiveUsers: 100, NewUsersPerMinute: 600,
			Challenge: p.challenge()})
		defer g.stop()
		early, late := g.visitor(), g.visitor()
		early.joins()
		late.joins()
		if m := late.asks("good1"); m.Challenge != nil || m.Position != 2 {
			t.Fatalf("%+v", m)
		}
		if m := early.asks("good1"); m.Challenge == nil {
			t.Fatalf("a token of another ticket is accepted: %+v", m)
		}
		if m := late.asks("good2"); m.Position != 2 || p.asked != 1 {
			t.Errorf("a token is spent on a ticket that needs none: %+v", m)
		}
		if m := early.asks("good2"); m.Challenge != nil || m.Position != 2 {
			t.Fatalf("%+v", m)
		}
		if e, l := early.pass().ID, late.pass().ID; e >= l {
			t.Errorf("not the order of arrival: %d, %d", e, l)
		}
		bad := map[string]*visitor{"": g.visitor(), "bad": g.visitor(), "good1": g.visitor()}
		for _, v := range bad {
			v.joins()
		}
		notices := map[string]int{}
		for i := range 90 { // seconds
			for _, v := range []*visitor{first, early, late} {
				v.poll()
			}
			for token, v := range bad {
				if token == "bad" {
					token += fmt.Sprint(i)
				}
				notices[v.asks(token).Notice]++
			}
			time.Sleep(time.Second)
		}
		lanes := g.room.Status().Lanes
		if notices["new_challenge"] != 21 || notices["unsolved"] != 3 || len(lanes) != 1 || lanes[0].Waiting != 3 {
			t.Fatalf("%v %+v", notices, lanes)
		}
		g.room.SetQueueAll(false)
		for _, v := range []*visitor{first, early, late, bad[""], bad["bad"], bad["good1"]} {
			for i := 0; !v.in(); i++ {
				if time.Sleep(time.Second); i > 60 {
					t.Fatal("a visitor never comes in")
				}
			}
		}
	})
}

// A token that comes when its ticket has lapsed is not spent: it counts for the next ticket of the visitor.
func TestATokenThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &thirdParty{spent: map[string]bool{}}
		g, first := challenged(t, RoomConfig{TotalActiveUsers: 100, NewUsersPerMinute: 600,
			Challenge: p.challenge()})
		defer g.stop()
		v := g.visitor()
		v.joins()
		for range 11 {
			time.Sleep(time.Second)
			first.poll()
		}
		if m := v.asks("good"); m.Challenge == nil || m.Notice != "new_challenge" || p.asked != 0 {
			t.Fatalf("%+v, %d questions", m, p.asked)
		}
		if m := v.asks("good"); m.Challenge != nil || m.Position != 2 || p.asked != 1 {
			t.Errorf("%+v, %d questions", m, p.asked)
		}
	})
}

// While the third party is away, a room that fails closed sends all to the lane, from which they come
// in, and one that fails open takes them as if they had solved it.
func TestAThirdPartyThatIsAway(t *testing.T) {
	for _, open := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &thirdParty{spent: map[string]bool{}, away: true}
			c := p.challenge()
			c.FailOpen = open
			g, first := challenged(t, RoomConfig{TotalActiveUsers: 100, NewUsersPerMinute: 600, Challenge: c})
			defer g.stop()
			v := g.visitor()
			v.joins()
			if m := v.asks("good0"); (m.Challenge == nil) != open {
				t.Fatalf("open %t: %+v", open, m)
			}
			if g.room.Status().Challenges.Refused["unavailable"] != 1 {
				t.Errorf("%+v", g.room.Status().Challenges)
			}
			for i := range 90 {
				time.Sleep(time.Second)
				first.poll()
				v.asks(fmt.Sprint("good", i+1))
			}
			g.room.SetQueueAll(false)
			time.Sleep(time.Second)
			if v.in(); !first.in() {
				t.Error("the first is not in")
			}
			for i := 0; !v.in(); i++ {
				if time.Sleep(time.Second); i > 60 {
					t.Fatal("a visitor never comes in")
				}
			}
		})
	}
}

// A reload that changes the kind of challenges turns nobody away: a solution of before is refused, and the
// next challenge is of the new kind.
func TestTheKindOfChallengesChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &thirdParty{spent: map[string]bool{}}
		g, _ := challenged(t, RoomConfig{TotalActiveUsers: 100, NewUsersPerMinute: 600})
		defer g.stop()
		v := g.visitor()
		solution := v.joins().solve(t, "")
		if err := g.again(func(c *RoomConfig) { c.Challenge = p.challenge() }); err != nil {
			t.Fatal(err)
		}
		if m := v.asks(solution); m.Challenge == nil || m.Challenge.Signature != "" {
			t.Errorf("%+v", m)
		}
		if m := v.asks("good"); m.Challenge == nil { // a wrong one came before
			t.Errorf("%+v", m)
		}
		w := g.visitor()
		w.joins()
		if m := w.asks("good"); m.Challenge != nil {
			t.Errorf("%+v", m)
		}
	})
}

// A proxy that relays no answers is told at once that a ticket may not pass: the third party, which may take
// as long as the proxy waits, is asked when the same request comes to Handler.
func TestATokenInAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &thirdParty{spent: map[string]bool{}}
		g, _ := challenged(t, RoomConfig{TotalActiveUsers: 100, NewUsersPerMinute: 600,
			Challenge: p.challenge()})
		defer g.stop()
		v := g.visitor()
		v.joins()
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header = http.Header{"Cookie": {v.cookie}, "Headgate-Solution": {"good"}}
		w := httptest.NewRecorder()
		g.room.Decide(false, http.NotFoundHandler()).ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized || p.asked != 0 {
			t.Errorf("%d, %d questions", w.Code, p.asked)
		}
		if m := v.asks("good"); m.Challenge != nil || p.asked != 1 {
			t.Errorf("%+v, %d questions", m, p.asked)
		}
	})
}

// An endless room lets nobody in who waits without a token of the third party.
func endless(t *testing.T, cfg RoomConfig) (*gate, *plug, *thirdParty) {
	t.Helper()
	p := &thirdParty{spent: map[string]bool{}}
	cfg.TotalActiveUsers = cmp.Or(cfg.TotalActiveUsers, 100)
	cfg.NewUsersPerMinute = cmp.Or(cfg.NewUsersPerMinute, 600)
	if cfg.Challenge.Kind == "" {
		cfg.Challenge = p.challenge()
	}
	cfg.Challenge.Transport, cfg.Challenge.Endless, cfg.QueueAll = p, true, true
	g, store := openPlugged(t, cfg)
	return g, store, p
}

// answer polls, and returns the answer as an attacker sees it: the members of its two objects, the names of
// its headers, and what is shown.
func (v *visitor) answer(solution string) (ours, theirs map[string]any, headers []string) {
	v.extra, v.accept = http.Header{PollHeader: {"1"}, "Headgate-Solution": {solution}}, "application/json"
	w := v.do("GET", "/")
	v.extra, v.accept = nil, "text/html"
	var all struct{ Headgate, CfWaitingRoom map[string]any }
	if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil {
		v.g.t.Fatal(err)
	}
	return all.Headgate, all.CfWaitingRoom, slices.Sorted(maps.Keys(w.Header()))
}

// Whoever sends a token that the third party says is wrong waits without end. Nothing tells it: its answers
// look like those of somebody who solved the challenge and waits, but for the time, which nobody knows. It
// has no place, so it costs no one else theirs, and it is not asked about again.
func TestWhoFailsWaitsWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, p := endless(t, RoomConfig{})
		defer g.stop()
		first, bad, good := g.visitor(), g.visitor(), g.visitor()
		if first.joins(); first.asks("good1").Position != 1 {
			t.Fatal("the first is not the first")
		}
		bad.joins()
		good.joins()
		b, bcf, bh := bad.answer("bad")
		c, ccf, ch := good.answer("good2")
		if b["position"] != 2.0 || b["ahead"] != 1.0 || c["position"] != 2.0 || b["challenge"] != nil {
			t.Errorf("%v\n%v", b, c)
		}
		for key := range c {
			switch key {
			case "ticket", "number", "poll_after_seconds", "waiting", "updated_at":
			default:
				if b[key] != c[key] {
					t.Errorf("%s is %v, otherwise %v", key, b[key], c[key])
				}
			}
		}
		for key := range ccf {
			if key != "refreshIntervalSeconds" && key != "lastUpdated" && bcf[key] != ccf[key] {
				t.Errorf("%s is %v, otherwise %v", key, bcf[key], ccf[key])
			}
		}
		if !slices.Equal(bh, ch) || len(b) != len(c) || len(bcf) != len(ccf) {
			t.Errorf("headers %v, otherwise %v; %v, %v", bh, ch, b, bcf)
		}
		if len(bad.cookie) != len(good.cookie) {
			t.Errorf("cookies of %d and %d bytes", len(bad.cookie), len(good.cookie))
		}
		id, asked := b["ticket"], p.asked
		for i := range 60 {
			time.Sleep(time.Second)
			first.poll()
			good.poll()
			if b, _, _ = bad.answer(fmt.Sprint("good", 10+i)); b["ticket"] != id || b["eta_seconds"] != nil || b["state"] != "queue_all" {
				t.Fatal(b)
			}
		}
		if n := g.room.Status().WaitingUsers; n != 2 || p.asked != asked {
			t.Errorf("%d wait, asked %d times after %d", n, p.asked, asked)
		}
		g.room.SetQueueAll(false)
		for _, v := range []*visitor{first, good} {
			for i := 0; !v.in(); i++ {
				if time.Sleep(time.Second); i > 30 {
					t.Fatal("a visitor never comes in")
				}
			}
		}
		for i := range 200 {
			time.Sleep(30 * time.Second)
			if b, _, _ = bad.answer(""); b["state"] != "waiting" || b["eta_seconds"] != nil || b["position"] != 0.0 || bad.in() {
				t.Fatalf("after %d: %v", i, b)
			}
		}
		if n := g.room.Status().Challenges.Refused["wrong"]; n != 1 {
			t.Errorf("%d wrong ones", n)
		}
	})
}

// While nobody is called there is no time for anybody, and nothing else tells in a long line either: not the
// interval of polls, not the number of those who wait, and no cookie that only one of two visitors gets.
func TestNothingTellsWhoFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, _ := endless(t, RoomConfig{NewUsersPerMinute: 6, TotalActiveUsers: 1000})
		defer g.stop()
		var line []*visitor
		for i := range 120 {
			line = append(line, g.visitor())
			line[i].joins()
			line[i].asks(fmt.Sprint("good", i))
		}
		bad, good := g.visitor(), g.visitor()
		bad.joins()
		good.joins()
		b, _, _ := bad.answer("bad")
		c, _, _ := good.answer("good")
		for _, key := range []string{"poll_after_seconds", "waiting", "position", "eta_seconds"} {
			if b[key] != c[key] {
				t.Errorf("%s is %v, otherwise %v", key, b[key], c[key])
			}
		}
		for i := range 40 {
			time.Sleep(10 * time.Second)
			for _, v := range line {
				v.poll()
			}
			b, _, bh := bad.answer("")
			c, _, ch := good.answer("")
			if !slices.Equal(bh, ch) || b["waiting"] != c["waiting"] || b["waiting"].(float64) < b["position"].(float64) {
				t.Fatalf("after %d polls: headers %v, otherwise %v\n%v\n%v", i, bh, ch, b, c)
			}
		}
	})
}

// Whoever has not failed, and has not solved it either, keeps the challenge, however long it takes: the
// widget is there, and the place counts from the token on. So are a token that has expired, one that could
// not be checked, and that of a browser that cannot load the script.
func TestWhoHasNotFailedCanSolveItLater(t *testing.T) {
	for _, token := range []string{"", "good1", "unavailable-0.5", "away"} {
		synctest.Test(t, func(t *testing.T) {
			g, _, p := endless(t, RoomConfig{})
			defer g.stop()
			first, slow := g.visitor(), g.visitor()
			first.joins()
			first.asks("good1")
			slow.joins()
			p.away = token == "away"
			for i := range 200 { // 8 tries of 10 s
				time.Sleep(time.Second)
				first.poll()
				sends := token
				if i%3 == 0 && token != "" && token != "good1" {
					sends += fmt.Sprint(i)
				}
				if m := slow.asks(sends); m.Challenge == nil || m.Notice == "unsolved" {
					t.Fatalf("%q after %d s: %+v", token, i, m)
				}
			}
			if n := g.room.Status(); n.WaitingUsers != 1 || token == "" && n.Totals.Joined != 9 {
				t.Errorf("%d wait, %d joined", n.WaitingUsers, n.Totals.Joined)
			}
			p.away = false
			time.Sleep(11 * time.Second)
			first.poll()
			slow.asks("good2") // has a new ticket
			if m := slow.asks("good2"); m.Challenge != nil || m.Position != 2 {
				t.Fatalf("%+v", m)
			}
			g.room.SetQueueAll(false)
			for i := 0; !slow.in(); i++ {
				first.in()
				if time.Sleep(time.Second); i > 30 {
					t.Fatal("it never comes in")
				}
			}
		})
	}
}

// In an endless room nothing else than a token confirms a place: not free slots, no other path, no network
// above join_limit, no proxy that asks, and no page whose image was loaded.
func TestNothingButATokenEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, p := endless(t, RoomConfig{TotalActiveUsers: 5, JoinLimit: JoinLimit{Amount: 3}})
		defer g.stop()
		inside := g.visitor()
		g.room.SetQueueAll(false)
		if time.Sleep(3 * time.Second); !inside.in() {
			t.Fatal("a room in which nobody waits holds a newcomer")
		}
		g.room.SetQueueAll(true)
		var bots []*visitor
		for i := range 12 {
			bots = append(bots, g.visitor())
			if bots[i].joins() == nil {
				t.Fatalf("the newcomer %d has no challenge", i)
			}
		}
		g.room.SetQueueAll(false)
		for i := range 300 {
			time.Sleep(time.Second)
			for k, v := range bots {
				switch {
				case k%3 == 0:
					v.asks(fmt.Sprint("bad", i))
				case k%3 == 1:
					v.do("GET", "/.headgate/here.gif")
				}
				if m := v.asks(""); m.State == StateCalled {
					t.Fatalf("%d is called after %d s: %+v", k, i, m)
				}
			}
		}
		if s := g.room.Status(); s.WaitingUsers != 0 || s.Totals.Joined > 12*9 {
			t.Errorf("%d wait, %d joined", s.WaitingUsers, s.Totals.Joined)
		}
		if p.asked == 0 {
			t.Error("no token was checked")
		}
	})
}

// An operator releases the ticket of a visitor that was refused: it has the place of its arrival, once, also
// after a kill, with any copy of its cookie. One that was silent for long stands at the end.
func TestARefusedVisitorIsReleased(t *testing.T) {
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g, store, _ := endless(t, RoomConfig{TotalActiveUsers: 3, NewUsersPerMinute: 60,
				Hold: time.Minute, HoldPhone: time.Minute})
			first, bad, other := g.visitor(), g.visitor(), g.visitor()
			for i, v := range []*visitor{first, bad, other} {
				v.joins()
				v.asks([]string{"good1", "bad", "good2"}[i])
			}
			old := *bad
			for range 200 {
				time.Sleep(time.Second)
				first.poll()
				other.poll()
				if !silent {
					bad.asks("")
				}
			}
			m := bad.asks("")
			w, err := g.room.FindTicket(t.Context(), m.Ticket)
			if err != nil || w.Status != "gone" || w.Released || w.Position != 0 {
				t.Fatalf("%+v, %+v, %v", m, w, err)
			}
			if err := g.room.ReleaseTicket(t.Context(), first.asks("").Ticket); err == nil {
				t.Error("a ticket that waits in the line is released")
			}
			if err := g.room.ReleaseTicket(t.Context(), m.Ticket); err != nil {
				t.Fatal(err)
			}
			g, _ = g.kill(store, 0)
			defer g.stop()
			for _, v := range []*visitor{first, bad, other, &old} {
				v.g = g
			}
			for range 8 {
				time.Sleep(time.Second)
				first.poll()
				other.poll()
				bad.asks("")
			}
			at := map[bool]int64{false: 2, true: 3}[silent]
			w, err = g.room.FindTicket(t.Context(), m.Ticket)
			if got := bad.asks(""); err != nil || !w.Released || w.Position < at || got.Position != 2 || got.Ticket != m.Ticket || got.Challenge != nil {
				t.Errorf("%+v, %+v, %v", got, w, err)
			}
			g.room.SetQueueAll(false)
			var came []*visitor
			for range 1000 {
				time.Sleep(20 * time.Millisecond)
				for _, v := range []*visitor{other, bad, first} {
					if !slices.Contains(came, v) && v.asks("").State == StateCalled && v.in() {
						came = append(came, v)
					}
				}
			}
			if len(came) != 3 || came[at-1] != bad {
				t.Errorf("%d came, in another order", len(came))
			}
			for range 100 { // long after the claim is forgotten
				time.Sleep(time.Second)
				for _, v := range []*visitor{first, bad, other} {
					v.in()
				}
			}
			if old.asks("").State == StateCalled || old.in() {
				t.Error("a used ticket lets somebody in again")
			}
		})
	}
}

// A ticket whose visitor is inside holds nobody back. If it were released, its old cookie would let in twice.
func TestATicketOfAVisitorInsideIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, _ := endless(t, RoomConfig{})
		defer g.stop()
		v := g.visitor()
		v.joins()
		id := v.asks("good").Ticket
		g.room.SetQueueAll(false)
		for i := 0; !v.in(); i++ {
			if time.Sleep(time.Second); i > 30 {
				t.Fatal("it never comes in")
			}
		}
		for _, after := range []time.Duration{0, time.Minute} {
			time.Sleep(after)
			v.in()
			if err := g.room.ReleaseTicket(t.Context(), id); !errors.Is(err, counter.ErrNotHeldBack) {
				t.Errorf("after %v: %v", after, err)
			}
		}
		time.Sleep(time.Hour) // nobody knows who it was any more
		if err := g.room.ReleaseTicket(t.Context(), id); !errors.Is(err, counter.ErrNotHeldBack) {
			t.Errorf("after its session: %v", err)
		}
	})
}

// A cookie from before the failure is worth nothing afterwards, at a node that knows nothing of it either.
func TestACookieFromBeforeTheFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, store, _ := endless(t, RoomConfig{})
		first, bad := g.visitor(), g.visitor()
		first.joins()
		first.asks("good1")
		bad.joins()
		older := *bad
		own := bad.asks("bad").Ticket
		g, _ = g.kill(store, 0)
		defer g.stop()
		older.g = g
		for _, v := range []*visitor{first, bad} {
			v.g = g
			for i := 0; v.asks("").State != StateQueueAll; i++ {
				if time.Sleep(100 * time.Millisecond); i > 50 {
					t.Fatal("the host does not answer")
				}
			}
		}
		if m := older.asks("good2"); m.Ticket == own || m.Challenge == nil {
			t.Errorf("it holds the place of its arrival: %+v", m)
		}
	})
}

// Somebody whom the site knows needs no token, and so does nobody once the room asks for none.
func TestARefusedVisitorIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, _ := endless(t, RoomConfig{Identity: memberRoom(1, false).Identity})
		defer g.stop()
		first, bad, worse := g.visitor(), g.visitor(), g.visitor()
		for i, v := range []*visitor{first, bad, worse} {
			v.joins()
			v.asks([]string{"good", "bad1", "bad2"}[i])
		}
		time.Sleep(11 * time.Second) // their numbers have lapsed
		first.poll()
		bad.signIn("bob")
		if m := bad.polls(); m.Position != 2 || g.room.Status().WaitingUsers != 2 {
			t.Errorf("%+v", m)
		}
		if err := g.again(func(c *RoomConfig) { c.Challenge.Endless = false }); err != nil {
			t.Fatal(err)
		}
		if m := worse.asks(""); m.Challenge == nil || m.Notice != "new_challenge" {
			t.Errorf("%+v", m)
		}
	})
}

// What one node has found out is known at the other, and no token that was good at one is good at the other.
func TestARefusedVisitorAtAnyNode(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		p := &thirdParty{spent: map[string]bool{}}
		c := p.challenge()
		c.Endless = true
		w, a, b := twoNodes(t, RoomConfig{Name: "shop", TotalActiveUsers: 2, NewUsersPerMinute: 600, QueueAll: true, Challenge: c})
		first, bad, thief := a.visitor(), a.visitor(), b.visitor()
		if first.joins(); first.asks("good1").Position != 1 {
			t.Fatal("the first is not the first")
		}
		bad.joins()
		thief.joins()
		m := bad.asks("bad")
		asked := p.asked
		if bad.g = b; bad.asks("good2") != m || p.asked != asked || m.Challenge != nil || m.Position != 2 {
			t.Errorf("%+v, %+v, asked %d times", m, bad.asks(""), p.asked-asked)
		}
		if thief.asks("good1").Challenge == nil {
			t.Error("a token that was used at the other node counts")
		}
		last := b.visitor() // its place says what the host knows, and not what this node has heard
		last.joins()
		w.until("the host answers", 10*time.Second, func() bool {
			m = last.asks("good3")
			return m.Position > 0
		})
		if m.Position != 2 {
			t.Errorf("a refused visitor has a place before it: %+v", m)
		}
	})
}

// A visitor that was refused begins anew elsewhere while its data center is out of reach, with the challenge.
func TestARefusedTicketRoamsNowhere(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		p := &thirdParty{spent: map[string]bool{}}
		c := p.challenge()
		c.Endless = true
		w := newWorld(t, RoomConfig{Name: "shop", TotalActiveUsers: 3, NewUsersPerMinute: 1000,
			SessionDuration: time.Minute, Challenge: c, QueueAll: true}, "sjc", "lhr")
		sjc := w.gates["sjc"]
		v := w.gates["lhr"].visitor()
		v.bare = true
		v.joins()
		own := v.asks("bad")
		if own.Challenge != nil || own.Ticket == "" {
			t.Fatalf("%+v", own)
		}
		refused := v.cookie
		w.links["sjclhr"].SetCut(true)
		v.g = sjc
		w.until("it has a challenge of sjc", 30*time.Second, func() bool {
			v.cookie = refused
			m := v.asks("")
			if m.Challenge == nil && m.Ticket != own.Ticket && m.Ticket != "" {
				t.Fatalf("a place for nothing: %+v", m)
			}
			return m.Ticket != own.Ticket && m.Challenge != nil
		})
		if n := sjc.room.Status().WaitingUsers; n != 0 {
			t.Errorf("%d wait at sjc", n)
		}
	})
}

// A claiming room asks for tokens when turns come: it opens with a call each ten seconds, and twelve turns
// come in two minutes.
func claiming(t *testing.T, change func(*RoomConfig), n int) (g *gate, p *thirdParty, all []*visitor) {
	t.Helper()
	p = &thirdParty{spent: map[string]bool{}}
	c := p.challenge()
	c.On = "claim"
	cfg := RoomConfig{TotalActiveUsers: 1000, NewUsersPerMinute: 6, QueueAll: true, Challenge: c,
		SessionDuration: time.Hour}
	if change != nil {
		change(&cfg)
	}
	g = openGate(t, cfg)
	for i := range n {
		v := g.visitor()
		v.addr = fmt.Sprintf("192.0.2.%d:1", i+1)
		v.joins()
		all = append(all, v)
		if m := v.asks(""); m.Position != int64(i+1) || (m.Challenge != nil) != (i < 12) {
			t.Fatalf("visitor %d has %+v", i, m)
		}
	}
	return g, p, all
}

// With on: claim a ticket has its place at once, and the challenge when its turn comes. Whoever has not
// solved it then is passed by, and is next when it has. Whoever never does waits in the lane, and comes in.
// No slot waits meanwhile, and those who solve come in in the order of their arrival.
func TestAChallengeIsAskedAtTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p, all := claiming(t, nil, 30)
		defer g.stop()
		never := map[int]bool{3: true, 5: true, 20: true}
		in, notices, sent := []int{}, map[int]string{}, map[int]bool{}
		second := func() {
			time.Sleep(time.Second)
			for i, v := range all {
				if slices.Contains(in, i) {
					continue
				}
				m := v.asks("")
				if m.Challenge != nil && !never[i] && (i != 1 || len(in) >= 4) {
					m, sent[i] = v.asks(fmt.Sprint("good", i)), true
					if m.Challenge != nil {
						t.Fatalf("visitor %d: a right token does not count: %+v", i, m)
					}
				}
				if m.Notice != "" {
					notices[i] = m.Notice
				}
				if m.State == StateCalled && v.in() {
					if in = append(in, i); !sent[i] && !never[i] && len(in) < 29 {
						t.Errorf("visitor %d came in without a token", i)
					}
				}
			}
		}
		for range 20 {
			second()
		}
		if len(in) > 0 || p.asked != 11-2 {
			t.Fatalf("%v are in, %d tokens were asked about", in, p.asked)
		}
		if w, err := g.room.FindTicket(t.Context(), all[3].asks("").Ticket); err != nil ||
			!strings.Contains(w.Reason, "has not solved its challenge") {
			t.Errorf("%+v %v", w, err)
		}
		if w, err := g.room.FindTicket(t.Context(), all[2].asks("").Ticket); err != nil ||
			strings.Contains(w.Reason, "has not solved") {
			t.Errorf("%+v %v", w, err)
		}
		g.room.SetQueueAll(false)
		for n := 1; len(in) < 30 && n < 400; n++ {
			second()
			if n%10 == 5 && len(in) < min(30, n/10) {
				t.Fatalf("only %d are in after %d s: a slot has waited", len(in), n)
			}
		}
		if want := []int{0, 2, 4, 6, 1, 7, 8, 9}; len(in) != 30 || !slices.Equal(in[:8], want) {
			t.Fatalf("%v came in, want all, and %v first", in, want)
		}
		order := slices.DeleteFunc(slices.Clone(in), func(i int) bool { return never[i] || i == 1 })
		if !slices.IsSorted(order) {
			t.Errorf("overtaken: %v", order)
		}
		if len(notices) != 3 || notices[3] != "unsolved" || notices[5] != "unsolved" || notices[20] != "unsolved" {
			t.Errorf("%v", notices)
		}
		if p.asked != 27 || len(sent) != 27 {
			t.Errorf("%d tokens were asked about, %d sent", p.asked, len(sent))
		}
	})
}

// Where nobody solves anything, slots are empty for a minute and a half, once. Then all come in, at full
// speed.
func TestNobodySolvesAtTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, all := claiming(t, nil, 30)
		defer g.stop()
		g.room.SetQueueAll(false)
		in := 0
		for n := 0; in < 30 && n < 500; n++ {
			time.Sleep(time.Second)
			all = slices.DeleteFunc(all, func(v *visitor) bool {
				return v.asks("").State == StateCalled && v.in()
			})
			in = 30 - len(all)
			if n > 90+5 && in < min(30, (n-90-5)/10) {
				t.Fatalf("%d are in after %d s", in, n)
			}
			if n < 90 && in > 0 {
				t.Fatalf("somebody came in after %d s without a token", n)
			}
		}
	})
}

// A line of no more than can be called at once needs no token: no slot waits for one.
func TestAShortLineNeedsNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p, all := claiming(t, func(c *RoomConfig) { c.NewUsersPerMinute = 600 }, 0)
		defer g.stop()
		for range 20 {
			all = append(all, g.visitor())
			all[len(all)-1].joins()
			all[len(all)-1].asks("")
		}
		g.room.SetQueueAll(false)
		for n := 0; len(all) > 0; n++ {
			if time.Sleep(time.Second); n > 10 {
				t.Fatalf("%d wait for a token while slots are free", len(all))
			}
			all = slices.DeleteFunc(all, func(v *visitor) bool {
				return v.asks("").State == StateCalled && v.in()
			})
		}
		if p.asked > 0 {
			t.Errorf("%d tokens were asked about", p.asked)
		}
	})
}

// With infinite_queue a wrong token at the turn costs the place, also for older copies of the cookie, and no
// token at all keeps it out until it comes with one.
func TestWhoFailsAtTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p, all := claiming(t, func(c *RoomConfig) { c.Challenge.Endless = true }, 20)
		defer g.stop()
		bad, none, copied := all[0], all[1], *all[0]
		if m := bad.asks("bad"); m.Challenge != nil || m.State != StateQueueAll {
			t.Fatalf("%+v", m)
		}
		if n := g.room.Status().WaitingUsers; n != 19 {
			t.Fatalf("%d hold a place after a wrong token of one of 20", n)
		}
		if m := copied.asks("good0"); m.State != StateQueueAll || p.asked != 1 {
			t.Fatalf("an older cookie is worth another token: %+v, %d questions", m, p.asked)
		}
		g.room.SetQueueAll(false)
		rest, came := slices.Clone(all[2:]), 0
		for n := range 300 {
			time.Sleep(time.Second)
			for _, v := range []*visitor{bad, none, &copied} {
				if m := v.asks(""); m.State == StateCalled || v.in() {
					t.Fatalf("comes in without a token after %d s: %+v", n, m)
				}
			}
			rest = slices.DeleteFunc(rest, func(v *visitor) bool {
				m := v.asks("")
				if m.Challenge != nil {
					m = v.asks("good" + v.addr)
				}
				return m.State == StateCalled && v.in()
			})
			came = 18 - len(rest)
		}
		if came != 18 {
			t.Fatalf("%d of 18 came in", came)
		}
		if m := none.asks("good-late"); m.Notice != "new_challenge" || m.State == StateCalled {
			t.Fatalf("%+v", m)
		}
		for n := 0; ; n++ {
			if m := none.asks("good-last"); m.State == StateCalled && none.in() {
				break
			}
			if time.Sleep(time.Second); n > 60 {
				t.Fatal("a right token lets nobody in")
			}
		}
	})
}

// With on: draw the challenge is asked two minutes before the draw. All who have not solved it have together
// the chances of one network.
func TestAChallengeBeforeTheDraw(t *testing.T) {
	if testing.Short() {
		return // the race detector slows its 360 visitors: make all plays it
	}
	synctest.Test(t, func(t *testing.T) {
		p := &thirdParty{spent: map[string]bool{}}
		c := p.challenge()
		c.On = "draw"
		g := openGate(t, RoomConfig{TotalActiveUsers: 10_000, NewUsersPerMinute: 6, Challenge: c,
			Hold: time.Hour, JoinLimit: JoinLimit{Amount: 60, DrawWeight: 10}})
		defer g.stop()
		if m := g.visitor(); !m.in() {
			t.Fatal("a challenge before the event")
		}
		start := time.Now().Add(5 * time.Minute)
		phase := func(started bool) {
			if err := g.again(func(c *RoomConfig) {
				c.Draw = DrawPlan{Event: "sale", StartsAt: start, Begun: true, Started: started}
				c.Event = Event{Name: "sale", Active: true, Prequeue: !started, Shuffle: true,
					StartsAt: start, EndsAt: start.Add(time.Hour)}
			}); err != nil {
				t.Fatal(err)
			}
		}
		phase(false)
		solves := map[*visitor]bool{}
		var all []*visitor
		for i := range 360 {
			v := g.visitor()
			v.addr = fmt.Sprintf("203.%d.%d.1:1", i/200, i%200) // of as many networks
			solves[v], all = i%6 == 0, append(all, v)
			if m := v.joins(); m != nil {
				t.Fatalf("minutes before the draw: %+v", m)
			}
		}
		every := func(token string) (asked int) {
			for _, v := range all {
				text := ""
				if solves[v] && token != "" {
					text = token + v.addr
				}
				if m := v.asks(text); m.Challenge != nil {
					asked++
				}
			}
			return asked
		}
		if n := every(""); n != 0 {
			t.Fatalf("%d are asked minutes before", n)
		}
		time.Sleep(4 * time.Minute)
		if n := every(""); n != 360 {
			t.Fatalf("%d are asked a minute before", n)
		}
		if n := every("good"); n != 300 || p.asked != 60 {
			t.Fatalf("%d have it, %d questions", n, p.asked)
		}
		phase(true)
		time.Sleep(5 * time.Second)
		if n := every(""); n != 0 {
			t.Errorf("%d are asked after the draw", n)
		}
		early := 0 // expected: 9 of 60; all alike: 50
		for _, v := range all {
			if m := v.asks(""); !solves[v] && m.Position <= 60 {
				early++
			}
		}
		if early > 30 {
			t.Errorf("%d of the first 60 have not solved it", early)
		}
	})
}

// Over two nodes a token counts for the ticket that sent it first. Whichever node it is sent to, the ticket
// comes in once, and the next node knows that it is solved.
func TestATokenAtTheTurnOverTwoNodes(t *testing.T) { virtual.Test(t, testATokenAtTheTurnOverTwoNodes) }

func testATokenAtTheTurnOverTwoNodes(t *testing.T) {
	p := &thirdParty{spent: map[string]bool{}}
	c := p.challenge()
	c.On = "claim"
	w, a, b := twoNodes(t, RoomConfig{Name: "shop", TotalActiveUsers: 1, NewUsersPerMinute: 600, Challenge: c,
		SessionDuration: time.Hour, PollMin: time.Second, PollMax: 2 * time.Second})
	first := a.visitor()
	w.until("one is inside", 15*time.Second, first.in)
	pass, _ := first.named()
	owner, thief := a.visitor(), b.visitor()
	for i, v := range []*visitor{owner, thief} {
		v.joins()
		w.until("it is asked", 15*time.Second, func() bool {
			m := v.asks("")
			return m.Position == int64(i+1) && m.Challenge != nil
		})
	}
	copied := *owner
	for _, g := range []*gate{b, a} {
		if owner.g = g; owner.asks("good").Challenge != nil {
			t.Fatal("a right token does not count")
		}
		if thief.g = g; thief.asks("good").Challenge == nil {
			t.Fatal("the token of another ticket counts")
		}
	}
	if copied.g = a; copied.asks("good").Challenge == nil { // another node asked the third party
		t.Error("a spent token counts at another node")
	}
	if ended, err := a.room.EndSession(t.Context(), pass); !ended || err != nil {
		t.Fatal(ended, err)
	}
	w.until("it is called", 30*time.Second, func() bool { return owner.asks("").State == StateCalled })
	if thief.asks("").State == StateCalled || !owner.in() {
		t.Error("whoever has solved it does not come in, or somebody else does")
	}
}
