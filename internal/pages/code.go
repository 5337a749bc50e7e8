package pages

import (
	"maps"
	"net/http"
	"strings"

	"github.com/headgate/headgate"
)

// stateCode is the state of the page on which visitors type the code of an invitation. Nobody waits in it.
const stateCode headgate.State = "code"

// WriteCodeForm writes the page on which visitors type their code. It posts to its own address. back is where
// visitors go on who have none; why is the reason for which a code does not count, or "".
func (p *Page) WriteCodeForm(w http.ResponseWriter, r *http.Request, title, back, why string) {
	v := headgate.View{Room: title, State: stateCode, RoomPath: back, Notice: why,
		AcceptLanguage: r.Header.Get("Accept-Language"), AcceptEncoding: r.Header.Get("Accept-Encoding")}
	h := w.Header()
	maps.Copy(h, p.Header(&v))
	// Chromium applies form-action to all redirects after the form: the site may send the visitor on to its
	// sign-in at another host. All that this page shows is escaped, and it has one form.
	h[policyName] = []string{strings.Replace(h.Get(policyName), "; "+ownForms, "", 1)}
	if r.Method == http.MethodHead {
		return
	}
	_ = p.Render(w, &v) // the visitor is gone
}

// codeFault returns the key of the text for a code that does not count, "" for none.
func codeFault(why string) string {
	switch why {
	case "wrong", "used", "limited":
		return "code_" + why
	case "expired", "revoked":
		return "code_over"
	}
	return ""
}

// codeForm appends the form. The text says what to do before the field, and belongs to it.
func (w *words) codeForm(put func(...string), v *view) {
	described := ""
	if key := codeFault(v.Notice); key != "" {
		put(`<p id="fault" role="alert">`, w.text[key], `</p>`)
		described = ` aria-invalid="true" aria-describedby="fault"`
	}
	put(`<form method="post"><label for="code">`, w.text["code_label"], `</label><input id="code" name="invitation" `+
		`required maxlength="60" autocomplete="off" autocapitalize="characters" spellcheck="false" dir="ltr"`+
		described+`><button>`, w.text["code_go"], `</button></form><a href="`, v.RoomPath, `">`, v.Room, `</a>`)
}

// appendCodeLink appends the way to the form, for visitors who have shown no code.
func (w *words) appendCodeLink(dst []byte, v *view) []byte {
	if !strings.Contains(v.SignInURL, "/.headgate/code?") {
		return dst
	}
	dst = appendHTML(append(dst, `<p><a href="`...), v.SignInURL)
	dst = appendHTML(append(dst, `">`...), w.text["code_link"])
	return append(dst, "</a></p>\n"...)
}
