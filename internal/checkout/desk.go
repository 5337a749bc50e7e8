package checkout

import (
	_ "embed"
	"encoding/json"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pages"
	"github.com/headgate/headgate/internal/route"
)

// These are the headers of a room with a checkout.
const (
	PassHeader = "Headgate-Pass"    // of a request to the origin: the signed pass
	EndsHeader = "Headgate-Ends-In" // of a page: seconds until the session ends
)

//go:embed warn.js
var warnJS string

// A Config defines what a room's visitors and origin receive.
type Config struct {
	Room   string
	Places *route.Set    // of the room
	Pass   bool          // requests to the origin carry a signed pass
	Warn   time.Duration // a page warns this long before the end; 0: never
	Renews bool          // each request renews the session
	Step   time.Duration // a new pass must end this much later than the last

	Keys *Keys
	Look func(*http.Request) (headgate.Session, bool)
	Text func(acceptLanguage string) pages.Warning
	Log  *slog.Logger
}

// A Handler wraps a room's handler, before it and inside it.
type Handler struct {
	cfg Config

	mu        sync.Mutex
	now, past map[string]signed // by session: when one is full, it becomes the past
}

// mostSigned limits each of the two maps of cached passes. Chosen: 8 MB at about 800 bytes each. A
// room with more sessions signs some passes more often.
const mostSigned = 5_000

// A signed is the newest pass of a session.
type signed struct {
	token   string
	expires time.Time
}

// New returns the handler of a room. It starts nothing.
func New(c Config) *Handler {
	return &Handler{cfg: c, now: map[string]signed{}}
}

// Before answers requests about sessions that do not count as use of a session; it passes all
// others to next.
func (d *Handler) Before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := d.cfg.Places.Own(r)
		switch {
		case !ok:
			next.ServeHTTP(w, r)
		case name == "jwks.json" && d.cfg.Pass:
			d.cfg.Keys.ServeHTTP(w, r)
		case name == "pass" && d.cfg.Pass:
			d.servePass(w, r)
		case name == "session" && d.cfg.Warn > 0 && r.Method != http.MethodPost:
			if s, ok := d.cfg.Look(r); reads(w, r) {
				d.session(w, r, &s, ok)
			}
		case name == "warn.js" && d.cfg.Warn > 0:
			d.serveScript(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Inside adds the session of an admitted request to what the origin and the visitor's page receive.
// It removes a pass that the client sends itself.
func (d *Handler) Inside(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		delete(r.Header, PassHeader)
		delete(r.Header, "Headgate_pass") // CGI and WSGI cannot distinguish it
		if !d.cfg.Pass && d.cfg.Warn == 0 {
			next.ServeHTTP(w, r)
			return
		}
		s, ok := headgate.SessionOf(w)
		if d.cfg.Warn > 0 {
			if own, _ := d.cfg.Places.Own(r); own == "session" { // a POST uses the session
				d.session(w, r, &s, ok)
				return
			}
		}
		if ok && d.cfg.Pass {
			if token, _, err := d.pass(&s); err == nil {
				r.Header[PassHeader] = []string{token}
			} else {
				d.cfg.Log.Error("pass not signed", "room", d.cfg.Room, "error", err)
			}
		}
		if ok && d.cfg.Warn > 0 && headgate.Navigates(r) {
			w.Header()[EndsHeader] = []string{strconv.FormatInt(wholeSeconds(s.Remaining), 10)}
		}
		next.ServeHTTP(w, r)
	})
}

// pass returns a signed pass of a session: the last one, unless a new one would end Step later.
func (d *Handler) pass(s *headgate.Session) (token string, expires time.Time, err error) {
	end := d.cfg.Keys.now().Add(s.Confirmed)
	if old, ok := d.last(s.ID); ok {
		// The old one ends later after a jump of the wall clock.
		if more := end.Sub(old.expires); -time.Second <= more && more <= d.cfg.Step {
			return old.token, old.expires, nil
		}
	}
	token, expires, err = d.cfg.Keys.Sign(d.cfg.Room, s)
	if err == nil {
		d.keep(s.ID, signed{token, expires})
	}
	return token, expires, err
}

func (d *Handler) last(id string) (old signed, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old, ok = d.now[id]; !ok {
		old, ok = d.past[id]
	}
	return old, ok
}

func (d *Handler) keep(id string, x signed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.now) >= mostSigned {
		d.past, d.now = d.now, map[string]signed{}
	}
	d.now[id] = x
}

// servePass returns to a page's own script the pass that the origin receives.
func (d *Handler) servePass(w http.ResponseWriter, r *http.Request) {
	if !reads(w, r) {
		return
	}
	s, ok := d.cfg.Look(r)
	if !ok {
		answer(w, http.StatusNotFound, map[string]any{"inside": false})
		return
	}
	token, expires, err := d.pass(&s)
	if err != nil {
		d.cfg.Log.Error("pass not signed", "room", d.cfg.Room, "error", err)
		answer(w, http.StatusInternalServerError, map[string]any{"inside": true})
		return
	}
	answer(w, http.StatusOK, map[string]any{"inside": true, "pass": token,
		"expires_at": expires.UTC().Format(time.RFC3339)})
}

// A session is what the page receives about its session.
type session struct {
	Inside  bool          `json:"inside"`
	EndsIn  int64         `json:"ends_in_seconds"`
	HardEnd *int64        `json:"hard_end_in_seconds"` // null: none
	Renews  bool          `json:"renews"`              // a POST here renews the session
	Warn    bool          `json:"warn"`
	WarnAt  int64         `json:"warn_seconds"`
	Text    pages.Warning `json:"text"`
}

func (d *Handler) session(w http.ResponseWriter, r *http.Request, s *headgate.Session, ok bool) {
	x := session{Inside: ok, EndsIn: wholeSeconds(s.Remaining), WarnAt: wholeSeconds(d.cfg.Warn)}
	x.Warn = ok && s.Remaining <= d.cfg.Warn
	x.Renews = ok && d.cfg.Renews && (s.HardRemaining == 0 || s.HardRemaining-s.Remaining > time.Second)
	if s.HardRemaining > 0 {
		n := wholeSeconds(s.HardRemaining)
		x.HardEnd = &n
	}
	x.Text = d.cfg.Text(r.Header.Get("Accept-Language"))
	answer(w, http.StatusOK, &x)
}

func (d *Handler) serveScript(w http.ResponseWriter, r *http.Request) {
	if !reads(w, r) {
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/javascript; charset=utf-8")
	h.Set("Cache-Control", "public, max-age=300")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(warnJS)))
	if r.Method == http.MethodGet {
		w.Write([]byte(warnJS))
	}
}

func answer(w http.ResponseWriter, code int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has gone
}

func wholeSeconds(d time.Duration) int64 { return int64(math.Floor(max(0, d.Seconds()))) }
