package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/crowd"
	judge "github.com/headgate/headgate/tests/crowd"
)

// A recorder carries the requests of the visitors of internal/crowd through the
// balancer, and writes down what became of each. It reads answers for itself.
type recorder struct {
	door    func(visitor string) *balancer
	began   time.Time
	over    context.Context // done when the run is: what fails then is no fault
	kept    *http.Transport // for every other visitor; the rest connect anew each time
	anew    *http.Transport
	allAnew bool

	mu      sync.Mutex
	visits  map[string]*visit
	order   []*visit
	used    []*usedTicket
	replays []replay
}

// A usedTicket has let somebody in.
type usedTicket struct {
	visitor          string
	cookie           string
	number           uint64
	claimed, revoked time.Duration // answers read in full, or never
}

func newRecorder(
	out *outside, door func(visitor string) *balancer, over context.Context, allAnew bool,
) *recorder {
	return &recorder{door: door, began: time.Now(), over: over, allAnew: allAnew,
		visits: map[string]*visit{},
		kept:   &http.Transport{MaxIdleConnsPerHost: 2000, DisableCompression: true, DialContext: out.dial},
		anew:   &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: out.dial}}
}

func (r *recorder) clock() time.Duration { return time.Since(r.began) }

func (r *recorder) close() {
	r.kept.CloseIdleConnections()
	r.anew.CloseIdleConnections()
}

// as gives a transport whose visitors have this before their numbers.
func (r *recorder) as(prefix string) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		number := req.Header.Get(crowd.VisitorHeader)
		req.Header.Set(crowd.VisitorHeader, prefix+number)
		n, _ := strconv.Atoi(number)
		return r.roundTrip(req, n%2 == 0 && !r.allAnew)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// kindOf says what a request is for.
func kindOf(req *http.Request) string {
	switch {
	case strings.HasSuffix(req.URL.Path, judge.LeavePath):
		return askLeave
	case strings.HasSuffix(req.URL.Path, "/.headgate/served"):
		return askServed
	case req.Header.Get("Headgate-Poll") != "":
		return askPoll
	}
	return askPage
}

// roundTrip sends a request, reads the answer in full and notes both.
func (r *recorder) roundTrip(req *http.Request, keep bool) (*http.Response, error) {
	cookie, name := req.Header.Get("Cookie"), req.Header.Get(crowd.VisitorHeader)
	a := ask{kind: kindOf(req), sent: r.clock()}
	resp, err := r.exchange(req, keep, r.door(name), &a)
	a.ended = r.clock()
	if r.over.Err() != nil {
		return resp, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.visits[name]
	if v == nil {
		v = &visit{name: name}
		r.visits[name], r.order = v, append(r.order, v)
	}
	if a.origin() {
		r.note(v, &a, cookie)
	}
	v.asks = append(v.asks, a)
	return resp, err
}

// note remembers the ticket of a visitor who is let in, and when it has left.
func (r *recorder) note(v *visit, a *ask, cookie string) {
	number := v.number()
	if number == 0 || cookie == "" {
		return
	}
	if v.admitted() == nil {
		r.used = append(r.used, &usedTicket{visitor: v.name, cookie: cookie, number: number,
			claimed: a.ended, revoked: never})
	}
	if a.kind != askLeave {
		return
	}
	for _, u := range r.used {
		if u.visitor == v.name {
			u.revoked = a.ended
		}
	}
}

// exchange sends a request to a door and fills in what was told.
func (r *recorder) exchange(
	req *http.Request, keep bool, door *balancer, a *ask,
) (*http.Response, error) {
	by, from := r.anew, ""
	if keep {
		by = r.kept
	}
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			if from != "" {
				a.first, a.again = door.passage(from).node, r.clock()
			}
			from = i.Conn.LocalAddr().String()
		},
	})
	req = req.Clone(ctx)
	req.Host, req.URL.Host = req.URL.Host, door.ln.Addr().String()
	resp, err := by.RoundTrip(req)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if at := door.passage(from); from != "" {
		a.node = at.node
		a.lost = err != nil && at.lost
	}
	if err != nil {
		a.failed = err.Error()
		if errors.Is(err, context.DeadlineExceeded) {
			a.failed = "timeout"
		}
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	a.status, a.state = resp.StatusCode, resp.Header.Get("Headgate-State")
	if a.kind != askServed && (a.state != "" || a.kind == askPoll) {
		a.tell(body)
	}
	return resp, nil
}

// viewMark precedes the JSON that a waiting page carries in itself.
const viewMark = `id="view">`

// tell reads what a waiting answer says, in a page or as JSON.
func (a *ask) tell(body []byte) {
	type view struct {
		State    string  `json:"state"`
		Number   uint64  `json:"number"`
		Position int64   `json:"position"`
		After    float64 `json:"poll_after_seconds"`
	}
	var doc struct {
		Headgate view `json:"headgate"`
	}
	var err error
	if _, page, ok := bytes.Cut(body, []byte(viewMark)); ok {
		err = json.NewDecoder(bytes.NewReader(page)).Decode(&doc.Headgate)
	} else {
		err = json.Unmarshal(body, &doc)
	}
	d := doc.Headgate
	if err != nil || d.State == "" {
		a.state = fmt.Sprintf("unreadable: %.80q", body)
		return
	}
	a.state, a.number, a.position = d.State, d.Number, d.Position
	a.after = time.Duration(d.After * float64(time.Second))
}

// How used tickets are tried again. Chosen: a few each second load nothing, and
// are some dozens in a run.
const (
	replayEvery   = 400 * time.Millisecond
	revokedBefore = 3 * time.Second // so long after the stay was ended
)

// replay tries used tickets again, as other visitors, until ctx ends.
func (r *recorder) replay(ctx context.Context, url string) {
	tick := time.NewTicker(replayEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if u, ok := r.takeUsed(n); ok {
			r.tryAgain(ctx, url, fmt.Sprintf("again%d", n), u)
		}
	}
}

// takeUsed gives, in turn, a ticket claimed long ago and one whose stay the origin
// has ended.
func (r *recorder) takeUsed(n int) (u usedTicket, ok bool) {
	now := r.clock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, u := range r.used {
		old := now-u.claimed > claimMemory
		ended := u.revoked != never && now-u.revoked > revokedBefore
		if old && n%2 == 0 || ended && n%2 == 1 {
			r.used = append(r.used[:i], r.used[i+1:]...)
			return *u, true
		}
	}
	return u, false
}

func (r *recorder) tryAgain(ctx context.Context, url, name string, u usedTicket) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return
	}
	req.Header.Set(crowd.VisitorHeader, name)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Sec-Fetch-Mode", "navigate")
	req.Header.Set("Cookie", u.cookie)
	a := ask{kind: askPage}
	_, err = r.exchange(req, false, r.door(u.visitor), &a)
	p := replay{name: name, visitor: u.visitor, node: a.node, number: u.number, at: r.clock(),
		claimed: u.claimed, revoked: u.revoked, answered: err == nil, admitted: a.origin(),
		got: a.number, position: a.position}
	r.mu.Lock()
	r.replays = append(r.replays, p)
	r.mu.Unlock()
}
