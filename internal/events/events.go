// Package events computes how the events of a room change it at a given time.
//
// # Guarantees
//
// At depends only on the events and the time. Machines whose clocks agree get the same result,
// whenever they were started and whatever they computed before.
//
// # Concurrency and cost
//
// The package has no state. At checks each event once.
//
// # Limitations
//
// The package reads no clock and changes no room.
package events

import "time"

// An Event changes a room from Prequeue, or from Start if Prequeue is zero, until End. Every is the
// interval at which it repeats; 0 means once.
type Event struct {
	Name                 string
	Prequeue, Start, End time.Time
	Every                time.Duration
	Shuffle              bool // the order of visitors from the prequeue is drawn at the start
	Suspended            bool // the event does not take place
}

// An Occurrence is one time at which an event takes place.
type Occurrence struct {
	Event        // with the times of this occurrence
	Index int    // of the event in the list
	Key   string // unique among all occurrences of the room
}

// A State is how the events change a room at a given time.
type State struct {
	Active   *Occurrence // nil: none
	Prequeue bool        // the event has not started
	// Draw is the occurrence to draw for. Of the occurrences with Shuffle that take place now, it
	// is the one with the latest start, whether it is Active or not. If there is none, it is the
	// next one. Nil: none.
	Draw *Occurrence
}

// Announced reports whether its prequeue is still to come.
func (o *Occurrence) Announced(now time.Time) bool { return now.Before(o.begin()) }

// Started reports whether its prequeue is over.
func (o *Occurrence) Started(now time.Time) bool { return !now.Before(o.Start) }

// At returns how the events change a room at a time. Of several current events, the one with the
// latest start applies; of these, the last in the list. So a short event within a long one applies
// while it lasts.
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

// later returns the occurrence with the later start, or b if both start at the same time.
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

// around returns the current occurrence and the next one.
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

// at returns the k-th occurrence, counted from 0.
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
