package config

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/events"
)

// An Event changes a room for a time: its settings apply from its prequeue until its end.
type Event struct {
	// Name identifies the event within its room. Required.
	Name string

	// Start and End are required; Start is before End.
	Start, End time.Time

	// PrequeueStart is the time from which all newcomers are queued. It is before Start; the zero
	// time is no prequeue.
	PrequeueStart time.Time

	// Every is the interval at which the event repeats. 0, the default, is once.
	Every time.Duration

	// Shuffle draws a random order of the visitors in the prequeue when the event starts.
	Shuffle bool

	// Suspended cancels the event.
	Suspended bool

	// The settings that differ from the room. A zero value keeps the room's.
	TotalActiveUsers, NewUsersPerMinute int64 // both or none
	SessionDuration                     time.Duration
	SessionRenewal                      *bool
	Method, Message                     string

	// HTMLFile is the page of the event, a mustache template that replaces the page of the room.
	// Its path is resolved like that of Page.HTMLFile. "" is the page of the room.
	HTMLFile string
}

// maxEvents bounds the events of a room, so that checking them stays cheap. Chosen.
const maxEvents = 100

func readEvents(dst *[]Event) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		if n.Kind == yaml.SequenceNode && len(n.Content) > maxEvents {
			d.fault(key, n, wrong("take out those that are over, or let one repeat with every",
				"has %d events, more than %d", len(n.Content), maxEvents))
			return
		}
		named := map[string]string{}
		for key, item := range d.items(key, n) {
			var e Event
			renewal := false
			d.mapping(key, item, eventFields(&e, &renewal))
			if _, written := d.spots[key+".session_renewal"]; written {
				e.SessionRenewal = &renewal
			}
			if first, twice := named[e.Name]; twice && e.Name != "" {
				d.clash(wrong("give each event a name of its own", "%s is already the name of %s",
					quote(e.Name), first), key+".name")
			}
			named[e.Name] = key
			if item.Kind == yaml.MappingNode {
				e.cross(d, key+".")
			}
			*dst = append(*dst, e)
		}
	}
}

func eventFields(e *Event, renewal *bool) []field {
	return []field{
		required("name", "sale", text(&e.Name, cleanName)),
		required("start", "2026-12-01T10:00:00Z", raw(&e.Start, parseTime)),
		required("end", "2026-12-01T12:00:00Z", raw(&e.End, parseTime)),
		one("prequeue_start", raw(&e.PrequeueStart, parseTime)),
		one("every", span(&e.Every, time.Minute, 3660*day, false)),
		one("shuffle", truth(&e.Shuffle)),
		one("suspended", truth(&e.Suspended)),
		one("total_active_users", whole(&e.TotalActiveUsers, 1, maxUsers)),
		one("new_users_per_minute", whole(&e.NewUsersPerMinute, 1, maxUsers)),
		one("session_duration", span(&e.SessionDuration, time.Second, 30*day, false)),
		one("session_renewal", truth(renewal)),
		one("method", word(&e.Method, "fifo", "random", "passthrough", "reject")),
		one("message", text(&e.Message, cleanMessage)),
		{name: "html_file", read: readFileName(&e.HTMLFile)},
	}
}

// cross checks the keys of an event against each other.
func (e *Event) cross(d *decoder, k string) {
	if !d.good(k+"start", k+"end", k+"prequeue_start", k+"every") {
		return
	}
	begin := e.Start
	if !e.PrequeueStart.IsZero() {
		begin = e.PrequeueStart
	}
	switch {
	case !e.Start.Before(e.End):
		d.clash(wrong("let it end later", "is not after the start"), k+"end")
	case !e.PrequeueStart.IsZero() && !e.PrequeueStart.Before(e.Start):
		d.clash(wrong("let it begin before the start, or take it out", "is not before the start"),
			k+"prequeue_start")
	case e.Shuffle && e.PrequeueStart.IsZero():
		d.clash(wrong("add prequeue_start", "has nobody to draw from without a prequeue"), k+"shuffle")
	case e.Every > 0 && e.Every < e.End.Sub(begin):
		d.clash(wrong("repeat it at least "+short(e.End.Sub(begin))+" later",
			"%s begins again before it ends", short(e.Every)), k+"every")
	}
	if (e.TotalActiveUsers == 0) != (e.NewUsersPerMinute == 0) &&
		d.good(k+"total_active_users", k+"new_users_per_minute") {
		d.clash(wrong("set both or none of total_active_users and new_users_per_minute",
			"is without the other limit"), k+"total_active_users", k+"new_users_per_minute")
	}
}

// checkEvents checks the events of a room against the room and each other.
func checkEvents(d *decoder, r *Room, k string) {
	for i := range r.Events {
		e, key := &r.Events[i], fmt.Sprintf("%sevents[%d].session_duration", k, i)
		switch {
		case r.HardEnd == 0, e.SessionDuration <= r.HardEnd, !d.good(key, k+"hard_end"):
		case d.amends: // the events stay as they are
			d.clash(wrong("raise it, or shorten the session of that event first",
				"%s is shorter than the session of the event %s (%s)", short(r.HardEnd), quote(e.Name),
				short(e.SessionDuration)), k+"hard_end")
		default:
			d.clash(wrong("shorten it, or raise hard_end of the room", "%s is longer than hard_end (%s)",
				short(e.SessionDuration), short(r.HardEnd)), key)
		}
	}
}

// EventList returns the events of a room, with only their times.
func (r *Room) EventList() []events.Event {
	list := make([]events.Event, len(r.Events))
	for i := range r.Events {
		e := &r.Events[i]
		list[i] = events.Event{Name: e.Name, Prequeue: e.PrequeueStart, Start: e.Start, End: e.End,
			Every: e.Every, Shuffle: e.Shuffle, Suspended: e.Suspended}
	}
	return list
}

// At returns the room with the settings that its events give it at a time, and the state of the
// events.
func (r *Room) At(now time.Time) (Room, events.State) {
	c, m := *r, events.At(r.EventList(), now)
	if m.Active == nil {
		return c, m
	}
	e := &r.Events[m.Active.Index]
	if e.TotalActiveUsers > 0 {
		c.TotalActiveUsers, c.NewUsersPerMinute = e.TotalActiveUsers, e.NewUsersPerMinute
	}
	if e.SessionDuration > 0 {
		c.SessionDuration = e.SessionDuration
	}
	if e.SessionRenewal != nil {
		c.SessionRenewal = *e.SessionRenewal
	}
	if e.Method != "" {
		c.Method = e.Method
	}
	if e.Message != "" {
		c.Message = e.Message
	}
	return c, m
}
