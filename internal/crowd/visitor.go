package crowd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"
)

// These constants are the visitor's own timing, used when the server gives none.
const (
	// defaultPollAfter is used when a waiting answer does not say when to poll.
	defaultPollAfter = time.Second
	// After an error a visitor polls with growing delays, as the page does.
	retryFirst, retryMost = 2 * time.Second, time.Minute
	// sharedFrom is the interval from which every second poll requests the shared document.
	sharedFrom = 20 * time.Second
)

// A visitor is used by one goroutine, which alone writes its log.
type visitor struct {
	crowd *crowd
	plan  plan
	log   *Visitor
	rng   *rand.Rand
	jar   Jar

	worker    *worker  // of the challenge; nil: there is none
	servedURL *url.URL // of the shared document; nil: unknown
	retries   int      // errors in a row
}

func (v *visitor) now() time.Duration { return time.Since(v.crowd.start) }

func (v *visitor) tell(e Event) {
	e.Visitor, e.Number = v.plan.id, v.log.Number
	v.crowd.observe(e)
}

// live runs the whole life of a visitor.
func (v *visitor) live(ctx context.Context) {
	v.log.ArrivedAt = v.now()
	v.log.Outcome = OutcomeWaiting
	v.tell(Event{What: EventArrived, At: v.log.ArrivedAt})
	if v.redeem(ctx) && v.wait(ctx) {
		v.stay(ctx)
	}
}

// redeem opens the link of an invitation, if visitors have one, which sets a cookie and redirects to the
// page. It reports whether the visitor goes on.
func (v *visitor) redeem(ctx context.Context) bool {
	codes := v.crowd.cfg.Codes
	if len(codes) == 0 {
		return true
	}
	link := *v.crowd.page
	query := link.Query()
	query.Set("invitation", codes[(v.plan.id-1)%len(codes)])
	link.RawQuery = query.Encode()
	_, err := v.send(ctx, AskPage, &link)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		v.fail(kindOf(err))
	case len(v.jar.names) == 0:
		v.fail("invitation refused")
	default:
		return true
	}
	v.log.Outcome, v.log.LeftAt = OutcomeRefused, v.now()
	v.tell(Event{What: EventGaveUp, At: v.log.LeftAt})
	return false
}

// A step is the next request of a waiting visitor.
type step struct {
	ask Ask
	due time.Duration
}

// wait polls until the origin answers, and reports whether it did.
func (v *visitor) wait(ctx context.Context) bool {
	next := step{ask: AskPage, due: v.log.ArrivedAt}
	if v.crowd.cfg.Mode == ModeJSON {
		next.ask = AskJSON
	}
	defer v.idle()
	for {
		if end := v.giveUpAt(); end != Never && next.due >= end {
			if sleepUntil(ctx, v.crowd.start.Add(end)) {
				v.log.Outcome, v.log.LeftAt = OutcomeGaveUp, v.now()
				v.tell(Event{What: EventGaveUp, At: v.log.LeftAt})
			}
			return false
		}
		if !sleepUntil(ctx, v.crowd.start.Add(next.due)) {
			return false
		}
		p, ok := v.poll(ctx, next)
		if !ok {
			return false
		}
		if p.Err == "" && p.State == "" {
			v.log.Outcome, v.log.AdmittedAt = OutcomeInside, p.AnswerAt
			v.tell(Event{What: EventAdmitted, At: p.AnswerAt})
			return true
		}
		next = v.nextStep(p)
	}
}

func (v *visitor) giveUpAt() time.Duration {
	if v.plan.giveUp == 0 {
		return Never
	}
	return v.log.ArrivedAt + v.plan.giveUp
}

// poll makes one request and logs it. It returns false when the run is over.
func (v *visitor) poll(ctx context.Context, s step) (*Poll, bool) {
	to := v.crowd.page
	if s.ask == AskServed {
		to = v.servedURL
	}
	p := Poll{Ask: s.ask, DueAt: s.due, SentAt: v.now(), AnswerAt: Never}
	a, err := v.send(ctx, s.ask, to)
	if ctx.Err() != nil {
		return nil, false
	}
	if err == nil || errors.Is(err, errNotOurs) {
		p.AnswerAt = v.now()
	}
	if err == nil {
		p.State, p.PollAfter = a.state, a.pollAfter
		v.note(&p, &a.told)
		if s.ask != AskServed {
			v.work(ctx, a.told.Challenge)
		}
		v.retries = 0
	} else {
		p.Err = kindOf(err)
		v.fail(p.Err)
	}
	if err == nil && a.state == "" && a.status >= 500 {
		v.fail(fmt.Sprintf("status %d", a.status))
	}
	v.log.Polls = append(v.log.Polls, p)
	v.tell(Event{What: EventPolled, At: v.now(), Poll: p})
	return &v.log.Polls[len(v.log.Polls)-1], true
}

// note copies the values of a JSON answer into the log.
func (v *visitor) note(p *Poll, t *told) {
	p.Served = t.Served
	if p.Ask == AskServed || t.State == "" {
		return
	}
	p.Number, p.Position, p.Ahead = t.Number, t.Position, t.Ahead
	if t.ETALow != nil && t.ETAHigh != nil {
		p.ETAKnown, p.ETALow, p.ETAHigh = true, seconds(*t.ETALow), seconds(*t.ETAHigh)
		p.ETA = (p.ETALow + p.ETAHigh) / 2
	}
	if p.ETAKnown && t.ETA != nil {
		p.ETA = seconds(*t.ETA)
	}
	if t.Number != 0 && v.log.Number != 0 && v.log.Number != t.Number {
		v.log.Renumbered = true
		if t.Notice != noticeNewChallenge && t.Notice != noticeUnsolved {
			v.fail("ticket number changed")
		}
	}
	if t.Number != 0 {
		v.log.Number = t.Number
	}
	v.servedURL = v.sameHost(t.ServedURL)
}

// sameHost resolves a URL from the server. It ignores one that leads to another host: the crowd
// must only visit its target.
func (v *visitor) sameHost(raw string) *url.URL {
	if raw == "" {
		return nil
	}
	u, err := v.crowd.page.Parse(raw)
	if err != nil || u.Host != v.crowd.page.Host || u.Scheme != v.crowd.page.Scheme {
		return nil
	}
	return u
}

// nextStep follows the behavior of the page. It obeys poll_after_seconds exactly, loads the page
// when called, and requests the shared document every second time when the interval is long.
func (v *visitor) nextStep(p *Poll) step {
	if p.Err != "" && p.Ask == AskServed && p.AnswerAt != Never {
		return step{ask: AskPoll, due: p.AnswerAt}
	}
	if p.Err != "" {
		return step{ask: v.retryAsk(p.Ask), due: v.now() + v.backoff()}
	}
	after := p.PollAfter
	if after <= 0 {
		after = defaultPollAfter
	}
	due := p.AnswerAt + after
	called := p.State == stateCalled
	switch {
	case p.Ask == AskJSON:
		return step{ask: AskJSON, due: due}
	case p.Ask == AskServed:
		if p.Served >= v.log.Number {
			return step{ask: AskPoll, due: p.AnswerAt}
		}
		return step{ask: AskPoll, due: p.AnswerAt + v.lastPollAfter()}
	case p.Ask == AskPage && v.log.CalledAt != Never:
		v.fail("called but not admitted")
		return step{ask: AskPoll, due: due}
	case called:
		if v.log.CalledAt == Never {
			v.log.CalledAt = p.AnswerAt
			v.tell(Event{What: EventCalled, At: p.AnswerAt})
		}
		return step{ask: AskPage, due: p.AnswerAt}
	case p.State == stateNoCookie:
		v.fail("cookie not seen by the server")
	case after >= sharedFrom && v.servedURL != nil && v.log.Number != 0:
		return step{ask: AskServed, due: due}
	}
	return step{ask: AskPoll, due: due}
}

// retryAsk returns what to request after an error. It never retries the shared document.
func (v *visitor) retryAsk(ask Ask) Ask {
	if ask == AskServed {
		return AskPoll
	}
	return ask
}

// lastPollAfter returns the interval of the last personal answer, because the shared document has
// none.
func (v *visitor) lastPollAfter() time.Duration {
	for i := len(v.log.Polls) - 1; i >= 0; i-- {
		if p := &v.log.Polls[i]; p.Ask != AskServed && p.PollAfter > 0 {
			return p.PollAfter
		}
	}
	return defaultPollAfter
}

// backoff doubles with each consecutive error. It is spread by half, so that visitors that failed
// together do not all return together.
func (v *visitor) backoff() time.Duration {
	d := min(retryFirst<<min(v.retries, 10), retryMost)
	v.retries++
	return between(v.rng, d*3/4, d*5/4)
}

// stay makes requests until the session is over. A visitor that revokes requests the leave page
// last.
func (v *visitor) stay(ctx context.Context) {
	end := v.log.AdmittedAt + v.plan.stay
	for {
		at := min(v.now()+between(v.rng, v.crowd.cfg.ThinkMin, v.crowd.cfg.ThinkMax), end)
		if !sleepUntil(ctx, v.crowd.start.Add(at)) {
			return
		}
		last := at == end
		if last && !v.plan.revoke {
			v.leave()
			return
		}
		to := v.crowd.page
		if last {
			to = v.crowd.leave
		}
		a, err := v.visit(ctx, to)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && a.state != "":
			v.log.Outcome, v.log.LeftAt = OutcomeSentBack, v.now()
			v.fail("sent back to the line")
			v.tell(Event{What: EventSentBack, At: v.log.LeftAt})
			return
		case last:
			v.log.Revoked = err == nil
			v.leave()
			return
		}
	}
}

func (v *visitor) visit(ctx context.Context, to *url.URL) (answer, error) {
	ask := AskPage
	if v.crowd.cfg.Mode == ModeJSON {
		ask = AskJSON
	}
	a, err := v.send(ctx, ask, to)
	if ctx.Err() != nil {
		return a, err
	}
	v.log.Requests++
	switch {
	case err != nil:
		v.fail(kindOf(err))
	case a.state == "" && a.status >= 500:
		v.fail(fmt.Sprintf("status %d", a.status))
	}
	return a, err
}

func (v *visitor) leave() {
	v.log.Outcome, v.log.LeftAt = OutcomeLeft, v.now()
	v.tell(Event{What: EventLeft, At: v.log.LeftAt})
}

func (v *visitor) fail(kind string) {
	if v.log.Errors == nil {
		v.log.Errors = make(map[string]int)
	}
	v.log.Errors[kind]++
	v.tell(Event{What: EventError, At: v.now(), Err: kind})
}
