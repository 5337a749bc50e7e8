package counter

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// A worker that lies to the host does not create slots. The room has 10, an honest worker holds 7,
// and the next borrower gets at most the other 3.
func TestLyingWorkerMakesNoSlots(t *testing.T) {
	const most, least = math.MaxInt64, math.MinInt64
	lies := map[string]func(x *slot.Sync){
		"needs less than nothing":   func(x *slot.Sync) { x.Need = -100 },
		"wants less than nothing":   func(x *slot.Sync) { x.Need, x.Want = 1, -100 },
		"needs all there is":        func(x *slot.Sync) { x.Need, x.Want = most, most },
		"returns what it never had": func(x *slot.Sync) { x.Returned = slot.PerLimit{100, 100} },
		"returns less than nothing": func(x *slot.Sync) { x.Returned = slot.PerLimit{least, least} },
		"was granted more": func(x *slot.Sync) {
			x.Granted, x.Returned = 100, slot.PerLimit{100, 100}
		},
		"used more than it has":    func(x *slot.Sync) { x.Opened = most },
		"used less than nothing":   func(x *slot.Sync) { x.Opened = -100 },
		"has seen the end of time": func(x *slot.Sync) { x.Settled = slot.Never },
		"is the presumed loan":     func(x *slot.Sync) { x.Loan = 1 },
		"is no loan":               func(x *slot.Sync) { x.Loan = 0 },
		"has the name of another":  func(x *slot.Sync) { x.Borrower, x.Returned = "honest", slot.PerLimit{7, 7} },
		"renews visits that nobody has": func(x *slot.Sync) {
			for id := range slot.SessionID(20) {
				x.Items = append(x.Items, slot.Item{Op: slot.Renew, ID: id + 1000, From: slot.Never,
					At: slot.Never})
			}
		},
	}
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := brokenOpen(t, brokenConfig("shop", &store.Memory{}, nil, time.Now(), time.Minute))
				const honest = slot.LoanID(7)
				first, err := brokenSync(t, c, slot.Sync{Loan: honest, Borrower: "honest",
					Seq: slot.Seq{N: 1}, Need: 7})
				if err != nil || first.Granted != 7 {
					t.Fatalf("%+v %v", first, err)
				}
				opened := slot.Sync{Loan: honest, Borrower: "honest", Seq: slot.Seq{N: 2}, Granted: 7,
					Opened: 3, Seen: first.Name, Settled: first.Time}
				// three visitors are inside, and the worker holds four slots
				for id := range slot.SessionID(3) {
					opened.Items = append(opened.Items, slot.Item{Op: slot.Open, ID: id + 1, Use: first.Time,
						End: first.Time.Add(time.Minute)})
				}
				if _, err := brokenSync(t, c, opened); err != nil {
					t.Fatal(err)
				}
				for n := range uint64(5) {
					x := slot.Sync{Loan: 99, Borrower: "liar", Seq: slot.Seq{N: n + 1}}
					lie(&x)
					b, err := x.AppendBinary(nil)
					if err != nil {
						t.Fatal(err)
					}
					c.answerSync(t.Context(), b)
				}
				got, err := brokenSync(t, c, slot.Sync{Loan: 8, Borrower: "next", Seq: slot.Seq{N: 1},
					Need: 50})
				if err != nil || got.Granted > 3 {
					t.Errorf("the next one was lent %d of the 3 that are free: %v", got.Granted, err)
				}
			})
		})
	}
}

// A worker that reports absurd times does not hold a slot for ever, and does not block the epochs.
func TestAbsurdTimesOfAWorkerPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := brokenOpen(t, brokenConfig("shop", &store.Memory{}, nil, time.Now(), time.Minute))
		first, err := brokenSync(t, c, slot.Sync{Loan: 99, Borrower: "liar", Seq: slot.Seq{N: 1}, Need: 10})
		if err != nil || first.Granted != 10 {
			t.Fatalf("%+v %v", first, err)
		}
		x := slot.Sync{Loan: 99, Borrower: "liar", Seq: slot.Seq{N: 2}, Granted: 10, Opened: 10,
			Seen: first.Name}
		for id := range slot.SessionID(10) {
			x.Items = append(x.Items, slot.Item{Op: slot.Open, ID: id + 1, Use: slot.Never, End: slot.Never})
		}
		b, err := x.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.answerSync(t.Context(), b) == nil {
			t.Error("it was not answered")
		}
		x.Seen.Epoch, x.Seq.N = math.MaxUint64, 3
		if b, err = x.AppendBinary(nil); err != nil {
			t.Fatal(err)
		}
		if c.answerSync(t.Context(), b) != nil {
			t.Error("an absurd epoch was answered")
		}
		time.Sleep(3 * time.Hour) // in virtual time
		got, err := brokenSync(t, c, slot.Sync{Loan: 8, Borrower: "next", Seq: slot.Seq{N: 1}, Need: 10})
		if err != nil || got.Granted != 10 || got.Name.Epoch > first.Name.Epoch+1<<40 {
			t.Errorf("hours later the next one was lent %d, %+v: %v", got.Granted, got.Name, err)
		}
	})
}

// A worker that sends a thousand damaged messages does not fill the log.
func TestDamagedMessagesFillNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		cfg := brokenConfig("shop", &store.Memory{}, nil, time.Now(), time.Minute)
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		c := brokenOpen(t, cfg)
		for range 1000 {
			for _, answer := range []func(context.Context, []byte) []byte{
				c.answerSync, c.answerAsks, c.answerSignals,
			} {
				if answer(t.Context(), []byte("damaged")) != nil {
					t.Fatal("it was answered")
				}
			}
			c.ReportSuspectPass(t.Context())
		}
		if n := strings.Count(log.String(), "\n"); n < 1 || n > 2 {
			t.Errorf("%d lines", n)
		}
	})
}

// hostile connects sjc, the home of Anywhere, with del and with lhr, which says what it likes: its
// messages come by its own link.
func hostile(t *testing.T) (sjc *Datacenters, c *Counter, lhr *store.Bus) {
	t.Helper()
	bus := func() *store.Bus {
		s, err := embedded.Open(t.Context(), embedded.Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return store.NewBus(s.Conn())
	}
	lhr = bus()
	sjc = NewDatacenters(DatacentersConfig{Own: "sjc", Home: "sjc", Names: []string{"lhr", "del"},
		Store: &store.Memory{}, Bus: bus(), Log: slog.New(slog.DiscardHandler),
		Links: map[string]*store.Bus{"lhr": lhr, "del": bus()}})
	sjc.sure = true
	return sjc, brokenOpen(t, brokenConfig("@shop", sjc.cfg.Store, sjc, time.Now(), time.Minute)), lhr
}

// The certificate of a data center is valid for that data center only. Its messages must not count
// as those of a third one: Anywhere would believe that the third one has reported what it holds.
func TestADatacenterSpeaksForItselfAlone(t *testing.T) {
	sjc, anywhere, lhr := hostile(t)
	shop := brokenOpen(t, brokenConfig("shop", sjc.cfg.Store, sjc, time.Now(), time.Minute))
	for name, answer := range map[string]func(context.Context, []byte) []byte{
		"sync.@shop": anywhere.answerSync, "picture.shop": shop.answerPicture,
		"signals.@shop": anywhere.answerSignals,
	} {
		stop, err := sjc.Serve(name, answer)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	for _, who := range []string{"del", "sjc", "fra", "", "lhr"} {
		x := slot.Sync{Loan: 99, Borrower: who, Seq: slot.Seq{Epoch: 1, N: 1}, Need: 1}
		sync, err := x.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		picture, err := json.Marshal(greeting{Snapshot: Snapshot{Datacenter: who, Active: 7}})
		if err != nil {
			t.Fatal(err)
		}
		report := (&signals.Report{From: who, Length: time.Second, Inside: 7}).Append(nil)
		for name, msg := range map[string][]byte{
			"sync.@shop": sync, "picture.shop": picture, "signals.@shop": report,
		} {
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
			if who != "lhr" { // no answer comes
				ctx, stop = context.WithTimeout(t.Context(), 100*time.Millisecond)
			}
			b, err := lhr.Request(ctx, "sjc."+name, msg)
			stop()
			if answered := err == nil && len(b) > 0; answered != (who == "lhr") {
				t.Errorf("lhr says in %s that it is %q: answered %v, %v", name, who, answered, err)
			}
		}
	}
	if x, senders := anywhere.TakeSignals(); senders != 1 || x.Inside != 7 {
		t.Errorf("%d senders report %v inside, want lhr alone, with 7", senders, x.Inside)
	}
}

// A data center that counts its moves to the end of all numbers does not keep Anywhere for ever.
func TestNoMoveIsTheLast(t *testing.T) {
	sjc, _, _ := hostile(t)
	sjc.hearHome(t.Context(), []byte(`{"site":"lhr","moves":18446744073709551615}`))
	if sjc.Home() != "lhr" {
		t.Fatal("a data center may move Anywhere to itself")
	}
	if err := sjc.AnnounceAnywhere(t.Context(), "sjc"); err != nil || sjc.Home() != "sjc" {
		t.Errorf("the home is %s: %v", sjc.Home(), err)
	}
	h, err := sjc.readHome(t.Context())
	if err != nil || h != sjc.HomeNow() || h.Datacenter != "sjc" {
		t.Errorf("the record says %+v %v", h, err)
	}
	for range 3 { // one that was off reaches the same number
		sjc.hearHome(t.Context(), []byte(`{"site":"del","moves":8589934597}`))
	}
	if got := sjc.HomeNow(); got != (AnywhereHome{"del", 2<<32 + 5}) {
		t.Errorf("after the same news thrice it is %+v", got)
	}
}

// Names that are no data center's are not kept, however many there are.
func TestOffNamesDatacenters(t *testing.T) {
	sjc, c, lhr := hostile(t)
	stop, err := sjc.Serve("off.@shop", c.answerOff)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, off := range []string{"del", strings.Repeat("x,", 100), "del,del"} {
		b, err := lhr.Request(t.Context(), "sjc.off.@shop", []byte(off))
		if err != nil || !strings.HasPrefix(string(b), "ok ") {
			t.Fatalf("%.9s: %q %v", off, b, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.off, []string{"del"}) {
		t.Errorf("declared down: %q", c.off)
	}
}

func FuzzSettings(f *testing.F) {
	s := Settings{Active: slot.Limit{Kind: slot.AtOnce, N: 10, Per: time.Minute},
		New:   slot.Limit{Kind: slot.PerWindow, N: 10, Per: time.Minute},
		Lanes: []slot.Lane{{Name: "vip", Share: 5}}}
	f.Add(appendSettings(nil, &s))
	f.Add([]byte{wireFormat, 1, 2, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseSettings(b)
		if err != nil {
			return
		}
		if len(s.Lanes) > slot.MaxLanes || s.Active.Check() != nil || s.New.Check() != nil {
			t.Errorf("%x: %+v", b, s)
		}
		again, err := parseSettings(appendSettings(nil, &s))
		if err != nil || again.Active != s.Active || again.New != s.New || again.Line != s.Line {
			t.Errorf("%+v is read again as %+v, %v", s, again, err)
		}
	})
}
