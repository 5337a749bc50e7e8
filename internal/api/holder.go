package api

import (
	"context"
	"net/http"
	"time"
)

// SignIn returns the token of a text. ok reports whether it is valid now and may read anything at
// all.
func (a *API) SignIn(secret string) (t Token, ok bool) {
	if !wellFormed(secret) {
		return Token{}, false
	}
	t, ok = a.cfg.Tokens.find(secret)
	return t, ok && !t.IsExpired(time.Now()) && t.mayAny(scopeRead)
}

// ServeAs answers a request on behalf of the holder of a token, who has signed in with it, so that
// the request does not contain it. With the hash "" the request is answered without a token.
func (a *API) ServeAs(hash string, w http.ResponseWriter, r *http.Request) {
	for _, name := range append(keyHeaders(), "Authorization") {
		r.Header.Del(name)
	}
	if hash != "" {
		r = r.WithContext(context.WithValue(r.Context(), holderKey{}, hash))
	}
	a.ServeHTTP(w, r)
}

// ReadableRooms returns a function that reports which rooms the holder of a token, or the sender of
// a request without one, may read. It returns nil if they may read none.
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
