package manage

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/config"
)

// A shelf stores a record as a server does.
type shelf struct {
	t      *testing.T
	cfg    *config.Config
	record []byte
	pages  map[string]string
	now    time.Time
}

func newShelf(t *testing.T, yaml string) *shelf {
	t.Helper()
	cfg, err := config.Parse("headgate.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return &shelf{t, cfg, nil, map[string]string{}, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)}
}

const oneRoom = "rooms:\n  - {name: main, origin: 'http://127.0.0.1:3000', " +
	"total_active_users: 10, new_users_per_minute: 10}\n"

func (s *shelf) open() *Catalog {
	s.t.Helper()
	b, err := Open(s.cfg, s.record, s.pages, s.now)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// try makes a change and stores the result.
func (s *shelf) try(op *Op) (*Result, error) {
	s.t.Helper()
	b := s.open()
	if op.Zone == "" {
		op.Zone = DefaultZone
	}
	s.now = s.now.Add(time.Minute)
	op.By, op.At = "tester", s.now
	res, err := b.Do(op)
	if err != nil {
		return nil, err
	}
	return res, s.keep(b)
}

func (s *shelf) keep(b *Catalog) error {
	record, fresh, err := b.Record()
	if err == nil && record != nil {
		s.record = record
		maps.Copy(s.pages, fresh)
	}
	return err
}

func (s *shelf) do(op *Op) *Result {
	s.t.Helper()
	res, err := s.try(op)
	if err != nil {
		s.t.Fatalf("%s %s %s: %v", op.Verb, op.What, op.Body, err)
	}
	return res
}

func (s *shelf) make(body string) *Room {
	s.t.Helper()
	return s.do(&Op{What: Rooms, Verb: Create, Body: []byte(body)}).Value.(*Room)
}

const shop = `{"name":"shop","host":"shop.example.com","total_active_users":300,"new_users_per_minute":200}`

func TestDefaults(t *testing.T) {
	s := newShelf(t, oneRoom)
	r := s.make(shop)
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "id")
	own := got["headgate"].(map[string]any)
	delete(got, "headgate")
	want := `{"name":"shop","host":"shop.example.com","total_active_users":300,"new_users_per_minute":200,
		"description":"","path":"/","additional_routes":[],"session_duration":5,
		"disable_session_renewal":false,"queueing_method":"fifo","queue_all":false,
		"queueing_status_code":200,"json_response_enabled":false,"custom_page_html":"",
		"default_template_language":"en-US","cookie_attributes":{"samesite":"auto","secure":"auto"},
		"cookie_suffix":"","enabled_origin_commands":[],"suspended":false,
		"turnstile_mode":"invisible","turnstile_action":"log","next_event_prequeue_start_time":null,
		"next_event_start_time":null,"created_on":"2026-11-01T00:01:00Z",
		"modified_on":"2026-11-01T00:01:00Z"}`
	var wanted map[string]any
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wanted, got); d != "" {
		t.Error(d)
	}
	if own["session_seconds"] != 300.0 || own["status_code"] != 200.0 || own["source"] != "store" ||
		own["hold_seconds"] != 300.0 || own["spread"] != true ||
		own["poll_min_seconds"] != 1.0 || own["poll_max_seconds"] != 30.0 {
		t.Error(own)
	}
}

// PUT replaces with defaults, PATCH merges. A client that does not know headgate's members leaves
// them unchanged.
func TestReplaceAndMerge(t *testing.T) {
	s := newShelf(t, oneRoom)
	r := s.make(strings.Replace(shop, "{", `{"queue_all":true,"description":"x",
		"headgate":{"session_seconds":90,"status_code":503,"message":"Hello"},`, 1))
	if r.SessionDuration != 2 || r.QueueingStatusCode != 200 || r.Own.SessionSeconds != 90 {
		t.Fatal(r)
	}
	edit := func(verb, body string) *Room {
		t.Helper()
		return s.do(&Op{What: Rooms, Verb: verb, Room: r.ID, Body: []byte(body)}).Value.(*Room)
	}
	got := edit(Edit, `{"suspended":true}`)
	if !got.QueueAll || !got.Suspended || got.Own.SessionSeconds != 90 || got.Own.StatusCode != 503 {
		t.Error("a merge has lost something:", got)
	}
	if got = edit(Edit, `{"session_duration":7}`); got.Own.SessionSeconds != 420 {
		t.Error("session_duration is written, and session_seconds are", got.Own.SessionSeconds)
	}
	if got = edit(Edit, `{"headgate":{"hard_end_seconds":900}}`); got.Own.Message != "Hello" {
		t.Error("a merge below headgate has lost the message")
	}
	if got = edit(Edit, `{"description":null}`); got.Description != "" {
		t.Error("null is not the default:", got.Description)
	}
	edit(Edit, `{"session_duration":15,"queueing_status_code":429}`)
	got = edit(Edit, `{"session_duration":null,"queueing_status_code":null}`)
	if got.SessionDuration != 5 || got.Own.SessionSeconds != 300 || got.Own.StatusCode != 200 {
		t.Error("null is not the default of what is in force:", got.Own.SessionSeconds, got.Own.StatusCode)
	}
	got = edit(Replace, shop)
	if got.QueueAll || got.Suspended || got.SessionDuration != 5 || got.Own.SessionSeconds != 300 ||
		got.Own.StatusCode != 200 || got.Own.Message != "Hello" || got.Own.HardEndSeconds != 900 {
		t.Error("a replacement:", got)
	}
	if got = edit(Replace, strings.Replace(shop, "{", `{"headgate":{},`, 1)); got.Own.Message != "" {
		t.Error("headgate was replaced, and the message is still there")
	}
}

// The same write twice is one change, and what was read can be written back.
func TestIdempotent(t *testing.T) {
	s := newShelf(t, oneRoom)
	r := s.make(strings.Replace(shop, "{", `{"custom_page_html":"<p>{{waitTime}}</p>",`, 1))
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	before := string(s.record)
	got := s.do(&Op{What: Rooms, Verb: Replace, Room: r.ID, Body: body})
	if got.Change != nil || string(s.record) != before {
		t.Errorf("the same again is a change: %s", s.record)
	}
	if d := cmp.Diff(r, got.Value); d != "" {
		t.Error(d)
	}
	if len(s.pages) != 1 {
		t.Errorf("%d pages are kept for one", len(s.pages))
	}
}

func TestFaults(t *testing.T) {
	s := newShelf(t, oneRoom)
	r := s.make(shop)
	with := func(members string) string { return strings.Replace(shop, "shop\"", "other\","+members, 1) }
	for body, want := range map[string]string{
		`[]`:                               " wrong_type",
		`{"name":}`:                        " invalid_json",
		`{} {}`:                            " invalid_json",
		`{"name":"a","name":"b"}`:          "/name invalid_json",
		`{"name":"a"}`:                     "/host required",
		shop:                               "/name taken",
		with(`"path":"/x/../y"`):           "/path invalid_value",
		with(`"nme":1`):                    "/nme unknown_field",
		with(`"queue_all":"yes"`):          "/queue_all wrong_type",
		with(`"session_duration":0`):       "/session_duration out_of_range",
		with(`"session_duration":1.5`):     "/session_duration wrong_type",
		with(`"queueing_status_code":503`): "/queueing_status_code invalid_value",
		with(`"queueing_method":"lifo"`):   "/queueing_method invalid_value",
		strings.Replace(shop, "{", `{"queueing_method":"RANDOM",`, 1): "/name taken",
		with(`"turnstile_mode":"visible_managed"`):                    "/turnstile_mode not_supported",
		with(`"additional_routes":[{"path":"/"}]`):                    "/additional_routes/0/host required",
		with(`"headgate":{"hold_seconds":1}`):                         "/headgate/hold_seconds",
		with(`"headgate":{"hard_end_seconds":10}`):                    "/headgate/hard_end_seconds",
		with(`"headgate":{"poll_min_seconds":60}`):                    "/headgate/poll_",
		with(`"session_duration":3,"headgate":{"session_seconds":9}`): "/headgate/session_seconds",
		with(`"headgate":{"origin":"ftp://x"}`):                       "/headgate/origin invalid_value",
		with(`"custom_page_html":"{{#waitTime}}"`):                    "/custom_page_html invalid_value",
		with(`"host":"a b"`):                                          "/host invalid_json", // a duplicate
		strings.Replace(shop, `shop"`, `a b"`, 1):                     "/name invalid_value",
	} {
		_, err := s.try(&Op{What: Rooms, Verb: Create, Body: []byte(body)})
		var f Faults
		if !errors.As(err, &f) {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if got := f[0].Pointer + " " + f[0].Code; !strings.HasPrefix(got, want) || f[0].Hint == "" {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	_, err := s.try(&Op{What: Rooms, Verb: Edit, Room: r.ID,
		Body: []byte(`{"name":"x","queue_all":1,"a":2}`)})
	if f, _ := errors.AsType[Faults](err); len(f) != 3 {
		t.Errorf("not all faults at once: %v", err)
	}
}

// Events and rules of a room of the file are shown, but cannot be written.
func TestWhatBelongsToARoomOfTheFile(t *testing.T) {
	s := newShelf(t, strings.Replace(oneRoom, "}", ", rules: [{action: bypass, expression: ssl, "+
		"description: s}, {action: lane, lane: a, share: 9, expression: ssl, enabled: false}], "+
		"events: [{name: sale, prequeue_start: 2026-10-30T09:00:00Z, start: 2026-10-30T10:00:00Z, "+
		"end: 2026-10-30T12:00:00Z, every: 24h, shuffle: true, method: random, session_renewal: false, "+
		"session_duration: 90s, total_active_users: 3, new_users_per_minute: 2}, "+
		"{name: late, start: 2027-01-01T10:00:00Z, end: 2027-01-01T12:00:00Z}]}", 1))
	look := func(what, target string) any {
		t.Helper()
		b := s.open()
		b.now = s.now
		res, err := b.Read(&Query{What: what, Zone: DefaultZone, Room: derivedID("room", "main"),
			Target: target})
		if err != nil {
			t.Fatal(err)
		}
		return res.Value
	}
	list := look(RuleList, "").([]*Rule)
	if len(list) != 2 || list[0].Action != "bypass_waiting_room" || list[0].Expression != "ssl" ||
		!list[0].Enabled || list[0].Description != "s" || list[1].Enabled ||
		list[1].Own != (RuleExtensions{"a", 9}) {
		t.Errorf("%+v", list)
	}
	all := look(Events, "").([]*Event)
	if len(all) != 2 || all[0].ID == all[1].ID || len(all[0].ID) != 32 {
		t.Fatal(all)
	}
	e := look(Events, all[0].ID).(*Event)
	if e.StartTime != "2026-10-30T10:00:00Z" || *e.PrequeueStartTime != "2026-10-30T09:00:00Z" ||
		e.Own.EverySeconds != 86400 || !e.ShuffleAtEventStart || *e.QueueingMethod != "random" ||
		!*e.DisableSessionRenewal || *e.SessionDuration != 2 || *e.TotalActiveUsers != 3 ||
		*e.NewUsersPerMinute != 2 || all[1].QueueingMethod != nil || all[1].PrequeueStartTime != nil {
		t.Errorf("%+v", e)
	}
	d := look(QueryDetails, all[1].ID).(*Details)
	if *d.TotalActiveUsers != 10 || *d.QueueingMethod != "fifo" {
		t.Errorf("%+v", d)
	}
	r := look(Rooms, "").(*Room)
	if r.NextEventStart == nil || *r.NextEventStart != "2026-11-01T10:00:00Z" ||
		*r.NextEventPrequeue != "2026-11-01T09:00:00Z" {
		t.Errorf("next event %v, prequeue %v", r.NextEventStart, r.NextEventPrequeue)
	}
	b := s.open()
	b.now = s.now
	if id := b.EventID(DefaultZone, r.ID, "late"); id != all[1].ID {
		t.Errorf("the event that is on has the id %q", id)
	}
}

// A room of the file is shown, but cannot be written.
func TestRoomOfTheFile(t *testing.T) {
	s := newShelf(t, oneRoom)
	all := s.open().Rooms(DefaultZone)
	if len(all) != 1 || all[0].Name != "main" || all[0].Own.Source != "file" || len(all[0].ID) != 32 {
		t.Fatal(all)
	}
	for _, op := range []*Op{
		{What: Rooms, Verb: Edit, Body: []byte(`{"queue_all":true}`)}, {What: Rooms, Verb: Delete},
		{What: Events, Verb: Create, Body: []byte(`{}`)}, {What: RuleList, Verb: Replace, Body: []byte(`[]`)},
	} {
		op.Room = all[0].ID
		_, err := s.try(op)
		if f, _ := errors.AsType[Faults](err); len(f) != 1 || f[0].Code != CodeReadOnly {
			t.Errorf("%s %s: %v", op.Verb, op.What, err)
		}
	}
	named := []byte(strings.Replace(shop, "shop\"", "main\"", 1))
	_, err := s.try(&Op{What: Rooms, Verb: Create, Body: named})
	if f, _ := errors.AsType[Faults](err); len(f) != 1 || f[0].Pointer != "/name" {
		t.Error(err)
	}
}

func nameLetter(r rune) rune {
	if r >= 'a' && r <= 'z' {
		return r
	}
	return '-'
}

func TestZones(t *testing.T) {
	s := newShelf(t, "zones:\n  - {name: example.com, origin: 'http://127.0.0.1:3000'}\n"+
		"  - {name: eu.example.com, id: 023e105f4ecef8ad9ca31a8372d0c353, origin: 'http://127.0.0.1:4000'}\n")
	room := func(zone, host string) (*Room, error) {
		res, err := s.try(&Op{What: Rooms, Verb: Create, Zone: zone, Body: fmt.Appendf(nil,
			`{"name":%q,"host":%q,"total_active_users":1,"new_users_per_minute":1}`,
			"r"+strings.Map(nameLetter, strings.ToLower(host)), host)})
		if err != nil {
			return nil, err
		}
		return res.Value.(*Room), nil
	}
	r, err := room("example.com", "shop.example.com")
	if err != nil || r.Own.Zone != "example.com" {
		t.Fatal(r, err)
	}
	for _, bad := range [][2]string{{"example.com", "a.eu.example.com"}, {"example.com", "notexample.com"},
		{"default", "x.example.com"}, {"default", "elsewhere.org"}} {
		_, err := room(bad[0], bad[1])
		if f, _ := errors.AsType[Faults](err); len(f) != 1 {
			t.Errorf("%s in %s: %v", bad[1], bad[0], err)
		}
	}
	if _, err = room("eu.example.com", "EU.Example.com."); err != nil {
		t.Error("a host is in its zone in any case:", err)
	}
	for host, word := range map[string]string{"b.example.org": "not in the zone", "*.example.org": "wildcard",
		"https://example.org": "URL", "": "empty"} {
		_, err := room("example.com", host)
		if f, _ := errors.AsType[Faults](err); len(f) != 1 || f[0].Pointer != "/host" ||
			!strings.Contains(f[0].Problem, word) || strings.Contains(f[0].Hint, "leave") {
			t.Errorf("%q: %v", host, err)
		}
	}
	b := s.open()
	z, err := b.Zone("023e105f4ecef8ad9ca31a8372d0c353")
	if err != nil || z.Name != "eu.example.com" || len(b.Rooms(z.Name)) != 1 || len(b.Rooms("")) != 2 {
		t.Error(z, err)
	}
	if _, err = b.Read(&Query{What: Rooms, Zone: "eu.example.com", Room: r.ID}); !errors.Is(err, ErrNoRoom) {
		t.Error("a room of another zone:", err)
	}
	for _, w := range b.Wanted() {
		port := map[string]string{"rshop-example-com": "3000", "reu-example-com-": "4000"}[w.Room.Name]
		if w.Problem != "" || w.Room.Origin == nil || w.Room.Origin.Port() != port {
			t.Error(w)
		}
	}
	_, err = s.try(&Op{What: Rooms, Verb: Edit, Zone: "example.com", Room: r.ID, Fixed: true,
		Body: []byte(`{"headgate":{"origin":"http://127.0.0.1:9"}}`)})
	if f, _ := errors.AsType[Faults](err); len(f) != 1 || f[0].Pointer != "/headgate/origin" {
		t.Error("a token of one zone says what stands behind a room:", err)
	}
}

func TestEvents(t *testing.T) {
	s := newShelf(t, oneRoom)
	r := s.make(shop)
	const sale = `{"name":"sale","event_start_time":"2026-12-01T10:00:00Z",
		"event_end_time":"2026-12-01T12:00:00Z","suspended":true`
	op := func(verb, id, body string) *Op {
		return &Op{What: Events, Verb: verb, Room: r.ID, Target: id, Body: []byte(body)}
	}
	e := s.do(op(Create, "", sale+`,"session_duration":9,
		"headgate":{"message":"Sale","every_seconds":86400}}`)).Value.(*Event)
	got := s.do(op(Edit, e.ID, `{"description":"d"}`)).Value.(*Event)
	if *got.SessionDuration != 9 || got.Description != "d" || got.Own.Message != "Sale" {
		t.Error(got)
	}
	got = s.do(op(Replace, e.ID, sale+`}`)).Value.(*Event)
	if got.SessionDuration != nil || got.Description != "" {
		t.Error(got)
	}
	other := strings.Replace(sale, "sale", "b", 1)
	for bad, at := range map[string]string{
		sale + `}`: "/name",
		strings.Replace(sale, "12:00", "10:00", 1): "",
		`{"name":"b"}`:                                                        "/event_start_time",
		other + `,"total_active_users":5}`:                                    "/new_users_per_minute",
		other + `,"shuffle_at_event_start":true}`:                             "/shuffle_at_event_start",
		other + `,"prequeue_start_time":"2026-12-01T09:58:00Z"}`:              "/prequeue_start_time",
		other + `,"headgate":{"every_seconds":60}}`:                           "/headgate/every_seconds",
		other + `,"custom_page_html":"{{#x}}"}`:                               "/custom_page_html",
		other + `,"headgate":{"message":"\u0007"}}`:                           "/headgate/message",
		other + `,"headgate":{"message":"` + strings.Repeat("x", 501) + `"}}`: "/headgate/message",
		strings.Replace(other, "true", "1", 1) + `}`:                          "/suspended",
		strings.Replace(other, "2026-12-01T12:00:00Z", "noon", 1) + `}`:       "/event_end_time",
	} {
		_, err := s.try(op(Create, "", bad))
		if f, _ := errors.AsType[Faults](err); len(f) == 0 || f[0].Pointer != at {
			t.Errorf("%s: %v, want a fault at %s", bad, err, at)
		}
	}
	if w := s.open().Wanted()[0].Room.Events; len(w) != 1 || w[0].End.Sub(w[0].Start) != 2*time.Hour ||
		w[0].Every != 24*time.Hour || w[0].Message != "Sale" || !w[0].Suspended {
		t.Error(w)
	}
	d, err := s.open().Read(&Query{What: QueryDetails, Zone: DefaultZone, Room: r.ID, Target: e.ID})
	if x := d.Value.(*Details); err != nil || *x.SessionDuration != 5 || *x.TotalActiveUsers != 300 {
		t.Error(d, err)
	}
	for range 6 { // overlapping, and more than the five that Cloudflare allows
		s.now = s.now.Add(time.Second)
		s.do(op(Create, "", strings.Replace(sale, `"sale"`, fmt.Sprintf(`"e%d"`, s.now.Unix()), 1)+`}`))
	}
	s.do(op(Edit, e.ID, `{"session_duration":9}`))
	_, err = s.try(&Op{What: Rooms, Verb: Edit, Room: r.ID,
		Body: []byte(`{"headgate":{"hard_end_seconds":301}}`)})
	if f, _ := errors.AsType[Faults](err); len(f) != 1 || f[0].Pointer != "/headgate/hard_end_seconds" {
		t.Error("a hard end before that of an event's session:", err)
	}
	if del := s.do(op(Delete, e.ID, "")).Value.(*Deleted); del.ID != e.ID {
		t.Error(del)
	}
	if _, err := s.try(op(Delete, e.ID, "")); !errors.Is(err, ErrNoEvent) {
		t.Error(err)
	}
}

func TestRules(t *testing.T) {
	s := newShelf(t, oneRoom)
	r := s.make(shop)
	rule := func(n string) string {
		return `{"action":"bypass_waiting_room","expression":"http.request.uri.path eq \"/` + n +
			`\"","description":"` + n + `"}`
	}
	op := func(verb, id, body string) *Op {
		what := RuleList
		if id != "" {
			what = OneRule
		}
		return &Op{What: what, Verb: verb, Room: r.ID, Target: id, Body: []byte(body)}
	}
	order := func(res *Result) (all string) {
		for _, x := range res.Value.([]*Rule) {
			all += x.Description
		}
		return all
	}
	s.do(op(Create, "", rule("a")))
	s.do(op(Create, "", rule("b")))
	all := s.do(op(Create, "", rule("c"))).Value.([]*Rule)
	ids := map[string]string{}
	for _, x := range all {
		ids[x.Description] = x.ID
	}
	for _, step := range []struct{ id, position, want string }{
		{"c", `{"index":1}`, "cab"}, {"c", `{"index":3}`, "abc"}, {"a", `{"after":"ID"}`, "bac"},
		{"c", `{"before":""}`, "cba"}, {"c", `{"after":""}`, "bac"}, {"c", `{"before":"ID"}`, "cba"},
	} {
		position := strings.Replace(step.position, "ID", ids["b"], 1)
		got := s.do(op(Edit, ids[step.id], `{"position":`+position+`}`))
		if order(got) != step.want {
			t.Errorf("%s to %s: %s, want %s", step.id, step.position, order(got), step.want)
		}
	}
	for _, bad := range []string{`{"position":{"index":4}}`, `{"position":{}}`, `{"position":{"after":"x"}}`,
		`{"position":{"index":1,"before":""}}`, `{"position":{"index":null}}`, `{"position":{"before":null}}`,
		`{"position":{"after":null}}`, `{"action":"lane","headgate":{"share":5}}`,
		`{"action":"deny","headgate":{"share":5}}`,
		`{"action":"lane","headgate":{"lane":"a b","share":5}}`, `{"action":"lane","headgate":{"lane":"a"}}`,
		`{"action":"lane","headgate":{"lane":"a","share":100}}`,
		`{"expression":"ip.src in $nobody"}`, `{"expression":"http.hst eq \"a\""}`} {
		if _, err := s.try(op(Edit, ids["a"], bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	got := s.do(op(Edit, ids["a"], `{"description":"A"}`)).Value.([]*Rule)
	if i := len(got) - 1; got[i].Version != "2" || got[i].ID != ids["a"] {
		t.Error(got[i])
	}
	list := "[" + rule("x") + "," + rule("b") + "]"
	got = s.do(op(Replace, "", list)).Value.([]*Rule)
	if len(got) != 2 || got[1].ID != ids["b"] {
		t.Error("a rule that is the same has another id", got)
	}
	if res := s.do(op(Replace, "", list)); res.Change != nil {
		t.Error("the same rules again are a change")
	}
	if res := s.do(op(Delete, ids["b"], "")); order(res) != "x" {
		t.Error(order(res))
	}
	s.do(&Op{What: ZoneSet, Verb: Edit, Body: []byte(`{"search_engine_crawler_bypass":true}`)})
	want := config.Rule{Action: "bypass", Expression: `http.request.uri.path eq "/x"`, Description: "x",
		Enabled: true}
	w := s.open().Wanted()[0].Room
	if len(w.Rules) != 1 || w.Rules[0] != want || !w.CrawlerBypass {
		t.Error(w.Rules, w.CrawlerBypass)
	}
}

func TestUndo(t *testing.T) {
	s := newShelf(t, oneRoom)
	undo := func(version int64) (*Result, error) {
		b := s.open()
		res, err := b.Undo(version, &Op{By: "tester", At: s.now})
		if err == nil {
			err = s.keep(b)
		}
		return res, err
	}
	r := s.make(strings.Replace(shop, "{", `{"custom_page_html":"<p>1</p>",`, 1)) // 1
	set := func(body string) {
		t.Helper()
		s.do(&Op{What: Rooms, Verb: Edit, Room: r.ID, Body: []byte(body)})
	}
	set(`{"custom_page_html":"<p>2</p>"}`) // 2
	set(`{"queue_all":true}`)              // 3
	if _, err := undo(2); !errors.Is(err, ErrSince) {
		t.Error("a change under another was taken back:", err)
	}
	if res, err := undo(3); err != nil || res.Value.(*Room).QueueAll { // 4
		t.Fatal(res, err)
	}
	if res, err := undo(2); err != nil || res.Value.(*Room).CustomPageHTML != "<p>1</p>" { // 5
		t.Fatal(res, err)
	}
	s.do(&Op{What: Rooms, Verb: Delete, Room: r.ID}) // 6
	if res, err := undo(6); err != nil || res.Value.(*Room).CustomPageHTML != "<p>1</p>" {
		t.Fatal(res, err)
	}
	if _, err := undo(1); err != nil {
		t.Fatal(err)
	}
	if b := s.open(); len(b.Rooms("")) != 1 || len(b.History("", "shop", 0, 100)) != 8 {
		t.Errorf("%d rooms, %d changes", len(b.Rooms("")), len(b.History("", "shop", 0, 100)))
	}
	if _, err := undo(99); !errors.Is(err, ErrNoChange) {
		t.Error(err)
	}
}

// The record stays within its bound, and old history is dropped for new.
func TestBounds(t *testing.T) {
	s := newShelf(t, oneRoom)
	r := s.make(shop)
	for i := range mostHistory + 10 {
		s.do(&Op{What: Rooms, Verb: Edit, Room: r.ID, Body: fmt.Appendf(nil,
			`{"description":"%d%s","custom_page_html":"<p>%d</p>"}`, i, strings.Repeat("x", 500), i)})
	}
	b := s.open()
	if n := len(b.History("", "", 0, 1000)); n > mostHistory || n < 50 || len(s.record) > MaxRecordSize {
		t.Errorf("%d changes in %d bytes", n, len(s.record))
	}
	keys, err := PagesOf(s.record)
	if err != nil || len(keys) > mostHistory+1 {
		t.Errorf("%d pages are kept: %v", len(keys), err)
	}
	for i := 0; err == nil; i++ {
		b := s.open()
		for n := range 20 { // as if made earlier
			k := *b.state.Rooms[0]
			k.ID, k.Name = newID(), fmt.Sprintf("r%d-%d", i, n)
			b.state.Rooms = append(b.state.Rooms, &k)
		}
		b.dirty = true
		err = s.keep(b)
		if len(b.state.Rooms) > 1000 {
			t.Fatal("the record takes any number of rooms")
		}
	}
	if f, _ := errors.AsType[Faults](err); len(f) != 1 || f[0].Code != CodeTooMany {
		t.Error(err)
	}
	if b = s.open(); len(b.Rooms("")) < 200 {
		t.Errorf("%d rooms are the most", len(b.Rooms("")))
	}
}

// A room that is made at a path of the file gets the origin of that path.
func TestOriginOfTheFile(t *testing.T) {
	s := newShelf(t, oneRoom+"  - {name: b, path: /b, origin: 'http://127.0.0.1:4000', "+
		"total_active_users: 10, new_users_per_minute: 10}\n")
	s.make(strings.Replace(shop, "{", `{"path":"/b/c",`, 1))
	want, _ := url.Parse("http://127.0.0.1:4000")
	if w := s.open().Wanted(); w[0].Room.Origin.String() != want.String() {
		t.Error(w[0].Room.Origin)
	}
}

// Rules about a challenge need one, whichever of the two changes.
func TestRulesAboutAChallenge(t *testing.T) {
	s := newShelf(t, oneRoom)
	r := s.make(shop)
	rules := func(body string) *Op {
		return &Op{What: RuleList, Verb: Create, Room: r.ID, Body: []byte(body)}
	}
	room := func(kind string) *Op {
		return &Op{What: Rooms, Verb: Edit, Room: r.ID,
			Body: []byte(`{"headgate":{"challenge":{"kind":"` + kind + `"}}}`)}
	}
	rule := `{"action":"challenge","expression":"not cf.bot_management.score ge 30"}`
	refused := func(op *Op, pointer string) {
		t.Helper()
		_, err := s.try(op)
		f, _ := errors.AsType[Faults](err)
		if len(f) != 1 || f[0].Code != CodeConflict || f[0].Pointer != pointer {
			t.Error(err)
		}
	}
	refused(rules(rule), "")
	s.do(room("work"))
	refused(rules(strings.Replace(rule, `"e`, `"headgate":{"lane":"a","share":1},"e`, 1)), "/headgate")
	s.do(rules(rule))
	refused(room("none"), "/headgate/challenge/kind")
	if w := s.open().Wanted(); len(w) != 1 || w[0].Problem != "" || !w[0].Room.ChallengesByRules() {
		t.Errorf("%+v", w)
	}
	s.do(&Op{What: RuleList, Verb: Replace, Room: r.ID, Body: []byte("[]")})
	s.do(room("none"))
}
