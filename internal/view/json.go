package view

import (
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/wire"
)

// AppendJSON appends the JSON answer: Cloudflare's cfWaitingRoom object with all its keys
// (Cloudflare, "Get JSON response for mobile and other non-browser traffic"), and headgate's own
// object beside it.
func (v *View) AppendJSON(b []byte) []byte {
	b = append(b, `{"cfWaitingRoom":{"inWaitingRoom":true,"waitTimeKnown":`...)
	b = strconv.AppendBool(b, v.ETAKnown)
	minutes := int64(0)
	if v.ETAKnown {
		minutes = wire.WholeMinutes(v.ETA)
	}
	b = append(b, `,"waitTime":`...)
	b = strconv.AppendInt(b, minutes, 10)
	low, mid, high, draws := int64(0), int64(0), int64(0), v.ETAKnown && v.Method == "random"
	if draws {
		low, mid, high = wire.WholeMinutes(v.ETALow), minutes, wire.WholeMinutes(v.ETAHigh)
	}
	b = wire.AppendJSONInt(b, "waitTime25Percentile", low)
	b = wire.AppendJSONInt(b, "waitTime50Percentile", mid)
	b = wire.AppendJSONInt(b, "waitTime75Percentile", high)
	b = append(b, `,"waitTimeFormatted":"`...)
	if draws {
		b = append(wire.AppendMinutes(b, low, true), " to "...)
		minutes = high
	}
	b = wire.AppendMinutes(b, minutes, v.ETAKnown)
	b = wire.AppendJSONBool(append(b, '"'), "queueIsFull", v.Full)
	b = wire.AppendJSONBool(b, "queueAll", v.QueueAll)
	b = append(b, `,"lastUpdated":"`...)
	b = wire.AppendMillis(b, v.UpdatedAt)
	updated := b[len(b)-wire.MillisLen:]
	refresh, e := int64((v.PollAfter+time.Second-1)/time.Second), &v.Event
	if !v.Refreshes() {
		refresh = 0
	}
	b = wire.AppendJSONInt(append(b, '"'), "refreshIntervalSeconds", refresh)
	b = wire.AppendJSONString(b, "queueingMethod", v.Method)
	b = wire.AppendJSONBool(b, "isFIFOQueue", v.Method == "fifo")
	b = wire.AppendJSONBool(b, "isRandomQueue", v.Method == "random")
	b = wire.AppendJSONBool(b, "isPassthroughQueue", v.Method == "passthrough")
	b = wire.AppendJSONBool(b, "isRejectQueue", v.Method == "reject")
	b = wire.AppendJSONBool(b, "isEventActive", e.Active)
	b = wire.AppendJSONBool(b, "isEventPrequeueing", e.Prequeue)
	b = wire.AppendJSONMinutes(b, "timeUntilEventStart", e.StartsAt.Sub(v.UpdatedAt), e.Prequeue)
	b = wire.AppendJSONMinutes(b, "timeUntilEventEnd", e.EndsAt.Sub(v.UpdatedAt), e.Active)
	b = wire.AppendJSONBool(b, "shuffleAtEventStart", e.Shuffle)
	b = append(b, `,"turnstile":"","infiniteQueue":false},"headgate":{"state":"`...)
	b = append(b, v.State...)
	b = append(b, '"')
	b = wire.AppendJSONInt(b, "position", v.Position)
	b = wire.AppendJSONInt(b, "ahead", v.Ahead)
	b = wire.AppendJSONInt(b, "waiting", v.Waiting)
	b = wire.AppendJSONInt(b, "joined_position", v.JoinedPosition)
	b = wire.AppendJSONSeconds(b, "eta_seconds", v.ETA, v.ETAKnown)
	b = wire.AppendJSONSeconds(b, "eta_low_seconds", v.ETALow, v.ETAKnown)
	b = wire.AppendJSONSeconds(b, "eta_high_seconds", v.ETAHigh, v.ETAKnown)
	b = wire.AppendJSONString(b, "slower", v.SlowerReason)
	b = wire.AppendJSONString(b, "notice", v.Notice)
	b = append(b, `,"poll_after_seconds":`...)
	b = strconv.AppendFloat(b, v.PollAfter.Seconds(), 'f', 3, 64)
	b = wire.AppendJSONString(b, "method", v.Method)
	b = wire.AppendJSONString(b, "draw", e.Draw)
	b = wire.AppendJSONString(b, "ticket", v.Ticket)
	b = append(b, `,"number":`...)
	b = strconv.AppendUint(b, v.Number, 10)
	b = append(b, `,"served":`...)
	b = strconv.AppendUint(b, v.Served, 10)
	b = wire.AppendJSONString(b, "served_url", v.ServedURL)
	b = wire.AppendJSONString(b, "move_url", v.MoveURL)
	b = wire.AppendJSONString(b, "move_link", v.MoveLink)
	b = wire.AppendJSONString(b, "message", v.Message)
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
