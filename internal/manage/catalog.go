package manage

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
)

// A Catalog is one snapshot of all rooms: those of a record, and those of the file. Only one
// goroutine at a time may use it.
type Catalog struct {
	cfg   *config.Config
	zones []Zone
	state *state
	pages map[string]string // by key
	read  time.Time         // when the file was read
	now   time.Time
	by    string

	fresh map[string]string // pages added by this change
	dirty bool
}

// Open parses a record; pages holds the pages that it refers to, by key. read is when the file was
// read.
func Open(cfg *config.Config, record []byte, pages map[string]string, read time.Time) (*Catalog, error) {
	st, err := readState(record)
	if err != nil {
		return nil, err
	}
	return &Catalog{cfg: cfg, zones: Zones(cfg), state: st, pages: pages, read: read.UTC(),
		fresh: map[string]string{}}, nil
}

// Version returns the version of the newest change of any room. It only increases, and is 0 before
// the first change.
func (b *Catalog) Version() int64 { return b.state.Version }

// Zone finds a zone by its id or its name.
func (b *Catalog) Zone(id string) (Zone, error) {
	for _, z := range b.zones {
		if z.ID == id || z.Name == id {
			return z, nil
		}
	}
	return Zone{}, ErrNoZone
}

// Zones returns all zones.
func (b *Catalog) Zones() []Zone { return b.zones }

// Rooms returns the rooms of a zone, or of all zones for "", with those of the file first.
func (b *Catalog) Rooms(zone string) []*Room {
	all := []*Room{}
	for i := range b.cfg.Rooms {
		if c := &b.cfg.Rooms[i]; zone == "" || zoneOf(b.zones, c.Host).Name == zone {
			k := keptFile(c, b)
			all = append(all, b.shown(&k.Room, k.Events))
		}
	}
	for _, k := range b.state.Rooms {
		if zone == "" || zoneOf(b.zones, k.Host).Name == zone {
			all = append(all, b.shown(&k.Room, k.Events))
		}
	}
	return all
}

// shown returns a room as the API shows it.
func (b *Catalog) shown(r *Room, events []*Event) *Room {
	x := *r
	x.CustomPageHTML = b.page(r.CustomPageHTML)
	x.Own.Page = b.shownPage(&r.Own.Page)
	x.Own.Zone = zoneOf(b.zones, r.Host).Name
	x.Own.PollMinSeconds = cmp.Or(x.Own.PollMinSeconds, 1) // older records do not have it
	x.Own.PollMaxSeconds = cmp.Or(x.Own.PollMaxSeconds, 30)
	var first time.Time
	for _, e := range events {
		start, prequeue := e.next(b.clock())
		if start != "" && (first.IsZero() || timeOf(start).Before(first)) {
			first, x.NextEventStart, x.NextEventPrequeue = timeOf(start), &start, prequeue
		}
	}
	return &x
}

func (b *Catalog) clock() time.Time {
	if b.now.IsZero() {
		return time.Now()
	}
	return b.now
}

func (b *Catalog) page(key string) string { return cmp.Or(b.fresh[key], b.pages[key]) }

// shownEvent returns an event as the API shows it.
func (b *Catalog) shownEvent(e *Event) *Event {
	x := *e
	if e.CustomPageHTML != nil {
		html := b.page(*e.CustomPageHTML)
		x.CustomPageHTML = &html
	}
	return &x
}

// keep stores a page and returns its key. A page that is stored already keeps its key.
func (b *Catalog) keep(html string) string {
	if html == "" {
		return ""
	}
	for _, known := range []map[string]string{b.fresh, b.pages} {
		for _, key := range slices.Sorted(maps.Keys(known)) {
			if known[key] == html {
				return key
			}
		}
	}
	key := newID()
	b.fresh[key], b.state.Pages[key] = html, len(html)
	return key
}

// find finds a room of a zone by its id.
func (b *Catalog) find(zone, id string) (*StoredRoom, error) {
	for _, k := range b.state.Rooms {
		if k.ID == id && zoneOf(b.zones, k.Host).Name == zone {
			return k, nil
		}
	}
	for i := range b.cfg.Rooms {
		c := &b.cfg.Rooms[i]
		if derivedID("room", c.Name) == id && zoneOf(b.zones, c.Host).Name == zone {
			return keptFile(c, b), nil
		}
	}
	return nil, ErrNoRoom
}

// own finds a room that may be changed, and checks If-Match.
func (b *Catalog) own(op *Op) (*StoredRoom, error) {
	k, err := b.find(op.Zone, op.Room)
	switch {
	case err != nil:
		return nil, err
	case k.Own.Source == "file":
		return nil, one("", CodeReadOnly, "change the file and reload, or use headgate room set "+k.Name,
			"the room is defined in the configuration file and cannot be changed here")
	}
	return k, b.match(op, k)
}

// match compares If-Match with the version of the room.
func (b *Catalog) match(op *Op, k *StoredRoom) error {
	if op.Match != 0 && op.Match != k.Own.Version {
		return ErrVersion
	}
	return nil
}

func newID() string {
	raw := make([]byte, 16)
	rand.Read(raw) // never fails
	return hex.EncodeToString(raw)
}

// Record returns the record to write, nil if nothing has changed, and the pages that must be
// written before it.
func (b *Catalog) Record() (record []byte, fresh map[string]string, err error) {
	if !b.dirty {
		return nil, nil, nil
	}
	record, err = b.state.write()
	maps.DeleteFunc(b.fresh, func(key, _ string) bool {
		_, kept := b.state.Pages[key]
		return !kept
	})
	return record, b.fresh, err
}

// changed adds a change to the history, unless before and after differ only in their time.
func (b *Catalog) changed(c *Change, before, after any) error {
	var err error
	if c.Before, err = marshal(before); err == nil {
		c.After, err = marshal(after)
	}
	if err != nil || string(c.Before) == string(c.After) {
		return err
	}
	b.state.Version++
	c.Version, c.At, c.By = b.state.Version, b.now, b.by
	b.state.History = append(b.state.History, c)
	b.dirty = true
	return nil
}

// marshal returns nil for a value that does not exist.
func marshal(v any) (json.RawMessage, error) {
	if v == nil {
		return json.RawMessage("null"), nil
	}
	return json.Marshal(v)
}

// unique rejects a name, a route, or a cookie name that another room has. Rooms of the file, and a
// room that is being created, have the id "". c is the room as package config has it.
func (b *Catalog) unique(r *Room, c *config.Room) error {
	var all Faults
	add := func(pointer, problem, hint string) {
		if !slices.ContainsFunc(all, func(f *Fault) bool { return f.Pointer == pointer }) {
			all = append(all, &Fault{pointer, CodeTaken, problem, hint})
		}
	}
	name := func(id, other string) {
		if (id == "" || id != r.ID) && strings.EqualFold(other, r.Name) {
			add("/name", "is already the name of another room", "choose another name")
		}
	}
	place := func(id string, x *config.Room) {
		at, taken, cookie := c.Taken(x)
		i := slices.Index(c.AdditionalRoutes, at)
		switch {
		case id != "" && id == r.ID:
		case taken && (at.Host != c.Host || at.Path != c.Path) && i >= 0:
			add(item("/additional_routes", i)+"/path", "another room already has this host and path",
				"choose another host or path")
		case taken:
			add("/path", "another room already has this host and path", "choose another host or path")
		case cookie:
			add("/cookie_suffix", "gives the cookie the same name as that of the room "+quote(x.Name),
				"choose another suffix")
		}
	}
	for _, k := range b.state.Rooms {
		name(k.ID, k.Name)
		place(k.ID, k.Room.place())
	}
	for i := range b.cfg.Rooms {
		name("", b.cfg.Rooms[i].Name)
		place("", &b.cfg.Rooms[i])
	}
	if all != nil {
		return all
	}
	return nil
}
