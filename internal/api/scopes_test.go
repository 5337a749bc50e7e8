package api_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/api"
)

// senders returns the senders of the table and their scopes. here has no token, but sends from this
// machine; away sends through a proxy.
func senders() map[string][]string {
	return map[string][]string{
		"here": nil, "away": nil, "revoked": {"write"}, "expired": {"write"}, "malformed": nil,
		"read": {"read"}, "write": {"write"}, "put": {"put"}, "claim": {"claim"}, "pass": {"pass"},
		"release": {"release"}, "release:shop": {"release:shop"}, "holders": {"holders"},
		"read:shop": {"read:shop"}, "write:shop": {"write:shop"}, "pass:shop": {"pass:shop"},
		"read:orders": {"read:orders"}, "put:orders": {"put:orders"}, "claim:orders": {"claim:orders"},
		"write:orders": {"write:orders"},
		"read:zone/a":  {"read:zone/a.example"}, "write:zone/a": {"write:zone/a.example"},
		"write:zone/b": {"write:zone/b.example"},
	}
}

// strangers returns the senders without a valid token. They may do the same as away.
func strangers() []string { return []string{"away", "revoked", "expired", "malformed"} }

// others returns names that must not appear in answers to a sender with a narrow scope.
func others(sender string) []string {
	_, narrow, _ := strings.Cut(sender, ":")
	return map[string][]string{
		"shop": {"teahouse", "amade", "bmade", "orders"}, "orders": {"teahouse", "amade", "bmade", `"shop"`},
		"zone/a": {"teahouse", "bmade", "b.example", "orders", `"shop"`},
		"zone/b": {"teahouse", "amade", "a.example", "orders", `"shop"`},
	}[narrow]
}

// A target is one object of a route, and who may access it.
type target struct{ path, may string }

// targetsOf returns the objects of a route, by the class of its row.
func targetsOf(class, path string, s *scene) []target {
	const (
		readers = "here read write "
		some    = readers + "read:shop write:shop read:orders write:orders read:zone/a write:zone/a write:zone/b"
	)
	with := func(pairs ...string) target {
		return target{strings.NewReplacer(append(pairs, "{job...}", "1-0", "{tenant...}", "t")...).Replace(path), ""}
	}
	whole := func(may string) []target {
		return []target{{with("{id}", "0", "{limit}", "api", "{key...}", "x", "{webhook}", "shop", "{holder}", "aaaaaaaaaaaa",
			"{account}", "any", "{version}", "1").path, may}}
	}
	rooms := func(all, verbs string) (list []target) {
		for room, who := range map[string]string{"shop": ":shop", "teahouse": ":none", "amade": ":zone/a",
			"bmade": ":zone/b"} {
			x := with("{name}", room, "{id}", "none")
			for verb := range strings.FieldsSeq(verbs) {
				x.may += " " + verb + who
			}
			x.may += " " + all
			list = append(list, x)
		}
		// A zone is not a room, although the scope of a zone's token contains its name.
		return append(list, target{with("{name}", "zone%2Fa.example", "{id}", "none").path, all})
	}
	zones := func(all, verbs, more string) (list []target) {
		for _, z := range []string{"a", "b"} {
			x := with("{zone}", z+".example", "{room}", s.room[z], "{event}", s.event[z], "{rule}", s.rule[z],
				"{version}", s.version[z])
			for verb := range strings.FieldsSeq(verbs) {
				x.may += " " + verb + ":zone/" + z
			}
			x.may += " " + all + " " + more
			list = append(list, x)
		}
		return list
	}
	switch class {
	case "all":
		return whole("*")
	case "read":
		return whole(readers)
	case "read some":
		return whole(some)
	case "write":
		return whole("write")
	case "holders":
		return whole("write holders")
	case "read room":
		return rooms(readers, "read write")
	case "write room":
		return rooms("write", "write")
	case "pass room":
		return rooms("write pass", "write pass")
	case "release room":
		return rooms("write release", "write release")
	case "read queue":
		return []target{{with("{name}", "orders").path, readers + "read:orders write:orders"},
			{with("{name}", "zone%2Fa.example").path, readers}}
	case "put queue":
		return []target{{with("{name}", "orders").path, "write put put:orders write:orders"},
			{with("{name}", "zone%2Fa.example").path, "write put"}}
	case "claim queue":
		return []target{{with("{name}", "orders").path, "write claim claim:orders write:orders"},
			{with("{name}", "zone%2Fa.example").path, "write claim"}}
	case "write queue":
		return []target{{with("{name}", "orders").path, "write write:orders"},
			{with("{name}", "zone%2Fa.example").path, "write"}}
	case "read zone":
		return zones(readers, "read write", "")
	case "read zone some": // only what the token may read
		return zones(some, "read write", "")
	case "write zone":
		return zones("write", "write", "")
	}
	return nil
}

// scopeRows lists who may send each request.
const scopeRows = `
all            GET /livez
all            GET /readyz
all            GET /preview/{id}
all            GET /v1/openapi.json
all            GET /.headgate/jwks.json
read           GET /metrics
read           GET /v1/status
read           GET /v1/cluster
read           GET /v1/keys
read           GET /v1/audit
read           GET /v1/webhooks
read           GET /v1/limits
read           GET /v1/limits/{limit}
read           GET /v1/limits/{limit}/keys
read           GET /v1/limits/{limit}/keys/{key...}
read           GET /v1/usage
read           POST /v1/limits/check
read           POST /v1/limits/reserve
read           POST /v1/limits/settle
read           POST /v1/limits/renew
read           GET /v1/holders
read           GET /v1/holders/{holder}
holders        POST /v1/holders
holders        PATCH /v1/holders/{holder}
holders        DELETE /v1/holders/{holder}
holders        POST /v1/holders/{holder}/rotate
holders        POST /v1/holders/{holder}/revoke
read some      GET /v1/rooms
read some      GET /v1/tickets/{id}
read some      GET /v1/queues
read some      GET /v1/zones
read some      GET /v1/history
read some      GET /v1/analytics
read some      GET /v1/analytics/advice
read some      GET /client/v4/zones
read some      GET /client/v4/accounts/{account}/waiting_rooms
write          POST /v1/cluster/anywhere
write          POST /v1/cluster/off
write          POST /v1/cluster/revoke
write          POST /v1/reload
write          POST /v1/keys/rotate
write          DELETE /v1/keys/{id}
write          PUT /v1/limits/{limit}
write          PATCH /v1/limits/{limit}
write          DELETE /v1/limits/{limit}
write          DELETE /v1/limits/{limit}/keys/{key...}
write          POST /v1/webhooks/{webhook}/test
read room      GET /v1/rooms/{name}
read room      GET /v1/rooms/{name}/preview
read room      GET /v1/rooms/{name}/tickets/{id}
write room     PATCH /v1/rooms/{name}
write room     POST /v1/rooms/{name}/codes
release room   POST /v1/rooms/{name}/tickets/{id}/release
read room      GET /v1/rooms/{name}/codes/revoked
write room     POST /v1/rooms/{name}/codes/revoked
pass room      POST /v1/rooms/{name}/passes/complete
pass room      POST /v1/rooms/{name}/passes/abandon
pass room      POST /v1/rooms/{name}/origin
read queue     GET /v1/queues/{name}
read queue     GET /v1/queues/{name}/dead
read queue     GET /v1/queues/{name}/tenants/{tenant...}
read queue     GET /v1/queues/{name}/schedules
read queue     GET /v1/queues/{name}/jobs/{job...}
put queue      POST /v1/queues/{name}/jobs
claim queue    POST /v1/queues/{name}/claim
claim queue    POST /v1/queues/{name}/ack
claim queue    POST /v1/queues/{name}/nack
claim queue    POST /v1/queues/{name}/extend
write queue    PATCH /v1/queues/{name}
write queue    GET /v1/queues/{name}/jobs
write queue    DELETE /v1/queues/{name}/jobs
write queue    DELETE /v1/queues/{name}/jobs/{job...}
write queue    PATCH /v1/queues/{name}/jobs/{job...}
write queue    POST /v1/queues/{name}/pause
write queue    POST /v1/queues/{name}/resume
write queue    DELETE /v1/queues/{name}/dead
write queue    POST /v1/queues/{name}/redrive
read zone      GET /client/v4/zones/{zone}
read zone some GET /client/v4/zones/{zone}/waiting_rooms
read zone      GET /client/v4/zones/{zone}/waiting_rooms/settings
read zone      GET /client/v4/zones/{zone}/waiting_rooms/{room}
read zone      GET /client/v4/zones/{zone}/waiting_rooms/{room}/status
read zone      GET /client/v4/zones/{zone}/waiting_rooms/{room}/events
read zone      GET /client/v4/zones/{zone}/waiting_rooms/{room}/events/{event}
read zone      GET /client/v4/zones/{zone}/waiting_rooms/{room}/events/{event}/details
read zone      GET /client/v4/zones/{zone}/waiting_rooms/{room}/rules
read zone      GET /v1/history/{version}
write zone     POST /v1/history/{version}/undo
write zone     POST /client/v4/zones/{zone}/waiting_rooms
write zone     POST /client/v4/zones/{zone}/waiting_rooms/preview
write zone     PUT /client/v4/zones/{zone}/waiting_rooms/settings
write zone     PATCH /client/v4/zones/{zone}/waiting_rooms/settings
write zone     PUT /client/v4/zones/{zone}/waiting_rooms/{room}
write zone     PATCH /client/v4/zones/{zone}/waiting_rooms/{room}
write zone     DELETE /client/v4/zones/{zone}/waiting_rooms/{room}
write zone     POST /client/v4/zones/{zone}/waiting_rooms/{room}/events
write zone     PUT /client/v4/zones/{zone}/waiting_rooms/{room}/events/{event}
write zone     PATCH /client/v4/zones/{zone}/waiting_rooms/{room}/events/{event}
write zone     DELETE /client/v4/zones/{zone}/waiting_rooms/{room}/events/{event}
write zone     POST /client/v4/zones/{zone}/waiting_rooms/{room}/rules
write zone     PUT /client/v4/zones/{zone}/waiting_rooms/{room}/rules
write zone     PATCH /client/v4/zones/{zone}/waiting_rooms/{room}/rules/{rule}
write zone     DELETE /client/v4/zones/{zone}/waiting_rooms/{room}/rules/{rule}
`

// A row is one request of the table.
type row struct{ class, method, path string }

func readRows(t *testing.T) (all []row) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^([a-z ]+?) +([A-Z]+) (/\S*)$`)
	var have []string
	for _, m := range line.FindAllStringSubmatch(scopeRows, -1) {
		all = append(all, row{m[1], m[2], m[3]})
		have = append(have, m[2]+" "+m[3])
	}
	want := api.Routes()
	for _, r := range want {
		if !slices.Contains(have, r) {
			t.Errorf("no row says who may %s", r)
		}
	}
	for _, r := range have {
		if !slices.Contains(want, r) {
			t.Errorf("there is no request %s", r)
		}
	}
	return all
}

// A scene is a server with objects in two zones, and a token for each sender.
type scene struct {
	*site
	tokens                     map[string]string
	room, event, rule, version map[string]string // by zone
}

func openScene(t *testing.T) *scene {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "hook.secret")
	if err := os.WriteFile(secret, []byte("whsec_"+strings.Repeat("QUFB", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &scene{site: openWith(t, "zones:\n  - {name: a.example, origin: 'http://127.0.0.1:1'}\n"+
		"  - {name: b.example, origin: 'http://127.0.0.1:1'}\n"+
		"limits:\n  - {name: api, algorithm: sliding_log, amount: 5, window: 1m}\n"+
		"queues:\n  - {name: orders, target: {url: 'http://127.0.0.1:1/'}, rate: 1}\n"+
		"webhooks:\n  - {name: shop, url: 'http://127.0.0.1:1/', secret_files: ["+secret+"]}\n"),
		tokens: map[string]string{}, room: map[string]string{}, event: map[string]string{},
		rule: map[string]string{}, version: map[string]string{}}
	text, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.ReplaceAll(string(text), "name: tea,", "name: teahouse,"))
	if err := os.WriteFile(s.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := s.do("POST", "/v1/reload", "", s.write); r.StatusCode != 200 {
		t.Fatal(r.body)
	}
	for sender, scopes := range senders() {
		if scopes == nil {
			continue
		}
		kept := api.Token{Scopes: scopes}
		if sender == "expired" {
			kept.ExpiresAt = time.Now().Add(-time.Hour)
		}
		secret, made, err := api.CreateToken(s.dir, kept)
		if err != nil {
			t.Fatal(err)
		}
		if s.tokens[sender] = secret; sender == "revoked" {
			if _, ok, err := api.RevokeToken(s.dir, made.ID); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
	}
	s.tokens["malformed"] = "hg_x"
	for _, z := range []string{"a", "b"} {
		s.fill(t, z)
	}
	return s
}

// fill makes a room, an event and a rule in a zone, and a change that can no longer be undone.
func (s *scene) fill(t *testing.T, z string) {
	t.Helper()
	zone := "/client/v4/zones/" + z + ".example/waiting_rooms"
	send := func(method, path, body string) (id string) {
		t.Helper()
		r := s.do(method, zone+path, body, s.write)
		var got struct{ Result any }
		if err := json.Unmarshal([]byte(r.body), &got); err != nil || r.StatusCode != 200 {
			t.Fatal(r.Status, r.body)
		}
		if list, ok := got.Result.([]any); ok {
			got.Result = list[0]
		}
		id, _ = got.Result.(map[string]any)["id"].(string)
		return id
	}
	s.room[z] = send("POST", "", `{"name":"`+z+`made","host":"`+z+`.example","total_active_users":5,`+
		`"new_users_per_minute":5}`)
	s.event[z] = send("POST", "/"+s.room[z]+"/events", `{"name":"e","event_start_time":`+
		`"2027-01-01T00:00:00Z","event_end_time":"2027-01-02T00:00:00Z","suspended":true}`)
	s.rule[z] = send("POST", "/"+s.room[z]+"/rules", `{"action":"deny","expression":"ssl"}`)
	send("PATCH", "/settings", `{"search_engine_crawler_bypass":true}`)
	var got struct {
		Changes []struct{ Version json.Number }
	}
	r := s.do("GET", "/v1/history?count=1", "", s.write)
	if err := json.Unmarshal([]byte(r.body), &got); err != nil || len(got.Changes) != 1 {
		t.Fatal(r.body, err)
	}
	s.version[z] = got.Changes[0].Version.String()
	send("PATCH", "/settings", `{"search_engine_crawler_bypass":false}`)
}

// ask sends a request as a sender. Changes of existing objects are rejected for their version, and
// all others for their body: the table is about who passes the check of the token.
func (s *scene) ask(sender, method, path string) *reply { return s.askAt("", sender, method, path) }

func (s *scene) askAt(base, sender, method, path string, more ...string) *reply {
	options := append([]string{"If-Match: \"99999\""}, more...)
	if token := s.tokens[sender]; token != "" {
		options = append(options, "Authorization: Bearer "+token)
	}
	if sender != "here" {
		options = append(options, "X-Forwarded-For: 192.0.2.1")
	}
	if path == "/v1/analytics" { // there is none of all
		_, zone, zoned := strings.Cut(sender, ":zone/")
		switch {
		case zoned:
			path += "?room=" + zone + "made"
		case strings.HasSuffix(sender, ":orders"):
			path += "?queue=orders"
		default:
			path += "?room=shop"
		}
	}
	return s.send(method, base+path, "", options...)
}

// refused reports whether the check of the token rejected the request, and checks that the answer
// is the right one. Guessing is slowed down by 429.
func refused(t *testing.T, what, sender string, r *reply) bool {
	t.Helper()
	switch known := !slices.Contains(append(strangers(), "here"), sender); {
	case r.StatusCode == http.StatusTooManyRequests:
		return true
	case r.StatusCode == http.StatusUnauthorized:
		if known {
			t.Errorf("%s as %s: %s, and the token is good", what, sender, r.Status)
		}
		return true
	case r.StatusCode == http.StatusForbidden:
		if !known {
			t.Errorf("%s as %s: %s, and there is no token that is good", what, sender, r.Status)
		}
		return true
	}
	return false
}

// Every request, from every sender, for objects of every room and zone: only the senders with the
// right scope succeed, and answers contain no names of others. A new route needs a row.
func TestEveryScopeOnEveryEndpoint(t *testing.T) {
	s := openScene(t)
	asked := 0
	for _, row := range readRows(t) {
		targets := targetsOf(row.class, row.path, s)
		if len(targets) == 0 {
			t.Errorf("no class %q", row.class)
		}
		for _, x := range targets {
			if strings.ContainsAny(x.path, "{}") {
				t.Fatalf("%s: nothing stands for a part of the path", x.path)
			}
			for sender := range senders() {
				what := row.method + " " + x.path
				r := s.ask(sender, row.method, x.path)
				may := x.may == "*" || slices.Contains(strings.Fields(x.may), sender)
				if got := !refused(t, what, sender, r); got != may {
					t.Errorf("%s as %s: %d, want it to pass: %v: %.200s", what, sender, r.StatusCode, may, r.body)
				}
				policy := r.Header.Get("Content-Security-Policy")
				if r.Header.Get("X-Content-Type-Options") != "nosniff" ||
					!strings.HasPrefix(policy, "default-src 'none'") &&
						!strings.HasPrefix(policy, "sandbox") {
					t.Errorf("%s as %s: a browser may run what is in it: %v", what, sender, r.Header)
				}
				if r.StatusCode != 200 || row.class == "all" {
					continue
				}
				for _, name := range others(sender) {
					if strings.Contains(r.body, name) {
						t.Errorf("%s as %s: the answer tells of %s: %.300s", what, sender, name, r.body)
					}
				}
				asked++
			}
		}
	}
	if asked < 200 {
		t.Errorf("%d requests were answered 200: the table shows little", asked)
	}
}

// dashboardRows lists who may send each request of the dashboard itself, once signed in; "all"
// includes senders without a token. Requests below api/ go through the API: see
// TestEveryScopeBySession.
const dashboardRows = `
all  /dashboard/
all  GET /{$}
all  GET /dashboard/session
all  POST /dashboard/session
all  DELETE /dashboard/session
read GET /dashboard/live
read GET /dashboard/history
read POST /dashboard/whatif
api  /dashboard/api/
api  /
`

// A dashboard session allows what its token allows, for every request, and the dashboard's own
// answers contain nothing about other rooms.
func TestEveryScopeBySession(t *testing.T) {
	s := openScene(t)
	cookies := map[string]string{}
	secret, _, err := api.CreateToken(s.dir, api.Token{Scopes: []string{"put", "claim", "pass", "load", "release"}})
	if err != nil {
		t.Fatal(err)
	}
	s.tokens["no reader"] = secret
	for sender, may := range map[string]bool{ // 10 a minute are accepted
		"read": true, "write": true, "read:shop": true, "write:shop": true, "read:zone/a": true,
		"write:zone/a": true, "write:zone/b": true, "no reader": false, "revoked": false,
	} {
		r := s.send("POST", "/dashboard/session", `{"token":"`+s.tokens[sender]+`"}`)
		if may != (r.StatusCode == 204) {
			t.Fatalf("%s signs in: %s", sender, r.Status)
		}
		if may {
			cookies[sender] = "Cookie: headgate-session=" + r.Cookies()[0].Value
			delete(s.tokens, sender)
		}
	}
	for _, row := range readRows(t) {
		for _, x := range targetsOf(row.class, row.path, s) {
			for sender, cookie := range cookies {
				what := row.method + " " + x.path
				r := s.askAt("/dashboard/api", sender, row.method, x.path, cookie, ofOurPage)
				may := x.may == "*" || slices.Contains(strings.Fields(x.may), sender)
				if got := !refused(t, what, sender, r); got != may {
					t.Errorf("%s as %s: %d, want it to pass: %v: %.200s", what, sender, r.StatusCode, may, r.body)
				}
			}
			if r := s.askAt("/dashboard/api", "away", row.method, x.path); x.may != "*" &&
				!refused(t, x.path, "away", r) {
				t.Errorf("%s %s without a session: %s", row.method, x.path, r.Status)
			}
		}
	}
	s.askDashboard(t, cookies)
}

// ofOurPage is what a browser sends with requests of the dashboard's page.
const ofOurPage = "Sec-Fetch-Site: same-origin"

// askDashboard sends the dashboard's own requests.
func (s *scene) askDashboard(t *testing.T, cookies map[string]string) {
	t.Helper()
	source, err := os.ReadFile("../dashboard/dashboard.go")
	if err != nil {
		t.Fatal(err)
	}
	registered := regexp.MustCompile(`d\.mux\.Handle(?:Func)?\(([^,]+),`)
	plain := strings.NewReplacer(`"`, "", "+", "", "Prefix", "/dashboard/")
	var have []string
	for _, m := range registered.FindAllStringSubmatch(string(source), -1) {
		have = append(have, plain.Replace(m[1]))
	}
	slices.Sort(have)
	var want []string
	for line := range strings.Lines(strings.TrimSpace(dashboardRows)) {
		_, pattern, _ := strings.Cut(strings.TrimSpace(line), " ")
		want = append(want, strings.TrimSpace(pattern))
	}
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("the dashboard has %q, the table %q", have, want)
	}
	tick := time.NewTicker(10 * time.Millisecond) // new rooms are found each second
	defer tick.Stop()
	for s.send("GET", "/dashboard/history?room=bmade", "", cookies["write"]).StatusCode != 200 {
		<-tick.C
	}
	for sender, cookie := range cookies {
		for room, bound := range map[string]string{"shop": "shop", "amade": "zone/a", "bmade": "zone/b",
			"teahouse": "none"} {
			_, narrow, is := strings.Cut(sender, ":")
			may := !is || narrow == bound
			body := `{"room":"` + room + `","total_active_users":1,"new_users_per_minute":1,"session_seconds":1}`
			for _, r := range []*reply{
				s.send("GET", "/dashboard/history?room="+room, "", cookie, "X-Forwarded-For: 192.0.2.1"),
				s.send("POST", "/dashboard/whatif", body, cookie, ofOurPage, "X-Forwarded-For: 192.0.2.1"),
			} {
				if got := r.StatusCode != 404; got != may {
					t.Errorf("%s as %s: %d: %.100s", r.Request.URL, sender, r.StatusCode, r.body)
				}
			}
		}
	}
	for _, ask := range [][2]string{{"GET", "live"}, {"GET", "history?room=shop"}, {"POST", "whatif"}} {
		r := s.send(ask[0], "/dashboard/"+ask[1], "{}", "X-Forwarded-For: 192.0.2.1")
		if r.StatusCode != 401 {
			t.Errorf("%v without a session: %s", ask, r.Status)
		}
	}
}
