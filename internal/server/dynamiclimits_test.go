package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// say sends a change as an operator.
func (p *process) say(method, path, body string) (status int, answer string) {
	p.t.Helper()
	r := operate(p.t, p, method, path, body)
	return r.StatusCode, r.body
}

// said is say that checks the status and a part of the answer.
func (p *process) said(method, path, body string, want int, holds string) {
	p.t.Helper()
	if got, answer := p.say(method, path, body); got != want || !strings.Contains(answer, holds) {
		p.t.Errorf("%s %s %.200s: %d %s, want %d %s", method, path, body, got, answer, want, holds)
	}
}

// asks makes one call with a key and returns its status; 404 if the limit is unknown.
func (p *process) asks(limit, key string) int {
	status, _ := p.tries(limit, key)
	return status
}

// tries is asks that also reports whether the node decided alone.
func (p *process) tries(limit, key string) (status int, alone bool) {
	p.t.Helper()
	res, err := http.Post(p.operators+"/v1/limits/check", "application/json",
		bytes.NewBufferString(fmt.Sprintf(`{"limit":%q,"key":%q}`, limit, key)))
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct {
		Unreachable bool `json:"unreachable"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		p.t.Error(res.Status, err)
	}
	return res.StatusCode, answer.Unreachable
}

func (p *process) restart() { p.stop(); p.start() }

const made = `{"algorithm":"sliding_log","amount":AMOUNT,"window":"1h","overrides":{"eve":1},` +
	`"headers":"legacy","scope":"SCOPE"}`

func madeRule(amount int, scope string) string {
	return strings.NewReplacer("AMOUNT", fmt.Sprint(amount), "SCOPE", scope).Replace(made)
}

func TestALimitIsMadeReplacedAndRemoved(t *testing.T) {
	p := run(t, limitsFile("3", "api, all"))
	const path = "/v1/limits/partner"
	status, answer := p.say("PUT", path, madeRule(2, "global"))
	if status != 201 || answer != get(t, p.operators+path, "").body ||
		!strings.Contains(answer, `"amount":2,"unit":"requests","window":"1h0m0s"`) ||
		!strings.Contains(answer, `"overrides":{"eve":1},"source":"made"`) {
		t.Errorf("%d %s", status, answer)
	}
	if !strings.Contains(get(t, p.operators+"/v1/limits/api", "").body, `"source":"file"`) {
		t.Error("it is not told that a limit is of the file")
	}
	for i, want := range []int{200, 200, 429} {
		if got := p.asks("partner", "bob"); got != want {
			t.Errorf("call %d: %d, want %d", i, got, want)
		}
	}
	if style := p.s.limits.style("partner"); style != "legacy" {
		t.Errorf("answers are in the style %q", style)
	}
	p.said("PUT", path, madeRule(4, "global"), 200, `"amount":4`)
	p.said("PATCH", path, `{"amount":5,"overrides.zoe":9}`, 200, `"overrides":{"eve":1,"zoe":9}`)
	p.said("PATCH", path, `{"burst":5}`, 422, "burst belongs to")
	p.said("PATCH", path, `{"parts":5}`, 422, "parts cannot be changed here")
	for i, want := range []int{200, 200, 200, 429} {
		if got := p.asks("partner", "bob"); got != want {
			t.Errorf("call %d after 2 of 2 were used and it is 5: %d, want %d", i, got, want)
		}
	}
	p.reload()
	if got := p.asks("partner", "bob"); got != 429 {
		t.Errorf("after a reload, all is used: %d", got)
	}
	p.restart()
	after := get(t, p.operators+path, "").body
	if !strings.Contains(after, `"amount":5`) || !strings.Contains(after, `"zoe":9`) {
		t.Errorf("after a reload and a restart: %s", after)
	}
	p.said("PUT", path, madeRule(3, "worker"), 200, `"overrides":{"eve":1},"source"`) // zoe is gone
	p.said("DELETE", path, "", 200, `{"removed":true,"in_file":false}`)
	p.said("DELETE", path, "", 404, "no_such_limit")
	if got := p.asks("partner", "bob"); got != 404 {
		t.Errorf("it is removed, and answers %d", got)
	}
	p.restart()
	if p.amount("partner") != -1 || p.amount("api") != 3 {
		t.Error("what was removed came back with a restart, or took the file's along")
	}
}

// The file takes precedence; a limit made by the API is stored and takes effect when the file has
// none of its name.
func TestTheFileWinsOverALimitThatWasMade(t *testing.T) {
	p := run(t, limitsFile("3", "api, all"))
	p.said("PUT", "/v1/limits/api", madeRule(9, "global"), 409, "stands in the configuration")
	p.said("DELETE", "/v1/limits/api", "", 409, "change the file, and reload")
	p.said("PUT", "/v1/limits/extra", madeRule(9, "global"), 201, "")
	p.said("PATCH", "/v1/limits/extra", `{"amount":8}`, 200, "")
	p.asks("extra", "bob")
	more := strings.Replace(limitsFile("3", "api"), "{name: all,", "{name: extra,", 1)
	p.write(more)
	if got := p.reload(); len(got.Covered) != 1 || got.Covered[0] != "extra" {
		t.Errorf("the reload does not tell: %+v", got)
	}
	if p.amount("extra") != 1000 || !strings.Contains(p.log.String(), "limits that were made are not in force") {
		t.Errorf("the file says 1000, and it is %d", p.amount("extra"))
	}
	p.said("PUT", "/v1/limits/extra", madeRule(9, "global"), 409, "stands in the configuration")
	p.restart()
	if p.amount("extra") != 1000 {
		t.Errorf("after a restart it is %d", p.amount("extra"))
	}
	p.write(limitsFile("3", "api, all"))
	p.reload()
	if p.amount("extra") != 8 {
		t.Errorf("the file has it no more, and what was made is %d, want 8", p.amount("extra"))
	}
	p.write(more)
	p.reload()
	p.said("DELETE", "/v1/limits/extra", "", 200, `"in_file":true`)
	if p.amount("extra") != 1000 {
		t.Error("the limit of the file is gone too")
	}
	p.write(limitsFile("3", "api, all"))
	p.reload()
	if p.amount("extra") != -1 {
		t.Errorf("what was removed came back: %d", p.amount("extra"))
	}
}

func TestOfBadInputNoLimitIsMade(t *testing.T) {
	p := run(t, limitsFile("3", "api, all"))
	big := func(n int) string {
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprintf(`"%064d":%d`, i, i))
		}
		return strings.Replace(made, `"eve":1`, strings.Join(keys, ","), 1)
	}
	big50 := strings.NewReplacer("AMOUNT", "1", "SCOPE", "global").Replace(big(700))
	for _, c := range []struct {
		name, body string
		want       int
		holds      string
	}{
		{"x", "", 422, "the limit is empty"},
		{"x", "{}", 422, `"key":"algorithm","problem":"is missing"`},
		{"x", "[]", 422, "is a list, not an object"},
		{"x", "amount: 3", 422, "is not valid JSON"},
		{"x", `{"algorithm":"sliding_log","amount":1,"window":"1s"}{}`, 422, "is not valid JSON"},
		{"x", `{"algorithm":"sliding_log","amuont":1,"window":"1s"}`, 422,
			`"key":"amuont","problem":"there is no such key"`},
		{"x", `{"algorithm":"sliding_log","amount":"1","window":"1s"}`, 422, `"column":37,"key":"amount"`},
		{"x", `{"algorithm":"sliding_log","amount":1e99,"window":"1s"}`, 422, `"key":"amount"`},
		{"x", `{"algorithm":"sliding_log","amount":1,"window":"999999h"}`, 422, `"key":"window"`},
		{"x", `{"algorithm":"sliding_log","amount":1,"window":"1s","max_keys":0}`, 422, `"key":"max_keys"`},
		{"x", `{"algorithm":"leaky_bucket","paced":true,"amount":0,"window":"1s"}`, 422, `"key":"amount"`},
		{"x", `{"algorithm":"sliding_log","amount":1,"window":"1s","name":"y"}`, 422, `"key":"name"`},
		{"x", strings.Repeat(" ", 70<<10), 413, "body_too_large"},
		{"x", strings.Repeat("[", 30<<10), 422, "is not valid JSON"},
		{"a b", madeRule(1, "global"), 422, `"key":"name"`},
		{"a/b", madeRule(1, "global"), 409, "rules for Envoy"},
		{"..%2f", madeRule(1, "global"), 422, `"key":"name"`},
		{"\xff\x00", madeRule(1, "global"), 422, `"key":"name"`},
		{strings.Repeat("n", 65), madeRule(1, "global"), 422, `"key":"name"`},
		{strings.Repeat("n", 5000), madeRule(1, "global"), 422, `"key":"name"`},
	} {
		p.said("PUT", "/v1/limits/"+escaped(c.name), c.body, c.want, c.holds)
	}
	p.said("PUT", "/v1/limits/", madeRule(1, "global"), 404, "no_such_path")
	if n := len(p.s.limits.Rules.Limits()); n != 2 {
		t.Errorf("%d limits, want the two of the file", n)
	}
	p.said("PUT", "/v1/limits/big", big50, 201, "")
	p.said("PUT", "/v1/limits/big2", big50, 201, "")
	p.said("PUT", "/v1/limits/big3", big50, 409, "larger than 128 KB together")
	p.said("PATCH", "/v1/limits/big2", `{"overrides.`+strings.Repeat("k", 1000)+`":1}`, 200, "")
	many := map[string]string{}
	for i := range 50 {
		many[fmt.Sprintf("overrides.%01000d", i)] = "1"
	}
	b, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	p.said("PATCH", "/v1/limits/big2", string(b), 409, "larger than 128 KB together")
	p.said("PUT", "/v1/limits/big3", strings.Replace(big50, "global", "worker", 1), 201, "") // another set
	for _, name := range []string{"big", "big2", "big3"} {
		p.said("DELETE", "/v1/limits/"+name, "", 200, "")
	}
}

// escaped encodes any text as one part of a path.
func escaped(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

// A stored limit that cannot be read, because of a newer headgate or a damaged disk, affects
// nothing else.
func TestALimitThatCannotBeReadStopsNothing(t *testing.T) {
	p := run(t, limitsFile("3", "api, all"))
	p.said("PUT", "/v1/limits/good", madeRule(2, "global"), 201, "")
	doc := store.Doc[map[string]any]{Store: p.s.node.Records, Key: "limits-made"}
	_, err := doc.Edit(t.Context(), func(r *map[string]any) (bool, error) {
		(*r)["own"] = map[string]any{"version": 1, "limits": map[string]any{
			"odd": map[string]any{"rule": map[string]any{"algorithm": "of_tomorrow"}}}}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p.restart()
	if p.amount("good") != 2 || p.amount("odd") != -1 || p.amount("api") != 3 ||
		!strings.Contains(p.log.String(), "is not in force here as it was made") {
		t.Errorf("good %d, odd %d, api %d", p.amount("good"), p.amount("odd"), p.amount("api"))
	}
	p.said("DELETE", "/v1/limits/odd", "", 200, "")
	p.said("PUT", "/v1/limits/odd", madeRule(2, "global"), 201, "")
}

// A rewound store returns an old value of a key, as a leader does that has not received the latest
// writes.
type rewound struct {
	store.Store
	key string
	on  atomic.Bool

	value    []byte // nil: not written yet
	revision uint64
}

// keep makes the store return the present value of a key from now on, while it is on.
func (r *rewound) keep(t *testing.T, key string) {
	t.Helper()
	var err error
	if r.value, r.revision, err = r.Store.Load(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	r.key = key
}

// rewind puts a rewound store under a process.
func rewind(p *process, key string) *rewound {
	r := &rewound{Store: p.s.node.Records, key: key}
	p.s.turn.Lock()
	defer p.s.turn.Unlock()
	p.s.node.Records = r
	return r
}

func (r *rewound) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	if r.on.Load() && key == r.key {
		if r.value == nil {
			return nil, 0, store.ErrNotFound
		}
		return r.value, r.revision, nil
	}
	return r.Store.Load(ctx, key)
}

// An outdated value from an old leader of the store must not remove a limit, and with it the usage
// of its keys.
func TestAnOldRecordRemovesNoLimit(t *testing.T) {
	p := run(t, limitsFile("3", "api, all"))
	p.said("PUT", "/v1/limits/partner", madeRule(2, "global"), 201, "")
	r := rewind(p, "limits-made")
	for i, want := range []int{200, 200, 429} {
		if got := p.asks("partner", "bob"); got != want {
			t.Fatalf("call %d: %d, want %d", i+1, got, want)
		}
	}
	for _, old := range []bool{true, false} {
		r.on.Store(old)
		p.s.limits.TakeNews(t.Context())
		if got := p.asks("partner", "bob"); got != 429 {
			t.Errorf("old %v: a call more is answered %d", old, got)
		}
	}
	p.said("DELETE", "/v1/limits/partner", "", 200, "")
	if got := p.asks("partner", "bob"); got != 404 {
		t.Errorf("it is removed, and answered %d", got)
	}
}

// The same for a value that has other limits but not this one, of all data centers or of this one,
// and for one with the former amount.
func TestAnOlderRecordPutsNothingBeforeIntoForce(t *testing.T) {
	for _, scope := range []string{"global", "datacenter"} {
		p := run(t, limitsFile("3", "api, all"))
		p.said("PUT", "/v1/limits/before", madeRule(2, scope), 201, "")
		p.said("PATCH", "/v1/limits/api", `{"amount":9}`, 200, "")
		r := rewind(p, "limits-made")
		r.keep(t, "limits-made")
		p.said("PUT", "/v1/limits/partner", madeRule(2, scope), 201, "")
		for i, want := range []int{200, 200, 429} {
			if got := p.asks("partner", "bob"); got != want {
				t.Fatalf("call %d: %d, want %d", i+1, got, want)
			}
		}
		for _, old := range []bool{true, false} {
			r.on.Store(old)
			p.s.limits.TakeNews(t.Context())
			if got := p.asks("partner", "bob"); got != 429 {
				t.Errorf("scope %s, old %v: a call more is answered %d", scope, old, got)
			}
		}
		r.keep(t, "limit-changes")
		p.said("PATCH", "/v1/limits/api", `{"amount":4}`, 200, "")
		for _, old := range []bool{true, false} {
			r.on.Store(old)
			p.s.limits.TakeNews(t.Context())
			if got := p.amount("api"); got != 4 {
				t.Errorf("scope %s, old %v: the amount is %d, want 4", scope, old, got)
			}
		}
	}
}

// passes makes calls with one key at all nodes in turn until many were denied: exactly the expected
// number passes, whichever the node. A call that the host did not answer in time was denied, and
// may have been counted.
func passes(t *testing.T, all []*process, key string, most int) {
	t.Helper()
	passed, refused, lost := 0, 0, 0
	for i, end := 0, time.Now().Add(time.Minute); refused < 24 && time.Now().Before(end); i++ {
		switch got, alone := all[i%len(all)].tries("partner", key); {
		case got == 200:
			passed++
		case got == 429 && !alone:
			refused++
		case got == 429 || got == 503:
			lost++
		default:
			t.Fatalf("call %d: %d", i, got)
		}
	}
	if passed > most || passed+lost < most || refused < 24 {
		t.Errorf("%d calls passed, want %d; %d were refused, and %d not answered", passed, most, refused, lost)
	}
}

// askedOfAStoreNode sends a request to a store node as a worker does, which has no link; twice,
// because all store nodes receive it.
func askedOfAStoreNode(t *testing.T, p *process) {
	t.Helper()
	var r struct{ All struct{ Version uint64 } }
	record, _, err := p.s.node.Records.Load(t.Context(), "limits-made")
	if err == nil {
		err = json.Unmarshal(record, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	msg, err := json.Marshal(map[string]any{"name": "asked", "next": map[string]any{}, "made": map[string]any{
		"was": r.All.Version, "next": r.All.Version + 1,
		"put": map[string]any{"rule": json.RawMessage(madeRule(6, "global"))}}})
	if err != nil {
		t.Fatal(err)
	}
	var first string
	for range 2 {
		b, err := p.s.node.Bus.Request(t.Context(), "limit-at-home", msg)
		known := strings.Contains(string(b), `"asked":{"rule":`)
		if err != nil || !known || first != "" && first != string(b) {
			t.Errorf("told %s after %s, %v", b, first, err)
		}
		first = string(b)
	}
}
