package headgate

import (
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"
)

// appendView appends the JSON answer: Cloudflare's cfWaitingRoom object with
// all its keys (Cloudflare, "Get JSON response for mobile and other
// non-browser traffic"), ours beside it.
func appendView(b []byte, v *View) []byte {
	b = append(b, `{"cfWaitingRoom":{"inWaitingRoom":true,"waitTimeKnown":`...)
	b = strconv.AppendBool(b, v.ETAKnown)
	minutes := int64(0)
	if v.ETAKnown {
		minutes = int64((v.ETA + time.Minute - 1) / time.Minute)
	}
	b = append(b, `,"waitTime":`...)
	b = strconv.AppendInt(b, minutes, 10)
	b = append(b, `,"waitTime25Percentile":0,"waitTime50Percentile":0,"waitTime75Percentile":0`...)
	b = append(b, `,"waitTimeFormatted":"`...)
	b = appendMinutes(b, minutes, v.ETAKnown)
	b = append(b, `","queueIsFull":`...)
	b = strconv.AppendBool(b, v.Full)
	b = append(b, `,"queueAll":`...)
	b = strconv.AppendBool(b, v.QueueAll)
	b = append(b, `,"lastUpdated":"`...)
	b = v.UpdatedAt.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
	b = append(b, `","refreshIntervalSeconds":`...)
	b = strconv.AppendInt(b, int64((v.PollAfter+time.Second-1)/time.Second), 10)
	b = append(b, `,"queueingMethod":"fifo","isFIFOQueue":true,"isRandomQueue":false,`+
		`"isPassthroughQueue":false,"isRejectQueue":false,"isEventActive":false,`+
		`"isEventPrequeueing":false,"timeUntilEventStart":0,`+
		`"timeUntilEventStartFormatted":"unavailable","timeUntilEventEnd":0,`+
		`"timeUntilEventEndFormatted":"unavailable","shuffleAtEventStart":false,`+
		`"turnstile":"","infiniteQueue":false},"headgate":{"state":"`...)
	b = append(b, v.State...)
	b = append(b, '"')
	b = appendInt(b, "position", v.Position)
	b = appendInt(b, "ahead", v.Ahead)
	b = appendInt(b, "waiting", v.Waiting)
	b = appendInt(b, "joined_at", v.JoinedAt)
	b = appendSeconds(b, "eta_seconds", v.ETA, v.ETAKnown)
	b = appendSeconds(b, "eta_low_seconds", v.ETALow, v.ETAKnown)
	b = appendSeconds(b, "eta_high_seconds", v.ETAHigh, v.ETAKnown)
	b = appendString(b, "slower", v.Slower)
	b = append(b, `,"poll_after_seconds":`...)
	b = strconv.AppendFloat(b, v.PollAfter.Seconds(), 'f', 3, 64)
	b = appendString(b, "method", v.Method)
	b = appendString(b, "ticket", v.Ticket)
	b = append(b, `,"number":`...)
	b = strconv.AppendUint(b, v.Number, 10)
	b = append(b, `,"served":`...)
	b = strconv.AppendUint(b, v.Served, 10)
	b = appendString(b, "served_url", v.ServedURL)
	b = appendString(b, "message", v.Message)
	b = append(b, `,"opens_at":`...)
	if v.OpensAt.IsZero() {
		b = append(b, "null"...)
	} else {
		b = append(b, '"')
		b = v.OpensAt.UTC().AppendFormat(b, time.RFC3339)
		b = append(b, '"')
	}
	b = append(b, `,"updated_at":"`...)
	b = v.UpdatedAt.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
	return append(b, "\"}}\n"...)
}

func appendMinutes(b []byte, n int64, known bool) []byte {
	switch {
	case !known:
		return append(b, "unavailable"...)
	case n == 1:
		return append(b, "1 minute"...)
	}
	return append(strconv.AppendInt(b, n, 10), " minutes"...)
}

func appendKey(b []byte, key string) []byte {
	b = append(b, ',', '"')
	b = append(b, key...)
	return append(b, '"', ':')
}

func appendInt(b []byte, key string, n int64) []byte {
	return strconv.AppendInt(appendKey(b, key), n, 10)
}

func appendSeconds(b []byte, key string, d time.Duration, known bool) []byte {
	b = appendKey(b, key)
	if !known {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, int64((d+time.Second/2)/time.Second), 10)
}

// appendString appends a JSON string that is also safe inside HTML.
func appendString(b []byte, key, s string) []byte { return appendQuoted(appendKey(b, key), s) }

func appendQuoted(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c < 0x20 || c == '<' || c == '>' || c == '&' || c == 0x7f || c == 0x2028 || c == 0x2029:
			b = append(b, '\\', 'u', hex[c>>12&15], hex[c>>8&15], hex[c>>4&15], hex[c&15])
		default:
			b = utf8.AppendRune(b, c) // bytes that are no UTF-8 arrive as U+FFFD
		}
	}
	return append(b, '"')
}

// servedDoc is the document all who wait share.
type servedDoc struct {
	at   time.Duration
	body []byte
	size []string
}

// serveServed answers the shared document: which tickets were called. It is
// the same for everyone and made once a second, so that a cache in front can
// answer a whole crowd.
func (r *Room) serveServed(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	}
	clk := r.boot()
	d := r.doc.Load()
	if d == nil || clk-d.at >= time.Second {
		d = r.makeServed(clk)
		r.doc.Store(d)
	}
	h := w.Header()
	h["Content-Type"] = jsonType
	h["Cache-Control"] = shared
	h["Content-Length"] = d.size
	if req.Method == http.MethodGet {
		w.Write(d.body)
	}
}

var shared = []string{"public, max-age=1"}

func (r *Room) makeServed(clk time.Duration) *servedDoc {
	s := r.counter.State(r.worker.opened())
	b := append([]byte(nil), `{"served":`...)
	b = strconv.AppendUint(b, s.Served, 10)
	b = appendInt(b, "waiting", s.Waiting)
	b = appendString(b, "state", string(r.whyWaiting()))
	b = appendString(b, "message", r.live.Load().message)
	b = append(b, `,"rate_per_minute":`...)
	b = strconv.AppendFloat(b, s.Rate*60, 'f', 1, 64)
	b = append(b, `,"refresh_seconds":5}`+"\n"...)
	return &servedDoc{at: clk, body: b, size: []string{strconv.Itoa(len(b))}}
}
