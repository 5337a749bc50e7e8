package counter

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// moves has three data centers with two rooms, whose Anywhere lives at sjc.
type moves struct {
	t     *testing.T
	sites map[string]*Datacenters
	off   map[string]func() // stops a data center
	deaf  map[string]func() // stops the hosting of Anywhere of a room at sjc
}

func newMoves(t *testing.T) *moves {
	t.Helper()
	bus := func() *store.Bus {
		s, err := embedded.Open(t.Context(), embedded.Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return store.NewBus(s.Conn())
	}
	m := &moves{t: t, sites: map[string]*Datacenters{}, off: map[string]func(){}, deaf: map[string]func(){}}
	links := bus()
	for own, others := range map[string][]string{
		"sjc": {"lhr", "del"}, "lhr": {"sjc", "del"}, "del": {"sjc", "lhr"},
	} {
		s := NewDatacenters(DatacentersConfig{
			Own: own, Home: "sjc", Names: others, Store: &store.Memory{}, Bus: bus(),
			Links: map[string]*store.Bus{others[0]: links, others[1]: links},
			Log:   slog.New(slog.DiscardHandler),
		})
		m.sites[own], m.off[own] = s, func() {}
		stop, err := s.serveMoves()
		if err != nil {
			t.Fatal(err)
		}
		deaf, err := s.Subscribe("home", func(b []byte) { s.hearHome(t.Context(), b) })
		if err != nil {
			t.Fatal(err)
		}
		m.off[own] = func() { stop(); deaf() }
	}
	for _, room := range []string{"shop", "bar"} {
		sjc := m.sites["sjc"]
		sjc.sure = true
		c := brokenOpen(t, brokenConfig("@"+room, sjc.cfg.Store, sjc, time.Now(), time.Minute))
		var err error
		if m.deaf[room], err = sjc.both("move.@"+room, c.answerMove); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// record returns the record of a room's Anywhere at a data center, nil without one.
func (m *moves) record(site, room string) *slot.Record {
	m.t.Helper()
	b, _, err := m.sites[site].cfg.Store.Load(m.t.Context(), recordOf(anywhere(room)))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	r := &slot.Record{}
	if err == nil {
		err = r.UnmarshalBinary(b)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

// leave makes Anywhere of shop leave for lhr.
func (m *moves) leave() (record []byte) {
	m.t.Helper()
	b, err := m.sites["sjc"].Request(m.t.Context(), "sjc", "move.@shop", []byte("lhr"))
	if err != nil || len(b) == 0 {
		m.t.Fatalf("%d bytes, %v", len(b), err)
	}
	m.deaf["shop"]()
	return b
}

func (m *moves) finish() (to string, err error) {
	m.sites["sjc"].stuck(m.t.Context(), "shop")
	return m.sites["sjc"].FinishMove(m.t.Context(), []string{"bar", "shop"})
}

// A move is interrupted after each of its steps, and the old home completes it. Then both rooms are
// at lhr with their state, and all data centers know it.
func TestAMoveThatBreaksOffIsFinished(t *testing.T) {
	for name, breaks := range map[string]func(m *moves){
		"when one has left": func(m *moves) { m.leave() },
		"when one has arrived": func(m *moves) {
			x := taking{Room: "shop", Record: m.leave()}
			if err := m.sites["lhr"].take(m.t.Context(), x); err != nil {
				m.t.Fatal(err)
			}
		},
		"when both have arrived": func(m *moves) {
			m.leave()
			for _, room := range []string{"shop", "bar"} {
				if err := m.sites["del"].Move(m.t.Context(), room, "lhr"); err != nil {
					m.t.Fatal(err)
				}
			}
			m.deaf["bar"]()
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMoves(t)
			breaks(m)
			was := m.record("sjc", "shop").Name
			if to, err := m.finish(); to != "lhr" || err != nil {
				t.Fatal(to, err)
			}
			for _, room := range []string{"shop", "bar"} {
				here, there := m.record("sjc", room), m.record("lhr", room)
				if here.MovedTo != "lhr" || there == nil || there.MovedTo != "" ||
					there.Name.Life != here.Name.Life || there.Name.Epoch < here.Name.Epoch {
					t.Fatalf("%s: here %+v, there %+v", room, here, there)
				}
			}
			if now := m.record("sjc", "shop").Name; now != was {
				t.Errorf("the record of before has gone on: %v after %v", now, was)
			}
			for name, s := range m.sites {
				for s.Home() != "lhr" { // all must receive the message, or the test times out
					if !wait(t.Context(), time.Millisecond) {
						t.Fatalf("%s does not know", name)
					}
				}
			}
			if to, err := m.finish(); to != "" || err != nil {
				t.Errorf("there is something to finish yet: %q %v", to, err)
			}
		})
	}
}

// A move is completed automatically only if it is certain that nobody has put Anywhere elsewhere.
func TestAMoveIsFinishedOnlyIfAllAgree(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(m *moves)
		says   string
		home   string
	}{
		"nothing has left": {func(*moves) {}, "", "sjc"},
		"one does not answer": {func(m *moves) { m.leave(); m.off["del"]() },
			"del must agree", "sjc"},
		"it is elsewhere by another command": {func(m *moves) {
			m.leave()
			m.sites["del"].learnHome(AnywhereHome{Datacenter: "del", Moves: 1})
		}, "lives at del", "del"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMoves(t)
			c.breaks(m)
			to, err := m.finish()
			if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q, %v, want %q", to, err, c.says)
			}
			if home := m.sites["sjc"].Home(); home != c.home || m.record("lhr", "shop") != nil ||
				m.record("sjc", "bar").MovedTo != "" {
				t.Errorf("moved: the home is %s", home)
			}
		})
	}
}

// A record that has left for one data center may arrive there at any moment, so it must not go to
// another one.
func TestWhatHasLeftGoesNowhereElse(t *testing.T) {
	m := newMoves(t)
	m.leave()
	if err := m.sites["sjc"].Move(t.Context(), "shop", "del"); !errors.Is(err, errElsewhere) {
		t.Error(err)
	}
	if m.record("del", "shop") != nil {
		t.Error("it is at del, too")
	}
}

// The handle at the old home notices that Anywhere has left and did not arrive.
func TestTheOldHomeNoticesThatAMoveBrokeOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, start := &store.Memory{}, time.Now()
		sites := brokenSites("sjc", disk, "lhr")
		cfg := brokenConfig("@shop", disk, sites, start, time.Minute)
		ctx, stop := context.WithCancel(t.Context())
		c, err := Open(ctx, cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { c.Run(ctx); close(done) }()
		if c.answerMove(ctx, []byte("lhr")) == nil {
			t.Fatal("not moved")
		}
		stop()
		<-done
		s := NewHandle(cfg, nil, nil, nil)
		for time.Since(start) < leftLong {
			if s.serve(t.Context()); sites.left != "" {
				t.Fatalf("after %v: it may be on its way", time.Since(start))
			}
			time.Sleep(lookEvery)
		}
		time.Sleep(lookEvery)
		if s.serve(t.Context()); sites.left != "lhr" {
			t.Errorf("it was sent to %q, want lhr", sites.left)
		}
	})
}
