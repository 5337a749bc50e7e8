package pages

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// A Failure holds what the page for a failed origin shows.
type Failure struct {
	Title     string // of the room
	Code      int    // 502 or 504
	RequestID string // the request's name in the log, or ""

	AcceptLanguage, AcceptEncoding string // headers of the visitor
}

// These are the measures of scene.svg. Ducks swim 40 units apart. The visitor's duck is at most the
// sixth from the gate, and has swum through once it is called.
const (
	farthest  = 80
	spacing   = 40
	inSight   = 5
	throughIt = 342              // between the gate and the edge
	noRefresh = 20 * time.Second // Cloudflare's refresh interval, used when none is given
)

// viewFields returns the values of page.html. The function show in page.js does the same for each
// answer.
func viewFields(w *words) map[string]value[headgate.View] {
	return map[string]value[headgate.View]{
		"title":    w.title,
		"refresh":  appendRefresh,
		"state":    func(dst []byte, v *view) []byte { return appendHTML(dst, string(v.State)) },
		"place":    appendPlace,
		"flock":    appendFlock,
		"room":     func(dst []byte, v *view) []byte { return appendHTML(dst, v.Room) },
		"head":     func(dst []byte, v *view) []byte { return appendHTML(dst, w.head(v)) },
		"big":      w.big,
		"what":     w.what,
		"bar":      appendBar,
		"eta":      w.eta,
		"position": func(dst []byte, v *view) []byte { return w.number(dst, v.Position) },
		"updated":  func(dst []byte, v *view) []byte { return w.clock(dst, v.UpdatedAt) },
		"slower":   func(dst []byte, v *view) []byte { return appendHTML(dst, v.SlowerReason) },
		"message":  func(dst []byte, v *view) []byte { return appendHTML(dst, v.Message) },
		"lead":     w.lead,
		"reloads":  w.reloads,
		"path":     func(dst []byte, v *view) []byte { return appendHTML(dst, v.RoomPath) },
		"move":     func(dst []byte, v *view) []byte { return appendHTML(dst, v.MoveURL) },
		"code":     w.appendCodeLink,
		"leave":    func(dst []byte, v *view) []byte { return appendHTML(dst, v.LeaveURL) },
		"here":     func(dst []byte, v *view) []byte { return appendHTML(dst, cmp.Or(v.HereURL, "data:,")) },
		"ticket":   func(dst []byte, v *view) []byte { return appendHTML(dst, v.Ticket) },
		"method":   func(dst []byte, v *view) []byte { return appendHTML(dst, w.method(v)) },
		"how":      func(dst []byte, v *view) []byte { return appendHTML(dst, w.How[howKey(v)]) },
		"draw":     appendDraw,
		"fair": func(dst []byte, v *view) []byte {
			if v.Event.Draw == "" {
				return append(dst, " hidden"...)
			}
			return dst
		},
		"view": appendView,
	}
}

// failureFields returns the values of error.html.
func failureFields(w *words) map[string]value[Failure] {
	return map[string]value[Failure]{
		"title": func(dst []byte, f *Failure) []byte { return appendHTML(dst, f.Title) },
		"flock": func(dst []byte, _ *Failure) []byte {
			return strconv.AppendInt(dst, farthest+spacing*inSight, 10)
		},
		"code": func(dst []byte, f *Failure) []byte { return strconv.AppendInt(dst, int64(f.Code), 10) },
		"head": func(dst []byte, f *Failure) []byte {
			if f.Code == http.StatusGatewayTimeout {
				return appendHTML(dst, w.text["error_504"])
			}
			return appendHTML(dst, w.text["error_502"])
		},
		"request": func(dst []byte, f *Failure) []byte { return appendHTML(dst, f.RequestID) },
	}
}

type view = headgate.View

func hasPlace(v *view) bool { return v.Position > 0 }

func isNext(v *view) bool { return hasPlace(v) && v.State == headgate.StateWaiting && v.Ahead <= 0 }

// showsAhead reports whether the large number is the number of people ahead.
func showsAhead(v *view) bool {
	switch v.State {
	case headgate.StateWaiting, headgate.StateQueueAll, headgate.StateDown:
		return hasPlace(v) && !isNext(v)
	}
	return false
}

// showsLine reports whether the large number is the length of the line.
func showsLine(v *view) bool { return v.State == headgate.StateFull && v.Waiting > 0 }

// howKey returns the key of the text that explains the order; how in page.js does the same.
func howKey(v *view) string {
	switch e := &v.Event; {
	case e.Prequeue && e.Shuffle:
		return "shuffle"
	case e.Prequeue:
		return "prequeue"
	case e.Active && e.Shuffle:
		return "shuffled"
	}
	return v.Method
}

// method returns the queueing method in words. Where the order is drawn, the first visitors to come
// are not the first to enter.
func (w *words) method(v *view) string {
	if v.Method == "fifo" && strings.HasPrefix(howKey(v), "shuffle") {
		return ""
	}
	return w.Method[v.Method]
}

// appendDraw shows the values that anybody can check the draw with. Once the order is drawn, they
// include the number of the visitor's ticket, which the page shows nowhere else.
func appendDraw(dst []byte, v *view) []byte {
	dst = appendHTML(dst, v.Event.Draw)
	if strings.Contains(v.Event.Draw, "/") && v.Number > 0 {
		dst = strconv.AppendUint(append(dst, " #"...), v.Number, 10)
	}
	return dst
}

func (w *words) head(v *view) string {
	if isNext(v) {
		return w.H["next"]
	}
	if h, ok := w.H[string(v.State)]; ok {
		return h
	}
	return w.H["waiting"]
}

func (w *words) title(dst []byte, v *view) []byte {
	if showsAhead(v) {
		dst = append(w.number(dst, v.Ahead), " · "...)
	}
	return appendHTML(append(appendHTML(dst, w.head(v)), " · "...), v.Room)
}

func (w *words) big(dst []byte, v *view) []byte {
	switch {
	case showsAhead(v):
		return w.number(dst, v.Ahead)
	case showsLine(v):
		return w.number(dst, v.Waiting)
	case v.State == headgate.StateOpensSoon:
		return appendCountdown(dst, v.OpensAt.Sub(v.UpdatedAt))
	}
	return dst
}

func (w *words) what(dst []byte, v *view) []byte {
	switch {
	case showsAhead(v):
		return appendHTML(dst, w.plural(w.Ahead, v.Ahead, false))
	case showsLine(v):
		return appendHTML(dst, w.plural(w.InLine, v.Waiting, false))
	case v.State == headgate.StateOpensSoon:
		return appendHTML(dst, w.Opens)
	}
	return dst
}

func (w *words) lead(dst []byte, v *view) []byte {
	text, ok := w.Lead[string(v.State)]
	if !ok {
		text = w.Lead["waiting"]
	}
	return appendFilled(dst, text, func(dst []byte, _ byte) []byte {
		return w.date(dst, v.OpensAt)
	})
}

func (w *words) reloads(dst []byte, v *view) []byte {
	return appendFilled(dst, w.text["reloads"], func(dst []byte, _ byte) []byte {
		return w.number(dst, refreshSeconds(v))
	})
}

// eta returns the expected time as a range in words, rounded outwards: to whole minutes, to five
// minutes above 20 minutes, to half hours above 90 minutes. A finer range would promise too much.
func (w *words) eta(dst []byte, v *view) []byte {
	if !v.ETAKnown {
		return appendHTML(dst, w.ETANone)
	}
	low := int64(v.ETALow / time.Second)
	high := ceilDiv(int64(v.ETAHigh), int64(time.Second))
	if high <= 60 {
		return appendHTML(dst, w.ETAShort)
	}
	unit, step, per := &w.Minute, int64(60), int64(60)
	switch {
	case high > 5400:
		unit, step, per = &w.Hour, 1800, 3600
	case high > 1200:
		step = 300
	}
	a, b := low/step*step, ceilDiv(high, step)*step
	form := unit.Range
	switch {
	case a == b:
		form = unit.Near
	case a <= 0:
		form = unit.Most
	}
	return appendFilled(dst, w.plural(form, b/per, b%per != 0), func(dst []byte, key byte) []byte {
		n := b
		if key == 'a' {
			n = a
		}
		dst = w.number(dst, n/per)
		if n%per != 0 {
			dst = w.half(dst)
		}
		return dst
	})
}

// appendCountdown appends hours, minutes and seconds, rounded up.
func appendCountdown(dst []byte, left time.Duration) []byte {
	s := max(0, ceilDiv(int64(left), int64(time.Second)))
	if s < 36000 {
		dst = append(dst, '0')
	}
	dst = strconv.AppendInt(dst, s/3600, 10)
	m, s := s/60%60, s%60
	return append(dst, ':', byte('0'+m/10), byte('0'+m%10), ':', byte('0'+s/10), byte('0'+s%10))
}

func appendRefresh(dst []byte, v *view) []byte {
	return strconv.AppendInt(dst, refreshSeconds(v), 10)
}

// refreshSeconds returns the reload interval of a page without JavaScript.
func refreshSeconds(v *view) int64 { return wholeSeconds(pollAfter(v)) }

// pollAfter returns the time until the first poll. A View without one gets the refresh interval,
// because zero would be a loop.
func pollAfter(v *view) time.Duration { return cmp.Or(max(0, v.PollAfter), noRefresh) }

func appendPlace(dst []byte, v *view) []byte {
	if !hasPlace(v) {
		return dst
	}
	return append(dst, " data-place"...)
}

func appendFlock(dst []byte, v *view) []byte {
	at := farthest + spacing*(inSight-min(inSight, max(0, v.Ahead)))
	if v.State == headgate.StateCalled {
		at = throughIt
	}
	return strconv.AppendInt(dst, at, 10)
}

// appendBar appends the progress of the visitor since it joined. The bar has one step more than
// there are people, so that it moves at once and is full only behind the gate.
func appendBar(dst []byte, v *view) []byte {
	dst = strconv.AppendInt(append(dst, `max="`...), max(0, v.JoinedPosition)+1, 10)
	dst = append(dst, '"')
	if v.JoinedPosition <= 0 {
		return dst
	}
	dst = strconv.AppendInt(append(dst, ` value="`...), max(0, v.JoinedPosition-v.Ahead), 10)
	return append(dst, '"')
}

func appendTime(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, time.RFC3339)
}

// appendView appends those keys of the JSON answer's "headgate" object that page.js reads. It
// leaves out the message, which can be long and is already on the page.
func appendView(dst []byte, v *view) []byte {
	dst = appendJSON(append(dst, `{"state":`...), string(v.State))
	dst = strconv.AppendInt(append(dst, `,"position":`...), v.Position, 10)
	dst = strconv.AppendInt(append(dst, `,"ahead":`...), v.Ahead, 10)
	dst = strconv.AppendInt(append(dst, `,"waiting":`...), v.Waiting, 10)
	dst = strconv.AppendInt(append(dst, `,"joined_position":`...), max(0, v.JoinedPosition), 10)
	if v.ETAKnown {
		low, high := int64(v.ETALow/time.Second), ceilDiv(int64(v.ETAHigh), int64(time.Second))
		dst = strconv.AppendInt(append(dst, `,"eta_low_seconds":`...), low, 10)
		dst = strconv.AppendInt(append(dst, `,"eta_high_seconds":`...), high, 10)
	}
	dst = appendJSON(append(dst, `,"slower":`...), v.SlowerReason)
	dst = strconv.AppendFloat(append(dst, `,"poll_after_seconds":`...), pollAfter(v).Seconds(), 'f', 3, 64)
	dst = appendJSON(append(dst, `,"method":`...), v.Method)
	dst = appendJSON(append(dst, `,"how":`...), howKey(v))
	dst = appendJSON(append(dst, `,"draw":`...), v.Event.Draw)
	dst = appendJSON(append(dst, `,"ticket":`...), v.Ticket)
	dst = strconv.AppendUint(append(dst, `,"number":`...), v.Number, 10)
	dst = appendJSON(append(dst, `,"served_url":`...), v.ServedURL)
	if v.Challenge != "" {
		dst = append(append(dst, `,"challenge":`...), v.Challenge...)
	}
	if !v.OpensAt.IsZero() {
		dst = appendTime(append(dst, `,"opens_at":"`...), v.OpensAt)
		dst = append(dst, '"')
	}
	dst = appendTime(append(dst, `,"updated_at":"`...), v.UpdatedAt)
	return append(dst, `"}`...)
}
