package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/server"
	"github.com/headgate/headgate/status"
)

// A site is a real headgate in front of a real origin.
type site struct {
	t                *testing.T
	dir, file        string
	visitors, admin  string
	log              *syncBuffer
	read, write, tea string // tokens: read all, write all, write only the room tea
	stop             func() // ends the queue
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func open(t *testing.T) *site {
	t.Helper()
	return openWith(t, "")
}

// openWith starts a site with additional configuration.
func openWith(t *testing.T, more string) *site {
	t.Helper()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "origin")
	}))
	t.Cleanup(origin.Close)
	s := &site{t: t, dir: t.TempDir(), log: &syncBuffer{}}
	s.file = filepath.Join(t.TempDir(), "headgate.yaml")
	text := "listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\ndata: " + s.dir + "\n" + more + "rooms:\n" +
		"  - {name: shop, path: /shop, origin: ORIGIN, total_active_users: 1, new_users_per_minute: 99}\n" +
		"  - {name: tea, path: /tea, origin: ORIGIN, total_active_users: 5, new_users_per_minute: 5}\n"
	text = strings.ReplaceAll(text, "ORIGIN", origin.URL)
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(s.file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	srv, err := server.Open(ctx, cfg, slog.New(slog.NewTextHandler(s.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	s.visitors, s.admin = "http://"+srv.Addr().String(), "http://"+srv.AdminAddr().String()
	s.read, s.write, s.tea = s.token("read"), s.token("write"), s.token("write:tea")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for s.do("GET", "/readyz", "").StatusCode != 200 {
		<-tick.C
	}
	return s
}

func (s *site) token(scopes ...string) string {
	s.t.Helper()
	secret, _, err := api.CreateToken(s.dir, api.Token{Name: "of a test", Scopes: scopes})
	if err != nil {
		s.t.Fatal(err)
	}
	return secret
}

// A reply is an answer with its complete body.
type reply struct {
	*http.Response
	body    string
	problem struct {
		Type, Title, Detail, Code, Hint string
		Status                          int
		RequestID                       string `json:"request_id"`
		Faults                          []config.Fault
	}
}

// do sends a request. Each option is "Name: value" of a header, with Host among
// them; one that begins with hg_ is a token.
func (s *site) do(method, path, body string, options ...string) *reply {
	s.t.Helper()
	out := s.send(method, path, body, options...)
	if out.Header.Get("Content-Type") == "application/problem+json" {
		s.problem(out)
	}
	return out
}

func (s *site) send(method, path, body string, options ...string) *reply {
	s.t.Helper()
	url := path
	if !strings.HasPrefix(path, "http://") {
		url = s.admin + path
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, o := range options {
		name, value, _ := strings.Cut(o, ": ")
		switch {
		case strings.HasPrefix(o, "hg_"):
			r.Header.Set("Authorization", "Bearer "+o)
		case name == "Host":
			r.Host = value
		default:
			r.Header.Add(name, value)
		}
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return &reply{Response: res, body: string(b)}
}

// problem checks what all problems have in common.
func (s *site) problem(r *reply) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(r.body), &r.problem); err != nil {
		s.t.Errorf("%s: %v", r.body, err)
	}
	p := &r.problem
	if p.Status != r.StatusCode || p.Detail == "" || p.Code == "" || p.Hint == "" ||
		p.Type != "about:blank" || p.Title != http.StatusText(p.Status) {
		s.t.Errorf("poor problem %s", r.body)
	}
	if p.RequestID == "" || p.RequestID != r.Header.Get("X-Request-Id") {
		s.t.Errorf("request id %q in the answer, %q in the header", p.RequestID,
			r.Header.Get("X-Request-Id"))
	}
	if p.Status != 429 && !strings.Contains(s.log.String(), p.RequestID) {
		s.t.Errorf("request id of %s is not in the log", r.body)
	}
}

func (s *site) status(room string) status.Room {
	s.t.Helper()
	var st status.Room
	if err := json.Unmarshal([]byte(s.do("GET", "/v1/rooms/"+room, "").body), &st); err != nil {
		s.t.Fatal(err)
	}
	st.Record, st.Totals = status.Record{}, status.Totals{} // these change without the test
	return st
}

func (s *site) audit() []api.AuditEntry {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, "audit.log"))
	if err != nil {
		s.t.Fatal(err)
	}
	var all []api.AuditEntry
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		var e api.AuditEntry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			s.t.Fatalf("%s: %v", lines.Text(), err)
		}
		all = append(all, e)
	}
	return all
}

func TestEveryEndpoint(t *testing.T) {
	s := open(t)
	s.do("GET", s.visitors+"/shop", "", "Accept: text/html") // inside
	waits := s.do("GET", s.visitors+"/shop", "", "Accept: application/json")
	var wait struct{ Headgate struct{ Ticket string } }
	if err := json.Unmarshal([]byte(waits.body), &wait); err != nil || wait.Headgate.Ticket == "" {
		t.Fatalf("%s %v", waits.body, err)
	}
	id := wait.Headgate.Ticket
	cookie, _, _ := strings.Cut(waits.Header.Get("Set-Cookie"), ";")
	s.do("GET", s.visitors+"/shop", "", "Accept: application/json", "Headgate-Poll: 1", "Cookie: "+cookie)
	tests := []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/livez", "", 200, "ok\n"},
		{"GET", "/readyz", "", 200, "ok\n"},
		{"HEAD", "/livez", "", 200, ""},
		{"GET", "/metrics", "", 200, `headgate_active_users{room="shop"} 1`},
		{"GET", "/metrics", "", 200, "headgate_config_last_reload_successful 1"},
		{"GET", "/v1/rooms", "", 200, `{"rooms":[{"name":"shop"`},
		{"HEAD", "/v1/rooms", "", 200, ""},
		{"GET", "/v1/rooms/tea", "", 200, `{"name":"tea"`},
		{"GET", "/v1/rooms/none", "", 404, "no_such_room"},
		{"GET", "/v1/rooms/a%2Fb", "", 404, "no_such_room"},
		{"GET", "/v1/rooms/shop/tickets/" + id, "", 200, `"status":"waiting","position":1,"ahead":0`},
		{"GET", "/v1/rooms/shop/tickets/" + strings.ToUpper(id), "", 200, `"status":"waiting"`},
		{"GET", "/v1/rooms/tea/tickets/" + id, "", 404, "no_such_ticket"},
		{"GET", "/v1/rooms/none/tickets/" + id, "", 404, "no_such_room"},
		{"GET", "/v1/tickets/" + id, "", 200, `"room":"shop"`},
		{"GET", "/v1/tickets/nonesuch", "", 404, "no_such_ticket"},
		{"GET", "/v1/tickets/%ff%00", "", 404, "no_such_ticket"},
		{"GET", "/v1/status", "", 200, `"config_file":`},
		{"PATCH", "/v1/rooms/shop", `{"total_active_users": 7}`, 200, `"total_active_users":7`},
		{"PATCH", "/v1/rooms/none", `{"total_active_users": 7}`, 404, "no_such_room"},
		{"POST", "/v1/reload", "", 200, `{"rooms":{"added":[],"removed":[],"changed":["shop"]},` +
			`"limits":{"added":[],"removed":[],"changed":[]},"queues":{"added":[],"removed":[],"changed":[]},` +
			`"webhooks":{"added":[],"removed":[],"changed":[]},"settings":[],"dropped_live_changes":["shop"],` +
			`"covered_limits":[],"needs_restart":[]}`},
		{"GET", "/nothing", "", 404, "no_such_path"},
		{"GET", "/v1/nothing", "", 404, "no_such_path"},
		{"PUT", "/v1/rooms/shop", "{}", 405, "method_not_allowed"},
		{"DELETE", "/v1/reload", "", 405, "method_not_allowed"},
		{"OPTIONS", "/v1/rooms", "", 405, "method_not_allowed"},
	}
	for _, tt := range tests {
		got := s.do(tt.method, tt.path, tt.body, s.write)
		if got.StatusCode != tt.status || !strings.Contains(got.body, tt.want) {
			t.Errorf("%s %s: %d %.300s, want %d %s", tt.method, tt.path, got.StatusCode, got.body,
				tt.status, tt.want)
		}
		if got.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s may be cached", tt.method, tt.path)
		}
	}
	if allow := s.do("PUT", "/v1/rooms/shop", "", s.write).Header.Get("Allow"); allow != "GET, PATCH" {
		t.Errorf("Allow: %q", allow)
	}
}

func TestWhoMayReadAndWrite(t *testing.T) {
	s := open(t)
	expired, _, err := api.CreateToken(s.dir, api.Token{
		Scopes: []string{"write"}, ExpiresAt: time.Now().Add(-time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	wrong := "hg_" + strings.Repeat("A", 43)
	const room, change = "/v1/rooms/shop", `{"total_active_users": 2}`
	tests := []struct {
		name, method, path string
		options            []string
		status             int
		code               string
	}{
		{"read from this machine", "GET", room, nil, 200, ""},
		{"read under localhost", "GET", room, []string{"Host: LocalHost:8081"}, 200, ""},
		{"read under ::1", "GET", room, []string{"Host: [::1]:8081"}, 200, ""},
		{"read under a name", "GET", room, []string{"Host: evil.example"}, 401, "token_missing"},
		{"metrics under a name", "GET", "/metrics", []string{"Host: evil.example"}, 401, "token_missing"},
		{"status under a name", "GET", "/v1/status", []string{"Host: evil.example"}, 401, "token_missing"},
		{"livez under a name", "GET", "/livez", []string{"Host: evil.example"}, 200, ""},
		{"behind a proxy", "GET", room, []string{"X-Forwarded-For: 192.0.2.1"}, 401, "token_missing"},
		{"behind another", "GET", room, []string{"Forwarded: for=192.0.2.1"}, 401, "token_missing"},
		{"behind a third", "GET", room, []string{"Via: 1.1 x"}, 401, "token_missing"},
		{"behind a fourth", "GET", room, []string{"X-Real-Ip: 192.0.2.1"}, 401, "token_missing"},
		{"from a page", "GET", room, []string{"Sec-Fetch-Site: cross-site"}, 401, "token_missing"},
		{"proxy and token", "GET", room, []string{"X-Forwarded-For: 192.0.2.1", s.read}, 200, ""},
		{"name and token", "GET", room, []string{"Host: ops.example", s.read}, 200, ""},
		{"wrong token", "GET", room, []string{wrong}, 401, "token_unknown"},
		{"basic", "GET", room, []string{"Authorization: Basic eDp5"}, 401, "token_malformed"},
		{"empty", "GET", room, []string{"Authorization: "}, 401, "token_malformed"},
		{"two tokens", "GET", room, []string{"Authorization: Bearer " + s.read,
			"Authorization: Bearer " + s.read}, 401, "token_malformed"},
		{"lower case scheme", "GET", room, []string{"Authorization: bearer " + s.read}, 200, ""},

		{"write without", "PATCH", room, nil, 401, "token_missing"},
		{"reload without", "POST", "/v1/reload", nil, 401, "token_missing"},
		{"write with read", "PATCH", room, []string{s.read}, 403, "scope_missing"},
		{"write other room", "PATCH", room, []string{s.tea}, 403, "scope_missing"},
		{"reload with a room's", "POST", "/v1/reload", []string{s.tea}, 403, "scope_missing"},
		{"read other room", "GET", room, []string{s.tea}, 403, "scope_missing"},
		{"read own room", "GET", "/v1/rooms/tea", []string{s.tea}, 200, ""},
		{"metrics with a room's", "GET", "/metrics", []string{s.tea}, 403, "scope_missing"},
		{"expired", "PATCH", room, []string{expired}, 401, "token_expired"},
		{"wrong", "PATCH", room, []string{wrong}, 401, "token_unknown"},
		{"right", "PATCH", room, []string{s.write}, 200, ""},
		{"a key of Cloudflare's API elsewhere", "PATCH", room, []string{"X-Auth-Key: " + s.write}, 401,
			"token_missing"},
		{"right, under a name", "PATCH", room, []string{s.write, "Host: ops.example"}, 200, ""},
	}
	for _, tt := range tests {
		got := s.do(tt.method, tt.path, change, tt.options...)
		if got.StatusCode != tt.status || got.problem.Code != tt.code {
			t.Errorf("%s: %d %.200s, want %d %s", tt.name, got.StatusCode, got.body, tt.status, tt.code)
		}
		if got.StatusCode == 401 && got.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", tt.name)
		}
		if strings.Contains(got.body, s.dir) && strings.Contains(tt.name, "behind") {
			t.Errorf("%s: the path of the data folder is told to strangers", tt.name)
		}
	}
	all := s.do("GET", "/v1/rooms", "", s.tea)
	if strings.Contains(all.body, "shop") || !strings.Contains(all.body, `"tea"`) {
		t.Errorf("a token of one room reads %s", all.body)
	}
	if log := s.log.String(); strings.Contains(log, "hg_") {
		t.Error("a token is in the log")
	}
}

// Cloudflare's clients may send a key instead of a token: headgate accepts its token there.
func TestTokensAsKeys(t *testing.T) {
	s := open(t)
	wrong := "hg_" + strings.Repeat("A", 43)
	const rooms = "/client/v4/zones/default/waiting_rooms"
	for _, tt := range []struct {
		options []string
		status  int
	}{
		{[]string{"X-Auth-Key: " + s.write, "X-Auth-Email: ops@shop.example"}, 400},
		{[]string{"X-Auth-User-Service-Key: " + s.write}, 400},
		{[]string{"X-Auth-Key: " + s.read}, 403}, {[]string{"X-Auth-Key: " + wrong}, 401},
		{[]string{"X-Auth-Key: " + s.write, "X-Auth-User-Service-Key: " + s.write}, 401},
		{[]string{"X-Auth-Key: " + s.write, "Authorization: Bearer " + wrong}, 401},
	} {
		if got := s.do("POST", rooms, "{}", tt.options...); got.StatusCode != tt.status {
			t.Errorf("%v: %d %.200s", tt.options, got.StatusCode, got.body)
		}
	}
}

func TestTokensWorkAndEndAtOnce(t *testing.T) {
	s := open(t)
	const change = `{"total_active_users": 2}`
	secret, made, err := api.CreateToken(s.dir, api.Token{Scopes: []string{"write:shop"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.do("PATCH", "/v1/rooms/shop", change, secret); got.StatusCode != 200 {
		t.Errorf("a new token: %d %s", got.StatusCode, got.body)
	}
	if _, ok, err := api.RevokeToken(s.dir, made.ID); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if got := s.do("PATCH", "/v1/rooms/shop", change, secret); got.problem.Code != "token_unknown" {
		t.Errorf("a revoked token: %d %s", got.StatusCode, got.body)
	}
	file := filepath.Join(s.dir, "tokens.json")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(whole, []byte(s.write)) || bytes.Contains(whole, []byte(s.write[3:])) {
		t.Error("a token is at rest as it is")
	}
	for _, damaged := range []string{"{", "[]", `{"tokens":[{"id":"x","scopes":["write"]}]}`} {
		if err := os.WriteFile(file, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := s.do("PATCH", "/v1/rooms/shop", change, s.write); got.StatusCode != 401 {
			t.Errorf("damaged file %s: %d %s", damaged, got.StatusCode, got.body)
		}
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.do("PATCH", "/v1/rooms/shop", change, s.write); got.StatusCode != 200 {
		t.Errorf("the file is back: %d %s", got.StatusCode, got.body)
	}
}

func TestBodiesOfChanges(t *testing.T) {
	s := open(t)
	tests := []struct {
		body   string
		status int
		want   string // in the problem
	}{
		{`{"total_active_users": 3, "message": "Hi"}`, 200, ""},
		{`{"total_active_users": "4"}`, 200, ""}, // as the file could have it
		{` {"queue_all": true , "session_duration": "2m"} `, 200, ""},
		{`{"total_activ_users": 3}`, 422, "did you mean total_active_users?"},
		{`{"origin": "http://127.0.0.1:1"}`, 422, "change the file and reload"},
		{`{"total_active_users": 0}`, 422, "total_active_users: 0 is too small"},
		{`{"total_active_users": -1}`, 422, "too small"},
		{`{"total_active_users": 3.5}`, 422, "not a whole number"},
		{`{"total_active_users": 1e3}`, 422, "not a whole number"},
		{`{"total_active_users": 99999999999999999999}`, 422, "too large"},
		{`{"total_active_users": true}`, 422, "not a whole number"},
		{`{"total_active_users": null}`, 422, "a value of this type"},
		{`{"total_active_users": [3]}`, 422, "a value of this type"},
		{`{"total_active_users": {}}`, 422, "a value of this type"},
		{`{"queue_all": "yes"}`, 422, "neither true nor false"},
		{`{"queue_all": 1}`, 422, "neither true nor false"},
		{`{"session_duration": 300}`, 422, "has no unit"},
		{`{"message": 5}`, 422, "a value of this type"},
		{`{"message": "` + strings.Repeat("x", 501) + `"}`, 422, "shorten it"},
		{`{"message": "\u001b[31m"}`, 422, "control character"},
		{`{"hold": "10s", "queue_all": false}`, 422, "not longer than poll_max"},
		{`{"a": 1, "b": 2}`, 422, "a: there is no such key\\nb: there is no such key"},
		{``, 400, "not a JSON object"},
		{`{}`, 400, "has no keys"},
		{`[]`, 400, "not a JSON object"},
		{`"x"`, 400, "not a JSON object"},
		{`{"a": 1`, 400, "not valid JSON"},
		{`{"a": 1,}`, 400, "not valid JSON"},
		{`{"total_active_users": 1} {}`, 400, "more text after"},
		{`{"total_active_users": 1, "total_active_users": 2}`, 400, "a key occurs twice"},
		{"{\"message\": \"\xff\"}", 400, "not UTF-8"},
		{`{"message": "` + strings.Repeat("x", 1<<20) + `"}`, 413, "body_too_large"},
	}
	for _, tt := range tests {
		before := s.status("shop")
		got := s.do("PATCH", "/v1/rooms/shop", tt.body, s.write)
		if got.StatusCode != tt.status || !strings.Contains(got.body, tt.want) {
			t.Errorf("%.60s: %d %s, want %d %s", tt.body, got.StatusCode, got.body, tt.status, tt.want)
		}
		if after := s.status("shop"); got.StatusCode != 200 && !reflect.DeepEqual(after, before) {
			t.Errorf("%.60s: refused, and changed %+v to %+v", tt.body, before, after)
		}
	}
	if st := s.status("shop"); st.TotalActiveUsers != 4 || st.SessionDuration != "2m0s" || !st.QueueAll {
		t.Errorf("%+v", st)
	}
	both := s.do("PATCH", "/v1/rooms/shop", `{"total_active_users": 9, "hold": "x"}`, s.write)
	if st := s.status("shop"); both.StatusCode != 422 || st.TotalActiveUsers != 4 {
		t.Errorf("one of two keys is wrong: %d, and the limit is %d", both.StatusCode, st.TotalActiveUsers)
	}
	if len(both.problem.Faults) != 1 || both.problem.Faults[0].Key != "hold" {
		t.Errorf("faults %+v", both.problem.Faults)
	}
}

func TestConcurrentChangesAreAllWholeAndAllCounted(t *testing.T) {
	s := open(t)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			n := fmt.Sprint(100 + i)
			body := `{"total_active_users": ` + n + `, "message": "` + n + `"}`
			if got := s.do("PATCH", "/v1/rooms/shop", body, s.write); got.StatusCode != 200 ||
				!strings.Contains(got.body, `"total_active_users":`+n) {
				t.Errorf("%d %s", got.StatusCode, got.body)
			}
		})
	}
	wg.Wait()
	var about api.About
	if err := json.Unmarshal([]byte(s.do("GET", "/v1/status", "").body), &about); err != nil {
		t.Fatal(err)
	}
	live := about.Rooms[0].Live
	last := fmt.Sprint(s.status("shop").TotalActiveUsers)
	if live == nil || live.Pairs["total_active_users"] != last || live.Pairs["message"] != last {
		t.Errorf("live changes %+v with the limit %s", live, last)
	}
	was := map[string]bool{"1": true}
	var all []api.AuditEntry // in any order: each change begins where another ended
	for _, e := range s.audit() {
		if e.What == "PATCH /v1/rooms/shop" {
			was[e.After["total_active_users"]] = true
			all = append(all, e)
		}
	}
	for _, e := range all {
		if !was[e.Before["total_active_users"]] || e.After["message"] != e.After["total_active_users"] {
			t.Errorf("audit line %+v", e)
		}
	}
	if len(was) != 21 {
		t.Errorf("%d values in the audit log, want 21", len(was))
	}
}

func TestTheAuditLogHasEachWrite(t *testing.T) {
	s := open(t)
	s.do("GET", "/v1/rooms", "")
	s.do("PATCH", "/v1/rooms/shop", `{"total_active_users": 8}`, s.write)
	s.do("PATCH", "/v1/rooms/shop", `{"total_active_users": 0}`, s.write)
	s.do("PATCH", "/v1/rooms/shop", `{"total_active_users": 9}`)
	s.do("PATCH", "/v1/rooms/shop", `{"total_active_users": 9}`, s.tea)
	last := s.do("POST", "/v1/reload", "", s.write)
	got := s.audit()
	if len(got) != 5 {
		t.Fatalf("%d lines, want 5: %+v", len(got), got)
	}
	for i, want := range []struct{ what, who, result string }{
		{"PATCH /v1/rooms/shop", "of a test", "ok"},
		{"PATCH /v1/rooms/shop", "of a test", "invalid_change"},
		{"PATCH /v1/rooms/shop", "", "token_missing"},
		{"PATCH /v1/rooms/shop", "of a test", "scope_missing"},
		{"POST /v1/reload", "of a test", "ok"},
	} {
		e := got[i]
		if e.What != want.what || e.Name != want.who || e.Result != want.result ||
			(e.Who == "") != (want.who == "") || e.RequestID == "" || e.Remote == "" ||
			time.Since(e.At) > time.Minute {
			t.Errorf("line %d: %+v, want %+v", i+1, e, want)
		}
	}
	if got[0].Before["total_active_users"] != "1" || got[0].After["total_active_users"] != "8" ||
		got[1].Asked["total_active_users"] != "0" {
		t.Errorf("%+v", got[:2])
	}
	if got[4].After["dropped_live_changes"] != "shop" ||
		got[4].RequestID != last.Header.Get("X-Request-Id") {
		t.Errorf("%+v", got[4])
	}
	b, err := os.ReadFile(filepath.Join(s.dir, "audit.log"))
	if err != nil || bytes.Contains(b, []byte("hg_")) {
		t.Errorf("a token is in the audit log: %v", err)
	}
	info, err := os.Stat(filepath.Join(s.dir, "audit.log"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// A change that cannot be logged is not made.
func TestAChangeNeedsTheAuditLog(t *testing.T) {
	s := open(t)
	if err := os.Mkdir(filepath.Join(s.dir, "audit.log"), 0o700); err != nil {
		t.Fatal(err)
	}
	got := s.do("PATCH", "/v1/rooms/shop", `{"total_active_users": 8}`, s.write)
	if got.StatusCode != 500 || got.problem.Code != "data_folder" || strings.Contains(got.body, s.dir) {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
	if n := s.status("shop").TotalActiveUsers; n != 1 {
		t.Errorf("the limit is %d", n)
	}
}

func TestGuessingIsBoundedAndShutsOutNobody(t *testing.T) {
	s := open(t)
	codes := map[string]int{}
	for range 60 {
		codes[s.do("PATCH", "/v1/rooms/shop", "{}", "hg_"+strings.Repeat("B", 43)).problem.Code]++
	}
	if codes["token_unknown"] < 15 || codes["too_many_attempts"] < 30 {
		t.Errorf("%v", codes)
	}
	if n := len(s.audit()); n > 25 {
		t.Errorf("%d lines in the audit log", n)
	}
	if got := s.do("PATCH", "/v1/rooms/shop", `{"shadow": true}`, s.write); got.StatusCode != 200 {
		t.Errorf("who has a token is shut out: %d %s", got.StatusCode, got.body)
	}
	if got := s.do("GET", "/v1/rooms", ""); got.StatusCode != 200 {
		t.Errorf("who reads from this machine is shut out: %d %s", got.StatusCode, got.body)
	}
}

// A client without permission must not push other entries out of the audit log.
func TestRefusedChangesDoNotFillTheAuditLog(t *testing.T) {
	s := open(t)
	codes := map[string]int{}
	for range 60 {
		codes[s.do("PATCH", "/v1/rooms/shop", `{"shadow": true}`, s.read).problem.Code]++
	}
	if codes["scope_missing"] < 15 || codes["too_many_refusals"] < 30 {
		t.Errorf("%v", codes)
	}
	if n := len(s.audit()); n > 25 {
		t.Errorf("%d lines in the audit log", n)
	}
	if got := s.do("GET", "/v1/rooms", "", s.read, "Host: ops.example"); got.StatusCode != 200 {
		t.Errorf("the token reads no more: %d %s", got.StatusCode, got.body)
	}
	if got := s.do("PATCH", "/v1/rooms/shop", "{}", s.tea); got.problem.Code != "scope_missing" {
		t.Errorf("another token pays for it: %d %s", got.StatusCode, got.body)
	}
	before := len(s.audit())
	for n := range 40 { // allowed requests are not counted
		change := fmt.Sprintf(`{"total_active_users": %d}`, n+1)
		if got := s.do("PATCH", "/v1/rooms/tea", change, s.tea); got.StatusCode != 200 {
			t.Fatalf("change %d: %d %s", n, got.StatusCode, got.body)
		}
	}
	if n := len(s.audit()) - before; n != 40 {
		t.Errorf("%d lines of 40 changes", n)
	}
}

// An HTTP/1.0 proxy on this machine adds no header and may act for anyone.
func TestAnOldProxyDoesNotReadForTheWorld(t *testing.T) {
	s := open(t)
	addr := strings.TrimPrefix(s.admin, "http://")
	for version, want := range map[string]int{"HTTP/1.0": 401, "HTTP/1.1": 200} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET /v1/rooms %s\r\nHost: %s\r\nConnection: close\r\n\r\n", version, addr)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", version, res.StatusCode, want)
		}
		conn.Close()
	}
}
