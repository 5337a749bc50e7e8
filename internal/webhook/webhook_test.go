package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/events"
)

func at(seconds int) time.Time {
	return time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

func all(string, string) bool { return true }

// limits returns the limits of a room, as in an Observation.
func limits(total string) map[string]map[string]string {
	return map[string]map[string]string{"": {"total_active_users": total, "new_users_per_minute": "100"}}
}

func quiet() *Observation {
	return &Observation{Room: "shop", Limits: limits("200"), Wants: all, Home: true, Figures: &Counts{Total: 200}}
}

// A player makes an observation each second, and parses the record anew each time, as the next host
// of the room would.
type player struct {
	t    *testing.T
	rec  Record
	w    Watch
	said []Message
	ids  int
}

func (p *player) look(second int, l *Observation) {
	p.t.Helper()
	before, err := p.rec.Encode()
	if err != nil {
		p.t.Fatal(err)
	}
	next, changed := p.rec.Next(&p.w, l, at(second), p.newID)
	if after, _ := p.rec.Encode(); string(after) != string(before) {
		p.t.Fatalf("the record of before has changed:\n%s\n%s", before, after)
	}
	if !changed && !reflect.DeepEqual(next, p.rec) {
		p.t.Fatal("another record is called the same")
	}
	b, err := next.Encode()
	if err != nil {
		p.t.Fatal(err)
	}
	read, err := Parse(b)
	if err != nil {
		p.t.Fatalf("%v: %s", err, b)
	}
	p.said = append(p.said, read.Pending...)
	p.rec = read.MarkSent()
}

func (p *player) newID() string {
	p.ids++
	return fmt.Sprintf("abc-%d", p.ids)
}

// lines returns the messages as text.
func (p *player) lines() string {
	var b strings.Builder
	for _, m := range p.said {
		fmt.Fprintf(&b, "%s %s %d", m.ID, m.Kind, int(m.At.Sub(at(0)).Seconds()))
		if m.Event != nil {
			b.WriteString(" " + m.Event.Name)
		}
		for _, c := range m.Changes {
			fmt.Fprintf(&b, " %s %s>%s", c.Key, c.From, c.To)
		}
		if m.By != "" {
			b.WriteString(" by " + m.By)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (p *player) wants(want string) {
	p.t.Helper()
	if got := p.lines(); got != want {
		p.t.Errorf("told\n%swant\n%s", got, want)
	}
}

func TestALineIsToldWhenItLasts(t *testing.T) {
	p := &player{t: t}
	for s := range 200 {
		l := quiet()
		l.Waiting = s >= 1 && s < 5 || s >= 10 && s < 100 && s != 50 || s >= 130 && s < 133
		p.look(s, l)
	}
	p.wants("abc-1 queueing_started 10\nabc-2 queueing_ended 133\n")
}

// A line that appears every other second, for hours, is reported at most once. In the worst case
// one start and one end are reported in 65 s.
func TestALineThatFlickersSendsNoThousand(t *testing.T) {
	p := &player{t: t}
	for s := range 6 * 3600 {
		l := quiet()
		l.Waiting = s%2 == 0
		p.look(s, l)
	}
	if len(p.said) > 1 {
		t.Errorf("every other second: %d messages", len(p.said))
	}
	p = &player{t: t}
	for s := range 6 * 3600 {
		l := quiet()
		l.Waiting = s%20 < 7 // 7 s on, 13 s off
		p.look(s, l)
	}
	p.wants("abc-1 queueing_started 0\n")
	p = &player{t: t}
	for s := range 6 * 3600 {
		l := quiet()
		l.Waiting = s%67 < 6 // the worst case: reported as soon as possible
		p.look(s, l)
	}
	if n, most := len(p.said), 2*6*3600/65; n > most || n < 50 {
		t.Errorf("at worst: %d messages, at most %d", n, most)
	}
}

func TestAnOriginIsToldWhenItStaysDown(t *testing.T) {
	p := &player{t: t}
	for s := range 200 {
		l := quiet()
		l.Down = s == 3 || s >= 10 && s < 60 && s != 40
		p.look(s, l)
	}
	p.wants("abc-1 origin_unhealthy 10\nabc-2 origin_healthy 60\n")
}

func TestLimitsAreToldWithWhoChangedThem(t *testing.T) {
	p := &player{t: t}
	p.look(0, quiet())
	p.rec = p.rec.AddNote(Note{Keys: []string{"message"}, By: "else", At: at(1)})
	p.rec = p.rec.AddNote(Note{Keys: []string{"total_active_users"}, By: "ann", At: at(1)})
	l := quiet()
	l.Limits = limits("300")
	p.look(2, l)
	p.look(3, l)
	l.Limits, l.By = limits("400"), "bob" // no note: the note was about the change before
	p.look(4, l)
	l = quiet()
	l.Limits = nil // not known
	p.look(101, l)
	l.Limits = limits("500")
	p.look(102, l)
	p.wants("abc-1 limit_changed 2 total_active_users 200>300 by ann\n" +
		"abc-2 limit_changed 4 total_active_users 300>400 by bob\n" +
		"abc-3 limit_changed 102 total_active_users 400>500 by configuration\n")
}

func TestLimitsByNameComeAndGo(t *testing.T) {
	p := &player{t: t}
	l := &Observation{Limits: map[string]map[string]string{}, Wants: all, Home: true}
	p.look(0, l)
	made := *l
	made.Limits = map[string]map[string]string{"api": {"amount": "10"}}
	p.look(1, &made)
	p.look(2, l)
	if p.wants("abc-1 limit_changed 1 amount >10 by configuration\n" +
		"abc-2 limit_changed 2 amount 10> by configuration\n"); p.said[0].Limit != "api" {
		t.Errorf("%+v", p.said[0])
	}
}

// An amount that was found has its reason as the author. Another change of that limit has not.
func TestAnAmountThatWasFoundHasAReason(t *testing.T) {
	p := &player{t: t}
	l := &Observation{Wants: all, Home: true, Found: map[string]string{"api": "auto: it is full"}}
	for s, c := range []map[string]string{{"amount": "10"}, {"amount": "12"}, {"amount": "9", "lease": "9s"}} {
		l.Limits = map[string]map[string]string{"api": c}
		p.look(s, l)
	}
	p.wants("abc-1 limit_changed 1 amount 10>12 by auto: it is full\n" +
		"abc-2 limit_changed 2 amount 12>9 lease >9s by configuration\n")
}

// If this is not the home, only limits of this data center are reported.
func TestLimitsAreToldWhereTheyAreDecided(t *testing.T) {
	p := &player{t: t}
	l := &Observation{Wants: all}
	for s, amount := range []string{"1", "2"} {
		l.Limits = map[string]map[string]string{
			"api": {"amount": amount, "scope": "global"}, "near": {"amount": amount, "scope": "datacenter"}}
		p.look(s, l)
	}
	p.wants("abc-1 limit_changed 1 amount 1>2 by configuration\n")
	if p.said[0].Limit != "near" || p.rec.Limits["api"]["amount"] != "2" {
		t.Errorf("%+v %+v", p.said, p.rec)
	}
}

// sale returns an event from 100 s to 200 s with a prequeue from 50 s on.
func sale() []events.Event {
	return []events.Event{{Name: "sale", Prequeue: at(50), Start: at(100), End: at(200)}}
}

func TestAnEventIsToldPhaseByPhase(t *testing.T) {
	const started = "abc-1 event_prequeue_started 50 sale\nabc-2 event_started 100 sale\n"
	const whole = started + "abc-3 event_ended 200 sale\n"
	nobody := func(_ int, l *Observation) { l.Wants = func(string, string) bool { return false } }
	tests := []struct {
		name    string
		seconds []int
		change  func(second int, l *Observation)
		want    string
	}{
		{"each second", nil, nil, whole},
		{"nobody looked for a while", []int{0, 60, 250}, nil, whole},
		{"nobody looked at its start", []int{0, 60, 150, 300}, nil, whole},
		{"nobody looked before it had begun", []int{0, 150, 300}, nil, whole},
		{"nobody looked until it was over", []int{0, 300}, nil, ""},
		{"the first look is in the middle", []int{150, 151}, nil, started},
		{"it is taken out of the file", nil, func(s int, l *Observation) { l.Events = gone(s, 150) },
			started + "abc-3 event_ended 150 sale\n"},
		{"it is taken back in the prequeue", nil, func(s int, l *Observation) { l.Events = gone(s, 70) },
			"abc-1 event_prequeue_started 50 sale\nabc-2 event_ended 70 sale\n"},
		{"another data center tells it", nil, func(_ int, l *Observation) { l.Home = false }, ""},
		{"nobody wants it", nil, nobody, ""},
		{"it is made longer while it goes on", nil, longer, started + "abc-3 event_ended 230 sale\n"},
		{"a short one lies within it", nil, within, started + "abc-3 event_started 120 flash\n" +
			"abc-4 event_ended 130 flash\nabc-5 event_ended 200 sale\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &player{t: t}
			if tt.seconds == nil {
				for s := range 300 {
					tt.seconds = append(tt.seconds, s)
				}
			}
			for _, s := range tt.seconds {
				l := quiet()
				l.Events = sale()
				if tt.change != nil {
					tt.change(s, l)
				}
				p.look(s, l)
			}
			p.wants(tt.want)
		})
	}
}

func gone(second, from int) []events.Event {
	if second >= from {
		return nil
	}
	return sale()
}

func longer(second int, l *Observation) {
	if second > 150 {
		l.Events[0].End = at(230)
	}
}

func within(_ int, l *Observation) {
	l.Events = append(l.Events, events.Event{Name: "flash", Start: at(120), End: at(130)})
}

func TestAnEventThatRepeatsIsToldEachTime(t *testing.T) {
	p := &player{t: t}
	for s := range 250 {
		l := quiet()
		l.Events = []events.Event{{Name: "daily", Start: at(10), End: at(20), Every: 100 * time.Second}}
		p.look(s, l)
	}
	p.wants("abc-1 event_started 10 daily\nabc-2 event_ended 20 daily\nabc-3 event_started 110 daily\n" +
		"abc-4 event_ended 120 daily\nabc-5 event_started 210 daily\nabc-6 event_ended 220 daily\n")
}

// Messages that cannot be queued stay in the record, up to a bound.
func TestPendingIsBounded(t *testing.T) {
	r, _ := Record{}.Next(&Watch{}, quiet(), at(0), func() string { return "abc" })
	for i := range 1000 {
		l := quiet()
		l.Limits = limits(fmt.Sprint(i))
		r, _ = r.Next(&Watch{}, l, at(i), func() string { return "abc" })
		r = r.AddNote(Note{By: "ann", At: at(i)})
	}
	if n := len(r.Pending); n != maxPending || r.Pending[n-1].Number != 1000 || len(r.Notes) > maxNotes {
		t.Errorf("%d pending, the last is %+v, %d notes", n, r.Pending[n-1], len(r.Notes))
	}
}

func TestBodyIsAsDocumented(t *testing.T) {
	wait := 12.5
	m := &Message{ID: "abc-7", Kind: LimitChanged, At: at(0), Number: 7, Room: "shop",
		Figures: &Counts{Waiting: 5, Active: 200, New: 30, Total: 200, Rate: 100, Wait: &wait},
		Changes: []Change{{"total_active_users", "100", "200"}}, By: "t1 ann"}
	want := `{"type":"limit_changed","timestamp":"2026-12-01T10:00:00Z","version":1,"data":{"number":7,` +
		`"room":"shop","datacenter":"lhr","figures":{"waiting_users":5,"active_users":200,` +
		`"new_users_last_minute":30,"total_active_users":200,"new_users_per_minute":100,` +
		`"estimated_wait_seconds":12.5},"changes":[{"key":"total_active_users","from":"100","to":"200"}],` +
		`"by":"t1 ann","link":"https://ops.example.com/dashboard/#/rooms/shop"}}`
	if got := string(m.Body("lhr", "https://ops.example.com/dashboard/")); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	b := TestBody("ops", "", "", "", at(0))
	if !json.Valid(b) || !strings.Contains(string(b), `"type":"test"`) {
		t.Errorf("%s", b)
	}
}

func TestAChoiceIsOfKindsAndRooms(t *testing.T) {
	c := Filter{Kinds: []string{EventStarted, LimitChanged}, Rooms: []string{"shop"}}
	if !c.Wants(EventStarted, "shop") || c.Wants(EventEnded, "shop") || c.Wants(EventStarted, "bar") ||
		c.Wants(LimitChanged, "") {
		t.Error("of one room")
	}
	if c.Rooms = nil; !c.Wants(EventStarted, "bar") || !c.Wants(LimitChanged, "") {
		t.Error("of all")
	}
}

// FuzzParse checks that no stored data makes Next panic or write a record that cannot be parsed,
// and that nothing is reported twice.
func FuzzParse(f *testing.F) {
	p := &player{t: &testing.T{}}
	for s := range 120 {
		l := quiet()
		l.Events, l.Waiting = sale(), s > 20
		p.look(s, l)
	}
	b, err := p.rec.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":1,"events":{"a":null}}`))
	f.Add([]byte(`{"format":1,"number":18446744073709551615,"limits":{"a":null}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Parse(b)
		if err != nil {
			return
		}
		l := quiet()
		l.Events, l.Waiting, l.Down = sale(), true, true
		var w Watch
		for s := 140; s < 160; s++ {
			before := maps.Clone(r.Events)
			next, _ := r.Next(&w, l, at(s), func() string { return "new" })
			if !maps.Equal(before, r.Events) {
				t.Fatal("the record of before has changed")
			}
			text, err := next.Encode()
			if err != nil {
				return // too large
			}
			if r, err = Parse(text); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
		}
		if !r.Queueing || !r.Down || len(r.Events) != 1 || !reflect.DeepEqual(r.Limits, l.Limits) {
			t.Fatalf("%+v", r)
		}
		if next, changed := r.Next(&w, l, at(170), nil); changed {
			t.Fatalf("told again: %+v", next)
		}
	})
}
