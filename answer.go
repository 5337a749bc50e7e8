package headgate

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/ticket"
)

// Headers of the wire contract.
const (
	// PollHeader marks the page's own poll: a GET of the same address that is
	// never let through and always answered in JSON.
	PollHeader = "Headgate-Poll"
	// StateHeader tells a waiting answer from an origin's own.
	StateHeader = "Headgate-State"
	// CommandHeader of an origin's answer commands headgate: "revoke" ends the
	// visitor's stay. CloudflareCommandHeader does the same.
	CommandHeader           = "Headgate-Command"
	CloudflareCommandHeader = "Cf-Waiting-Room-Command"
)

// ticketLife is how long a waiting cookie lives in the browser; the place
// itself is held by the room.
const ticketLife = 24 * time.Hour

// bodyPatience is how long the body of a request that is made to wait may take
// to arrive; it is thrown away. Chosen.
const bodyPatience = 5 * time.Second

// Navigates reports whether the request opens a page: only such a request may be
// answered with one.
func Navigates(r *http.Request) bool {
	if m := r.Header.Get("Sec-Fetch-Mode"); m != "" {
		return m == "navigate"
	}
	get := r.Method == http.MethodGet || r.Method == http.MethodHead
	return get && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// phone guesses whether the visitor's device falls asleep.
func phone(r *http.Request) bool {
	if r.Header.Get("Sec-CH-UA-Mobile") == "?1" {
		return true
	}
	ua := r.UserAgent()
	return strings.Contains(ua, "Mobile") || strings.Contains(ua, "Android")
}

// prefersJSON negotiates by quality value; HTML wins a tie, nothing at all is
// no preference.
func prefersJSON(accept string) bool {
	if accept == "application/json" {
		return true
	}
	json, html := -1.0, -1.0
	for range 16 { // more alternatives than any client sends
		var part string
		part, accept, _ = strings.Cut(accept, ",")
		kind, params, _ := strings.Cut(part, ";")
		q := 1.0
		if _, after, ok := strings.Cut(params, "q="); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(after), 64)
			if err != nil || v < 0 || v > 1 {
				v = 0
			}
			q = v
		}
		switch kind = strings.TrimSpace(kind); {
		case strings.EqualFold(kind, "application/json"):
			json = max(json, q)
		case strings.EqualFold(kind, "text/html"):
			html = max(html, q)
		}
		if accept == "" {
			break
		}
	}
	return json > 0 && json > html
}

// newCookie makes the room's cookie. age is in seconds; below 0 deletes it.
func (f *face) newCookie(name, value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: name, Value: value, Path: f.cfg.Path, MaxAge: age,
		HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
}

// setCookie seals the request's token into the visitor's cookie.
func (r *Room) setCookie(q *visitRequest) {
	age := ticketLife
	if q.tok.Kind == ticket.Pass {
		age = max(ticketLife, 2*q.f.cfg.SessionDuration) // its end is inside, in counter time
	}
	var buf [ticket.MaxLen]byte
	name := q.f.cookieName(q.r)
	sealed := string(r.keys.Load().Seal(buf[:0], q.f.cfg.Name, &q.tok))
	c := q.f.newCookie(name, sealed, int(age.Seconds()))
	c.Secure = q.f.cfg.Secure(q.r)
	h := q.w.Header()
	h["Set-Cookie"] = append(slices.DeleteFunc(h["Set-Cookie"], func(old string) bool {
		return strings.HasPrefix(old, name+"=")
	}), c.String())
}

// wait answers a request that is made to wait.
func (r *Room) wait(q *visitRequest, p *counter.Place, s State) {
	v := r.view(q, p, s)
	r.show(q, v)
	if q.r.ContentLength != 0 { // the server reads on to the end of a body: not for ever
		http.NewResponseController(q.w).SetReadDeadline(time.Now().Add(bodyPatience))
	}
	h := q.w.Header()
	h["Cache-Control"] = noStore
	h["Vary"] = vary
	h["X-Robots-Tag"] = noIndex
	h[StateHeader] = []string{string(s)}
	secs := strconv.FormatInt(int64((v.PollAfter+time.Second-1)/time.Second), 10)
	h["Retry-After"] = []string{secs}
	code := q.f.cfg.StatusCode
	switch {
	case q.peek:
		r.waitJSON(q, v, http.StatusOK)
	case Navigates(q.r) && !prefersJSON(q.r.Header.Get("Accept")):
		for name, value := range q.f.cfg.Page.Header() {
			h.Set(name, value)
		}
		h["Content-Type"] = htmlType
		if q.f.cfg.RefreshHeader {
			h.Set("Refresh", secs)
		}
		buf := r.buffer()
		if err := q.f.cfg.Page.Render(buf, v); err != nil {
			q.f.cfg.Log.Error("waiting page not rendered", "room", q.f.cfg.Name, "error", err)
		}
		h["Content-Length"] = []string{strconv.Itoa(buf.Len())}
		q.w.WriteHeader(code)
		q.w.Write(buf.Bytes())
		r.bufs.Put(buf)
	case prefersJSON(q.r.Header.Get("Accept")):
		r.waitJSON(q, v, code)
	default: // a script, an image, a form: it must not take the answer for its own
		if code == http.StatusOK || code == http.StatusAccepted {
			code = http.StatusServiceUnavailable
		}
		h["Content-Type"] = textType
		q.w.WriteHeader(code)
		io.WriteString(q.w, "This site is full at the moment. Try again in "+secs+" s.\n")
	}
	r.counts.waited.Add(1)
}

// show sees to it that no visitor ever reads a higher position than before: the
// cookie remembers the lowest. Only a position that fell costs a cookie.
func (r *Room) show(q *visitRequest, v *View) {
	if v.Number == 0 || v.Position <= 0 {
		return
	}
	if least := int64(q.tok.Shown); least > 0 && v.Position >= least {
		v.Position, v.Ahead = least, least-1
		return
	}
	q.tok.Shown = uint32(min(v.Position, math.MaxUint32))
	r.setCookie(q)
}

// Shared header values: assigned, never changed.
var (
	noStore  = []string{"no-store"}
	vary     = []string{"Cookie, Accept, Sec-Fetch-Mode"}
	noIndex  = []string{"noindex"}
	htmlType = []string{"text/html; charset=utf-8"}
	textType = []string{"text/plain; charset=utf-8"}
	jsonType = []string{"application/json"}
)

func (r *Room) waitJSON(q *visitRequest, v *View, code int) {
	buf := r.buffer()
	buf.Write(appendView(buf.AvailableBuffer(), v))
	h := q.w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(buf.Len())}
	q.w.WriteHeader(code)
	q.w.Write(buf.Bytes())
	r.bufs.Put(buf)
}

// buffer is an empty buffer: each answer is one write of a known length.
func (r *Room) buffer() *bytes.Buffer {
	if buf, ok := r.bufs.Get().(*bytes.Buffer); ok {
		buf.Reset()
		return buf
	}
	return new(bytes.Buffer)
}

// view says what a visitor is told.
func (r *Room) view(q *visitRequest, p *counter.Place, s State) *View {
	l := r.live.Load()
	v := &View{
		Room: q.f.cfg.Title, State: s, Method: "fifo",
		Position: p.Position, Ahead: p.Ahead, Waiting: p.Waiting, Served: p.Served,
		PollAfter: p.PollAfter, ServedURL: q.f.served, RoomPath: q.f.cfg.Path,
		Message: l.message, UpdatedAt: q.f.cfg.Wall(), QueueAll: l.queueAll,
		Full: s == StateFull,
	}
	if p.ETA.Known && !l.holds() {
		v.ETAKnown, v.ETA, v.ETALow, v.ETAHigh = true, p.ETA.Expect, p.ETA.Low, p.ETA.High
	}
	if s == StateOpensSoon {
		v.OpensAt = q.f.cfg.OpensAt
	}
	if q.has && q.tok.Kind == ticket.Ticket && q.tok.ID > 0 {
		v.Number, v.JoinedAt = q.tok.ID, int64(q.tok.Joined)
		v.Ticket = shortID(q.tok.Life, q.tok.ID)
	}
	if v.PollAfter <= 0 {
		v.PollAfter = q.f.cfg.PollMin
	}
	return v
}

// plainPage is the page of a library user who brings none.
type plainPage struct{}

func (plainPage) Header() map[string]string {
	return map[string]string{"Content-Security-Policy": "default-src 'none'"}
}

func (plainPage) Render(w io.Writer, v *View) error {
	_, err := fmt.Fprintf(w, "<!doctype html><html lang=en><meta charset=utf-8>"+
		"<meta http-equiv=refresh content=%d><title>Please wait</title>"+
		"<p>You are in line. People ahead of you: %d.</p></html>",
		int(v.PollAfter/time.Second)+1, v.Ahead)
	return err
}
