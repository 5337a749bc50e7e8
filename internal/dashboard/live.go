package dashboard

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Bounds of streams. Chosen: the pages of a team, and of one operator on several screens.
const (
	mostStreams = 64
	mostOfOne   = 8                // of one session; all that have none are one
	slowest     = 10 * time.Second // that a page may take for what a second brings
)

// streams counts those that are open.
type streams struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// open counts one more, unless there are too many.
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

// reader tells which rooms who asks may read, nil for none, and by which session.
func (d *Dashboard) reader(r *http.Request) (session string, may func(room string) bool) {
	s, _, ok := d.sessionOf(r)
	if ok {
		session = hashed(secretOf(r))
	}
	return session, d.cfg.API.ReadableRooms(s.token, r)
}

func refuseReader(w http.ResponseWriter) {
	refuse(w, refusal{Status: http.StatusUnauthorized, Code: "signed_out",
		Detail: "nobody is signed in here", Hint: "sign in with a token"})
}

// live is GET live: all rooms that may be read at a glance, or with ?room=NAME one of them whole, each
// second, as server-sent events. An open stream is a page that somebody looks at: its session is used.
func (d *Dashboard) live(w http.ResponseWriter, r *http.Request) {
	session, may := d.reader(r)
	if may == nil {
		refuseReader(w)
		return
	}
	if !d.streams.open(session) {
		w.Header().Set("Retry-After", "5")
		refuse(w, refusal{Status: http.StatusTooManyRequests, Code: "too_many_streams",
			Detail: "too many pages are open", Hint: "close some of them"})
		return
	}
	defer d.streams.close(session)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold it back
	v := viewer{one: r.URL.Query().Get("room")}
	// Which session this is for comes first: the page may believe in one that has ended meanwhile.
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
			send(w, []byte("event: end\ndata: {}\n\n")) // the page says so, and asks for a token
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

// send writes to a page, and gives up on one that does not read.
func send(w http.ResponseWriter, b []byte) bool {
	c := http.NewResponseController(w)
	c.SetWriteDeadline(time.Now().Add(slowest)) // a server that does not know deadlines is one of a test
	if _, err := w.Write(b); err != nil {
		return false
	}
	return c.Flush() == nil
}

// history is GET history?room=NAME: the last ten minutes by the second, in columns.
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
			Detail: "there is no such room, or this token may not read it", Hint: "choose one of the list"})
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
		} {
			all[name] = append(all[name], v)
		}
	}
	writeJSON(w, http.StatusOK, all)
}
