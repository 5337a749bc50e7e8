package webhook

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"time"
)

// The kinds of messages.
const (
	QueueingStarted = "queueing_started"
	QueueingEnded   = "queueing_ended"
	PrequeueStarted = "event_prequeue_started"
	EventStarted    = "event_started"
	EventEnded      = "event_ended"
	OriginUnhealthy = "origin_unhealthy"
	OriginHealthy   = "origin_healthy"
	LimitChanged    = "limit_changed"
	Test            = "test" // goes to one webhook, whatever it has chosen
)

// Kinds are the kinds that a webhook may choose from.
func Kinds() []string {
	return []string{QueueingStarted, QueueingEnded, PrequeueStarted, EventStarted, EventEnded,
		OriginUnhealthy, OriginHealthy, LimitChanged}
}

// Version is that of the body. It changes when a field goes or means something else, and not when
// one is added.
const Version = 1

// Figures are where a room stands when a message is made.
type Counts struct {
	Waiting int64 `json:"waiting_users"`
	Active  int64 `json:"active_users"`
	New     int64 `json:"new_users_last_minute"`
	// Total and Rate are the limits in force.
	Total int64 `json:"total_active_users"`
	Rate  int64 `json:"new_users_per_minute"`
	// Wait is how long a newcomer would wait, in seconds; nil: not known.
	Wait *float64 `json:"estimated_wait_seconds"`
}

// An Event is one of a room.
type Event struct {
	Name     string     `json:"name"`
	Prequeue *time.Time `json:"prequeue_starts_at,omitempty"`
	Start    time.Time  `json:"starts_at"`
	End      time.Time  `json:"ends_at"`
}

// A Change is of one value of a limit: From is empty if the limit was made, To if it was removed.
type Change struct {
	Key  string `json:"key"`
	From string `json:"from"`
	To   string `json:"to"`
}

// A Message is what is told. It is kept as it is until it is in the queues of the webhooks.
type Message struct {
	ID      string    `json:"id"`
	Kind    string    `json:"type"`
	At      time.Time `json:"timestamp"` // when it happened
	Number  uint64    `json:"number"`    // counts the messages of a room, or of the limits
	Room    string    `json:"room,omitempty"`
	Limit   string    `json:"limit,omitempty"`
	Figures *Counts   `json:"figures,omitempty"`
	Event   *Event    `json:"event,omitempty"`
	Changes []Change  `json:"changes,omitempty"`
	By      string    `json:"by,omitempty"`
}

// body is a message as it is sent.
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
	Webhook    string   `json:"webhook,omitempty"` // of a test
	Figures    *Counts  `json:"figures,omitempty"`
	Event      *Event   `json:"event,omitempty"`
	Changes    []Change `json:"changes,omitempty"`
	By         string   `json:"by,omitempty"`
	Link       string   `json:"link,omitempty"`
}

// Body is the message as it is sent: type, timestamp and data, as Standard Webhooks advise.
// datacenter is where it is told, dashboard where operators look; both may be "".
func (m *Message) Body(datacenter, dashboard string) []byte {
	b := body{Kind: m.Kind, At: m.At.UTC(), Version: Version, Data: data{
		Number: m.Number, Room: m.Room, Limit: m.Limit, Datacenter: datacenter, Figures: m.Figures,
		Event: m.Event, Changes: m.Changes, By: m.By, Link: link(dashboard, m.Room, m.Limit),
	}}
	return b.encode()
}

// TestBody is a message of the kind test.
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

// link is the view of the dashboard that shows a room, or the limits.
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

// A Choice is what a webhook wants to be told.
type Filter struct {
	Kinds []string
	Rooms []string // none: all rooms, and the limits
}

// Wants reports whether a message of a kind and a room, "" for limits, is chosen.
func (c *Filter) Wants(kind, room string) bool {
	return slices.Contains(c.Kinds, kind) && (len(c.Rooms) == 0 || slices.Contains(c.Rooms, room))
}
