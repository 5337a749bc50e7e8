package dashboard

import (
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"sync"
	"time"
)

// A moment is the state of all rooms at a time. It never changes, except that its rows are encoded
// when the first stream needs them: without an open page nothing is encoded.
type moment struct {
	number uint64 // counts moments
	at     time.Time
	shown  []shown
	before map[string]glance // their state one moment earlier, by name

	once sync.Once
	rows []row
}

// A row is the overview of one room at a moment, as sent to the page.
type row struct {
	name           string
	whole, changed []byte // changed is nil if nothing has changed
}

// A glance is what the list of all rooms shows of one room.
type glance struct {
	Name      string  `json:"name"`
	Host      string  `json:"host"`
	Path      string  `json:"path"`
	Status    string  `json:"status"`
	Active    int64   `json:"active"`
	Limit     int64   `json:"limit"`
	Waiting   int64   `json:"waiting"`
	Minute    int64   `json:"minute"`
	PerMinute int64   `json:"per_minute"`
	Wait      float64 `json:"wait"` // for a visitor that joins now, in seconds, rounded as shown; -1 unknown
	QueueAll  bool    `json:"queue_all"`
	Closed    bool    `json:"closed"`
	Event     string  `json:"event"`
	OriginUp  bool    `json:"origin_up"`
	Errors    int64   `json:"errors"`
	Took      float64 `json:"took"`    // seconds, to the millisecond; 0: no answers
	Refuses   bool    `json:"refuses"` // the store rejects writes, for longer than a moment
	Damaged   string  `json:"damaged"`
}

// A shown is a room as the view of a single room shows it.
type shown struct {
	glance
	Session string  `json:"session"`
	Method  string  `json:"method"`
	Shadow  bool    `json:"shadow"`
	Message string  `json:"message"`
	Answers int64   `json:"answers"`
	Took    float64 `json:"took"` // seconds, not rounded

	OneAddress bool `json:"one_address"`

	Found  int64   `json:"found,omitempty"` // limit that was found; 0: none is sought
	Knee   float64 `json:"knee,omitempty"`
	Signal float64 `json:"signal,omitempty"` // percent of what the origin bears
	Search string  `json:"search,omitempty"` // how the limit is sought, and why it is as it is
}

// refusesAfter is how many seconds the store must reject writes before the list of rooms shows it.
// Chosen: a change of its leader takes less.
const refusesAfter = 5

func showRoom(r *Room, p *point) shown {
	s := shown{
		glance: glance{
			Name: r.Name, Host: r.Host, Path: r.Path, Status: r.Room.Status, Active: r.ActiveUsers,
			Limit: r.TotalActiveUsers, Waiting: r.WaitingUsers, Minute: r.NewUsersLastMinute,
			PerMinute: r.NewUsersPerMinute, Wait: asShown(r.MaxWaitSeconds), QueueAll: r.QueueAll,
			Closed: r.Closed, OriginUp: r.OriginUp, Errors: p.errors,
			Refuses: r.Record.WriteFailing > refusesAfter, Damaged: r.Record.Damaged,
		},
		Session: r.SessionDuration, Method: r.Method, Shadow: r.Shadow, Message: r.Message,
		Answers: p.answers, Took: p.took, OneAddress: r.OneAddress,
	}
	if a := r.Auto; a != nil {
		s.Found, s.Knee, s.Signal, s.Search = p.found, math.Round(p.knee), math.Round(p.signal), a.Mode+": "+a.Reason
		if a.Trouble != "" {
			s.Search += "; " + a.Trouble
		}
	}
	if r.Room.Event != nil {
		s.Event = r.Room.Event.Name
	}
	if p.answers > 0 {
		s.glance.Took = max(0.001, asShown(p.took))
	}
	return s
}

// asShown rounds seconds as span of dom.js does, so that values that look the same are not sent
// again.
func asShown(s float64) float64 {
	to := func(unit float64) float64 { return math.Round(s/unit) * unit }
	switch {
	case s < 0:
		return s
	case s < 1:
		return math.Round(s*1000) / 1000
	case s < 90:
		return to(1)
	case s < 5400:
		return to(60)
	}
	return to(360)
}

// encoded returns the encoded rows of the moment.
func (m *moment) encoded() []row {
	m.once.Do(func() {
		for i := range m.shown {
			g := &m.shown[i].glance
			x := row{name: g.Name, whole: encode(g)}
			if was, ok := m.before[g.Name]; !ok {
				x.changed = x.whole
			} else if was != *g {
				x.changed = encode(g.since(&was))
			}
			m.rows = append(m.rows, x)
		}
	})
	return m.rows
}

// encode cannot fail: the values are only texts, bools and finite numbers.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// since returns the fields that differ, and the name.
func (g *glance) since(was *glance) map[string]any {
	x, y := reflect.ValueOf(g).Elem(), reflect.ValueOf(was).Elem()
	changed := map[string]any{"name": g.Name}
	for i := range x.NumField() {
		if !x.Field(i).Equal(y.Field(i)) {
			changed[x.Type().Field(i).Tag.Get("json")] = x.Field(i).Interface()
		}
	}
	return changed
}

// A viewer is what the page at the other end of a stream has received. It is used by one goroutine.
type viewer struct {
	one  string // the room shown in full, "" for the list
	last uint64
	has  map[string]bool
}

// event appends what the page needs to show the moment. The first event is {"at": …, "all": true,
// "rooms": […]}, and replaces the page's state. Later events contain only the changed fields of
// changed rooms, and "gone", the names of rooms that no longer exist or may no longer be read.
func (v *viewer) event(b []byte, m *moment, may func(room string) bool) []byte {
	b = append(b, `data: {"at":`...)
	b = strconv.AppendInt(b, m.at.Unix(), 10)
	if v.one != "" {
		return append(v.room(b, m, may), "}\n\n"...)
	}
	all := v.has == nil || m.number != v.last+1 // the first, or the page was too slow for one
	v.last = m.number
	had := v.has
	if all {
		b = append(b, `,"all":true,"rooms":[`...)
		had = nil
	}
	v.has = make(map[string]bool, len(m.shown))
	n := 0
	for _, r := range m.encoded() {
		if !may(r.name) {
			continue
		}
		v.has[r.name] = true
		what := r.changed
		if !had[r.name] {
			what = r.whole
		}
		delete(had, r.name)
		if what == nil {
			continue
		}
		switch {
		case n > 0:
			b = append(b, ',')
		case !all:
			b = append(b, `,"rooms":[`...)
		}
		b = append(b, what...)
		n++
	}
	if n > 0 || all {
		b = append(b, ']')
	}
	if len(had) > 0 {
		gone := []string{}
		for name := range had {
			gone = append(gone, name)
		}
		b = append(append(b, `,"gone":`...), encode(gone)...)
	}
	return append(b, "}\n\n"...)
}

// room appends the one room in full, if it may be read.
func (v *viewer) room(b []byte, m *moment, may func(room string) bool) []byte {
	b = append(b, `,"all":true,"rooms":[`...)
	for i := range m.shown {
		if x := &m.shown[i]; x.Name == v.one && may(x.Name) {
			b = append(b, encode(x)...)
		}
	}
	return append(b, ']')
}
