package api

import (
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// who is the sender of a request.
type who struct {
	token Token
	local bool // no token, but from this machine: may read

	zone func(room string) string // of Config
}

func (w who) may(scope, room string) bool {
	if strings.HasPrefix(room, zoneScope) { // no room or queue, though a token of the zone has this scope
		room = ""
	}
	return w.local && scope == scopeRead || w.token.Allows(scope, room)
}

// mayRoom is may for what is surely a room: the token of its zone will do.
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

// String is the token's id and name, for logs.
func (w who) String() string { return strings.TrimSpace(w.token.ID + " " + w.token.Name) }

// admit finds out who asks and refuses who may not.
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
	case e.scope != scopeRead && !a.refusals.take(c.who.token.ID, time.Now()):
		return &problem{Status: http.StatusTooManyRequests, Code: "too_many_refusals",
			Detail: "too many changes that this token may not make", Hint: a.tokenHint(c, e)}
	}
	return &problem{Status: http.StatusForbidden, Code: "scope_missing",
		Detail: "this token may not: it has the scope " + strings.Join(c.who.token.Scopes, ", "),
		Hint:   a.tokenHint(c, e)}
}

// identify fills in who asks.
func (a *API) identify(c *call, e route) *problem {
	near := local(c.r)
	if hash, ok := c.r.Context().Value(holderKey{}).(string); ok {
		if c.who.token, ok = a.TokenByHash(hash); !ok {
			return &problem{Status: http.StatusUnauthorized, Code: "token_unknown",
				Detail: "the token that has signed in was revoked, or has expired", Hint: "sign in again"}
		}
		return nil
	}
	sent := tokensOf(c.r)
	if len(sent) == 0 && near && e.scope == scopeRead {
		c.who.local = true
		return nil
	}
	p := &problem{Status: http.StatusUnauthorized, Code: "token_missing",
		Detail: "a change needs a token", Hint: a.tokenHint(c, e)}
	if len(sent) == 0 {
		if e.scope == scopeRead {
			p.Detail = "reading from another machine, through a proxy or under a host name needs a token"
		}
		return p
	}
	secret, ok := bearer(sent)
	if !ok {
		p.Code, p.Detail = "token_malformed", "this is not a token of headgate"
		return p
	}
	t, found := a.cfg.Tokens.find(secret)
	switch {
	case !found:
		p.Code, p.Detail = "token_unknown", "no such token, or it was revoked"
		return p
	case t.IsExpired(time.Now()):
		p.Code, p.Detail = "token_expired", "this token has expired"
		return p
	}
	c.who.token = t
	return nil
}

// tokenHint says how to come by a token. The path of the data folder is told to
// this machine alone.
func (a *API) tokenHint(c *call, e route) string {
	s := "make one on the machine of headgate: headgate token create --scope " + e.scope
	if c.room != "" && c.r.Pattern != "" && plainWord(c.room) {
		s += ":" + c.room
	}
	if local(c.r) {
		s += " --data " + a.cfg.Tokens.dir
	}
	return s + "; then send it as Authorization: Bearer hg_…"
}

// tokensOf are what was sent as Authorization, or as a key to Cloudflare's API by its older clients.
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

// bearer takes the token out of Authorization, which must stand there once.
func bearer(sent []string) (string, bool) {
	if len(sent) != 1 {
		return "", false
	}
	scheme, secret, _ := strings.Cut(sent[0], " ")
	secret = strings.TrimSpace(secret)
	return secret, strings.EqualFold(scheme, "Bearer") && wellFormed(secret)
}

// forwarded are headers that proxies add: behind one, who connects from this
// machine is not who asks.
func forwarded() []string {
	return strings.Fields(`Forwarded Via X-Real-Ip X-Client-Ip X-Cluster-Client-Ip X-Original-Host
		Cf-Connecting-Ip True-Client-Ip Fastly-Client-Ip Fly-Client-Ip`)
}

// local tells whether a request comes from this machine by itself: over
// loopback, not through a proxy, and not from a web page. HTTP/1.0 is the voice of
// old proxies that add no header (nginx before 1.29.7). A page can reach
// 127.0.0.1 under a name of its own that it lets resolve to it (DNS rebinding):
// the Host gives it away, for an address cannot be rebound.
func local(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() || !r.ProtoAtLeast(1, 1) {
		return false
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded") || slices.Contains(forwarded(), name) {
			return false
		}
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return false
	}
	// Browsers that say no Sec-Fetch-Site say Origin with what is posted across origins.
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

// A bucket bounds what is refused: the attempts without a valid token, of all
// clients together, and for each token the changes it may not make. What is allowed
// never draws from one, so that who guesses shuts out nobody.
type bucket struct {
	mu   sync.Mutex
	used float64
	at   time.Time
}

// Chosen: an operator's slips fit, and who does nothing but guess needs a month
// to push what others did out of the audit log.
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

// full tells whether the bucket would be as new at now.
func (b *bucket) full(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used <= attemptsPerSecond*now.Sub(b.at).Seconds()
}

// buckets are one for each token.
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
		// There are maxTokens at a time, but more of them as they come and go.
		if len(b.all) >= maxTokens {
			maps.DeleteFunc(b.all, func(_ string, old *bucket) bool { return old.full(now) })
		}
		one = &bucket{}
		b.all[token] = one
	}
	return one.take(now)
}
