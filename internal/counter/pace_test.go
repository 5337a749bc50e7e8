package counter

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// Anywhere has already spaced the slots that it lends to the first visitors. If they were spaced
// here again, the calls of eight visitors would take 0.8 s, and others that came later would be
// called before them.
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
			up(0) // Anywhere's time is known now
			c.Hold(true)
			write()
			var places []PlaceInfo
			for range 10 {
				places = append(places, join(t, c))
				write()
			}
			c.Hold(false)
			for range 3 { // no calls just after a takeover
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

// Visitors answer even calls in any order within a second or two. No second admits more than its
// share, and the wait of called visitors for their second does not grow. Before, each visitor that
// came ahead of an earlier call wasted a place in some second, and after a minute calls lapsed
// before their visitors could come in.
func TestTheDoorKeepsUpWithTheCalls(t *testing.T) {
	for _, perMinute := range []int64{60, 600, 3000, 60_000} {
		r := rand.New(rand.NewPCG(1, uint64(perMinute)))
		p := newPace(Settings{Spread: true, New: slot.Limit{N: perMinute, Per: time.Minute}})
		type visitor struct{ called, asks time.Duration }
		var all []visitor
		for i := range 20_000 {
			called := time.Duration(i) * p.step
			all = append(all, visitor{called, called + time.Duration(r.Int64N(int64(time.Second)))})
		}
		order := slices.Clone(all)
		slices.SortFunc(order, func(a, b visitor) int { return cmp.Compare(a.asks, b.asks) })
		var in []time.Duration
		asked := map[time.Duration]bool{}
		worst := time.Duration(0)
		for _, v := range order {
			ahead := 0
			for c := v.called - p.step; c >= 0 && c > v.asks-aheadWithin && ahead < aheadMost; c -= p.step {
				if !asked[c] {
					ahead++
				}
			}
			asked[v.called] = true
			at := p.admit(v.asks, ahead)
			in, worst = append(in, at), max(worst, at-v.asks)
		}
		slices.Sort(in)
		share := int(perMinute/60) + 1
		for i := share; i < len(in); i++ {
			if in[i]-in[i-share] < time.Second {
				t.Fatalf("%d a minute: more than %d within a second", perMinute, share)
			}
		}
		if worst > 2*time.Second {
			t.Errorf("%d a minute: somebody who is called waits for %v before the door", perMinute, worst)
		}
	}
}

// While the limit is found, it changes every few seconds. No second admits more than the share that is in
// force then, whatever was admitted before the change, and calls go on in the new step.
func TestAChangedLimitRemembersItsSecond(t *testing.T) {
	r := rand.New(rand.NewPCG(24, 4))
	set := Settings{Spread: true, New: slot.Limit{N: 600, Per: time.Minute}}
	p := newPace(set)
	var in []time.Duration
	last := time.Duration(0)
	for clk := time.Hour; clk < time.Hour+5*time.Minute; {
		clk += time.Duration(r.Int64N(int64(50 * time.Millisecond)))
		if r.IntN(10) == 0 {
			set.New.N = 30 + r.Int64N(1200)
			if p = p.follow(set); last > 0 && p.at != last+p.step {
				t.Fatalf("at %v: the next call is due %v after the last, want %v", clk, p.at-last, p.step)
			}
		}
		share := len(p.ring)
		if at := p.admit(clk, 0); at == clk {
			in = append(in, at)
			if n := len(in) - 1 - share; n >= 0 && in[len(in)-1]-in[n] < time.Second {
				t.Fatalf("at %v: more than %d within a second", clk, share)
			}
			p.called(clk)
			last = p.at - p.step
		} else {
			clk = at
			in = append(in, at)
		}
	}
	if len(in) < 1000 {
		t.Errorf("only %d came in", len(in))
	}
}

// The settings of a running room keep the second too, also when nothing of them is about the pace.
func TestSettingsRememberTheSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := laned(t, "a", &store.Memory{}, func(c *Config) { c.New.N = 60 })
		c.mu.Lock()
		for range len(c.pace.ring) {
			c.pace.admit(c.cfg.Boot(), 0)
		}
		s := c.cfg.Settings
		c.mu.Unlock()
		for _, n := range []int64{60, 59, 70, 30} {
			s.New.N = n
			if err := c.Reconfigure(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if now := c.cfg.Boot(); c.pace.admit(now, 0) <= now {
			t.Error("more than the share of a second are admitted after a change")
		}
	})
}

// A called visitor that has to wait for its second comes when it was told to. Its slot is reserved
// until then, and it was not told to come in earlier.
func TestWhoWaitsBeforeTheDoorKeepsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := laned(t, "a", &store.Memory{}, func(c *Config) { c.New.N = 60 })
		c.Hold(true)
		n := joins(t, c, 0, 1)[0]
		c.Hold(false)
		time.Sleep(2 * time.Second) // it is called now
		c.mu.Lock()
		for range 15 { // others have come in, or will
			c.pace.admit(c.cfg.Boot(), 0)
		}
		c.mu.Unlock()
		for k := 0; ; k++ {
			p, err := c.Poll(t.Context(), lifeOf(c), n, 0)
			if err != nil || k > 3 {
				t.Fatal(k, err)
			}
			if p.Status == slot.TicketCalled {
				break
			}
			if !p.Called || k == 0 && p.PollAfter < 6*time.Second {
				t.Fatalf("poll %d: %+v", k, p)
			}
			time.Sleep(p.PollAfter)
		}
		if got := c.State(0, 0).Totals; got.Lapsed > 0 {
			t.Errorf("the call has lapsed: %+v", got)
		}
	})
}
