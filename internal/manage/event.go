package manage

import (
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/events"
)

// An Event overrides its room from its start, or the start of its prequeue, to its end. A null
// member keeps the value of the room.
type Event struct {
	ID                    string          `json:"id"`
	CreatedOn             time.Time       `json:"created_on"`
	ModifiedOn            time.Time       `json:"modified_on"`
	Name                  string          `json:"name"`
	Description           string          `json:"description"`
	StartTime             string          `json:"event_start_time"`
	EndTime               string          `json:"event_end_time"`
	PrequeueStartTime     *string         `json:"prequeue_start_time"`
	ShuffleAtEventStart   bool            `json:"shuffle_at_event_start"`
	Suspended             bool            `json:"suspended"`
	CustomPageHTML        *string         `json:"custom_page_html"` // in a record: the key of the page
	DisableSessionRenewal *bool           `json:"disable_session_renewal"`
	NewUsersPerMinute     *int64          `json:"new_users_per_minute"`
	TotalActiveUsers      *int64          `json:"total_active_users"`
	QueueingMethod        *string         `json:"queueing_method"`
	SessionDuration       *int64          `json:"session_duration"`
	TurnstileMode         *string         `json:"turnstile_mode"`
	TurnstileAction       *string         `json:"turnstile_action"`
	Own                   EventExtensions `json:"headgate"`
}

// EventExtensions holds the members that headgate adds to Cloudflare's events.
type EventExtensions struct {
	EverySeconds int64  `json:"every_seconds"` // interval of repetition; 0 is once
	Message      string `json:"message"`       // "" is the room's message

	Early []EarlyGroup `json:"early"` // of an event of the file; the API does not set it
}

// An EarlyGroup is a group that comes in before the start.
type EarlyGroup struct {
	Group         string `json:"group"`
	BeforeSeconds int64  `json:"before_seconds"`
}

// mostRepeat is ten years, the same as in the file.
const mostRepeat = 3660 * 86400

type eventDraft struct {
	*Event
	page *string
}

func (d *eventDraft) fields() []field {
	e := d.Event
	return []field{
		ignored("id"), ignored("created_on"), ignored("modified_on"),
		text("name", &e.Name, "", 64).required(),
		text("description", &e.Description, "", mostText),
		moment("event_start_time", &e.StartTime).required(),
		moment("event_end_time", &e.EndTime).required(),
		maybe(&e.PrequeueStartTime, func(s *string) field { return moment("prequeue_start_time", s) }),
		truth("shuffle_at_event_start", &e.ShuffleAtEventStart, false),
		truth("suspended", &e.Suspended, false),
		maybe(&d.page, func(s *string) field { return text("custom_page_html", s, "", MaxPage) }),
		maybe(&e.DisableSessionRenewal, func(b *bool) field {
			return truth("disable_session_renewal", b, false)
		}),
		maybe(&e.NewUsersPerMinute, func(n *int64) field {
			return whole("new_users_per_minute", n, 0, 1, mostUsers)
		}),
		maybe(&e.TotalActiveUsers, func(n *int64) field {
			return whole("total_active_users", n, 0, 1, mostUsers)
		}),
		maybe(&e.QueueingMethod, func(s *string) field {
			return word("queueing_method", s, "", methods()...)
		}),
		maybe(&e.SessionDuration, func(n *int64) field {
			return whole("session_duration", n, 0, 1, mostMinutes)
		}),
		maybe(&e.TurnstileMode, func(s *string) field {
			return word("turnstile_mode", s, "", turnstiles()...)
		}),
		maybe(&e.TurnstileAction, func(s *string) field {
			return word("turnstile_action", s, "", turnstileActions()...)
		}),
		group("headgate", []field{
			whole("every_seconds", &e.Own.EverySeconds, 0, 0, mostRepeat),
			text("message", &e.Own.Message, "", 2000), ignored("early"),
		}, true),
	}
}

func (d *eventDraft) read(body []byte, all bool) error {
	v, err := parse(body)
	if err != nil {
		return err
	}
	r := &reader{whole: all}
	r.object("", v, d.fields())
	if len(r.faults) == 0 {
		d.check(r)
	}
	return r.err()
}

// check finds faults between members, which package config does not know of: it has events as they
// are, with their defaults.
func (d *eventDraft) check(r *reader) {
	checkName(r, "/name", d.Name)
	start, end := timeOf(d.StartTime), timeOf(d.EndTime)
	if end.Before(start.Add(time.Minute)) {
		r.wrong("/event_end_time", CodeConflict, "make the event at least one minute long",
			"is less than one minute after event_start_time")
	}
	if p := d.PrequeueStartTime; p != nil && timeOf(*p).After(start.Add(-5*time.Minute)) {
		r.wrong("/prequeue_start_time", CodeConflict, "begin the prequeue at least 5 minutes before the start",
			"is less than 5 minutes before event_start_time")
	}
	if d.ShuffleAtEventStart && d.PrequeueStartTime == nil {
		r.wrong("/shuffle_at_event_start", CodeConflict, "add prequeue_start_time",
			"without a prequeue there are no visitors to shuffle")
	}
	if (d.NewUsersPerMinute == nil) != (d.TotalActiveUsers == nil) {
		at := "/new_users_per_minute"
		if d.TotalActiveUsers == nil {
			at = "/total_active_users"
		}
		r.wrong(at, CodeRequired, "set both, or neither",
			"new_users_per_minute and total_active_users must be set together")
	}
	if d.page != nil {
		checkPage(r, "/custom_page_html", *d.page)
	}
	if f := config.CheckMessage(d.Own.Message); f != nil {
		r.wrong("/headgate/message", CodeValue, f.Hint, "%s", f.Problem)
	}
	if n := d.Own.EverySeconds; n > 0 {
		begin := start
		if d.PrequeueStartTime != nil {
			begin = timeOf(*d.PrequeueStartTime)
		}
		if time.Duration(n)*time.Second < max(time.Minute, end.Sub(begin)) {
			r.wrong("/headgate/every_seconds", CodeConflict, "increase it",
				"the event would begin again before it ends")
		}
	}
}

// next returns the next start after now of the event, which may repeat, and of its prequeue. It
// returns "" if there is none.
func (e *Event) next(now time.Time) (start string, prequeue *string) {
	first, every := timeOf(e.StartTime), time.Duration(e.Own.EverySeconds)*time.Second
	switch {
	case e.Suspended, !first.After(now) && every == 0:
		return "", nil
	case first.After(now):
		return e.StartTime, e.PrequeueStartTime
	}
	later := now.Sub(first)/every*every + every
	if e.PrequeueStartTime != nil {
		prequeue = new(timeOf(*e.PrequeueStartTime).Add(later).Format(timeShown))
	}
	return first.Add(later).Format(timeShown), prequeue
}

// fit checks the events of a room against it. Faults of sessions have the position at.
func (b *Catalog) fit(r *Room, events []*Event, at string) error {
	for _, e := range events {
		if err := b.fitTurnstile(r, e); err != nil {
			return err
		}
		if n := r.Own.HardEndSeconds; n > 0 && e.SessionDuration != nil && *e.SessionDuration*60 > n {
			return one(at, CodeConflict, "shorten session_duration, or raise headgate.hard_end_seconds",
				"session_duration of the event "+quote(e.Name)+" is longer than hard_end_seconds of the room")
		}
	}
	return nil
}

// keepsDraw rejects changes that would void a draw in progress. A draw belongs to the name of its
// event, so another name would be another draw, whose seed was not announced in advance. The same
// holds for another start once the order is drawn.
func (e *Event) keepsDraw(next *Event, now time.Time) error {
	on := events.At(eventTimes([]*Event{e}), now).Active
	switch {
	case on == nil || !on.Shuffle || next == nil:
	case next.Name != e.Name:
		return one("/name", CodeConflict, "rename the event after it ends",
			"cannot change while the event is on: its draw depends on the name")
	case on.Started(now) && !timeOf(next.StartTime).Equal(timeOf(e.StartTime)) &&
		!timeOf(next.StartTime).After(now):
		return one("/event_start_time", CodeConflict, "keep it, or choose a time in the future",
			"cannot change: the draw at the previous start has decided the order")
	}
	return nil
}

// eventTimes returns events with only their times.
func eventTimes(all []*Event) []events.Event {
	return (&config.Room{Events: forFileEvents(all)}).EventList()
}

// forFileEvents converts events to those of package config.
func forFileEvents(all []*Event) []config.Event {
	var list []config.Event
	for _, e := range all {
		x := config.Event{Name: e.Name, Start: timeOf(e.StartTime), End: timeOf(e.EndTime),
			Every: time.Duration(e.Own.EverySeconds) * time.Second, Shuffle: e.ShuffleAtEventStart,
			Suspended: e.Suspended, Message: e.Own.Message, Method: either(e.QueueingMethod, ""),
			TotalActiveUsers:  either(e.TotalActiveUsers, 0),
			NewUsersPerMinute: either(e.NewUsersPerMinute, 0),
			SessionDuration:   time.Duration(either(e.SessionDuration, 0)) * time.Minute}
		if e.PrequeueStartTime != nil {
			x.PrequeueStart = timeOf(*e.PrequeueStartTime)
		}
		if e.DisableSessionRenewal != nil {
			renews := !*e.DisableSessionRenewal
			x.SessionRenewal = &renews
		}
		list = append(list, x)
	}
	return list
}

// timeOf parses a time that was checked before.
func timeOf(s string) time.Time {
	t, _ := time.Parse(time.RFC3339, s)
	return t
}

func checkName(r *reader, at, name string) {
	const hint = "use 1 to 64 of the letters A-Z and a-z, digits, _ and -"
	if name == "" {
		r.wrong(at, CodeValue, hint, "is empty")
	}
	for _, c := range name {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			r.wrong(at, CodeValue, hint, "%s contains %q", quote(name), c)
			return
		}
	}
}

// Details is an event with all values that it inherits from its room. Like Cloudflare's, it leaves
// out Turnstile.
type Details struct {
	Event
	TurnstileMode   any `json:"turnstile_mode,omitempty"`
	TurnstileAction any `json:"turnstile_action,omitempty"`
	Own             any `json:"headgate,omitempty"`
}

func (e *Event) details(r *Room) *Details {
	x := &Details{Event: *e}
	x.CustomPageHTML = new(either(e.CustomPageHTML, r.CustomPageHTML))
	x.DisableSessionRenewal = new(either(e.DisableSessionRenewal, r.DisableSessionRenewal))
	x.NewUsersPerMinute = new(either(e.NewUsersPerMinute, r.NewUsersPerMinute))
	x.TotalActiveUsers = new(either(e.TotalActiveUsers, r.TotalActiveUsers))
	x.QueueingMethod = new(either(e.QueueingMethod, r.QueueingMethod))
	x.SessionDuration = new(either(e.SessionDuration, r.SessionDuration))
	return x
}

func either[T any](own *T, inherited T) T {
	if own != nil {
		return *own
	}
	return inherited
}
