package webhook

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"time"
)

// Kinds of messages.
const (
	QueueingStarted = "queueing_started"
	QueueingEnded   = "queueing_ended"
	PrequeueStarted = "event_prequeue_started"
	EventStarted    = "event_started"
	EventEnded      = "event_ended"
	OriginUnhealthy = "origin_unhealthy"
	OriginHealthy   = "origin_healthy"
	LimitChanged    = "limit_changed"
	Test            = "test" // sent to one webhook, whatever its filter is
)

// Kinds returns the kinds that a webhook can choose from.
func Kinds() []string {
	return []string{QueueingStarted, QueueingEnded, PrequeueStarted, EventStarted, EventEnded,
		OriginUnhealthy, OriginHealthy, LimitChanged}
}

// Version is the version of the body. It changes when a field is removed or changes its meaning,
// but not when one is added.
const Version = 1

// Counts is the state of a room at the time of a message.
type Counts struct {
	Waiting int64 `json:"waiting_users"`
	Active  int64 `json:"active_users"`
	New     int64 `json:"new_users_last_minute"`
	// Total and Rate are the limits in force.
	Total int64 `json:"total_active_users"`
	Rate  int64 `json:"new_users_per_minute"`
	// Wait is the estimated wait of a newcomer, in seconds. Nil: not known.
	Wait *float64 `json:"estimated_wait_seconds"`
}

// An Event is an event of a room.
type Event struct {
	Name     string     `json:"name"`
	Prequeue *time.Time `json:"prequeue_starts_at,omitempty"`
	Start    time.Time  `json:"starts_at"`
	End      time.Time  `json:"ends_at"`
}

// A Change is a change of one value of a limit. From is empty if the limit is new, To if it was
// removed.
type Change struct {
	Key  string `json:"key"`
	From string `json:"from"`
	To   string `json:"to"`
}

// A Message is what webhooks receive. It is stored unchanged until it is in the queues of the
// webhooks.
type Message struct {
	ID      string    `json:"id"`
	Kind    string    `json:"type"`
	At      time.Time `json:"timestamp"` // when it happened
	Number  uint64    `json:"number"`    // sequence number within a room, or within the limits
	Room    string    `json:"room,omitempty"`
	Limit   string    `json:"limit,omitempty"`
	Figures *Counts   `json:"figures,omitempty"`
	Event   *Event    `json:"event,omitempty"`
	Changes []Change  `json:"changes,omitempty"`
	By      string    `json:"by,omitempty"`
}

// A body is the JSON form of a message.
type body struct {
	Kind    string    `json:"type"`
	At      time.Time `json:"timestamp"`
	Version int       `json:"version"`
	Data    data      `json:"data"`
}

type data struct {
	Number     uint64   `json:"number,omitempty"`
	Room       string   `json:"room,omitempty"`
	Limit      string   `json:"limit,omitempty"`
	Datacenter string   `json:"datacenter,omitempty"`
	Webhook    string   `json:"webhook,omitempty"` // for a test
	Figures    *Counts  `json:"figures,omitempty"`
	Event      *Event   `json:"event,omitempty"`
	Changes    []Change `json:"changes,omitempty"`
	By         string   `json:"by,omitempty"`
	Link       string   `json:"link,omitempty"`
}

// Body returns the message as it is sent: type, timestamp and data, as Standard Webhooks
// recommends. datacenter is the data center that sends it, dashboard the URL of the operators'
// dashboard; both may be "".
func (m *Message) Body(datacenter, dashboard string) []byte {
	b := body{Kind: m.Kind, At: m.At.UTC(), Version: Version, Data: data{
		Number: m.Number, Room: m.Room, Limit: m.Limit, Datacenter: datacenter, Figures: m.Figures,
		Event: m.Event, Changes: m.Changes, By: m.By, Link: link(dashboard, m.Room, m.Limit),
	}}
	return b.encode()
}

// TestBody returns a message of the kind test.
func TestBody(webhook, by, datacenter, dashboard string, at time.Time) []byte {
	b := body{Kind: Test, At: at.UTC(), Version: Version, Data: data{Webhook: webhook, By: by,
		Datacenter: datacenter, Link: dashboard}}
	return b.encode()
}

func (b *body) encode() []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(b); err != nil {
		panic("a message of plain values: " + err.Error())
	}
	return bytes.TrimRight(text.Bytes(), "\n")
}

// link returns the URL of the dashboard view of a room, or of the limits.
func link(dashboard, room, limit string) string {
	switch {
	case dashboard == "":
		return ""
	case room != "":
		return dashboard + "#/rooms/" + url.PathEscape(room)
	case limit != "":
		return dashboard + "#/limits/" + url.PathEscape(limit)
	}
	return dashboard
}

// A Filter selects the messages that a webhook wants.
type Filter struct {
	Kinds []string
	Rooms []string // empty: all rooms, and the limits
}

// Wants reports whether the filter selects a message of this kind and room. The room is "" for
// limits.
func (c *Filter) Wants(kind, room string) bool {
	return slices.Contains(c.Kinds, kind) && (len(c.Rooms) == 0 || slices.Contains(c.Rooms, room))
}
