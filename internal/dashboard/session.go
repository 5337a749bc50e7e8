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

// Bounds of sessions. Chosen: an operator's day, and a page left alone over lunch.
const (
	idleEnd      = 30 * time.Minute
	absoluteEnd  = 12 * time.Hour
	mostSessions = 200
)

// The names of the cookie: the first where the browser came by https. By plain http browsers do not
// agree on Secure, which __Host- needs, even for 127.0.0.1. Cookies ignore ports: package proxy
// keeps both names from the origins.
const (
	hostCookie  = "__Host-" + plainCookie
	plainCookie = "headgate-session"
)

// A session is a browser that has signed in.
type session struct {
	token string // its hash: another token of the same id would be another one
	began time.Time
	seen  time.Time
}

func (s *session) over(now time.Time) bool {
	return now.Sub(s.seen) > idleEnd || now.Sub(s.began) > absoluteEnd
}

// sessions are all there are, by the hash of what their cookies say: who reads this memory cannot
// use one.
type sessions struct {
	mu  sync.Mutex
	all map[string]*session
}

func hashed(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return string(sum[:])
}

// add begins a session. When there are too many the one that was not used for longest ends.
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

// find is a session that is not over; it is used now.
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

// secure tells whether the browser came by https, here or at a proxy before. A client that lies
// about it gets a cookie that only its own browser may not send back.
func secure(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

func cookieName(r *http.Request) string {
	if secure(r) {
		return hostCookie
	}
	return plainCookie
}

// sameOrigin reports whether a request may come from the dashboard's own page. A page at another
// port of the host is of the same site, so SameSite lets its requests have the cookie. Browsers that
// send no Sec-Fetch-Site send Origin with all that changes anything, and with what asks to be read.
func sameOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none": // none: by the operator's own hand
		return true
	case "":
		origin := r.Header.Get("Origin")
		u, err := url.Parse(origin)
		return origin == "" || err == nil && u.Host == r.Host
	}
	return false
}

// secretOf is what the cookie of a request says, "" for none, and for what another origin's page
// has sent.
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

// sessionOf is the session of a request. One whose token is no longer good is none: whoever may read
// without a token goes on reading.
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

// holder is the hash of the token whose session a request belongs to, "" for none.
func (d *Dashboard) holder(r *http.Request) string {
	s, _, _ := d.sessionOf(r)
	return s.token
}
