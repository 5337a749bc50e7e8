package pages

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// welcome replaces the origin's page in a preview of a room that admits everyone.
const welcome = "<!doctype html>\n<html lang=\"en\"><title>Welcome</title><h1>Welcome</h1>\n"

// A Preview is a page as a visitor would receive it.
type Preview struct {
	Header http.Header
	Body   []byte
}

// Preview renders the page with example values. The parameters are those of Cloudflare's preview:
// force_queue, queue_is_full, queueing_method, event, shuffle_at_event_start and waitTime. headgate
// adds event_name, state, language, title, message and position. title is the room's title.
func (p *Page) Preview(title string, q url.Values) (*Preview, error) {
	v := headgate.View{
		Room: title, State: headgate.StateWaiting, Method: "fifo", Position: 1205, Waiting: 3410,
		JoinedPosition: 2310, PollAfter: noRefresh, Ticket: "K7Q2-9F", UpdatedAt: time.Now(),
		RoomPath: cmp.Or(p.config.Path, "/"),
	}
	r := reader{q: q}
	force := r.truth("force_queue")
	v.Full = r.truth("queue_is_full")
	v.Method = r.word("queueing_method", "fifo", "random", "passthrough", "reject")
	event := r.word("event", "none", "prequeueing", "started")
	v.Event.Shuffle, v.Event.Name = r.truth("shuffle_at_event_start"), r.text("event_name", "")
	wait := r.number("waitTime", 10)
	v.Position = r.number("position", v.Position)
	state := r.word("state", "", string(headgate.StateWaiting), string(headgate.StateFull),
		string(headgate.StateQueueAll), string(headgate.StateClosed), string(headgate.StateOpensSoon),
		string(headgate.StateDown), string(headgate.StateNoCookie), string(headgate.StateCalled),
		string(headgate.StateLimited), string(headgate.StateLeft), string(headgate.StateMoved))
	v.AcceptLanguage = r.text("language", "")
	v.Room, v.Message = r.text("title", v.Room), r.text("message", "")
	if err := r.end(); err != nil {
		return nil, err
	}
	if v.Event.Shuffle && event == "none" {
		return nil, fmt.Errorf("shuffle_at_event_start needs an event: add event=prequeueing")
	}
	v.Ahead, v.JoinedPosition = v.Position-1, max(v.JoinedPosition, v.Position)
	v.ETA = time.Duration(wait) * time.Minute
	v.ETALow, v.ETAHigh = v.ETA*3/4, v.ETA*5/4
	if event != "none" {
		v.Event.Active, v.Event.Prequeue = true, event == "prequeueing"
		v.Event.StartsAt, v.Event.EndsAt = v.UpdatedAt.Add(10*time.Minute), v.UpdatedAt.Add(time.Hour)
	}
	if v.Event.Shuffle { // from a seed of zeros
		v.Number, v.Event.Draw = 2310, strings.Repeat("0", 64)+"/1001/4411"
		if v.Event.Prequeue {
			v.Event.Draw = "66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925"
		}
	}
	if v.Method == "passthrough" && !force && !v.Event.Prequeue {
		return &Preview{previewHeader(http.Header{"Content-Type": {"text/html; charset=utf-8"}}, false),
			[]byte(welcome)}, nil
	}
	v.QueueAll = force
	v.State = previewState(&v, headgate.State(state))
	v.ETAKnown = v.State == headgate.StateWaiting && !v.Full
	var b bytes.Buffer
	if err := p.Render(&b, &v); err != nil {
		return nil, err
	}
	return &Preview{previewHeader(p.Header(&v), p.ownOf(&v) != nil), b.Bytes()}, nil
}

// previewHeader restricts what a page can do at the address of the management API, where operators
// have sessions. A preview is untrusted markup, written by anyone who may edit the room. The header
// adds a separate policy before the page's own, so that the page's policy cannot weaken it. The
// page gets an origin of its own (never allow-same-origin), sends nothing, and only the dashboard
// may frame it. The script of the default page cannot poll there and does not run.
func previewHeader(page http.Header, scripts bool) http.Header {
	const policy = "Content-Security-Policy"
	h := maps.Clone(page)
	delete(h, "Refresh")
	own := "sandbox"
	if scripts {
		own = "sandbox allow-scripts"
	}
	h[policy] = []string{own + previewed}
	if rest := strings.TrimSuffix(page.Get(policy), notFramed); rest != "" {
		h[policy] = append(h[policy], rest)
	}
	h.Set("Referrer-Policy", "no-referrer") // the address gives access to the preview
	h.Set("X-Content-Type-Options", "nosniff")
	return h
}

// previewed ends the policy of a preview: the preview sends no requests except to load what it
// shows.
const previewed = "; connect-src 'none'; form-action 'none'; worker-src 'none'; object-src 'none'; " +
	"base-uri 'none'; frame-ancestors 'self'"

// previewState returns the state that a room with these values would be in.
func previewState(v *headgate.View, asked headgate.State) headgate.State {
	var s headgate.State
	switch {
	case v.Event.Prequeue:
		s = headgate.StateOpensSoon
	case v.QueueAll:
		s = headgate.StateQueueAll
	case v.Method == "reject":
		s = headgate.StateClosed
	case v.Full:
		s = headgate.StateFull
	}
	s = cmp.Or(asked, s, headgate.StateWaiting)
	switch s {
	case headgate.StateFull, headgate.StateClosed, headgate.StateNoCookie, headgate.StateLimited,
		headgate.StateLeft, headgate.StateMoved:
		v.Position, v.Ahead, v.JoinedPosition, v.Ticket = 0, 0, 0, ""
	case headgate.StateOpensSoon:
		v.OpensAt = v.UpdatedAt.Add(10 * time.Minute)
	}
	return s
}

// A reader reads query parameters, each once, and keeps the first error.
type reader struct {
	q    url.Values
	read []string
	err  error
}

func (r *reader) text(name, otherwise string) string {
	r.read = append(r.read, name)
	return cmp.Or(r.q.Get(name), otherwise)
}

func (r *reader) fail(name, want string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s is %.40q: write %s", name, r.q.Get(name), want)
	}
}

func (r *reader) truth(name string) bool {
	b, err := strconv.ParseBool(r.text(name, "false"))
	if err != nil {
		r.fail(name, "true or false")
	}
	return b
}

// word reads a parameter with a fixed set of values; the first one is the default.
func (r *reader) word(name string, words ...string) string {
	w := r.text(name, words[0])
	if !slices.Contains(words, w) {
		r.fail(name, "one of "+strings.TrimPrefix(strings.Join(words, ", "), ", "))
	}
	return w
}

func (r *reader) number(name string, otherwise int64) int64 {
	n, err := strconv.ParseInt(r.text(name, strconv.FormatInt(otherwise, 10)), 10, 32)
	if err != nil || n < 1 {
		r.fail(name, "a whole number of 1 or more")
	}
	return n
}

// end returns the first error, which may be a parameter that nothing has read.
func (r *reader) end() error {
	for name := range r.q {
		if r.err == nil && !slices.Contains(r.read, name) {
			return fmt.Errorf("there is no parameter %.40q; the parameters are %s", name, strings.Join(r.read, ", "))
		}
	}
	return r.err
}
