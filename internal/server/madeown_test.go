package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// teaWith is a room with more members.
func (p *process) teaWith(members string) string {
	if !strings.Contains(members, `"headgate":{`) {
		members += `,"headgate":{}`
	}
	own := `"headgate":{"origin":"` + p.origin + `",`
	members = strings.Replace(strings.Replace(members, `"headgate":{`, own, 1), `",}`, `"}`, 1)
	return strings.Replace(teaRoom, "{", "{"+members+",", 1)
}

// made makes a room, and wants it in force.
func (b *boss) made(body string) (id string) {
	b.t.Helper()
	a := b.ask("POST", ":", body)
	if r := a.room(b.t); !a.Success || !r.Own.InForce {
		b.t.Fatal(a.text)
	}
	return a.room(b.t).ID
}

// at asks for a path of a host.
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
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return &reply{Response: res, body: string(b)}
}

// What the file can say of a room, a room of the API does as well.
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

// A room of the API meets limits of the file, and is still there when the file has them no more.
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

// One line and one cookie for several hosts and paths.
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
