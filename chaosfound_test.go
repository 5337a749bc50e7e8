package headgate

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/tests/virtual"
)

// A visitor who waited while others were drawn keeps the place when the room is in order again and
// the data center is lost. A visitor who had been admitted there comes as a newcomer.
func TestWhoWasNotDrawnKeepsThePlaceWhenTheDatacenterIsLost(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		c := openChaos(t, 0, rand.New(rand.NewPCG(1, 1)), 2, 1, RoomConfig{TotalActiveUsers: 1,
			NewUsersPerMinute: 600, SessionDuration: 30 * time.Second, Method: MethodRandom,
			PollMin: time.Second, PollMax: 2 * time.Second})
		defer c.going.Wait()
		defer c.over.Store(true)
		c.awake()
		lhr := c.node(c.r, "lhr")
		var line []*person
		for i := range 12 {
			p := newPerson(c, i)
			p.site, line = "lhr", append(line, p)
			p.fetch(lhr, p.jar, request{path: "/"})
		}
		inside := map[*person]bool{}
		for end := time.Now().Add(5 * time.Minute); len(inside) < 4 && time.Now().Before(end); {
			for _, p := range line {
				if a, _ := p.fetch(lhr, p.jar, request{path: "/", poll: true}); a.State == StateCalled {
					a, _ = p.fetch(lhr, p.jar, request{path: "/",
						header: map[string][]string{"X-Revoke": {"1"}}})
					inside[p] = inside[p] || a.Inside
				}
			}
			time.Sleep(time.Second)
		}
		c.mu.Lock()
		c.cfg.Method, c.cfg.QueueAll = MethodFIFO, true
		c.mu.Unlock()
		for range 10 {
			time.Sleep(time.Second)
			for _, p := range line {
				if !inside[p] {
					p.fetch(lhr, p.jar, request{path: "/", poll: true})
				}
			}
		}
		c.end(lhr, true)
		sjc, waits := c.node(c.r, "sjc"), 0
		for range 10 {
			time.Sleep(time.Second)
			for _, p := range line {
				if had := p.jar.tok.ID; !inside[p] {
					a, _ := p.fetch(sjc, p.jar, request{path: "/", poll: true})
					if waits++; a.Number != had {
						t.Fatalf("%s had %d and is told %+v", p.name, had, a)
					}
				}
			}
		}
		if waits < 70 || len(inside) < 4 {
			t.Errorf("%d polls of who waited, %d were inside", waits, len(inside))
		}
	})
}

// Seeds 5, 9 and 37: a visitor whose ticket had expired could not join, because the line was full, and
// every answer named the ticket as if its place were kept.
func TestAnExpiredTicketIsNamedInNoAnswer(t *testing.T) {
	cfg := RoomConfig{Name: "shop", TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Hour,
		MaxWaiting: 1, Hold: 20 * time.Second, HoldPhone: 20 * time.Second}
	closed, refuses := cfg, cfg
	closed.Closed = true
	refuses.JoinLimit, refuses.MaxWaiting = JoinLimit{Amount: 3, PrefixV4: 24, Refuse: true}, 10
	rooms := map[State]RoomConfig{StateFull: cfg, StateClosed: closed, StateLimited: refuses}
	for state, last := range rooms {
		bubble(t, string(state), func(t *testing.T) {
			first := last
			first.Closed = false
			g := openGate(t, first)
			inside, late, next := g.visitor(), g.visitor(), g.visitor()
			inside.in()
			late.in()
			had := late.poll()
			time.Sleep(cfg.Hold + 2*time.Second)
			next.in()
			next.poll()
			if err := g.room.Reconfigure(t.Context(), last); err != nil {
				t.Fatal(err)
			}
			if p := late.poll(); p.State != state || p.Ticket != "" || p.Notice != "" || had.Ticket == "" {
				t.Errorf("it had %+v and is told %+v", had, p)
			}
		})
	}
	bubble(t, "it joins when it can", func(t *testing.T) {
		g := openGate(t, cfg)
		inside, late := g.visitor(), g.visitor()
		inside.in()
		late.in()
		had := late.poll()
		time.Sleep(cfg.Hold + 2*time.Second)
		p := late.poll()
		if p.State != StateWaiting || p.Ticket == had.Ticket || p.Ticket == "" || p.Notice != "ticket_over" {
			t.Errorf("it had %+v and is told %+v", had, p)
		}
	})
}

// Seed 9: a called visitor came in, an unknown visitor had its slot, and the host was killed while
// the claim waited for the next slot. The place was lost: the record had neither it nor the claim.
func TestAPlaceIsKeptWhileItsClaimWaits(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		c := openChaos(t, 0, rand.New(rand.NewPCG(1, 1)), 1, 0, RoomConfig{TotalActiveUsers: 1,
			NewUsersPerMinute: 600, SessionDuration: 30 * time.Second,
			PollMin: time.Second, PollMax: 2 * time.Second})
		defer c.going.Wait()
		defer c.over.Store(true)
		c.awake()
		n, inside, next := c.node(c.r, "sjc"), newPerson(c, 0), newPerson(c, 1)
		for _, p := range []*person{inside, next} {
			p.fetch(n, p.jar, request{path: "/"})
		}
		a := chaosAnswer{}
		for end := time.Now().Add(2 * time.Minute); a.State != StateCalled && time.Now().Before(end); {
			time.Sleep(time.Second)
			a, _ = next.fetch(n, next.jar, request{path: "/", poll: true})
		}
		_, now, _, _ := n.room.worker.clock.Bounds()
		if _, err := n.room.counter.Sync(t.Context(), &slot.Sync{Loan: 5, Borrower: "another node",
			Seq: slot.Seq{N: 1}, Items: []slot.Item{{Op: slot.Renew, ID: 1 << 63,
				From: now.Add(20 * time.Second), At: now}}}); err != nil {
			t.Fatal(err)
		}
		number := next.jar.tok.ID
		if a, _ = next.fetch(n, next.jar, request{path: "/"}); a.Inside || number == 0 {
			t.Fatalf("two are inside, or none was called: ticket %d", number)
		}
		c.end(n, true)
		n = c.start("sjc", "sjc1", c.config)
		c.awake()
		if a, _ = next.fetch(n, next.jar, request{path: "/", poll: true}); a.Number != number {
			t.Errorf("the place of %d is lost: told %+v", number, a)
		}
	})
}
