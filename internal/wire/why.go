package wire

import (
	"io"
	"net/http"
)

// Answers to rejected requests, except the page.
const (
	Denied     = "A rule of this site refuses this request."
	DeniedJSON = `{"type":"about:blank","title":"Forbidden","status":403,"detail":"` + Denied + "\"}\n"
)

// Why returns a sentence that explains why a visitor is not inside, given the state of the answer.
// It returns otherwise for a state that needs no reason.
func Why(state, otherwise string) string {
	switch state {
	case "full":
		return "This site is full at the moment."
	case "queue_all":
		return "The line stands still at the moment."
	case "closed":
		return "This site is closed at the moment."
	case "opens_at":
		return "This site is not open yet."
	case "down":
		return "This site does not answer at the moment."
	case "no_cookie":
		return "This site needs cookies: allow them, and load it again."
	case "sign_in":
		return "This site lets only people in who have signed in."
	case "limited":
		return "Too many come from this network at the moment."
	}
	return otherwise
}

// WriteWhy writes an answer of one sentence to what shows no page, such as a script or an image, which must
// not mistake it for its own answer.
func WriteWhy(w http.ResponseWriter, code int, state, secs string) {
	if code == http.StatusOK || code == http.StatusAccepted {
		code = http.StatusServiceUnavailable
	}
	w.Header()["Content-Type"] = []string{"text/plain; charset=utf-8"}
	w.WriteHeader(code)
	why := Why(state, "This site is full at the moment.")
	if state == "waiting" {
		why += " To join the line, open a page of it, with cookies allowed."
	}
	io.WriteString(w, why+" Try again in "+secs+" s.\n")
}
