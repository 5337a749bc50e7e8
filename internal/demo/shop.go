package demo

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/crowd"
)

//go:embed page/shop.html
var shopHTML string

//go:embed page/thanks.html
var thanksHTML string

//go:embed page/shop.css
var shopCSS string

const (
	leavePath   = "/thanks" // ends the session
	guestCookie = "duck"    // identifies people; simulated visitors send a header
	guestPrefix = "guest-"
)

// A shop is the origin behind the room, and the judge of the limits. It knows nothing of headgate
// and records who was there when.
//
// A request counts from the start of its handler to its end. That is inside the time from its first
// byte to its last, so the shop never counts a visitor too long.
type shop struct {
	*site
	url    string
	begun  time.Time
	policy string // Content-Security-Policy

	mu     sync.Mutex
	stays  *stays
	guests int
	let    []time.Time    // times of admissions, the last few minutes
	by     map[string]int // admissions by node
}

// openShop listens on a free loopback port.
func openShop(l Limits) (*shop, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the shop: %w", err)
	}
	now := time.Now()
	s := &shop{
		url: "http://" + ln.Addr().String(), begun: now,
		stays: newStays(now, l.Session, l.AtOnce, l.PerMinute), by: map[string]int{},
	}
	// The style is part of the page. A separate file would be requested after the session has
	// ended, and that request would join the line.
	sum := sha256.Sum256([]byte(shopCSS))
	s.policy = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; " +
		"frame-ancestors 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	s.site = serve(ln, s)
	return s, nil
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", s.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	// Requests that the room passes without counting are no visits: probes, and what browsers and
	// robots request automatically.
	if r.Method != http.MethodGet || strings.HasPrefix(r.URL.Path, "/.well-known/") ||
		r.URL.Path == "/favicon.ico" || r.URL.Path == "/robots.txt" {
		http.NotFound(w, r)
		return
	}
	id := s.begin(w, r)
	last := r.URL.Path == leavePath
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stays.end(id, time.Now(), last)
	}()
	page := shopHTML
	if last {
		page = thanksHTML
		h.Set("Headgate-Command", "revoke")
		http.SetCookie(w, &http.Cookie{Name: guestCookie, Path: "/", MaxAge: -1})
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	io.WriteString(w, strings.Replace(page, "{{css}}", shopCSS, 1))
}

// begin identifies the visitor and records the visit.
func (s *shop) begin(w http.ResponseWriter, r *http.Request) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.Header.Get(crowd.VisitorHeader)
	if id == "" {
		c, err := r.Cookie(guestCookie)
		if err == nil && strings.HasPrefix(c.Value, guestPrefix) && len(c.Value) < 40 {
			id = c.Value
		} else {
			s.guests++
			id = fmt.Sprintf("%s%d-%d", guestPrefix, s.guests, s.begun.UnixMilli())
			http.SetCookie(w, &http.Cookie{Name: guestCookie, Value: id, Path: "/",
				HttpOnly: true, SameSite: http.SameSiteLaxMode})
		}
	}
	now, before := time.Now(), s.stays.count
	s.stays.begin(id, now)
	if s.stays.count > before {
		s.let = append(s.let, now)
		s.by[r.Header.Get(nodeHeader)]++
	}
	return id
}

// A report is what the shop saw.
type report struct {
	Tight, Fresh reach
	Over, Count  int
	Here, Guests int
	Let          []int // admissions in steps of two seconds, newest last
	LastMinute   int
	By           map[string]int // admissions by node; one process: all under ""
	Last         time.Time      // the last admission; zero: not recently
}

// sparks is how many steps of sparkStep a report holds.
const (
	sparks    = 30
	sparkStep = 2 * time.Second
)

// report evaluates everything seen up to now.
func (s *shop) report(now time.Time) report {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stays.tally(now)
	r := report{Tight: s.stays.tight, Fresh: s.stays.fresh, Over: s.stays.over,
		Count: s.stays.count, Let: make([]int, sparks), By: maps.Clone(s.by)}
	r.Here, r.Guests = s.stays.here(now, func(id string) bool {
		return strings.HasPrefix(id, guestPrefix)
	})
	first := len(s.let)
	// Steps are counted from the opening, so that a bar does not change as time passes.
	newest := int(now.Sub(s.begun) / sparkStep)
	for i := len(s.let) - 1; i >= 0 && now.Sub(s.let[i]) < time.Minute+2*sparkStep; i-- {
		first = i
		if at := sparks - 1 - (newest - int(s.let[i].Sub(s.begun)/sparkStep)); at >= 0 {
			r.Let[at]++
		}
		if now.Sub(s.let[i]) < time.Minute {
			r.LastMinute++
		}
	}
	s.let = append(s.let[:0], s.let[first:]...)
	if n := len(s.let); n > 0 {
		r.Last = s.let[n-1]
	}
	return r
}

// limitTo sets the limit that the shop checks the room against.
func (s *shop) limitTo(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stays.limitTo(n, time.Now())
}
