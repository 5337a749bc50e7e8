package webhook

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/events"
)

// How long a state must last before a message is sent. Chosen: a line that empties within seconds,
// or an origin that fails once, needs no attention. A line that was empty for a minute is over; one
// that was empty for less may come back with the next advertisement.
const (
	StartsAfter   = 5 * time.Second
	EndsAfter     = time.Minute
	FailsAfter    = 5 * time.Second
	RecoversAfter = 30 * time.Second
)

// Limits of a record. Chosen: messages stay in it for milliseconds, unless the queues accept none.
const (
	maxPending = 64
	maxNotes   = 32
	maxRecord  = 512 << 10 // bytes; about 1,000 limits
	noteFor    = time.Minute
)

// format is the version of the format of a record.
const format = 1

// Configuration is the author of a change made in the configuration file, or by an unknown author.
const Configuration = "configuration"

// A Record is what was reported about a room, or about the limits. The host of the room's counter
// stores it.
type Record struct {
	Format   int               `json:"format"` // 0: nothing was observed yet
	Number   uint64            `json:"number"`
	Queueing bool              `json:"queueing,omitempty"`
	Down     bool              `json:"down,omitempty"`
	Events   map[string]*Phase `json:"events,omitempty"` // events in progress, by events.Occurrence.Key
	// Limits holds the values of the limits by name; for a room the name is "". Nil: none were
	// observed yet.
	Limits  map[string]map[string]string `json:"limits"`
	Notes   []Note                       `json:"notes,omitempty"`
	Pending []Message                    `json:"pending,omitempty"` // not yet in all queues
}

// A Phase is how far an event has been reported.
type Phase struct {
	Event
	Started bool `json:"started"`
}

// A Note says who is about to change values of a limit.
type Note struct {
	Limit string    `json:"limit,omitempty"`
	Keys  []string  `json:"keys,omitempty"` // nil: all
	By    string    `json:"by"`
	At    time.Time `json:"at"`
}

// Parse parses a record. If b is nil, the record is empty.
func Parse(b []byte) (r Record, err error) {
	if b == nil {
		return r, nil
	}
	if len(b) > maxRecord {
		return r, fmt.Errorf("%d bytes are more than %d", len(b), maxRecord)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return Record{}, err
	}
	if r.Format != format {
		return Record{}, fmt.Errorf("its format is %d, not %d", r.Format, format)
	}
	for _, p := range r.Events {
		if p == nil {
			return Record{}, errors.New("an event is null")
		}
	}
	return r, nil
}

// Encode returns the record in the form that Parse reads. It returns an error if the record is too
// large.
func (r Record) Encode() ([]byte, error) {
	b, err := json.Marshal(r)
	if err == nil && len(b) > maxRecord {
		err = fmt.Errorf("%d bytes are more than %d", len(b), maxRecord)
	}
	return b, err
}

// AddNote returns the record with a note about a coming change of a limit.
func (r Record) AddNote(n Note) Record {
	r.Notes = append(young(r.Notes, n.At), n)
	r.Notes = r.Notes[max(0, len(r.Notes)-maxNotes):]
	return r
}

func young(all []Note, now time.Time) []Note {
	return slices.DeleteFunc(slices.Clone(all), func(n Note) bool { return now.Sub(n.At) > noteFor })
}

// MarkSent returns the record without its pending messages, after they are in the queues.
func (r Record) MarkSent() Record {
	r.Pending = nil
	return r
}

// An Observation is the present state of a room, or of the limits.
type Observation struct {
	Room    string // "" for the limits
	Waiting bool   // the line is not empty
	Down    bool   // the origin does not answer
	Events  []events.Event
	Limits  map[string]map[string]string // nil: not known now
	// By is the author of the room's limits, if its settings name one; may be "". Found has those of the
	// amounts that were found, by limit.
	By      string
	Found   map[string]string
	Figures *Counts
	// Wants reports whether any webhook wants a message. Home reports whether this data center
	// sends the messages about the configuration. Limits of a narrower scope are reported in each
	// data center.
	Wants func(kind, room string) bool
	Home  bool
}

// A Watch remembers since when the state differs from what was reported, between two observations
// of one process. The zero Watch has made no observation yet.
type Watch struct{ line, origin time.Time }

// lasted reports whether a difference has lasted long enough, and returns since when it exists.
func lasted(since *time.Time, now time.Time, differs bool, after time.Duration) (time.Time, bool) {
	switch {
	case !differs:
		*since = time.Time{}
	case since.IsZero():
		*since = now
	case now.Sub(*since) >= after:
		at := *since
		*since = time.Time{}
		return at, true
	}
	return time.Time{}, false
}

// Next returns the record after an observation, and whether it has changed. newID returns an ID for
// a message; IDs must be unique but not secret, because the record contains them. Next changes
// nothing that r refers to.
func (r Record) Next(w *Watch, l *Observation, now time.Time, newID func() string) (Record, bool) {
	was := r
	r.Pending = slices.Clone(r.Pending)
	begun := len(r.Pending)
	changed := r.Format == 0
	r.Format = format
	changed = r.line(w, l, now) || changed
	changed = r.origin(w, l, now) || changed
	changed = r.phases(l, now) || changed
	changed = r.limits(l, now) || changed
	if !changed {
		return was, false
	}
	for i := range r.Pending[begun:] {
		r.Pending[begun+i].ID = newID()
	}
	r.Pending = r.Pending[max(0, len(r.Pending)-maxPending):]
	return r, true
}

// tell adds a message, if any webhook wants it.
func (r *Record) tell(l *Observation, m Message) {
	if !l.Wants(m.Kind, l.Room) {
		return
	}
	r.Number++
	m.Number = r.Number
	m.At, m.Room, m.Figures = m.At.Round(0).UTC(), l.Room, l.Figures
	r.Pending = append(r.Pending, m)
}

func (r *Record) line(w *Watch, l *Observation, now time.Time) bool {
	after, kind := StartsAfter, QueueingStarted
	if r.Queueing {
		after, kind = EndsAfter, QueueingEnded
	}
	since, ok := lasted(&w.line, now, l.Waiting != r.Queueing, after)
	if ok {
		r.Queueing = l.Waiting
		r.tell(l, Message{Kind: kind, At: since})
	}
	return ok
}

func (r *Record) origin(w *Watch, l *Observation, now time.Time) bool {
	after, kind := FailsAfter, OriginUnhealthy
	if r.Down {
		after, kind = RecoversAfter, OriginHealthy
	}
	since, ok := lasted(&w.origin, now, l.Down != r.Down, after)
	if ok {
		r.Down = l.Down
		r.tell(l, Message{Kind: kind, At: since})
	}
	return ok
}

// phases records the progress of the events. What happened between observations is reported with
// the planned time.
func (r *Record) phases(l *Observation, now time.Time) (changed bool) {
	was := r.Events
	on := map[string]*Phase{}
	tell := func(kind string, at time.Time, e *Event) {
		if changed = true; l.Home {
			r.tell(l, Message{Kind: kind, At: at, Event: e})
		}
	}
	for i := range l.Events {
		o := events.At(l.Events[i:i+1], now).Active
		if o == nil {
			continue
		}
		p := &Phase{Event: eventOf(o), Started: o.Started(now)}
		on[o.Key] = p
		old := was[o.Key]
		if old != nil && !old.Event.same(&p.Event) {
			changed = true // planned anew: only what is still to come is reported
		}
		if old == nil && p.Prequeue != nil {
			tell(PrequeueStarted, *p.Prequeue, &p.Event)
		}
		if p.Started && (old == nil || !old.Started) {
			tell(EventStarted, p.Start, &p.Event)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(was)) {
		if on[key] != nil {
			continue
		}
		p := was[key]
		end := p.End
		if now.Before(end) { // the event was withdrawn
			end = now
		} else if !p.Started {
			tell(EventStarted, p.Start, &p.Event)
		}
		tell(EventEnded, end, &p.Event)
	}
	if changed {
		r.Events = on
	}
	return changed
}

func (e *Event) same(x *Event) bool {
	return e.Name == x.Name && e.Start.Equal(x.Start) && e.End.Equal(x.End) &&
		(e.Prequeue == nil) == (x.Prequeue == nil) && (e.Prequeue == nil || e.Prequeue.Equal(*x.Prequeue))
}

func eventOf(o *events.Occurrence) Event {
	e := Event{Name: o.Name, Start: o.Start.UTC(), End: o.End.UTC()}
	if !o.Prequeue.IsZero() {
		at := o.Prequeue.UTC()
		e.Prequeue = &at
	}
	return e
}

// limits reports changes of limits. The first observation only stores their values.
func (r *Record) limits(l *Observation, now time.Time) (changed bool) {
	if l.Limits == nil || r.Limits == nil {
		news := l.Limits != nil
		if news {
			r.Limits = l.Limits
		}
		return news
	}
	names := map[string]bool{}
	for name := range r.Limits {
		names[name] = true
	}
	for name := range l.Limits {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all := differences(r.Limits[name], l.Limits[name])
		if len(all) == 0 {
			continue
		}
		if changed = true; l.Home || !ofAll(r.Limits[name], l.Limits[name]) {
			by := l.By
			if len(all) == 1 && all[0].Key == "amount" {
				by = cmp.Or(l.Found[name], by)
			}
			r.tell(l, Message{Kind: LimitChanged, At: now, Limit: name, Changes: all,
				By: cmp.Or(r.notedBy(name, all, now), by, Configuration)})
		}
	}
	if changed {
		r.Limits = l.Limits
	}
	return changed
}

// ofAll reports whether all data centers share the changed limit: a room, or a limit with that
// scope.
func ofAll(was, is map[string]string) bool {
	scope := cmp.Or(is["scope"], was["scope"], scopeOfAll)
	return scope == scopeOfAll
}

// scopeOfAll is the scope of limits that all data centers share.
const scopeOfAll = "global"

// used returns the notes without the one at index at, and without earlier ones about the same
// limit.
func used(all []Note, at int) (left []Note) {
	for i, n := range all {
		if i > at || n.Limit != all[at].Limit {
			left = append(left, n)
		}
	}
	return left
}

// notedBy returns the author of the last note about one of the changed values, and removes the
// note.
func (r *Record) notedBy(limit string, all []Change, now time.Time) string {
	for i, n := range slices.Backward(r.Notes) {
		if n.Limit == limit && now.Sub(n.At) <= noteFor && (n.Keys == nil ||
			slices.ContainsFunc(all, func(c Change) bool { return slices.Contains(n.Keys, c.Key) })) {
			r.Notes = used(r.Notes, i)
			return n.By
		}
	}
	return ""
}

// differences returns the values that differ, by key.
func differences(was, is map[string]string) (all []Change) {
	keys := maps.Clone(was)
	if keys == nil {
		keys = map[string]string{}
	}
	maps.Copy(keys, is)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if was[key] != is[key] {
			all = append(all, Change{key, was[key], is[key]})
		}
	}
	return all
}
