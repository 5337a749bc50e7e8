package server

import (
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/paths"
	"github.com/headgate/headgate/internal/wire"
)

// route finds the most specific room for a request. If readings of its path are of different
// rooms, it goes on only where all of them take paths as they come, and through all of them.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	if s.ending.Load() { //: the next request finds another node
		w.Header().Set("Connection", "close")
	}
	host, ok := paths.SentHost(r.Host)
	if !ok || r.URL.Host != "" && r.URL.Host != r.Host { // by HTTP/2 a target may name another one
		paths.Malformed(w, r, "The Host of this request is not a host name or address with at most one port.")
		return
	}
	if r.Method == http.MethodConnect {
		paths.Malformed(w, r, "headgate opens no tunnels.")
		return
	}
	if strings.ContainsFunc(r.Method, noToken) { // by HTTP/2 it may hold a whole request line
		paths.Malformed(w, r, "The method of this request is not a name.")
		return
	}
	r.Host = host // what is decided on is what is sent
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
	h := best.handler
	if len(others) == 0 && best.preflight != nil && wire.IsPreflight(r) { // of several each would have a say
		h = best.preflight
	}
	for _, g := range others { // it may reach each of them: it needs the pass of each
		if g != best {
			h = g.room.Handler(h)
		}
	}
	h.ServeHTTP(w, r)
}

// noToken reports whether a character cannot be in the name of a method (RFC 9110, section 5.6.2).
func noToken(c rune) bool {
	return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
}

// asTheyCome reports whether requests with several readings pass: also where the room holds nobody.
func (g *gate) asTheyCome() bool {
	return g.now.Paths == config.PathsAsTheyCome || g.now.Shadow || g.now.Suspended
}

// most returns the most specific room for one reading of a path, nil if there is none.
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
