package holders

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/headgate/headgate/internal/wire"
)

// The headers by which limits, and the origin, learn whose call it is. DropNames must have removed them from
// what clients send, also where no Gate is: the same origin may be behind it.
const (
	HolderHeader = "Headgate-Holder"
	PlanHeader   = "Headgate-Plan"
)

const authorization = "Authorization"

// A Gate names the holder and the plan of each request by the key that it sends.
type Gate struct {
	Book     *Book
	Header   string // with the key, in canonical form; Authorization has the key behind the word Bearer
	Optional bool   // requests without a key pass, and have no holder
	Forward  bool   // the origin gets the key
	Counts   *Counts
}

// Counts are the requests by outcome.
type Counts [outcomes]atomic.Uint64

// Each calls f with each outcome and its count.
func (c *Counts) Each(f func(o Outcome, n uint64)) {
	for o := range c {
		f(Outcome(o), c[o].Load())
	}
}

// Before returns a handler that names the holder of a request, or answers the request.
func (g *Gate) Before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wire.IsPreflight(r) { // a browser sends it without the key; an origin must not read another method
			next.ServeHTTP(w, wire.WithoutOverrides(r))
			return
		}
		key, ok := g.keyOf(r)
		plan, o := "", Malformed
		switch {
		case !ok:
		case key == "":
			o = Missing
		default:
			plan, o = g.Book.Find(key)
		}
		g.Counts[o].Add(1)
		if o != Known && (o != Missing || !g.Optional) {
			g.refuse(w, r, o)
			return
		}
		if o == Known {
			r.Header[HolderHeader] = []string{key[len(Prefix) : len(Prefix)+idLetters]}
			if plan != "" {
				r.Header[PlanHeader] = []string{plan}
			}
			if !g.Forward {
				delete(r.Header, g.Header)
			}
		}
		next.ServeHTTP(w, r)
	})
}

// DropNames removes the headers that only a Gate may set. The proxy removes other spellings of them.
func DropNames(h http.Header) {
	delete(h, HolderHeader)
	delete(h, PlanHeader)
}

// keyOf returns the key of a request, or "" if it sends none. Other values than keys of ours belong to the
// origin. ok is false if the key is not sent as it must be: of several values an origin may read another one
// than we do, and a key that is overlooked would go to the origin.
func (g *Gate) keyOf(r *http.Request) (key string, ok bool) {
	values := r.Header[g.Header]
	for _, v := range values {
		alone := strings.Trim(v, " \t")
		if g.Header == authorization {
			scheme, rest, _ := strings.Cut(v, " ")
			if alone = ""; strings.EqualFold(scheme, "Bearer") {
				alone = strings.Trim(rest, " \t")
			}
		}
		switch {
		case strings.HasPrefix(alone, Prefix):
			key = alone
		case hasKey(v):
			return v, false
		}
	}
	return key, key == "" || len(values) == 1
}

// hasKey reports whether one of the words of a text begins as a key, in any case. A token of somebody else
// may have the letters of the prefix inside.
func hasKey(s string) bool {
	between := func(c rune) bool { return strings.ContainsRune(" \t,;:='\"", c) }
	for word := range strings.FieldsFuncSeq(s, between) {
		if len(word) >= len(Prefix) && strings.EqualFold(word[:len(Prefix)], Prefix) {
			return true
		}
	}
	return false
}

// refuse answers a request that does not pass.
func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, o Outcome) {
	how := g.Header + ": hgk_…"
	if g.Header == authorization {
		how = "Authorization: Bearer hgk_…"
	}
	switch o {
	case Unsure:
		w.Header().Set("Retry-After", "5")
		wire.WriteProblem(w, r, http.StatusServiceUnavailable,
			"It is not known now whether this key is valid. Try again later.")
		return
	case Missing:
		g.challenge(w, "")
		wire.WriteProblem(w, r, http.StatusUnauthorized, "A key is needed. Send it as "+how+".")
		return
	}
	g.challenge(w, `, error="invalid_token"`)
	text := "This key is not valid: no holder has it. Ask for a new one."
	switch o {
	case Malformed:
		text = "This key is not valid: a letter is missing or wrong, or there are two. Send one as " + how + "."
	case Revoked:
		text = "This key was revoked. Ask for a new one."
	}
	wire.WriteProblem(w, r, http.StatusUnauthorized, text)
}

// challenge says how to authenticate (RFC 9110 §11.6.1, RFC 6750).
func (g *Gate) challenge(w http.ResponseWriter, why string) {
	scheme := "Bearer"
	if g.Header != authorization {
		scheme = "ApiKey"
	}
	w.Header().Set("WWW-Authenticate", scheme+` realm="headgate"`+why)
}
