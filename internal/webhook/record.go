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

// How long something lasts before it is told. Chosen: a line that is empty within seconds, and an
// origin that fails once, need nobody; a line that was empty for a minute is over, and one that is
// not may come back with the next advertisement.
const (
	StartsAfter   = 5 * time.Second
	EndsAfter     = time.Minute
	FailsAfter    = 5 * time.Second
	RecoversAfter = 30 * time.Second
)

// Bounds of a record. Chosen: messages stand in it for milliseconds unless the queues take none.
const (
	maxPending = 64
	maxNotes   = 32
	maxRecord  = 512 << 10 // bytes; some 1,000 limits
	noteFor    = time.Minute
)

// format is that of a record.
const format = 1

// Configuration is who has changed what the file, or nobody known, has changed.
const Configuration = "configuration"

// A Record is what was told of a room, or of the limits. It is kept by who counts the room.
type Record struct {
	Format   int               `json:"format"` // 0: nothing was looked at yet
	Number   uint64            `json:"number"`
	Queueing bool              `json:"queueing,omitempty"`
	Down     bool              `json:"down,omitempty"`
	Events   map[string]*Phase `json:"events,omitempty"` // that are on, by events.Occurrence.Key
	// Limits are the values of limits by name; of a room "" is the name. Nil: none were seen yet.
	Limits  map[string]map[string]string `json:"limits"`
	Notes   []Note                       `json:"notes,omitempty"`
	Pending []Message                    `json:"pending,omitempty"` // not yet in all queues
}

// A Phase is how far an event was told.
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

// Parse reads a record. nil is one of which nothing was told.
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

// Encode is the record as Parse reads it. It fails if there is too much of it.
func (r *Record) Encode() ([]byte, error) {
	b, err := json.Marshal(r)
	if err == nil && len(b) > maxRecord {
		err = fmt.Errorf("%d bytes are more than %d", len(b), maxRecord)
	}
	return b, err
}

// Noted is the record with a note that somebody is about to change a limit.
func (r Record) AddNote(n Note) Record {
	r.Notes = append(young(r.Notes, n.At), n)
	r.Notes = r.Notes[max(0, len(r.Notes)-maxNotes):]
	return r
}

func young(all []Note, now time.Time) []Note {
	return slices.DeleteFunc(slices.Clone(all), func(n Note) bool { return now.Sub(n.At) > noteFor })
}

// Sent is the record when what was pending is in the queues.
func (r Record) MarkSent() Record {
	r.Pending = nil
	return r
}

// A Look is how a room, or the limits, are now.
type Observation struct {
	Room    string // "" for the limits
	Waiting bool   // somebody is in the line
	Down    bool   // the origin does not answer
	Events  []events.Event
	Limits  map[string]map[string]string // nil: not known just now
	// By is who has changed the limits of the room, as far as its settings say; may be "".
	By      string
	Figures *Counts
	// Wants says whether anybody is to be told; Home, whether what the configuration says is
	// told here and not in another data centre. Limits of a narrower scope are told in each.
	Wants func(kind, room string) bool
	Home  bool
}

// A Watch remembers since when something differs from what was told, between two looks of one
// process. The zero Watch is that of one who has just begun to look.
type Watch struct{ line, origin time.Time }

// lasted reports whether something that differs has done so for long enough, and since when.
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

// Next is the record after a look at a time, and whether it is another one. newID draws the ID of a
// message: it stands in the record, so it needs to be nothing but another one each time. Nothing that
// the record refers to is changed.
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

// tell makes a message, if anybody wants it.
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

// phases tells how far the events have come. What happened while nobody looked is told with the
// time of the plan.
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
			changed = true // planned anew: only what is to come is told
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
		if now.Before(end) { // taken back
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

// limits tells what has become of limits. The first look only remembers.
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
			r.tell(l, Message{Kind: LimitChanged, At: now, Limit: name, Changes: all,
				By: cmp.Or(r.notedBy(name, all, now), l.By, Configuration)})
		}
	}
	if changed {
		r.Limits = l.Limits
	}
	return changed
}

// ofAll reports whether all data centres share what has changed: rooms, and limits of that scope.
func ofAll(was, is map[string]string) bool {
	scope := cmp.Or(is["scope"], was["scope"], scopeOfAll)
	return scope == scopeOfAll
}

// scopeOfAll is the scope of limits that all data centres share.
const scopeOfAll = "global"

// used are the notes without one that was told of, and those of the same limit before it.
func used(all []Note, at int) (left []Note) {
	for i, n := range all {
		if i > at || n.Limit != all[at].Limit {
			left = append(left, n)
		}
	}
	return left
}

// notedBy is who has said to change one of the values, the last of them. The note is used up.
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

// differences are the values that are not the same, by key.
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
