package chaos_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/tests/virtual"
)

// inOrder plays a test in a world in which nothing happens by itself.
func inOrder(t *testing.T, datacenters, each int, cfg headgate.RoomConfig, play func(c *chaos)) {
	cfg.NewUsersPerMinute, cfg.SessionDuration = 600, 30*time.Second
	cfg.PollMin, cfg.PollMax = time.Second, 2*time.Second
	virtual.Test(t, func(t *testing.T) {
		c := openChaos(t, 0, rand.New(rand.NewPCG(1, 1)), datacenters, each, cfg)
		defer c.going.Wait()
		defer c.over.Store(true)
		c.awake()
		play(c)
	})
}

// A visitor who waited while others were drawn keeps the place when the room is in order again and
// the data center is lost. A visitor who had been admitted there comes as a newcomer.
func TestAVisitorThatWasNotDrawnKeepsThePlaceWhenTheDatacenterIsLost(t *testing.T) {
	inOrder(t, 2, 1, headgate.RoomConfig{TotalActiveUsers: 1, Method: headgate.MethodRandom}, func(c *chaos) {
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
				if a, _ := p.fetch(lhr, p.jar, request{path: "/", poll: true}); a.State == headgate.StateCalled {
					a, _ = p.fetch(lhr, p.jar, request{path: "/",
						header: map[string][]string{"X-Revoke": {"1"}}})
					inside[p] = inside[p] || a.Inside
				}
			}
			time.Sleep(time.Second)
		}
		c.mu.Lock()
		c.cfg.Method, c.cfg.QueueAll = headgate.MethodFIFO, true
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
						c.t.Fatalf("%s had %d and is told %+v", p.name, had, a)
					}
				}
			}
		}
		if waits < 70 || len(inside) < 4 {
			c.t.Errorf("%d polls of who waited, %d were inside", waits, len(inside))
		}
	})
}

// Seeds 66 and 200061: visitors inside were told to wait at a node that had just started or had
// been suspended, because the host could not write and so did not answer with the counter time.
func TestAPassIsCheckedByTheTimeOfOtherNodes(t *testing.T) {
	inOrder(t, 1, 2, headgate.RoomConfig{TotalActiveUsers: 10}, func(c *chaos) {
		n, p := c.node(c.r, "sjc"), newPerson(c, 0)
		for range 2 { // the cookie comes back
			if a, _ := p.fetch(n, p.jar, request{path: "/"}); !a.Inside {
				c.t.Fatalf("%+v", a)
			}
			time.Sleep(2 * time.Second)
		}
		for _, n := range c.nodes {
			n.store.full.Store(true)
		}
		next := c.start("sjc", "sjc3", c.config)
		next.store.full.Store(true)
		asked := time.Now()
		if a, _ := p.fetch(next, p.jar, request{path: "/"}); !a.Inside {
			c.t.Errorf("is inside, and told %+v after %v", a, time.Since(asked))
		}
		for _, n := range c.nodes {
			n.store.full.Store(false)
		}
		time.Sleep(5 * time.Second)
		if a, _ := p.fetch(next, p.jar, request{path: "/"}); !a.Inside {
			c.t.Errorf("and later %+v", a)
		}
	})
}
