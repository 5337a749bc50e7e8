package manage

import (
	"slices"
)

// A Query selects what the API reads.
type Query struct {
	What   string // Rooms, Events, RuleList, ZoneSet or "details"
	Zone   string // name
	Room   string // id
	Target string // id of the event, "" for all
}

// QueryDetails is the What of an event with inherited values.
const QueryDetails = "details"

// Read reads one object or a list of them.
func (b *Catalog) Read(l *Query) (*Result, error) {
	if l.What == ZoneSet {
		s := b.settings(l.Zone)
		return &Result{Value: &s.Settings, Version: s.Version}, nil
	}
	k, err := b.find(l.Zone, l.Room)
	if err != nil {
		return nil, err
	}
	res := b.shownResult(k)
	switch {
	case l.What == RuleList:
		res.Value = k.Rules
	case l.What == Events && l.Target == "":
		all := []*Event{}
		for _, e := range k.Events {
			all = append(all, b.shownEvent(e))
		}
		res.Value = all
	case l.What == Events, l.What == QueryDetails:
		at := slices.IndexFunc(k.Events, func(e *Event) bool { return e.ID == l.Target })
		if at < 0 {
			return nil, ErrNoEvent
		}
		e := b.shownEvent(k.Events[at])
		res.Value = e
		if l.What == QueryDetails {
			res.Value = e.details(b.shown(&k.Room, nil))
		}
	}
	return res, nil
}

// EventID returns the id of an event of a room by its name, "" if there is none.
func (b *Catalog) EventID(zone, room, name string) string {
	k, err := b.find(zone, room)
	if err != nil {
		return ""
	}
	if i := slices.IndexFunc(k.Events, func(e *Event) bool { return e.Name == name }); i >= 0 {
		return k.Events[i].ID
	}
	return ""
}

// Name returns the name of a room, "" if there is none with this id.
func (b *Catalog) Name(zone, id string) string {
	if k, err := b.find(zone, id); err == nil {
		return k.Name
	}
	return ""
}
