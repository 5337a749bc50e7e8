package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/api"
)

// These constants limit sessions. Chosen: an operator's day, and a page left alone over lunch.
const (
	idleEnd      = 30 * time.Minute
	absoluteEnd  = 12 * time.Hour
	mostSessions = 200
)

// These are the names of the cookie. The first one is used over https. Over plain http browsers
// disagree on Secure, which __Host- requires, even for 127.0.0.1. Cookies ignore ports, so package
// proxy hides both names from the origins.
const (
	hostCookie  = "__Host-" + plainCookie
	plainCookie = "headgate-session"
)

// A session is a signed-in browser.
type session struct {
	token string // its hash: the id may be reused by another token
	began time.Time
	seen  time.Time
}

func (s *session) over(now time.Time) bool {
	return now.Sub(s.seen) > idleEnd || now.Sub(s.began) > absoluteEnd
}

// sessions are all sessions, by the hash of their cookie values. A reader of this memory cannot use
// them.
type sessions struct {
	mu  sync.Mutex
	all map[string]*session
}

func hashed(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return string(sum[:])
}

// add begins a session. If there are too many, it ends the least recently used one.
func (s *sessions) add(token string, now time.Time) (secret string) {
	secret = rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, x := range s.all {
		if x.over(now) {
			delete(s.all, key)
		}
	}
	for len(s.all) >= mostSessions {
		oldest := ""
		for key, x := range s.all {
			if oldest == "" || x.seen.Before(s.all[oldest].seen) {
				oldest = key
			}
		}
		delete(s.all, oldest)
	}
	s.all[hashed(secret)] = &session{token: token, began: now, seen: now}
	return secret
}

// find returns a valid session and marks it as used.
func (s *sessions) find(secret string, now time.Time) (found session, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[hashed(secret)]
	if x == nil {
		return session{}, false
	}
	if x.over(now) {
		delete(s.all, hashed(secret))
		return session{}, false
	}
	x.seen = now
	return *x, true
}

func (s *sessions) end(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, hashed(secret))
}

// secure reports whether the browser used https, here or at a proxy in front. A client that lies
// about it only gets a cookie that its own browser may not send back.
func secure(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

func cookieName(r *http.Request) string {
	if secure(r) {
		return hostCookie
	}
	return plainCookie
}

// sameOrigin reports whether a request may come from the dashboard's own page. SameSite is not
// enough: a page at another port of the host is the same site and sends the cookie. Browsers that
// do not send Sec-Fetch-Site send Origin with requests that change something, and with cross-origin
// reads. Those that send neither with a form, such as Firefox before 70, change nothing.
func sameOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none": // none: typed or clicked by the operator
		return true
	case "":
		origin := r.Header.Get("Origin")
		if origin == "" {
			return r.Method == http.MethodGet || r.Method == http.MethodHead
		}
		u, err := url.Parse(origin)
		return err == nil && u.Host == r.Host
	}
	return false
}

// secretOf returns the cookie value of a request. It returns "" without a cookie, and for requests
// of another origin's page.
func secretOf(r *http.Request) string {
	if !sameOrigin(r) {
		return ""
	}
	c, err := r.Cookie(cookieName(r))
	if err != nil {
		return ""
	}
	return c.Value
}

func setCookie(w http.ResponseWriter, r *http.Request, value string) {
	age := int(absoluteEnd / time.Second)
	if value == "" {
		age = -1
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName(r), Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: secure(r), SameSite: http.SameSiteStrictMode})
}

// sessionOf returns the session of a request. A session with an invalid token does not count; what
// may be read without a token stays readable.
func (d *Dashboard) sessionOf(r *http.Request) (found session, of api.Token, ok bool) {
	found, ok = d.sessions.find(secretOf(r), time.Now())
	if ok {
		of, ok = d.cfg.API.TokenByHash(found.token)
	}
	if !ok {
		return session{}, api.Token{}, false
	}
	return found, of, true
}

// holder returns the hash of the token of the request's session, or "".
func (d *Dashboard) holder(r *http.Request) string {
	s, _, _ := d.sessionOf(r)
	return s.token
}
