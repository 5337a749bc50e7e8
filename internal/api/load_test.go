package api_test

import (
	"os"
	"strings"
	"testing"
)

// What an origin says about itself needs a scope of its own, which allows nothing else.
func TestLoadReports(t *testing.T) {
	s := openWith(t, "")
	auto := "  - {name: auto, path: /auto, origin: 'http://127.0.0.1:1', total_active_users: {auto: true, min: 5, max: 50}, " +
		"new_users_per_minute: 99}\n"
	text, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.file, append(text, auto...), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := s.do("POST", "/v1/reload", "", s.write); r.StatusCode != 200 {
		t.Fatal(r.body)
	}
	load, pass, narrow := s.token("load"), s.token("pass"), s.token("load:shop")
	const at = "/v1/rooms/auto/origin"
	for _, x := range []struct {
		path, token, body string
		code              int
		says              string
	}{
		{at, load, `{"load": 0.83}`, 200, `"taken":true`},
		{at, load, `{"load": 0}`, 200, `"taken":true`},
		{at, s.write, `{"load": 1.2}`, 200, `"taken":true`},
		{at, load, `{"answers": [{"route": "cart", "seconds": [0.1, 2], "failed": 1, "refused": 1}]}`, 200, "taken"},
		{at, pass, `{"load": 0.83}`, 403, "scope_missing"},
		{at, narrow, `{"load": 0.83}`, 403, "scope_missing"},
		{at, s.read, `{"load": 0.83}`, 403, "scope_missing"},
		{at, "hg_x", `{"load": 0.83}`, 401, "token"},
		{at, load, `{"up": true}`, 403, "scope_missing"},
		{at, pass, `{"up": true}`, 200, `"up":true`},
		{"/v1/rooms/auto", load, "", 403, "scope_missing"},
		{"/v1/rooms/auto/passes/complete", load, `{"pass": "x"}`, 403, "scope_missing"},
		{at, load, `{"load": -1}`, 400, "from 0 to 1000"},
		{at, load, `{"load": 1001}`, 400, "from 0 to 1000"},
		{at, load, `{"load": "high"}`, 400, "invalid_body"},
		{at, load, `{"load": 1, "up": true}`, 400, "invalid_body"},
		{at, load, `{"load": 1, "for_seconds": 5}`, 400, "invalid_body"},
		{at, load, `{}`, 400, "invalid_body"},
		{at, load, `{"answers": [{"route": "", "seconds": [1]}]}`, 400, "invalid_body"},
		{at, load, `{"answers": [{"route": "cart", "seconds": [-1]}]}`, 400, "invalid_body"},
		{at, load, `{"answers": [{"route": "cart", "seconds": [1], "failed": 1, "refused": 1}]}`, 400, "invalid_body"},
		{at, load, `{"answers": [` + strings.Repeat(`{"route": "a", "seconds": []},`, 64) +
			`{"route": "b", "seconds": []}]}`, 400, "invalid_body"},
		{"/v1/rooms/shop/origin", load, `{"load": 0.83}`, 409, "nobody needs the load"},
		{"/v1/rooms/none/origin", load, `{"load": 0.83}`, 404, ""},
	} {
		method := "POST"
		if x.body == "" {
			method = "GET"
		}
		r := s.do(method, x.path, x.body, x.token)
		if r.StatusCode != x.code || !strings.Contains(r.body, x.says) {
			t.Errorf("%s %s: %d %s, want %d with %q", x.path, x.body, r.StatusCode, r.body, x.code, x.says)
		}
	}
}
