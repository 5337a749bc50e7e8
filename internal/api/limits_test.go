package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
)

// limited returns an API in front of a real Limiter, without rooms.
func limited(t *testing.T, limits ...ratelimit.Limit) *site {
	t.Helper()
	l, err := ratelimit.New(ratelimit.Config{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: t.TempDir(), log: &syncBuffer{}}
	log := slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	a := api.New(api.Config{
		Tokens: api.NewTokens(s.dir, log), Audit: api.NewAudit(s.dir), Log: log,
		Limits: api.Limits{Rules: l, Keys: l, Style: func(name string) ratelimit.HeaderStyle {
			if name == "old" {
				return ratelimit.HeadersLegacy
			}
			return ratelimit.HeadersIETF
		}},
	})
	srv := httptest.NewServer(a)
	t.Cleanup(srv.Close)
	s.admin = srv.URL
	s.read, s.write, s.tea = s.token("read"), s.token("write"), s.token("write:tea")
	return s
}

// perDay returns a limit with a window longer than any test.
func perDay(name string, amount int64) ratelimit.Limit {
	return ratelimit.Limit{Name: name, Rule: limit.Rule{
		Algorithm: limit.FixedWindow, Align: limit.FirstHit, Amount: amount, Window: 24 * time.Hour,
	}}
}

// steps sends one request after the other.
func (s *site) steps(steps [][4]string) {
	s.t.Helper()
	for i, st := range steps {
		method, path, _ := strings.Cut(st[0], " ")
		got := s.do(method, path, st[1], s.write)
		if http.StatusText(got.StatusCode) != st[2] || !strings.Contains(got.body, st[3]) {
			s.t.Errorf("%d: %s %s: %d %s, want %s %s", i, st[0], st[1], got.StatusCode, got.body,
				st[2], st[3])
		}
	}
}

// alike is the part about sharing that all limits of the tests have.
const alike = `"scope":"global","on_unreachable":"local",`

const (
	ok       = "OK"
	tooMany  = "Too Many Requests"
	bad      = "Bad Request"
	unclear  = "Unprocessable Entity"
	notFound = "Not Found"
)

func TestCheckLimits(t *testing.T) {
	calls := ratelimit.Limit{Name: "calls", Rule: limit.Rule{Algorithm: limit.Concurrency, Amount: 1}}
	shadow := perDay("shadow", 0)
	shadow.Shadow = true
	soft := perDay("soft", 1)
	soft.Soft = true
	s := limited(t, perDay("api", 3), perDay("day", 5), calls, shadow, soft)
	const check = "POST /v1/limits/check"
	s.steps([][4]string{
		{check, `{"limit":"api","key":"bob","cost":0}`, ok,
			`{"allowed":true,"limit":3,"remaining":3,"reset_seconds":0,"retry_after_seconds":0}`},
		{check, `{"limit":"api","key":"bob"}`, ok,
			`{"allowed":true,"limit":3,"remaining":2,"reset_seconds":86`},
		{check, ` {"cost": 2, "key": "bob", "limit": "api"} `, ok, `"remaining":0`},
		{check, `{"limit":"api","key":"bob"}`, tooMany,
			`{"allowed":false,"limit":3,"remaining":0,"reset_seconds":86`},
		{check, `{"limit":"api","key":"bob","cost":4}`, tooMany, `"retry_after_seconds":null}`},
		{check, `{"limit":"api","key":"bob","cost":-1}`, ok, `"remaining":1`},
		{check, `{"limit":"api"}`, ok, `"remaining":2`}, // the key "" is a key too
		{check, `{"limit":"shadow","key":"bob"}`, ok, `"retry_after_seconds":0,"exceeded":true`},
		{check + "?all=true", `[{"limit":"soft","key":"bob","cost":2},{"limit":"day","key":"bob"}]`, ok,
			`"retry_after_seconds":0,"exceeded":true,"name":"soft"},{"allowed":true,"limit":5,"remaining":4,`},
		{"GET /v1/limits/soft", "", ok, `"soft":true,"shadow":false`},
		{"PATCH /v1/limits/soft", `{"shadow":true}`, unclear, "one or the other"},
		{"PATCH /v1/limits/soft", `{"soft":false}`, ok, `"shadow":false`},
		{check, `{"limit":"soft","key":"bob","cost":2}`, tooMany, `"allowed":false`},
		{"PATCH /v1/limits/soft", `{"soft":"perhaps"}`, unclear, "soft cannot be"},
		{check, `{"limit":"none","key":"bob"}`, notFound, "no_such_limit"},

		// Each call by itself: the second is denied, the third is not.
		{check, `[{"limit":"api","key":"c","cost":3},{"limit":"api","key":"c"},{"limit":"day","key":"c"}]`,
			tooMany, `[{"allowed":true,`},
		{check, `{"limit":"day","key":"c","cost":0}`, ok, `"remaining":4`},
		// All or nothing.
		{check + "?all=true", `[{"limit":"day","key":"c","cost":2},{"limit":"api","key":"c"}]`, tooMany,
			`[{"allowed":true,"limit":5,"remaining":4,`},
		{check, `{"limit":"day","key":"c","cost":0}`, ok, `"remaining":4`},
		{check + "?all=true", `[{"limit":"day","key":"c","cost":2},{"limit":"api","key":"c"}]`, tooMany,
			`"name":"day"},{"allowed":false,`}, // the denying limit is named
		{check + "?all=true", `[{"limit":"api","key":"c"},{"limit":"day","key":"c","cost":2}]`, tooMany,
			`"name":"api"},{"allowed":true,`},
		{check + "?all=true", `[{"limit":"day","key":"c","cost":2},{"limit":"api","key":"d"}]`, ok,
			`[{"allowed":true,"limit":5,"remaining":2,`},
		{check + "?all=yes", `[{"limit":"day"}]`, unclear, "all=true"},
		{check + "?al=true", `[{"limit":"day"}]`, unclear, "all=true"},
		{check + "?all=true&all2=x", `[{"limit":"day"}]`, unclear, "all=true"},
		{check + "?all=true&all=false", `[{"limit":"day"}]`, unclear, "all=true"},
		{check + "?all=%zz", `[{"limit":"day"}]`, unclear, "all=true"},
		{check, `[{"limit":"api","key":"e"},{"limit":"none"}]`, notFound, "no_such_limit"},
		{check, `{"limit":"calls","key":"e","cost":-1}`, unclear, "invalid_cost"},
		{check, `{"limit":"api","key":"` + strings.Repeat("x", 1025) + `"}`, unclear, "invalid_key"},
		{"GET /v1/limits/check", "", "Method Not Allowed", ""},
		{"GET /v1/limits/check/", "", notFound, "no_such_path"},
	})
	// A call in progress is ended by its reservation.
	var call struct{ Reservation string }
	got := s.do("POST", "/v1/limits/check", `{"limit":"calls","key":"e"}`)
	if err := json.Unmarshal([]byte(got.body), &call); err != nil || call.Reservation == "" {
		t.Fatalf("%s %v", got.body, err)
	}
	s.steps([][4]string{
		{check, `{"limit":"calls","key":"e"}`, tooMany, `"allowed":false`},
		{"POST /v1/limits/settle",
			`{"limit":"calls","key":"e","cost":0,"reservation":"` + call.Reservation + `"}`, ok, "true"},
		{check, `{"limit":"calls","key":"e"}`, ok, `"allowed":true`},
	})
}

func TestCheckedLimitsAreToldInHeadersToo(t *testing.T) {
	s := limited(t, perDay("api", 3), perDay("old", 1))
	got := s.do("POST", "/v1/limits/check", `{"limit":"api","key":"bob","cost":4}`)
	if h := got.Header; h.Get("RateLimit") != `"api";r=3` || h.Get("Retry-After") != "" ||
		h.Get("RateLimit-Policy") != `"api";q=3;w=86400` || h.Get("X-RateLimit-Limit") != "" {
		t.Errorf("%v", h)
	}
	for range 2 {
		got = s.do("POST", "/v1/limits/check", `[{"limit":"old"},{"limit":"api"}]`)
	}
	if h := got.Header; h.Get("X-RateLimit-Remaining") != "0" || h.Get("Retry-After") != "86400" ||
		h.Get("RateLimit") != `"api";r=1;t=86400` {
		t.Errorf("%d %v", got.StatusCode, h)
	}
	got = s.do("POST", "/v1/limits/check", `[{"limit":"old"},{"limit":"api","cost":4}]`)
	if got.StatusCode != 429 || got.Header.Get("Retry-After") != "" {
		t.Errorf("never: %d %v", got.StatusCode, got.Header)
	}
	many := "[" + strings.Repeat(`{"limit":"api","key":"x"},`, 16) + `{"limit":"api"}]`
	if got = s.do("POST", "/v1/limits/check", many); got.Header.Get("RateLimit") != "" {
		t.Errorf("%v", got.Header)
	}
}

func TestReserveAndSettle(t *testing.T) {
	s := limited(t, perDay("api", 100))
	const reserve, settle = "POST /v1/limits/reserve", "POST /v1/limits/settle"
	var got struct {
		Allowed     bool
		Remaining   int64
		Reservation string
	}
	body := s.do("POST", "/v1/limits/reserve",
		`{"limit":"api","key":"bob","cost":60,"ttl_seconds":2.5}`).body
	if err := json.Unmarshal([]byte(body), &got); err != nil || !got.Allowed || got.Remaining != 40 ||
		got.Reservation == "" {
		t.Fatalf("%s %v", body, err)
	}
	settled := `{"limit":"api","key":"bob","cost":80,"reservation":"` + got.Reservation + `"}`
	s.steps([][4]string{
		{reserve, `{"limit":"api","key":"bob","cost":50}`, tooMany, `"allowed":false`},
		{reserve, `[{"limit":"api","key":"bob"}]`, unclear, "one reservation per request"},
		{reserve, `{"limit":"api","key":"bob","cost":0}`, unclear, "invalid_cost"},
		{reserve, `{"limit":"none","key":"bob"}`, notFound, "no_such_limit"},
		{reserve, `{"limit":"api","ttl_seconds":0}`, unclear, "ttl_seconds"},
		{reserve, `{"limit":"api","ttl_seconds":86401}`, unclear, "ttl_seconds"},
		{reserve, `{"limit":"api","ttl_seconds":"5"}`, unclear, "ttl_seconds"},
		{settle, settled, ok, `{"settled":true}`},
		{settle, settled, notFound, "no_such_reservation"},
		{"POST /v1/limits/check", `{"limit":"api","key":"bob","cost":0}`, ok, `"remaining":20`},
		{settle, `[` + settled + `]`, unclear, "one reservation per request"},
		{settle, `{"limit":"api","key":"bob","reservation":7}`, unclear, "and cost are required"},
		{settle, `{"limit":"api","key":"bob","cost":-2,"reservation":7}`, unclear, "invalid_cost"},
		{settle, `{"limit":"api","key":"bob","cost":7}`, unclear, "reservation and cost are required"},
		{settle, `{"limit":"api","key":"bob","cost":7,"reservation":7777}`, notFound, "no_such_reservation"},
		{settle, `{"limit":"api","key":"bob","cost":7,"reservation":"x"}`, unclear, "must be the number"},
		{settle, `{"limit":"api","key":"bob","cost":7,"reservation":-1}`, unclear, "must be the number"},
		{settle, `{"limit":"none","key":"bob","cost":7,"reservation":7}`, notFound, "no_such_limit"},
	})
}

func TestRenew(t *testing.T) {
	s := limited(t, perDay("api", 100), ratelimit.Limit{Name: "calls",
		Rule: limit.Rule{Algorithm: limit.Concurrency, Amount: 2, Lease: time.Hour}})
	const check, renew, settle = "POST /v1/limits/check", "POST /v1/limits/renew", "POST /v1/limits/settle"
	var got struct{ Reservation string }
	body := s.do("POST", "/v1/limits/check", `{"limit":"calls","key":"bob"}`).body
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.Reservation == "" {
		t.Fatal(body, err)
	}
	call := `{"limit":"calls","key":"bob","reservation":"` + got.Reservation + `"`
	s.steps([][4]string{
		{renew, call + `}`, ok, `{"renewed":true}`},
		{check, `{"limit":"calls","key":"bob","cost":0}`, ok, `"remaining":1`},
		{renew, call + `,"cost":1}`, unclear, "cost"},
		{renew, `[` + call + `}]`, unclear, "one reservation per request"},
		{renew, `{"limit":"calls","key":"eve","reservation":"` + got.Reservation + `"}`, notFound,
			"no_such_reservation"},
		{renew, `{"limit":"calls","key":"bob"}`, unclear, "the reservation of a call"},
		{renew, `{"limit":"none","key":"bob","reservation":7}`, notFound, "no_such_limit"},
		{renew, `{"limit":"api","key":"bob","reservation":7}`, notFound, "no_such_reservation"},
		{settle, call + `,"cost":0}`, ok, `{"settled":true}`},
		{renew, call + `}`, notFound, "no_such_reservation"},
		{check, `{"limit":"calls","key":"bob","cost":0}`, ok, `"remaining":2`},
	})
}

// A client that reserves and settles works the same after the limit enters shadow mode: there is
// always a reservation, and it can always be settled.
func TestWhatShadowModeLetsPassIsSettledToo(t *testing.T) {
	calls := ratelimit.Limit{Name: "calls", Shadow: true,
		Rule: limit.Rule{Algorithm: limit.Concurrency, Amount: 1}}
	api := perDay("api", 100)
	api.Shadow = true
	s := limited(t, api, calls)
	for _, step := range [][3]string{
		{"/v1/limits/reserve", `"limit":"api","key":"bob"`, "60"},
		{"/v1/limits/check", `"limit":"calls","key":"bob"`, "1"},
	} {
		for i := range 3 {
			var got struct{ Reservation string }
			told := s.do("POST", step[0], "{"+step[1]+`,"cost":`+step[2]+"}")
			if err := json.Unmarshal([]byte(told.body), &got); err != nil || got.Reservation == "" {
				t.Fatalf("%d: %s %v", i, told.body, err)
			}
			if i == 0 {
				continue // still in progress
			}
			settled := s.do("POST", "/v1/limits/settle",
				"{"+step[1]+`,"cost":80,"reservation":"`+got.Reservation+`"}`)
			if settled.StatusCode != 200 {
				t.Errorf("%d: %s: %s", i, told.body, settled.body)
			}
		}
	}
	got := s.do("POST", "/v1/limits/check", `{"limit":"api","key":"bob"}`)
	if strings.Contains(got.body, "reservation") {
		t.Errorf("nothing is reserved: %s", got.body)
	}
}

func TestShowLimits(t *testing.T) {
	day := ratelimit.Limit{Name: "day", Overrides: map[string]int64{"big": 1000}, Rule: limit.Rule{
		Algorithm: limit.FixedWindow, Align: limit.Day, Zone: time.UTC, Amount: 3,
	}}
	bucket := ratelimit.Limit{Name: "bucket/a", Rule: limit.Rule{
		Algorithm: limit.TokenBucket, Amount: 60, Window: time.Minute, Burst: 100,
	}}
	s := limited(t, perDay("api", 3), day, bucket)
	s.steps([][4]string{
		{"POST /v1/limits/check", `{"limit":"api","key":"10.0.0.0/24|GET"}`, ok, ""},
		{"POST /v1/limits/check", `{"limit":"api","key":"//.."}`, ok, ""},
		{"POST /v1/limits/check", `{"limit":"api","cost":3}`, ok, ""},
		{"GET /v1/limits", "", ok, `{"limits":[{"name":"api","algorithm":"fixed_window","amount":3,` +
			`"unit":"requests","window":"24h0m0s","align":"first_hit","shadow":false,` +
			alike + `"max_keys":1000000},`},
		{"GET /v1/limits", "", ok, `"burst":100`},
		{"GET /v1/limits/day", "", ok, `"align":"day","time_zone":"UTC","shadow":false,` + alike +
			`"max_keys":1000000,"overrides":{"big":1000}}`},
		{"GET /v1/limits/bucket%2Fa", "", ok, `"algorithm":"token_bucket"`},
		{"GET /v1/limits/none", "", notFound, "no_such_limit"},
		{"GET /v1/limits/none/keys", "", notFound, "no_such_limit"},
		{"GET /v1/limits/none/keys/bob", "", notFound, "no_such_limit"},
		{"GET /v1/limits/api/keys?count=0", "", unclear, "1 to 1000"},
		{"GET /v1/limits/api/keys?count=1001", "", unclear, "1 to 1000"},
		{"GET /v1/limits/api/keys?count=x", "", unclear, "1 to 1000"},
		{"GET /v1/limits/api/keys?after=x", "", unclear, "invalid_key"},
		{"GET /v1/limits/api/keys/10.0.0.0/24%7CGET", "", ok, `{"key":"10.0.0.0/24|GET","allowed":true,` +
			`"limit":3,"remaining":2,"reset_seconds":86`},
		{"GET /v1/limits/api/keys/" + url.PathEscape("//.."), "", ok,
			`{"key":"//..","allowed":true,"limit":3,"remaining":2`},
		{"GET /v1/limits/api/keys/", "", ok, `{"key":"","allowed":false,"limit":3,"remaining":0`},
		{"GET /v1/limits/api/keys/new?cost=3", "", ok, `"allowed":true,"limit":3,"remaining":3`},
		{"GET /v1/limits/api/keys/new?cost=4", "", ok, `"allowed":false,"limit":3,"remaining":3,` +
			`"reset_seconds":0,"retry_after_seconds":null`},
		{"GET /v1/limits/api/keys/?cost=0", "", ok, `"allowed":true,"limit":3,"remaining":0`},
		{"GET /v1/limits/api/keys/new?cost=-1", "", unclear, "?cost=50"},
		{"GET /v1/limits/api/keys/new?cost=x", "", unclear, "?cost=50"},
		{"GET /v1/limits/api/keys/new?cst=1", "", unclear, "?cost=50"},
		{"GET /v1/limits/api/keys/new", "", ok, `"remaining":3,"reset_seconds":0,"retry_after_seconds":0,` +
			`"rule":{"name":"api",`},
	})
	seen, after := map[string]int64{}, ""
	for range 9 {
		var page struct {
			Keys []struct {
				Key                    string
				Used, Limit, Remaining int64
				Reset                  float64 `json:"reset_seconds"`
			}
			Next string
		}
		got := s.do("GET", "/v1/limits/api/keys?count=1&after="+url.QueryEscape(after), "")
		if err := json.Unmarshal([]byte(got.body), &page); err != nil || len(page.Keys) > 1 {
			t.Fatalf("%s %v", got.body, err)
		}
		for _, k := range page.Keys {
			seen[k.Key] += k.Used
			if k.Limit != 3 || k.Remaining != 3-k.Used || k.Reset < 86000 {
				t.Errorf("%+v", k)
			}
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if len(seen) != 3 || seen[""] != 3 || seen["10.0.0.0/24|GET"] != 1 || after != "" {
		t.Errorf("%v, after %q", seen, after)
	}
}

func TestResetAKeyOfALimit(t *testing.T) {
	s := limited(t, perDay("api", 3))
	const key = "/v1/limits/api/keys/secret%2Ftoken"
	s.do("POST", "/v1/limits/check", `{"limit":"api","key":"secret/token","cost":3}`)
	for _, tt := range []struct {
		token string
		code  int
	}{{"", 401}, {s.read, 403}, {s.tea, 403}, {s.write, 200}} {
		options := []string{}
		if tt.token != "" {
			options = append(options, tt.token)
		}
		if got := s.do("DELETE", key, "", options...); got.StatusCode != tt.code {
			t.Errorf("%d %s, want %d", got.StatusCode, got.body, tt.code)
		}
	}
	if got := s.do("GET", key, ""); !strings.Contains(got.body, `"remaining":3,`) {
		t.Errorf("after: %s", got.body)
	}
	if got := s.do("DELETE", "/v1/limits/none/keys/a", "", s.write); got.StatusCode != 404 {
		t.Errorf("no such limit: %d", got.StatusCode)
	}
	lines := s.audit()
	if len(lines) != 5 {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	// printf %s secret/token | sha256sum
	const sum = "4d82e03b"
	if e := lines[3]; e.Result != "ok" || e.What != "DELETE /v1/limits/api/keys/…" || e.Who == "" ||
		e.Before["limit"] != "api" || !strings.HasPrefix(e.Before["key_sha256"], sum) {
		t.Errorf("%+v", e)
	}
	if e := lines[4]; e.Result != "no_such_limit" || e.Asked["limit"] != "none" {
		t.Errorf("%+v", e)
	}
	b, _ := json.Marshal(lines)
	if text := string(b) + s.log.String(); strings.Contains(text, "secret") {
		t.Errorf("a key is in a log: %s", text)
	}
}

func TestWhoMayAskLimits(t *testing.T) {
	s := limited(t, perDay("api", 1000))
	elsewhere := "X-Forwarded-For: 192.0.2.1"
	page := "Sec-Fetch-Site: cross-site"
	for _, path := range []string{"POST /v1/limits/check", "POST /v1/limits/reserve", "GET /v1/limits",
		"GET /v1/limits/api", "GET /v1/limits/api/keys", "GET /v1/limits/api/keys/bob"} {
		method, path, _ := strings.Cut(path, " ")
		for _, tt := range []struct {
			code    int
			options []string
		}{
			{200, nil}, {401, []string{elsewhere}}, {401, []string{page}},
			{200, []string{elsewhere, s.read}}, {403, []string{elsewhere, s.tea}},
		} {
			got := s.do(method, path, `{"limit":"api","key":"bob"}`, tt.options...)
			if got.StatusCode != tt.code && got.StatusCode != 429 { // attempts are limited
				t.Errorf("%s %s %q: %d %s", method, path, tt.options, got.StatusCode, got.body)
			}
		}
	}
}

func TestBodiesOfAsks(t *testing.T) {
	s := limited(t, perDay("api", 1_000_000))
	const check = "POST /v1/limits/check"
	many := func(n int) string { return "[" + strings.Repeat(`{"limit":"api"},`, n-1) + `{"limit":"api"}]` }
	s.steps([][4]string{
		{check, "", bad, "invalid_body"},
		{check, "{", bad, "invalid_body"},
		{check, `{"limit":"api"`, bad, "invalid_body"},
		{check, `[{"limit":"api"}`, bad, "invalid_body"},
		{check, `{"limit":"api"} {}`, bad, "invalid_body"},
		{check, `{"limit":"api"}]`, bad, "invalid_body"},
		{check, "{\"limit\":\"api\",\"key\":\"\xff\"}", bad, "invalid_body"},
		{check, `"api"`, unclear, "invalid_ask"},
		{check, `null`, unclear, "invalid_ask"},
		{check, `{}`, unclear, "limit is missing"},
		{check, `[]`, unclear, "empty"},
		{check, `[1]`, unclear, "not an object"},
		{check, `[[{"limit":"api"}]]`, unclear, "not an object"},
		{check, `{"limit":"api","limit":"api"}`, unclear, "twice"},
		{check, `{"Limit":"api"}`, unclear, "Limit is not allowed"},
		{check, `{"limit":"api","reservation":1}`, unclear, "reservation is not allowed"},
		{check, `{"limit":"api","<b>":1}`, unclear, "a field is not allowed"},
		{check, `{"limit":5}`, unclear, "must be a string"},
		{check, `{"limit":"api","key":null}`, unclear, "must be a string"},
		{check, `{"limit":"api","key":{}}`, unclear, "must be a string"},
		{check, `{"limit":"api","cost":"1"}`, unclear, "whole number"},
		{check, `{"limit":"api","cost":1.5}`, unclear, "whole number"},
		{check, `{"limit":"api","cost":1e3}`, unclear, "whole number"},
		{check, `{"limit":"api","cost":null}`, unclear, "whole number"},
		{check, `{"limit":"api","cost":true}`, unclear, "whole number"},
		{check, `{"limit":"api","cost":1125899906842625}`, unclear, "whole number"},
		{check, `{"limit":"api","cost":-1125899906842625}`, unclear, "whole number"},
		{check, `{"limit":"api","cost":-99999999999999999999}`, unclear, "whole number"},
		{check, many(1000), ok, `[{"allowed":true`},
		{check, many(1001), "Request Entity Too Large", "too_many_asks"},
		{check, strings.Repeat(" ", 1<<20) + `{"limit":"api"}`, "Request Entity Too Large", "body_too_large"},
	})
	if strings.Contains(s.log.String(), "level=INFO") {
		t.Error("mistakes of callers fill the log")
	}
}

func TestNoLimits(t *testing.T) {
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	h := api.New(api.Config{Tokens: api.NewTokens(dir, log), Audit: api.NewAudit(dir)})
	for path, want := range map[string]string{
		"POST /v1/limits/check": "no_such_limit", "POST /v1/limits/reserve": "no_such_limit",
		"GET /v1/limits": `{"limits":[]}`, "GET /v1/limits/api": "no_such_limit",
		"GET /v1/limits/api/keys": "no_such_limit", "GET /v1/limits/api/keys/a": "no_such_limit",
	} {
		method, path, _ := strings.Cut(path, " ")
		r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(`{"limit":"api"}`))
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s %s: %s", method, path, w.Body)
		}
	}
}

// A limit is changed while it is in use, only by tokens that may write, and invalid values change
// nothing.
func TestChangeALimit(t *testing.T) {
	month := ratelimit.Limit{Name: "month",
		Rule: limit.Rule{Algorithm: limit.FixedWindow, Amount: 3, Align: limit.Month}}
	s := limited(t, perDay("api", 3), month)
	s.steps([][4]string{
		{"POST /v1/limits/check", `{"limit":"api","key":"bob","cost":3}`, "OK", `"remaining":0`},
		{"PATCH /v1/limits/api", `{"amount":5,"window":"48h","shadow":true}`, "OK", `"amount":5`},
		{"GET /v1/limits/api", "", "OK", `"window":"48h0m0s"`},
		{"PATCH /v1/limits/api", `{"shadow":false}`, "OK", `"shadow":false`},
		{"PATCH /v1/limits/api", `{"amount":-1}`, "Unprocessable Entity", "invalid_change"},
		{"PATCH /v1/limits/api", `{"amount":9,"window":"0s"}`, "Unprocessable Entity", "window cannot be"},
		{"PATCH /v1/limits/api", `{"amount":9,"burst":2}`, "Unprocessable Entity", "burst belongs to"},
		{"PATCH /v1/limits/api", `{"amount":9,"name":"x"}`, "Unprocessable Entity", "name cannot be changed"},
		{"PATCH /v1/limits/none", `{"amount":9}`, "Not Found", "no_such_limit"},
		{"GET /v1/limits/api", "", "OK", `"amount":5`},
		{"PATCH /v1/limits/api", `{"overrides.bob":7,"overrides.a b=|":0}`, "OK", `"bob":7`},
		{"GET /v1/limits/api/keys/bob", "", "OK", `"limit":7,"remaining":4`},
		{"POST /v1/limits/check", `{"limit":"api","key":"a b=|"}`, "Too Many Requests", `"limit":0`},
		{"PATCH /v1/limits/api", `{"overrides.eve":-1}`, "Unprocessable Entity", "overrides.eve cannot be"},
		{"PATCH /v1/limits/api", `{"overrides.":1}`, "Unprocessable Entity", "overrides. cannot be"},
		{"PATCH /v1/limits/api", `{"overrides.` + strings.Repeat("x", 1025) + `":1}`,
			"Unprocessable Entity", "cannot be changed"},
		{"PATCH /v1/limits/api", `{"overrides.bob":"none"}`, "OK", `"overrides":{"a b=|":0}`},
		{"GET /v1/limits/api/keys/bob", "", "OK", `"limit":5,"remaining":2`},
		{"PATCH /v1/limits/month", `{"window":"5s"}`, "Unprocessable Entity", "window cannot be"},
	})
	log, err := os.ReadFile(filepath.Join(s.dir, "audit.log"))
	keys := regexp.MustCompile(`\b(bob|eve)\b`) // whole words: a random name may contain the letters
	if err != nil || keys.Match(log) ||
		!bytes.Contains(log, []byte(`"overrides.sha256:81b637d8fcd2c6da`)) { // of bob
		t.Errorf("a key is in the audit log, or nothing of it: %v %s", err, log)
	}
	for _, token := range []string{s.read, s.tea} {
		got := s.do("PATCH", "/v1/limits/api", `{"amount":9}`, token)
		if got.StatusCode != http.StatusForbidden {
			t.Errorf("with a token that may not: %d", got.StatusCode)
		}
	}
}

// What the file refuses beside an amount that is found, the API refuses too, in whatever order it is said.
func TestAnAmountThatIsFoundHasNoOverrides(t *testing.T) {
	const no = "Unprocessable Entity"
	const why = "do not stand beside an amount that is found"
	s := limited(t, ratelimit.Limit{Name: "api", Rule: limit.Rule{Algorithm: limit.Concurrency, Amount: 3,
		Lease: time.Minute}, Auto: limit.Auto{Mode: limit.AutoOn, Min: 2, Max: 100, Start: 3}})
	s.steps([][4]string{
		{"PATCH /v1/limits/api", `{"overrides.bob":90}`, no, why},
		{"PATCH /v1/limits/api", `{"shadow":true}`, no, why},
		{"PATCH /v1/limits/api", `{"shadow":true,"amount":"frozen"}`, no, why},
		{"PATCH /v1/limits/api", `{"shadow":false,"overrides.bob":"none","lease":"20s"}`, "OK", `"shadow":false`},
		{"PATCH /v1/limits/api", `{"amount":7,"shadow":true,"overrides.bob":90}`, "OK", `"bob":90`},
		{"PATCH /v1/limits/api", `{"amount":"auto"}`, no, why},
		{"PATCH /v1/limits/api", `{"amount":"auto","shadow":false}`, no, why},
		{"PATCH /v1/limits/api", `{"amount":"auto","shadow":false,"overrides.bob":"none"}`, "OK", `"shadow":false`},
	})
}

// meanwhile is a Limiter that runs a function just before each change.
type meanwhile struct {
	*ratelimit.Limiter
	then func(*ratelimit.Limiter)
}

func (m *meanwhile) Update(name string, change func(*ratelimit.Limit) error) error {
	m.then(m.Limiter)
	return m.Limiter.Update(name, change)
}

// A change is based on the values in force when it is made: it keeps a concurrent change, and fails
// if a reload has just removed the limit.
func TestAChangeOfALimitUndoesNoOther(t *testing.T) {
	change := func(then func(*ratelimit.Limiter)) (*ratelimit.Limiter, *reply) {
		l, err := ratelimit.New(ratelimit.Config{
			Limits: []ratelimit.Limit{perDay("api", 5)}})
		if err != nil {
			t.Fatal(err)
		}
		s := &site{t: t, dir: t.TempDir(), log: &syncBuffer{}}
		log := slog.New(slog.NewTextHandler(s.log, nil))
		srv := httptest.NewServer(api.New(api.Config{Tokens: api.NewTokens(s.dir, log),
			Audit: api.NewAudit(s.dir), Log: log, Limits: api.Limits{Rules: l, Keys: &meanwhile{l, then}}}))
		t.Cleanup(srv.Close)
		s.admin = srv.URL
		return l, s.do("PATCH", "/v1/limits/api", `{"amount":9}`, s.token("write"))
	}
	l, got := change(func(l *ratelimit.Limiter) { l.Remove("api") })
	if got.StatusCode != http.StatusNotFound || len(l.Limits()) > 0 {
		t.Errorf("%d %s, and %d limits after the only one was removed", got.StatusCode, got.body,
			len(l.Limits()))
	}
	l, got = change(func(l *ratelimit.Limiter) {
		c := *l.Limits()[0]
		c.Shadow = true
		if err := l.SetLimit(c); err != nil {
			t.Error(err)
		}
	})
	if c := l.Limits()[0]; got.StatusCode != http.StatusOK || !c.Shadow || c.Amount != 9 {
		t.Errorf("%d %s: amount %d, shadow %v; want both changes", got.StatusCode, got.body, c.Amount,
			c.Shadow)
	}
}

// A change that is not stored is not in force, and its error says what to do.
func TestAChangeOfALimitThatIsNotKept(t *testing.T) {
	l, err := ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{perDay("api", 5)}})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: t.TempDir(), log: &syncBuffer{}}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	srv := httptest.NewServer(api.New(api.Config{Tokens: api.NewTokens(s.dir, log),
		Audit: api.NewAudit(s.dir), Log: log, Limits: api.Limits{Rules: l, Keys: l,
			Change: func(context.Context, string, map[string]string) error {
				return &api.NotPersistedError{Reason: "nobody is there", Do: "say it again", Err: errors.New("silence")}
			}}}))
	t.Cleanup(srv.Close)
	s.admin = srv.URL
	got := s.do("PATCH", "/v1/limits/api", `{"amount":9}`, s.token("write"))
	if got.StatusCode != http.StatusServiceUnavailable || !strings.Contains(got.body, "not_kept") ||
		!strings.Contains(got.body, "say it again") || l.Limits()[0].Amount != 5 {
		t.Errorf("%d %s, and the amount is %d", got.StatusCode, got.body, l.Limits()[0].Amount)
	}
}
