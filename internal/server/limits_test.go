//go:build real

package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
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

// amount is the amount of a limit that is in force.
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

// What the file takes back does not come again with the old file: not with a reload, not with
// the next change of another limit, and not with a restart.
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

// A limit that the file has no more is as the file says when it has it again.
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

// passesOn asks a store node for a change as a worker does, which has no link; twice, as all
// store nodes hear it.
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
		b, err := p.s.node.Bus.Ask(t.Context(), "limit-at-home", msg)
		if err != nil || !strings.Contains(string(b), `"amount":"6"`) || first != "" && first != string(b) {
			t.Errorf("told %s after %s, %v", b, first, err)
		}
		first = string(b)
	}
}

// A request that meets several limits at once uses what is lent to its process: who is busy costs
// no message, though the limits are hosted in another data centre. All take, or none does.
func TestSeveralLimitsUseWhatIsLent(t *testing.T) {
	t.Parallel()
	const limits = `limits:
  - {name: wide, algorithm: sliding_window, amount: 1000000, window: 24h}
  - {name: wider, algorithm: token_bucket, amount: 1000000, window: 24h}
  - {name: narrow, algorithm: fixed_window, amount: 50, window: 1h, align: first_hit}
  - {name: calls, algorithm: concurrency, amount: 1, lease: 1h}
`
	all := centres(t, limits+twoSites, "sjc", "lhr")
	for try := range 5 { // on a busy machine an answer may take longer than a call waits: then another key
		if severalUseWhatIsLent(t, all["sjc"].s, all["lhr"].s, fmt.Sprint("key-", try)) {
			return
		}
	}
	t.Error("five times the host of a key did not answer in time")
}

// severalUseWhatIsLent calls with one key, and another. It ends when the host of a key has not
// answered in time, and reports that.
func severalUseWhatIsLent(t *testing.T, home, far *Server, key string) bool {
	link := far.node.Engine.Cross("sjc")
	rules := far.limits.Rules
	alone := false
	ask := func(names ...string) (passed bool) {
		t.Helper()
		asks := make([]headgate.Ask, 0, len(names))
		for _, name := range names {
			asks = append(asks, headgate.Ask{Limit: name, Key: key, Cost: 1})
		}
		vs, err := rules.AllowAll(t.Context(), asks, true)
		if err != nil {
			t.Fatal(err)
		}
		passed = true
		for _, v := range vs {
			alone = alone || v.Alone
			passed = passed && v.Allowed
		}
		return passed
	}
	totals := func(name string) headgate.LimitTotals {
		n, err := rules.Totals(name)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	wide, narrow := totals("wide"), totals("narrow")
	const calls = 2000
	total := 0
	for run := range 2 {
		before := link.Stats().OutMsgs
		for range calls {
			if !ask("wide", "wider") && !alone {
				t.Fatal("a call is refused")
			}
			if alone {
				return false
			}
			total++
		}
		said := link.Stats().OutMsgs - before
		t.Logf("run %d: %d messages for %d calls", run, said, calls)
		if run > 0 && said > calls {
			t.Errorf("%d messages for %d calls of a busy key", said, calls)
		}
	}
	some := 0
	for range 100 {
		if ask("wide", "narrow", "wider") {
			some++
		}
	}
	// What is not lent, such as a call under way, is looked at and taken as ever.
	under := []bool{ask("wide", "calls", "wider"), ask("wide", "calls", "wider"), ask("calls", "wide")}
	if alone {
		return false
	}
	if some != 50 {
		t.Errorf("%d of 50 pass", some)
	}
	if !under[0] || under[1] || under[2] {
		t.Errorf("%v, want one call under way", under)
	}
	total += some + 1
	eventually(t, "who was refused has taken nothing", func() bool {
		v, err := home.limits.Rules.Explain("wide", key)
		return err == nil && v.Remaining == 1000000-int64(total)
	})
	// What one takes another of the same key gives back: the sum is used.
	vs, err := rules.AllowAll(t.Context(), []headgate.Ask{
		{Limit: "wide", Key: key + "two", Cost: 5}, {Limit: "wider", Key: key + "two", Cost: 1},
		{Limit: "wide", Key: key + "two", Cost: -3}}, true)
	if err != nil || !vs[0].Allowed || !vs[1].Allowed || !vs[2].Allowed {
		t.Errorf("%+v %v", vs, err)
	}
	if vs[0].Alone || vs[1].Alone || vs[2].Alone {
		return false
	}
	total++ // for the count of those that passed
	eventually(t, "the sum is what is used", func() bool {
		v, err := home.limits.Rules.Explain("wide", key+"two")
		return err == nil && v.Remaining == 1000000-2
	})
	n := totals("wide")
	if passed := n.Passed - wide.Passed; passed != uint64(total) || n.Refused != wide.Refused ||
		n.Unreachable != wide.Unreachable {
		t.Errorf("%+v after %+v, want %d to have passed", n, wide, total)
	}
	n = totals("narrow")
	if n.Passed-narrow.Passed != 50 || n.Refused-narrow.Refused != 50 {
		t.Errorf("%+v after %+v, want 50 to have passed and 50 to be refused", n, narrow)
	}
	return true
}

// A limit of all data centres is made and removed at any of them; not while the home is away.
func TestALimitOfAllIsMadeAnywhere(t *testing.T) {
	t.Parallel()
	all := centres(t, sharedLimits+twoSites, "sjc", "lhr")
	sjc, lhr := all["sjc"], all["lhr"]
	const path = "/v1/limits/partner"
	lhr.said("PUT", path, denies(7, "global"), 201, `"amount":7`)
	if got := sjc.amount("partner"); got != 7 {
		t.Errorf("at once it is %d in the home, want 7", got)
	}
	sjc.said("PUT", path, denies(8, "global"), 200, "")
	within(t, found, "replaced at lhr", lhr.has("partner", 8))
	lhr.said("PATCH", path, `{"overrides.bob":50}`, 200, `"overrides":{"bob":50,"eve":1}`)
	sjc.said("PATCH", path, `{"amount":9}`, 200, `"overrides":{"bob":50,"eve":1}`)
	within(t, found, "changed at lhr", lhr.has("partner", 9))
	passes(t, []*process{sjc, lhr}, "zoe", 9)

	// What is of one data centre is its own, also by its name.
	lhr.said("PUT", "/v1/limits/own", madeRule(3, "datacenter"), 201, "")
	lhr.said("PUT", "/v1/limits/own", madeRule(3, "global"), 409, "has another scope")
	lhr.said("PUT", path, madeRule(3, "worker"), 409, "has another scope")
	sjc.said("PUT", "/v1/limits/own", madeRule(4, "worker"), 201, "")
	lhr.said("PUT", "/v1/limits/api", madeRule(3, "global"), 409, "stands in the configuration")

	// One that was away finds what it has missed, also what was removed.
	sjc.said("PUT", "/v1/limits/gone", madeRule(3, "global"), 201, "")
	within(t, found, "made at lhr", lhr.has("gone", 3))
	lhr.stop()
	sjc.said("PUT", path, madeRule(10, "global"), 200, "")
	sjc.said("DELETE", "/v1/limits/gone", "", 200, "")
	lhr.start()
	within(t, found, "what was missed is found", func() bool {
		return lhr.amount("partner") == 10 && lhr.amount("gone") == -1
	})

	sjc.stop()
	lhr.said("PUT", path, madeRule(11, "global"), 503, "sjc, which does not answer")
	lhr.said("PATCH", path, `{"amount":11}`, 503, "sjc, which does not answer")
	lhr.said("DELETE", path, "", 503, "sjc, which does not answer")
	lhr.said("PUT", "/v1/limits/own", madeRule(5, "datacenter"), 200, "")
	lhr.stop()
	lhr.begin() // it is ready when those who count what all share answer
	if a, b := lhr.amount("partner"), lhr.amount("own"); a != 10 || b != 5 {
		t.Errorf("after a restart without the home %d and %d, want 10 and 5", a, b)
	}
	sjc.start()
	lhr.await()
	if a, b := sjc.amount("partner"), sjc.amount("own"); a != 10 || b != 4 {
		t.Errorf("the home has %d and %d, want 10 and 4", a, b)
	}

	// The home's file wins, and lhr may not make what it has.
	sjc.write(strings.Replace(sharedLimits, "{name: near,", "{name: partner,", 1) + twoSites)
	sjc.reload()
	lhr.said("PUT", path, madeRule(12, "global"), 409, `refuses it: limit \"partner\" stands in the configuration`)
	lhr.said("DELETE", path, "", 200, "")
	if a, b := sjc.amount("partner"), lhr.amount("partner"); a != 3 || b != -1 {
		t.Errorf("removed, it is %d where the file has it and %d elsewhere, want 3 and -1", a, b)
	}
	askedOfAStoreNode(t, lhr)
}

// A limit of all data centres is changed at any of them: it holds in all, also after restarts,
// and is not changed while the home is out of reach.
func TestALimitOfAllIsChangedAnywhere(t *testing.T) {
	t.Parallel()
	all := centres(t, sharedLimits+twoSites, "sjc", "lhr")
	sjc, lhr := all["sjc"], all["lhr"]
	lhr.setAmount("api", 7)
	if got := lhr.amount("api"); got != 7 {
		t.Errorf("where it was said it is %d, want 7", got)
	}
	within(t, pushed, "in force in the home", sjc.has("api", 7))
	sjc.setAmount("api", 8)
	within(t, found, "in force at lhr", lhr.has("api", 8))
	err := lhr.s.limits.Change(t.Context(), "api", map[string]string{"overrides.bob": "50"})
	if err != nil {
		t.Fatal(err)
	}
	within(t, pushed, "the amount of one key is in force in the home", func() bool {
		return sjc.s.limits.Rules.Limits()[0].Overrides["bob"] == 50 && sjc.amount("api") == 8
	})
	if len(sjc.s.set.Load().cfg.Limits[0].Overrides) > 1 {
		t.Error("the change has changed what the file says")
	}
	many := map[string]string{}
	for i := range 300 {
		many[fmt.Sprintf("overrides.%01000d", i)] = "1"
	}
	err = lhr.s.limits.Change(t.Context(), "api", many)
	if _, ok := errors.AsType[*api.NotKept](err); !ok || !strings.Contains(err.Error(), "too many") {
		t.Errorf("more changes than are kept: %v", err)
	}
	lhr.setAmount("near", 4)
	passesOn(t, lhr)
	within(t, pushed, "what a worker of lhr has asked for is in force in the home", sjc.has("api", 6))
	lhr.stop()
	sjc.setAmount("api", 10)
	lhr.start()
	within(t, found, "what was missed is found", lhr.has("api", 10))

	sjc.stop()
	err = lhr.s.limits.Change(t.Context(), "api", map[string]string{"amount": "11"})
	e, ok := errors.AsType[*api.NotKept](err)
	if !ok || !strings.Contains(e.Why, "sjc, which does not answer") {
		t.Errorf("without the home: %v", err)
	}
	if got := lhr.amount("api"); got != 10 {
		t.Errorf("a change that was refused is in force: %d", got)
	}
	lhr.stop()
	lhr.begin() // it is ready when it knows who counts what all share
	if a, b := lhr.amount("api"), lhr.amount("near"); a != 10 || b != 4 {
		t.Errorf("after a restart without the home %d and %d, want 10 and 4", a, b)
	}
	sjc.start()
	lhr.await()
	if a, b := sjc.amount("api"), sjc.amount("near"); a != 10 || b != 3 {
		t.Errorf("the home has %d and %d, want 10, and 3 of what is not of all", a, b)
	}
	err = lhr.s.limits.Change(t.Context(), "api", map[string]string{"amount": "12", "burst": "2"})
	if err == nil || !strings.Contains(err.Error(), "burst") {
		t.Errorf("what makes no sense: %v", err)
	}
	sjc.write(strings.Replace(sharedLimits, "amount: 3,", "amount: 5,", 1) + twoSites)
	sjc.reload()
	if got := sjc.amount("api"); got != 5 {
		t.Errorf("the file of the home says 5, and it is %d", got)
	}
	within(t, found, "dropped at lhr, whose file says 3", lhr.has("api", 3))
}

// overriding are headers by which origins see another URL or another method than headgate did.
// gunicorn cuts SCRIPT_NAME off the path.
const (
	otherURL = "X-Original-URL: /6.6.6.6\r\nX-Rewrite-Url: /6.6.6.6\r\nX-Original-URI: /6.6.6.6\r\n" +
		"SCRIPT_NAME: /6.6.6.6\r\nPath-Info: /6.6.6.6\r\n"
	otherMethod = "X-HTTP-Method-Override: POST6\r\nx-http-method: POST6\r\nX-Method-Override: POST6\r\n" +
		"X-Original-Method: POST6\r\n"
	spelled = "X_Original_URL: /6.6.6.6\r\nX.Rewrite.URL: /6.6.6.6\r\nX_Original-URI: /6.6.6.6\r\n" +
		"X_HTTP_Method_Override: 6.6.6.6\r\nX_Method.Override: 6.6.6.6\r\nX~Http!Method: 6.6.6.6\r\n"
)

// A request that passes for its path or its method must be that request to the origin.
func TestNoOtherURLAndMethodForTheOrigin(t *testing.T) {
	const rule = "  - {name: rule, path: /rule, origin: ORIGIN, total_active_users: 1, new_users_per_minute: 1, " +
		"rules: [{action: bypass, expression: 'http.request.method eq \"GET\"'}]}\n"
	url, heads := rawOrigin(t)
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
			if x.stay && keys != "" { // the proxy says which URL it was asked for
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
