package api

import (
	"context"
	"net/http"
	"time"
)

// holderKey is where the context of a request has the hash of the token that its sender holds.
type holderKey struct{}

// SignIn is the token of a text, if it is good now and may read anything at all.
func (a *API) SignIn(secret string) (t Token, ok bool) {
	if !wellFormed(secret) {
		return Token{}, false
	}
	t, ok = a.cfg.Tokens.find(secret)
	return t, ok && !t.IsExpired(time.Now()) && t.mayAny(scopeRead)
}

// Holds tells whether the token of a hash is still good, and what is kept of it.
func (a *API) TokenByHash(hash string) (Token, bool) {
	for _, t := range a.cfg.Tokens.current() {
		if t.Hash == hash {
			return t, !t.IsExpired(time.Now())
		}
	}
	return Token{}, false
}

// ServeFor answers a request for the holder of a token, which the request does not carry: it has
// signed in with it. A hash of "" is nobody's: the request is answered as it is.
func (a *API) ServeAs(hash string, w http.ResponseWriter, r *http.Request) {
	for _, name := range append(keyHeaders(), "Authorization") {
		r.Header.Del(name)
	}
	if hash != "" {
		r = r.WithContext(context.WithValue(r.Context(), holderKey{}, hash))
	}
	a.ServeHTTP(w, r)
}

// Reads tells which rooms the holder of a token may read, or who sends a request without one. It
// is nil for none.
func (a *API) ReadableRooms(hash string, r *http.Request) func(room string) bool {
	w := who{local: hash == "" && local(r), zone: a.cfg.Zone}
	if hash != "" {
		t, ok := a.TokenByHash(hash)
		if !ok {
			return nil
		}
		w.token = t
	}
	if !w.local && !w.token.mayAny(scopeRead) {
		return nil
	}
	return func(room string) bool { return w.mayRoom(scopeRead, room) }
}
