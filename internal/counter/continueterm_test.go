package counter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// A cut is a data center below Anywhere, with a worker. The test itself restores its link.
type cut struct {
	t     *testing.T
	root  *Counter
	cfg   Config
	host  *Counter
	share *slot.Share
	opens slot.SessionID
	disk  *refusing
	dead  time.Duration // how long nobody hosts the room
}

func newCut(t *testing.T) *cut {
	start, disk := time.Now(), &refusing{}
	c := &cut{t: t, disk: disk, dead: 3 * time.Second}
	c.cfg = brokenConfig("shop", disk, brokenSites("lhr", disk, "sjc"), start, time.Minute)
	c.root = brokenOpen(t, brokenConfig("@shop", &store.Memory{},
		brokenSites("sjc", &store.Memory{}, "lhr"), start, time.Minute))
	c.share = slot.NewShare(slot.Params{}, "w", 7, c.cfg.Active, c.cfg.New)
	return c
}

// next starts the next host. If told is true, it knows the last state of the previous host.
func (c *cut) next(name string, told bool) {
	c.t.Helper()
	c.cfg.Host, c.cfg.Previous = name, PreviousHost{}
	if c.host != nil && told {
		st := c.host.State(0, 0)
		c.cfg.Previous = PreviousHost{Term: st.Term, Leave: st.Leave, Estimate: c.share.Estimate()}
		c.disk.down.Store(true)
		time.Sleep(c.dead)
		c.disk.down.Store(false) // for the next host, which is faster
	}
	c.host = brokenOpen(c.t, c.cfg)
}

// up sends one request to Anywhere.
func (c *cut) up() {
	c.t.Helper()
	c.host.mu.Lock()
	c.host.up.at, c.host.up.tokens = 0, upBurst
	c.host.up.ahead = 2 // a visitor has arrived
	x, _ := c.host.upSync(c.cfg.Boot())
	c.host.mu.Unlock()
	a, err := brokenSync(c.t, c.root, *x)
	if err != nil {
		c.t.Fatal(err)
	}
	c.host.mu.Lock()
	c.host.upHeard(a, c.cfg.Boot())
	c.host.mu.Unlock()
	c.host.kick()
	time.Sleep(time.Second)
}

// sync is a Sync of the worker that needs some slots. It reports whether there was an answer.
func (c *cut) sync(need int64, items ...slot.Item) (a slot.Answer, ok bool) {
	for _, it := range items {
		c.share.AddItem(it)
	}
	if lo, ok := c.share.Lo(c.cfg.Boot()); ok {
		c.share.Settle(lo)
	}
	for range 2 { // an unanswered Sync is repeated first
		x := c.share.InFlight()
		asked := x == nil
		if asked {
			x = c.share.Sync(c.cfg.Boot(), need, 0)
		}
		var err error
		a, err = brokenSync(c.t, c.host, *x)
		if ok = err == nil && c.share.Receive(c.cfg.Boot(), &a); !ok || asked {
			break
		}
	}
	return a, ok
}

// open admits a newcomer on a slot of the share. It reports whether there was a slot.
func (c *cut) open() (id slot.SessionID, end slot.Time, ok bool) {
	c.opens++
	s, ok := c.share.Open(c.cfg.Boot(), c.opens, 0, 0)
	return c.opens, s.End, ok
}

// The host of a data center that is cut off dies, more than once. The next host continues with the
// loan until the end of the term that Anywhere gave, and no longer. Visitors inside stay inside.
func TestTheNextHostGoesOnWhileAnywhereIsOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCut(t)
		c.next("h1", true)
		began := time.Now()
		for range 4 {
			c.up()
		}
		if _, ok := c.sync(2); !ok {
			t.Fatal("no answer of a host that knows Anywhere")
		}
		id, end, ok := c.open()
		if !ok {
			t.Fatal("nothing is lent")
		}
		for _, host := range []string{"h2", "h3"} {
			c.next(host, true)
			if _, ok := c.sync(1); ok {
				t.Errorf("%s has not waited for Anywhere", host)
			}
			time.Sleep(goOnAfter)
			a, ok := c.sync(1, slot.Item{Op: slot.Renew, ID: id, From: end, At: end.Add(-time.Minute / 2)})
			if !ok {
				t.Fatalf("%s says nothing, and the term runs for %v more", host, 10*time.Minute-time.Since(began))
			}
			for _, r := range a.Results {
				if r.ID == id && r.End < end {
					t.Errorf("%s: whoever was inside is inside no more", host)
				}
			}
			time.Sleep(headPoll) // visitors in the line come first
			a, _ = c.sync(1)
			if _, _, ok := c.open(); !ok {
				t.Errorf("%s lends nothing of what it has: %+v held %d", host, a, c.share.Held())
			}
		}
		time.Sleep(10*time.Minute - time.Since(began))
		if _, ok := c.sync(1); ok || !c.host.pool.IsCold(c.cfg.Boot()) {
			t.Error("the term of Anywhere is over, and the host goes on")
		}
	})
}

// A session ends while nobody hosts the room. Its visitor requested a page just before, and the
// worker could not report that. The visitor is still inside.
func TestWhoAskedInTimeStaysInsideAsTheNextHostGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCut(t)
		c.next("h1", true)
		for range 4 {
			c.up()
		}
		c.sync(1)
		id, end, _ := c.open()
		c.sync(0)
		for {
			time.Sleep(time.Second)
			c.sync(0)
			if lo, _ := c.share.Lo(c.cfg.Boot()); lo > end.Add(-2*time.Second) {
				break
			}
		}
		seen, _ := c.share.Lo(c.cfg.Boot())
		c.dead = 7 * time.Second
		c.next("h2", true)
		time.Sleep(goOnAfter + 10*time.Millisecond)
		c.sync(0) // the Syncs that were in flight
		a, ok := c.sync(0, slot.Item{Op: slot.Renew, ID: id, From: end, At: seen})
		if !ok {
			t.Fatal("it does not go on")
		}
		for _, r := range a.Results {
			if r.ID == id && r.End <= end {
				t.Errorf("the visit is over: its end is %v, and was %v, at %v", r.End, end, a.Time)
			}
		}
		if len(a.Results) == 0 {
			t.Error("nothing is said of the visit")
		}
	})
}

// A host must not continue with a term unless it is certainly the term of this loan and of the
// previous host.
func TestTheNextHostIsColdIfItDoesNotKnow(t *testing.T) {
	for name, change := range map[string]func(b *PreviousHost){
		"nothing is known":   func(b *PreviousHost) { *b = PreviousHost{} },
		"another epoch":      func(b *PreviousHost) { b.Term.Epoch--; b.Estimate.Epoch-- },
		"another loan":       func(b *PreviousHost) { b.Term.Loan++ },
		"it is over":         func(b *PreviousHost) { b.Term.Until = 1 },
		"it paused too long": func(b *PreviousHost) { b.Term.Paused = time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCut(t)
				c.next("h1", true)
				for range 4 {
					c.up()
				}
				c.sync(1)
				st := c.host.State(0, 0)
				c.cfg.Host = "h2"
				c.cfg.Previous = PreviousHost{Term: st.Term, Estimate: c.share.Estimate()}
				change(&c.cfg.Previous)
				time.Sleep(3 * time.Second)
				c.host = brokenOpen(t, c.cfg)
				time.Sleep(3 * time.Second)
				if _, ok := c.sync(1); ok {
					t.Error("it says something")
				}
			})
		})
	}
}
