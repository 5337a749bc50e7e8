package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/api"
)

// A boss is an operator with a token who manages rooms.
type boss struct {
	t           *testing.T
	base, token string
}

func (p *process) boss(scopes ...string) *boss {
	p.t.Helper()
	secret, _, err := api.CreateToken(p.dir+"/data", api.Token{Scopes: scopes})
	if err != nil {
		p.t.Fatal(err)
	}
	return &boss{p.t, p.operators, secret}
}

// An answer is a parsed answer of the API.
type answer struct {
	*http.Response
	Success bool
	Errors  []struct {
		Message string
		Source  struct{ Pointer string }
		Own     struct{ Code, Hint string } `json:"headgate"`
	}
	Result, Change json.RawMessage
	text           string
}

func (a *answer) room(t *testing.T) (r struct {
	ID, Name string
	Users    int64 `json:"total_active_users"`
	Own      struct {
		Problem string
		InForce bool `json:"in_force"`
		Version int64
		Message string
	} `json:"headgate"`
}) {
	t.Helper()
	if err := json.Unmarshal(a.Result, &r); err != nil {
		t.Fatal(err, a.text)
	}
	return r
}

func (b *boss) ask(method, path, body string, header ...string) *answer {
	b.t.Helper()
	if strings.HasPrefix(path, ":") {
		path = "/client/v4/zones/default/waiting_rooms" + path[1:]
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.base+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+b.token)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res := fetch(b.t, http.DefaultClient.Do, r)
	a := &answer{Response: res.Response, text: res.body}
	if err := json.Unmarshal([]byte(res.body), a); err != nil && !strings.Contains(path, "/v1/") {
		b.t.Fatalf("%s: %s", err, res.body)
	}
	return a
}

const teaRoom = `{"name":"tea","host":"tea.example","total_active_users":1,"new_users_per_minute":99}`

// teaOf returns teaRoom with the origin of a process.
func teaOf(p *process) string {
	return strings.Replace(teaRoom, "{", `{"headgate":{"origin":"`+p.origin+`"},`, 1)
}

const anyHost = "rooms:\n" +
	"  - {name: main, path: /x, origin: ORIGIN, total_active_users: 5, new_users_per_minute: 5}\n"

// fileRoom returns one more room for the file.
func fileRoom(name string) string {
	return "  - {name: " + name + ", path: /" + name +
		", origin: ORIGIN, total_active_users: 1, new_users_per_minute: 1}\n"
}

// see sends a request as a visitor of a host, with the cookie from the last answer.
func see(t *testing.T, p *process, host, cookie string) (status int, next, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", p.visitors, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	r.Header.Set("Accept", "text/html")
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	res := fetch(t, http.DefaultClient.Do, r)
	next, _, _ = strings.Cut(res.Header.Get("Set-Cookie"), ";")
	loads(t, r, res.body, cmp.Or(next, cookie))
	return res.StatusCode, next, res.body
}

// Changes of a room keep sessions and places in the line.
func TestMadeRoomChanges(t *testing.T) {
	p := run(t, anyHost)
	b := p.boss("write")
	made := b.ask("POST", ":", strings.Replace(teaRoom, "{", `{"headgate":{"origin":"`+p.origin+`"},`, 1))
	r := made.room(t)
	if made.StatusCode != 200 || !r.Own.InForce {
		t.Fatal(made.text)
	}
	status, pass, _ := see(t, p, "tea.example", "")
	if status != 200 {
		t.Fatal("the first visitor waits")
	}
	status, ticket, _ := see(t, p, "tea.example", "")
	if status != 200 || ticket == "" { // the status of the waiting page is 200 by default in the API
		t.Fatal(status, ticket)
	}
	if a := b.ask("PATCH", ":/"+r.ID, `{"queue_all":true,"queueing_status_code":202,
		"custom_page_html":"<p>own</p>","headgate":{"poll_min_seconds":7,"poll_max_seconds":8},
		"cookie_attributes":{"samesite":"none","secure":"always"}}`); a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	cookieOfMadeRoom(t, p)
	for _, host := range []string{"tea.example", "Tea.Example:80", "tea.example.", "tea.example.:443"} {
		if status, _, body := see(t, p, host, ticket); status != 202 || body != "<p>own</p>" {
			t.Errorf("who waits sees %d %s at %s", status, body, host)
		}
	}
	if status, _, body := see(t, p, "tea.example", pass); status != 200 || !strings.HasPrefix(body, "first") {
		t.Errorf("who is inside sees %d %s", status, body)
	}
	eventIsSeen(t, p, b, ":/"+r.ID, ticket)
	p.write(anyHost + fileRoom("more"))
	if a := b.ask("POST", "/v1/reload", ""); a.StatusCode != 200 || strings.Contains(a.text, "tea") {
		t.Error("a reload of the file has done something to the room:", a.text)
	}
	if status, _, _ := see(t, p, "tea.example", ticket); status != 202 {
		t.Error("after a reload", status)
	}
	p.stop()
	p.start()
	b.base = p.operators
	if status, _, body := see(t, p, "tea.example", ticket); status != 202 || body != "<p>own</p>" {
		t.Errorf("after a restart who waits sees %d %s", status, body)
	}
	if status, _, _ := see(t, p, "tea.example", pass); status != 200 {
		t.Errorf("after a restart who is inside sees %d", status)
	}
	if a := b.ask("DELETE", ":/"+r.ID, ""); a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	if status, _, _ := see(t, p, "tea.example", pass); status != 404 {
		t.Error("a room that was deleted answers", status)
	}
}

// cookieOfMadeRoom checks that the cookie's attributes and the polling interval are as set by the
// API.
func cookieOfMadeRoom(t *testing.T, p *process) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", p.visitors, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "tea.example"
	r.Header.Set("Accept", "text/html")
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if c := res.Cookies(); len(c) != 1 || c[0].SameSite != http.SameSiteNoneMode || !c[0].Secure ||
		!strings.HasPrefix(c[0].Name, "__Host-") || !c[0].Partitioned {
		t.Errorf("cookies %v", c)
	}
	if p := res.Header.Get("Content-Security-Policy"); p == "" || strings.Contains(p, "frame-ancestors") {
		t.Errorf("a cookie for frames, and the page refuses them: %s", p)
	}
	if s := res.Header.Get("Retry-After"); s < "5" || s > "9" {
		t.Errorf("asked to come again after %s s", s)
	}
}

// eventIsSeen checks that waiting visitors see the page of an event while it is on, and then the
// room's again.
func eventIsSeen(t *testing.T, p *process, b *boss, room, ticket string) {
	t.Helper()
	sees := func(want string) {
		t.Helper()
		eventually(t, want, func() bool {
			_, _, body := see(t, p, "tea.example", ticket)
			return strings.Contains(body, want)
		})
	}
	now := time.Now()
	at := func(d time.Duration) string { return now.Add(d).UTC().Format(time.RFC3339) }
	a := b.ask("POST", room+"/events", fmt.Sprintf(`{"name":"sale","event_start_time":%q,
		"event_end_time":%q,"custom_page_html":"<p>sale {{isEventActive}}</p>"}`, at(-time.Minute), at(time.Hour)))
	event := a.room(t)
	if a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	sees("<p>sale true</p>")
	q := "/v1/rooms/tea/preview?event=started&event_name="
	if a := b.ask("GET", q+"sale", ""); a.text != "<p>sale true</p>" {
		t.Errorf("preview of the event: %s", a.text)
	}
	if a := b.ask("GET", q+"other", ""); a.text != "<p>own</p>" {
		t.Errorf("preview of another one: %s", a.text)
	}
	if a := b.ask("PATCH", room+"/events/"+event.ID, `{"custom_page_html":""}`); a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	sees("You are")
	if a := b.ask("DELETE", room+"/events/"+event.ID, ""); a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	sees("<p>own</p>")
}

// A room whose name or route is taken by the file stays stored, and reports why it is not open.
func TestMadeRoomBesideTheFile(t *testing.T) {
	p := run(t, anyHost)
	b := p.boss("write")
	own := strings.Replace(teaRoom, "{", `{"headgate":{"origin":"`+p.origin+`","message":"Hello"},`, 1)
	r := b.ask("POST", ":", own).room(t)
	p.write(anyHost + fileRoom("tea"))
	if a := b.ask("POST", "/v1/reload", ""); a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	if got := b.ask("GET", ":/"+r.ID, "").room(t); got.Own.InForce || got.Own.Problem == "" {
		t.Error(got)
	}
	p.write(anyHost)
	if a := b.ask("POST", "/v1/reload", ""); a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	if got := b.ask("GET", ":/"+r.ID, "").room(t); !got.Own.InForce || got.Own.Message != "Hello" {
		t.Error(got)
	}
	if status, _, _ := see(t, p, "tea.example", ""); status != 200 {
		t.Error(status)
	}
}

// A live change of such a room is an ordinary change, and can be undone.
func TestMadeRoomLiveAndUndo(t *testing.T) {
	p := run(t, anyHost)
	b := p.boss("write")
	if a := b.ask("PATCH", "/v1/rooms/main", `{"message":"Of the file"}`); a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	own := strings.Replace(teaRoom, "{", `{"headgate":{"origin":"`+p.origin+`"},`, 1)
	r := b.ask("POST", ":", own).room(t)
	if a := b.ask("GET", "/v1/rooms/main", ""); !strings.Contains(a.text, "Of the file") {
		t.Error("a room of the file has lost its live change:", a.text)
	}
	a := b.ask("PATCH", "/v1/rooms/tea", `{"total_active_users":7,"hold":"90s","message":"Soon"}`)
	if a.StatusCode != 200 || !strings.Contains(a.text, `"total_active_users":7`) {
		t.Fatal(a.text)
	}
	got := b.ask("GET", ":/"+r.ID, "").room(t)
	if got.Users != 7 || got.Own.Message != "Soon" || got.Own.Version != 2 {
		t.Error(got)
	}
	if a = b.ask("PATCH", "/v1/rooms/tea", `{"hold":"1s"}`); a.StatusCode != 422 {
		t.Error("shorter than polls:", a.text)
	}
	if a = b.ask("PATCH", ":/"+r.ID, `{"queue_all":true}`, "If-Match", `"1"`); a.StatusCode != 412 {
		t.Error("upon another version:", a.text)
	}
	if a = b.ask("PATCH", ":/"+r.ID, `{"queue_all":true}`, "If-Match", `"2"`); a.StatusCode != 200 ||
		a.Header.Get("ETag") != `"3"` {
		t.Error(a.text, a.Header)
	}
	if a = b.ask("POST", "/v1/history/2/undo", ""); a.StatusCode != 409 {
		t.Error(a.text)
	}
	for _, version := range []string{"3", "2"} {
		if a = b.ask("POST", "/v1/history/"+version+"/undo", ""); a.StatusCode != 200 {
			t.Fatal(a.text)
		}
	}
	if got = b.ask("GET", ":/"+r.ID, "").room(t); got.Users != 1 || got.Own.Message != "" {
		t.Error(got)
	}
	var history struct {
		Changes []struct{ Version, Undoes int64 }
	}
	a = b.ask("GET", "/v1/history?room=tea&count=2", "")
	if err := json.Unmarshal([]byte(a.text), &history); err != nil || len(history.Changes) != 2 ||
		history.Changes[0].Undoes != 2 {
		t.Error(err, a.text)
	}
	a = b.ask("GET", "/v1/audit?count=3", "")
	if a.StatusCode != 200 || strings.Count(a.text, "undo") != 3 {
		t.Error(a.text)
	}
}

// A token of a zone, or of a room, works only there.
func TestMadeRoomTokens(t *testing.T) {
	p := run(t, "zones:\n  - {name: example.com, origin: ORIGIN}\n"+anyHost)
	zone := p.boss("write:zone/example.com")
	const rooms = "/client/v4/zones/example.com/waiting_rooms"
	body := strings.Replace(teaRoom, "tea.example", "tea.example.com", 1)
	r := zone.ask("POST", rooms, body).room(t)
	if a := zone.ask("POST", ":", teaRoom); a.StatusCode != 403 || a.Errors[0].Own.Code != "scope_missing" {
		t.Error(a.text)
	}
	if a := zone.ask("GET", "/v1/status", ""); a.StatusCode != 403 {
		t.Error("a token of a zone reads all:", a.text)
	}
	origin := `{"headgate":{"origin":"http://127.0.0.1:1"}}`
	if a := zone.ask("PATCH", rooms+"/"+r.ID, origin); a.StatusCode != 400 ||
		a.Errors[0].Source.Pointer != "/headgate/origin" {
		t.Error(a.text)
	}
	if a := zone.ask("GET", "/v1/rooms", ""); a.StatusCode != 200 || !strings.Contains(a.text, `"tea"`) ||
		strings.Contains(a.text, `"main"`) {
		t.Error("a token of a zone sees other rooms than those of its zone:", a.text)
	}
	if a := zone.ask("PATCH", "/v1/rooms/tea", `{"message":"soon"}`); a.StatusCode != 200 {
		t.Error("a token of a zone does not change a room of it:", a.text)
	}
	for _, other := range []*boss{p.boss("write:zone/default"), p.boss("read:zone/other.org")} {
		if a := other.ask("GET", "/v1/rooms/tea", ""); a.StatusCode != 403 {
			t.Error("a token of another zone reads a room:", a.text)
		}
	}
	reader := p.boss("read:zone/example.com")
	if a := reader.ask("PATCH", "/v1/rooms/tea", `{"message":"x"}`); a.StatusCode != 403 {
		t.Error("who reads in a zone changes a room:", a.text)
	}
	room := p.boss("write:tea")
	if a := room.ask("GET", rooms+"/"+r.ID, ""); a.StatusCode != 200 {
		t.Error(a.text)
	}
	for _, method := range []string{"PUT", "PATCH", "DELETE"} {
		if a := room.ask(method, rooms+"/"+r.ID, body); a.StatusCode != 403 {
			t.Error("a token of a room could take the place of others:", a.text)
		}
	}
	if a := p.boss("read:zone/other.org").ask("GET", rooms, ""); a.StatusCode != 200 ||
		string(a.Result) != "[]" {
		t.Error(a.text)
	}
	for path, status := range map[string]int{
		"/client/v4/zones/nowhere/waiting_rooms": 404, rooms + "/nothing": 404, "/client/v4/nothing": 404,
		rooms + "?page=2": 200, rooms + "?page=0": 400, rooms + "?per_page=7": 400,
		rooms + "/" + r.ID + "/status": 200,
	} {
		if a := zone.ask("GET", path, ""); a.StatusCode != status || a.Success != (status == 200) {
			t.Error(path, a.text)
		}
	}
	if a := zone.ask("GET", rooms+"?page=2", ""); string(a.Result) != "[]" {
		t.Error("the page behind the last is not empty: clients ask for ever:", a.text)
	}
	if a := zone.ask("PUT", rooms, "{}"); a.StatusCode != 405 || len(a.Errors) != 1 {
		t.Error(fmt.Sprint(a.Status, a.text))
	}
}

// A caller that may not set the origin of a room cannot restore one from the history either, unless
// the caller removed it.
func TestUndoDoesNotSayWhatStandsBehindARoom(t *testing.T) {
	p := run(t, "zones:\n  - {name: example.com, origin: ORIGIN}\n"+anyHost)
	zone, all := p.boss("write:zone/example.com"), p.boss("write")
	const rooms = "/client/v4/zones/example.com/waiting_rooms"
	r := all.ask("POST", rooms, strings.Replace(teaRoom, "tea.example", "tea.example.com", 1)).room(t)
	all.ask("PATCH", rooms+"/"+r.ID, `{"headgate":{"origin":"http://127.0.0.1:1"}}`).room(t)
	all.ask("PATCH", rooms+"/"+r.ID, `{"headgate":{"origin":""}}`).room(t)
	undo := func(o *boss, version int64, status int) {
		t.Helper()
		if a := o.ask("POST", fmt.Sprintf("/v1/history/%d/undo", version), ""); a.StatusCode != status {
			t.Error(a.text)
		}
	}
	undo(zone, 3, 400)
	all.ask("PATCH", rooms+"/"+r.ID, `{"queue_all":true}`).room(t)
	undo(zone, 4, 200) // the origin did not change
	undo(all, 5, 200)
	undo(all, 6, 200)
	undo(all, 3, 200) // the origin is restored
	zone.ask("DELETE", rooms+"/"+r.ID, "")
	undo(zone, 9, 200) // its own change
	all.ask("DELETE", rooms+"/"+r.ID, "")
	undo(zone, 11, 400)
	undo(all, 11, 200)
}

// The origin ends a session only where the room allows it.
func TestMadeRoomOriginCommands(t *testing.T) {
	p := run(t, anyHost)
	b := p.boss("write")
	o := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cf-Waiting-Room-Command", "revoke")
	}))
	t.Cleanup(o.Close)
	own := strings.Replace(teaRoom, "{", `{"headgate":{"origin":"`+o.URL+`"},"description":"x",`, 1)
	r := b.ask("POST", ":", own).room(t)
	revoked := func() bool {
		return strings.Contains(b.ask("GET", ":/"+r.ID+"/status", "").text, `"revoked":1`)
	}
	_, pass, _ := see(t, p, "tea.example", "")
	see(t, p, "tea.example", pass)
	if revoked() {
		t.Error("a stay was ended that the room keeps")
	}
	if a := b.ask("PATCH", ":/"+r.ID, `{"enabled_origin_commands":["revoke"]}`); a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	see(t, p, "tea.example", pass)
	eventually(t, "revoked", revoked)
}

// An outdated value from an old leader of the store must not remove a room.
func TestAnOldRecordRemovesNoRoom(t *testing.T) {
	p := run(t, anyHost)
	b := p.boss("write")
	own := strings.Replace(teaRoom, "{", `{"headgate":{"origin":"`+p.origin+`"},`, 1)
	if a := b.ask("POST", ":", own); a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	r := rewind(p, "rooms")
	for _, old := range []bool{true, false} {
		r.on.Store(old)
		p.s.turn.Lock()
		err := p.s.takeRooms(t.Context())
		p.s.turn.Unlock()
		if n := len(p.s.set.Load().gates); n != 2 || old != (err != nil) {
			t.Errorf("old %v: %d rooms, %v", old, n, err)
		}
	}
}

// A rule creates a lane. Without the rule, visitors in the lane are still served; after an undo it
// is the same lane again.
func TestMadeRoomLanes(t *testing.T) {
	p := run(t, anyHost)
	b := p.boss("write")
	own := strings.Replace(teaRoom, "{", `{"headgate":{"origin":"`+p.origin+`"},"queue_all":true,`, 1)
	r := b.ask("POST", ":", own).room(t)
	_, first, _ := see(t, p, "tea.example", "")
	rule := `{"action":"lane","expression":"true","headgate":{"lane":"members","share":30}}`
	if a := b.ask("POST", ":/"+r.ID+"/rules", rule); a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	_, member, _ := see(t, p, "tea.example", "")
	see(t, p, "tea.example", first)
	expect := func(gone bool) {
		t.Helper()
		see(t, p, "tea.example", member)
		var st struct {
			Waiting int64 `json:"waiting_users"`
			Lanes   []struct {
				Name    string
				Share   int
				Gone    bool
				Waiting int64
			}
		}
		a := b.ask("GET", "/v1/rooms/tea", "")
		if err := json.Unmarshal([]byte(a.text), &st); err != nil || st.Waiting != 2 || len(st.Lanes) != 1 ||
			st.Lanes[0].Name != "members" || st.Lanes[0].Share != 30 || st.Lanes[0].Waiting != 1 ||
			st.Lanes[0].Gone != gone {
			t.Error(err, a.text)
		}
	}
	expect(false)
	metrics := get(t, p.operators+"/metrics", "").body
	for _, want := range []string{
		`headgate_lane_waiting{lane="members",room="tea"} 1`, `headgate_rules_total{action="lane",room="tea"} 6`,
		`headgate_lane_calls_total{lane="members",room="tea"} 0`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	for _, version := range []string{"2", "3"} {
		if a := b.ask("POST", "/v1/history/"+version+"/undo", ""); a.StatusCode != 200 {
			t.Fatal(a.text)
		}
		expect(version == "2")
	}
	for name, bad := range map[string]string{
		"/headgate/lane":  `{"action":"lane","expression":"true","headgate":{"share":30}}`,
		"/headgate/share": `{"action":"lane","expression":"true","headgate":{"lane":"x"}}`,
		"/headgate":       `{"action":"deny","expression":"true","headgate":{"lane":"x"}}`,
		"":                `{"action":"lane","expression":"false","headgate":{"lane":"x","share":70}}`,
	} {
		a := b.ask("POST", ":/"+r.ID+"/rules", bad)
		if a.StatusCode != 400 || len(a.Errors) != 1 || a.Errors[0].Source.Pointer != name {
			t.Errorf("%s: %d %s", bad, a.StatusCode, a.text)
		}
	}
}

// The API shows what is in force: the current event, and live changes of a room of the file.
func TestWhatIsInForceIsRead(t *testing.T) {
	p := run(t, anyHost)
	b := p.boss("write")
	r := b.ask("POST", ":", teaOf(p)).room(t)
	if r.ID == "" {
		t.Fatal("no room")
	}
	now := time.Now()
	at := func(d time.Duration) string { return now.Add(d).UTC().Format(time.RFC3339) }
	type event struct {
		ID      string
		EventID string `json:"event_id"`
	}
	read := func(path string) (e event) {
		t.Helper()
		a := b.ask("GET", ":/"+r.ID+path, "")
		if err := json.Unmarshal(a.Result, &e); err != nil {
			t.Fatal(err, a.text)
		}
		return e
	}
	if e := read("/status"); e.EventID != "" {
		t.Errorf("no event is on: %q", e.EventID)
	}
	var ids []string
	for i, from := range []time.Duration{-time.Hour, time.Hour} {
		a := b.ask("POST", ":/"+r.ID+"/events", fmt.Sprintf(`{"name":"e%d","event_start_time":%q,`+
			`"event_end_time":%q}`, i, at(from), at(3*time.Hour)))
		var e event
		if err := json.Unmarshal(a.Result, &e); err != nil || e.ID == "" {
			t.Fatal(err, a.text)
		}
		ids = append(ids, e.ID)
	}
	eventually(t, "the event that is on", func() bool { return read("/status").EventID == ids[0] })

	p.change("main", map[string]string{"queue_all": "true", "total_active_users": "7"})
	var all []struct {
		ID, Name string
		Users    int64 `json:"total_active_users"`
		QueueAll bool  `json:"queue_all"`
	}
	a := b.ask("GET", ":", "")
	if err := json.Unmarshal(a.Result, &all); err != nil {
		t.Fatal(err)
	}
	if all[0].Name != "main" || all[0].Users != 7 || !all[0].QueueAll {
		t.Errorf("after a live change: %+v", all[0])
	}
}

// If-Match works for the settings of a zone too.
func TestMadeSettingsHaveAVersion(t *testing.T) {
	p := run(t, anyHost)
	b := p.boss("write")
	first := b.ask("PUT", ":/settings", `{"search_engine_crawler_bypass":true}`)
	tag := first.Header.Get("ETag")
	if got := b.ask("GET", ":/settings", "").Header.Get("ETag"); tag == "" || got != tag {
		t.Fatalf("written %q, read %q", tag, got)
	}
	b.ask("POST", ":", teaOf(p)).room(t) // another object
	next := b.ask("PATCH", ":/settings", `{"search_engine_crawler_bypass":false}`, "If-Match", tag)
	if next.StatusCode != 200 || next.Header.Get("ETag") == tag {
		t.Error(next.Header, next.text)
	}
	a := b.ask("PUT", ":/settings", `{"search_engine_crawler_bypass":true}`, "If-Match", tag)
	if a.StatusCode != 412 {
		t.Error("a change upon another one:", a.text)
	}
	if a := b.ask("GET", ":/settings", ""); string(a.Result) != `{"search_engine_crawler_bypass":false}` {
		t.Error(a.text)
	}
}

const officeList = "lists:\n  - {name: office, addresses: [192.0.2.0/24]}\n"

// A rule with a list that is no longer in the file affects only its own room.
func TestAListThatIsGone(t *testing.T) {
	p := run(t, officeList+anyHost)
	b := p.boss("write")
	made := func(name string) string {
		t.Helper()
		a := b.ask("POST", ":", strings.NewReplacer("tea", name).Replace(teaOf(p)))
		if a.StatusCode != http.StatusOK {
			t.Fatal(a.text)
		}
		return a.room(t).ID
	}
	tea := made("tea")
	a := b.ask("POST", ":/"+tea+"/rules", `{"action":"deny","expression":"ip.src in $office"}`)
	if a.StatusCode != http.StatusOK {
		t.Fatal(a.text)
	}

	p.write(anyHost)
	a = b.ask("POST", "/v1/reload", "")
	if a.StatusCode != http.StatusConflict || !strings.Contains(a.text, `room \"tea\"`) ||
		!strings.Contains(a.text, "$office") {
		t.Error("a reload that takes away what a rule asks for:", a.text)
	}
	if r := b.ask("GET", ":/"+tea, "").room(t); !r.Own.InForce {
		t.Error("it was refused, and now:", r.Own.Problem)
	}

	p.restart()
	b.base = p.operators
	r := b.ask("GET", ":/"+tea, "").room(t)
	if r.Own.InForce || !strings.Contains(r.Own.Problem, "$office") {
		t.Error("after a start without the list:", r.Own)
	}
	made("coffee")
	if status, _, body := see(t, p, "coffee.example", ""); status != http.StatusOK {
		t.Error("another room waits for it:", status, body)
	}
	a = b.ask("PUT", ":/"+tea+"/rules", "[]")
	if a.StatusCode != http.StatusOK {
		t.Fatal(a.text)
	}
	if r = b.ask("GET", ":/"+tea, "").room(t); !r.Own.InForce {
		t.Error("the rule is gone, and still:", r.Own.Problem)
	}
	a = b.ask("GET", "/v1/history?count=1&zone="+fmt.Sprint(zoneID(t, b, "default")), "")
	if !strings.Contains(a.text, `"what":"rules"`) {
		t.Error("the history of a zone by its id:", a.text)
	}
}

func zoneID(t *testing.T, b *boss, name string) string {
	t.Helper()
	_, after, _ := strings.Cut(b.ask("GET", "/v1/zones", "").text, `"id":"`)
	id, rest, ok := strings.Cut(after, `"`)
	if !ok || !strings.Contains(rest, `"name":"`+name+`"`) {
		t.Fatal("no zone of that name", rest)
	}
	return id
}

// teaWith returns a room with additional members.
func (p *process) teaWith(members string) string {
	if !strings.Contains(members, `"headgate":{`) {
		members += `,"headgate":{}`
	}
	own := `"headgate":{"origin":"` + p.origin + `",`
	members = strings.Replace(strings.Replace(members, `"headgate":{`, own, 1), `",}`, `"}`, 1)
	return strings.Replace(teaRoom, "{", "{"+members+",", 1)
}

// made creates a room, and checks that it is in force.
func (b *boss) made(body string) (id string) {
	b.t.Helper()
	a := b.ask("POST", ":", body)
	if r := a.room(b.t); !a.Success || !r.Own.InForce {
		b.t.Fatal(a.text)
	}
	return a.room(b.t).ID
}

// at requests a path of a host.
func at(t *testing.T, p *process, host, path string, header ...string) *reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", strings.TrimSuffix(p.visitors, "/")+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	r.Header.Set("Accept", "text/html")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res := fetch(t, http.DefaultClient.Do, r)
	return &res
}

// Everything that the file can set for a room can be set by the API too.
func TestMadeRoomHasWhatOneOfTheFileHas(t *testing.T) {
	p := run(t, anyHost)
	b := p.boss("write")
	id := b.made(p.teaWith(`"queue_all":true,"custom_page_html":"<img src=\"{{assets}}/a.css\">",
		"headgate":{"path_case_sensitive":false,"exclude":{"paths":["/hooks/"],"headers":["X-Probe: 1"]},
		"checkout":{"pass":true},"page":{"content_security_policy":"default-src 'self'",
		"translations":{"de-DE":"<p>Bitte warten</p>"},"assets":[{"name":"a.css","base64":"cHt9"}]}},
		"path":"/*/Buy"`))
	if r := at(t, p, "tea.example", "/x/buy/hooks"); r.StatusCode != 503 && r.StatusCode != 200 ||
		r.Header.Get("Headgate-State") == "" ||
		r.Header.Get("Content-Security-Policy") != "default-src 'self'; frame-ancestors 'none'" || r.body != `<img src="/x/buy/.headgate/assets/a.css">` {
		t.Errorf("%s %v: %s", r.Status, r.Header, r.body)
	}
	if r := at(t, p, "tea.example", "/X/BUY", "Accept-Language", "de"); r.body != "<p>Bitte warten</p>" {
		t.Error("no translation:", r.body)
	}
	if r := at(t, p, "tea.example", "/X/BUY/.headgate/assets/a.css"); r.body != "p{}" || r.StatusCode != 200 {
		t.Errorf("no file of the page: %s %s", r.Status, r.body)
	}
	if r := at(t, p, "tea.example", "/x/buy/.headgate/jwks.json"); !strings.Contains(r.body, `"keys"`) {
		t.Errorf("no keys of the checkout: %s %s", r.Status, r.body)
	}
	if r := at(t, p, "tea.example", "/x/buy", "X-Probe", "1"); r.Header.Get("Headgate-State") != "" {
		t.Error("what is excluded waits")
	}
	if r := at(t, p, "tea.example", "/buy"); r.StatusCode != http.StatusNotFound {
		t.Errorf("a path that is not the room's: %s", r.Status)
	}
	b.ask("PATCH", ":/"+id, `{"headgate":{"exclude":{"headers":[]},"page":{"assets":[]}}}`)
	if r := at(t, p, "tea.example", "/x/buy", "X-Probe", "1"); r.Header.Get("Headgate-State") == "" {
		t.Error("what is not excluded any more does not wait")
	}
	if r := at(t, p, "tea.example", "/x/buy/.headgate/assets/a.css"); r.body == "p{}" {
		t.Error("a file that was taken away is still served")
	}
}

// cors of a room of the API is in force as soon as it is written.
func TestMadeRoomAnswersPreflights(t *testing.T) {
	p := run(t, anyHost)
	b := p.boss("write")
	id := b.made(p.teaWith(`"queue_all":true`))
	allowed := func() string {
		res := askRaw(t, p.visitors, "OPTIONS / HTTP/1.1\r\nHost: tea.example\r\nOrigin: https://app.example\r\n"+
			"Access-Control-Request-Method: GET\r\n\r\n")
		return res.Header.Get("Access-Control-Allow-Origin") + " " + res.Header.Get("Access-Control-Max-Age")
	}
	if got := allowed(); got != " " {
		t.Error("without cors:", got)
	}
	b.ask("PATCH", ":/"+id, `{"headgate":{"cors":{"origins":["https://APP.example"],"max_age_seconds":60}}}`)
	if got := allowed(); got != "https://app.example 60" {
		t.Error("with cors:", got)
	}
	b.ask("PATCH", ":/"+id, `{"headgate":{"cors":null}}`)
	if got := allowed(); got != " " {
		t.Error("taken away:", got)
	}
}

// Limits of the file apply to a room of the API, which stays open when the file no longer has them.
func TestMadeRoomMeetsLimits(t *testing.T) {
	const limit = "limits:\n  - {name: api, algorithm: sliding_log, amount: 2, window: 1h}\n"
	p := run(t, limit+anyHost)
	b := p.boss("write")
	b.made(p.teaWith(`"headgate":{"limits":["api"],"exclude":{"paths":["/*"]}}`))
	codes := func() (all string) {
		for range 4 {
			all += fmt.Sprint(at(t, p, "tea.example", "/").StatusCode, " ")
		}
		return all
	}
	if got := codes(); got != "200 200 429 429 " {
		t.Error("a room of the API meets no limit:", got)
	}
	p.write(anyHost)
	p.reload()
	if got := codes(); got != "200 200 200 200 " {
		t.Error("the limit is gone:", got)
	}
}

// Several hosts and paths share one line and one cookie.
func TestMadeRoomOfSeveralRoutes(t *testing.T) {
	p := run(t, anyHost)
	b := p.boss("write")
	id := b.made(p.teaWith(`"cookie_suffix":"abc",
		"additional_routes":[{"host":"pay.tea.example","path":"/p"},{"host":"tea.example","path":"/q"}],
		"path":"/shop"`))
	first := at(t, p, "tea.example", "/shop")
	c := first.Cookies()
	if len(c) != 1 || c[0].Name != "__cfwaitingroom_tea_abc" || c[0].Domain != "tea.example" ||
		c[0].Path != "/" {
		t.Fatal(first.Header)
	}
	cookie := c[0].Name + "=" + c[0].Value
	for _, x := range [][2]string{{"pay.tea.example", "/p"}, {"tea.example", "/q/1"},
		{"tea.example", "/shop/1"}} {
		if r := at(t, p, x[0], x[1], "Cookie", cookie); r.Header.Get("Headgate-State") != "" {
			t.Errorf("%v: who is inside waits", x)
		}
		if r := at(t, p, x[0], x[1]); r.Header.Get("Headgate-State") != "waiting" {
			t.Errorf("%v: %s %v, and another one is inside", x, r.Status, r.Header)
		}
	}
	for _, x := range [][2]string{{"pay.tea.example", "/q"}, {"tea.example", "/p"},
		{"a.tea.example", "/shop"}} {
		if r := at(t, p, x[0], x[1]); r.StatusCode != http.StatusNotFound {
			t.Errorf("%v: %s, and it is no route", x, r.Status)
		}
	}
	b.ask("PATCH", ":/"+id, `{"additional_routes":[]}`)
	if r := at(t, p, "pay.tea.example", "/p"); r.StatusCode != http.StatusNotFound {
		t.Errorf("a route that is gone: %s", r.Status)
	}
	if r := at(t, p, "tea.example", "/shop", "Cookie", cookie); r.Header.Get("Headgate-State") != "" {
		t.Error("who was inside waits when a route is gone")
	}
	other := p.teaWith(`"cookie_suffix":"s","additional_routes":[{"host":"tea.example","path":"/shop/"}]`)
	a := b.ask("POST", ":", strings.NewReplacer(`"tea"`, `"other"`, `"host":"tea.example","total`,
		`"host":"x.tea.example","total`).Replace(other))
	if a.Success || a.Errors[0].Source.Pointer != "/additional_routes/0/path" ||
		a.Errors[0].Own.Code != "taken" {
		t.Error(a.text)
	}
}
