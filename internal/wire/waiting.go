package wire

import (
	"strconv"
	"time"
)

// Waiting is what the JSON answer to a waiting visitor contains: headgate.View has the meanings.
type Waiting struct {
	State, Method, SlowerReason, Notice, Ticket string
	ServedURL, MoveURL, MoveLink, SignInURL     string
	Message, Draw, Challenge                    string
	Position, Ahead, Waiting, JoinedPosition    int64
	ETA, ETALow, ETAHigh, PollAfter             time.Duration
	Number, Served                              uint64
	UpdatedAt, OpensAt, StartsAt, EndsAt        time.Time
	ETAKnown, Refreshes, QueueAll, Full         bool
	EventActive, Prequeue, Shuffle              bool
}

// AppendJSON appends the JSON answer: Cloudflare's cfWaitingRoom object with all its keys
// (Cloudflare, "Get JSON response for mobile and other non-browser traffic"), and headgate's own
// object beside it.
func (v *Waiting) AppendJSON(b []byte) []byte {
	b = append(b, `{"cfWaitingRoom":{"inWaitingRoom":true,"waitTimeKnown":`...)
	b = strconv.AppendBool(b, v.ETAKnown)
	minutes := int64(0)
	if v.ETAKnown {
		minutes = WholeMinutes(v.ETA)
	}
	b = append(b, `,"waitTime":`...)
	b = strconv.AppendInt(b, minutes, 10)
	low, mid, high, draws := int64(0), int64(0), int64(0), v.ETAKnown && v.Method == "random"
	if draws {
		low, mid, high = WholeMinutes(v.ETALow), minutes, WholeMinutes(v.ETAHigh)
	}
	b = AppendJSONInt(b, "waitTime25Percentile", low)
	b = AppendJSONInt(b, "waitTime50Percentile", mid)
	b = AppendJSONInt(b, "waitTime75Percentile", high)
	b = append(b, `,"waitTimeFormatted":"`...)
	if draws {
		b = append(AppendMinutes(b, low, true), " to "...)
		minutes = high
	}
	b = AppendMinutes(b, minutes, v.ETAKnown)
	b = AppendJSONBool(append(b, '"'), "queueIsFull", v.Full)
	b = AppendJSONBool(b, "queueAll", v.QueueAll)
	b = append(b, `,"lastUpdated":"`...)
	b = AppendMillis(b, v.UpdatedAt)
	updated := b[len(b)-MillisLen:]
	refresh := int64((v.PollAfter + time.Second - 1) / time.Second)
	if !v.Refreshes {
		refresh = 0
	}
	b = AppendJSONInt(append(b, '"'), "refreshIntervalSeconds", refresh)
	b = AppendJSONString(b, "queueingMethod", v.Method)
	b = AppendJSONBool(b, "isFIFOQueue", v.Method == "fifo")
	b = AppendJSONBool(b, "isRandomQueue", v.Method == "random")
	b = AppendJSONBool(b, "isPassthroughQueue", v.Method == "passthrough")
	b = AppendJSONBool(b, "isRejectQueue", v.Method == "reject")
	b = AppendJSONBool(b, "isEventActive", v.EventActive)
	b = AppendJSONBool(b, "isEventPrequeueing", v.Prequeue)
	b = AppendJSONMinutes(b, "timeUntilEventStart", v.StartsAt.Sub(v.UpdatedAt), v.Prequeue)
	b = AppendJSONMinutes(b, "timeUntilEventEnd", v.EndsAt.Sub(v.UpdatedAt), v.EventActive)
	b = AppendJSONBool(b, "shuffleAtEventStart", v.Shuffle)
	b = append(b, `,"turnstile":"","infiniteQueue":false},"headgate":{"state":"`...)
	b = append(b, v.State...)
	b = append(b, '"')
	b = AppendJSONInt(b, "position", v.Position)
	b = AppendJSONInt(b, "ahead", v.Ahead)
	b = AppendJSONInt(b, "waiting", v.Waiting)
	b = AppendJSONInt(b, "joined_position", v.JoinedPosition)
	b = AppendJSONSeconds(b, "eta_seconds", v.ETA, v.ETAKnown)
	b = AppendJSONSeconds(b, "eta_low_seconds", v.ETALow, v.ETAKnown)
	b = AppendJSONSeconds(b, "eta_high_seconds", v.ETAHigh, v.ETAKnown)
	b = AppendJSONString(b, "slower", v.SlowerReason)
	b = AppendJSONString(b, "notice", v.Notice)
	b = append(b, `,"poll_after_seconds":`...)
	b = strconv.AppendFloat(b, v.PollAfter.Seconds(), 'f', 3, 64)
	b = AppendJSONString(b, "method", v.Method)
	b = AppendJSONString(b, "draw", v.Draw)
	b = AppendJSONString(b, "ticket", v.Ticket)
	b = append(b, `,"number":`...)
	b = strconv.AppendUint(b, v.Number, 10)
	b = append(b, `,"served":`...)
	b = strconv.AppendUint(b, v.Served, 10)
	b = AppendJSONString(b, "served_url", v.ServedURL)
	b = AppendJSONString(b, "move_url", v.MoveURL)
	b = AppendJSONString(b, "move_link", v.MoveLink)
	b = AppendJSONString(b, "sign_in_url", v.SignInURL)
	if v.Challenge != "" {
		b = append(append(b, `,"challenge":`...), v.Challenge...)
	}
	b = AppendJSONString(b, "message", v.Message)
	b = append(b, `,"opens_at":`...)
	if v.OpensAt.IsZero() {
		b = append(b, "null"...)
	} else {
		b = append(b, '"')
		b = v.OpensAt.UTC().AppendFormat(b, time.RFC3339)
		b = append(b, '"')
	}
	b = append(append(b, `,"updated_at":"`...), updated...)
	return append(b, "\"}}\n"...)
}
