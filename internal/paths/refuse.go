package paths

import (
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/wire"
)

// Malformed answers a request whose target or host is malformed.
func Malformed(w http.ResponseWriter, r *http.Request, what string) {
	wire.WriteProblem(w, r, http.StatusBadRequest, what)
}

// Refuse answers a request whose readings lead to different decisions: GET and HEAD are redirected
// to the clean spelling, which has one reading, and other methods are rejected.
func (p *Readings) Refuse(w http.ResponseWriter, r *http.Request) {
	if p.malformed {
		Malformed(w, r, "The request target must be a path that begins with / and has no control characters, "+
			"and no space in its query.")
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		Malformed(w, r, "The path of this request can be read in several ways. Send "+p.Spelling()+".")
		return
	}
	to := p.Spelling()
	if r.URL.RawQuery != "" {
		to += "?" + query(r.URL.RawQuery)
	}
	w.Header().Set("Location", to)
	wire.WriteShort(w, r, http.StatusPermanentRedirect, []string{"text/plain; charset=utf-8"},
		[]byte("The path of this request can be read in several ways.\n"))
}

// query escapes the characters that are allowed in a request target but not in a URL. A browser
// does not send a fragment, so a # belongs to the query.
func query(q string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(q) {
		if c := q[i]; c <= ' ' || c >= 0x7f || c == '#' {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
