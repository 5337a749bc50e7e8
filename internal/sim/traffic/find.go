package traffic

import (
	"bytes"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/signals"
)

// A Found is what the limit that finds itself would have found in the requests of a log.
type Found struct {
	Timed  int64   `json:"timed_requests"`           // requests whose line says how long they took
	Active int64   `json:"total_active_users"`       // the number; 0: too few requests
	Most   int64   `json:"most_active"`              // visitors inside at once
	Knee   float64 `json:"knee_requests_per_second"` // 0: the origin was never full
	Reason string  `json:"reason"`
}

// A finder gives the requests of a log to the controller of a room, as a room does that lets everybody
// in and only shows what it finds.
type finder struct {
	meter   *signals.Meter
	control *adaptive.Controller
	end     time.Duration   // of the interval at hand
	session int64           // intervals that a visitor without requests stays inside
	last    map[int64]int64 // visitors by the interval of their last request
	inside  int64
	entered int64
	some    bool // the interval has requests whose time is known
	found   Found
}

func newFinder(s *adaptive.Settings) *finder {
	return &finder{meter: signals.NewMeter(), control: adaptive.New(*s, adaptive.State{}), end: signals.Every,
		session: max(1, int64(s.SessionLength/signals.Every)), last: map[int64]int64{}}
}

// see counts a request at a time, of a visitor who is new or made the last one at was.
func (f *finder) see(line []byte, client []byte, now, was time.Duration, fresh bool) {
	for ; now >= f.end; f.end += signals.Every {
		f.step()
	}
	if fresh {
		f.entered++
		f.inside++
	} else if k := int64(was / signals.Every); f.last[k] > 0 {
		f.last[k]--
	} else { // the visitor was taken for gone within the interval
		f.inside++
	}
	f.last[int64(now/signals.Every)]++
	f.found.Most = max(f.found.Most, f.inside)
	if method, path, status, took, ok := answerOf(line); ok {
		if o, counts := outcomeOf(status, took); counts {
			f.meter.Note(method, path, networkOf(client), o, took)
			f.found.Timed++
			f.some = true
		}
	}
}

// step ends an interval.
func (f *finder) step() {
	x := f.meter.Read()
	s := adaptive.Sample{At: time.Unix(0, int64(f.end)), Length: signals.Every, Inside: float64(f.inside),
		Entered: f.entered, Limit: math.MaxInt64, Load: math.NaN()}
	if f.some {
		s.Routes, s.Excess = x.Routes, x.Excess()
	}
	d := f.control.Step(s)
	f.found.Active, f.found.Knee = d.Active, d.Knee
	if f.some { // the last one that says something about the origin
		f.found.Reason = string(d.Reason)
	}
	f.entered, f.some = 0, false
	gone := int64(f.end/signals.Every) - 1 - f.session
	f.inside -= f.last[gone]
	delete(f.last, gone)
}

// result returns what was found at the end of the log. Its last interval is none: it ends too early.
func (f *finder) result() *Found {
	if f.found.Timed == 0 {
		f.found.Active = 0
	}
	return &f.found
}

// outcomeOf returns how the origin treated a request, and whether that says something about it.
func outcomeOf(status int, took time.Duration) (o signals.Outcome, counts bool) {
	switch {
	case status == 499: // of nginx: the client has gone
		return signals.Answered, took >= time.Second
	case status == 429:
		return signals.Refused, true
	case status >= 500:
		return signals.Failed, true
	}
	return signals.Answered, true
}

// networkOf returns the number of a client's network: a /24 or a /48.
func networkOf(client []byte) uint64 {
	a, err := netip.ParseAddr(string(client))
	if err != nil {
		return hash(client)
	}
	bits := 48
	if a = a.Unmap(); a.Is4() {
		bits = 24
	}
	p, err := a.WithZone("").Prefix(bits)
	if err != nil {
		return hash(client)
	}
	b := p.Addr().As16()
	return hash(b[:])
}

// answerOf returns what a line says of an answer: the request line in quotes, the status, and at the end
// how long it took, in seconds with a fraction ("$request_time" of nginx), or a field rt=, which it has in
// many configurations.
func answerOf(line []byte) (method, path string, status int, took time.Duration, ok bool) {
	_, rest, _ := bytes.Cut(line, []byte("] \""))
	request, rest, quoted := bytes.Cut(rest, []byte("\" "))
	if !quoted {
		return "", "", 0, 0, false
	}
	words := bytes.Fields(request)
	code, rest, _ := bytes.Cut(rest, []byte(" "))
	status, err := strconv.Atoi(string(code))
	if err != nil || len(words) < 2 {
		return "", "", 0, 0, false
	}
	took, ok = tookOf(rest)
	target, _, _ := bytes.Cut(words[1], []byte("?"))
	return string(words[0]), string(target), status, took, ok
}

// tookOf returns the time at the end of a line. The client writes what is in quotes before it.
func tookOf(rest []byte) (took time.Duration, ok bool) {
	fields := bytes.Fields(rest)
	for i, f := range slices.Backward(fields) {
		value, marked := bytes.CutPrefix(f, []byte("rt="))
		if quoted := bytes.Count(value, []byte(`"`)); quoted == 1 || !marked &&
			(quoted > 0 || i < len(fields)-1 || !bytes.ContainsRune(value, '.')) {
			continue
		}
		s, err := strconv.ParseFloat(string(bytes.Trim(value, `"`)), 64)
		if err == nil && s >= 0 && s < time.Hour.Seconds() {
			return time.Duration(s * float64(time.Second)), true
		}
	}
	return 0, false
}
