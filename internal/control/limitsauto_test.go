package control

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/chanmutex"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
	"github.com/headgate/headgate/status"
)

// fileWith returns a configuration with such an amount of the limit api.
func fileWith(t *testing.T, amount string) *config.Config {
	t.Helper()
	if strings.Contains(amount, ":") {
		amount = "{" + amount + "}"
	}
	cfg, err := config.Parse("t", []byte("limits:\n  - {name: api, algorithm: concurrency, amount: "+amount+"}\n"+
		"rooms:\n  - {name: shop, origin: 'http://127.0.0.1:1', suspended: true, total_active_users: 9, "+
		"new_users_per_minute: 9, limits: [api]}"))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// finder returns the limits of a process that finds the amount of the limit api.
func finder(t *testing.T, s store.Store, amount string) *Limits {
	t.Helper()
	cfg := fileWith(t, amount)
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

// seeker returns what finds the amount.
func (s *Limits) seeker() *seeker { return (*s.seekers.Load())["api"] }

// An amountOf is one that was found.
func amountOf(n int64) foundAmount {
	return foundAmount{Shown: status.AutoAmount{Amount: n}, InForce: n}
}

// record returns the amount of the record.
func (s *Limits) record(t *testing.T) foundAmount {
	t.Helper()
	x, _, err := s.seeker().doc.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// A shaky store answers nothing until a time.
type shaky struct {
	store.Store
	until time.Time
	loses time.Duration // after the next write, it answers nothing for so long
}

func (s *shaky) hangs(ctx context.Context) error {
	if !time.Now().Before(s.until) {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *shaky) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	if err := s.hangs(ctx); err != nil {
		return nil, 0, err
	}
	return s.Store.Load(ctx, key)
}

func (s *shaky) CompareAndSwap(ctx context.Context, key string, revision uint64, b []byte) (uint64, error) {
	if s.loses > 0 {
		s.until, s.loses = time.Now().Add(s.loses), 0
		if _, err := s.Store.CompareAndSwap(ctx, key, revision, b); err != nil {
			return 0, err
		}
	}
	if err := s.hangs(ctx); err != nil {
		return 0, err
	}
	return s.Store.CompareAndSwap(ctx, key, revision, b)
}

// A lower amount is in force at once, also while the turn waits for the store, and before it is written.
func TestALowerAmountDoesNotWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &shaky{Store: &store.Memory{}}
		s := finder(t, st, "auto: true, min: 2, max: 100, start: 60")
		s.turn.Lock()
		defer s.turn.Unlock()
		st.until = time.Now().Add(time.Minute)
		done := make(chan struct{})
		go func() { defer close(done); s.seeker().keep(t.Context(), amountOf(5), 60) }()
		synctest.Wait()
		if got := s.amount(t); got != 5 {
			t.Errorf("%d at once are allowed, 5 were found", got)
		}
		<-done
		time.Sleep(time.Minute)
		if s.seeker().keep(t.Context(), amountOf(5), 5); s.amount(t) != 5 || s.record(t).InForce != 5 {
			t.Errorf("%d in force and %d written, 5 were found", s.amount(t), s.record(t).InForce)
		}
	})
}

// A higher amount is written before it is in force.
func TestAHigherAmountWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &shaky{Store: &store.Memory{}, until: time.Now().Add(time.Minute)}
		s := finder(t, st, "auto: true, min: 2, max: 100, start: 60")
		if s.seeker().keep(t.Context(), amountOf(72), 60); s.amount(t) != 60 {
			t.Errorf("%d in force, although 72 are not written", s.amount(t))
		}
	})
}

// A write whose acknowledgment was lost is known to be our own: what was found since then goes before it.
func TestAnOwnWriteIsNotThatOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, next := range []int64{40, 60} {
			st := &shaky{Store: &store.Memory{}}
			s := finder(t, st, "auto: true, min: 2, max: 100, start: 60")
			s.seeker().keep(t.Context(), amountOf(60), 60)
			st.loses = 6 * time.Second
			s.seeker().keep(t.Context(), amountOf(72), 60)
			time.Sleep(5 * time.Second)
			s.seeker().keep(t.Context(), amountOf(next), s.amount(t))
			if got, written := s.amount(t), s.record(t).InForce; got != next || written != next {
				t.Errorf("%d in force, and the next host goes on with %d; %d were found", got, written, next)
			}
		}
	})
}

// What another process has written is in force, whatever this one has put into force before it was written,
// and whatever their clocks say.
func TestWhatAnotherHasWrittenIsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := &store.Memory{}
		for name, step := range map[string]func(s *Limits){
			"resumes": func(s *Limits) { s.seeker().rest(); s.seekOnce(t) },
			"goes on": func(s *Limits) { s.seekOnce(t); s.seekOnce(t) },
			"follows": func(s *Limits) {
				if err := s.Take(t.Context()); err != nil {
					t.Error(err)
				}
			},
			"follows, and goes on": func(s *Limits) {
				if err := s.Take(t.Context()); err != nil {
					t.Error(err)
				}
				s.seekOnce(t)
			},
		} {
			st := &shaky{Store: records}
			one := finder(t, st, "auto: frozen, min: 2, max: 100, start: 90")
			two := finder(t, records, "auto: frozen, min: 2, max: 100, start: 90")
			one.seekOnce(t)
			st.until = time.Now().Add(6 * time.Second)
			if one.seeker().keep(t.Context(), amountOf(80), 90); one.amount(t) != 80 {
				t.Fatalf("%d in force, 80 were found", one.amount(t))
			}
			time.Sleep(time.Second)
			if err := two.seeker().resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := two.record(t).Version
			two.seeker().keep(t.Context(), amountOf(20), two.amount(t))
			step(one)
			record := one.record(t)
			if one.amount(t) != 20 || record.InForce != 20 || record.Version <= before {
				t.Errorf("%s: %d in force, %+v; 20 were found last, after version %d", name, one.amount(t), record, before)
			}
			// The clock of the last one was an hour ahead.
			_, err := two.seeker().doc.Edit(t.Context(), func(v *foundAmount) (bool, error) {
				v.Version += uint64(time.Hour.Milliseconds())
				v.Shown.Amount, v.InForce = 90, 90
				return true, nil
			})
			if err != nil {
				t.Fatal(err)
			}
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
			_, err := s.seeker().doc.Edit(t.Context(), func(v *foundAmount) (bool, error) {
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
		if a, written := one.amount(t), one.record(t).Shown.Amount; a != 40 || written != 40 {
			t.Errorf("40 were found last: %d are in force, and %d in the record", a, written)
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
		s.seeker().set(foundAmount{Version: 1, State: b, Shown: status.AutoAmount{Amount: 60}}, true)
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

// answered returns what was measured in five seconds of an origin that answers 100 calls a second, with all
// ten slots in use; as many calls found none. A share of them failed.
func answered(failed float64) *signals.Report {
	m := signals.NewCallMeter()
	for i := range 500 {
		what := signals.Answered
		if float64(i) < 500*failed {
			what = signals.Failed
		}
		m.Note("GET", "/list", uint64(i), what, 100*time.Millisecond)
	}
	x := m.Read()
	x.Length, x.Inside, x.InFlight, x.Entered = signals.Every, 10, 10, 500
	return x
}

// tenInForce returns what a step needs to know while ten calls may be under way.
func tenInForce(begins bool) *seeking {
	return &seeking{log: slog.New(slog.DiscardHandler), mode: limit.AutoOn, inForce: 10, senders: 1,
		begins: begins, of: adaptive.Settings{Min: 2, Max: 500, Start: 10, Calls: true}}
}

// While a higher amount cannot be written, the next is one step from what is in force: the origin has not
// answered the others.
func TestStepsThatAreNotInForceDoNotAddUp(t *testing.T) {
	k, most := finder(t, &store.Memory{}, "auto: true, min: 2, max: 500").seeker(), int64(0)
	for range 60 {
		next := k.step(tenInForce(false), answered(0))
		most = max(most, next.InForce)
	}
	if most != 12 {
		t.Errorf("10 are in force, and %d would be next; want 12", most)
	}
}

// What a process has received when it begins to find an amount is only a part of what all have measured.
func TestTheFirstStepJudgesByNoPart(t *testing.T) {
	for _, failed := range []float64{0, 0.3} {
		k := finder(t, &store.Memory{}, "auto: true, min: 2, max: 500").seeker()
		step := func(begins bool) foundAmount {
			return k.step(tenInForce(begins), answered(failed))
		}
		if x := step(true); x.InForce != 10 {
			t.Errorf("%v failed: from 10 to %d in the first step: %s", failed, x.InForce, x.Shown.Reason)
		}
		last := foundAmount{InForce: 10}
		for i := 0; i < 3 && last.InForce == 10; i++ {
			last = step(false)
		}
		if last.InForce == 10 || last.InForce > 10 != (failed == 0) {
			t.Errorf("%v failed: %d after some steps: %s", failed, last.InForce, last.Shown.Reason)
		}
	}
}

// A reload that changes the bounds puts them into force at once, and keeps what was found.
func TestNewBoundsKeepWhatWasFound(t *testing.T) {
	s := finder(t, &store.Memory{}, "auto: true, min: 2, max: 100")
	s.seeker().keep(t.Context(), amountOf(60), s.amount(t))
	for _, c := range []struct {
		bounds string
		want   int64
	}{{"min: 3, max: 90", 60}, {"min: 3, max: 40", 40}, {"min: 70, max: 90, start: 80", 70}} {
		s.SetFile(fileWith(t, "auto: true, "+c.bounds), func() {})
		if got := s.amount(t); got != c.want {
			t.Errorf("%s: %d in force, want %d", c.bounds, got, c.want)
		}
	}
}

// What was found is forgotten when the file has a number: later the same name may stand for something else.
// That is so for a reload and for a restart.
func TestWhatWasFoundIsForgottenWithANumber(t *testing.T) {
	for name, number := range map[string]func(s *Limits) *Limits{
		"reload": func(s *Limits) *Limits { s.SetFile(fileWith(t, "7"), func() {}); return s },
		"removal": func(s *Limits) *Limits {
			cfg := fileWith(t, "7")
			cfg.Limits = nil
			s.SetFile(cfg, func() {})
			return s
		},
		"restart": func(s *Limits) *Limits { return finder(t, s.node.Records, "7") },
		"another reload": func(s *Limits) *Limits {
			s.SetFile(fileWith(t, "auto: true, min: 2, max: 90"), func() {})
			return s
		},
	} {
		s := finder(t, &store.Memory{}, "auto: true, min: 2, max: 100")
		k := s.seeker()
		k.keep(t.Context(), amountOf(60), s.amount(t))
		s = number(s)
		for range 2 {
			if err := s.Take(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s.SetFile(fileWith(t, "auto: true, min: 2, max: 80"), func() {})
		if err := s.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := int64(2)
		if name == "another reload" {
			want = 60
		}
		x := s.record(t)
		if s.amount(t) != want || x.Shown.Amount == 60 != (want == 60) || x.Version < k.known.Load().Version {
			t.Errorf("%s: %d in force, %+v", name, s.amount(t), x)
		}
	}
}
