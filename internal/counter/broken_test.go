package counter

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/status"
)

func brokenSites(own string, s store.Store, names ...string) *Datacenters {
	x := NewDatacenters(DatacentersConfig{
		Own: own, Home: "sjc", Names: names, Store: s, Log: slog.New(slog.DiscardHandler),
	})
	x.sure = true // there are no links here for requests
	return x
}

func brokenConfig(room string, s store.Store, sites *Datacenters, start time.Time,
	session time.Duration) Config {
	cfg := Config{
		Room: room, Host: "h", Store: s, Datacenters: sites, Settings: Settings{
			Active: slot.Limit{Kind: slot.AtOnce, N: 10, Per: session},
			New:    slot.Limit{Kind: slot.PerWindow, N: 1000, Per: time.Minute},
			Line: LineConfig{
				MaxWaiting: 1000, PollMin: time.Second, PollMax: 30 * time.Second,
				Hold: 15 * time.Minute,
			},
		},
		Boot: func() time.Duration { return time.Since(start) + time.Hour },
		Log:  slog.New(slog.DiscardHandler),
	}
	if room[0] == '@' {
		cfg.Params = slot.Params{Counters: true}
	}
	return cfg
}

func brokenOpen(t *testing.T, cfg Config) *Counter {
	t.Helper()
	c, err := Open(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	return c
}

func brokenSync(t *testing.T, c *Counter, x slot.Sync) (slot.Answer, error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
	defer stop()
	return c.Sync(ctx, &x)
}

// refusing is a store that rejects writes while down is set.
type refusing struct {
	store.Memory
	down atomic.Bool
}

func (s *refusing) CompareAndSwap(ctx context.Context, key string, rev uint64, v []byte) (uint64,
	error) {
	if s.down.Load() {
		return 0, errors.New("no leader")
	}
	return s.Memory.CompareAndSwap(ctx, key, rev, v)
}

// The store elects a leader when the operator runs the move. The command fails, but the record
// moves a moment later, while its host would continue to lend.
func TestBrokenAMoveThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &refusing{}
		sites := brokenSites("sjc", disk, "lhr", "del")
		cfg := brokenConfig("@shop", disk, sites, time.Now(), time.Minute)
		c := brokenOpen(t, cfg)
		if _, err := brokenSync(t, c, slot.Sync{Loan: 11, Borrower: "sjc", Seq: slot.Seq{Epoch: 1,
			N: 1}, Need: 1}); err != nil {
			t.Fatal(err)
		}
		disk.down.Store(true)
		if b := c.answerMove(t.Context(), []byte("lhr")); b != nil {
			t.Fatal("moved without a store")
		}
		time.Sleep(time.Second)
		disk.down.Store(false)
		time.Sleep(10 * time.Second)
		left := sites.answerLeft(t.Context(), []byte("shop"))
		if left == nil {
			return // it has not moved
		}
		a, err := brokenSync(t, c, slot.Sync{Loan: 12, Borrower: "del", Seq: slot.Seq{Epoch: 1,
			N: 1}, Need: 9})
		if err == nil && a.Granted > 0 {
			t.Errorf("the command failed, the record has left for lhr, and its host here has lent %d more", a.Granted)
		}
		// lhr takes the record that has left and has no other knowledge of it.
		there := &store.Memory{}
		lhr := brokenSites("lhr", there, "sjc", "del")
		if err := lhr.take(t.Context(), taking{Room: "shop", Record: left}); err != nil {
			t.Fatal(err)
		}
		next := brokenOpen(t, brokenConfig("@shop", there, lhr, time.Now(), time.Minute))
		time.Sleep(3 * time.Second)
		b, err := brokenSync(t, next, slot.Sync{Loan: 13, Borrower: "lhr", Seq: slot.Seq{Epoch: 1,
			N: 1}, Need: 9})
		if err == nil && 1+a.Granted+b.Granted > 10 {
			t.Errorf("both lend: %d slots of 10", 1+a.Granted+b.Granted)
		}
	})
}

// lhr was down and has been back for long; now del is down.
func TestBrokenDeclaredOffOnceIsOffForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &store.Memory{}
		sites := brokenSites("sjc", disk, "lhr", "del")
		c := brokenOpen(t, brokenConfig("@shop", disk, sites, time.Now(), 5*time.Second))
		n := map[slot.LoanID]uint64{}
		say := func(loan slot.LoanID, site string, granted, need int64) slot.Answer {
			n[loan]++
			a, err := brokenSync(t, c, slot.Sync{Loan: loan, Borrower: site,
				Seq:     slot.Seq{Epoch: 1, N: n[loan]},
				Granted: granted, Need: need})
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		say(11, "lhr", 0, 1)
		if string(c.answerOff(t.Context(), []byte("lhr"))[:3]) != "ok " {
			t.Fatal("not off")
		}
		time.Sleep(10 * time.Minute)
		lhr := say(21, "lhr", 0, 9) // it is back
		for lhr.Granted < 9 {
			lhr = say(21, "lhr", lhr.Granted, 9)
		}
		c.answerOff(t.Context(), []byte("del"))
		time.Sleep(9 * time.Second) // less than the time between two Syncs of a quiet counter
		sjc := say(31, "sjc", 0, 10)
		if a := say(21, "lhr", lhr.Granted, 0); a.Over || sjc.Granted > 1 {
			t.Errorf("lhr is there, and its loan is over (%v) as del is declared off; others have %d beside its %d, limit 10",
				a.Over, sjc.Granted, lhr.Granted)
		}
	})
}

// Two move commands at two data centers that do not receive each other's messages.
func TestBrokenTwoHomes(t *testing.T) {
	lhr := brokenSites("lhr", &store.Memory{}, "sjc", "del")
	del := brokenSites("del", &store.Memory{}, "sjc", "lhr")
	lhr.learnHome(AnywhereHome{Datacenter: "lhr", Moves: 1})
	del.learnHome(AnywhereHome{Datacenter: "del", Moves: 1})
	for range 3 { // snapshots
		lhr.learnHome(del.HomeNow())
		del.learnHome(lhr.HomeNow())
	}
	if lhr.Home() != del.Home() {
		t.Errorf("for ever lhr says that Anywhere lives at %s, del at %s", lhr.Home(), del.Home())
	}
}

// A data center is cut off for longer than its loan lasts while visitors wait in its line; and
// again.
func TestBrokenPlacesAfterALongCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		root := brokenOpen(t, brokenConfig("@shop", &store.Memory{},
			brokenSites("sjc", &store.Memory{}, "lhr"), start, time.Minute))
		disk := &store.Memory{}
		cfg := brokenConfig("shop", disk, brokenSites("lhr", disk, "sjc"), start, time.Minute)
		c, err := Open(t.Context(), cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		write := func() {
			if _, err := c.round(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		up := func() { // one request to Anywhere and its answer
			c.mu.Lock()
			c.up.at, c.up.ahead = 0, 2 // a visitor has arrived
			x, _ := c.upSync(c.cfg.Boot())
			c.mu.Unlock()
			if x != nil {
				if a, err := brokenSync(t, root, *x); err == nil {
					c.mu.Lock()
					c.upHeard(a, c.cfg.Boot())
					c.mu.Unlock()
				}
			}
			write()
		}
		var places []PlaceInfo
		poll := func(p *PlaceInfo) slot.TicketStatus {
			ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
			defer stop()
			got, _ := c.Poll(ctx, p.Life, p.Number, 0)
			return got.Status
		}
		for cut := range 2 {
			c.Hold(false)
			for range 5 {
				up()
			}
			c.Hold(true) // they wait
			write()
			places = append(places, join(t, c))
			write()
			for range 12 * 60 { // 12 minutes: the term and one session
				time.Sleep(time.Second)
				for i := range places {
					poll(&places[i]) // it polls on time
				}
				write()
			}
			for range 3 {
				up()
			}
			for i := range places {
				if got := poll(&places[i]); got != slot.TicketWaiting && got != slot.TicketLate {
					t.Errorf("cut %d: number %d has lost its place as the link was mended: status %v",
						cut+1, places[i].Number, got)
				}
			}
		}
	})
}

// A host has just taken over and has not received a snapshot yet from a healthy data center.
func TestBrokenSilentFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store.Memory{}
		c, err := Open(t.Context(), brokenConfig("shop", s, brokenSites("sjc", s, "lhr"),
			time.Now(), time.Minute), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, silent := c.Reachability("lhr"); silent {
			t.Error("lhr counts as silent for long, and this host has been there for none")
		}
	})
}

// A counter whose own term has ended or is unknown does not know the time, so its snapshot must not
// show it.
func TestBrokenAColdHostShowsTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store.Memory{}
		start := time.Now()
		lhr, err := Open(t.Context(), brokenConfig("shop", s, brokenSites("lhr", s, "sjc"), start,
			time.Minute), nil)
		if err != nil {
			t.Fatal(err)
		}
		if !lhr.pool.IsCold(lhr.cfg.Boot()) {
			t.Fatal("not cold")
		}
		s2 := &store.Memory{}
		sjc, err := Open(t.Context(), brokenConfig("shop", s2, brokenSites("sjc", s2, "lhr"),
			start, time.Minute), nil)
		if err != nil {
			t.Fatal(err)
		}
		var of uint64
		var got slot.Time
		for range 3 {
			g := greeting{Snapshot: lhr.picture(), Of: of, Got: got}
			b, _ := json.Marshal(&g)
			var a greeting
			if err := json.Unmarshal(sjc.answerPicture(t.Context(), b), &a); err != nil {
				t.Fatal(err)
			}
			of, got = a.Stamp, lhr.tau()
			time.Sleep(time.Second)
		}
		if x := sjc.siteTime("lhr"); x.Known {
			t.Errorf("a cold host's time is believed elsewhere: %+v", x)
		}
	})
}

func brokenDesk(t *testing.T) (*Core, time.Duration) {
	cfg := brokenConfig("shop", nil, nil, time.Now(), time.Minute)
	cfg.Boot = func() time.Duration { return time.Hour }
	cfg.Active.N = 2
	d := NewCore(cfg, slot.NewRecord(1, nil, cfg.Active, cfg.New), true, func() {})
	clk := time.Hour
	d.TakeOver(clk)
	if err := d.Begin(clk); err != nil {
		t.Fatal(err)
	}
	return d, clk
}

func (d *Core) brokenWrite(clk time.Duration) {
	if _, wr := d.Build(clk, true); wr != nil {
		d.Stored(clk)
	}
	d.CallNext(clk)
}

// The ticket of an unreachable data center is copied to friends.
func TestBrokenOneTicketOfALostDatacenterLetsManyIn(t *testing.T) {
	d, clk := brokenDesk(t)
	d.brokenWrite(clk)
	clk += 3 * time.Second
	const id = RoamerBit | 42
	got := 0
	for range 5 {
		d.brokenWrite(clk)
		p := d.roam(id, 0, clk) // came is unknown at a root: only the number counts
		for i := 0; i < 40 && p.Status != slot.TicketCalled; i++ {
			clk += time.Second
			d.brokenWrite(clk)
			p = d.roam(id, 0, clk)
		}
		if p.Status == slot.TicketCalled && d.claim(id, clk, 0, false) {
			d.brokenWrite(clk)
			if c, ok := d.pool.ClaimedBefore(id); ok && c > 0 {
				got++
			}
		}
		clk += 35 * time.Second
	}
	if got > 1 {
		t.Errorf("one ticket has let %d in, each before all who wait", got)
	}
}

// The record of Anywhere is older than the record that a counter has seen.
func TestBrokenAnywhereRolledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &store.Memory{}
		c := brokenOpen(t, brokenConfig("@shop", disk, brokenSites("sjc", disk, "lhr"), time.Now(),
			time.Minute))
		life := lifeOf(c)
		for n := range uint64(20) {
			_, err := brokenSync(t, c, slot.Sync{Loan: 11, Borrower: "lhr", Seq: slot.Seq{Epoch: 1,
				N: 9 + n}, Granted: 8,
				Seen: slot.WriteName{Life: life, Epoch: 1 << 40, Writes: 99}})
			if err == nil {
				return
			}
			time.Sleep(time.Minute)
		}
		c.mu.Lock()
		quiet := c.pool.Quiet(c.cfg.Boot())
		c.mu.Unlock()
		a, err := brokenSync(t, c, slot.Sync{Loan: 12, Borrower: "sjc", Seq: slot.Seq{Epoch: 1,
			N: 1}, Need: 9})
		t.Errorf("lhr, which holds 8 of 10, has had no answer for 20 minutes, quarantine %v, and another got %d (%v)",
			quiet, a.Granted, err)
	})
}

// A record from another data center is checked before it is stored.
func TestBrokenTakeOfANonsenseRecord(t *testing.T) {
	for name, r := range map[string]*slot.Record{
		"one limit": slot.NewRecord(9, nil, slot.Limit{Kind: slot.AtOnce, N: 10, Per: time.Minute}),
		"borrows": slot.NewRecord(9, &slot.ParentLoan{Loan: 3}, slot.Limit{Kind: slot.AtOnce, N: 10,
			Per: time.Minute}, slot.Limit{Kind: slot.PerWindow, N: 10, Per: time.Minute}),
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if x := recover(); x != nil {
					t.Errorf("the process ends: %v", x)
				}
			}()
			s := &store.Memory{}
			sites := brokenSites("lhr", s, "sjc")
			r.MovedTo = "lhr"
			b, err := r.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			msg, _ := json.Marshal(taking{Room: "shop", Record: b})
			if got := sites.answerTake(t.Context(), msg); string(got) != "ok" {
				return
			}
			c, err := Open(t.Context(), brokenConfig("@shop", s, sites, time.Now(), time.Minute),
				nil)
			if err != nil || c.Damaged() != nil {
				t.Errorf("kept, and Anywhere cannot be hosted: %v", err)
			}
		})
	}
}

// With 32 other data centers, the most that a configuration may have, the snapshot of the home is
// complete.
func TestBrokenAPictureOfManyDatacenters(t *testing.T) {
	p := Snapshot{Datacenter: "site-00", Home: AnywhereHome{"site-00", 3}, Life: 1 << 63, Epoch: 1 << 34,
		Time:    1 << 52,
		Minutes: []int64{10000, 10000}, Seen: slot.WriteName{Life: 1 << 63, Epoch: 1 << 34,
			Writes: 1 << 34}, Lends: &status.AnywhereTotals{Limit: 1 << 40, Free: 1 << 40, Presumed: 1 << 40}}
	b, err := json.Marshal(&greeting{Snapshot: p, Stamp: 1 << 20})
	if err != nil || len(b) > pictureMost {
		t.Errorf("%d bytes, most %d: the home counts as out of reach everywhere", len(b),
			pictureMost)
	}
}
