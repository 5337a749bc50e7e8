package adaptive

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/histogram"
)

// These are the bounds of a sample.
const (
	// MaxRoutes is the number of routes of a sample. The last has the requests of all others.
	MaxRoutes = 64
	// MaxPerNetwork is how many requests of one client network (a /24 or a /48) count in one
	// interval, over all routes. A visitor makes about one; an attacker that makes slow or failing
	// requests on purpose makes hundreds, and must not lower the limit. Chosen: what one network can
	// add is 1 % of 60 requests a second. With several nodes it is as many at each: see Excess.
	MaxPerNetwork = 3
)

// A Sample is what one interval saw of the origin, summed over all nodes. When the interval had no
// signals (no node could report), send it with the people but without routes: the controller holds.
type Sample struct {
	At     time.Time     // the end of the interval
	Length time.Duration // of the interval

	Inside  float64 // people inside, mean over the interval
	Waiting int64   // people that wait, at the end
	Entered int64   // people admitted in the interval
	Limit   int64   // total_active_users in force at the end; in shadow mode not the controller's own
	New     int64   // new_users_per_minute in force

	InFlight float64 // requests at the origin, mean over the interval
	Routes   []Route // at most MaxRoutes
	Load     float64 // of the origin, pushed or queried: 1 is full. NaN: none
	Excess   Excess  // what one network may have made on purpose: it does not count

	Frozen bool // an operator holds the limit: the controller learns, and changes nothing
	Behind bool // the last higher limit is not in force yet: the next step is one from Limit
}

// An Excess is what the network with the most requests has more than the one with the second most, over all
// nodes. One client may have made these, so that it would lower the limit of a quiet site, or of one with
// many nodes.
type Excess struct {
	Counted int64 // of all requests that count,
	Failed  int64 // of those that failed or were refused,
	Slow    int64 // and of those that took long
}

// A Route is one class of requests. What is slow by nature is compared with itself.
type Route struct {
	Class    string // method and path, shortened as in metrics; the same on all nodes
	Answered uint64 // requests that the origin answered, failed or not, of all networks

	// Of each client network, at most MaxPerNetwork requests of an interval are in the following,
	// over all routes: a fair sample for what visitors see.

	Latency histogram.Counts // time to the first byte of each answer; a time-out counts with its time
	Failed  uint64           // 5xx, time-outs, refused connections
	Refused uint64           // 429, and 503 with Retry-After (not in Failed): the origin says that it is full
}

// Settings are what an operator has configured.
type Settings struct {
	Min, Max      int64         // of total_active_users
	Start         int64         // the limit while nothing is learned; 0: Min
	MaxPerMinute  int64         // of new_users_per_minute
	TargetP95     time.Duration // 0: learned from the origin when it is not loaded
	TargetErrors  float64       // share of failed requests; 0: 1 %
	SessionLength time.Duration // session_duration: how long a visitor without requests stays inside

	// Calls says that the limit is one of calls under way: each takes a slot until it is answered, and
	// those that find none are refused. Inside is then the slots in use, and Waiting the refused calls.
	Calls bool

	// Own says that the limit is a rate of headgate's own requests: Inside is how many a second are made.
	// Each refusal counts, as nobody makes requests that fail on purpose, and each is followed by a pause:
	// what is answered meanwhile says nothing about the rate.
	Own bool
}

// A Decision is what is in force until the next one.
type Decision struct {
	Active    int64   // total_active_users
	PerMinute int64   // new_users_per_minute
	Knee      float64 // requests a second that the origin answers within its target; 0: not known yet
	P95       float64 // the 95th percentile of latency, as a share of the target; NaN: no signal
	Signal    Signal  // what decided
	Reason    Reason
	Held      bool // the limit did not follow the signals, for the given reason
}

// A Signal is what decided.
type Signal string

// These are all signals.
const (
	SignalNone    Signal = "none"
	SignalLatency Signal = "latency"
	SignalErrors  Signal = "errors"
	SignalRefused Signal = "refused"
	SignalLoad    Signal = "load"
	SignalPeople  Signal = "people" // requests per person changed
)

// reasonSlowIdle is the reason why nothing can be found: the target cannot be kept.
func reasonSlowIdle(took, target time.Duration) Reason {
	return Reason(fmt.Sprintf("%s%v when %s, more than its target of %v: change the target",
		slowIdleBegins, took, idle, target))
}

// These are parts of the only reason that has figures in it.
const (
	slowIdleBegins = "the origin takes "
	idle           = "almost nobody is inside"
	idleOfCalls    = "almost no call is under way"
)

// Label returns the reason without figures, for metrics: each other label would be a new series.
func Label(reason string) string {
	if !strings.HasPrefix(reason, slowIdleBegins) {
		return reason
	}
	when := idle
	if strings.Contains(reason, idleOfCalls) {
		when = idleOfCalls
	}
	return slowIdleBegins + "longer than its target when " + when + ": change the target"
}

// A Reason says in plain English why the limit changed, or why it did not.
type Reason string

// These are all reasons.
const (
	ReasonStart      Reason = "no sample yet: the limit begins at what was learned, or at min"
	ReasonRaised     Reason = "the origin answered the last step well: one step up"
	ReasonLatency    Reason = "the origin is slower than its target: lowered"
	ReasonErrors     Reason = "the origin fails: lowered at once"
	ReasonRefused    Reason = "the origin refuses requests: lowered at once"
	ReasonLoad       Reason = "the reported load is too high: lowered"
	ReasonPeople     Reason = "visitors make more or fewer requests than before: adjusted"
	ReasonSettled    Reason = "the origin is at its target"
	ReasonWaiting    Reason = "waiting for the origin's response to the last step"
	ReasonDraining   Reason = "above the limit: waiting for visitors to leave"
	ReasonNotFull    Reason = "fewer visitors inside than the limit: nothing to learn about a higher one"
	ReasonOneRoute   Reason = "only a part of the usual routes was asked for: too little to raise"
	ReasonFew        Reason = "too few requests to judge"
	ReasonLost       Reason = "no signals of the origin: the limit holds still"
	ReasonContradict Reason = "signals contradict each other: the limit holds still"
	ReasonFutile     Reason = "fewer visitors did not make the origin faster: the limit holds still"
	ReasonMin        Reason = "the limit is at min"
	ReasonMax        Reason = "the limit is at max"
	ReasonFrozen     Reason = "frozen by an operator"
)

// ofCalls returns the reason in the words of a limit of calls.
func (r Reason) ofCalls() Reason {
	switch r {
	case ReasonPeople:
		return "calls take more or less time than before: adjusted"
	case ReasonDraining:
		return "above the limit: waiting for calls to end"
	case ReasonNotFull:
		return "fewer calls under way than the limit: nothing to learn about a higher one"
	case ReasonFutile:
		return "fewer calls made the origin neither faster nor fail less: the limit holds still"
	}
	return Reason(strings.Replace(string(r), idle, idleOfCalls, 1))
}
