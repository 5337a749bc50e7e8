package analytics

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Metric is a figure computed for a step.
type Metric struct {
	Name string
	// of returns the value for a row whose step has this many seconds; false if there is none.
	of func(r *Row, step float64) (float64, bool)
}

// Value returns the figure for a row with this step in seconds. It returns false if there is none:
// without waiting visitors there is no waiting time.
func (m *Metric) Value(r *Row, step int64) (float64, bool) { return m.of(r, float64(step)) }

// Metrics returns the metrics of a kind, in the order of answers. It uses Cloudflare's names where
// they exist.
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
			as("exceeded", LimitExceeded), as("unreachable", LimitUnreachable)}
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

// mean is the average level over the observed time, which is the first column of each kind with
// levels. Times are whole seconds, so a mean over few seconds may be inexact; most limits it.
func mean(name string, col, most int) Metric {
	return Metric{name, func(r *Row, _ float64) (float64, bool) {
		if r.Values[RoomSeen] == 0 {
			return 0, false
		}
		return round(min(float64(r.Values[col])/float64(r.Values[RoomSeen]), float64(r.Values[most]))), true
	}}
}

// perMinute divides by the observed time, at least a minute. A clock that was set back makes it
// longer than a step.
func perMinute(r *Row, step float64) (float64, bool) {
	span := step
	if seen := float64(r.Values[RoomSeen]); seen > 0 {
		span = max(60, seen)
	}
	return round(60 * float64(r.Values[RoomAdmitted]) / span), true
}

// quantiles are in seconds.
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

// Find returns the metrics of a comma-separated list of names, or all of a kind for an empty list.
// For an unknown name it returns that name and false.
func Find(kind Kind, names string) (found []Metric, wrong string, ok bool) {
	all := Metrics(kind)
	if names == "" {
		return all, "", true
	}
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(all, func(m Metric) bool { return strings.EqualFold(m.Name, name) })
		if i < 0 {
			return nil, name, false
		}
		found = append(found, all[i])
	}
	return found, "", true
}
