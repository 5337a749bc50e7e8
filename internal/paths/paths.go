// Package paths finds all readings of the path and the host of a request.
//
// Servers interpret a path in different ways: some decode it, some resolve dots, some treat \ as /
// or cut ;x. If a gate decides on one reading, and the origin reads the same bytes differently, the
// gate can be bypassed. So each decision considers all readings, and a request whose readings would
// lead to different decisions does not pass: see [Readings.Refuse].
//
// # The promise
//
// The readings of a request include the results of every sequence of these steps on the bytes that
// are sent to the origin: decode once (with or without %2f), replace \ by /, cut ;x of each part or
// everything from ; on, cut from a decoded ? or # on, merge slashes, resolve dots, remove dots and
// spaces at the end of each part, read //host/path as /path. The clean reading has exactly one
// reading, itself. No decision reads a path or a host in any other way.
//
// # Concurrency and cost
//
// All functions are pure. A plain path has one reading and allocates nothing. Others have at most
// maxReadings readings with at most maxBytes bytes in total.
//
// # What it does not do
//
// It does not fold case: package route does, with [Fold]. It does not handle overlong UTF-8, `%u`
// escapes, or letters that look like a slash, and it does not know that a framework may treat
// /a.html or /a.json as /a.
package paths

import (
	"net/url"
	"slices"
	"strings"
)

// Bounds of the cost of one request. Chosen: each step of an ordinary URL at most doubles its
// readings, and no site needs more than five steps at once.
const (
	maxReadings = 64
	maxBytes    = 128 << 10
)

// Readings holds the readings of one path.
type Readings struct {
	first string   // the only reading of a plain path
	all   []string // the readings of any other path, sorted; nil for a plain one
	clean string

	malformed bool
	excessive bool // more readings than the bounds, or one above the root
}

// Of returns the readings of the path that is sent to the origin for a URL. An HTTP/2 query may
// contain a space; an HTTP/1.1 origin would read the text after it as the version.
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

// Malformed reports whether the target is not a path, contains control characters, or has a space
// in its query.
func (p *Readings) Malformed() bool { return p.malformed }

// Excessive reports whether the path has more readings than the bounds allow, or climbs above the
// root. Then only the clean reading can be trusted.
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

// Clean returns the reading to which every step that changes anything has been applied; slashes are
// merged before one could name a host. Limits count by it.
func (p *Readings) Clean() string { return p.clean }

// Spelling returns the clean reading as it is written in a request. It has no other reading.
func (p *Readings) Spelling() string { return encode(p.clean) }

// Clean returns the clean reading of the path of a URL.
func Clean(u *url.URL) string {
	if u.RawPath == "" && plain(u.Path) {
		return u.Path
	}
	return clean(u.EscapedPath())
}

// plain reports whether a decoded path whose RawPath is empty has one reading. With an empty
// RawPath, only the characters that [url.URL.EscapedPath] encodes are encoded on the wire.
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

// read returns the readings of a path in the form in which it is sent.
func read(sent string) Readings {
	p := Readings{}
	// Servers decode in different orders and some twice. A path is read in every way that any of
	// them may, breadth first.
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

// clean applies all steps. No step makes an earlier one possible again.
func clean(sent string) string {
	s := cutQuery(backslash(decodeAll(sent)))
	return dots(merge(trimEnds(cutParams(s))))
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// Fold returns the path with the case of its letters folded, so that paths that differ only in case
// are equal.
func Fold(p string) string {
	if strings.ContainsFunc(p, func(r rune) bool { return r >= 0x80 || 'A' <= r && r <= 'Z' }) {
		return strings.ToLower(strings.ToUpper(p))
	}
	return p
}

// Keep preserves the bytes of a path from a request line, encoding only those that are not allowed
// there. Without it, [url.URL.EscapedPath] would encode the whole path anew.
func Keep(u *url.URL) {
	if u.RawPath != "" && u.EscapedPath() != u.RawPath {
		u.RawPath = encodeOther(u.RawPath)
	}
}
