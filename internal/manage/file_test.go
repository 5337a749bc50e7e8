package manage

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Rules and events of a room of the file are shown like those of any other room, in their order.
func TestRulesAndEventsOfTheFileAreShown(t *testing.T) {
	s := newShelf(t, oneRoom[:len(oneRoom)-2]+`,
    rules: [{action: bypass, expression: 'http.request.uri.path eq "/health"', description: probes},
      {action: deny, expression: ssl, enabled: false},
      {action: lane, lane: members, share: 30, expression: 'true'}],
    events: [{name: drop, prequeue_start: 2026-12-01T09:00:00+01:00, start: 2026-12-01T10:00:00Z,
      end: 2026-12-01T12:00:00Z, every: 168h, shuffle: true, total_active_users: 50, new_users_per_minute: 40,
      session_duration: 90s, session_renewal: false, method: random, message: hello},
      {name: plain, start: 2026-12-03T10:00:00Z, end: 2026-12-03T12:00:00Z, suspended: true}]}
`)
	b := s.open()
	room := b.Rooms(DefaultZone)[0]
	if room.NextEventStart == nil || *room.NextEventStart != "2026-12-01T10:00:00Z" ||
		room.NextEventPrequeue == nil || *room.NextEventPrequeue != "2026-12-01T08:00:00Z" {
		t.Errorf("the next event is at %v, %v", room.NextEventStart, room.NextEventPrequeue)
	}
	res, err := b.Read(&Query{What: RuleList, Zone: DefaultZone, Room: room.ID})
	if err != nil {
		t.Fatal(err)
	}
	list := res.Value.([]*Rule)
	if d := cmp.Diff(s.cfg.Rooms[0].Rules, forFile(list)); d != "" {
		t.Error(d)
	}
	if len(list) != 3 || list[0].Action != actionBypass || list[0].ID == list[1].ID {
		t.Errorf("the rules are %+v", list)
	}
	res, err = b.Read(&Query{What: Events, Zone: DefaultZone, Room: room.ID})
	if err != nil {
		t.Fatal(err)
	}
	events := res.Value.([]*Event)
	if len(events) != 2 || *events[0].SessionDuration != 2 { // minutes, rounded up
		t.Fatalf("the events are %+v", events)
	}
	got, want := forFileEvents(events), slices.Clone(s.cfg.Rooms[0].Events)
	want[0].SessionDuration = got[0].SessionDuration
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if e := events[1]; e.TotalActiveUsers != nil || e.PrequeueStartTime != nil || e.SessionDuration != nil {
		t.Errorf("what is the room's is not null: %+v", e)
	}
	for _, look := range []Query{{What: Events}, {What: QueryDetails}} {
		look.Zone, look.Room, look.Target = DefaultZone, room.ID, events[0].ID
		if _, err := b.Read(&look); err != nil {
			t.Errorf("%s of one: %v", look.What, err)
		}
	}
}
