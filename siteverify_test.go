package headgate

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
