package manage

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/config"
)

// The objects and the verbs of operations.
const (
	Rooms    = "room"
	Events   = "event"
	RuleList = "rules" // all rules of a room
	OneRule  = "rule"
	ZoneSet  = "settings"

	Create  = "create"
	Replace = "replace"
	Edit    = "edit"
	Delete  = "delete"
)

// An Op is one requested change.
type Op struct {
	What, Verb string
	Zone       string // name
	Room       string // id
	Target     string // id of the event or the rule
	Body       []byte
	Match      int64 // the required version of the room, 0: any
	By         string
	At         time.Time
	// Fixed says that the caller may not change the origin or the limits of a room.
	Fixed bool
}

// A Result is the result of an operation.
type Result struct {
	Value   any   // the content of the API's answer
	Version int64 // of the room, or the settings
	Change  *Change
}

// Deleted is the answer for a deleted object.
type Deleted struct {
	ID string `json:"id"`
}

// Do makes a change. After an error the Catalog must not be used any more.
func (b *Catalog) Do(op *Op) (*Result, error) {
	b.now, b.by = op.At.UTC().Truncate(time.Microsecond), op.By
	c := &Change{What: op.What, Zone: op.Zone, Verb: "change"}
	before := b.state.Version
	var res *Result
	var err error
	switch op.What {
	case Rooms:
		res, err = b.doRoom(op, c)
	case Events:
		res, err = b.doEvent(op, c)
	case RuleList, OneRule:
		c.What = RuleList
		res, err = b.doRules(op, c)
	default:
		res, err = b.doSettings(op, c)
	}
	if err != nil {
		return nil, err
	}
	// A body that changes nothing makes no version and no entry in the history.
	if b.state.Version != before {
		res.Change = c
	}
	return res, nil
}

// doRoom creates, changes or deletes a room. A room of the file is rejected: the file would win at
// the next reload.
func (b *Catalog) doRoom(op *Op, c *Change) (*Result, error) {
	if op.Verb == Create {
		return b.createRoom(op, c)
	}
	k, err := b.own(op)
	if err != nil {
		return nil, err
	}
	c.Room, c.RoomID = k.Name, k.ID
	if op.Verb == Delete {
		c.Verb = Delete
		b.state.Rooms = slices.DeleteFunc(b.state.Rooms, func(x *StoredRoom) bool { return x == k })
		return &Result{Value: &Deleted{k.ID}, Version: k.Own.Version}, b.changed(c, k, nil)
	}
	next := k.Room
	next.Own.Page = b.shownPage(&k.Own.Page)
	d := &draft{Room: &next, page: b.page(k.CustomPageHTML)}
	if err := b.readRoom(op, d, &k.Room); err != nil {
		return nil, err
	}
	if err := b.fit(&next, k.Events, "/headgate/hard_end_seconds"); err != nil {
		return nil, err
	}
	if err := b.checkChallenge(k.Rules, &next, "/headgate/challenge/kind"); err != nil {
		return nil, err
	}
	was := k.Room
	if err := b.changed(c, &was, &next); err != nil {
		return nil, err
	}
	if b.dirty {
		next.ModifiedOn, next.Own.Version, next.Own.ChangedBy = b.now, b.state.Version, b.by
		k.Room = next
	}
	return b.shownResult(k), nil
}

func (b *Catalog) shownResult(k *StoredRoom) *Result {
	return &Result{Value: b.shown(&k.Room, k.Events), Version: k.Own.Version}
}

func (b *Catalog) createRoom(op *Op, c *Change) (*Result, error) {
	d := newDraft()
	if err := b.readRoom(op, d, nil); err != nil {
		return nil, err
	}
	d.ID, d.CreatedOn, d.ModifiedOn = newID(), b.now, b.now
	d.Own.Source, d.Own.Version, d.Own.ChangedBy = "store", b.state.Version+1, b.by
	k := &StoredRoom{Room: *d.Room, Events: []*Event{}, Rules: []*Rule{}}
	b.state.Rooms = append(b.state.Rooms, k)
	c.Verb, c.Room, c.RoomID = Create, k.Name, k.ID
	return b.shownResult(k), b.changed(c, nil, k)
}

// readRoom reads a body into a room and checks it against all others. was is nil for a new room.
func (b *Catalog) readRoom(op *Op, d *draft, was *Room) error {
	var all Faults
	add := func(err error) bool {
		more, ok := errors.AsType[Faults](err)
		for _, f := range more { // do not report again what could not be read
			if !slices.ContainsFunc(all, func(x *Fault) bool { return x.Pointer == f.Pointer }) {
				all = append(all, f)
			}
		}
		return err == nil || ok
	}
	if err := d.read(op.Body, op.Verb != Edit); !add(err) {
		return err
	}
	if slices.ContainsFunc(all, func(f *Fault) bool { return f.Pointer == "" || f.Code == CodeJSON }) {
		return all
	}
	d.Host = config.CleanHost(d.Host)
	for i := range d.AdditionalRoutes {
		d.AdditionalRoutes[i].Host = config.CleanHost(d.AdditionalRoutes[i].Host)
	}
	elsewhere := b.inZone(d.Room, op.Zone)
	origin := b.originOf(d.Room)
	if op.Fixed && (was == nil && d.Own.Origin != "" || was != nil && d.Own.Origin != was.Own.Origin) {
		add(one("/headgate/origin", CodeValue, "leave it out, or use a token that is not limited to one zone",
			"this token may not set the origin of a room"))
	} else if origin == "" && elsewhere == nil {
		add(one("/headgate/origin", CodeRequired, "add it, such as http://127.0.0.1:3000, or add an origin to "+
			"the zone in the configuration file", "no origin is set for this room"))
	}
	if err := b.mayLimit(op, d, was); !add(err) {
		return err
	}
	c, err := b.room(d.Room, cmp.Or(origin, nowhere))
	if !add(err) {
		return err
	}
	add(elsewhere) // an invalid host is reported already
	if all != nil {
		return all
	}
	d.written(c)
	if err := b.unique(d.Room, c); err != nil {
		return err
	}
	d.CustomPageHTML, d.Own.Page = b.keep(d.page), b.keepPage(&d.Own.Page)
	return nil
}

// nowhere replaces an unknown origin, so that the other faults can be found.
const nowhere = "http://127.0.0.1:1"

// inZone checks that all hosts of a room are in the zone that it is written to.
func (b *Catalog) inZone(r *Room, zone string) error {
	hosts, places := []string{r.Host}, []string{"/host"}
	for i, x := range r.AdditionalRoutes {
		hosts, places = append(hosts, x.Host), append(places, item("/additional_routes", i)+"/host")
	}
	for i, host := range hosts {
		if z := zoneOf(b.zones, host); z.Name != zone {
			return one(places[i], CodeValue, "write to zone "+z.ID+" ("+z.Name+"), or choose another host",
				quote(host)+" is not in the zone "+zone)
		}
	}
	return nil
}

// mayLimit rejects limits that do not exist, and any limits from a caller that may not choose them:
// a limit is shared with other rooms, which lack what one room uses.
func (b *Catalog) mayLimit(op *Op, d *draft, was *Room) error {
	var all Faults
	before := []string{}
	if was != nil {
		before = was.Own.Limits
	}
	if op.Fixed && !slices.Equal(before, d.Own.Limits) {
		return one("/headgate/limits", CodeValue, "leave it out, or use a token that is not limited to one zone",
			"this token may not set the limits of a room")
	}
	for i, name := range d.Own.Limits {
		if !slices.ContainsFunc(b.cfg.Limits, func(l config.Limit) bool { return l.Name == name }) &&
			!slices.Contains(before, name) {
			all = append(all, &Fault{item("/headgate/limits", i), CodeValue,
				"there is no limit " + quote(name),
				"use a limit of the configuration file, or add this one there under limits"})
		}
	}
	if all != nil {
		return all
	}
	return nil
}

// doEvent creates, changes or deletes an event. Its checks need the room: sessions of an event end
// with those of the room, and names are unique within it.
func (b *Catalog) doEvent(op *Op, c *Change) (*Result, error) {
	k, err := b.own(op)
	if err != nil {
		return nil, err
	}
	c.Room, c.RoomID = k.Name, k.ID
	at := slices.IndexFunc(k.Events, func(e *Event) bool { return e.ID == op.Target })
	if at < 0 && op.Verb != Create {
		return nil, ErrNoEvent
	}
	if op.Verb == Delete {
		was := k.Events[at]
		c.Verb, c.Target = Delete, was.ID
		k.Events = slices.Delete(slices.Clone(k.Events), at, at+1)
		err := b.changed(c, was, nil)
		b.touch(k)
		return &Result{Value: &Deleted{was.ID}, Version: k.Own.Version}, err
	}
	var was any
	d := &eventDraft{Event: &Event{}}
	if op.Verb == Create {
		c.Verb = Create
		if len(k.Events) >= mostEvents {
			return nil, tooManyEvents()
		}
		d.ID, d.CreatedOn, d.ModifiedOn = newID(), b.now, b.now
	} else {
		e := k.Events[at]
		was = e
		*d.Event = *e
		d.page = b.shownEvent(e).CustomPageHTML
	}
	if err := d.read(op.Body, op.Verb != Edit); err != nil {
		return nil, err
	}
	if err := b.fit(&k.Room, []*Event{d.Event}, "/session_duration"); err != nil {
		return nil, err
	}
	if e, ok := was.(*Event); ok {
		if err := e.keepsDraw(d.Event, b.now); err != nil {
			return nil, err
		}
	}
	if slices.ContainsFunc(k.Events, func(e *Event) bool { return e.Name == d.Name && e.ID != d.ID }) {
		return nil, one("/name", CodeTaken, "choose another name",
			"is already the name of an event of this room")
	}
	d.CustomPageHTML = nil
	if d.page != nil {
		key := b.keep(*d.page)
		d.CustomPageHTML = &key
	}
	c.Target = d.ID
	if err := b.changed(c, was, d.Event); err != nil {
		return nil, err
	}
	if b.dirty && op.Verb == Create {
		k.Events = append(slices.Clone(k.Events), d.Event)
	} else if b.dirty {
		d.ModifiedOn = b.now
		k.Events = slices.Clone(k.Events)
		k.Events[at] = d.Event
	}
	b.touch(k)
	return &Result{Value: b.shownEvent(d.Event), Version: k.Own.Version}, nil
}

func tooManyEvents() error {
	return one("", CodeTooMany, "delete events that are over",
		"the room has "+strconv.Itoa(mostEvents)+" events already")
}

// touch sets the version of a room to that of the current change.
func (b *Catalog) touch(k *StoredRoom) {
	if b.dirty {
		k.Own.Version, k.Own.ChangedBy = b.state.Version, b.by
	}
}

// doRules changes the list of rules of a room. All verbs end in a new list, because the order
// decides which rule wins.
func (b *Catalog) doRules(op *Op, c *Change) (*Result, error) {
	k, err := b.own(op)
	if err != nil {
		return nil, err
	}
	c.Room, c.RoomID = k.Name, k.ID
	at := slices.IndexFunc(k.Rules, func(r *Rule) bool { return r.ID == op.Target })
	if at < 0 && op.What == OneRule {
		return nil, ErrNoRule
	}
	var next []*Rule
	switch op.Verb {
	case Create:
		next, err = b.addRule(op.Body, k.Rules)
	case Replace:
		next, err = b.replaceRules(op.Body, k.Rules)
	case Edit:
		next, err = b.editRule(op.Body, k.Rules, at)
	default:
		next = slices.Delete(slices.Clone(k.Rules), at, at+1)
	}
	if err == nil {
		err = b.checkChallenge(next, &k.Room, "")
	}
	if err != nil {
		return nil, err
	}
	if err := b.changed(c, k.Rules, next); err != nil {
		return nil, err
	}
	k.Rules = next
	b.touch(k)
	return &Result{Value: next, Version: k.Own.Version}, nil
}

func (b *Catalog) doSettings(op *Op, c *Change) (*Result, error) {
	was := b.settings(op.Zone)
	if op.Match != 0 && op.Match != was.Version {
		return nil, ErrVersion
	}
	next := was.Settings
	if err := next.read(op.Body, op.Verb != Edit); err != nil {
		return nil, err
	}
	return b.putSettings(c, &next)
}

// putSettings replaces the settings of a change's zone by next.
func (b *Catalog) putSettings(c *Change, next *Settings) (*Result, error) {
	was := b.settings(c.Zone)
	if err := b.changed(c, &was.Settings, next); err != nil {
		return nil, err
	}
	if b.dirty {
		was = keptSettings{*next, b.state.Version}
		b.state.Settings[c.Zone] = &was
	}
	return &Result{Value: next, Version: was.Version}, nil
}

func (b *Catalog) settings(zone string) keptSettings {
	if s := b.state.Settings[zone]; s != nil {
		return *s
	}
	return keptSettings{}
}
