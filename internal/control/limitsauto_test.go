package control

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/chanmutex"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/ratelimit"
	"github.com/headgate/headgate/status"
)

// finder returns the limits of a process that finds the amount of the limit api.
func finder(t *testing.T, s store.Store, amount string) *Limits {
	t.Helper()
	cfg, err := config.Parse("t", []byte("limits:\n  - {name: api, algorithm: concurrency, amount: {"+amount+
		"}}\n"+
		"rooms:\n  - {name: shop, origin: 'http://127.0.0.1:1', suspended: true, total_active_users: 9, "+
		"new_users_per_minute: 9, limits: [api]}"))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := ratelimit.New(ratelimit.Config{Limits: LimitConfigs(cfg)})
	if err != nil {
		t.Fatal(err)
	}
	n := &node.Node{Records: s, Rooms: &headgate.Engine{}}
	note := func(context.Context, string, string, []string, string) {}
	return NewLimits(rules, cfg, n, &chanmutex.Mutex{}, note, slog.New(slog.DiscardHandler))
}

func (s *Limits) amount(t *testing.T) int64 {
	t.Helper()
	l, err := s.Rules.Limit("api")
	if err != nil {
		t.Fatal(err)
	}
	return l.Amount
}

// seekOnce lets a process that decides about the calls make one step.
func (s *Limits) seekOnce(t *testing.T) {
	t.Helper()
	s.seek(t.Context(), "api", (*s.seekers.Load())["api"])
}

// A lower amount is in force at once, also while the turn waits for the store.
func TestALowerAmountDoesNotWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := finder(t, &store.Memory{}, "auto: true, min: 2, max: 100, start: 60")
		s.turn.Lock()
		defer s.turn.Unlock()
		k := (*s.seekers.Load())["api"]
		done := false
		go func() {
			k.keep(t.Context(), s.foundDoc("api"), foundAmount{}, foundAmount{Shown: status.AutoAmount{Amount: 5}, InForce: 5}, 60,
				func(x foundAmount) { s.adopt("api", x) })
			done = true
		}()
		synctest.Wait()
		if got := s.amount(t); got != 5 || !done {
			t.Errorf("%d at once are allowed, 5 were found", got)
		}
	})
}

// The process that decides next goes on with the record, and not with what it knows itself: news may not
// have reached it.
func TestTheNextHostGoesOnWithTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := &store.Memory{}
		one := finder(t, records, "auto: frozen, min: 2, max: 100")
		two := finder(t, records, "auto: frozen, min: 2, max: 100")
		find := func(s *Limits, amount int64) {
			t.Helper()
			_, err := s.foundDoc("api").Edit(t.Context(), func(v *foundAmount) (bool, error) {
				v.Version++
				v.Shown.Amount, v.InForce = amount, amount
				return true, nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		find(one, 60)
		one.seekOnce(t)
		two.seekOnce(t)
		if a, b := one.amount(t), two.amount(t); a != 60 || b != 60 {
			t.Errorf("60 were found: %d and %d are in force", a, b)
		}
		// two decides, and writes; one has not heard of it, and decides again.
		time.Sleep(time.Minute)
		find(two, 40)
		two.seekOnce(t)
		one.seekOnce(t)
		record, _, err := one.foundDoc("api").Load(t.Context())
		if a := one.amount(t); a != 40 || record.Shown.Amount != 40 || err != nil {
			t.Errorf("40 were found last: %d are in force, and %d in the record (%v)", a, record.Shown.Amount, err)
		}
	})
}

// An unread store does not answer.
type unread struct{ store.Store }

func (s *unread) Load(context.Context, string) ([]byte, uint64, error) {
	return nil, 0, errors.New("no answer")
}

// While the record cannot be read, the next host finds nothing: it would begin again.
func TestTheNextHostWaitsForTheRecord(t *testing.T) {
	s := finder(t, &unread{&store.Memory{}}, "auto: true, min: 2, max: 100")
	if s.seekOnce(t); s.Found("api") != nil {
		t.Errorf("found %+v without the record", s.Found("api"))
	}
}

// Frozen holds what is in force: after shadow that is not what was found, here and after a restart.
func TestFrozenAfterShadowHoldsWhatIsInForce(t *testing.T) {
	for _, c := range []struct {
		mode string
		want int64
	}{{"shadow", 3}, {"true", 60}} {
		records := &store.Memory{}
		s := finder(t, records, "auto: "+c.mode+", min: 2, max: 100, start: 3")
		of := adaptive.Settings{Min: 2, Max: 100, Start: 60, Calls: true}
		learned := adaptive.New(of, adaptive.State{}).State()
		b, err := learned.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		s.adopt("api", foundAmount{Version: 1, State: b, Shown: status.AutoAmount{Amount: 60}})
		if s.seekOnce(t); s.Found("api").Amount != 60 {
			t.Fatalf("60 were learned, %+v", s.Found("api"))
		}
		if err := s.Change(t.Context(), "api", map[string]string{"amount": "frozen"}); err != nil {
			t.Fatal(err)
		}
		s.seekOnce(t)
		again := finder(t, records, "auto: "+c.mode+", min: 2, max: 100, start: 3")
		if err := again.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a, b := s.amount(t), again.amount(t); a != c.want || b != c.want {
			t.Errorf("frozen after auto: %s: %d in force, %d after a restart; want %d", c.mode, a, b, c.want)
		}
	}
}

// A record of an amount that nobody can read does not keep the changes of limits from being taken.
func TestChangesDoNotWaitForAnUnreadableAmount(t *testing.T) {
	records := &store.Memory{}
	one := finder(t, records, "auto: true, min: 2, max: 100")
	if err := one.Change(t.Context(), "api", map[string]string{"amount": "7"}); err != nil {
		t.Fatal(err)
	}
	if _, err := records.CompareAndSwap(t.Context(), foundKey+"api", 0, []byte("{")); err != nil {
		t.Fatal(err)
	}
	two := finder(t, records, "auto: true, min: 2, max: 100")
	if err := two.Take(t.Context()); err != nil || two.amount(t) != 7 {
		t.Errorf("%v: %d in force, want 7", err, two.amount(t))
	}
	three := finder(t, records, "auto: true, min: 2, max: 100")
	if three.seekOnce(t); three.Found("api") == nil {
		t.Error("nothing is found any more")
	}
}
