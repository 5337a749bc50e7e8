package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/api"
)

// call asks as a client of an API, without a cookie, past the room: its exclude lets
// /api through.
func (p *process) call(client string) *http.Response {
	p.t.Helper()
	r, err := http.NewRequest("GET", p.visitors+"/api/x", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("X-Client", client)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		p.t.Fatal(err)
	}
	return res
}

const withLimits = `
limits:
  - {name: api, algorithm: sliding_log, amount: AMOUNT, window: 1h, key: ["header:x-client"]}
  - {name: all, algorithm: token_bucket, amount: 1000, window: 1s, headers: draft06}
rooms:
  - name: shop
    origin: ORIGIN
    total_active_users: 1
    new_users_per_minute: 100
    exclude: {paths: ["/api/*"]}
    limits: [LIMITS]
`

func limitsFile(amount, limits string) string {
	return strings.NewReplacer("AMOUNT", amount, "LIMITS", limits).Replace(withLimits)
}

// Each client has its calls, a reload changes them, and what was used stays used.
func TestServerLimitsClients(t *testing.T) {
	p := run(t, limitsFile("3", "api, all"))
	for i, want := range []int{200, 200, 200, 429} {
		res := p.call("bob")
		if res.StatusCode != want || !strings.Contains(res.Header.Get("RateLimit"), `"api";r=`) ||
			res.Header.Get("RateLimit-Limit") != "1000" {
			t.Fatalf("call %d: %d %v, want %d", i, res.StatusCode, res.Header, want)
		}
	}
	if res := p.call("eve"); res.StatusCode != 200 {
		t.Errorf("another client: %d", res.StatusCode)
	}
	reload := func(file string) api.Named {
		t.Helper()
		p.write(file)
		got, err := p.s.Reload(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return got.Limits
	}
	if got := reload(limitsFile("5", "api, all")); !slices.Equal(got.Changed, []string{"api"}) ||
		len(got.Added)+len(got.Removed) > 0 {
		t.Errorf("one limit was changed: %+v", got)
	}
	for i, want := range []int{200, 200, 429} {
		if res := p.call("bob"); res.StatusCode != want {
			t.Errorf("call %d after the limit was raised from 3 to 5: %d, want %d", i, res.StatusCode, want)
		}
	}
	if got := reload(limitsFile("5", "all")); len(got.Added)+len(got.Removed)+len(got.Changed) > 0 {
		t.Errorf("no limit is different: %+v", got)
	}
	if res := p.call("bob"); res.StatusCode != 200 || res.Header.Get("RateLimit") != "" {
		t.Errorf("the room meets the limit no more: %d %v", res.StatusCode, res.Header)
	}
	metrics := get(t, p.operators+"/metrics", "").body
	for _, want := range []string{`headgate_limit_passed_total{limit="api"} 6`,
		`headgate_limit_refused_total{limit="api"} 2`, `headgate_limit_keys{limit="all"} 1`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	res, err := http.Post(p.operators+"/v1/limits/check", "application/json",
		bytes.NewBufferString(`{"limit":"api","key":"bob"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 429 {
		t.Errorf("asked by the API: %d, want 429: it is the same limit", res.StatusCode)
	}
}

// Who waits in the line uses up nothing.
func TestServerLimitsNobodyWhoWaits(t *testing.T) {
	p := run(t, limitsFile("3", "api"))
	get(t, p.visitors+"/", "") // takes the only slot
	for range 10 {
		r := get(t, p.visitors+"/", "")
		if r.StatusCode == 429 || r.Header.Get("RateLimit") != "" {
			t.Fatalf("a waiting visitor meets a limit: %d %v", r.StatusCode, r.Header)
		}
	}
}

// A room that is suspended lets everybody pass, and its limits hold all the same.
func TestServerLimitsWithoutALine(t *testing.T) {
	p := run(t, strings.Replace(limitsFile("3", "api"), "limits: [", "suspended: true\n    limits: [", 1))
	passed := 0
	for range 10 {
		if get(t, p.visitors+"/", "").StatusCode == 200 {
			passed++
		}
	}
	if passed != 3 {
		t.Errorf("%d calls without a client's header passed, want 3", passed)
	}
}

// A key may be any bytes. Those that are not UTF-8 text are shown as U+FFFD, and are a key of
// their own.
func TestKeysThatAreNoText(t *testing.T) {
	p := run(t, limitsFile("3", "api"))
	p.call("a\xff")
	p.call("a\xff")
	p.call("a\xfe")
	list := get(t, p.operators+"/v1/limits/api/keys", "").body
	if strings.Count(list, `{"key":"a\ufffd","used":`) != 2 || !strings.Contains(list, `"used":2`) {
		t.Errorf("the list is %s", list)
	}
	for key, left := range map[string]int{"a%FF": 1, "a%FE": 2, "a%FD": 3, "a%EF%BF%BD": 3} {
		got := get(t, p.operators+"/v1/limits/api/keys/"+key, "")
		if got.StatusCode != 200 || !strings.Contains(got.body, fmt.Sprintf(`"remaining":%d`, left)) {
			t.Errorf("%s: %d %s, want %d left", key, got.StatusCode, got.body, left)
		}
	}
	if res := p.call("a\xff"); res.StatusCode != 200 {
		t.Errorf("%d", res.StatusCode)
	}
	if res := p.call("a\xff"); res.StatusCode != 429 {
		t.Errorf("%d", res.StatusCode)
	}
	p.said("POST", "/v1/limits/check", "{\"limit\":\"api\",\"key\":\"a\xff\"}", 400, "not valid JSON")
}
