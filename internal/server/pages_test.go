package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/internal/proxy"
	"github.com/headgate/headgate/status"
)

// ownPageRoom has a page of its own next to the configuration; its origin is down.
const ownPageRoom = "rooms:\n  - name: shop\n    path: /shop\n    origin: http://127.0.0.1:1\n" +
	"    total_active_users: 1\n    new_users_per_minute: 1\n    queue_all: true\n" +
	"    page: {html_file: page.html, translations: {de-DE: page.de.html}, assets: files}\n"

func (p *process) save(name, text string) {
	p.t.Helper()
	name = filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// ownPage runs a room with a page of its own.
func ownPage(t *testing.T, html string) *process {
	t.Helper()
	p := &process{t: t, dir: t.TempDir()}
	p.save("page.html", html)
	p.save("page.de.html", "Bitte warten, {{title}}")
	p.save("files/logo.svg", "<svg/>")
	p.file = filepath.Join(p.dir, "headgate.yaml")
	p.write(ownPageRoom)
	p.start()
	t.Cleanup(func() { p.stop() })
	return p
}

// A room with challenges has the script that solves them. In one without, its address is the site's.
func TestTheScriptOfChallenges(t *testing.T) {
	for challenge, want := range map[string]int{"": http.StatusNotFound, "    challenge: {kind: work}\n": 200} {
		origin := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(origin.Close)
		p := &process{t: t, dir: t.TempDir()}
		p.file = filepath.Join(p.dir, "headgate.yaml")
		p.write("rooms:\n  - name: shop\n    origin: " + origin.URL +
			"\n    total_active_users: 9\n    new_users_per_minute: 9\n" + challenge)
		p.start()
		r := get(t, p.visitors+"/.headgate/work.js", "")
		if r.StatusCode != want || strings.Contains(r.body, "keyPrefix") != (want == 200) {
			t.Errorf("%q: %s %q", challenge, r.Status, r.body)
		}
		p.stop()
	}
}

// TestOwnPage checks that waiting visitors get the room's own page, in a language that they accept,
// which reloads by itself, with its files, while the origin is down.
func TestOwnPage(t *testing.T) {
	p := ownPage(t, `Please wait <img src="{{assets}}/logo.svg"> {{state}}`)
	r := get(t, p.visitors+"/shop/", "")
	if want := `Please wait <img src="/shop/.headgate/assets/logo.svg"> queue_all`; r.body != want {
		t.Errorf("page %q, want %q", r.body, want)
	}
	if r.Header.Get("Refresh") == "" || r.Header.Get("Content-Language") != "en-US" ||
		!strings.Contains(r.Header.Get("Content-Security-Policy"), "script-src 'self' 'unsafe-inline'") {
		t.Errorf("headers %v", r.Header)
	}
	if logo := get(t, p.visitors+"/shop/.headgate/assets/logo.svg", ""); logo.body != "<svg/>" ||
		logo.Header.Get("Set-Cookie") != "" {
		t.Errorf("logo: %q %v", logo.body, logo.Header)
	}
	res := ask(t, p.visitors+"/shop/", "text/html", "de-AT,de;q=0.9")
	if got := res.Header.Get("Content-Language"); got != "de-DE" ||
		!strings.Contains(res.Header.Get("Vary"), "Accept-Language") {
		t.Errorf("who reads German gets %q, Vary %q", got, res.Header.Get("Vary"))
	}
}

// TestOwnPageIsReloaded checks that a changed page or file is used; an invalid one is rejected with
// its line, and the old one stays.
func TestOwnPageIsReloaded(t *testing.T) {
	p := ownPage(t, "one")
	is := func(want string) {
		t.Helper()
		if r := get(t, p.visitors+"/shop/", ""); r.body != want {
			t.Errorf("page %q, want %q", r.body, want)
		}
	}
	is("one")
	p.save("page.html", "two\n{{nobody}}")
	_, err := p.s.Reload(t.Context())
	faults := config.Faults(err)
	if len(faults) != 1 || faults[0].Line != 2 || filepath.Base(faults[0].File) != "page.html" ||
		faults[0].Hint == "" {
		t.Errorf("faults %v", err)
	}
	is("one")
	p.save("page.html", "three")
	got, err := p.s.Reload(t.Context())
	if err != nil || len(got.Rooms.Changed) != 1 {
		t.Errorf("reload: %+v, %v", got, err)
	}
	is("three")
	p.save("files/new.css", "p{}")
	if got, err = p.s.Reload(t.Context()); err != nil || len(got.Rooms.Changed) != 1 {
		t.Errorf("reload of files: %+v, %v", got, err)
	}
	if r := get(t, p.visitors+"/shop/.headgate/assets/new.css", ""); r.body != "p{}" {
		t.Errorf("new file: %d %q", r.StatusCode, r.body)
	}
	if got, err = p.s.Reload(t.Context()); err != nil || len(got.Rooms.Changed) != 0 {
		t.Errorf("reload of nothing: %+v, %v", got, err)
	}
}

// TestOwnPageSaysWhatTheJSONSays checks that the variables are the keys of cfWaitingRoom.
func TestOwnPageSaysWhatTheJSONSays(t *testing.T) {
	p := ownPage(t, "-")
	r := ask(t, p.visitors+"/shop/", "application/json", "")
	var answer struct{ CfWaitingRoom map[string]any }
	if err := json.Unmarshal([]byte(r.body), &answer); err != nil {
		t.Fatal(err)
	}
	want := answer.CfWaitingRoom
	if len(want) != 25 {
		t.Errorf("cfWaitingRoom has %d keys, want 25", len(want))
	}
	var parts []string
	for key, v := range want {
		if _, text := v.(string); text {
			parts = append(parts, `"`+key+`":"{{`+key+`}}"`)
		} else {
			parts = append(parts, `"`+key+`":{{`+key+`}}`)
		}
	}
	p.save("page.html", "{"+strings.Join(parts, ",")+"}")
	if _, err := p.s.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if page := ask(t, p.visitors+"/shop/", "text/html", ""); json.Unmarshal([]byte(page.body), &got) != nil {
		t.Fatalf("page %q", page.body)
	}
	for key, v := range want {
		if key != "lastUpdated" && key != "refreshIntervalSeconds" && got[key] != v {
			t.Errorf("%s: the page says %v, the JSON %v", key, got[key], v)
		}
	}
}

// ask sends a request with the headers Accept and Accept-Language.
func ask(t *testing.T, url, accept, language string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	r.Header.Set("Accept-Language", language)
	return fetch(t, http.DefaultTransport.RoundTrip, r)
}

func TestPreviewOfARoom(t *testing.T) {
	p := ownPage(t, "{{title}} {{waitTime}} {{queueingMethod}}")
	at := p.operators + "/v1/rooms/shop/preview"
	if r := get(t, at+"?waitTime=7&queueing_method=random", ""); r.body != "shop 7 random" ||
		!strings.HasPrefix(r.Header.Get("Content-Security-Policy"), "sandbox allow-scripts; ") ||
		r.Header.Get("Refresh") != "" {
		t.Errorf("preview %q %v", r.body, r.Header)
	}
	if r := get(t, at+"?language=de", ""); r.body != "Bitte warten, shop" {
		t.Errorf("in German: %q", r.body)
	}
	if r := get(t, at+"?waitTime=x", ""); r.StatusCode != 400 || !strings.Contains(r.body, "bad_parameter") {
		t.Errorf("a bad parameter: %d %s", r.StatusCode, r.body)
	}
	if r := get(t, p.operators+"/v1/rooms/none/preview", ""); r.StatusCode != 404 {
		t.Errorf("no room: %d", r.StatusCode)
	}
}

// A token of one zone cannot loosen the policy under which an operator views its pages, whether by
// a room, by a preview without a room, or by the dashboard.
func TestZoneTokenCannotLoosenAPreview(t *testing.T) {
	p := run(t, "zones:\n  - {name: tea.example, origin: ORIGIN}\n"+anyHost)
	b := p.boss("write:zone/tea.example")
	const rooms = "/client/v4/zones/tea.example/waiting_rooms"
	room := func(policy string) string {
		return strings.Replace(teaRoom, "{", `{"custom_page_html":"<script>1</script>",`+
			`"headgate":{"page":{"content_security_policy":"`+policy+`"}},`, 1)
	}
	for _, policy := range []string{"sandbox allow-scripts allow-same-origin",
		"img-src *, sAndbOx allow-same-origin", "frame-ancestors *", "report-uri //x", "report-to x"} {
		a := b.ask("POST", rooms, room(policy))
		if a.StatusCode != 400 || len(a.Errors) != 1 ||
			a.Errors[0].Source.Pointer != "/headgate/page/content_security_policy" {
			t.Errorf("%s: %s", policy, a.text)
		}
	}
	if a := b.ask("POST", rooms, room("default-src * 'unsafe-inline'")); a.StatusCode != 200 {
		t.Fatal(a.text)
	}
	made := b.ask("POST", rooms+"/preview", `{"custom_html":"<script>1</script>"}`)
	var shown struct {
		URL string `json:"preview_url"`
	}
	if err := json.Unmarshal(made.Result, &shown); err != nil {
		t.Fatal(err, made.text)
	}
	for _, url := range []string{shown.URL, p.operators + "/v1/rooms/tea/preview",
		p.operators + "/dashboard/api/v1/rooms/tea/preview"} {
		r := get(t, url, "")
		policies := r.Header.Values("Content-Security-Policy")
		if r.StatusCode != 200 || !strings.HasPrefix(policies[0], "sandbox allow-scripts; ") ||
			strings.Count(strings.Join(policies, ","), "sandbox") != 1 ||
			strings.Contains(strings.Join(policies, ","), "allow-same-origin") ||
			r.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %s %q", url, r.Status, policies)
		}
	}
}

// TestPreviewHasTheMessage checks that a preview shows the message of the room, or of its event,
// unless the query sets another.
func TestPreviewHasTheMessage(t *testing.T) {
	p := run(t, "rooms:\n  - name: shop\n    origin: ORIGIN\n    total_active_users: 1\n"+
		"    new_users_per_minute: 1\n    message: Of the file\n    events:\n"+
		"      - {name: fair, start: 2026-12-01T10:00:00Z, end: 2026-12-01T12:00:00Z, message: Fair prices}\n"+
		"      - {name: mute, start: 2026-12-01T10:00:00Z, end: 2026-12-01T12:00:00Z}\n")
	p.change("shop", map[string]string{"message": "Back at noon"})
	for query, want := range map[string]string{
		"":                               "Back at noon",
		"?event_name=fair":               "Back at noon",
		"?event=started&event_name=mute": "Back at noon",
		"?event=started&event_name=fair": "Fair prices",
		"?event=started&event_name=fair&message=Hello": "Hello",
	} {
		r := get(t, p.operators+"/v1/rooms/shop/preview"+query, "")
		if !strings.Contains(r.body, ">"+want+"<") {
			t.Errorf("of %q there is no %q in %s", query, want, r.body)
		}
	}
}

// TestCheckFilesOfPages checks that an invalid page is reported as a fault of its file before the
// start.
func TestCheckFilesOfPages(t *testing.T) {
	dir := t.TempDir()
	cfg, err := config.Parse(filepath.Join(dir, "headgate.yaml"), []byte(ownPageRoom))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(config.Faults(CheckFiles(cfg))); n != 3 {
		t.Errorf("%d faults of three files that are not there", n)
	}
	if err := os.WriteFile(filepath.Join(dir, "page.html"), []byte("\n{{x}}{{y}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	faults := config.Faults(CheckFiles(cfg))
	if len(faults) != 4 || faults[0].Line != 2 {
		t.Errorf("faults %v", faults)
	}
	if _, err := Open(t.Context(), cfg, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("headgate starts with a page that it cannot show")
	}
}

// written is a log that may be read while it is written.
type written struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *written) lines(with string) (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range strings.Lines(w.b.String()) {
		if strings.Contains(line, with) {
			all = append(all, line)
		}
	}
	return all
}

// When all visitors get 502, the log has the cause, with the request number that the visitor was
// shown, and only once.
func TestTheLogSaysWhyTheOriginDidNotAnswer(t *testing.T) {
	resets := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	defer resets.Close()
	tls := httptest.NewTLSServer(http.NotFoundHandler()) // signed by an unknown CA
	tls.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	defer tls.Close()
	closed := loopback.Free(t)
	for origin, want := range map[string]string{
		resets.URL:         `error=EOF`,
		tls.URL:            `certificate signed by unknown authority`,
		"http://" + closed: `connection refused`,
	} {
		var log written
		visitors := startLogged(t, origin, &log)
		first := get(t, visitors+"/", "")
		for range 3 {
			get(t, visitors+"/", first.cookie)
		}
		lines := log.lines("origin did not answer")
		if first.StatusCode != 502 || len(lines) != 1 || !strings.Contains(lines[0], want) ||
			!strings.Contains(lines[0], "request="+first.Header.Get("X-Request-Id")+" ") ||
			!strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "room=shop") {
			t.Errorf("%s: %d, logged %q, want one line with %q", origin, first.StatusCode, lines, want)
		}
	}
}

func startLogged(t *testing.T, origin string, log *written) (visitors string) {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte("listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\n"+
		"data: "+t.TempDir()+"\nrooms:\n"+strings.ReplaceAll(oneRoom, "ORIGIN", origin)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), cfg, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(running.Wait) // t.Context has ended by then
	operators := "http://" + s.AdminAddr().String()
	eventually(t, "ready", func() bool { return get(t, operators+"/readyz", "").StatusCode == 200 })
	return "http://" + s.Addr().String()
}

func TestBrokenAnswersAreToldOnceAMinute(t *testing.T) {
	var b brokenAnswers
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		after time.Duration
		code  int
		more  int
		due   bool
	}{
		{0, 502, 0, true},
		{0, 502, 0, false},
		{time.Second, 504, 0, true}, // another code has a line of its own
		{59*time.Second - 1, 502, 0, false},
		{1, 502, 2, true},
		{time.Minute, 502, 0, true},
		{0, 503, 0, false}, // the session has ended
		{0, 413, 0, false}, // caused by the client
		{0, 504, 0, true},
	} {
		at = at.Add(step.after)
		if more, due := b.due(step.code, at); more != step.more || due != step.due {
			t.Errorf("step %d: %d more, due %v; want %d, %v", i, more, due, step.more, step.due)
		}
	}
}

func TestWhatTheOriginWroteIsCutInTheLog(t *testing.T) {
	long := &proxy.Error{Status: 502, Err: errors.New(strings.Repeat("é", mostReason))}
	if got := shortly(long); len(got) > mostReason+len("…") || !strings.HasSuffix(got, "é…") {
		t.Errorf("%d bytes, ends %q", len(got), got[len(got)-8:])
	}
	if got := shortly(&proxy.Error{Status: 502, Err: errors.New("EOF")}); got != "EOF" {
		t.Errorf("%q", got)
	}
}

const (
	limitsOfCORS = "origin: ORIGIN, total_active_users: 1, new_users_per_minute: 100"
	someCORS     = "cors: {origins: [https://app.example, 'https://*.shop.example'], methods: [GET, PUT], " +
		"headers: [content-type, x-member], max_age: 10m, credentials: true}, "
)

// rawBytes sends the bytes of one request and returns those of the answer, without its Date.
func rawBytes(t *testing.T, url, text string) string {
	t.Helper()
	c, _ := dial(t, url)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(all), "Date: ")
	if _, after, cut := strings.Cut(rest, "\r\n"); ok && cut {
		return before + after
	}
	return string(all)
}

// Preflights that a room answers itself, in any state.
func TestPreflightsAnsweredHere(t *testing.T) {
	var asked atomic.Int64
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer origin.Close()
	dead := httptest.NewServer(nil)
	dead.Close()
	states := map[string]string{"full": "", "shut": "closed: true, ",
		"soon": "opens_at: 2100-01-01T00:00:00Z, ",
		"off":  "suspended: true, ", "shadow": "shadow: true, ",
		"rule":   "rules: [{action: deny, expression: 'true'}], ",
		"passed": "exclude: {methods: [OPTIONS]}, ", "down": ""}
	var rooms strings.Builder
	rooms.WriteString("  - {name: plain, path: /plain, " + limitsOfCORS + "}\n")
	for name, state := range states {
		room := "  - {name: " + name + ", path: /" + name + ", " + state + someCORS + limitsOfCORS + "}\n"
		if name == "down" {
			room = strings.Replace(room, "ORIGIN", dead.URL, 1)
		}
		rooms.WriteString(room)
	}
	visitors, operators, _ := start(t, origin.URL, rooms.String())
	get(t, visitors+"/full", "")
	asked.Store(0)
	const (
		vary    = "Vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers\r\nConnection: close\r\n\r\n"
		refused = "HTTP/1.1 204 No Content\r\n" + vary
		allowed = "HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Credentials: true\r\n" +
			"Access-Control-Allow-Headers: Content-Type, X-Member\r\nAccess-Control-Allow-Methods: GET, PUT\r\n" +
			"Access-Control-Allow-Origin: https://app.example\r\nAccess-Control-Max-Age: 600\r\n" + vary
	)
	for room := range states {
		for _, x := range []struct{ what, origin, method, headers, want string }{
			{"allowed", "https://app.example", "PUT", "content-type,x-member", allowed},
			{"another origin", "https://evil.example", "PUT", "content-type,x-member", refused},
			{"another method", "https://app.example", "DELETE", "x-member", refused},
			{"another header", "https://app.example", "PUT", "x-member,x-other", refused},
			{"null", "null", "PUT", "x-member", refused},
		} {
			got := rawBytes(t, visitors, "OPTIONS /"+room+"/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+
				"Cookie: a=b\r\nOrigin: "+x.origin+"\r\nAccess-Control-Request-Method: "+x.method+
				"\r\nAccess-Control-Request-Headers: "+x.headers+"\r\nAccess-Control-Request-Private-Network: true\r\n\r\n")
			if got != x.want {
				t.Errorf("%s, room %s: %q, want %q", x.what, room, got, x.want)
			}
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the origin was asked %d times", n)
	}
	if got := rawBytes(t, visitors, "OPTIONS /full HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1\r\n"+
		"Origin: https://app.example\r\nAccess-Control-Request-Method: PUT\r\n\r\nx"); !strings.Contains(got, " 503 ") {
		t.Errorf("with a body: %q", got)
	}
	rawBytes(t, visitors, "OPTIONS /plain HTTP/1.1\r\nHost: x\r\nConnection: close\r\nOrigin: https://app.example\r\n"+
		"Access-Control-Request-Method: PUT\r\n\r\n")
	if n := asked.Load(); n != 1 {
		t.Errorf("without cors: the origin was asked %d times, want once", n)
	}
	var m struct{ Rooms []status.Room }
	err := json.Unmarshal([]byte(get(t, operators+"/v1/rooms", "").body), &m)
	if err != nil || len(m.Rooms) != len(states)+1 {
		t.Fatal(err, len(m.Rooms))
	}
	for _, s := range m.Rooms {
		if inside := s.ActiveUsers == 1; inside != (s.Name == "full") || s.WaitingUsers != 0 {
			t.Errorf("room %s: %d inside, %d wait", s.Name, s.ActiveUsers, s.WaitingUsers)
		}
	}
}

// If the readings of a path belong to several rooms, one of them cannot allow what reaches another.
func TestPreflightsOfSeveralRoomsAreTheOrigins(t *testing.T) {
	var asked atomic.Int64
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, "  - {name: a, path: /a, paths: as_they_come, "+someCORS+limitsOfCORS+"}\n"+
		"  - {name: ab, path: /a/b, paths: as_they_come, "+limitsOfCORS+"}\n"+
		"  - {name: c, path: /a/b/c, paths: as_they_come, "+someCORS+limitsOfCORS+"}\n")
	for _, path := range []string{"/a/b%2fc", "/a%2fb"} {
		asked.Store(0)
		got := rawBytes(t, visitors, "OPTIONS "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+
			"Origin: https://app.example\r\nAccess-Control-Request-Method: PUT\r\n\r\n")
		if asked.Load() != 1 || strings.Contains(got, "Access-Control-") {
			t.Errorf("%s: asked %d times, %q", path, asked.Load(), got)
		}
	}
}

// Pages of the listed origins, and no others, can read headgate's own answers.
func TestWaitingAnswersAreShared(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("says") {
		case "own":
			w.Header().Set("Access-Control-Allow-Origin", "https://origins.example")
			w.Header().Add("Vary", "Origin")
			w.Header().Add("Vary", "X-Own")
		case "nothing":
		case "hang up":
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, "inside")
	}))
	defer origin.Close()
	file := strings.ReplaceAll("  - {name: full, path: /full, "+someCORS+limitsOfCORS+"}\n"+
		"  - {name: open, path: /open, exclude: {paths: [/open/*]}, "+someCORS+limitsOfCORS+"}\n"+
		"  - {name: limited, path: /limited, limits: [each], exclude: {paths: [/limited*]}, "+someCORS+limitsOfCORS+"}\n"+
		"  - {name: denied, path: /denied, rules: [{action: deny, expression: 'true'}], "+someCORS+limitsOfCORS+"}\n"+
		"  - {name: any, path: /any, closed: true, cors: {origins: ['*']}, "+limitsOfCORS+"}\n"+
		"  - {name: plain, path: /plain, closed: true, "+limitsOfCORS+"}\n"+
		"limits:\n  - {name: each, algorithm: sliding_log, amount: 1, window: 1h}\n", "ORIGIN", origin.URL)
	visitors, _, _ := start(t, origin.URL, file)
	get(t, visitors+"/full", "")
	get(t, visitors+"/limited", "")
	ask := func(path, from string) (*http.Response, string) {
		t.Helper()
		text := "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: application/json\r\n"
		if from != "" {
			text += "Origin: " + from + "\r\n"
		}
		if strings.HasSuffix(path, "#poll") {
			text = strings.Replace(text, "#poll", "", 1) + "Headgate-Poll: 1\r\n"
		}
		res := askRaw(t, visitors, text+"\r\n")
		body, err := io.ReadAll(res.Body)
		if err != nil && path != "/open/?says=hang%20up" {
			t.Fatal(err)
		}
		return res, string(body)
	}
	const exposed = "Headgate-State, RateLimit, RateLimit-Limit, RateLimit-Policy, RateLimit-Remaining, " +
		"RateLimit-Reset, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-Request-Id"
	for _, x := range []struct {
		path   string
		status int
		has    string
	}{
		{"/full", 503, `"cfWaitingRoom"`}, {"/full#poll", 200, `"cfWaitingRoom"`},
		{"/full/.headgate/served", 200, `"served"`}, {"/limited", 429, "quota-exceeded"},
		{"/denied", 403, ""}, {"/open/?says=hang%20up", 502, ""},
	} {
		res, body := ask(x.path, "https://a.shop.example")
		h := res.Header
		if res.StatusCode != x.status || !strings.Contains(body, x.has) {
			t.Errorf("%s: %s %s", x.path, res.Status, body)
		}
		if from := h["Access-Control-Allow-Origin"]; len(from) != 1 || from[0] != "https://a.shop.example" ||
			h.Get("Access-Control-Allow-Credentials") != "true" ||
			h.Get("Access-Control-Expose-Headers") != exposed ||
			h.Get("Cache-Control") != "no-store" && !strings.Contains(listed(h["Vary"]), "Origin") {
			t.Errorf("%s: %v", x.path, res.Header)
		}
		for _, from := range []string{"https://evil.example", "null", ""} {
			res, _ := ask(x.path, from)
			if got := corsOf(res.Header); got != "" {
				t.Errorf("%s for %q: %s", x.path, from, got)
			}
			if v := listed(res.Header["Vary"]); x.status == 200 && !strings.Contains(v, "Origin") {
				t.Errorf("%s for %q: a cache could hand it to others: Vary %s", x.path, from, v)
			}
		}
	}
	if res, _ := ask("/any", "null"); corsOf(res.Header) !=
		"Access-Control-Allow-Origin: *; Access-Control-Expose-Headers: "+exposed+"; " {
		t.Error("any:", res.Header)
	}
	if res, _ := ask("/plain", "https://app.example"); corsOf(res.Header) != "" {
		t.Error("without cors:", res.Header)
	}
	for says, want := range map[string]string{"nothing": "|",
		"own": "Access-Control-Allow-Origin: https://origins.example; |Origin,X-Own"} {
		res, body := ask("/open/?says="+says, "https://app.example")
		if got := corsOf(res.Header) + "|" + listed(res.Header["Vary"]); got != want || body != "inside" {
			t.Errorf("the origin says %s: %s, want %s", says, got, want)
		}
	}
}

func listed(lines []string) string { return strings.Join(lines, ",") }

// corsOf returns the CORS headers, sorted.
func corsOf(h http.Header) (all string) {
	for _, name := range []string{"Allow-Credentials", "Allow-Headers", "Allow-Methods", "Allow-Origin",
		"Expose-Headers", "Max-Age"} {
		for _, v := range h["Access-Control-"+name] {
			all += "Access-Control-" + name + ": " + v + "; "
		}
	}
	return all
}
