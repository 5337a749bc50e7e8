package config

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/schema"
)

// maxEvents bounds the events of a room, so that checking them stays cheap. Chosen.
const maxEvents = 100

// readEvents reads the events of a room. session_renewal needs three states: on, off, and that of
// the room.
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
		required("name", "sale", nameText(&e.Name)),
		required("start", "2026-12-01T10:00:00Z", moment(&e.Start)),
		required("end", "2026-12-01T12:00:00Z", moment(&e.End)),
		one("prequeue_start", moment(&e.PrequeueStart)),
		one("every", span(&e.Every, time.Minute, 3660*day, false)),
		one("shuffle", truth(&e.Shuffle)),
		one("suspended", truth(&e.Suspended)),
		one("total_active_users", whole(&e.TotalActiveUsers, 1, maxUsers)),
		one("new_users_per_minute", whole(&e.NewUsersPerMinute, 1, maxUsers)),
		one("session_duration", span(&e.SessionDuration, time.Second, 30*day, false)),
		one("session_renewal", scalar{truth(renewal).read, &schema.Schema{Type: "boolean"}}), // no default but the room's
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
