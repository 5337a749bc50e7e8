package server

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/deliver"
)

// throttle is that of a target which strangers use too: its full rate is a limit's, which may
// change while it runs.
type throttle struct {
	*deliver.Throttle
	rules headgate.LimitRules
	limit string

	mu     sync.Mutex
	looked time.Time
	pace   deliver.Pace
}

// lookAtPace is how often the limit is looked at. Chosen: as often as queues look at theirs.
const lookAtPace = 250 * time.Millisecond

// Pass implements queue.Throttle.
func (t *throttle) Pass(now time.Time, n int) (ok bool, at time.Time) {
	t.follow(now)
	return t.Throttle.Pass(now, n)
}

// again lets the throttle take the limit's rate anew: another one was set meanwhile.
func (t *throttle) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looked, t.pace = time.Time{}, deliver.Pace{}
}

// follow takes over what the limit has become.
func (t *throttle) follow(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.looked) < lookAtPace {
		return
	}
	t.looked = now
	v, err := t.rules.AllowAll(context.Background(), []headgate.Ask{{Limit: t.limit}}, false)
	if err != nil {
		return // the limit is gone, and so is what the queue may take
	}
	l := v[0].Limit
	pace := deliver.Pace{Amount: l.Amount, Window: l.Window, Shared: true}
	if pace != t.pace && l.Amount > 0 && t.Throttle.Change(now, pace) == nil {
		t.pace = pace
	}
}
