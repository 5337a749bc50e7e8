// Package route says where a room stands: on which hosts and below which folders, and what that
// makes of its cookie and of its own addresses.
//
// # The promise
//
// A room has one cookie for all of its routes: its path is the deepest folder that all of them are
// in. The paths it is asked for are readings ([paths.Of]). A star in a folder stands for any
// characters but a slash, none among them; the folder and all below it are the room's.
//
// # Concurrency and cost
//
// A Set never changes. Where it has one route without a star that tells cases apart, nothing is
// allocated and a match is one comparison of the path. Else a match is at most the length of the
// path times that of the folder, for each route.
//
// # What it does not do
//
// It checks nothing: package config says what a host or a folder may be.
package route

import (
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/paths"
)

// A Route is one host and folder of a room. "" is any host.
type Route struct{ Host, Path string }

// A Spot is a folder of a room as the visitor's browser names it, and the addresses in it that
// headgate answers itself.
type Match struct {
	Path        string // "/" or without a slash at its end
	Own         string // begins all that headgate answers itself: Path/.headgate/
	Served      string // the shared document
	Leave       string // a place is given up
	ConfirmPath string // a tiny picture, which the waiting page loads
	Move        string // it moves to another device
}

// ownPart is a part of a path that no star stands for: what is below it, headgate answers itself.
const ownPart = ".headgate"

func spot(folder string) *Match {
	base := strings.TrimSuffix(folder, "/")
	own := base + "/" + ownPart + "/"
	if base == "" {
		folder = "/"
	}
	return &Match{Path: folder, Own: own, Served: own + "served", Leave: own + "leave",
		ConfirmPath: own + "here.gif", Move: own + "move"}
}

// A Set is the routes of a room, ready to be asked.
type Set struct {
	all     []one
	anyCase bool
	cookie  string
}

type one struct {
	Route
	base     string // of the folder, without a slash at its end
	parts    []string
	plain    bool // no star
	specific int
	spot     *Match
}

// New readies the routes of a room: at least one. anyCase says that /Shop and /shop are one folder.
func New(routes []Route, anyCase bool) *Set {
	s := &Set{anyCase: anyCase}
	for i, r := range routes {
		o := one{Route: r, base: strings.TrimSuffix(r.Path, "/"), plain: !strings.Contains(r.Path, "*")}
		o.parts = strings.Split(o.base, "/")[1:]
		if o.base == "" {
			o.parts = nil
		}
		o.specific = 4 * (len(o.base) - strings.Count(o.base, "*"))
		if o.plain {
			o.specific += 2
		}
		if o.Host != "" {
			o.specific++
		}
		o.spot = spot(o.base)
		s.all = append(s.all, o)
		if i == 0 {
			s.cookie = s.fixed(&o)
		}
		s.cookie = common(s.cookie, s.fixed(&o))
	}
	return s
}

// fixed is the part of a folder that is spelled alike wherever a browser goes in it: a browser
// tells the cases of a cookie's path apart.
func (s *Set) fixed(o *one) string {
	var folder strings.Builder
	for _, p := range o.parts {
		if strings.Contains(p, "*") || s.anyCase && strings.ContainsFunc(p, unicode.IsLetter) {
			break
		}
		folder.WriteString("/" + p)
	}
	return folder.String()
}

// common is the deepest folder that two are in.
func common(a, b string) string {
	folder, x, y := "", strings.Split(a, "/"), strings.Split(b, "/")
	for i := 1; i < min(len(x), len(y)) && x[i] == y[i]; i++ {
		folder += "/" + x[i]
	}
	return folder
}

// CookiePath is the path of the room's cookie.
func (s *Set) CookiePath() string {
	if s.cookie == "" {
		return "/"
	}
	return s.cookie
}

// Match reports whether a host and a reading of a path are the room's, and how specific: of several rooms
// the one that names more of the path decides, then one without a star, then one that names the host.
func (s *Set) Match(host, path string) (specific int, ok bool) {
	for i := range s.all {
		if o := &s.all[i]; o.on(host) && o.specific >= specific {
			if _, in := s.folder(o, path); in {
				specific, ok = o.specific, true
			}
		}
	}
	return specific, ok
}

// MatchAny is Match for any reading of a decoded path.
func (s *Set) MatchAny(host, path string) (specific int, ok bool) {
	p := paths.Of(&url.URL{Path: path})
	for i := range p.Len() {
		if n, in := s.Match(host, p.At(i)); in && n >= specific {
			specific, ok = n, true
		}
	}
	return specific, ok
}

// At is where in the room a reading of a path of a host is; the host may have a port. A request that is not
// the room's is taken for one of its first route.
func (s *Set) At(host, path string) *Match {
	first := &s.all[0]
	if len(s.all) == 1 && first.plain && !s.anyCase {
		return first.spot
	}
	host = paths.Hostname(host)
	best, length := first, -1
	for i := range s.all {
		o := &s.all[i]
		if n, in := s.folder(o, path); in && o.on(host) && (length < 0 || o.specific > best.specific) {
			best, length = o, n
		}
	}
	if length < 0 || best.plain && path[:length] == best.base {
		return best.spot
	}
	return spot(path[:length])
}

// Own returns the address below .headgate/ that a request asks for. ok is false unless every reading
// of its path is that address.
func (s *Set) Own(r *http.Request) (name string, ok bool) {
	p := paths.Of(r.URL)
	if p.Malformed() || p.Excessive() {
		return "", false
	}
	for i := range p.Len() {
		read, in := strings.CutPrefix(p.At(i), s.At(r.Host, p.At(i)).Own)
		if !in || i > 0 && read != name {
			return "", false
		}
		name = read
	}
	return name, true
}

func (o *one) on(host string) bool { return o.Host == "" || strings.EqualFold(o.Host, host) }

// folder is how much of a path the folder of a route takes, if the path is in it.
func (s *Set) folder(o *one, path string) (length int, in bool) {
	if o.plain {
		in = strings.HasPrefix(path, o.base) && (len(path) == len(o.base) || path[len(o.base)] == '/')
		if in || !s.anyCase {
			return len(o.base), in
		}
	}
	for _, p := range o.parts {
		if length >= len(path) || path[length] != '/' {
			return 0, false
		}
		end := strings.IndexByte(path[length+1:], '/')
		if end < 0 {
			end = len(path) - length - 1
		}
		part := path[length+1 : length+1+end]
		if part == "" || part == ownPart && p != part || !fits(p, part, s.anyCase) {
			return 0, false
		}
		length += 1 + end
	}
	return length, length == len(path) || path[length] == '/'
}

// fits reports whether a part of a path is as a pattern has it. After a star it goes on at the first
// place where the rest may fit, and comes back to the last star alone: that is enough, for an
// earlier one could only take what a later one can as well.
func fits(pattern, part string, anyCase bool) bool {
	p, i, star, from := 0, 0, -1, 0
	for i < len(part) {
		if p < len(pattern) && pattern[p] == '*' {
			star, from = p, i
			p++
			continue
		}
		got, n := utf8.DecodeRuneInString(part[i:])
		if p < len(pattern) {
			want, m := utf8.DecodeRuneInString(pattern[p:])
			if got == want && part[i:i+n] == pattern[p:p+m] || anyCase && alike(got, want) {
				p, i = p+m, i+n
				continue
			}
		}
		if star < 0 {
			return false
		}
		_, n = utf8.DecodeRuneInString(part[from:])
		from += n
		p, i = star+1, from
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// alike compares as origins do that do not tell cases apart: what is one in capitals, or in small
// letters of those, is one.
func alike(a, b rune) bool {
	return a == b || unicode.ToLower(unicode.ToUpper(a)) == unicode.ToLower(unicode.ToUpper(b))
}

// Same reports whether two routes are one. anyCase says that one of their rooms does not tell the
// cases of a path apart.
func Same(a, b Route, anyCase bool) bool {
	x, y := strings.TrimSuffix(a.Path, "/"), strings.TrimSuffix(b.Path, "/")
	return strings.EqualFold(a.Host, b.Host) && (x == y || anyCase && strings.EqualFold(x, y))
}

// CookieNames are the names of a room's cookie by http and by https. By the first it is set; by the
// others it comes from who got it before. A cookie of the whole host is prefixed with __Host- by
// https, so that no other host of the domain and no page by http can set it (RFC 6265bis, section
// 4.1.3.2).
func CookieNames(room, suffix string, wholeHost bool) (http, https []string) {
	const host = "__Host-"
	bare := "__cfwaitingroom"
	if room != "default" {
		bare += "_" + room
	}
	name := bare
	if suffix != "" {
		name += "_" + suffix
	}
	http, https = []string{name}, []string{host + name, name}
	if !wholeHost {
		https = []string{name, host + name}
	}
	if suffix != "" {
		http, https = append(http, bare), append(https, host+bare, bare)
	}
	return http, https
}
