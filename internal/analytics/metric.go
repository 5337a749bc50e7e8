package analytics

import (
	"math"
	"strconv"
	"strings"
)

// A Metric is a figure of a step.
type Metric struct {
	Name string
	// of is its value for a row of a step of so many seconds; false if there is none.
	of func(r *Row, step float64) (float64, bool)
}

// Value is the figure of a row of a step of so many seconds, false if there is none: of nobody
// who waited there is no time.
func (m *Metric) Value(r *Row, step int64) (float64, bool) { return m.of(r, float64(step)) }

// Metrics are those of a kind, in the order of answers. Names are Cloudflare's where it has one.
func Metrics(kind Kind) []Metric {
	switch kind {
	case Room:
		all := []Metric{
			mean("totalActiveUsers", RoomActive, RoomActiveMax), as("totalActiveUsersMax", RoomActiveMax),
			as("totalActiveUsersConfig", RoomActiveLimit),
			mean("totalQueuedUsers", RoomWaiting, RoomWaitingMax), as("totalQueuedUsersMax", RoomWaitingMax),
			{"newUsersPerMinute", perMinute}, as("newUsersPerMinuteConfig", RoomNewLimit),
			as("sessionsRevoked", RoomRevoked),
			as("admitted", RoomAdmitted), as("joined", RoomJoined), sum("abandoned", RoomLeft, RoomExpired),
			as("polls", RoomPolls), as("sessionsReturned", RoomPassesBack),
			as("placesReturned", RoomPlacesBack), {"sessionsEnded", ended},
			as("passesShared", RoomPassesShared), as("passesRefused", RoomPassesRefused),
			sum("requests", RoomOrigin2xx, RoomOrigin3xx, RoomOrigin4xx, RoomOrigin5xx, RoomOriginNone,
				RoomOriginGone),
			as("origin2xx", RoomOrigin2xx), as("origin3xx", RoomOrigin3xx), as("origin4xx", RoomOrigin4xx),
			as("origin5xx", RoomOrigin5xx), as("originUnanswered", RoomOriginNone),
			as("originClientGone", RoomOriginGone),
		}
		all = append(all, quantiles("totalTimeWaited", RoomWaited)...)
		all = append(all, quantiles("timeOnOrigin", RoomInside)...)
		all = append(all, quantiles("longestSilence", RoomSilent)...)
		return append(all, quantiles("originLatency", RoomOrigin)...)
	case Limit:
		return []Metric{as("allowed", LimitAllowed), as("refused", LimitRefused),
			as("shadowed", LimitShadowed), as("unreachable", LimitUnreachable)}
	case Queue:
		return []Metric{mean("depth", QueueDepth, QueueDepthMax), as("depthMax", QueueDepthMax),
			as("put", QueuePut), as("delivered", QueueDelivered), as("retried", QueueRetried),
			as("busy", QueueBusy), as("died", QueueDied), as("dead", QueueDead)}
	}
	return nil
}

func ended(r *Row, _ float64) (float64, bool) { return float64(r.count(RoomInside)), true }

func as(name string, col int) Metric { return sum(name, col) }

func sum(name string, columns ...int) Metric {
	return Metric{name, func(r *Row, _ float64) (v float64, ok bool) {
		for _, c := range columns {
			v += float64(r.Values[c])
		}
		return v, true
	}}
}

// mean is a level over the time for which somebody looked at it: of each kind that has levels the
// first column. Times are whole seconds, so that a mean of some seconds may be off, but for the most.
func mean(name string, col, most int) Metric {
	return Metric{name, func(r *Row, _ float64) (float64, bool) {
		if r.Values[RoomSeen] == 0 {
			return 0, false
		}
		return round(min(float64(r.Values[col])/float64(r.Values[RoomSeen]), float64(r.Values[most]))), true
	}}
}

// perMinute is over the time for which somebody looked, a minute at least; a clock that was set back
// makes more of it than a step has.
func perMinute(r *Row, step float64) (float64, bool) {
	span := step
	if seen := float64(r.Values[RoomSeen]); seen > 0 {
		span = max(60, seen)
	}
	return round(60 * float64(r.Values[RoomAdmitted]) / span), true
}

// quantiles are seconds.
func quantiles(name string, i int) (all []Metric) {
	for _, p := range []int{50, 75, 90, 95, 99} {
		all = append(all, Metric{name + "P" + strconv.Itoa(p), func(r *Row, _ float64) (float64, bool) {
			d, ok := r.quantile(i, float64(p)/100)
			return d.Seconds(), ok
		}})
	}
	return all
}

func round(v float64) float64 { return math.Round(v*100) / 100 }

// Find are the metrics of a list of names with commas between; all of a kind for none. Of a name that
// there is not it returns that, and false.
func Find(kind Kind, names string) (found []Metric, wrong string, ok bool) {
	all := Metrics(kind)
	if names == "" {
		return all, "", true
	}
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		i := -1
		for j := range all {
			if strings.EqualFold(all[j].Name, name) {
				i = j
			}
		}
		if i < 0 {
			return nil, name, false
		}
		found = append(found, all[i])
	}
	return found, "", true
}
