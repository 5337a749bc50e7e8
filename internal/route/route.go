// Package route determines which hosts and folders belong to a room, and derives the path of its
// cookie and its own addresses from them.
//
// # Guarantees
//
// A room has one cookie for all of its routes: its path is the deepest folder that contains all of
// them. Match expects readings of paths ([paths.Of]). A star in a folder stands for any characters
// except a slash, or for none. The folder and everything below it belong to the room.
//
// # Concurrency and cost
//
// A Set never changes. With one route that has no star and is case-sensitive, a match allocates
// nothing and is one comparison of the path. Otherwise a match costs at most the length of the path
// times the length of the folder, for each route.
//
// # Limitations
//
// The package validates nothing: package config checks hosts and folders.
package route

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/paths"
)

// A Route is one host and folder of a room. "" is any host.
type Route struct{ Host, Path string }

// A Match is a folder of a room as the visitor's browser spells it, with the addresses in it that
// headgate answers itself. All but Own are escaped, for browsers: a star may match a backslash or a percent
// sign, and /\ leads to another host.
type Match struct {
	Path        string // "/" or without a slash at its end
	Own         string // prefix of all addresses that headgate answers: Path/.headgate/
	OwnURL      string // the same, escaped
	Served      string // the shared document
	Leave       string // gives up a place
	ConfirmPath string // a tiny image, which the waiting page loads
	Move        string // moves a place to another device
}

// ownPart is a part of a path that no star matches: headgate itself answers everything below it.
const ownPart = ".headgate"

func spot(folder string) *Match {
	base := strings.TrimSuffix(folder, "/")
	own := base + "/" + ownPart + "/"
	if base == "" {
		folder = "/"
	}
	escaped := (&url.URL{Path: own}).EscapedPath()
	return &Match{Path: (&url.URL{Path: folder}).EscapedPath(), Own: own, OwnURL: escaped,
		Served: escaped + "served", Leave: escaped + "leave", ConfirmPath: escaped + "here.gif", Move: escaped + "move"}
}

// A Set is the routes of a room, ready for matching.
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

// New prepares the routes of a room, of which there must be at least one. anyCase says that /Shop
// and /shop are the same folder.
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

// fixed returns the part of a folder that is spelled the same for all its paths, because browsers
// compare a cookie's path case-sensitively.
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

// common returns the deepest folder that contains both.
func common(a, b string) string {
	folder, x, y := "", strings.Split(a, "/"), strings.Split(b, "/")
	for i := 1; i < min(len(x), len(y)) && x[i] == y[i]; i++ {
		folder += "/" + x[i]
	}
	return folder
}

// CookiePath returns the path of the room's cookie.
func (s *Set) CookiePath() string {
	if s.cookie == "" {
		return "/"
	}
	return s.cookie
}

// Match reports whether a host and a reading of a path belong to the room, and how specific the
// match is. Of several rooms, the one that names more of the path applies, then one without a star,
// then one that names the host.
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

// Meets reports whether a route may cover a path of a host in a folder or below it. In doubt, as with
// stars, it does.
func (s *Set) Meets(host, folder string) bool {
	below := paths.Fold(strings.TrimSuffix(folder, "/")) + "/"
	return slices.ContainsFunc(s.all, func(o one) bool {
		return o.on(host) && (!o.plain || strings.HasPrefix(paths.Fold(o.base)+"/", below))
	})
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

// At returns the location in the room of a host and a reading of a path; the host may have a port.
// A request that does not belong to the room is treated as one of its first route.
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

// Own returns the address below .headgate/ that a request is for. ok is false unless every reading
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

// folder returns how much of a path the folder of a route covers, if the path is in it.
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

// fits reports whether a part of a path matches a pattern. After a star it continues at the first
// position where the rest may match. On a mismatch it goes back to the last star only. That is
// enough: whatever an earlier star could match, a later one can match too.
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

// alike compares as case-insensitive origins do: two characters are equal if they are equal in
// upper case, or in the lower case of that.
func alike(a, b rune) bool {
	return a == b || unicode.ToLower(unicode.ToUpper(a)) == unicode.ToLower(unicode.ToUpper(b))
}

// Same reports whether two routes are the same. anyCase says that one of their rooms ignores case
// in paths.
func Same(a, b Route, anyCase bool) bool {
	x, y := strings.TrimSuffix(a.Path, "/"), strings.TrimSuffix(b.Path, "/")
	return strings.EqualFold(a.Host, b.Host) && (x == y || anyCase && strings.EqualFold(x, y))
}

// CookieNames returns the names of a room's cookie over http and over https. The first name is used
// to set it; the others are read from visitors who got the cookie earlier. Over https, a cookie of
// the whole host has the prefix __Host-, so that no other host of the domain and no page over http
// can set it (RFC 6265bis, section 4.1.3.2).
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
