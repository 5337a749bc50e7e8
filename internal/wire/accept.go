package wire

import (
	"net/http"
	"strconv"
	"strings"
)

// mostRanges limits how much of Accept is read: more than any client sends. Chosen.
const mostRanges = 16

// Prefers returns the index of the kind that a client prefers by its Accept field (RFC 9110,
// section 12.5.1). That is the kind of the greatest quality; among equals, the one that is named
// most exactly, and then the first. It returns -1 if none is acceptable, or if there is no Accept.
// Only the most exact range gives the quality of a kind. Parameters other than q are ignored.
func Prefers(h http.Header, kinds ...string) int {
	best, most := -1, wanted{}
	for i, kind := range kinds {
		if w := wants(h, kind); w.quality > most.quality ||
			w.quality > 0 && w.quality == most.quality && w.exact > most.exact {
			best, most = i, w
		}
	}
	return best
}

// PrefersJSON reports whether the client prefers JSON to a page. A page wins a tie.
func PrefersJSON(h http.Header) bool { return Prefers(h, "text/html", "application/json") == 1 }

// prefersHTML reports whether the client prefers a page to a problem document. The problem document
// wins a tie, and is for clients without a preference.
func prefersHTML(h http.Header) bool {
	return Prefers(h, "application/json", "application/problem+json",
		"text/html", "application/xhtml+xml") >= 2
}

// A wanted is how much a kind is wanted, 0 to 1, and how exactly it is named.
type wanted struct {
	quality float64
	exact   int // 0: not named; then by */*, by type/*, by its full name
}

const byName = 3

// wants finds the most exact range of a kind. Among several such ranges the greatest quality
// counts.
func wants(h http.Header, kind string) (w wanted) {
	left := mostRanges
	group, _, _ := strings.Cut(kind, "/")
	for _, line := range h["Accept"] {
		for ; line != "" && left > 0; left-- {
			var of string
			of, line = cutUnquoted(line, ',')
			name, params := cutUnquoted(of, ';')
			name = strings.TrimSpace(name)
			exact := 0
			switch major, minor, _ := strings.Cut(name, "/"); {
			case strings.EqualFold(name, kind):
				exact = byName
			case minor == "*" && strings.EqualFold(major, group):
				exact = 2
			case name == "*/*":
				exact = 1
			}
			if exact == 0 || exact < w.exact {
				continue
			}
			if q := quality(params); exact > w.exact || q > w.quality {
				w = wanted{q, exact}
			}
		}
	}
	return w
}

// quality returns the weight among parameters. An invalid weight is 0.
func quality(params string) float64 {
	for params != "" {
		var one string
		one, params = cutUnquoted(params, ';')
		if name, value, ok := strings.Cut(one, "="); ok && strings.EqualFold(strings.TrimSpace(name), "q") {
			q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil || !(q >= 0 && q <= 1) {
				return 0
			}
			return q
		}
	}
	return 1
}

// cutUnquoted cuts at the first sep outside a quoted string (RFC 9110, section 5.6.4).
func cutUnquoted(s string, sep byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		case c == sep && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}
