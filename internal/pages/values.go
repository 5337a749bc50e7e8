package pages

import (
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// variables are the names that a room's own page may use. The first 27 are Cloudflare's (the keys
// of cfWaitingRoom, waitTimeHours and waitTimeHourMinutes); the rest is headgate's. own marks text
// that an operator wrote: it is always escaped.
var variables = []struct {
	name string
	own  bool
	of   func(w *words, v *view) any
}{
	{"inWaitingRoom", false, func(*words, *view) any { return true }},
	{"waitTimeKnown", false, func(_ *words, v *view) any { return v.ETAKnown }},
	{"waitTime", false, func(_ *words, v *view) any { return waitTime(v) }},
	{"waitTime25Percentile", false, func(_ *words, v *view) any { return percentile(v, v.ETALow) }},
	{"waitTime50Percentile", false, func(_ *words, v *view) any { return percentile(v, v.ETA) }},
	{"waitTime75Percentile", false, func(_ *words, v *view) any { return percentile(v, v.ETAHigh) }},
	{"waitTimeFormatted", false, (*words).waitTimeFormatted},
	{"queueIsFull", false, func(_ *words, v *view) any { return v.Full }},
	{"queueAll", false, func(_ *words, v *view) any { return v.QueueAll }},
	{"lastUpdated", false, func(_ *words, v *view) any {
		return v.UpdatedAt.UTC().Format("2006-01-02T15:04:05.000Z")
	}},
	{"refreshIntervalSeconds", false, func(_ *words, v *view) any {
		if !v.Refreshes() {
			return int64(0)
		}
		return refreshSeconds(v)
	}},
	{"queueingMethod", false, func(_ *words, v *view) any { return v.Method }},
	{"isFIFOQueue", false, isMethod("fifo")},
	{"isRandomQueue", false, isMethod("random")},
	{"isPassthroughQueue", false, isMethod("passthrough")},
	{"isRejectQueue", false, isMethod("reject")},
	{"isEventActive", false, func(_ *words, v *view) any { return v.Event.Active }},
	{"isEventPrequeueing", false, func(_ *words, v *view) any { return v.Event.Prequeue }},
	{"timeUntilEventStart", false, func(_ *words, v *view) any { return untilStart(v) }},
	{"timeUntilEventStartFormatted", false, func(w *words, v *view) any {
		return w.formatted(v.Event.Prequeue, untilStart(v))
	}},
	{"timeUntilEventEnd", false, func(_ *words, v *view) any { return untilEnd(v) }},
	{"timeUntilEventEndFormatted", false, func(w *words, v *view) any {
		return w.formatted(v.Event.Active, untilEnd(v))
	}},
	{"shuffleAtEventStart", false, func(_ *words, v *view) any { return v.Event.Shuffle }},
	{"turnstile", false, widget},
	{"infiniteQueue", false, func(*words, *view) any { return false }},
	{"waitTimeHours", false, func(_ *words, v *view) any { return waitTime(v) / 60 }},
	{"waitTimeHourMinutes", false, func(_ *words, v *view) any { return waitTime(v) % 60 }},

	{"title", true, func(_ *words, v *view) any { return v.Room }},
	{"message", true, func(_ *words, v *view) any { return v.Message }},
	{"state", false, func(_ *words, v *view) any { return string(v.State) }},
	{"heading", false, func(w *words, v *view) any { return w.head(v) }},
	{"methodText", false, func(w *words, v *view) any { return w.method(v) }},
	{"howText", false, func(w *words, v *view) any { return w.How[howKey(v)] }},
	{"draw", true, func(_ *words, v *view) any { return v.Event.Draw }},
	{"position", false, func(_ *words, v *view) any { return v.Position }},
	{"peopleAhead", false, func(_ *words, v *view) any { return v.Ahead }},
	{"waitingUsers", false, func(_ *words, v *view) any { return v.Waiting }},
	{"number", false, func(_ *words, v *view) any { return int64(v.Number) }},
	{"ticket", true, func(_ *words, v *view) any { return v.Ticket }},
	{"language", false, func(w *words, _ *view) any { return w.tag }},
	{"direction", false, func(w *words, _ *view) any { return w.Dir }},
	{"assets", true, func(_ *words, v *view) any {
		return strings.TrimSuffix(v.RoomPath, "/") + "/.headgate/assets"
	}},
}

// values returns the values of the variables for v.
func (w *words) values(v *headgate.View) map[string]any {
	all := make(map[string]any, len(variables))
	for i := range variables {
		all[variables[i].name] = variables[i].of(w, v)
	}
	return all
}

// widget is the HTML with which a page solves challenges, as the variable of Cloudflare is.
func widget(_ *words, v *view) any {
	if v.Challenge == "" {
		return ""
	}
	script := appendHTML(nil, strings.TrimSuffix(v.HereURL, "here.gif")+"work.js")
	return `<div id="headgate-challenge"></div><script src="` + string(script) + `" defer></script>`
}

func isMethod(name string) func(*words, *view) any {
	return func(_ *words, v *view) any { return v.Method == name }
}

func minutes(d time.Duration) int64 { return max(0, ceilDiv(int64(d), int64(time.Minute))) }

func waitTime(v *view) int64 {
	if !v.ETAKnown {
		return 0
	}
	return minutes(v.ETA)
}

// percentile returns a percentile of the waiting time if the draw makes the wait a matter of
// chance, else 0.
func percentile(v *view, d time.Duration) int64 {
	if !v.ETAKnown || v.Method != "random" {
		return 0
	}
	return minutes(d)
}

func untilStart(v *view) int64 {
	if !v.Event.Prequeue {
		return 0
	}
	return minutes(v.Event.StartsAt.Sub(v.UpdatedAt))
}

func untilEnd(v *view) int64 {
	if !v.Event.Active {
		return 0
	}
	return minutes(v.Event.EndsAt.Sub(v.UpdatedAt))
}

func (w *words) waitTimeFormatted(v *view) any {
	if v.ETAKnown && v.Method == "random" {
		return strings.NewReplacer("{a}", w.formatted(true, minutes(v.ETALow)),
			"{b}", w.formatted(true, minutes(v.ETAHigh))).Replace(w.text["span"])
	}
	return w.formatted(v.ETAKnown, waitTime(v))
}

// formatted returns a number of minutes as text, if it is known.
func (w *words) formatted(known bool, n int64) string {
	if !known {
		return w.text["unavailable"]
	}
	return strings.ReplaceAll(w.plural(w.Minutes, n, false), "{n}", string(w.number(nil, n)))
}
