package api_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const holding = "limits:\n  - {name: api, algorithm: sliding_log, amount: 5, window: 1m, key: [holder]}\n" +
	"plans: {holders: {}, amounts: {pro: {api: 50}, plus: {api: 10}}}\n"

type holder struct {
	ID, Name, Plan, Note, Key string
	Created                   string  `json:"created_at"`
	Revoked                   *string `json:"revoked_at"`
	OldKey                    *string `json:"old_key_until"`
}

func (s *site) holder(r *reply, status int) (h holder) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(r.body), &h); err != nil || r.StatusCode != status {
		s.t.Errorf("%s %s, want %d", r.Status, r.body, status)
	}
	return h
}

func TestHoldersOfTheAPI(t *testing.T) {
	s := openWith(t, holding)
	token := s.token("holders")
	const kind = "Content-Type: application/json"
	ada := s.holder(s.do("POST", "/v1/holders", `{"name": "Ada & Co", "plan": "pro", "note": "invoice 17"}`, token, kind), 201)
	if ada.Name != "Ada & Co" || ada.Plan != "pro" || ada.Note != "invoice 17" || !strings.HasPrefix(ada.Key, "hgk_"+ada.ID+"_") ||
		ada.Revoked != nil || ada.OldKey != nil {
		t.Errorf("%+v", ada)
	}
	one := "/v1/holders/" + ada.ID
	if h := s.holder(s.do("GET", one, "", s.read), 200); h.Key != "" || h.Name != ada.Name || h.Created != ada.Created {
		t.Errorf("%+v", h)
	}
	seen := "If-Match: " + s.do("GET", one, "", s.read).Header.Get("ETag")
	for _, x := range [][3]string{{"PATCH", "", `{"plan": "pro"}`}, {"DELETE"}, {"POST", "/rotate"},
		{"POST", "/revoke"}} {
		for _, tag := range []string{`"other"`, `""`, `W/""`, `"`, `*, "other"`} {
			r := s.do(x[0], one+x[1], x[2], token, "If-Match: "+tag)
			if r.StatusCode != 412 || r.problem.Code != "changed" {
				t.Fatalf("%s%s of the version %s: %s %s", x[0], x[1], tag, r.Status, r.body)
			}
		}
	}
	r := s.do("PATCH", one, `{"note": "invoice 18"}`, token, seen)
	if r.StatusCode != 200 || "If-Match: "+r.Header.Get("ETag") == seen {
		t.Errorf("%s %v", r.body, r.Header)
	}
	if r := s.do("PATCH", one, `{"note": "invoice 19"}`, token, seen); r.StatusCode != 412 {
		t.Errorf("a version of before: %s", r.body)
	}
	if h := s.holder(s.do("PATCH", one, `{"plan": "plus", "note": ""}`, token), 200); h.Plan != "plus" || h.Note != "" || h.Name != ada.Name {
		t.Errorf("%+v", h)
	}
	if h := s.holder(s.do("PATCH", one, `{"plan": ""}`, token), 200); h.Plan != "" {
		t.Errorf("%+v", h)
	}
	next := s.holder(s.do("POST", one+"/rotate", "", token), 200)
	if next.Key == ada.Key || next.OldKey == nil {
		t.Errorf("%+v", next)
	}
	if h := s.holder(s.do("POST", one+"/rotate", `{"keep": "0s"}`, token), 200); h.OldKey != nil {
		t.Errorf("%+v", h)
	}
	if h := s.holder(s.do("POST", one+"/revoke", "", token), 200); h.Revoked == nil || h.Key != "" {
		t.Errorf("%+v", h)
	}
	if r := s.do("DELETE", one, "", token); r.StatusCode != 200 {
		t.Error(r.body)
	}
	if r := s.do("GET", one, "", s.read); r.StatusCode != 404 || r.problem.Code != "no_such_holder" {
		t.Error(r.body)
	}

	// No key is in a log, and what was done is.
	audit, err := os.ReadFile(filepath.Join(s.dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(audit), s.log.String()} {
		for _, key := range []string{ada.Key, next.Key} {
			if strings.Contains(text, key[17:40]) {
				t.Errorf("a key is in %s", text)
			}
		}
	}
	for _, want := range []string{`"what":"POST /v1/holders"`, `"after":{"holder":"` + ada.ID + `","name":"Ada \u0026 Co","note":"invoice 17","plan":"pro"}`,
		`"what":"POST /v1/holders/` + ada.ID + `/revoke"`, `"what":"DELETE /v1/holders/` + ada.ID + `"`} {
		if !strings.Contains(string(audit), want) {
			t.Errorf("the audit log lacks %s:\n%s", want, audit)
		}
	}
	s.do("GET", "/v1/holders/"+next.Key, "", s.read)
	if strings.Contains(s.log.String(), next.Key[17:40]) {
		t.Error("a key in a path is in the log")
	}
}

func TestManyHolders(t *testing.T) {
	s := openWith(t, holding)
	token := s.token("holders")
	const lines = "Content-Type: application/x-ndjson"
	var body strings.Builder
	for i := range 1200 {
		fmt.Fprintf(&body, "{\"name\": \"n%d\", \"plan\": \"pro\"}\n\n", i)
	}
	var got struct {
		Made, Failed int
		Holders      []holder
		Next         string
	}
	r := s.do("POST", "/v1/holders", body.String(), token, lines)
	err := json.Unmarshal([]byte(r.body), &got)
	if err != nil || got.Made != 1200 || got.Failed != 0 || r.StatusCode != 201 {
		t.Fatal(r.Status, err)
	}
	names := map[string]string{}
	for i, h := range got.Holders {
		if h.Name != fmt.Sprint("n", i) || h.Key == "" {
			t.Fatalf("line %d: %+v", i, h)
		}
		names[h.ID] = h.Name
	}
	pages := 0
	for after := ""; ; pages++ {
		got.Next, got.Holders = "", nil
		r := s.do("GET", "/v1/holders?count=500&after="+after, "", s.read)
		if err := json.Unmarshal([]byte(r.body), &got); err != nil || r.StatusCode != 200 {
			t.Fatal(r.Status, r.body)
		}
		for _, h := range got.Holders {
			if names[h.ID] != h.Name || h.Key != "" {
				t.Errorf("%+v", h)
			}
			delete(names, h.ID)
		}
		if after = got.Next; after == "" {
			break
		}
	}
	if len(names) > 0 || pages != 2 {
		t.Errorf("%d holders are not listed on %d pages", len(names), pages)
	}
	audit, err := os.ReadFile(filepath.Join(s.dir, "audit.log"))
	if err != nil || !strings.Contains(string(audit), `"created_at":"`) ||
		!strings.Contains(string(audit), `"made":"`) {
		t.Errorf("%v: the audit log does not say which holders were made: %s", err, audit)
	}

	// One invalid line, and nothing is made.
	r = s.do("POST", "/v1/holders", "{\"name\":\"a\"}\n{\"name\":\"b\",\"plan\":\"prp\"}\n{}\n{\"name\":7}", token, lines)
	if r.StatusCode != 422 || r.problem.Code != "broken_lines" || !strings.Contains(r.body, `"line":2`) ||
		!strings.Contains(r.body, `"line":3`) || !strings.Contains(r.body, `"line":4`) {
		t.Error(r.Status, r.body)
	}
	if r := s.do("GET", "/v1/holders?count=1000", "", s.read); strings.Contains(r.body, `"name":"a"`) {
		t.Error("a line was made")
	}
}

func TestBadHolders(t *testing.T) {
	s := openWith(t, holding)
	token := s.token("holders")
	const kind, lines = "Content-Type: application/json", "Content-Type: application/x-ndjson"
	h := s.holder(s.do("POST", "/v1/holders", `{"name": "ada"}`, token, kind), 201)
	one := "/v1/holders/" + h.ID
	for _, x := range []struct {
		method, path, body, kind string
		status                   int
		code                     string
	}{
		{"POST", "/v1/holders", `{}`, kind, 400, "invalid_body"},
		{"POST", "/v1/holders", `[]`, kind, 400, "invalid_body"},
		{"POST", "/v1/holders", `{"name":"a","name":"b"}`, kind, 400, "invalid_body"},
		{"POST", "/v1/holders", `{"name":"a"} {}`, kind, 400, "invalid_body"},
		{"POST", "/v1/holders", `{"plan":"pro"}`, kind, 422, "invalid_holder"},
		{"POST", "/v1/holders", `{"name":7}`, kind, 422, "invalid_holder"},
		{"POST", "/v1/holders", `{"name":"a","key":"x"}`, kind, 422, "invalid_holder"},
		{"POST", "/v1/holders", `{"name":"a","plan":"gold"}`, kind, 422, "invalid_holder"},
		{"POST", "/v1/holders", `{"name":"` + h.Key + `"}`, kind, 422, "invalid_holder"},
		{"POST", "/v1/holders", `{"name":"a","plan":"` + h.Key + `"}`, kind, 422, "invalid_holder"},
		{"POST", "/v1/holders", `{"name":"a","` + h.Key + `":"x"}`, kind, 422, "invalid_holder"},
		{"POST", "/v1/holders", `{"name":"a","plan":"` + h.Key + `"}`, lines, 422, "broken_lines"},
		{"POST", "/v1/holders", `{"name":"` + strings.Repeat("a", 65) + `"}`, kind, 422, "invalid_holder"},
		{"POST", "/v1/holders", `{"name":"` + strings.Repeat("a", 5000) + `"}`, kind, 413, "body_too_large"},
		{"POST", "/v1/holders", `{"name":"a"}`, "Content-Type: text/plain", 415, "unknown_format"},
		{"POST", "/v1/holders?x=1", `{"name":"a"}`, kind, 400, "invalid_query"},
		{"POST", "/v1/holders", "\n\n", lines, 400, "invalid_body"},
		{"POST", "/v1/holders", strings.Repeat("{\"name\":\"a\"}\n", 5001), lines, 413, "body_too_large"},
		{"POST", "/v1/holders", strings.Repeat("\n", 10_002), lines, 413, "body_too_large"},
		{"POST", "/v1/holders", `{"name":"` + strings.Repeat("a", 5000) + "\"}\n", lines, 422, "broken_lines"},
		{"PATCH", one, `{"id":"x"}`, kind, 422, "invalid_holder"},
		{"PATCH", one, `{"name":""}`, kind, 422, "invalid_holder"},
		{"PATCH", "/v1/holders/aaaaaaaaaaaa", `{"name":"x"}`, kind, 404, "no_such_holder"},
		{"PATCH", "/v1/holders/x", `{"name":"x"}`, kind, 404, "no_such_holder"},
		{"DELETE", "/v1/holders/aaaaaaaaaaaa", "", kind, 404, "no_such_holder"},
		{"POST", one + "/rotate", `{"keep":"-1s"}`, kind, 422, "invalid_change"},
		{"POST", one + "/rotate", `{"keep":"721h"}`, kind, 422, "invalid_change"},
		{"POST", one + "/rotate", `{"keep":"1h","x":"y"}`, kind, 422, "invalid_change"},
		{"POST", one + "/rotate", `{"x":"1h"}`, kind, 422, "invalid_change"},
		{"GET", "/v1/holders?count=0", "", kind, 400, "invalid_query"},
		{"GET", "/v1/holders?count=1001", "", kind, 400, "invalid_query"},
		{"GET", "/v1/holders?after=x", "", kind, 400, "invalid_query"},
	} {
		send := token
		if x.method == "GET" {
			send = s.read
		}
		r := s.do(x.method, x.path, x.body, send, x.kind)
		if r.StatusCode != x.status || r.problem.Code != x.code {
			t.Errorf("%s %s %.60s: %s %s, want %d %s", x.method, x.path, x.body, r.Status, r.body, x.status, x.code)
		}
	}
	if got := s.holder(s.do("GET", one, "", s.read), 200); got.Name != "ada" || got.OldKey != nil {
		t.Errorf("%+v", got)
	}
	audit, err := os.ReadFile(filepath.Join(s.dir, "audit.log"))
	if err != nil || strings.Contains(string(audit)+s.log.String(), h.Key[17:27]) {
		t.Errorf("a key that was sent as a text is in a log: %v", err)
	}
	off := open(t)
	for _, x := range [][2]string{{"GET", "/v1/holders"}, {"POST", "/v1/holders"}, {"DELETE", one}} {
		if r := off.do(x[0], x[1], `{"name":"a"}`, off.write, kind); r.StatusCode != 409 || r.problem.Code != "no_holders" {
			t.Errorf("%v: %s", x, r.body)
		}
	}
}

// A gateway that has only the key of a caller asks with it: the holder is counted under its plan, and a key
// that does not count is no call.
func TestALimitIsCheckedByTheKeyOfAHolder(t *testing.T) {
	s := openWith(t, holding)
	token := s.token("holders")
	const kind = "Content-Type: application/json"
	ada := s.holder(s.do("POST", "/v1/holders", `{"name": "Ada", "plan": "pro"}`, token, kind), 201)
	by := `{"limit": "api", "holder_key": "` + ada.Key + `"}`
	for path, body := range map[string]string{"check": by, "reserve": by, "check?all=true": "[" + by + "]"} {
		r := s.do("POST", "/v1/limits/"+path, body, s.read)
		if r.StatusCode != 200 || !strings.Contains(r.body, `"limit":50`) ||
			!strings.Contains(r.body, `"holder":"`+ada.ID+`","plan":"pro"`) {
			t.Errorf("%s: %s", path, r.body)
		}
	}
	look := `{"limit": "api", "key": "` + ada.ID + `", "plan": "pro", "cost": 0}`
	r := s.do("POST", "/v1/limits/check", look, s.read)
	if !strings.Contains(r.body, `"remaining":47`) {
		t.Errorf("three calls of the holder: %s", r.body)
	}
	s.do("POST", "/v1/holders/"+ada.ID+"/revoke", "", token)
	for body, want := range map[string]int{
		by: 403, `{"limit": "api", "holder_key": ""}`: 403, `{"limit": "api", "holder_key": "hgk_x"}`: 403,
		`{"limit": "api", "holder_key": 1}`:                                422,
		`{"limit": "api", "holder_key": "` + ada.Key + `", "key": "bob"}`:  422,
		`{"limit": "api", "holder_key": "` + ada.Key + `", "plan": "pro"}`: 422,
	} {
		r := s.send("POST", "/v1/limits/check", body, "Authorization: Bearer "+s.read)
		if r.StatusCode != want || strings.Contains(r.body, ada.Key[17:40]) {
			t.Errorf("%s: %s, want %d", body, r.body, want)
		}
	}
	if strings.Contains(s.log.String(), ada.Key[17:40]) {
		t.Error("a key is in the log")
	}
}
