package pages

import (
	"strconv"
	"time"

	"github.com/headgate/headgate"
)

// isShort reports whether v is about a place that moves to another device, or a rejected request.
// These always use a default page: a room's own page has neither the link nor the form.
func isShort(v *view) bool {
	switch v.State {
	case headgate.StateMoved, headgate.StateMoveHere, headgate.StateMoveAgain, headgate.StateMoveOver,
		headgate.StateDenied, stateCode:
		return true
	}
	return v.MoveLink != ""
}

// shortFields returns the values of short.html.
func shortFields(w *words) map[string]value[headgate.View] {
	return map[string]value[headgate.View]{
		"room":    func(dst []byte, v *view) []byte { return appendHTML(dst, v.Room) },
		"path":    func(dst []byte, v *view) []byte { return appendHTML(dst, v.RoomPath) },
		"state":   func(dst []byte, v *view) []byte { return appendHTML(dst, string(v.State)) },
		"head":    func(dst []byte, v *view) []byte { return appendHTML(dst, w.text[shortKey(v)]) },
		"lead":    w.shortLead,
		"body":    w.shortBody,
		"flock":   appendFlock,
		"refresh": appendShortRefresh,
		"poll": func(dst []byte, v *view) []byte {
			if shortKey(v) != "move" {
				return dst
			}
			return strconv.AppendFloat(dst, pollAfter(v).Seconds(), 'f', 3, 64)
		},
	}
}

// shortKey returns the key of the heading.
func shortKey(v *view) string {
	switch v.State {
	case stateCode:
		return "code_ask"
	case headgate.StateDenied:
		return "denied"
	case headgate.StateMoved:
		return "moved"
	case headgate.StateMoveHere:
		return "move_ask"
	case headgate.StateMoveAgain:
		return "move_again"
	case headgate.StateMoveOver:
		return "move_over"
	}
	return "move"
}

func (w *words) shortLead(dst []byte, v *view) []byte {
	switch shortKey(v) {
	case "move":
		return appendFilled(dst, w.text["move_how"], func(dst []byte, _ byte) []byte {
			return w.number(dst, ceilDiv(int64(v.MoveWithin), int64(time.Minute)))
		})
	case "move_ask", "move_again":
		return appendHTML(dst, w.text["move_lead"])
	}
	return dst
}

// shortBody appends the link, the form, or the way back into the line.
func (w *words) shortBody(dst []byte, v *view) []byte {
	put := func(parts ...string) {
		for i, s := range parts {
			if i%2 == 0 {
				dst = append(dst, s...)
			} else {
				dst = appendHTML(dst, s)
			}
		}
	}
	switch shortKey(v) {
	case "code_ask":
		w.codeForm(put, v)
	case "move":
		put(`<p><b id="link" dir="ltr">`, v.MoveLink, `</b></p><button id="copy" hidden>`,
			w.text["move_copy"], `</button><a href="`, v.RoomPath, `">`, v.Room, `</a>`)
	case "move_ask", "move_again":
		put(`<form method="post" action="`, v.MoveURL, `"><input type="hidden" name="place" value="`,
			v.MoveLink, `"><button>`, w.text["move_yes"], `</button></form><a href="`, v.RoomPath, `">`,
			v.Room, `</a>`)
	case "moved":
		put(`<a class="go" href="`, v.RoomPath, `">`, w.text["again"], `</a>`)
	case "move_over":
		put(`<a class="go" href="`, v.RoomPath, `">`, v.Room, `</a>`)
	}
	return dst
}

// appendShortRefresh makes the page of a visitor without JavaScript reload, which keeps its place
// while the link is shown.
func appendShortRefresh(dst []byte, v *view) []byte {
	if shortKey(v) != "move" {
		return dst
	}
	dst = append(dst, `<noscript><meta http-equiv="refresh" content="`...)
	return append(appendRefresh(dst, v), `"></noscript>`...)
}
