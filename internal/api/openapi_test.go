package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/api"
)

// A schema is the part of JSON Schema that openapi.json uses.
type schema struct {
	Ref        string `json:"$ref"`
	AllOf      []*schema
	Type       any // a word, or a list with null in it
	Required   []string
	Properties map[string]*schema
	Items      *schema
	Enum       []any
	Pattern    string
	Format     string
	MaxLength  int
	Minimum    *int64
	Maximum    *int64
	ReadOnly   bool
}

type document struct {
	Paths map[string]map[string]struct {
		Parameters []struct {
			Name, In string
			Schema   *schema
		}
		RequestBody *struct {
			Content map[string]struct{ Schema *schema }
		}
		Responses map[string]struct{ Headers map[string]any }
	}
	Components struct{ Schemas map[string]*schema }
}

func readDocument(t *testing.T, s *site) *document {
	t.Helper()
	res := s.do("GET", "/v1/openapi.json", "")
	var d document
	if err := json.Unmarshal([]byte(res.body), &d); err != nil || res.StatusCode != 200 {
		t.Fatal(res.Status, err)
	}
	return &d
}

// flat returns a schema without references, and with the members that allOf adds.
func (d *document) flat(t *testing.T, s *schema) *schema {
	t.Helper()
	if s == nil {
		return &schema{}
	}
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		if d.Components.Schemas[name] == nil {
			t.Fatalf("openapi.json: nothing is called %s", s.Ref)
		}
		return d.flat(t, d.Components.Schemas[name])
	}
	if s.AllOf == nil {
		return s
	}
	all := *d.flat(t, s.AllOf[0])
	for _, x := range s.AllOf[1:] {
		all.Required = append(slices.Clone(all.Required), x.Required...)
	}
	return &all
}

func (s *schema) is(kind string) bool {
	if list, ok := s.Type.([]any); ok {
		return slices.Contains(list, any(kind))
	}
	return s.Type == kind
}

// Every route is in the document, and nothing else is.
func TestDocumentHasAllRoutes(t *testing.T) {
	s := open(t)
	d := readDocument(t, s)
	var have, want []string
	for path, methods := range d.Paths {
		for method := range methods {
			have = append(have, strings.ToUpper(method)+" "+path)
		}
	}
	for _, r := range api.Routes() {
		want = append(want, strings.ReplaceAll(r, "...", ""))
	}
	for _, r := range want {
		if !slices.Contains(have, r) {
			t.Errorf("openapi.json has not %s", r)
		}
	}
	for _, r := range have {
		if !slices.Contains(want, r) {
			t.Errorf("openapi.json has %s, and there is no such route", r)
		}
	}
}

// A route that supports If-Match is documented so, and an object with a version has it as its ETag.
func TestDocumentHasVersions(t *testing.T) {
	s := open(t)
	d, m := readDocument(t, s), s.make(t)
	settings := "/client/v4/zones/{zone}/waiting_rooms/settings"
	s.do("PUT", m.paths.Replace(settings), `{"search_engine_crawler_bypass":true}`, s.write)
	ask := func(method, path, match string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.admin+m.paths.Replace(path),
			strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.write)
		r.Header.Set("If-Match", match)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res
	}
	for path, methods := range d.Paths {
		for method, op := range methods {
			if !strings.HasPrefix(path, "/client/v4/") {
				continue
			}
			says := false
			for _, p := range op.Parameters {
				says = says || p.In == "header" && p.Name == "If-Match"
			}
			res := ask(strings.ToUpper(method), path, `"99999"`)
			if heeds := res.StatusCode == http.StatusPreconditionFailed; heeds != says {
				t.Errorf("%s %s: If-Match in openapi.json %v, answer %s", method, path, says, res.Status)
			}
			_, says = op.Responses["200"].Headers["ETag"]
			if has := res.Header.Get("ETag") != ""; method == "get" && has != says {
				t.Errorf("%s %s: ETag in openapi.json %v, answer %v", method, path, says, res.Header)
			}
		}
	}
}

// A made is a room with an event and a rule, and their paths.
type made struct{ paths *strings.Replacer }

func (s *site) make(t *testing.T) *made {
	t.Helper()
	const rooms = "/client/v4/zones/default/waiting_rooms"
	post := func(path, body string) map[string]any {
		t.Helper()
		res := s.do("POST", path, body, s.write)
		var got struct{ Result any }
		if err := json.Unmarshal([]byte(res.body), &got); err != nil || res.StatusCode != 200 {
			t.Fatal(res.Status, res.body)
		}
		if list, ok := got.Result.([]any); ok {
			got.Result = list[0]
		}
		return got.Result.(map[string]any)
	}
	room := post(rooms, `{"name":"made","host":"made.example","total_active_users":5,"new_users_per_minute":5,
		"headgate":{"origin":"http://127.0.0.1:1"}}`)["id"].(string)
	event := post(rooms+"/"+room+"/events", `{"name":"e","event_start_time":"2027-01-01T00:00:00Z",
		"event_end_time":"2027-01-02T00:00:00Z","suspended":true}`)["id"].(string)
	rule := post(rooms+"/"+room+"/rules", `{"action":"deny","expression":"ssl"}`)["id"].(string)
	return &made{strings.NewReplacer("{zone}", "default", "{room}", room, "{event}", event, "{rule}", rule,
		"{account}", "any", "{name}", "shop", "{limit}", "none", "{id}", "1", "{key}", "none",
		"{version}", "999")}
}

// Answers have exactly the members of the document.
func TestDocumentHasAllMembers(t *testing.T) {
	s := open(t)
	d, m := readDocument(t, s), s.make(t)
	one := "/client/v4/zones/{zone}/waiting_rooms/{room}"
	for path, name := range map[string]string{
		one: "Room", one + "/events/{event}": "Event", one + "/rules": "Rule",
		"/client/v4/zones/{zone}/waiting_rooms/settings": "Settings"} {
		var got struct{ Result any }
		res := s.do("GET", m.paths.Replace(path), "")
		if err := json.Unmarshal([]byte(res.body), &got); err != nil {
			t.Fatal(err)
		}
		if list, ok := got.Result.([]any); ok {
			got.Result = list[0]
		}
		d.sameMembers(t, name, d.Components.Schemas[name], got.Result.(map[string]any))
	}
}

func (d *document) sameMembers(t *testing.T, at string, s *schema, got map[string]any) {
	t.Helper()
	s = d.flat(t, s)
	have := slices.Sorted(maps.Keys(got))
	if want := slices.Sorted(maps.Keys(s.Properties)); !slices.Equal(have, want) {
		t.Errorf("%s: openapi.json has %q, the answer %q", at, want, have)
	}
	for name, v := range got {
		if inner, ok := v.(map[string]any); ok {
			d.sameMembers(t, at+"/"+name, s.Properties[name], inner)
		}
	}
}

// A mistake is an invalid value and its position.
type mistake struct {
	value any
	at    string
}

// badOf returns values that a schema rejects.
func (d *document) badOf(t *testing.T, s *schema) (all []mistake) {
	t.Helper()
	s = d.flat(t, s)
	add := func(values ...any) {
		for _, v := range values {
			all = append(all, mistake{v, ""})
		}
	}
	switch {
	case s.is("string"):
		add(5, true, []any{}, map[string]any{})
		if s.MaxLength > 0 {
			add(strings.Repeat("x", s.MaxLength+1))
		}
		if s.Pattern != "" {
			add("a b")
		}
		if s.Format == "date-time" {
			add("noon", "2026-12-01", "9999-01-01T00:00:00Z")
		}
	case s.is("integer"):
		add("5", true, 1.5, []any{})
		if s.Minimum != nil {
			add(*s.Minimum-1, *s.Maximum+1, -1e300)
		}
	case s.is("boolean"):
		add("true", 1, []any{})
	case s.is("array"):
		add(5, "x", map[string]any{})
		for _, b := range d.badOf(t, s.Items) {
			all = append(all, mistake{[]any{b.value}, "/0" + b.at})
		}
	case s.is("object"):
		add(5, "x", []any{})
		if s.Properties == nil {
			return all
		}
		good := d.good(t, s)
		with := func(name string, v any) map[string]any {
			o := maps.Clone(good)
			o[name] = v
			return o
		}
		all = append(all, mistake{with("no_such_member", 1), "/no_such_member"})
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			p := d.flat(t, s.Properties[name])
			if p.ReadOnly {
				continue
			}
			for _, b := range d.badOf(t, p) {
				all = append(all, mistake{with(name, b.value), "/" + name + b.at})
			}
		}
		for _, name := range s.Required {
			o := maps.Clone(good)
			delete(o, name)
			all = append(all, mistake{o, "/" + name}, mistake{with(name, nil), "/" + name})
		}
	}
	if s.Enum != nil {
		add("nonsense", 999)
	}
	return all
}

// good returns an object with only the required members of a schema.
func (d *document) good(t *testing.T, s *schema) map[string]any {
	o := map[string]any{}
	for _, name := range s.Required {
		p := d.flat(t, s.Properties[name])
		switch {
		case p.Enum != nil:
			o[name] = p.Enum[0]
		case p.Format == "date-time":
			o[name] = "2027-01-01T00:00:00Z"
		case name == "expression":
			o[name] = "ssl"
		case p.is("string"):
			o[name] = "fresh"
		default:
			o[name] = 7
		}
	}
	return o
}

// plain sends a request with the token that may do everything, and checks only the answer: mistakes
// in limit requests are not logged.
func (s *site) plain(method, path, body string) *reply {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.admin+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.write)
	res, err := http.DefaultClient.Do(r)
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

// Invalid input of every kind for every endpoint is rejected with its position, and never breaks
// anything.
func TestBadInput(t *testing.T) {
	s := open(t)
	d, m := readDocument(t, s), s.make(t)
	n := 0
	refused := func(method, path, body, at string, placed bool) {
		t.Helper()
		if n++; n%8 != 0 && testing.Short() {
			return // the same code each time: make all tries all
		}
		res := s.plain(method, m.paths.Replace(path), body)
		shown := body
		if len(shown) > 200 {
			shown = shown[:200] + "…"
		}
		if res.StatusCode < 400 || res.StatusCode > 499 {
			t.Errorf("%s %s %s: %s %s", method, path, shown, res.Status, res.body)
			return
		}
		if !placed {
			return
		}
		var got struct {
			Success bool
			Errors  []struct{ Source *struct{ Pointer string } }
		}
		if err := json.Unmarshal([]byte(res.body), &got); err != nil || got.Success || len(got.Errors) == 0 {
			t.Errorf("%s %s %s: %s", method, path, shown, res.body)
			return
		}
		for _, e := range got.Errors {
			if e.Source != nil && e.Source.Pointer == at {
				return
			}
		}
		t.Errorf("%s %s %s: no fault at %q: %s", method, path, shown, at, res.body)
	}
	for path, methods := range d.Paths {
		for method, op := range methods {
			method, placed := strings.ToUpper(method), strings.HasPrefix(path, "/client/v4/")
			for _, p := range op.Parameters {
				if p.In == "query" && p.Schema.is("integer") {
					for _, v := range []string{"x", "0", "-1", "1.5", "99999999999999999999"} {
						refused(method, path+"?"+p.Name+"="+v, "", "/"+p.Name, placed)
					}
				}
			}
			if op.RequestBody == nil {
				continue
			}
			for _, body := range []string{"", "{", "nonsense", `{"a":1,"a":2}`, "{} {}", "\xff",
				strings.Repeat("[", 100), `"text"`, "5", "null"} {
				refused(method, path, body, "", false)
			}
			if !placed {
				continue
			}
			for _, b := range d.badOf(t, op.RequestBody.Content["application/json"].Schema) {
				body, err := json.Marshal(b.value)
				if err != nil {
					t.Fatal(err)
				}
				refused(method, path, string(body), b.at, true)
			}
		}
	}
	if n < 1000 {
		t.Errorf("only %d cases", n)
	}
	for path, methods := range d.Paths { // objects that do not exist
		for method := range methods {
			missing := strings.NewReplacer("{zone}", "nowhere", "{room}", "none").Replace(path)
			if missing != path {
				res := s.plain(strings.ToUpper(method), m.paths.Replace(missing), "{}")
				if res.StatusCode != http.StatusNotFound {
					t.Errorf("%s %s: %s", method, missing, res.Status)
				}
			}
		}
	}
	t.Log(fmt.Sprint(n, " cases"))
}
