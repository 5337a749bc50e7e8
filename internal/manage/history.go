package manage

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/hint"
)

// History returns at most that many changes, newest first: of a zone ("" all), of a room by its
// name ("" all), before a version (0: from the newest on).
func (b *Catalog) History(zone, room string, before int64, most int) []*Change {
	all := []*Change{}
	for _, c := range slices.Backward(b.state.History) {
		if len(all) == most {
			break
		}
		if (zone == "" || c.Zone == zone) && (room == "" || c.Room == room) &&
			(before == 0 || c.Version < before) {
			all = append(all, c)
		}
	}
	return all
}

// Change returns the change with a version.
func (b *Catalog) Change(version int64) (*Change, error) {
	for _, c := range b.state.History {
		if c.Version == version {
			return c, nil
		}
	}
	return nil, ErrNoChange
}

// Differences returns the members of the object that differ before and after the change. Members of
// nested objects are named by their path. It leaves out the members that every change sets, such as
// its time and author.
func (c *Change) Differences() (before, after map[string]string) {
	if c.What == RuleList {
		return listed(c.Before, c.After)
	}
	const most = 500 // maximum bytes of a value. Chosen
	var was, is map[string]json.RawMessage
	before, after = map[string]string{}, map[string]string{}
	if json.Unmarshal(c.Before, &was) != nil || json.Unmarshal(c.After, &is) != nil { // not objects but lists
		was = map[string]json.RawMessage{c.What: c.Before}
		is = map[string]json.RawMessage{c.What: c.After}
	}
	cut := func(v json.RawMessage) string { return hint.Cut(string(v), most) }
	if was == nil || is == nil { // created or deleted: the history has the whole object
		brief(was)
		brief(is)
	}
	was, is = flat(was), flat(is)
	for name, v := range was {
		if string(v) != string(is[name]) {
			before[name] = cut(v)
		}
	}
	for name, v := range is {
		if string(v) != string(was[name]) {
			after[name] = cut(v)
		}
	}
	return before, after
}

// flat names the members of nested objects by their path.
func flat(o map[string]json.RawMessage) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for name, v := range o {
		var inner map[string]json.RawMessage
		if json.Unmarshal(v, &inner) != nil || inner == nil {
			all[name] = v
		}
		for member, x := range flat(inner) {
			all[name+"."+member] = x
		}
	}
	for _, name := range []string{"modified_on", "headgate.version", "headgate.changed_by"} {
		delete(all, name)
	}
	return all
}

// brief removes all members except those that identify an object.
func brief(o map[string]json.RawMessage) {
	maps.DeleteFunc(o, func(name string, _ json.RawMessage) bool {
		return !slices.Contains([]string{"id", "name", "host", "path"}, name)
	})
}

// Undo reverts a change, if the object is still as the change has left it. That is a change too. Of
// op it uses the author, the time, and Fixed. With Fixed, an undo that would change the origin or
// the limits of a room is allowed only for the author's own changes.
func (b *Catalog) Undo(version int64, op *Op) (res *Result, err error) {
	b.now, b.by = op.At.UTC().Truncate(time.Microsecond), op.By
	was, err := b.Change(version)
	if err != nil {
		return nil, err
	}
	c := &Change{What: was.What, Verb: undone(was.Verb), Zone: was.Zone, Room: was.Room,
		RoomID: was.RoomID, Target: was.Target, Undoes: version}
	defer func() {
		if err == nil {
			res.Change = c
		}
	}()
	if was.What == ZoneSet {
		var then, now, next Settings
		now = b.settings(was.Zone).Settings
		if err := both(was, &then, &next); err != nil {
			return nil, err
		}
		if then != now {
			return nil, ErrSince
		}
		return b.putSettings(c, &next)
	}
	if was.What == Rooms {
		if err := b.mayGiveBack(was, op); err != nil {
			return nil, err
		}
		return b.undoRoom(was, c)
	}
	i := b.stored(was.RoomID)
	if i < 0 {
		return nil, ErrSince
	}
	k := b.state.Rooms[i]
	if was.What == RuleList {
		var then, next []*Rule
		if err := both(was, &then, &next); err != nil {
			return nil, err
		}
		if !alike(then, k.Rules) {
			return nil, ErrSince
		}
		if err := b.compile(next, k.Rules); err != nil {
			return nil, err
		}
		err := b.changed(c, k.Rules, next)
		k.Rules = next
		b.touch(k)
		return &Result{Value: next, Version: k.Own.Version}, err
	}
	return b.undoEvent(was, c, k)
}

// stored returns the index of a room of the store, or -1.
func (b *Catalog) stored(id string) int {
	return slices.IndexFunc(b.state.Rooms, func(k *StoredRoom) bool { return k.ID == id })
}

// undone returns the verb that reverts another.
func undone(verb string) string {
	switch verb {
	case Create:
		return Delete
	case Delete:
		return Create
	}
	return verb
}

// both decodes the values after and before a change.
func both(c *Change, after, before any) error {
	if err := json.Unmarshal(c.After, after); err != nil {
		return err
	}
	return json.Unmarshal(c.Before, before)
}

// alike reports whether two objects differ at most in the time and author of their change.
func alike(a, b any) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && string(x) == string(y)
}

// bare returns a room without the time and author of its change.
func bare(r Room) Room {
	r.ModifiedOn, r.Own.Version, r.Own.ChangedBy = time.Time{}, 0, ""
	return r
}

// mayGiveBack rejects an undo that restores values that the caller could not have written. An undo
// of the caller's own change only restores what was there before it.
func (b *Catalog) mayGiveBack(was *Change, op *Op) error {
	if !op.Fixed || was.By == op.By || was.Verb == Create {
		return nil
	}
	var next, now Room
	if err := json.Unmarshal(was.Before, &next); err != nil {
		return err
	}
	if i := b.stored(was.RoomID); i >= 0 {
		now = b.state.Rooms[i].Room
	}
	if next.Own.Origin != now.Own.Origin || !slices.Equal(next.Own.Limits, now.Own.Limits) {
		return one("", CodeValue, "use a token that is not limited to one zone",
			"this token may not change the origin or the limits of a room")
	}
	return nil
}

// undoRoom reverts a change of a room: a deleted one comes back with its rules and events, a
// created one goes if nothing was added to it.
func (b *Catalog) undoRoom(was, c *Change) (*Result, error) {
	i := b.stored(was.RoomID)
	if was.Verb == Delete {
		var next StoredRoom
		if err := json.Unmarshal(was.Before, &next); err != nil {
			return nil, err
		}
		if i >= 0 {
			return nil, ErrSince
		}
		if err := errors.Join(b.fits(&next.Room), b.compile(next.Rules, nil)); err != nil {
			return nil, err
		}
		b.state.Rooms = append(b.state.Rooms, &next)
		err := b.changed(c, nil, &next)
		b.touch(&next)
		return b.shownResult(&next), err
	}
	if i < 0 {
		return nil, ErrSince
	}
	k := b.state.Rooms[i]
	if was.Verb == Create {
		var then StoredRoom
		if err := json.Unmarshal(was.After, &then); err != nil {
			return nil, err
		}
		// To undo a creation deletes the room: with it would go what others have added since.
		if !alike(bare(then.Room), bare(k.Room)) || len(k.Events) > 0 || len(k.Rules) > 0 {
			return nil, ErrSince
		}
		b.state.Rooms = slices.Delete(b.state.Rooms, i, i+1)
		return &Result{Value: &Deleted{k.ID}, Version: k.Own.Version}, b.changed(c, k, nil)
	}
	var then, next Room
	if err := both(was, &then, &next); err != nil {
		return nil, err
	}
	if !alike(bare(then), bare(k.Room)) {
		return nil, ErrSince
	}
	if err := errors.Join(b.fits(&next), b.fit(&next, k.Events, "/headgate/hard_end_seconds")); err != nil {
		return nil, err
	}
	err := b.changed(c, &k.Room, &next)
	next.ModifiedOn = b.now
	k.Room = next
	b.touch(k)
	return b.shownResult(k), err
}

// fits checks an earlier state of a room against the current rooms and the file.
func (b *Catalog) fits(r *Room) error {
	c, err := b.room(r, b.originOf(r))
	if err != nil {
		return err
	}
	return b.unique(r, c)
}

// undoEvent reverts a change of an event. It runs the checks of a new change: the room or the other
// events may have changed since.
func (b *Catalog) undoEvent(was, c *Change, k *StoredRoom) (*Result, error) {
	i := slices.IndexFunc(k.Events, func(e *Event) bool { return e.ID == was.Target })
	var then, next *Event
	if err := both(was, &then, &next); err != nil {
		return nil, err
	}
	// A missing event is as the change has left it, if the change deleted it: nil is alike to nil.
	var now *Event
	if i >= 0 {
		x := *k.Events[i]
		if then != nil {
			x.ModifiedOn = then.ModifiedOn
		}
		now = &x
	}
	taken := next != nil && slices.ContainsFunc(k.Events, func(e *Event) bool {
		return e.ID != next.ID && e.Name == next.Name
	})
	if !alike(then, now) || taken {
		return nil, ErrSince
	}
	if next != nil {
		if err := b.fit(&k.Room, []*Event{next}, "/session_duration"); err != nil {
			return nil, err
		}
		// Other events may have been added since this one was deleted.
		if now == nil && len(k.Events) >= mostEvents {
			return nil, tooManyEvents()
		}
		if now != nil {
			if err := now.keepsDraw(next, b.now); err != nil {
				return nil, err
			}
		}
	}
	events := slices.Clone(k.Events)
	var value any = next
	switch {
	case next == nil:
		value = &Deleted{was.Target}
		events = slices.Delete(events, i, i+1)
	case now == nil:
		events = append(events, next)
	default:
		next.ModifiedOn = b.now
		events[i] = next
	}
	err := b.changed(c, orNull(now), orNull(next))
	k.Events = events
	b.touch(k)
	return &Result{Value: value, Version: k.Own.Version}, err
}

// orNull returns nil for a missing event: a nil pointer in an interface would not be nil.
func orNull(e *Event) any {
	if e == nil {
		return nil
	}
	return e
}
