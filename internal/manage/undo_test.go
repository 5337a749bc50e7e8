package manage

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
)

func (s *shelf) undo(version int64) (*Result, error) {
	s.t.Helper()
	b := s.open()
	res, err := b.Undo(version, &Op{By: "tester", At: s.now})
	if err == nil {
		err = s.keep(b)
	}
	return res, err
}

// The values that an undo restores are checked against later changes, as a write would be.
func TestUndoWritesNothingThatIsRefused(t *testing.T) {
	const lists = "lists:\n  - {name: office, addresses: [192.0.2.0/24]}\n"
	s := newShelf(t, lists+oneRoom)
	r := s.make(shop)
	change := func(what, verb, target, body string) *Result {
		t.Helper()
		return s.do(&Op{What: what, Verb: verb, Room: r.ID, Target: target, Body: []byte(body)})
	}
	const event = `{"name":"%s","event_start_time":"2026-12-01T10:00:00Z",
		"event_end_time":"2026-12-01T12:00:00Z"%s}`
	refused := func(version int64, of string) {
		t.Helper()
		before := string(s.record)
		_, err := s.undo(version)
		if err == nil || !strings.Contains(err.Error(), of) || string(s.record) != before {
			t.Errorf("undo of change %d: %v; it says nothing of %q", version, err, of)
		}
	}

	e := change(Events, Create, "", fmt.Sprintf(event, "long", `,"session_duration":60`)).Value.(*Event)
	shorter := change(Events, Edit, e.ID, `{"session_duration":10}`).Change
	change(Rooms, Edit, "", `{"headgate":{"hard_end_seconds":1800}}`)
	refused(shorter.Version, "hard_end_seconds")

	removed := change(Events, Delete, e.ID, "").Change
	for i := range mostEvents {
		change(Events, Create, "", fmt.Sprintf(event, fmt.Sprint("e", i), ""))
	}
	refused(removed.Version, "100 events")

	change(RuleList, Create, "", `{"action":"deny","expression":"ip.src in $office"}`)
	none := change(RuleList, Replace, "", `[]`).Change
	other, err := config.Parse("headgate.yaml", []byte(oneRoom))
	if err != nil {
		t.Fatal(err)
	}
	was := s.cfg
	s.cfg = other
	refused(none.Version, "$office")
	s.cfg = was
	if _, err := s.undo(none.Version); err != nil {
		t.Error(err)
	}
	gone := change(Rooms, Delete, "", "").Change
	s.cfg = other
	refused(gone.Version, "$office")
	s.cfg = was
	if _, err := s.undo(gone.Version); err != nil {
		t.Error(err)
	}
}

// An event whose prequeue has begun keeps the draw that was announced to its visitors.
func TestADrawIsKeptWhileItsEventIsOn(t *testing.T) {
	s := newShelf(t, oneRoom)
	r := s.make(shop)
	at := func(after time.Duration) string { return s.now.Add(after).Format(time.RFC3339) }
	e := s.do(&Op{What: Events, Verb: Create, Room: r.ID, Body: fmt.Appendf(nil, `{"name":"sail",
		"prequeue_start_time":%q,"event_start_time":%q,"event_end_time":%q,"shuffle_at_event_start":true}`,
		at(time.Hour), at(2*time.Hour), at(3*time.Hour))}).Value.(*Event)
	try := func(body string) string {
		t.Helper()
		_, err := s.try(&Op{What: Events, Verb: Edit, Room: r.ID, Target: e.ID, Body: []byte(body)})
		if f, _ := errors.AsType[Faults](err); err != nil {
			return f[0].Pointer
		}
		return ""
	}
	earlier := fmt.Sprintf(`{"event_start_time":%q}`, at(110*time.Minute))
	steps := []struct {
		after      time.Duration
		body, want string
	}{
		{0, `{"name":"sale"}`, ""},
		{time.Hour, `{"name":"sail"}`, "/name"},
		{0, `{"description":"x"}`, ""},
		{time.Hour, `{"name":"sail"}`, "/name"},
		{0, earlier, "/event_start_time"},
		{0, fmt.Sprintf(`{"event_end_time":%q}`, at(4*time.Hour)), ""},
		{2 * time.Hour, `{"name":"sail"}`, ""},
	}
	for i, x := range steps {
		s.now = s.now.Add(x.after)
		if got := try(x.body); got != x.want {
			t.Errorf("step %d, %s: refused at %q, want %q", i, x.body, got, x.want)
		}
	}
}
