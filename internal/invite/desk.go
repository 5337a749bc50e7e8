package invite

import (
	"cmp"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/paths"
	"github.com/headgate/headgate/internal/wire"
)

// Field is the name of the query parameter with a code.
const Field = "invitation"

// cookieSuffix ends the names of the cookies with codes. No room's name contains a dot.
const cookieSuffix = ".code"

// mostAge limits the age of the cookie. Browsers keep none for longer than 400 days.
const mostAge = 400 * 24 * time.Hour

// mostCookies limits the cookies of one request that are verified. Chosen: a browser has one, or one for each
// of the paths that the room had.
const mostCookies = 4

// Results of codes in links.
const (
	Accepted = iota
	Wrong
	Expired
	Revoked
	Limited // not looked at: its network has sent too many wrong ones
	results
)

// Words returns the words for the results, in their order.
func Words() []string { return []string{"accepted", "wrong", "expired", "revoked", "limited"} }

// Counts are how many codes came in links and by the form, by their result.
type Counts [results]atomic.Int64

// A Desk takes the codes of a room from links, and finds them in cookies. Many goroutines may use it.
type Desk struct {
	Key     *Key
	Revoked func(Code) bool
	Groups  map[int]string // the groups of batches
	Counts  *Counts
	Form    *Form // where visitors type their code

	HTTP, HTTPS []string // names of the room's cookie: the first is set, the others are read too
	Secure      func(*http.Request) bool
	Path        string
	Domain      string
	SameSite    http.SameSite

	SignIn string // where visitors are sent whose code does not count, if it says {reason}; see Take
	Now    func() time.Time
}

// Of returns the ID of the code in a request's cookie, or "", and the group of its batch, or "". A code that
// has ended is one too.
func (d *Desk) Of(r *http.Request) (id, group string, known bool) {
	if c, result := d.shown(r, Code{}); result != Wrong {
		return c.id(), d.Groups[c.Batch], true
	}
	return "", "", true
}

// visitorLength is the length of a visitor's name, which is a text of crypto/rand.Text.
const visitorLength = 26

// A pick is a code in a cookie. The cookie names the visitor too: if several come in by the code, a repeated
// request, at whatever node, takes no second use. Whoever changes the name is another visitor.
type pick struct {
	Code
	visitor string // may be "" for a code of one use
}

func (p pick) id() string {
	if p.Uses <= 1 {
		return p.ID()
	}
	return p.ID() + "/" + p.visitor
}

// pick returns what a cookie says.
func (d *Desk) pick(cookie string) (p pick, result int) {
	text, visitor, _ := strings.Cut(cookie, ".")
	p.Code, result = d.verify(text)
	p.visitor = visitor
	letter := func(c rune) bool { return c >= 'A' && c <= 'Z' || c >= '2' && c <= '7' }
	named := len(visitor) == visitorLength && strings.TrimFunc(visitor, letter) == ""
	if !named && (p.Uses > 1 || visitor != "") {
		return pick{}, Wrong
	}
	return p, result
}

// shown returns the first code in a request's cookies that is accepted, or else the first that has ended. If
// only is not zero, other codes do not count.
func (d *Desk) shown(r *http.Request, only Code) (ended pick, result int) {
	n := 0
	result = Wrong
	for _, name := range d.names(r) {
		for _, line := range r.Header["Cookie"] {
			for line != "" && n < mostCookies {
				var text string
				if text, line = wire.Cookie(line, name+cookieSuffix); text == "" {
					continue
				}
				n++
				switch c, got := d.pick(text); {
				case only != (Code{}) && c.Code != only:
				case got == Accepted:
					return c, got
				case got == Expired && result == Wrong:
					ended, result = c, got
				}
			}
		}
	}
	return ended, result
}

// Invitation returns the code of an ID, its uses, and when it ends.
func (d *Desk) Invitation(id string) (code string, uses int, until time.Time) {
	code, _, _ = strings.Cut(id, "/")
	part := strings.Split(code, "-") // see Code.ID
	if len(part) != 4 {
		return "", 0, time.Time{}
	}
	uses, err := strconv.Atoi(part[2])
	end, err2 := strconv.Atoi(part[3])
	if err != nil || err2 != nil {
		return "", 0, time.Time{}
	}
	return code, uses, Code{End: end}.Until()
}

func (d *Desk) names(r *http.Request) []string {
	if d.Secure(r) {
		return d.HTTPS
	}
	return d.HTTP
}

func (d *Desk) verify(text string) (Code, int) {
	c, err := d.Key.Verify(text, d.Now())
	switch ended := errors.Is(err, ErrExpired); {
	case err != nil && !ended:
		return c, Wrong
	case d.Revoked != nil && d.Revoked(c): // after its end too: it would find its place and its session again
		return c, Revoked
	case ended:
		return c, Expired
	}
	return c, Accepted
}

// Take answers requests whose query has a code: it puts a code that counts into a cookie, and sends the
// visitor to the same address without it. So no log, no history and no Referer of a later request has the
// code. It answers requests for the form, too. Other requests go to next, and all those of a nil Desk. A
// proxy that only asks sends the request on to where it is answered.
func (d *Desk) Take(asks bool, next http.Handler) http.Handler {
	if d == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, query, has := cut(r.URL.RawQuery)
		name, ok := d.Form.Places.Own(r)
		typed := ok && name == formName
		if !has && !typed || wire.IsPreflight(r) {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h["Cache-Control"], h["Referrer-Policy"] = []string{"no-store"}, []string{"no-referrer"}
		if asks {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		opens := r.Method == http.MethodGet || r.Method == http.MethodHead
		if typed && (!has || !opens) {
			d.form(w, r)
			return
		}
		result := d.take(w, r, code)
		d.Counts[result].Add(1)
		back := local(r.URL.EscapedPath())
		if query != "" {
			back += "?" + query
		}
		if typed { // the address of the form with a code is a link
			back = d.back(r)
		}
		to := back
		if result != Accepted && strings.Contains(d.SignIn, "{reason}") {
			to = d.signIn(r, d.SignIn, back, Words()[result])
		}
		if opens || to != back {
			redirect(w, to)
			return
		}
		h["Location"] = []string{to}
		w.WriteHeader(http.StatusTemporaryRedirect) // with its method and its body
	})
}

// take verifies a code and puts it into a cookie.
func (d *Desk) take(w http.ResponseWriter, r *http.Request, code string) (result int) {
	c, result := d.verify(code)
	sets := result == Accepted
	if result == Expired { // another device may be inside by it
		_, has := d.shown(r, Code{})
		sets = has != Accepted
	}
	if sets {
		w.Header().Add("Set-Cookie", d.cookie(r, c).String())
	}
	return result
}

// signIn returns the address of the page where visitors are sent whose code does not count.
func (d *Desk) signIn(r *http.Request, page, back, why string) string {
	return strings.NewReplacer("{url}", url.QueryEscape(back), "{reason}", why,
		"{own}", d.own(r)).Replace(page)
}

// own returns the folder that headgate answers itself, where a request is.
func (d *Desk) own(r *http.Request) string {
	return d.Form.Places.At(r.Host, paths.Clean(r.URL)).OwnURL
}

// cookie returns the cookie of a code that was verified.
func (d *Desk) cookie(r *http.Request, c Code) *http.Cookie {
	// A link that is opened again is of the same visitor, also if the link of another code, which anybody may
	// have sent, was opened meanwhile.
	was, _ := d.shown(r, c)
	if was.visitor == "" {
		was, _ = d.shown(r, Code{})
	}
	text := d.Key.New(c) + "." + cmp.Or(was.visitor, rand.Text())
	age := min(mostAge, max(0, c.Until().Sub(d.Now()))+24*time.Hour)
	same := d.SameSite
	if same == http.SameSiteStrictMode { // browsers would not send it after the redirect of a link in a mail
		same = http.SameSiteLaxMode
	}
	return wire.Partition(&http.Cookie{
		Name: d.names(r)[0] + cookieSuffix, Value: text, Path: d.Path, Domain: d.Domain,
		MaxAge: int(age.Seconds()), HttpOnly: true, Secure: d.Secure(r), SameSite: same,
	})
}

// cut takes the codes out of a query. The first one counts.
func cut(query string) (code, rest string, has bool) {
	if !strings.Contains(query, Field) {
		return "", query, false
	}
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		if name != Field {
			kept = append(kept, part)
			continue
		}
		if !has {
			code, _ = url.QueryUnescape(value) // "" if it cannot be: no code
		}
		has = true
	}
	return code, strings.Join(kept, "&"), has
}
