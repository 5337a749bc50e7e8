package counter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/slot"
)

// What Anywhere lends to those who are first was spaced there. Spaced here once more, eight
// of them would be called within 0.8 s, after others who came later.
func TestWhatIsLentToThoseWhoWaitIsSpacedOnce(t *testing.T) {
	for _, asked := range []bool{true, false} { // whether Anywhere keeps the order
		synctest.Test(t, func(t *testing.T) {
			disk := &store.Memory{}
			cfg := brokenConfig("shop", disk, brokenSites("lhr", disk, "sjc"), time.Now(), time.Minute)
			cfg.Active.N, cfg.New.N, cfg.Spread = 100, 600, true
			c, err := Open(t.Context(), cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			write := func() {
				time.Sleep(5 * time.Millisecond)
				if _, err := c.round(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			granted := int64(0)
			up := func(n int64) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.up.at = 0
				x, _ := c.upSync(c.cfg.Boot())
				if x == nil {
					t.Fatal("nothing is asked of Anywhere")
				}
				granted += n
				c.upHeard(slot.Answer{
					Name: slot.WriteName{Life: 1, Epoch: 1, Writes: 1}, Loan: x.Loan, Seq: x.Seq,
					Granted: granted, Term: time.Minute, Time: 1, GiveBack: asked && n > 0,
				}, c.cfg.Boot())
			}
			up(0) // Anywhere's time is known
			c.Hold(true)
			write()
			var places []Place
			for range 10 {
				places = append(places, join(t, c))
				write()
			}
			c.Hold(false)
			for range 3 { // nobody is called just after a takeover
				time.Sleep(time.Second)
				write()
			}
			for i := range places {
				if _, err := c.Poll(t.Context(), places[i].Life, places[i].Number, 0); err != nil {
					t.Fatal(err)
				}
			}
			up(8)
			write()
			write()
			told := 0
			for i := range places {
				p, err := c.Poll(t.Context(), places[i].Life, places[i].Number, 0)
				if err != nil {
					t.Fatal(err)
				}
				if p.Status == slot.TicketCalled {
					told++
				}
			}
			if asked && told != 8 || !asked && told > 2 {
				t.Errorf("asked for what is unused: %v: %d of 8 who have a slot are told so at once, "+
					"want all when asked, else one or two", asked, told)
			}
		})
	}
}
