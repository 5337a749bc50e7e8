package invite

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/exclude"
	"github.com/headgate/headgate/internal/route"
)

// OwnPage is the sign-in page of a room that has no other: the form of a Desk. Its parts are replaced as
// those of a page of the site, and {own} by the folder that headgate answers itself.
const OwnPage = "{own}" + formName + "?why={reason}&to={url}"

// formName is the name of the form in the folder that headgate answers itself.
const formName = "code"

// mostForm limits the body of the form. Chosen: a code and all that a browser adds.
const mostForm = 4 << 10

// MostWrong is how many wrong codes a network may send by the form in a minute. Chosen: more than a household
// mistypes. Guessing is hopeless without it, see the package comment; with it an attack is in the counts.
const MostWrong = 30

// A Form is what a desk needs for the page with the form.
type Form struct {
	Places *route.Set
	Addr   func(*http.Request) netip.Addr
	// Page writes the page. Visitors without a code go on to back; why is a word of Words, "used" or "".
	Page func(w http.ResponseWriter, r *http.Request, back, why string)

	attempts *exclude.Joins // wrong codes
	began    time.Time
}

// NewForm returns the form of a room.
func NewForm(
	places *route.Set, addr func(*http.Request) netip.Addr,
	page func(w http.ResponseWriter, r *http.Request, back, why string),
) *Form {
	return &Form{places, addr, page, exclude.NewJoins(exclude.JoinLimit{Amount: MostWrong}), time.Now()}
}

// form answers requests for the page with the form, and for what it sends.
func (d *Desk) form(w http.ResponseWriter, r *http.Request) {
	query, f := r.URL.Query(), d.Form
	back := d.back(r)
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		why := query.Get("why")
		if !slices.Contains(append(Words()[Wrong:], "used"), why) {
			why = ""
		}
		f.Page(w, r, back, why)
		return
	case http.MethodPost:
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" { // a page elsewhere must not use up the attempts of a network
		http.Error(w, "only a page of this site sends codes", http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	code := ""
	if r.ParseForm() == nil {
		code = r.PostForm.Get(Field)
	}
	addr, now := f.Addr(r), time.Since(f.began)
	result := Limited
	if !f.attempts.IsOver(addr, now) {
		result = d.take(w, r, code)
	}
	d.Counts[result].Add(1)
	switch result {
	case Accepted:
		redirect(w, back)
		return
	case Wrong:
		f.attempts.Over(addr, now)
	}
	redirect(w, d.signIn(r, OwnPage, back, Words()[result]))
}

// back returns where visitors of the form go on.
func (d *Desk) back(r *http.Request) string {
	folder := strings.TrimSuffix(d.own(r), "/.headgate/") // a mail may link to the form, without an address
	return local(cmp.Or(r.URL.Query().Get("to"), folder))
}

func redirect(w http.ResponseWriter, to string) {
	w.Header()["Location"] = []string{to}
	w.WriteHeader(http.StatusSeeOther)
}

// local returns an address of this host, whatever a link says: the visitor is sent there. Browsers leave out
// tabs, and read a backslash as a slash.
func local(to string) string {
	if strings.ContainsFunc(to, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return "/"
	}
	return "/" + strings.TrimLeft(to, `/\`)
}
