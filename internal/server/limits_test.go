package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/holders"
)

// call sends a request as an API client, without a cookie, past the room: exclude covers /api.
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

// Each client has its own calls, a reload changes their number, and usage is kept.
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
	reload := func(file string) api.NameChanges {
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

// Waiting visitors use up nothing.
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

// A suspended room lets everyone pass, but its limits still apply.
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

// A key may be any bytes. Bytes that are not UTF-8 are shown as U+FFFD, but the key is distinct.
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

// amount returns the amount of a limit that is in force.
func (p *process) amount(limit string) int64 {
	p.t.Helper()
	for _, c := range p.s.limits.Rules.Limits() {
		if c.Name == limit {
			return c.Amount
		}
	}
	return -1
}

func (p *process) has(limit string, amount int64) func() bool {
	return func() bool { return p.amount(limit) == amount }
}

func (p *process) setAmount(limit string, amount int64) {
	p.t.Helper()
	err := p.s.limits.Change(p.t.Context(), limit, map[string]string{"amount": fmt.Sprint(amount)})
	if err != nil {
		p.t.Fatal(err)
	}
}

// When the file takes back a change, the change does not return with the old file: not with a
// reload, not with the next change of another limit, and not with a restart.
func TestALimitThatTheFileTakesBackStaysSo(t *testing.T) {
	old, other := limitsFile("3", "api, all"), limitsFile("5", "api, all")
	for name, swap := range map[string]func(p *process, file string){
		"reloads":  func(p *process, file string) { p.write(file); p.reload() },
		"restarts": func(p *process, file string) { p.stop(); p.write(file); p.start() },
	} {
		t.Run(name, func(t *testing.T) {
			p := run(t, old)
			p.setAmount("api", 9)
			p.stop()
			p.start()
			if got := p.amount("api"); got != 9 {
				t.Fatalf("after a restart it is %d, want 9", got)
			}
			swap(p, other)
			if got := p.amount("api"); got != 5 {
				t.Errorf("the file says 5, and it is %d", got)
			}
			swap(p, old)
			p.setAmount("all", 2000)
			if got := p.amount("api"); got != 3 {
				t.Errorf("the old file says 3, and it is %d", got)
			}
			p.stop()
			p.start()
			if a, b := p.amount("api"), p.amount("all"); a != 3 || b != 2000 {
				t.Errorf("after a restart it is %d, want 3, and the other %d, want 2000", a, b)
			}
		})
	}
}

// A limit that is removed from the file and added again has the values of the file.
func TestALimitThatWasRemovedBeginsAnew(t *testing.T) {
	p := run(t, limitsFile("3", "api, all"))
	p.setAmount("api", 9)
	p.write(strings.Replace(limitsFile("3", "all"), "  - {name: api,", "  - {name: else,", 1))
	p.reload()
	p.write(limitsFile("3", "api, all"))
	p.reload()
	p.stop()
	p.start()
	if got := p.amount("api"); got != 3 {
		t.Errorf("it is %d, want 3 as the file says", got)
	}
}

// passesOn requests a change at a store node as a worker does, which has no link; twice, because
// all store nodes receive it.
func passesOn(t *testing.T, p *process) {
	t.Helper()
	type change struct {
		Pairs   map[string]string `json:"pairs"`
		Version uint64            `json:"version"`
	}
	var live map[string]change
	record, _, err := p.s.node.Records.Load(t.Context(), "limit-changes")
	if err == nil {
		err = json.Unmarshal(record, &live)
	}
	if err != nil {
		t.Fatal(err)
	}
	was, next := live["api"], live["api"]
	next.Version, next.Pairs = was.Version+1, maps.Clone(was.Pairs)
	next.Pairs["amount"] = "6"
	msg, err := json.Marshal(map[string]any{"name": "api", "was": was.Version, "next": next})
	if err != nil {
		t.Fatal(err)
	}
	var first string
	for range 2 {
		b, err := p.s.node.Bus.Request(t.Context(), "limit-at-home", msg)
		if err != nil || !strings.Contains(string(b), `"amount":"6"`) || first != "" && first != string(b) {
			t.Errorf("told %s after %s, %v", b, first, err)
		}
		first = string(b)
	}
}

// overriding are headers that make origins see another URL or another method than headgate.
// gunicorn removes SCRIPT_NAME from the path.
const (
	otherURL = "X-Original-URL: /6.6.6.6\r\nX-Rewrite-Url: /6.6.6.6\r\nX-Original-URI: /6.6.6.6\r\n" +
		"SCRIPT_NAME: /6.6.6.6\r\nPath-Info: /6.6.6.6\r\n"
	otherMethod = "X-HTTP-Method-Override: POST6\r\nx-http-method: POST6\r\nX-Method-Override: POST6\r\n" +
		"X-Original-Method: POST6\r\n"
	spelled = "X_Original_URL: /6.6.6.6\r\nX.Rewrite.URL: /6.6.6.6\r\nX_Original-URI: /6.6.6.6\r\n" +
		"X_HTTP_Method_Override: 6.6.6.6\r\nX_Method.Override: 6.6.6.6\r\nX~Http!Method: 6.6.6.6\r\n"
)

// A request that passes because of its path or its method must be the same request at the origin.
func TestNoOtherURLAndMethodForTheOrigin(t *testing.T) {
	const rule = "  - {name: rule, path: /rule, origin: ORIGIN, total_active_users: 1, new_users_per_minute: 1, " +
		"rules: [{action: bypass, expression: 'http.request.method eq \"GET\"'}]}\n"
	url, heads := rawOrigin(t, okAnswer)
	for _, keys := range []string{"", "trusted_proxies: [127.0.0.1]\n"} {
		visitors, _, _ := start(t, url, strings.ReplaceAll(oneRoom, "users: 1,", "users: 1000,")+rule+keys)
		for _, x := range []struct {
			line, more string
			stay       bool
		}{
			{"GET /robots.txt", "", false},
			{"HEAD /", "", false},
			{"OPTIONS /", "Origin: http://y\r\nAccess-Control-Request-Method: GET\r\n", false},
			{"GET /rule", "", false},
			{"GET /", "", true},
		} {
			res := askRaw(t, visitors, x.line+" HTTP/1.1\r\nHost: x\r\nX-Shop: kept\r\n"+x.more+otherURL+otherMethod+
				spelled+"\r\n")
			if res.StatusCode != 200 {
				t.Fatal(x.line, res.Status)
			}
			text := strings.ToLower(<-heads)
			if got := strings.Count(text, "post6"); got != map[bool]int{true: 4}[x.stay] {
				t.Errorf("%q of %q: %d other methods:\n%s", x.line, keys, got, text)
			}
			want := 0
			if x.stay && keys != "" { // the proxy sends the URL of the original request
				want = 5
			}
			if got := strings.Count(text, "6.6.6.6"); got != want {
				t.Errorf("%q of %q: %d other URLs, want %d:\n%s", x.line, keys, got, want, text)
			}
			if !strings.Contains(text, "x-shop: kept") {
				t.Errorf("%q: a header of the site's own is lost:\n%s", x.line, text)
			}
		}
	}
}

// planned is a room behind a limit with plans: 10 without one, 20 with plus, 30 with pro.
const planned = "  - {name: shop, origin: ORIGIN, suspended: true, total_active_users: 1, new_users_per_minute: 1, " +
	"limits: [api]}\nlimits:\n  - {name: api, algorithm: sliding_log, amount: 10, window: 1h, headers: legacy, " +
	"key: [\"header:x-client\"]}\nplans:\n  amounts: {plus: {api: 20}, pro: {api: 30}}\n"

// A caller may say anything, in any bytes: only a trusted proxy names its plan, to headgate and to the
// origin, and only in one way.
func TestACallerDoesNotChooseItsPlan(t *testing.T) {
	for trusted, counts := range map[string]bool{"10.0.0.0/8": false, "127.0.0.0/8": true} {
		heads := make(chan http.Header, 1)
		origin := httptest.NewServer(http.HandlerFunc(
			func(_ http.ResponseWriter, r *http.Request) { heads <- r.Header }))
		defer origin.Close()
		visitors, _, _ := start(t, origin.URL, planned+"  header: x-plan\ntrusted_proxies: ["+trusted+"]\n")
		for i, c := range []struct {
			send string
			want string // from a trusted proxy
		}{
			{"", "10"},
			{"X-Plan: pro\r\n", "30"},
			{"x-plan: pro\r\n", "30"},
			{"X-PLAN:plus\r\n", "20"},
			{"X-Plan: \t pro \t\r\n", "30"},
			{"X-Plan: Pro\r\n", "10"},
			{"X-Plan: gold\r\n", "10"},
			{"X-Plan:\r\n", "10"},
			{"X-Plan: pro, plus\r\n", "10"},
			{"X-Plan: plus\r\nX-Plan: pro\r\n", "10"},
			{"X-Plan: pro\r\nX-Plan: pro\r\n", "10"},
			{"X-Plan: plus\r\nx-pLAN: pro\r\n", "10"},
			{"X_Plan: pro\r\n", "10"},
			{"X-Plan: plus\r\nX_PLAN: pro\r\nX.Plan: pro\r\n", "20"},
			{"X-Plan: ~plan:pro|\r\n", "10"},
			{"X-Plan: pro|\r\n", "10"},
			{"X-Plan: pro\xff\r\n", "10"},
			{"X-Plan:\r\n pro\r\n", "30"}, // a folded line is the value that the proxy sent
			{"Connection: X-Plan\r\nX-Plan: pro\r\n", "30"},
		} {
			if !counts {
				c.want = "10"
			}
			res := raw(t, visitors, fmt.Sprintf("GET / HTTP/1.1\r\nHost: shop.example\r\nX-Client: %d\r\n%s"+
				"Connection: close\r\n\r\n", i, c.send))
			if res.StatusCode != 200 {
				t.Errorf("trusted %s, %q: %s", trusted, c.send, res.Status)
				continue
			}
			if got := res.Header.Get("X-RateLimit-Limit"); got != c.want {
				t.Errorf("trusted %s, %q: a limit of %s, want %s", trusted, c.send, got, c.want)
			}
			for name, values := range <-heads {
				plan := strings.EqualFold(strings.NewReplacer("_", "-", ".", "-").Replace(name), "x-plan")
				if plan && (!counts || name != "X-Plan") {
					t.Errorf("trusted %s, %q: the origin reads %s: %q", trusted, c.send, name, values)
				}
			}
		}
	}
}

// The question of a connector has the headers of a visitor: its plan counts if a trusted proxy is
// before the application.
func TestThePlanInQuestions(t *testing.T) {
	s, _ := serve(t, "http://127.0.0.1:1", planned+"  header: x-plan\ntrusted_proxies: [127.0.0.0/8, 10.0.0.0/8]\n"+
		"decide: {listen: \"127.0.0.1:0\"}\n")
	for i, c := range []struct{ path, from, spelling, want string }{
		{"/connect", "192.0.2.7", "X-Plan", "10"},
		{"/connect", "10.0.0.1, 192.0.2.7", "X-Plan", "10"},
		{"/connect", "192.0.2.7, 10.0.0.1", "X-Plan", "30"},
		{"/connect", "", "X-Plan", "10"},
		{"/connect", "192.0.2.7, 10.0.0.1", "X_plan", "10"},
		{"/forward", "192.0.2.7", "X-Plan", "30"}, // its proxy has replaced it
		{"/forward", "192.0.2.7", "x.plan", "10"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.DecideAddr().String()+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"X-Forwarded-Method": {"GET"}, c.spelling: {"pro"}, "X-Client": {fmt.Sprint(i)},
			"X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {"shop.example"}, "X-Forwarded-Uri": {"/"}}
		if c.from != "" {
			r.Header.Set("X-Forwarded-For", c.from)
		}
		got := fetch(t, http.DefaultTransport.RoundTrip, r).Header.Get("X-RateLimit-Limit")
		if got != c.want {
			t.Errorf("%s from %q with %s: a limit of %q, want %s", c.path, c.from, c.spelling, got, c.want)
		}
	}
}

// A claim names a plan only under the signature of the sign-in.
func TestAClaimNamesThePlan(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k"}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(file, set, 0o600); err != nil {
		t.Fatal(err)
	}
	in := time.Now().Add(time.Hour).Unix()
	token := func(by jwt.SigningMethod, with any, claims jwt.MapClaims) string {
		all := jwt.MapClaims{"iss": "login", "aud": "api", "plan": "pro", "exp": in}
		maps.Copy(all, claims)
		x := jwt.NewWithClaims(by, all)
		x.Header["kid"] = "k"
		text, err := x.SignedString(with)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	good := token(jwt.SigningMethodES256, key, nil)
	parts := strings.Split(good, ".")
	claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil,
		`{"iss":"login","aud":"api","plan":"pro","exp":%d}`, in))
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, planned+"  jwt: {jwks: "+file+", issuer: login, audience: api}\n")
	limit := func(client, auth string) string {
		r, err := http.NewRequestWithContext(t.Context(), "GET", visitors+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Client", client)
		r.Header.Set("Authorization", auth)
		r.Header.Set("X-Plan", "pro")
		return fetch(t, http.DefaultTransport.RoundTrip, r).Header.Get("X-RateLimit-Limit")
	}
	eventually(t, "the keys are loaded", func() bool { return limit("first", "Bearer "+good) == "30" })
	for i, c := range []struct{ what, auth, want string }{
		{"good", "Bearer " + good, "30"},
		{"good, known", "bearer  " + good, "30"},
		{"another plan", "Bearer " + token(jwt.SigningMethodES256, key, jwt.MapClaims{"plan": "plus"}), "20"},
		{"an unknown plan", "Bearer " + token(jwt.SigningMethodES256, key, jwt.MapClaims{"plan": "gold"}), "10"},
		{"no plan", "Bearer " + token(jwt.SigningMethodES256, key, jwt.MapClaims{"plan": nil}), "10"},
		{"a list", "Bearer " + token(jwt.SigningMethodES256, key, jwt.MapClaims{"plan": []string{"pro"}}), "10"},
		{"no token", "", "10"},
		{"by another key", "Bearer " + token(jwt.SigningMethodES256, other, nil), "10"},
		{"without a signature", "Bearer " + token(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil), "10"},
		{"by the public key as a secret", "Bearer " + token(jwt.SigningMethodHS256, set, nil), "10"},
		{"other claims, the same signature", "Bearer " + parts[0] + "." + claims + "." + parts[2], "10"},
		{"no signature", "Bearer " + parts[0] + "." + parts[1] + ".", "10"},
		{"a signature cut off", "Bearer " + good[:len(good)-2], "10"},
		{"over", "Bearer " + token(jwt.SigningMethodES256, key, jwt.MapClaims{"exp": in - 7200}), "10"},
		{"for somebody else", "Bearer " + token(jwt.SigningMethodES256, key, jwt.MapClaims{"aud": "shop"}), "10"},
		{"by somebody else", "Bearer " + token(jwt.SigningMethodES256, key, jwt.MapClaims{"iss": "eve"}), "10"},
		{"as a password", "Basic " + good, "10"},
	} {
		for range 2 { // verified, and known
			if got := limit(fmt.Sprint(i), c.auth); got != c.want {
				t.Errorf("%s: a limit of %s, want %s", c.what, got, c.want)
			}
		}
	}
}

// A reload takes another header as that with the plan, and other amounts.
func TestAReloadChangesPlans(t *testing.T) {
	heads := make(chan http.Header, 1)
	origin := httptest.NewServer(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) { heads <- r.Header }))
	defer origin.Close()
	file := "rooms:\n" + strings.ReplaceAll(planned, "ORIGIN", origin.URL) + "trusted_proxies: [127.0.0.0/8]\n"
	file = strings.Replace(file, "plans:\n", "plans:\n  header: x-plan\n", 1)
	p, alias := run(t, file), false
	amount := func(header string) string {
		r, err := http.NewRequestWithContext(t.Context(), "GET", p.visitors+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(header, "pro")
		r.Header["X_tier"] = []string{"pro"} // an origin may read it as X-Tier
		res := fetch(t, http.DefaultTransport.RoundTrip, r)
		_, alias = (<-heads)["X_tier"]
		return res.Header.Get("X-RateLimit-Limit")
	}
	if old, other := amount("X-Plan"), amount("X-Tier"); old != "30" || other != "10" {
		t.Errorf("before: %s and %s", old, other)
	}
	p.write(strings.NewReplacer("x-plan", "x-tier", "api: 30", "api: 40").Replace(file))
	got := p.reload()
	if !slices.Equal(got.Settings, []string{"plans"}) || !slices.Equal(got.Limits.Changed, []string{"api"}) {
		t.Errorf("%+v", got)
	}
	if old, other := amount("X-Plan"), amount("X-Tier"); old != "10" || other != "40" || alias {
		t.Errorf("after: %s and %s, %v", old, other, alias)
	}
}

// A plan changes while headgate runs.
func TestPlansChangeWhileTheyAreUsed(t *testing.T) {
	s, _ := serve(t, "http://127.0.0.1:1", planned)
	admin := "http://" + s.AdminAddr().String()
	ask := func(plan string) string {
		_, answer := post(t, admin+"/v1/limits/check", "", `{"limit":"api","key":"k","plan":"`+plan+`"}`)
		return answer
	}
	if got := ask("pro"); !strings.Contains(got, `"limit":30,"remaining":29`) {
		t.Errorf("pro: %s", got)
	}
	pairs := map[string]string{"plans.pro": "50", "plans.max": "99", "plans.plus": "none"}
	if err := s.limits.Change(t.Context(), "api", pairs); err != nil {
		t.Fatal(err)
	}
	for plan, want := range map[string]string{"pro": `"limit":50,"remaining":48`, "max": `"limit":99,"remaining":98`,
		"plus": `"limit":10,"remaining":9`} {
		if got := ask(plan); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", plan, got, want)
		}
	}
}

const holding = `  - {name: api, path: /api, origin: "ORIGIN", suspended: true, total_active_users: 1, new_users_per_minute: 1, limits: [api]}
  - {name: site, origin: "ORIGIN", suspended: true, total_active_users: 1, new_users_per_minute: 1}
limits:
  - {name: api, algorithm: sliding_log, amount: 2, window: 1h, key: [holder], headers: legacy, usage: true}
plans:
  holders: {HOLDERS}
  amounts: {pro: {api: 5}}
`

// runHolders starts a process with holders. file returns its configuration, and ask makes a call and returns
// what the origin got.
func runHolders(t *testing.T) (
	p *process, file func(holders string) string, ask func(path, more string) (reply, http.Header),
) {
	heads := make(chan http.Header, 10)
	origin := httptest.NewServer(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) { heads <- r.Header }))
	t.Cleanup(origin.Close)
	file = func(holders string) string {
		return strings.NewReplacer("HOLDERS", holders, "ORIGIN", origin.URL).Replace("rooms:\n" + holding)
	}
	p = run(t, file(""))
	return p, file, func(path, more string) (res reply, at http.Header) {
		t.Helper()
		res = raw(t, p.visitors, "GET "+path+" HTTP/1.1\r\nHost: shop.example\r\n"+more+"Connection: close\r\n\r\n")
		if res.StatusCode == 200 {
			at = <-heads
		}
		return res, at
	}
}

// The origin learns which soft limits a call exceeds, from nobody but headgate.
func TestSoftLimitsOfARoom(t *testing.T) {
	url, heads := rawOrigin(t, okAnswer)
	visitors, operators, _ := start(t, url, "  - {name: shop, origin: ORIGIN, suspended: true, total_active_users: 1, "+
		"new_users_per_minute: 1, limits: [api]}\n"+
		"  - {name: open, path: /open, origin: ORIGIN, suspended: true, total_active_users: 1, new_users_per_minute: 1}\n"+
		"limits:\n  - {name: api, algorithm: sliding_log, amount: 1, window: 1h, soft: true}\n")
	const spoof = "Headgate-Exceeded: eve\r\nheadgate_exceeded: eve\r\nConnection: Headgate-Exceeded\r\n"
	for i, x := range []struct{ path, want string }{{"/", ""}, {"/", "api"}, {"/open", ""}, {"/", "api"}} {
		res := raw(t, visitors, "GET "+x.path+" HTTP/1.1\r\nHost: x\r\n"+spoof+"Connection: close\r\n\r\n")
		got, at := res.Header.Get("Headgate-Exceeded"), strings.ToLower(<-heads)
		if res.StatusCode != 200 || got != x.want || strings.Contains(at, "eve") ||
			strings.Contains(at, "\r\nheadgate-exceeded: api\r\n") != (x.want != "") {
			t.Errorf("%d: %s with %q to the client, want %q, and to the origin:\n%s", i, res.Status, got, x.want, at)
		}
	}
	if got := get(t, operators+"/metrics", "").body; !strings.Contains(got, `headgate_limit_exceeded_total{limit="api"} 2`) {
		t.Errorf("not counted: %s", got)
	}
}

func bearer(m *holders.Made) string { return "Authorization: Bearer " + m.Key + "\r\n" }

// A key names the holder and the plan of a call. The origin learns both, but not the key, and from nobody
// else.
func TestHoldersOfKeys(t *testing.T) {
	p, _, ask := runHolders(t)
	made, err := p.s.holders.Add(t.Context(), []holders.Holder{{Name: "ada", Plan: "pro"}, {Name: "bob"}}, []string{"pro"})
	if err != nil {
		t.Fatal(err)
	}
	ada, bob := made[0], made[1]
	const spoof = "Headgate-Holder: eve\r\nheadgate_holder: eve\r\nHeadgate.Plan: pro\r\nHeadgate-Plan: pro\r\n"
	for what, x := range map[string]struct {
		path, more, limit, holder, plan string
		status                          int
	}{
		"a plan":       {"/api", bearer(&ada) + spoof, "5", ada.ID.String(), "pro", 200},
		"no plan":      {"/api", bearer(&bob) + spoof, "2", bob.ID.String(), "", 200},
		"hop by hop":   {"/api", bearer(&ada) + "Connection: Headgate-Holder, Headgate-Plan\r\n", "5", ada.ID.String(), "pro", 200},
		"no key":       {"/api", spoof, "", "", "", 401},
		"mistyped":     {"/api", "Authorization: Bearer " + ada.Key[:50] + "\r\n" + spoof, "", "", "", 401},
		"another room": {"/", spoof, "", "", "", 200},
	} {
		res, at := ask(x.path, x.more)
		if res.StatusCode != x.status || res.Header.Get("X-RateLimit-Limit") != x.limit {
			t.Errorf("%s: %s, a limit of %q", what, res.Status, res.Header.Get("X-RateLimit-Limit"))
		}
		if at.Get("Headgate-Holder") != x.holder || at.Get("Headgate-Plan") != x.plan || at.Get("Authorization") != "" {
			t.Errorf("%s: the origin gets %v", what, at)
		}
		for name := range at {
			if strings.ContainsAny(name, "_.") {
				t.Errorf("%s: the origin gets %s", what, name)
			}
		}
	}
	// Ada has made two calls of five. A new key gives her no others.
	next, _, err := p.s.holders.Rotate(t.Context(), ada.ID, "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range []*holders.Made{&next, &ada, &next, &ada, &next} {
		want := 200
		if i > 2 {
			want = 429
		}
		if res, _ := ask("/api", bearer(m)); res.StatusCode != want {
			t.Errorf("call %d after a rotation: %s, want %d", i, res.Status, want)
		}
	}
	if _, _, err := p.s.holders.Revoke(t.Context(), bob.ID, ""); err != nil {
		t.Fatal(err)
	}
	if res, _ := ask("/api", bearer(&bob)); res.StatusCode != 401 {
		t.Errorf("a revoked key: %s", res.Status)
	}
	metrics := get(t, p.operators+"/metrics", "").body
	for _, want := range []string{"headgate_holders 2\n", `headgate_holder_calls_total{key="known"} 8`,
		`headgate_holder_calls_total{key="malformed"} 1`, `headgate_holder_calls_total{key="missing"} 1`,
		`headgate_holder_calls_total{key="revoked"} 1`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// A reload changes how keys are sent, and whether there are any.
func TestAReloadChangesHolders(t *testing.T) {
	p, file, ask := runHolders(t)
	reload := func(file string) {
		t.Helper()
		p.write(file)
		if got, err := p.s.Reload(t.Context()); err != nil || !slices.Contains(got.Settings, "plans") {
			t.Fatal(got, err)
		}
	}
	reload(file("header: x-api-key, required: false, forward: true"))
	if res, at := ask("/api", ""); res.StatusCode != 200 || res.Header.Get("X-RateLimit-Limit") != "2" ||
		at.Get("Headgate-Holder") != "" {
		t.Errorf("without a key: %s %v, the origin gets %v", res.Status, res.Header, at)
	}
	cat, err := p.s.holders.Add(t.Context(), []holders.Holder{{Name: "cat", Plan: "pro"}}, []string{"pro"})
	if err != nil {
		t.Fatal(err)
	}
	if res, at := ask("/api", "X-Api-Key: "+cat[0].Key+"\r\n"); res.StatusCode != 200 || at.Get("X-Api-Key") != cat[0].Key {
		t.Errorf("with a key: %s, the origin gets %v", res.Status, at)
	}
	off := strings.NewReplacer("key: [holder], ", "", "holders: {}", "header: x-plan").Replace(file(""))
	reload(off + "trusted_proxies: [127.0.0.0/8]\n")
	if res, _ := ask("/api", "X-Plan: pro\r\n"); res.StatusCode != 200 || p.s.holders.IsOpen() {
		t.Errorf("without holders: %s", res.Status)
	}
	reload(file(""))
	if res, _ := ask("/api", bearer(&cat[0])); res.StatusCode != 200 {
		t.Errorf("with holders again: %s", res.Status)
	}
	q := run(t, off+"trusted_proxies: [127.0.0.0/8]\n")
	q.write(file(""))
	if _, err := q.s.Reload(t.Context()); err != nil || !q.s.holders.IsReady() {
		t.Errorf("a reload brings holders, and they are not read: %v", err)
	}
}

// A proxy that only asks gets the same answers.
func TestKeysInQuestions(t *testing.T) {
	s, _ := serve(t, "http://127.0.0.1:1", strings.Replace(holding, "HOLDERS", "", 1)+"trusted_proxies: [127.0.0.0/8]\n"+
		"decide: {listen: \"127.0.0.1:0\"}\n")
	made, err := s.holders.Add(t.Context(), []holders.Holder{{Name: "ada", Plan: "pro"}}, []string{"pro"})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/forward", "/connect"} {
		for key, want := range map[string]int{made[0].Key: 200, made[0].Key + "a": 401, "": 401} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.DecideAddr().String()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{"X-Forwarded-Method": {"GET"}, "Authorization": {"Bearer " + key}, "Headgate-Holder": {"eve"},
				"X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {"shop.example"}, "X-Forwarded-Uri": {"/api"}}
			res := fetch(t, http.DefaultTransport.RoundTrip, r)
			if (want == 200) != (res.StatusCode/100 == 2) || want == 401 && res.StatusCode != 401 {
				t.Errorf("%s with %.8q…: %s", path, key, res.Status)
			}
		}
	}
}

// A room of the API keeps the name of a limit that the file renames. The limit is gone, but the room must not
// pass on calls without a key. A room whose limit did not ask for keys goes on.
func TestARoomWhoseLimitIsGoneAsksForKeys(t *testing.T) {
	const file = anyHost + "limits:\n  - {name: LIMIT, algorithm: sliding_log, amount: 99, window: 1h, key: [holder]}\n" +
		"  - {name: plain, algorithm: sliding_log, amount: 99, window: 1h}\n" +
		"plans: {holders: {}, amounts: {pro: {LIMIT: 999}}}\n"
	before := strings.ReplaceAll(file, "LIMIT", "api")
	p := run(t, before)
	b := p.boss("write")
	b.made(p.teaWith(`"suspended":true,"headgate":{"limits":["api"]}`))
	b.made(strings.ReplaceAll(p.teaWith(`"suspended":true,"headgate":{"limits":["plain"]}`), "tea", "milk"))
	made, err := p.s.holders.Add(t.Context(), []holders.Holder{{Name: "ada"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string, tea, milk int) {
		t.Helper()
		if res := at(t, p, "tea.example", "/"); res.StatusCode != tea {
			t.Errorf("%s: a call without a key gets %s, want %d", what, res.Status, tea)
		}
		if res := at(t, p, "milk.example", "/"); res.StatusCode != milk {
			t.Errorf("%s: a call of the other room gets %s, want %d", what, res.Status, milk)
		}
	}
	want("before", 401, 200)
	if res := at(t, p, "tea.example", "/", "Authorization", "Bearer "+made[0].Key); res.StatusCode != 200 {
		t.Errorf("with a key: %s", res.Status)
	}
	p.write(strings.Replace(strings.ReplaceAll(file, "LIMIT", "calls"), "plain", "others", 1))
	p.reload()
	want("renamed", 401, 200)
	if res := at(t, p, "tea.example", "/", "Authorization", "Bearer "+made[0].Key); res.StatusCode != 200 {
		t.Errorf("renamed, with a key: %s", res.Status)
	}
	p.reload()
	want("reloaded again", 401, 200)
	p.write(anyHost)
	p.reload()
	want("nobody has keys", 200, 200)
	p.write(before)
	p.reload()
	want("back", 401, 200)
	p.write(strings.ReplaceAll(file, "LIMIT", "calls"))
	p.restart()
	want("restarted", 401, 200)
}

// A reload puts limits into force before rooms. A room that it removes asks for keys to its end.
func TestARoomThatEndsAsksForKeys(t *testing.T) {
	p, file, ask := runHolders(t)
	if res, _ := ask("/api", ""); res.StatusCode != 401 {
		t.Fatal(res.Status)
	}
	_, rooms, _ := strings.Cut(file(""), "\n  - {name: site,")
	p.write("rooms:\n  - {name: site," + strings.Split(rooms, "\n")[0] + "\n")
	next, err := p.s.set.Load().cfg.Again()
	if err != nil {
		t.Fatal(err)
	}
	p.s.limits.reload(next)
	if res, _ := ask("/api", ""); res.StatusCode != 401 {
		t.Errorf("between limits and rooms: %s", res.Status)
	}
	p.reload()
	if res, _ := ask("/api", ""); res.StatusCode != 200 {
		t.Errorf("the other room: %s", res.Status)
	}
}

// Nobody comes to a room that asks for keys by a path that only headgate reads as one of another room. These
// rooms are suspended, so that other paths with several readings pass.
func TestNoWayAroundKeysByOddPaths(t *testing.T) {
	p, file, ask := runHolders(t)
	p.write(strings.Replace(file(""), "name: site,", "name: public, path: /public,", 1))
	p.reload()
	made, err := p.s.holders.Add(t.Context(), []holders.Holder{{Name: "ada", Plan: "pro"}}, []string{"pro"})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/public/../api/x", "/public/%2e%2e/api/x", "/public/..%2fapi/x", "/public/..;/api/x",
		`/public/..\api/x`, "/public/..%5capi/x", "/public/%2e%2e%2fapi/x"} {
		if res, at := ask(path, "Headgate-Holder: eve\r\n"); res.StatusCode == 200 || at != nil {
			t.Errorf("%s reaches the origin: %s %v", path, res.Status, at)
		}
	}
	for _, path := range []string{"/public/x", "/public//x", "/public/../public/x"} {
		if res, _ := ask(path, ""); res.StatusCode != 200 {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	for _, path := range []string{"/api/x", "/api/../public/../api"} { // of the room that asks for the key
		if res, _ := ask(path, bearer(&made[0])); res.StatusCode != 200 {
			t.Errorf("%s with a key: %s", path, res.Status)
		}
	}
}

// A holder reads what it has used itself, with its key, and nothing of others.
func TestAHolderReadsItsOwnUsage(t *testing.T) {
	p, _, ask := runHolders(t)
	made, err := p.s.holders.Add(t.Context(), []holders.Holder{{Name: "ada", Plan: "pro"}, {Name: "bob"}}, []string{"pro"})
	if err != nil {
		t.Fatal(err)
	}
	ada, bob := made[0], made[1]
	for _, m := range []*holders.Made{&ada, &ada, &ada, &bob} {
		if res, _ := ask("/api", bearer(m)); res.StatusCode != 200 {
			t.Fatal(res.Status)
		}
	}
	units := func(body string) map[string]int64 { // of all rows: the hour may end meanwhile
		var all struct {
			Usage []struct {
				Key   string
				Units int64
			}
		}
		if err := json.Unmarshal([]byte(body), &all); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		n := map[string]int64{}
		for _, row := range all.Usage {
			n[row.Key] += row.Units
		}
		return n
	}
	eventually(t, "four calls are recorded", func() bool {
		_, all := p.say("GET", "/v1/usage?limit=api&open=true", "")
		return maps.Equal(units(all), map[string]int64{ada.ID.String(): 3, bob.ID.String(): 1})
	})
	own := func(query, more string) reply {
		t.Helper()
		return raw(t, p.visitors, "GET /api/.headgate/usage"+query+" HTTP/1.1\r\nHost: shop.example\r\n"+more+
			"Connection: close\r\n\r\n")
	}
	for what, x := range map[string]struct {
		query, more string
		status      int
	}{
		"no key":          {"?limit=api&open=true", "", 401},
		"a spoofed name":  {"?limit=api&open=true", "Headgate-Holder: " + ada.ID.String() + "\r\n", 401},
		"a wrong key":     {"?limit=api&open=true", "Authorization: Bearer " + ada.Key[:50] + "\r\n", 401},
		"another's key":   {"?limit=api&open=true&key=" + ada.ID.String(), bearer(&bob), 400},
		"an unknown name": {"?limit=other", bearer(&bob), 404},
		"no limit":        {"", bearer(&bob), 400},
		"a form":          {"?limit=api&format=csv", bearer(&bob), 400},
	} {
		res := own(x.query, x.more)
		if res.StatusCode != x.status || strings.Contains(res.body, ada.ID.String()) {
			t.Errorf("%s: %s %s, want %d", what, res.Status, res.body, x.status)
		}
	}
	for _, x := range []struct {
		m    *holders.Made
		uses int64
	}{{&ada, 3}, {&bob, 1}} {
		var res reply
		eventually(t, "the holder may ask", func() bool { // some holders share a turn
			res = own("?limit=api&open=true", bearer(x.m))
			return res.StatusCode != 429
		})
		want := map[string]int64{x.m.ID.String(): x.uses}
		if res.StatusCode != 200 || !maps.Equal(units(res.body), want) {
			t.Errorf("%s %s, want only %v", res.Status, res.body, want)
		}
	}
}
