// Package events says what the events of a room make of it at a time.
//
// # The promise
//
// At is a function of the events and the time, and of nothing else: machines whose clocks agree
// come to the same answer, whenever they were started and whatever they were asked before.
//
// # Concurrency and cost
//
// It has no state. At looks at each event once.
//
// # What it does not do
//
// It reads no clock and changes no room.
package events

import "time"

// An Event changes a room from Prequeue, or from Start if that is zero, until End. Every repeats
// it, again and again, so long after: 0 is once.
type Event struct {
	Name                 string
	Prequeue, Start, End time.Time
	Every                time.Duration
	Shuffle              bool // who came in the prequeue is drawn at the start
	Suspended            bool // it does not take place
}

// An Occurrence is one time that an event takes place.
type Occurrence struct {
	Event        // with the times of this one
	Index int    // of the event in the list
	Key   string // tells it from all others of the room
}

// A Moment is what events make of a room at a time.
type State struct {
	Active   *Occurrence // nil: none
	Prequeue bool        // it has not started
	// Draw is what there is to draw from: of the occurrences with Shuffle that take place now the
	// one with the latest start, whether it is On or not, else the next. Nil: none.
	Draw *Occurrence
}

// Announced reports whether its prequeue is still to come.
func (o *Occurrence) Announced(now time.Time) bool { return now.Before(o.begin()) }

// Started reports whether its prequeue is over.
func (o *Occurrence) Started(now time.Time) bool { return !now.Before(o.Start) }

// At is what the events make of a room at a time. Of several that are on, the one with the latest
// start counts, of these the last of the list: so a short event within a long one counts while it
// lasts.
func At(list []Event, now time.Time) State {
	var m State
	var drawn *Occurrence // takes place now
	for i := range list {
		e := &list[i]
		if e.Suspended {
			continue
		}
		on, next := e.around(now)
		if on != nil {
			on.Index = i
			m.Active = later(m.Active, on)
			if e.Shuffle {
				drawn = later(drawn, on)
			}
		}
		if next != nil && e.Shuffle && (m.Draw == nil || next.begin().Before(m.Draw.begin())) {
			next.Index = i
			m.Draw = next
		}
	}
	if m.Active != nil {
		m.Prequeue = !m.Active.Started(now)
	}
	if drawn != nil {
		m.Draw = drawn
	}
	return m
}

// later is the one with the later start, of two with the same the second.
func later(a, b *Occurrence) *Occurrence {
	if a == nil || !b.Start.Before(a.Start) {
		return b
	}
	return a
}

func (e *Event) begin() time.Time {
	if e.Prequeue.IsZero() {
		return e.Start
	}
	return e.Prequeue
}

// around is the occurrence that is on, and the next one.
func (e *Event) around(now time.Time) (on, next *Occurrence) {
	k := time.Duration(0)
	if since := now.Sub(e.begin()); e.Every > 0 && since > 0 {
		k = since / e.Every
	}
	last := e.at(k)
	switch {
	case now.Before(last.begin()):
		return nil, last
	case now.Before(last.End):
		on = last
	}
	if e.Every > 0 {
		next = e.at(k + 1)
	}
	return on, next
}

// at is the k-th occurrence, from 0.
func (e *Event) at(k time.Duration) *Occurrence {
	o := &Occurrence{Key: e.Name, Event: *e}
	o.Start, o.End = e.Start.Add(k*e.Every), e.End.Add(k*e.Every)
	if !e.Prequeue.IsZero() {
		o.Prequeue = e.Prequeue.Add(k * e.Every)
	}
	if e.Every > 0 {
		o.Key += "@" + o.Start.UTC().Format(time.RFC3339)
	}
	return o
}
