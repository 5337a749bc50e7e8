package crowd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// These are the states that a visitor acts on, as sent on the wire. They are copied here and not
// imported from the server: a test of a server must not change with it.
const (
	stateWaiting  = "waiting"
	stateCalled   = "called"
	stateNoCookie = "no_cookie"
)

// maxAnswer limits how much of an answer is read as JSON. headgate's answers are below 4 KB.
const maxAnswer = 64 << 10

// An answer is the response to one request.
type answer struct {
	status    int
	state     string // "" for the origin's answer
	told      told
	pollAfter time.Duration
}

// A told is the part of the JSON object "headgate" that visitors act on.
type told struct {
	State     string   `json:"state"`
	Position  int64    `json:"position"`
	Ahead     int64    `json:"ahead"`
	ETA       *float64 `json:"eta_seconds"`
	ETALow    *float64 `json:"eta_low_seconds"`
	ETAHigh   *float64 `json:"eta_high_seconds"`
	PollAfter float64  `json:"poll_after_seconds"`
	Number    uint64   `json:"number"`
	Served    uint64   `json:"served"`
	ServedURL string   `json:"served_url"`
	Notice    string   `json:"notice"`

	Challenge json.RawMessage `json:"challenge"`
}

// errNotOurs means that a poll received something that headgate never sends.
var errNotOurs = errors.New("the answer is not from a waiting room")

// send makes one request with the visitor's cookies, and stores the new ones.
func (v *visitor) send(ctx context.Context, ask Ask, to *url.URL) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, v.crowd.cfg.Timeout)
	defer cancel()
	req := (&http.Request{
		Method: http.MethodGet, URL: to, Host: v.crowd.cfg.Host, Header: v.header(ask),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	resp, err := v.crowd.transport.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	v.jar.Keep(resp.Header["Set-Cookie"])
	a := answer{status: resp.StatusCode, state: resp.Header.Get("Headgate-State")}
	if err := a.read(ask, resp); err != nil {
		return a, err
	}
	// The rest is read so that the connection can be reused.
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return a, fmt.Errorf("read answer: %w", err)
	}
	return a, nil
}

func (v *visitor) header(ask Ask) http.Header {
	h := http.Header{
		"User-Agent":  {v.plan.agent},
		VisitorHeader: {strconv.Itoa(v.plan.id)},
	}
	switch ask {
	case AskPage:
		h["Accept"] = []string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
		h["Sec-Fetch-Mode"] = []string{"navigate"}
		h["Sec-Fetch-Dest"] = []string{"document"}
	case AskPoll:
		h["Headgate-Poll"] = []string{"1"}
		fallthrough
	default:
		if solution := v.solution(); solution != "" && ask != AskServed {
			h["Headgate-Solution"] = []string{solution}
		}
		h["Accept"] = []string{"application/json"}
		if v.crowd.cfg.Mode == ModePage {
			h["Sec-Fetch-Mode"] = []string{"cors"}
			h["Sec-Fetch-Dest"] = []string{"empty"}
		}
	}
	if cookie := v.jar.String(); cookie != "" {
		h["Cookie"] = []string{cookie}
	}
	return h
}

// read extracts the values that this kind of request returns.
func (a *answer) read(ask Ask, resp *http.Response) error {
	switch {
	case a.state == "" && (ask == AskPage || ask == AskJSON):
		return nil
	case ask == AskPage:
		return a.readPage(resp)
	}
	var body struct {
		told
		Headgate *told `json:"headgate"`
	}
	dec := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer))
	err := notOurs(dec.Decode(&body))
	a.told = body.told
	if ask != AskServed && body.Headgate != nil {
		a.told = *body.Headgate
	}
	a.state = a.told.State
	a.pollAfter = seconds(a.told.PollAfter)
	switch {
	case err == nil && a.state != "":
		return nil
	case err != nil && !errors.Is(err, errNotOurs):
		return err
	case ask == AskPoll && a.status < 500 && a.status != http.StatusTooManyRequests:
		// The room has no line any more: the page reloads, and so does the visitor.
		a.state = stateCalled
		return nil
	}
	return errNotOurs
}

// viewMark precedes the first answer, which is embedded in the page.
const viewMark = `id="view">`

// readPage reads the answer in a waiting page. An operator's own page may have none; then
// Retry-After sets the next poll.
func (a *answer) readPage(resp *http.Response) error {
	page, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	a.pollAfter = retryAfter(resp.Header.Get("Retry-After"))
	_, view, ok := bytes.Cut(page, []byte(viewMark))
	var t told
	if ok && json.NewDecoder(bytes.NewReader(view)).Decode(&t) == nil && t.State != "" {
		a.told, a.state, a.pollAfter = t, t.State, seconds(t.PollAfter)
	}
	return nil
}

// notOurs distinguishes a foreign body from one that was cut off in transit.
func notOurs(err error) error {
	if err == nil {
		return nil
	}
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, kind := errors.AsType[*json.UnmarshalTypeError](err)
	if syntax || kind || errors.Is(err, io.EOF) {
		return errNotOurs
	}
	return fmt.Errorf("read answer: %w", err)
}

// retryAfter reads the form in seconds. The page needs no other.
func retryAfter(s string) time.Duration {
	n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil {
		return 0
	}
	return seconds(n)
}

// seconds converts without overflow, even if the server sends a wrong value.
func seconds(s float64) time.Duration {
	const day = 24 * 60 * 60
	if math.IsNaN(s) {
		return 0
	}
	return time.Duration(min(max(s, 0), day) * float64(time.Second))
}

// kindOf maps errors to few kinds, so that they can be counted.
func kindOf(err error) string {
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return "timeout"
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.EADDRNOTAVAIL):
		return "out of sockets"
	case errors.Is(err, ErrForeign):
		return ErrForeign.Error()
	case errors.Is(err, errNotOurs):
		return errNotOurs.Error()
	}
	return "other network error"
}

// A Jar holds the newest value of each cookie name. A slice is enough, because a room has one
// cookie. It may be used by one goroutine at a time.
type Jar struct{ names, values []string }

// Keep stores the cookies of Set-Cookie lines.
func (j *Jar) Keep(lines []string) {
	for _, line := range lines {
		c, err := http.ParseSetCookie(line)
		if err != nil {
			continue
		}
		j.drop(c.Name)
		if c.MaxAge < 0 || (!c.Expires.IsZero() && c.Expires.Unix() <= 0) {
			continue
		}
		j.names = append(j.names, c.Name)
		j.values = append(j.values, c.Value)
	}
}

func (j *Jar) drop(name string) {
	for i, n := range j.names {
		if n == name {
			j.names = append(j.names[:i], j.names[i+1:]...)
			j.values = append(j.values[:i], j.values[i+1:]...)
			return
		}
	}
}

// String returns the Cookie header, or "" when there is none to send.
func (j *Jar) String() string {
	var b strings.Builder
	for i, n := range j.names {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(n + "=" + j.values[i])
	}
	return b.String()
}
