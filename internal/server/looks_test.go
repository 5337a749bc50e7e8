package server

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
)

// ownPageRoom has a page of its own beside the configuration; its origin is down.
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

// TestOwnPage: who waits gets the room's own page, in a language that they read, reloading by
// itself, with its files, while the origin is down.
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

// TestOwnPageIsReloaded: a page or a file that has changed is taken up; a faulty one is
// refused with its line, and the old one stays.
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

// TestOwnPageSaysWhatTheJSONSays: the variables are the keys of cfWaitingRoom.
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

// ask asks with the headers Accept and Accept-Language.
func ask(t *testing.T, url, accept, language string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	r.Header.Set("Accept-Language", language)
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{Response: res, body: string(b)}
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

// A token of one zone cannot loosen the policy under which an operator looks at its pages, by
// whatever way the page comes: by a room, by a preview of no room, or by the dashboard.
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

// TestPreviewHasTheMessage of the room, or of the event that is shown, unless another one is asked for.
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

// TestCheckFilesOfPages: a page that could not be shown is a fault of its file, before the start.
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
