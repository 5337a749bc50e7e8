package dashboard

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/api"
)

// Prefix is the path of the dashboard.
const Prefix = "/dashboard/"

// policy is the page's Content-Security-Policy. It allows only the page's own files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// A Config is what New needs.
type Config struct {
	API   *api.API
	Rooms func() []Room // current; it must not block
	Log   *slog.Logger
}

// A Dashboard serves the page and its data. Its Run must be running, or nothing is updated.
type Dashboard struct {
	cfg      Config
	mux      *http.ServeMux
	sessions sessions
	attempts attempts
	streams  streams
	runs     chan struct{} // running simulations

	mu    sync.Mutex
	rings map[string]*ring
	now   *moment       // newest
	moved chan struct{} // closed when now has changed, or Run has ended
	ended bool
}

// New returns the dashboard. It starts nothing.
func New(cfg Config) (*Dashboard, error) {
	d := &Dashboard{cfg: cfg, rings: map[string]*ring{}, moved: make(chan struct{}), now: &moment{},
		runs: make(chan struct{}, 1)}
	d.sessions.all = map[string]*session{}
	if err := d.attempts.open(); err != nil {
		return nil, err
	}
	files, err := readFiles()
	if err != nil {
		return nil, err
	}
	d.mux = http.NewServeMux()
	d.mux.Handle(Prefix, files)
	d.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, Prefix, http.StatusFound)
	})
	d.mux.HandleFunc("GET "+Prefix+"session", d.tellSession)
	d.mux.HandleFunc("POST "+Prefix+"session", d.signIn)
	d.mux.HandleFunc("DELETE "+Prefix+"session", d.signOut)
	d.mux.HandleFunc("GET "+Prefix+"live", d.live)
	d.mux.HandleFunc("GET "+Prefix+"history", d.history)
	d.mux.HandleFunc("POST "+Prefix+"whatif", d.whatIf)
	d.mux.Handle(Prefix+"api/", http.StripPrefix(Prefix+"api", http.HandlerFunc(d.toAPI)))
	d.mux.Handle("/", cfg.API)
	return d, nil
}

// ServeHTTP answers the dashboard's own requests, and passes all others to the API.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mux.ServeHTTP(w, r)
}

// Handler answers all requests of admin_listen. It blocks requests from pages of other sites that
// would change something with a session. The first request finds the rooms in their current state.
func (d *Dashboard) Handler() http.Handler {
	d.read(time.Now())
	guarded := http.NewCrossOriginProtection().Handler(d)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := d.mux.Handler(r); pattern == "/" { // requires a token in the request
			d.cfg.API.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		guarded.ServeHTTP(w, r)
	})
}

// toAPI forwards a request of the page to the API, with the token of its session.
func (d *Dashboard) toAPI(w http.ResponseWriter, r *http.Request) {
	d.cfg.API.ServeAs(d.holder(r), w, r)
}

// Run reads the rooms each second until ctx ends; then all streams end.
func (d *Dashboard) Run(ctx context.Context) error {
	defer d.end()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		d.read(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// read records the state of all rooms, and wakes the streams.
func (d *Dashboard) read(now time.Time) {
	rooms := d.cfg.Rooms()
	d.mu.Lock()
	defer d.mu.Unlock()
	m := &moment{number: d.now.number + 1, at: now, before: map[string]glance{}}
	for i := range d.now.shown {
		m.before[d.now.shown[i].Name] = d.now.shown[i].glance
	}
	rings := map[string]*ring{}
	for i := range rooms {
		r := &rooms[i]
		x := d.rings[r.Name]
		if x == nil {
			x = &ring{}
		}
		x.add(now, r)
		rings[r.Name] = x
		m.shown = append(m.shown, showRoom(r, &x.points[(x.next+fine-1)%fine]))
	}
	d.rings, d.now = rings, m
	close(d.moved)
	d.moved = make(chan struct{})
}

func (d *Dashboard) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	close(d.moved)
	d.moved = make(chan struct{})
}

// newest returns the newest moment, and a channel that is closed when there is a newer one; nil
// when there will be none.
func (d *Dashboard) newest() (m *moment, moved <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return nil, nil
	}
	return d.now, d.moved
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has gone
}

// A refusal is an error answer, in the form of the API's problem documents.
type refusal struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Hint   string `json:"hint"`
	Field  string `json:"field,omitempty"` // of a form
}

func refuse(w http.ResponseWriter, p refusal) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}
