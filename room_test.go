package headgate

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/histogram"
	"github.com/headgate/headgate/internal/ticket"
)

// A gate is a room in a bubble with an origin behind it.
type gate struct {
	t      *testing.T
	room   *Room
	h      http.Handler
	mu     sync.Mutex
	inside int // requests the origin has seen
	header http.Header
	slow   time.Duration
	early  bool // it answers before it has read
	stop   context.CancelFunc
	done   chan struct{} // closed when the room has ended
}

func openGate(t *testing.T, cfg RoomConfig) *gate {
	t.Helper()
	start := time.Now()
	if cfg.Name == "" {
		cfg.Name = "shop"
	}
	if cfg.Boot == nil {
		cfg.Boot = func() time.Duration { return time.Since(start) + time.Hour }
	}
	ctx, stop := context.WithCancel(t.Context())
	room, err := OpenRoom(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{t: t, room: room, header: http.Header{}, stop: stop}
	g.h = room.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, partOfPage) {
			return
		}
		g.mu.Lock()
		g.inside++
		g.mu.Unlock()
		if g.early {
			w.WriteHeader(http.StatusOK)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return // as a proxy does whose client sends no more
		}
		maps.Copy(w.Header(), g.header)
		if g.slow > 0 {
			time.Sleep(g.slow)
		}
		fmt.Fprintln(w, "origin", r.URL.Path)
	}))
	g.done = make(chan struct{})
	go func() { room.Run(ctx); close(g.done) }()
	t.Cleanup(func() { <-g.done })
	time.Sleep(10 * time.Millisecond)
	return g
}

// A visitor is a browser with its one cookie.
type visitor struct {
	g      *gate
	cookie string
	accept string
	extra  http.Header
	addr   string
	bare   bool // loads pages alone, and nothing that belongs to them
}

// partOfPage ends the address of a picture that each page of the origin has.
const partOfPage = "/picture-of-the-page.gif"

// loads returns the address of what a browser loads with a new page: an image, with which its new
// cookie comes back. "" is nothing.
func (g *gate) loads(r *http.Request, cookies []*http.Cookie, answer http.Header) string {
	f, keys := g.room.face.Load(), g.room.keys.Load()
	at := f.places.At(r.Host, r.URL.Path)
	if r.Header.Get(PollHeader) != "" || strings.HasPrefix(r.URL.Path, at.Own) {
		return ""
	}
	for _, c := range cookies {
		var tok ticket.Token
		switch {
		case keys.Open(&tok, f.cfg.Name, c.Value) != nil:
		case tok.Kind == ticket.Ticket && answer.Get(StateHeader) != "":
			return at.ConfirmPath
		case tok.Probation && strings.HasSuffix(r.URL.Path, "/"):
			return strings.TrimSuffix(r.URL.Path, "/") + partOfPage
		case tok.Probation:
			return strings.TrimSuffix(at.Path, "/") + partOfPage
		}
	}
	return ""
}

func (g *gate) visitor() *visitor { return &visitor{g: g, accept: "text/html"} }

func (v *visitor) do(method, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(v.g.t.Context(), method, path, nil)
	r.Header.Set("Accept", v.accept)
	maps.Copy(r.Header, v.extra)
	return v.send(r)
}

func (v *visitor) send(r *http.Request) *httptest.ResponseRecorder {
	if v.cookie != "" {
		r.Header.Set("Cookie", v.cookie)
	}
	if v.addr != "" {
		r.RemoteAddr = v.addr
	}
	w := httptest.NewRecorder()
	v.g.h.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		v.cookie = c.Name + "=" + c.Value
		if c.MaxAge < 0 {
			v.cookie = ""
		}
	}
	if path := v.g.loads(r, w.Result().Cookies(), w.Header()); path != "" && !v.bare {
		part := r.Clone(r.Context())
		part.Method, part.URL, part.RequestURI = "GET", &url.URL{Path: path}, path
		part.Header.Set("Accept", "image/*")
		v.send(part)
	}
	return w
}

// in loads the page and reports whether the origin answered.
func (v *visitor) in() bool {
	return strings.HasPrefix(v.do("GET", "/").Body.String(), "origin")
}

// poll is the page's own poll.
func (v *visitor) poll() (m struct {
	State          State    `json:"state"`
	Position       int64    `json:"position"`
	Ahead          int64    `json:"ahead"`
	Waiting        int64    `json:"waiting"`
	ETA            *float64 `json:"eta_seconds"`
	After          float64  `json:"poll_after_seconds"`
	Notice, Slower string
	Ticket         string `json:"ticket"`
	Message        string `json:"message"`
}) {
	old := v.extra
	v.extra = http.Header{PollHeader: {"1"}}
	v.accept = "application/json"
	w := v.do("GET", "/")
	v.extra, v.accept = old, "text/html"
	if decodeHeadgate(v.g.t, w, &m); w.Code != 200 {
		v.g.t.Fatalf("poll: %d", w.Code)
	}
	return m
}

// decodeHeadgate decodes headgate's object of a JSON answer.
func decodeHeadgate(t *testing.T, w *httptest.ResponseRecorder, to any) {
	t.Helper()
	all := struct{ Headgate any }{to}
	if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil {
		t.Fatalf("%d %v: %s", w.Code, err, w.Body)
	}
}

// until polls as instructed until the visitor is called, or for at most d.
func (v *visitor) until(d time.Duration) bool {
	for end := time.Now().Add(d); time.Now().Before(end); {
		p := v.poll()
		if p.State == StateCalled {
			return true
		}
		time.Sleep(time.Duration(p.After * float64(time.Second)))
	}
	return false
}

func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func TestRoom(t *testing.T) {
	cfg := RoomConfig{TotalActiveUsers: 2, NewUsersPerMinute: 100, SessionDuration: time.Minute}
	bubble(t, "lets in what fits and holds the rest", func(t *testing.T) {
		g := openGate(t, cfg)
		a, b, c := g.visitor(), g.visitor(), g.visitor()
		if !a.in() || !b.in() {
			t.Fatal("two fit and were not let in")
		}
		if c.in() {
			t.Fatal("a third was let in")
		}
		if !a.in() || !b.in() || c.in() {
			t.Fatal("those inside stay, the third waits")
		}
		if p := c.poll(); p.State != StateWaiting || p.Position != 1 {
			t.Fatalf("%+v", p)
		}
		if !c.until(70 * time.Second) {
			t.Fatal("the third is not called when a session ends")
		}
		if !c.in() {
			t.Fatal("called and not let in")
		}
	})
	bubble(t, "frees the slot at once when the origin revokes", func(t *testing.T) {
		g := openGate(t, cfg)
		a, b, c := g.visitor(), g.visitor(), g.visitor()
		a.in()
		b.in()
		c.in()
		g.header.Set(CommandHeader, "revoke")
		w := a.do("GET", "/done")
		g.header.Del(CommandHeader)
		if w.Header().Get(CommandHeader) != "" {
			t.Error("the command reached the visitor")
		}
		if !c.until(3*time.Second) || !c.in() {
			t.Fatal("the slot was not freed")
		}
		if a.in() {
			t.Fatal("a revoked visitor came back in")
		}
	})
	bubble(t, "renews a stay with each request", func(t *testing.T) {
		g := openGate(t, cfg)
		a := g.visitor()
		for range 10 {
			if !a.in() {
				t.Fatal("thrown out while active")
			}
			time.Sleep(40 * time.Second)
		}
	})
	bubble(t, "a fixed session ends though it is used", func(t *testing.T) {
		c := cfg
		c.FixedSession, c.TotalActiveUsers = true, 1
		g := openGate(t, c)
		a, b := g.visitor(), g.visitor()
		a.in()
		for range 5 {
			time.Sleep(11 * time.Second)
			if b.in() || !a.in() {
				t.Fatal("the wrong one is inside")
			}
		}
		if !b.until(20*time.Second) || !b.in() || a.in() {
			t.Fatal("the slot did not go to the one who waits")
		}
	})
	bubble(t, "a used ticket never admits again", func(t *testing.T) {
		c := cfg
		c.TotalActiveUsers = 1
		g := openGate(t, c)
		a, b := g.visitor(), g.visitor()
		a.in()
		b.in()
		copied := *b
		if !b.until(70*time.Second) || !b.in() {
			t.Fatal("not called")
		}
		time.Sleep(31 * time.Second) // longer than a lost answer is repeated
		if copied.in() {
			t.Fatal("a copy of the ticket was let in")
		}
	})
}

// only returns the single duration that a histogram holds.
func only(t *testing.T, what string, h *histogram.Histogram) time.Duration {
	t.Helper()
	at, n := 0, int64(0)
	for b, m := range h.Read() {
		if n += m; m > 0 {
			at = b
		}
	}
	if n != 1 {
		t.Fatalf("%s: %d counted, want 1", what, n)
	}
	return histogram.Value(at)
}

// about compares a duration, known to an eighth, with the expected one, with a tolerance for polls.
func about(t *testing.T, what string, got, want, slack time.Duration) {
	t.Helper()
	if (got - want).Abs() > want/8+slack {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestTimesAreCounted(t *testing.T) {
	bubble(t, "of who waited, and of stays that are over", func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Minute,
			Hold: 3 * time.Minute, HoldPhone: 3 * time.Minute})
		a, b := g.visitor(), g.visitor()
		if !a.in() || b.in() {
			t.Fatal("the room is not empty, or not full")
		}
		time.Sleep(10 * time.Second)
		a.in()
		time.Sleep(30 * time.Second)
		a.in()
		began := time.Now()
		if !b.until(3*time.Minute) || !b.in() {
			t.Fatal("not called")
		}
		waited := 40*time.Second + time.Since(began)
		about(t, "waited", only(t, "waited", g.room.Waited), waited, time.Second)
		for range 40 { // somebody must be inside for the room to look
			time.Sleep(5 * time.Second)
			b.in()
		}
		times := g.room
		about(t, "inside", only(t, "inside", times.Inside), 40*time.Second, 0)
		about(t, "silent", only(t, "silent", times.Silent), 30*time.Second, 0)
	})
	bubble(t, "who comes back too late", func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Minute,
			Hold: 3 * time.Minute, HoldPhone: 3 * time.Minute})
		a, b := g.visitor(), g.visitor()
		if !a.in() || b.in() {
			t.Fatal("the room is not empty, or not full")
		}
		for range 40 { // b is silent until its place is gone
			time.Sleep(6 * time.Second)
			a.in()
		}
		if n := g.room.Status().Totals; n.Expired != 1 || n.PlacesBack != 0 {
			t.Errorf("%d places expired, want 1", n.Expired)
		}
		b.in()
		if n := g.room.Status().Totals; n.PlacesBack != 1 || n.Joined != 2 {
			t.Errorf("%d came back, want 1", n.PlacesBack)
		}
		b.do("POST", "/.headgate/leave")
		time.Sleep(80 * time.Second) // past a's end, by less than a session
		a.in()
		if n := g.room.Status().Totals; n.PassesBack != 1 || n.PlacesBack != 1 {
			t.Errorf("%d passes back, want 1", n.PassesBack)
		}
		time.Sleep(10 * time.Minute)
		a.in()
		if n := g.room.Status().Totals; n.PassesBack != 1 {
			t.Error("who comes the next day has not come back")
		}
		if n := g.room.Status(); !n.Hosted {
			t.Error("a room that is alone is hosted elsewhere")
		}
	})
}
