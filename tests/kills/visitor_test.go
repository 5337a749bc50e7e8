//go:build kills || soak

package kills

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/crowd"
	judge "github.com/headgate/headgate/tests/crowd"
)

// How a visitor behaves. Chosen: the longest pause and its doubled second of
// renewals that a kill may cost stay below the session (see pauseMost).
const (
	session   = 6 * time.Second
	pauseMost = 1800 * time.Millisecond // 2 × it + 1 s + what a retry takes < session
	retryLow  = 100 * time.Millisecond  // after a request that was not answered
	retryHigh = 300 * time.Millisecond
	timeout   = 5 * time.Second
)

// A client is one goroutine of the crowd: a visitor, and when that one has left
// another, until the run ends.
type client struct {
	st     *stage
	id     int
	rng    *rand.Rand
	visits []*visit

	now    *visit
	cookie string // newest of an answer that was read in full
	ticket string // the cookie that claimed
	due    time.Duration
}

// live comes as one visitor after another until the run ends.
func (c *client) live(ctx context.Context) {
	for n := 0; ctx.Err() == nil && !c.st.closing.Load(); n++ {
		c.begin(n)
		if u, ok := c.st.takeUsed(); ok && !c.replay(ctx, u) {
			continue
		}
		if c.wait(ctx) {
			c.stay(ctx)
		}
		c.due = c.st.clock() + c.between(100*time.Millisecond, time.Second)
	}
}

// begin is a new visitor, without a cookie.
func (c *client) begin(n int) {
	c.now = &visit{name: fmt.Sprintf("%d-%d", c.id, n)}
	c.cookie, c.ticket = "", ""
}

func (c *client) between(low, high time.Duration) time.Duration {
	return low + time.Duration(c.rng.Int64N(int64(high-low)))
}

// replay comes with a ticket that was used before, by somebody else. It reports
// whether that was taken for a newcomer, who then has a place of its own.
func (c *client) replay(ctx context.Context, u usedTicket) bool {
	if !until(ctx, c.st.began.Add(c.due)) {
		return false
	}
	a := ask{kind: askJoin, due: c.due, sent: c.st.clock()}
	a.life[0] = int(c.st.life.Load())
	r := replay{name: c.now.name, number: u.number, revoked: u.revoked}
	if a.sent-u.claimed <= claimMemory { // let in, it is the same stay again
		r.name = u.visitor
	}
	got, err := c.st.send(ctx, askEnter, r.name, u.cookie)
	a.answered, a.life[1] = c.st.clock(), int(c.st.life.Load())
	r.age = a.answered - u.claimed
	if err == nil {
		r.answered, r.admitted = true, got.state == ""
		r.got, r.place = got.number, got.position
	}
	c.st.mu.Lock()
	c.st.replays = append(c.st.replays, r)
	c.st.mu.Unlock()
	if !r.answered || r.admitted || r.got == r.number || got.cookie == nil {
		c.due = c.retry()
		return false
	}
	c.cookie = *got.cookie
	a.state, a.number, a.position, a.after = got.state, got.number, got.position, got.after
	c.due = a.answered + max(a.after, 10*time.Millisecond)
	c.now.asks, c.visits = append(c.now.asks, a), append(c.visits, c.now)
	return true
}

// retry is when to ask again after a request that was not answered. One in four
// is impatient: it is there in the very millisecond in which headgate listens.
func (c *client) retry() time.Duration {
	if c.id%4 == 0 {
		return c.st.clock() + c.between(time.Millisecond, 4*time.Millisecond)
	}
	return c.st.clock() + c.between(retryLow, retryHigh)
}

// wait joins, polls as told and enters when called; it reports whether the
// origin answered.
func (c *client) wait(ctx context.Context) bool {
	kind := askJoin
	if c.cookie != "" {
		kind = askPoll
	}
	for {
		a, ok := c.ask(ctx, kind)
		switch {
		case !ok:
			return false
		case a.origin():
			return true
		case !a.read() && kind == askJoin: // nothing was read: another visitor
			return false
		case !a.read():
			c.due = c.retry()
		case c.cookie == "": // no place
			c.due = a.answered + max(a.after, time.Second)
			return false
		case a.state == stateCalled:
			c.due, kind = a.answered, askEnter
			c.ticket = c.cookie
		default:
			c.due, kind = a.answered+max(a.after, 10*time.Millisecond), askPoll
		}
	}
}

// stay makes requests and leaves, half of the visitors by a page that revokes.
func (c *client) stay(ctx context.Context) {
	end := c.st.clock() + c.between(2*time.Second, 5*time.Second)
	revoke := c.rng.IntN(2) == 0
	c.due = c.st.clock() + c.between(300*time.Millisecond, pauseMost)
	for {
		kind := askVisit
		if revoke && c.due > end {
			kind = askLeave
		} else if c.due > end {
			break
		}
		a, ok := c.ask(ctx, kind)
		if !ok {
			return
		}
		switch {
		case !a.read():
			c.due = c.retry()
			continue
		case !a.origin(): // sent back: the judge says whether that was right
			return
		case kind == askLeave:
			c.st.used(c, a.answered)
			return
		}
		c.due = c.st.clock() + c.between(300*time.Millisecond, pauseMost)
	}
	c.st.used(c, never)
}

// ask makes the next request when it is due and notes it; false when the run is
// over.
func (c *client) ask(ctx context.Context, kind string) (*ask, bool) {
	if !until(ctx, c.st.began.Add(c.due)) {
		return nil, false
	}
	a := ask{kind: kind, due: c.due, sent: c.st.clock(), answered: never}
	a.life[0] = int(c.st.life.Load())
	got, err := c.st.send(ctx, kind, c.now.name, c.cookie)
	if ctx.Err() != nil {
		return nil, false
	}
	if err == nil {
		a.answered, a.life[1] = c.st.clock(), int(c.st.life.Load())
		a.state, a.number, a.position, a.after = got.state, got.number, got.position, got.after
		if got.cookie != nil {
			c.cookie = *got.cookie
		}
	} else {
		a.life[1] = int(c.st.life.Load())
	}
	if len(c.now.asks) == 0 {
		c.visits = append(c.visits, c.now)
	}
	c.now.asks = append(c.now.asks, a)
	return &c.now.asks[len(c.now.asks)-1], true
}

// until waits for a moment; false if ctx ended first.
func until(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// An answer is what was read of one.
type answer struct {
	state    string
	ticket   string // its short ID
	number   uint64
	position int64
	after    time.Duration
	cookie   *string // nil: none was set
}

// send makes one request. An error means that the answer was not read in full.
func (st *stage) send(ctx context.Context, kind, visitor, cookie string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	url := st.url
	if kind == askLeave {
		url += judge.LeavePath[1:]
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set(crowd.VisitorHeader, visitor)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Sec-Fetch-Mode", "navigate")
	if kind == askPoll {
		req.Header.Set("Headgate-Poll", "1")
	}
	if cookie != "" {
		req.Header.Set("Cookie", cookie)
	}
	return roundTrip(st.http, req)
}

// roundTrip reads an answer in full.
func roundTrip(by http.RoundTripper, req *http.Request) (answer, error) {
	resp, err := by.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return answer{}, err
	}
	return readAnswer(resp, body)
}

func readAnswer(resp *http.Response, body []byte) (a answer, err error) {
	for _, c := range resp.Cookies() {
		text := c.Name + "=" + c.Value
		if c.MaxAge < 0 {
			text = ""
		}
		a.cookie = &text
	}
	a.state = resp.Header.Get("Headgate-State")
	switch {
	case a.state == "" && resp.StatusCode == http.StatusOK:
		return a, nil
	case a.state == "": // headgate could not reach the origin, or ends
		return a, fmt.Errorf("status %d: %.100s", resp.StatusCode, body)
	}
	var doc struct {
		Headgate struct {
			Ticket   string  `json:"ticket"`
			Number   uint64  `json:"number"`
			Position int64   `json:"position"`
			After    float64 `json:"poll_after_seconds"`
		} `json:"headgate"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return a, fmt.Errorf("read %q: %w", body, err)
	}
	a.ticket, a.number, a.position = doc.Headgate.Ticket, doc.Headgate.Number, doc.Headgate.Position
	a.after = time.Duration(doc.Headgate.After * float64(time.Second))
	return a, nil
}
