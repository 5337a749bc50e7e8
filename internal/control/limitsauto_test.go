package control

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/headgate/headgate"
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
	cfg, err := config.Parse("t", []byte("limits:\n  - {name: api, algorithm: concurrency, amount: {"+amount+"}}\n"+
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
	return NewLimits(rules, cfg, n, &chanmutex.Mutex{}, func(ctx context.Context, _, _ string, _ []string, _ string) {},
		slog.New(slog.DiscardHandler))
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
			k.keep(t.Context(), s.foundDoc("api"), foundAmount{}, foundAmount{Shown: status.AutoAmount{Amount: 5}}, 60,
				func(x foundAmount) { s.adopt("api", x) })
			done = true
		}()
		synctest.Wait()
		if got := s.amount(t); got != 5 || !done {
			t.Errorf("%d at once are allowed, 5 were found", got)
		}
	})
}
