package headgate

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

// Who waited while others were drawn keeps the place when the room is in order again and the data
// centre is lost; who had been let in there comes as a newcomer.
func TestWhoWasNotDrawnKeepsThePlaceWhenTheDataCentreIsLost(t *testing.T) {
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
