package manage

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const twoLimits = oneRoom + `limits:
  - {name: api, algorithm: sliding_log, amount: 5, window: 1m}
  - {name: all, algorithm: sliding_log, amount: 9, window: 1m}
`

// full is a room with all members that the first records did not have.
var full = `{"name":"full","host":"Shop.Example.com","path":"/*/buy/","total_active_users":3,
	"new_users_per_minute":2,"cookie_suffix":"abc","custom_page_html":"<p>{{waitTime}}</p>",
	"additional_routes":[{"host":"PAY.example.com"},{"host":"shop.example.com","path":"/sale-*"}],
	"headgate":{"path_case_sensitive":true,"paths":"as_they_come","fail_open_after_seconds":30,
	"exclude":{"paths":["/hooks/","/hooks/"],"methods":["PURGE"],"cidrs":["192.0.2.7"],"headers":["x-probe: 1"],
		"upgrade":true,"max_in_flight":7,"max_in_flight_per_address":3},
	"cors":{"origins":["https://App.example:443","https://*.shop.example"],"methods":["PUT"],"headers":["x-member"],
		"max_age_seconds":600,"credentials":true},
	"limits":["api","all"],"challenge":{"kind":"Work","on":"Claim"},"pass_sharing":{"networks":5,"action":"WAIT"},"bind":"header:x-member",
	"checkout":{"pass":true,"grace_paths":["/pay/*"],"grace_seconds":60,"warn_seconds":30},
	"page":{"content_security_policy":"default-src 'self'","translations":{"de-DE":"<p>{{waitTime}} Min</p>"},
		"assets":[{"name":"img/logo.svg","base64":"` + svg + `"},{"name":"a.css","base64":"cHt9"}]}}}`

var svg = base64.StdEncoding.EncodeToString([]byte("<svg/>"))

func TestOwnMembers(t *testing.T) {
	s := newShelf(t, twoLimits)
	r := s.make(full)
	want := RoomExtensions{PathCaseSensitive: true, Paths: "as_they_come", FailOpenAfterSeconds: 30,
		Exclude: Exclude{Defaults: true, Paths: []string{"/hooks/"}, Methods: []string{"PURGE"},
			CIDRs: []string{"192.0.2.7/32"}, Headers: []string{"X-Probe: 1"},
			Upgrade: true, MaxInFlight: 7, MaxPerAddr: 3},
		CORS: CORS{[]string{"https://app.example", "https://*.shop.example"}, []string{"PUT"},
			[]string{"X-Member"}, 600, true},
		Limits: []string{"api", "all"},
		Checkout: Checkout{Pass: true, GracePaths: []string{"/pay/*"}, GraceSeconds: 60,
			WarnSeconds: 30},
		Page: Page{Policy: "default-src 'self'",
			Translations: map[string]string{"de-DE": "<p>{{waitTime}} Min</p>"},
			Assets:       []Asset{{"a.css", "cHt9"}, {"img/logo.svg", svg}}},
		Challenge: Challenge{"work", "claim"}, PassSharing: PassSharing{5, "wait"}, Bind: "header:X-Member"}
	same := func(what string, got *RoomExtensions, want RoomExtensions) {
		t.Helper()
		g := RoomExtensions{PathCaseSensitive: got.PathCaseSensitive, Paths: got.Paths,
			FailOpenAfterSeconds: got.FailOpenAfterSeconds,
			Exclude:              got.Exclude, CORS: got.CORS, Limits: got.Limits, Checkout: got.Checkout,
			Page:        got.Page,
			Challenge:   got.Challenge,
			PassSharing: got.PassSharing, Bind: got.Bind}
		if d := cmp.Diff(want, g); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
	same("written", &r.Own, want)
	routes := []Route{{"pay.example.com", "/"}, {"shop.example.com", "/sale-*"}}
	if r.Host != "shop.example.com" || r.Path != "/*/buy" || !slices.Equal(r.AdditionalRoutes, routes) {
		t.Error(r.Host, r.Path, r.AdditionalRoutes)
	}
	read := func() *Room {
		t.Helper()
		res, err := s.open().Read(&Query{What: Rooms, Zone: DefaultZone, Room: r.ID})
		if err != nil {
			t.Fatal(err)
		}
		return res.Value.(*Room)
	}
	if d := cmp.Diff(r, read()); d != "" {
		t.Error("read back:", d)
	}
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if res := s.do(&Op{What: Rooms, Verb: Replace, Room: r.ID, Body: body}); res.Change != nil {
		t.Error("the same again is a change")
	}
	edit := func(verb, body string) *Room {
		return s.do(&Op{What: Rooms, Verb: verb, Room: r.ID, Body: []byte(body)}).Value.(*Room)
	}
	got := edit(Edit, `{"headgate":{"checkout":{"warn_seconds":0},"exclude":{"defaults":false},
		"page":{"assets":[]},"cors":{"methods":null,"max_age_seconds":0}}}`)
	want.CORS.Methods, want.CORS.MaxAgeSeconds = []string{"GET", "HEAD", "POST"}, 0
	want.Checkout.WarnSeconds, want.Exclude.Defaults, want.Page.Assets = 0, false, []Asset{}
	same("merged", &got.Own, want)
	bare := `"name":"full","host":"shop.example.com","total_active_users":3,"new_users_per_minute":2`
	got = edit(Replace, `{`+bare+`,"custom_page_html":"<p></p>"}`)
	same("replaced without headgate", &got.Own, want)
	if len(got.AdditionalRoutes) > 0 || got.CookieSuffix != "" || got.Path != "/" {
		t.Error("a replacement keeps routes:", got)
	}
	got = edit(Replace, `{`+bare+`,"headgate":{}}`)
	same("replaced", &got.Own, RoomExtensions{Paths: "clean",
		Exclude: Exclude{Defaults: true, Paths: []string{}, Methods: []string{}, CIDRs: []string{},
			Headers: []string{}, MaxInFlight: 1000, MaxPerAddr: 100},
		CORS:   CORS{[]string{}, []string{"GET", "HEAD", "POST"}, []string{}, 5, false},
		Limits: []string{}, Challenge: Challenge{"none", "join"}, PassSharing: PassSharing{3, "mark"},
		Checkout: Checkout{GracePaths: []string{}, GraceSeconds: 600},
		Page:     Page{Translations: map[string]string{}, Assets: []Asset{}}})
	b := s.open()
	if _, err := b.Undo(b.History("", "full", 0, 1)[0].Version, &Op{By: "tester", At: s.now}); err != nil {
		t.Fatal(err)
	}
	if err := s.keep(b); err != nil {
		t.Fatal(err)
	}
	same("taken back", &read().Own, want)
}

// A room is opened with the stored values.
func TestOwnMembersAreInForce(t *testing.T) {
	s := newShelf(t, twoLimits)
	s.make(full)
	w := s.open().Wanted()[0]
	if w.Problem != "" {
		t.Fatal(w.Problem)
	}
	c := &w.Room
	if !slices.Equal(c.Exclude.Paths, []string{"/robots.txt", "/favicon.ico", "/.well-known/", "/hooks/"}) ||
		!slices.Equal(c.Exclude.Methods, []string{"PURGE"}) ||
		c.Exclude.CIDRs[0].String() != "192.0.2.7/32" || !slices.Equal(c.Limits, []string{"api", "all"}) ||
		!c.Exclude.Upgrade || c.Exclude.MaxInFlight != 7 || c.Exclude.MaxPerAddr != 3 ||
		c.CORS == nil || c.CORS.Origins[0] != "https://app.example" || c.CORS.MaxAge.Seconds() != 600 ||
		!c.PathCaseSensitive || c.Paths != "as_they_come" || c.FailOpenAfter.Seconds() != 30 ||
		!c.Checkout.Pass ||
		c.Checkout.Grace.Seconds() != 60 || c.Checkout.Warn.Seconds() != 30 ||
		c.Page.ContentSecurityPolicy != "default-src 'self'" || c.CookieDomain() != "example.com" {
		t.Errorf("%+v", c)
	}
	if w.Translations["de-DE"] != "<p>{{waitTime}} Min</p>" || string(w.Assets["img/logo.svg"]) != "<svg/>" ||
		w.Page != "<p>{{waitTime}}</p>" {
		t.Error(w.Translations, w.Assets, w.Page)
	}
	if _, ok := c.Places().Match("pay.example.com", "/x"); !ok {
		t.Error("no room at a further route")
	}
}

func TestFaultsOfOwnMembers(t *testing.T) {
	s := newShelf(t, twoLimits)
	s.make(full)
	big := base64.StdEncoding.EncodeToString(make([]byte, MaxPage+3))
	files := func(list string) string { return `"headgate":{"page":{"assets":[` + list + `]}}` }
	for _, x := range [][2]string{
		{`"additional_routes":[{"host":"b.example.com"}]`, "/cookie_suffix required"},
		{`"cookie_suffix":"a b"`, "/cookie_suffix invalid"},
		{`"cookie_suffix":"x","additional_routes":[{"host":"b.example.org"}]`,
			"/additional_routes/0/host inv"},
		{`"cookie_suffix":"x","additional_routes":[{"host":"b.example.com"},{}]`,
			"/additional_routes/1/host req"},
		{`"cookie_suffix":"x","additional_routes":[{"host":"o.example.com"}]`,
			"/additional_routes/0/path inv"},
		{`"cookie_suffix":"x","additional_routes":[{"host":"pay.example.com"}]`,
			"/additional_routes/0/path taken"},
		{`"cookie_suffix":"x","additional_routes":[{"host":"a.example","path":""}]`,
			"/additional_routes/0/path inv"},
		{`"path":"/a/*"`, "/path invalid"},
		{`"headgate":{"path_case_sensitive":"no"}`, "/headgate/path_case_sensitive wrong"},
		{`"headgate":{"paths":"dirty"}`, "/headgate/paths invalid"},
		{`"headgate":{"fail_open_after_seconds":-1}`, "/headgate/fail_open_after_seconds out"},
		{`"headgate":{"pass_sharing":{"networks":9}}`, "/headgate/pass_sharing/networks out"},
		{`"headgate":{"challenge":{"kind":"puzzle"}}`, "/headgate/challenge/kind inv"},
		{`"headgate":{"pass_sharing":{"action":"stop"}}`, "/headgate/pass_sharing/action inv"},
		{`"headgate":{"bind":"x-member"}`, "/headgate/bind inv"},
		{`"headgate":{"exclude":{"paths":"/x"}}`, "/headgate/exclude/paths wrong"},
		{`"headgate":{"exclude":{"paths":["/x","y"]}}`, "/headgate/exclude/paths/1 invalid"},
		{`"headgate":{"exclude":{"cidrs":["192.0.2.1/24"]}}`, "/headgate/exclude/cidrs/0 invalid"},
		{`"headgate":{"exclude":{"headers":["a b"]}}`, "/headgate/exclude/headers/0 invalid"},
		{`"headgate":{"cors":{"origins":["https://a.example","null"]}}`, "/headgate/cors/origins/1 inv"},
		{`"headgate":{"cors":{"origins":["*"],"credentials":true}}`, "/headgate/cors/origins inv"},
		{`"headgate":{"cors":{"methods":["PUT"]}}`, "/headgate/cors/origins inv"},
		{`"headgate":{"cors":{"origins":["*"],"headers":["x-*"]}}`, "/headgate/cors/headers/0 inv"},
		{`"headgate":{"cors":{"origins":["*"],"max_age_seconds":86401}}`, "/headgate/cors/max_age_seconds out"},
		{`"headgate":{"limits":["api","apj"]}`, "/headgate/limits/1 invalid"},
		{`"headgate":{"checkout":{"grace_paths":["x"]}}`, "/headgate/checkout/grace_paths/0 inv"},
		{`"headgate":{"checkout":{"grace":5}}`, "/headgate/checkout/grace unknown"},
		{`"headgate":{"page":{"content_security_policy":"ä"}}`, "/headgate/page/content_security_policy i"},
		{`"headgate":{"page":{"content_security_policy":"img-src *,SANDBOX allow-same-origin"}}`,
			"/headgate/page/content_security_policy i"},
		{`"headgate":{"page":{"translations":{"de-DE":"x"}}}`, "/headgate/page/translations conflicting"},
		{`"custom_page_html":"x","headgate":{"page":{"translations":{"de":"x"}}}`,
			"/headgate/page/translations/de unk"},
		{`"custom_page_html":"x","headgate":{"page":{"translations":{"de-DE":""}}}`,
			"/headgate/page/translations/de-DE inv"},
		{files(`{"name":"a.html","base64":"eA=="}`), "/headgate/page/assets/0/name invalid"},
		{files(`{"name":"../a.css","base64":"eA=="}`), "/headgate/page/assets/0/name invalid"},
		{files(`{"name":"a.css","base64":"e"}`), "/headgate/page/assets/0/base64 invalid"},
		{files(`{"name":"a.css","base64":""}`), "/headgate/page/assets/0/base64 invalid"},
		{files(`{"name":"a.css"}`), "/headgate/page/assets/0/base64 required"},
		{files(`{"name":"a.css","base64":"` + big + `"}`), "/headgate/page/assets/0/base64 out"},
		{`"headgate":{"limits":[` + strings.Repeat(`"api",`, mostItems) + `"api"]}`,
			"/headgate/limits too_many"},
		{files(asset("a") + `,` + asset("a")), "/headgate/page/assets/1/name taken"},
		{files(asset("b") + `,` + asset("a") + `,5`), "/headgate/page/assets/2 wrong_type"},
		{`"headgate":{"exclude":{"methods":["` + strings.Repeat("X", 65) + `"]}}`,
			"/headgate/exclude/methods/0 out_of"},
		{`"headgate":{"exclude":{"headers":[` + strings.Repeat(`"a",`, 100) + `5]}}`,
			"/headgate/exclude/headers too_many"},
	} {
		members, want := x[0], x[1]
		body := `{"name":"other","host":"o.example.com","total_active_users":1,"new_users_per_minute":1,` +
			members + `}`
		if strings.Contains(members, "a.example\"") {
			body = strings.Replace(body, "o.example.com", "b.example.com", 1)
		}
		_, err := s.try(&Op{What: Rooms, Verb: Create, Body: []byte(body)})
		f, _ := errors.AsType[Faults](err)
		if f == nil || !strings.HasPrefix(f[0].Pointer+" "+f[0].Code, want) || f[0].Hint == "" {
			if len(members) > 200 {
				members = members[:200]
			}
			t.Errorf("%s: %v, want %q", members, err, want)
		}
	}
	limited := strings.Replace(shop, "{", `{"headgate":{"limits":["api"]},`, 1)
	_, err := s.try(&Op{What: Rooms, Verb: Create, Fixed: true, Body: []byte(limited)})
	if err == nil || !strings.Contains(err.Error(), "/headgate/limits") {
		t.Error("a token of one zone takes of a limit of all:", err)
	}
}

func asset(name string) string { return `{"name":"` + name + `.css","base64":"eA=="}` }

// A room from before these members existed has their defaults, and they do not count as a change of
// it.
func TestRoomsOfBefore(t *testing.T) {
	s := newShelf(t, oneRoom)
	r := s.make(shop)
	var record map[string]any
	if err := json.Unmarshal(s.record, &record); err != nil {
		t.Fatal(err)
	}
	own := record["rooms"].([]any)[0].(map[string]any)["headgate"].(map[string]any)
	for _, name := range []string{"path_case_sensitive", "paths", "fail_open_after_seconds",
		"exclude", "cors", "limits", "checkout", "page", "challenge", "pass_sharing", "bind"} {
		if _, ok := own[name]; !ok {
			t.Fatal("not kept:", name)
		}
		delete(own, name)
	}
	var err error
	if s.record, err = json.Marshal(record); err != nil {
		t.Fatal(err)
	}
	res, err := s.open().Read(&Query{What: Rooms, Zone: DefaultZone, Room: r.ID})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(r, res.Value); d != "" {
		t.Error(d)
	}
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if res := s.do(&Op{What: Rooms, Verb: Replace, Room: r.ID, Body: body}); res.Change != nil {
		t.Error("what a room of before has by default is a change")
	}
}

// A room from before policies were checked stays in force and can be changed; the forbidden parts
// of its policy are removed.
func TestPolicyOfBeforeIsCleaned(t *testing.T) {
	s := newShelf(t, oneRoom)
	r := s.make(strings.Replace(shop, "{", `{"headgate":{"origin":"http://127.0.0.1:1",`+
		`"page":{"content_security_policy":"img-src *; style-src *"}},`, 1))
	s.record = []byte(strings.ReplaceAll(string(s.record), "img-src *; style-src *",
		"sandbox allow-scripts allow-same-origin; img-src *, report-uri //x"))
	if w := s.open().Wanted(); len(w) != 1 || w[0].Problem != "" ||
		w[0].Room.Page.ContentSecurityPolicy != "img-src *" {
		t.Errorf("%+v", w)
	}
	s.do(&Op{What: Rooms, Verb: Edit, Room: r.ID, Body: []byte(`{"description":"x"}`)})
	var kept struct {
		Rooms []struct {
			Own struct{ Page Page } `json:"headgate"`
		}
	}
	if err := json.Unmarshal(s.record, &kept); err != nil || kept.Rooms[0].Own.Page.Policy != "img-src *" {
		t.Errorf("%v: %s is kept", err, s.record)
	}
}

// Pages and files are stored as long as something refers to them.
func TestFilesAreForgotten(t *testing.T) {
	s := newShelf(t, twoLimits)
	r := s.make(full)
	keys := func() int {
		all, err := PagesOf(s.record)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if n := keys(); n != 4 {
		t.Errorf("%d pages of four", n)
	}
	s.do(&Op{What: Rooms, Verb: Edit, Room: r.ID, Body: []byte(`{"headgate":{"page":{"assets":[]}}}`)})
	if n := keys(); n != 4 {
		t.Errorf("%d pages: the history refers to all four", n)
	}
	for i := range mostHistory {
		body := `{"description":"` + strings.Repeat("x", i+1) + `"}`
		s.do(&Op{What: Rooms, Verb: Edit, Room: r.ID, Body: []byte(body)})
	}
	if n := keys(); n != 2 {
		t.Errorf("%d pages, and two are referred to", n)
	}
}
