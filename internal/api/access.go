package api

import (
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/wire"
)

// who is the sender of a request and what it may do.
type who struct {
	token Token
	local bool // no token, but on this machine: may read

	zone func(room string) string // Config.Zone
}

func (w who) may(scope, room string) bool {
	if strings.HasPrefix(room, zoneScope) { // a zone scope must not match as the name of a room or queue
		room = ""
	}
	return w.local && scope == scopeRead || w.token.Allows(scope, room)
}

// mayRoom is may for a name that is known to be a room's: a token of its zone is enough.
func (w who) mayRoom(scope, room string) bool {
	if w.may(scope, room) {
		return true
	}
	if w.zone == nil || room == "" || !w.token.zoned() {
		return false
	}
	zone := w.zone(room)
	return zone != "" && w.token.Allows(scope, zoneScope+zone)
}

// String returns the token's id and name, for logs.
func (w who) String() string { return strings.TrimSpace(w.token.ID + " " + w.token.Name) }

// admit identifies the sender and rejects a request that its token does not allow.
func (a *API) admit(c *call, e route) *problem {
	if e.scope == "" {
		return nil
	}
	p := a.identify(c, e)
	switch {
	case p != nil && !a.attempts.take(time.Now()):
		return &problem{Status: http.StatusTooManyRequests, Code: "too_many_attempts",
			Detail: "too many requests without a valid token", Hint: "wait a minute"}
	case p != nil:
		return p
	case c.who.may(e.scope, c.room), e.some && c.who.token.mayAny(e.scope):
		return nil
	case strings.HasPrefix(e.path, "/v1/rooms/") && c.who.mayRoom(e.scope, c.room):
		return nil
	case e.path == originPath && c.who.mayRoom(scopeLoad, c.room): // reportOrigin knows which is needed
		return nil
	case e.scope != scopeRead && !a.refusals.take(c.who.token.ID, time.Now()):
		return &problem{Status: http.StatusTooManyRequests, Code: "too_many_refusals",
			Detail: "too many requests that this token does not allow", Hint: a.tokenHint(c, e.scope)}
	}
	return a.missing(c, e.scope)
}

// missing is the problem of a token without a scope.
func (a *API) missing(c *call, scope string) *problem {
	return &problem{Status: http.StatusForbidden, Code: "scope_missing",
		Detail: "this token does not allow it; the scopes of the token are: " + strings.Join(c.who.token.Scopes, ", "),
		Hint:   a.tokenHint(c, scope)}
}

// identify sets the sender of the call.
func (a *API) identify(c *call, e route) *problem {
	near := local(c.r)
	// The dashboard has checked the session; the token behind it may have been revoked since.
	if hash, ok := c.r.Context().Value(holderKey{}).(string); ok {
		if c.who.token, ok = a.TokenByHash(hash); !ok {
			return &problem{Status: http.StatusUnauthorized, Code: "token_unknown",
				Detail: "the token of this sign-in was revoked or has expired", Hint: "sign in again"}
		}
		return nil
	}
	sent := tokensOf(c.r)
	// Whoever may run programs on this machine reads without a token. A token that is sent counts
	// even then, so that its errors show.
	if len(sent) == 0 && near && e.scope == scopeRead {
		c.who.local = true
		return nil
	}
	p := &problem{Status: http.StatusUnauthorized, Code: "token_missing",
		Detail: "a change needs a token", Hint: a.tokenHint(c, e.scope)}
	if len(sent) == 0 {
		if e.scope == scopeRead {
			p.Detail = "reading needs a token from another machine, through a proxy or under a host name"
		}
		return p
	}
	secret, ok := bearer(sent)
	if !ok {
		p.Code, p.Detail = "token_malformed", "this is not a headgate token"
		return p
	}
	t, found := a.cfg.Tokens.find(secret)
	switch {
	case !found:
		p.Code, p.Detail = "token_unknown", "the token does not exist or was revoked"
		return p
	case t.IsExpired(time.Now()):
		p.Code, p.Detail = "token_expired", "this token has expired"
		return p
	}
	c.who.token = t
	return nil
}

// tokenHint explains how to get a token. Only requests from this machine learn the path of the data
// folder.
func (a *API) tokenHint(c *call, scope string) string {
	s := "create one on the machine that runs headgate: headgate token create --scope " + scope
	if c.room != "" && c.r.Pattern != "" && plainWord(c.room) {
		s += ":" + c.room
	}
	if local(c.r) {
		s += " --data " + a.cfg.Tokens.dir
	}
	return s + "; then send it as Authorization: Bearer hg_…"
}

// tokensOf returns the Authorization headers, or the key headers that older clients of Cloudflare's
// API send.
func tokensOf(r *http.Request) []string {
	sent := r.Header["Authorization"]
	if len(sent) > 0 || !strings.HasPrefix(r.URL.Path, "/client/v4/") {
		return sent
	}
	for _, name := range keyHeaders() {
		for _, key := range r.Header[name] {
			sent = append(sent, "Bearer "+key)
		}
	}
	return sent
}

func keyHeaders() []string { return []string{"X-Auth-Key", "X-Auth-User-Service-Key"} }

// bearer extracts the token from Authorization, which must be sent exactly once.
func bearer(sent []string) (string, bool) {
	if len(sent) != 1 {
		return "", false
	}
	scheme, secret, _ := strings.Cut(sent[0], " ")
	secret = strings.TrimSpace(secret)
	return secret, strings.EqualFold(scheme, "Bearer") && wellFormed(secret)
}

// local reports whether a request comes from this machine itself: over loopback, not through a
// proxy, and not from a web page. HTTP/1.0 counts as a proxy, because old proxies use it and add no
// header (nginx before 1.29.7). A web page can reach 127.0.0.1 under a name of its own that it
// resolves to this address (DNS rebinding). The Host header shows that: only a name can be rebound,
// not an address.
func local(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() || !r.ProtoAtLeast(1, 1) {
		return false
	}
	for name := range r.Header {
		if name == "Via" || wire.ClaimsClient(name) { // it came through a proxy
			return false
		}
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return false
	}
	// Browsers that do not send Sec-Fetch-Site send Origin with cross-origin posts.
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	_, err = netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil || strings.EqualFold(host, "localhost")
}

// A bucket limits requests that are rejected: the attempts without a valid token, of all clients
// together, and for each token the changes that it may not make. Allowed requests never take from a
// bucket, so that guessing does not lock anybody out.
type bucket struct {
	mu   sync.Mutex
	used float64
	at   time.Time
}

// Chosen: enough for an operator's mistakes, while continuous guessing needs a month to push other
// entries out of the audit log.
const (
	attemptsAtOnce    = 20
	attemptsPerSecond = 0.1
)

func (b *bucket) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = max(0, b.used-attemptsPerSecond*max(0, now.Sub(b.at).Seconds()))
	b.at = now
	if b.used+1 > attemptsAtOnce {
		return false
	}
	b.used++
	return true
}

// full reports whether the bucket is unused as of now.
func (b *bucket) full(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used <= attemptsPerSecond*now.Sub(b.at).Seconds()
}

// buckets holds one bucket for each token.
type buckets struct {
	mu  sync.Mutex
	all map[string]*bucket
}

func (b *buckets) take(token string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.all[token]
	if one == nil {
		if b.all == nil {
			b.all = map[string]*bucket{}
		}
		// There are at most maxTokens tokens at a time, but more over time as they are created and
		// revoked.
		if len(b.all) >= maxTokens {
			maps.DeleteFunc(b.all, func(_ string, old *bucket) bool { return old.full(now) })
		}
		one = &bucket{}
		b.all[token] = one
	}
	return one.take(now)
}

// mayZone reports whether the sender has a scope in a zone, or for one room of it.
func (w who) mayZone(scope, zone, room string) bool {
	return w.may(scope, "") || w.token.Allows(scope, zoneScope+zone) ||
		scope == scopeRead && room != "" && w.may(scope, room)
}

// holderKey is the context key of the hash of the token that a signed-in sender holds.
type holderKey struct{}

// TokenByHash returns the token with a hash. ok reports whether it is still valid.
func (a *API) TokenByHash(hash string) (Token, bool) {
	for _, t := range a.cfg.Tokens.current() {
		if t.Hash == hash {
			return t, !t.IsExpired(time.Now())
		}
	}
	return Token{}, false
}
