package envoy

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/ratelimit"
)

// decide requests a decision from the limiter. Descriptors that return hits, that only query or
// that count regardless of the decision go first. Then the limits that can reject a call alone
// take, all or none. Then the limits with quota_mode take, each on its own. Once the call is
// rejected, nothing more is taken and the rest is only queried.
func (c *call) decide(ctx context.Context, limiter ratelimit.Checker) error {
	free := func(l *line) bool { return l.cost <= 0 || l.rule.overdraft }
	hard := func(l *line) bool { return l.cost > 0 && !l.rule.overdraft && !l.rule.quota }
	soft := func(l *line) bool { return l.cost > 0 && !l.rule.overdraft && l.rule.quota }
	if err := c.take(ctx, limiter, group{of: free}); err != nil {
		return err
	}
	if err := c.owe(ctx, limiter); err != nil {
		return err
	}
	if err := c.take(ctx, limiter, group{of: hard, all: true, look: c.judge()}); err != nil {
		return err
	}
	if err := c.take(ctx, limiter, group{of: soft, look: c.judge()}); err != nil {
		return err
	}
	if over := c.over; !c.judge() || over {
		return nil
	}
	return c.giveBack(ctx, limiter)
}

// A group is a set of limited descriptors that is sent to the limiter together.
type group struct {
	of   func(*line) bool
	all  bool // take from all or from none
	look bool // query only, take from none
}

// take sends a group to the limiter in one request.
func (c *call) take(ctx context.Context, limiter ratelimit.Checker, g group) error {
	var asks []ratelimit.Check
	for i := range c.lines {
		if l := &c.lines[i]; l.limited() && g.of(l) {
			if l.ask.Cost = l.cost; g.look {
				l.ask.Cost = 0
			}
			if asks == nil {
				asks = make([]ratelimit.Check, 0, len(c.lines)-i)
			}
			asks = append(asks, l.ask)
		}
	}
	if asks == nil {
		return nil
	}
	verdicts, err := limiter.AllowAll(ctx, asks, g.all)
	if err != nil {
		return err
	}
	// The verdicts are matched by position. A limiter that breaks its contract must not decide
	// about the wrong line.
	if len(verdicts) != len(asks) {
		return status.Errorf(codes.Internal, "%d verdicts on %d descriptors", len(verdicts), len(asks))
	}
	next := 0
	for i := range c.lines {
		if l := &c.lines[i]; l.limited() && g.of(l) {
			l.verdict = verdicts[next]
			l.over = l.refused()
			next++
		}
	}
	return nil
}

// owe counts the excess of limits with an overdraft: it takes what is left, and then reports that
// the use was higher. If nothing is left there is nothing to charge.
func (c *call) owe(ctx context.Context, limiter ratelimit.Checker) error {
	const hold, tries = time.Minute, 10 // chosen; others may take the rest meanwhile
	for i := range c.lines {
		l := &c.lines[i]
		if !l.limited() || !l.rule.overdraft || !l.over || l.cost <= 0 {
			continue
		}
		for n := 0; n < tries && l.verdict.Remaining > 0; n++ {
			a := l.ask
			a.Cost = l.verdict.Remaining
			v, err := limiter.Reserve(ctx, a, hold)
			if err != nil {
				return err
			}
			if l.verdict.Remaining = v.Remaining; !v.Allowed {
				continue
			}
			if err := limiter.Settle(ctx, l.ask, v.ID); err != nil {
				return err
			}
			a.Cost = 0
			if v, err = limiter.Allow(ctx, a); err != nil {
				return err
			}
			l.verdict.Remaining, l.verdict.Reset = v.Remaining, v.Reset
			break
		}
	}
	return nil
}

// refused reports whether a line is over its limit. For a query that is the case when nothing is
// left, or less than the descriptor wants: the limiter never counts more than the limit has.
func (l *line) refused() bool {
	v := &l.verdict
	switch {
	case v.Limit != nil && !v.Limit.Refuses():
		return false
	case l.ask.Cost == 0:
		return v.Remaining < max(1, l.cost)
	}
	return !v.Allowed
}

// judge reports whether the results so far reject the call.
func (c *call) judge() bool {
	quotas, spent := 0, 0
	c.over = false
	for i := range c.lines {
		l := &c.lines[i]
		switch {
		case !l.limited() || l.cost < 0:
		case !l.rule.quota:
			c.over = c.over || l.over
		default:
			quotas++
			if l.over {
				spent++
			}
		}
	}
	c.over = c.over || quotas > 0 && spent == quotas
	return c.over
}

// giveBack returns what a call has taken if all its quotas reject it.
func (c *call) giveBack(ctx context.Context, limiter ratelimit.Checker) error {
	var asks []ratelimit.Check
	for i := range c.lines {
		l := &c.lines[i]
		if l.limited() && l.ask.Cost > 0 && l.verdict.Allowed && !l.verdict.Exceeded && !l.rule.overdraft {
			asks = append(asks, ratelimit.Check{Limit: l.ask.Limit, Key: l.ask.Key, Cost: -l.ask.Cost})
			l.verdict.Remaining += l.ask.Cost
		}
	}
	if asks == nil {
		return nil
	}
	_, err := limiter.AllowAll(ctx, asks, false)
	return err
}
