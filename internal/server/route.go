package server

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/forwardauth"
	"github.com/headgate/headgate/internal/guard"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/holders"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/invite"
	"github.com/headgate/headgate/internal/paths"
	"github.com/headgate/headgate/internal/platform"
	"github.com/headgate/headgate/internal/proxy"
	"github.com/headgate/headgate/internal/route"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/ratelimit"
)

// route finds the most specific room for a request. If the readings of its path belong to different
// rooms, the request goes on only if all of these rooms accept paths as they come, and then it
// passes through all of them.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	s.routeBy(w, r, func(g *gate) http.Handler { return g.handler }, forwards)
}

// decide returns the handler of proxies that ask about requests.
func (s *Server) decide() *forwardauth.Handler {
	return &forwardauth.Handler{
		Trusts: func(r *http.Request) bool { return fromTrusted(r, s.set.Load().cfg.TrustedProxies) },
		Relay:  http.HandlerFunc(s.relay),
		Check: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.routeBy(w, r, func(g *gate) http.Handler { return g.check }, checks)
		}),
		Connect: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.dropVouched(r)
			s.routeBy(w, r, func(g *gate) http.Handler { return g.connect }, relays)
		}),
		Renew: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.routeBy(w, r, func(g *gate) http.Handler { return g.renew }, checks)
		}),
		Revoke: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// Of rooms that overlap, the origin's command reaches only the most specific one.
			s.routeBy(w, r, func(g *gate) http.Handler { return g.revoke },
				func(_ *gate, next http.Handler) http.Handler { return next })
		}),
		End: s.endByConnector, Leases: s.renewLeases, Keys: s.node.Signing,
	}
}

// relay answers a proxy that relays the answer to the visitor.
func (s *Server) relay(w http.ResponseWriter, r *http.Request) {
	s.routeBy(w, r, func(g *gate) http.Handler { return g.relay }, relays)
}

// routeBy finds the room of a request and hands it over. What proxies and origins could read in two
// ways is rejected first: rules and routes must see the request that the origin sees.
func (s *Server) routeBy(
	w http.ResponseWriter, r *http.Request, handler func(*gate) http.Handler, by way,
) {
	if s.ending.Load() { // so that the next request finds another node
		w.Header().Set("Connection", "close")
	}
	host, ok := paths.SentHost(r.Host)
	if !ok || r.URL.Host != "" && r.URL.Host != r.Host { // an HTTP/2 target may name another host
		paths.Malformed(w, r, "The Host of this request is not a host name or address with at most one port.")
		return
	}
	if r.Method == http.MethodConnect {
		paths.Malformed(w, r, "headgate opens no tunnels.")
		return
	}
	if strings.ContainsFunc(r.Method, noToken) { // an HTTP/2 method may contain a whole request line
		paths.Malformed(w, r, "The method of this request is not a name.")
		return
	}
	if r.Method == http.MethodOptions && r.RequestURI == "*" {
		wire.WriteShort(w, r, http.StatusOK, []string{"text/plain; charset=utf-8"}, nil)
		return
	}
	r.Host = host // send the origin the host that the decision used
	if !fromTrusted(r, s.set.Load().cfg.TrustedProxies) {
		wire.DropFindings(r.Header)
	}
	holders.DropNames(r.Header)
	delete(r.Header, ratelimit.ExceededHeader)
	paths.Keep(r.URL)
	p := paths.Of(r.URL)
	if p.Malformed() || p.Excessive() {
		p.Refuse(w, r)
		return
	}
	set := s.set.Load()
	best, most := set.most(host, p.At(0))
	var others []*gate
	for i := 1; i < p.Len(); i++ {
		g, n := set.most(host, p.At(i))
		if g == best {
			continue
		}
		if n > most {
			g, best, most = best, g, n
		}
		if g != nil && !slices.Contains(others, g) {
			others = append(others, g)
		}
		if !best.asTheyCome() || g != nil && !g.asTheyCome() {
			p.Refuse(w, r)
			return
		}
	}
	if best == nil {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, "headgate has no room for this host and path.\n")
		return
	}
	for _, g := range others {
		if !best.hasLimitsOf(g) { // they would not count
			p.Refuse(w, r)
			return
		}
	}
	h := handler(best)
	if len(others) == 0 && best.preflight != nil && wire.IsPreflight(r) { // several: each policy would apply
		h = best.preflight
	}
	for _, g := range others { // the request may reach each room, so it needs a pass of each
		if g != best {
			h = by(g, h)
		}
	}
	h.ServeHTTP(w, r)
}

// hasLimitsOf reports whether a request that passes through g meets each limit of the other room.
func (g *gate) hasLimitsOf(other *gate) bool {
	return !slices.ContainsFunc(other.now.Limits, func(name string) bool {
		return !slices.Contains(g.now.Limits, name)
	})
}

// noToken reports whether a character is not allowed in a method (RFC 9110, section 5.6.2).
func noToken(c rune) bool {
	return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
}

// asTheyCome reports whether requests with several readings pass. They also pass where the room
// holds nobody back.
func (g *gate) asTheyCome() bool {
	return g.now.Paths == config.PathsAsTheyCome || g.now.Shadow || g.now.Suspended
}

// most returns the most specific room for one reading of a path, or nil if there is none.
func (s *roomSet) most(host, path string) (best *gate, most int) {
	most = -1
	host = paths.Hostname(host)
	for _, g := range s.gates {
		if n, ok := g.places.Match(host, path); ok && n > most {
			best, most = g, n
		}
	}
	return best, most
}

// local returns the folder of a room in which a connector may let a session in by its signed pass
// alone, or "" if the decision about a request may depend on more than the session.
func (s *Server) local(g *gate, r *http.Request) string {
	if !g.now.DecidesBySession() {
		return ""
	}
	host := paths.Hostname(r.Host)
	for _, other := range s.set.Load().gates {
		if other.file.Name != g.file.Name && other.places.Meets(host, g.now.Path) {
			return ""
		}
	}
	if !g.room.BeginLease() { // the request is in flight: an end of its session comes later
		return ""
	}
	return g.now.Path
}

// renewLeases renews the leases of the sessions that a connector keeps, unless they are among the
// ended ones.
func (s *Server) renewLeases() (ended []string, ok bool) {
	for _, g := range s.set.Load().gates {
		names, ok := g.room.RenewLease(g.now.Checkout.Pass)
		if !ok {
			return nil, false
		}
		ended = append(ended, names...)
	}
	return ended, true
}

func clientAddr(trusted []netip.Prefix) func(*http.Request) netip.Addr {
	return func(r *http.Request) netip.Addr { return proxy.ClientAddr(r, trusted) }
}

// secure returns a function that decides whether the cookie is Secure. It always is over HTTPS,
// also where a trusted proxy in front terminates TLS.
func secure(trusted []netip.Prefix, c config.CookieSecure) func(*http.Request) bool {
	return func(r *http.Request) bool {
		switch {
		case c == config.CookieSecureNever:
			return false
		case c == config.CookieSecureAlways || r.TLS != nil:
			return true
		}
		proto := r.Header.Get("X-Forwarded-Proto") // wss: Traefik, of a WebSocket
		return (strings.EqualFold(proto, "https") || strings.EqualFold(proto, "wss")) && fromTrusted(r, trusted)
	}
}

func fromTrusted(r *http.Request, trusted []netip.Prefix) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	addr := peer.Addr().Unmap()
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// mostConnections returns how many connections an address may have; 0 is any number. A trusted
// proxy carries the visitors of many addresses and has no limit. A proxy on this machine may not be
// listed as trusted, so loopback addresses have a limit only if the file sets one.
func (s *Server) mostConnections(a netip.Addr) int {
	cfg := s.set.Load().cfg
	for _, p := range cfg.TrustedProxies {
		if p.Contains(a) {
			return 0
		}
	}
	if a.IsLoopback() && !cfg.BoundLoopback {
		return 0
	}
	return int(cfg.MaxConnections)
}

// pace returns how slow visitors may be.
func (s *Server) pace() guard.Pace {
	cfg := s.set.Load().cfg
	return guard.Pace{Body: cfg.BodyTimeout, Rate: cfg.BodyRate, Write: cfg.WriteTimeout}
}

// Each visitor with a request in flight takes two files, one on each side.
const (
	fewestFiles = 256
	enoughFiles = 8192

	moreFiles = "raise it: ulimit -n 65536, or LimitNOFILE=65536 in the systemd unit"
)

// raiseFiles raises the soft limit of open files to the hard one and checks
// that it is enough.
func raiseFiles(log *slog.Logger) error {
	limit, most, err := platform.OpenFiles()
	if err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if limit < most && platform.RaiseOpenFiles(most) == nil {
		limit = most
	}
	if limit < fewestFiles {
		return &hint.Error{Do: moreFiles, Text: fmt.Sprintf(
			"this process may open only %d files, at least %d are needed", limit, fewestFiles)}
	}
	if limit < enoughFiles {
		log.Warn("few open files allowed", "limit", limit, "hint", moreFiles)
	}
	return nil
}

// signIns holds the keys of the sites' sign-ins, by their source. They are loaded while Run serves.
type signIns struct {
	mu   sync.Mutex
	keys map[string]*identity.Keys
	crew *crew
}

// run loads the keys of all sources, now and of later ones.
func (x *signIns) run(c *crew) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.crew = c
	for _, k := range x.keys {
		c.start(k.Run)
	}
}

// of returns the keys of a source.
func (x *signIns) of(source string, log *slog.Logger) *identity.Keys {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.keys[source]
	if k != nil {
		return k
	}
	if x.keys == nil {
		x.keys = map[string]*identity.Keys{}
	}
	k = identity.NewKeys(source, log)
	if x.keys[source] = k; x.crew != nil {
		x.crew.start(k.Run)
	}
	return k
}

// identityOf converts how a room knows people to the type that a room takes.
func (s *Server) identityOf(all *config.Config, c *config.Room, l *look) headgate.Identity {
	i := &c.Identity
	if !i.Knows() {
		return headgate.Identity{}
	}
	if desk := s.inviteDesk(all, c, l); desk != nil {
		return headgate.Identity{Of: desk.Of, Invitation: desk.Invitation, Required: i.Required,
			SignIn: desk.SignIn}
	}
	x := s.sourceOf(all, i.Header, &i.JWT)
	x.GroupHeader, x.GroupClaim = i.GroupHeader, i.JWT.GroupClaim
	for _, g := range i.Groups {
		x.Groups = append(x.Groups, g.Name)
	}
	return headgate.Identity{Of: identity.New(x).Of, Required: i.Required, SignIn: i.SignIn}
}

// sourceOf returns the configuration of what reads a header of trusted proxies, or a claim of signed tokens.
func (s *Server) sourceOf(all *config.Config, header string, j *config.JWT) identity.Config {
	x := identity.Config{
		Header: header, Trusted: func(r *http.Request) bool { return fromTrusted(r, all.TrustedProxies) },
		Issuer: j.Issuer, Audience: j.Audience, Claim: j.Claim, Cookie: j.Cookie, Now: time.Now,
	}
	if j.JWKS != "" {
		x.Keys = s.signIns.of(j.JWKS, s.log)
	}
	return x
}

// planOf returns what reads the plan of a caller, nil if requests have none.
func (s *Server) planOf(all *config.Config) *ratelimit.PlanSource {
	p := all.Plans
	if p != nil && p.Holders != nil {
		return &ratelimit.PlanSource{
			Of: func(r *http.Request) string { return r.Header.Get(holders.PlanHeader) }}
	}
	if p == nil || p.Header == "" && p.JWT.JWKS == "" {
		return nil
	}
	source := identity.New(s.sourceOf(all, p.Header, &p.JWT))
	return &ratelimit.PlanSource{Of: func(r *http.Request) string {
		plan, _, _ := source.Of(r)
		return plan
	}}
}

// inviteDesk returns what takes the invitations of a room, nil for none.
func (s *Server) inviteDesk(all *config.Config, c *config.Room, l *look) *invite.Desk {
	if l.codes == nil {
		return nil
	}
	path, domain, room := c.Places().CookiePath(), c.CookieDomain(), c.Name
	d := &invite.Desk{
		Key: l.codes, Now: time.Now,
		Revoked: func(x invite.Code) bool { return s.revoked.Of(room).Has(x) },
		Path:    path, Domain: domain, SignIn: cmp.Or(c.Identity.SignIn, invite.OwnPage),
		Counts: &invite.Counts{}, Groups: c.Identity.BatchGroups(),
		Secure: secure(all.TrustedProxies, c.CookieSecure), SameSite: sameSite(c.CookieSameSite),
	}
	d.Form = invite.NewForm(l.places, clientAddr(all.TrustedProxies),
		func(w http.ResponseWriter, r *http.Request, back, why string) {
			l.page.WriteCodeForm(w, r, c.Title, back, why)
		})
	d.HTTP, d.HTTPS = route.CookieNames(c.Name, c.CookieSuffix, domain == "" && path == "/")
	return d
}

// vouched returns the headers of a room that count from trusted proxies only.
func vouched(all *config.Config, c *config.Room) (names []string) {
	for _, name := range []string{c.Identity.Header, c.Identity.GroupHeader, all.PlanHeader()} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// dropVouched removes the headers that count from trusted proxies only, and those of a CDN, from the
// question of a connector, which sends on whatever a visitor sends, unless the peer of its application is a
// trusted proxy.
func (s *Server) dropVouched(r *http.Request) {
	set := s.set.Load()
	peer, ok := proxy.LastForwarded(r.Header)
	trusts := func(p netip.Prefix) bool { return p.Contains(peer) }
	if ok && slices.ContainsFunc(set.cfg.TrustedProxies, trusts) {
		return
	}
	for _, name := range set.untrusted(r.Header) {
		delete(r.Header, name)
	}
}

// unvouched returns the headers of Envoy's question that the origin must not get, because the peer of
// Envoy is no trusted proxy.
func (s *Server) unvouched(r *http.Request) []string {
	set := s.set.Load()
	if fromTrusted(r, set.cfg.TrustedProxies) {
		return nil
	}
	return set.untrusted(r.Header)
}

// vouchedNames are the headers of all rooms that count from trusted proxies only.
type vouchedNames struct {
	once sync.Once
	all  []string
}

// untrusted returns the headers in h that count from trusted proxies only, in any spelling.
func (s *roomSet) untrusted(h http.Header) (names []string) {
	s.names.once.Do(func() {
		for _, g := range s.gates {
			s.names.all = append(s.names.all, vouched(s.cfg, &g.now)...)
		}
		slices.Sort(s.names.all)
		s.names.all = slices.Compact(s.names.all)
	})
	for name := range h {
		same := func(own string) bool { return wire.SameName(name, own) }
		if wire.IsFinding(name) || slices.ContainsFunc(s.names.all, same) {
			names = append(names, name)
		}
	}
	return names
}

// withSignIn returns the excluded paths of a room, with that of its sign-in: otherwise nobody could
// sign in.
func withSignIn(c *config.Room) []string {
	if path := c.Identity.SignInPath(); path != "" {
		return append(slices.Clone(c.Exclude.Paths), path)
	}
	return c.Exclude.Paths
}
