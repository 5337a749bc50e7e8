// Package paths says how the path and the host of a request can be read.
//
// Origins disagree about a path: some decode it, some resolve dots, some read \ as / or cut ;x.
// A gate that decides on one reading and sends bytes that the origin reads in another way can be
// walked around. So each decision asks for all readings, and a request on whose readings
// the gate would decide differently does not go on: see [Readings.Refuse].
//
// # The promise
//
// The readings of a request include what any sequence of these steps makes of the bytes that are
// sent to the origin: decode once (with or without %2f), \ as /, cut ;x of each part or
// everything from ; on, cut from a decoded ? or # on, merge slashes, resolve dots, take dots and spaces
// off the end of each part. The clean
// reading has exactly one reading, itself. No decision reads a path or a host by other means.
//
// # Concurrency and cost
//
// All is pure. A plain path has one reading and allocates nothing. Others have at most
// maxReadings readings and maxBytes bytes of them.
//
// # What it does not do
//
// It folds no case: package route does, and [Fold]. It does not know overlong UTF-8, `%u` escapes, or
// letters that look like a slash, nor that a framework reads /a.html or /a.json as /a.
package paths

import (
	"net/url"
	"slices"
	"strings"
)

// Bounds of what one request costs. Chosen: each step of an ordinary URL doubles its
// readings at most, and no site needs more than five at once.
const (
	maxReadings = 64
	maxBytes    = 128 << 10
)

// Readings are the readings of one path.
type Readings struct {
	first string   // the only reading of a plain path
	all   []string // of another path, sorted; nil for a plain one
	clean string

	malformed bool
	excessive bool // more readings than are counted, or one above the root
}

// Of returns the readings of the path that is sent to the origin for a URL. By HTTP/2 a query may hold
// a space, after which an origin that is sent HTTP/1.1 reads the version.
func Of(u *url.URL) Readings {
	switch {
	case strings.Contains(u.RawQuery, " ") || hasControl(u.RawQuery):
		return Readings{malformed: true}
	case u.Opaque != "" || u.Path == "" || u.Path[0] != '/' || u.Scheme != "" && u.Host == "":
		return Readings{malformed: true}
	case u.RawPath == "" && plain(u.Path):
		return Readings{first: u.Path, clean: u.Path}
	}
	return read(u.EscapedPath())
}

// Malformed reports whether the target is no path, has control characters or a space in its query.
func (p *Readings) Malformed() bool { return p.malformed }

// Excessive reports whether the path has more readings than are counted, or climbs above the
// root. Then the clean one alone can be trusted.
func (p *Readings) Excessive() bool { return p.excessive }

// Len returns the number of readings: at least one, unless the path is malformed.
func (p *Readings) Len() int {
	if p.all == nil {
		return 1
	}
	return len(p.all)
}

// At returns reading i.
func (p *Readings) At(i int) string {
	if p.all == nil {
		return p.first
	}
	return p.all[i]
}

// Clean returns the reading in which every step was taken that changes anything. Limits count by it.
func (p *Readings) Clean() string { return p.clean }

// Spelling returns the clean reading as it is written in a request: it has no other reading.
func (p *Readings) Spelling() string { return encode(p.clean) }

// Clean returns the clean reading of the path of a URL.
func Clean(u *url.URL) string {
	if u.RawPath == "" && plain(u.Path) {
		return u.Path
	}
	return clean(u.EscapedPath())
}

// plain reports whether a decoded path whose RawPath is empty has one reading. Then all that is
// encoded on the wire is what [url.URL.EscapedPath] encodes.
func plain(p string) bool {
	for i := range len(p) {
		switch c := p[i]; {
		case c < ' ' || c == 0x7f:
			return false
		case (c == '.' || c == ' ') && (i+1 == len(p) || p[i+1] == '/'):
			return false
		case c == '/':
			if special(p[i+1:]) {
				return false
			}
		case c == '%' || c == ';' || c == '\\' || c == '?' || c == '#':
			return false
		case c == '!' || c == '\'' || c == '(' || c == ')' || c == '*': // encoded without need
			return false
		}
	}
	return true
}

// special reports whether the part at the beginning of rest is empty, "." or "..".
func special(rest string) bool {
	part, _, more := strings.Cut(rest, "/")
	return part == "" && more || part == "." || part == ".."
}

// read returns the readings of a path as it is sent.
func read(sent string) Readings {
	p := Readings{}
	all, size := []string{sent}, len(sent)
	for i := 0; i < len(all); i++ {
		for _, step := range steps {
			next := step(all[i])
			if next == all[i] || slices.Contains(all, next) {
				continue
			}
			all, size = append(all, next), size+len(next)
		}
		p.malformed = p.malformed || hasControl(all[i])
		p.excessive = p.excessive || climbs(all[i])
		if len(all) > maxReadings || size > maxBytes {
			p.excessive = true
			break
		}
	}
	if p.clean = clean(sent); hasControl(p.clean) {
		p.malformed = true
	}
	p.all = all[:0]
	for _, s := range all {
		if s = unescape(s, needless); hasControl(s) {
			p.malformed = true
		}
		if s == "" || s[0] != '/' {
			s = "/" + s
		}
		p.all = append(p.all, s)
	}
	slices.Sort(p.all)
	p.all = slices.Compact(p.all)
	return p
}

// clean takes all steps. None makes another one possible that was taken before.
func clean(sent string) string {
	s := cutQuery(backslash(decodeAll(sent)))
	return dots(merge(trimEnds(cutParams(s))))
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// Fold returns a path in which the cases of letters cannot be told apart.
func Fold(p string) string {
	if strings.ContainsFunc(p, func(r rune) bool { return r >= 0x80 || 'A' <= r && r <= 'Z' }) {
		return strings.ToLower(strings.ToUpper(p))
	}
	return p
}

// Keep keeps the bytes of a path that came in a request line, where [url.URL.EscapedPath] would
// write the whole path anew: only those that cannot stand in one are encoded.
func Keep(u *url.URL) {
	if u.RawPath != "" && u.EscapedPath() != u.RawPath {
		u.RawPath = encodeOther(u.RawPath)
	}
}
