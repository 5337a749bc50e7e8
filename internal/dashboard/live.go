package dashboard

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// These constants limit streams. Chosen: the pages of a team, and of one operator on several
// screens.
const (
	mostStreams = 64
	mostOfOne   = 8                // of one session; pages without one share a limit
	slowest     = 10 * time.Second // timeout of the write for one second
)

// A streams counts the open streams.
type streams struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// open adds a stream, unless there are too many.
func (s *streams) open(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= mostStreams || s.of[session] >= mostOfOne {
		return false
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.all++
	s.of[session]++
	return true
}

func (s *streams) close(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[session]--; s.of[session] <= 0 {
		delete(s.of, session)
	}
}

// reader returns which rooms the client may read, nil for none, and its session.
func (d *Dashboard) reader(r *http.Request) (session string, may func(room string) bool) {
	s, _, ok := d.sessionOf(r)
	if ok {
		session = hashed(secretOf(r))
	}
	return session, d.cfg.API.ReadableRooms(s.token, r)
}

func refuseReader(w http.ResponseWriter) {
	refuse(w, refusal{Status: http.StatusUnauthorized, Code: "signed_out",
		Detail: "you are not signed in", Hint: "sign in with a token"})
}

// live handles GET live: an overview of all readable rooms, or with ?room=NAME one of them in full,
// each second, as server-sent events. An open stream counts as use of its session, because somebody
// looks at the page.
func (d *Dashboard) live(w http.ResponseWriter, r *http.Request) {
	session, may := d.reader(r)
	if may == nil {
		refuseReader(w)
		return
	}
	if !d.streams.open(session) {
		w.Header().Set("Retry-After", "5")
		refuse(w, refusal{Status: http.StatusTooManyRequests, Code: "too_many_streams",
			Detail: "too many pages are open", Hint: "close some pages"})
		return
	}
	defer d.streams.close(session)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx buffers the stream
	v := viewer{one: r.URL.Query().Get("room")}
	// The session is sent first, because the page may not know that its session has ended.
	_, of, _ := d.sessionOf(r)
	b := append(append([]byte("event: session\ndata: "), of.ID...), "\n\n"...)
	if !send(w, b) {
		return
	}
	for {
		m, moved := d.newest()
		if m == nil {
			return
		}
		now, may := d.reader(r)
		if may == nil || now != session {
			send(w, []byte("event: end\ndata: {}\n\n")) // the page then requests a token
			return
		}
		if b = v.event(b[:0], m, may); !send(w, b) {
			return
		}
		if !wait(r.Context(), moved) {
			return
		}
	}
}

func wait(ctx context.Context, moved <-chan struct{}) bool {
	select {
	case <-moved:
		return true
	case <-ctx.Done():
		return false
	}
}

// send writes to a page, and fails if the page does not read.
func send(w http.ResponseWriter, b []byte) bool {
	c := http.NewResponseController(w)
	c.SetWriteDeadline(time.Now().Add(slowest)) // an error means a test server without deadlines
	if _, err := w.Write(b); err != nil {
		return false
	}
	return c.Flush() == nil
}

// history handles GET history?room=NAME: the last ten minutes by the second, in columns.
func (d *Dashboard) history(w http.ResponseWriter, r *http.Request) {
	_, may := d.reader(r)
	name := r.URL.Query().Get("room")
	if may == nil {
		refuseReader(w)
		return
	}
	d.mu.Lock()
	x := d.rings[name]
	var points []point
	if x != nil && may(name) {
		points = x.seconds()
	}
	d.mu.Unlock()
	if points == nil {
		refuse(w, refusal{Status: http.StatusNotFound, Code: "no_such_room",
			Detail: "there is no such room, or this token may not read it", Hint: "choose a room of the list"})
		return
	}
	type column = []float64
	all := map[string]column{}
	for i := range points {
		p := &points[i]
		for name, v := range map[string]float64{
			"at": float64(p.at), "active": float64(p.active), "waiting": float64(p.waiting),
			"minute": float64(p.minute), "limit": float64(p.limit), "per_minute": float64(p.perMinute),
			"answers": float64(p.answers), "errors": float64(p.errors), "took": p.took,
			"found": float64(p.found), "knee": p.knee, "signal": p.signal,
		} {
			all[name] = append(all[name], v)
		}
	}
	writeJSON(w, http.StatusOK, all)
}
