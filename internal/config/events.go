package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/challenge"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/schema"
	"github.com/headgate/headgate/internal/slot"
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
		{name: "early", read: readEarly(&e.Early)},
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
	for i, x := range e.Early {
		key := fmt.Sprintf("%searly[%d].", k, i)
		switch {
		case x.Group == "" || !d.good(key+"group", key+"before"):
		case e.PrequeueStart.IsZero():
			begin := e.Start.Add(-x.Before).UTC().Format(time.RFC3339)
			d.clash(wrong("add prequeue_start: "+begin+", or an earlier time",
				"nobody waits before the start of an event without prequeue_start"), key+"before")
		case x.Before > e.Start.Sub(e.PrequeueStart):
			d.clash(wrong("write "+short(e.Start.Sub(e.PrequeueStart))+" or less, or let the prequeue begin earlier",
				"%s is before prequeue_start", short(x.Before)), key+"before")
		case slices.ContainsFunc(e.Early[:i], func(y Early) bool { return y.Group == x.Group }):
			d.clash(wrong("keep one of them", "%s occurs twice", quote(x.Group)), key+"group")
		}
	}
}

// readEarly reads the groups that come in before the start of an event.
func readEarly(dst *[]Early) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		for key, item := range d.items(key, n) {
			var x Early
			d.mapping(key, item, earlyFields(&x))
			*dst = append(*dst, x)
		}
	}
}

func earlyFields(x *Early) []field {
	return []field{
		required("group", "gold", text(&x.Group, anyText)),
		required("before", "2h", span(&x.Before, time.Second, 3660*day, false)),
	}
}

// maxBatch is invite.MaxBatch, and groupShare the share of a group unless it has another one. Chosen: three
// groups leave the others a third of the calls.
const (
	maxBatch   = 1<<16 - 1
	groupShare = 20
)

// readGroups reads the groups of people.
func readGroups(dst *[]Group) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		for key, item := range d.items(key, n) {
			x := Group{Share: groupShare}
			d.mapping(key, item, groupFields(&x))
			*dst = append(*dst, x)
		}
	}
}

func groupFields(x *Group) []field {
	return []field{
		required("name", "gold", text(&x.Name, cleanGroup)),
		one("share", whole(&x.Share, 1, slot.MaxShare)),
		list("batches", &x.Batches, cleanBatch),
	}
}

func cleanGroup(s string) (string, *mistake) {
	if !rules.LaneName(s) || s == challenge.Lane().Name || s == slot.NetworkLane().Name {
		return "", wrong("take 1 to 32 of A-Z, a-z, 0-9, _ and -, and neither unsolved nor network", "%s is no name of a group", quote(s))
	}
	return s, nil
}

func cleanBatch(s string) (int, *mistake) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxBatch {
		return 0, wrong("write the numbers of batches, such as [1, 2]", "%s is no number of a batch", quote(s))
	}
	return n, nil
}

// crossGroups checks the groups against what says who is in them.
func (i *Identity) crossGroups(d *decoder, k string) {
	from := "group_header: x-group"
	if i.JWT.JWKS != "" {
		from = "jwt: {…, group_claim: groups}"
	}
	has, of := i.GroupHeader+i.JWT.GroupClaim, map[int]string{}
	switch {
	case i.GroupHeader != "" && i.Header == "":
		d.clash(wrong("with jwt write group_claim, with codes write batches in a group", "counts only beside header"),
			k+"group_header")
	case has != "" && len(i.Groups) == 0 && d.good(k+"groups"):
		d.clash(wrong("add groups: [{name: gold}]", "says the groups of people, and there are none"),
			k+"group_header", k+"jwt.group_claim")
	}
	for n, g := range i.Groups {
		key := fmt.Sprintf("%sgroups[%d]", k, n)
		if !d.good(key, key+".name", key+".share", key+".batches") {
			continue
		}
		switch codes := i.CodesFile != ""; {
		case codes && len(g.Batches) == 0:
			d.clash(wrong("name the batches of its invitations: batches: [1]", "nobody can be in %s",
				quote(g.Name)), key+".name")
		case !codes && len(g.Batches) > 0:
			d.clash(wrong("leave it out: "+from+" says who is in a group", "the room has no invitations"),
				key+".batches")
		case !codes && has == "":
			d.clash(wrong("add "+from, "nothing says who is in %s", quote(g.Name)), key+".name")
		}
		for _, batch := range g.Batches {
			if of[batch] != "" {
				d.clash(wrong("give each batch one group", "batch %d is of the group %s too", batch, quote(of[batch])),
					key+".batches")
			}
			of[batch] = g.Name
		}
	}
}

// BatchGroups returns the groups of batches of invitations.
func (i *Identity) BatchGroups() map[int]string {
	of := map[int]string{}
	for _, g := range i.Groups {
		for _, batch := range g.Batches {
			of[batch] = g.Name
		}
	}
	return of
}

// GroupLanes returns the lanes of the groups.
func (i *Identity) GroupLanes() (lanes []slot.Lane) {
	for _, g := range i.Groups {
		lanes = append(lanes, slot.Lane{Name: g.Name, Share: g.Share})
	}
	return lanes
}

// checkEvents checks the events of a room against the room and each other.
func checkEvents(d *decoder, r *Room, k string) {
	for i := range r.Events {
		e, key := &r.Events[i], fmt.Sprintf("%sevents[%d].session_duration", k, i)
		for n, x := range e.Early {
			group := fmt.Sprintf("%sevents[%d].early[%d].group", k, i, n)
			known := slices.ContainsFunc(r.Identity.Groups, func(g Group) bool { return g.Name == x.Group })
			if !known && x.Group != "" && d.good(group, k+"identity", k+"identity.groups") {
				d.clash(wrong("add identity: {…, groups: [{name: "+cmp.Or(x.Group, "gold")+"}]} to the room",
					"the room has no group %s", quote(x.Group)), group)
			}
		}
		switch m, method := cmp.Or(e.Method, r.Method), fmt.Sprintf("%sevents[%d].method", k, i); {
		case len(e.Early) == 0 || d.amends || !d.good(method, k+"method"): // an operator may let all in at once
		case m == "passthrough", m == "reject":
			d.clash(wrong("add method: fifo to the event, or random",
				"with method: %s nobody of a group comes in early", m), fmt.Sprintf("%sevents[%d].early", k, i))
		}
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
