package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/quota"
	"github.com/headgate/headgate/internal/usage"
	judge "github.com/headgate/headgate/tests/crowd"
)

// A load is calls of one key at each node, evenly in time. Every other one goes through the
// proxy to the origin, where its limit is met on the way, the others ask by POST
// /v1/limits/check; what counts calls under way goes through the proxy alone.
type load struct {
	limit, key string
	perSecond  int // at each node
	cost       int
}

// Headers of calls: whose, what they cost, and when and through which node they were sent.
const (
	callKey  = "X-Key"
	callCost = "X-Cost"
	callSent = "X-Sent"
	callNode = "X-Node"
	callPlan = "X-Plan"
)

const (
	callWait  = 3 * time.Second        // for an answer. Chosen: a host is asked for 1 s at most
	callsMost = 8                      // of one key under way at a node. Chosen
	callHold  = 100 * time.Millisecond // how long the origin takes for a call that is counted while under way
)

// sharedRules are the limits of most runs (amounts: the task; the others chosen).
func sharedRules() []rule {
	const deny = "on_unreachable: deny"
	return []rule{
		{name: "log", law: slidingLog, amount: 200, window: 5 * time.Second, more: deny},
		{name: "bucket", law: tokenBucket, amount: 100, window: 5 * time.Second, more: deny},
		{name: "hour", law: fixedWindow, amount: 5000, window: time.Hour,
			more: deny + ", unit: units, cost_header: " + callCost},
		{name: "calls", law: concurrency, amount: 3, more: deny + ", lease: 20s"},
	}
}

// sharedLoads call some keys far above their limits, and others now and then: of these are
// enough for each node to host some.
func sharedLoads() []load {
	all := []load{
		{"bucket", "d", 15, 1}, {"bucket", "e", 15, 1}, {"calls", "f", 10, 1}, {"calls", "g", 10, 1},
	}
	for i := range 6 { // used up in 3 s, and in 13 s
		all = append(all, load{"hour", fmt.Sprintf("spent%d", i), 4, 125})
	}
	for i := range 3 {
		all = append(all, load{"hour", fmt.Sprintf("slow%d", i), 10, 10})
	}
	for _, key := range []string{"a", "b", "c"} {
		all = append(all, load{"log", key, 20, 1})
	}
	for i := range 16 {
		all = append(all, load{"log", fmt.Sprintf("rare%d", i), 3, 1})
	}
	return all
}

// A callers is a stage whose crowd is calls under shared limits.
type callers struct {
	*stage
	rules  []rule
	factor int // what nodes are told is so many times the amount
	origin *httptest.Server
	client *http.Client
	ctx    context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup
	away   []fault
	lost   []string // nodes that stay away

	mu     sync.Mutex
	passes []pass
	calls  []call
}

// newCallers starts three store nodes and a worker; call begins the calls.
func newCallers(t *testing.T, rules []rule, factor int) *callers {
	t.Helper()
	c := &callers{rules: rules, factor: factor}
	out := newOutside(t)
	c.client = &http.Client{Timeout: callWait,
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, DialContext: out.dial}}
	c.ctx, c.stop = context.WithCancel(t.Context())
	c.origin = out.serve(t, http.HandlerFunc(c.serve))
	t.Cleanup(func() { c.stop(); c.wg.Wait(); c.client.CloseIdleConnections(); c.origin.Close() })
	p := quiet(1000, 60_000, 10*time.Second)
	p.outside = out
	p.limits = "limits:\n"
	var plans strings.Builder
	for _, r := range rules {
		window := ""
		if r.window > 0 {
			window = fmt.Sprintf(" window: %v,", r.window)
		}
		if r.of != "" {
			plans.WriteString(fmt.Sprintf("    %s: {%s: %d}\n", r.name, r.of, r.amount*factor))
		} else {
			p.limits += fmt.Sprintf("  - {name: %s, algorithm: %s, amount: %d,%s key: [\"header:%s\"], %s}\n",
				r.name, r.law, r.amount*factor, window, callKey, r.more)
		}
		p.rooms += fmt.Sprintf("  - {name: %s, path: /%s, origin: %s, suspended: true, "+
			"total_active_users: 1, new_users_per_minute: 1, limits: [%s]}\n", r.name, r.name, c.origin.URL,
			cmp.Or(r.of, r.name))
	}
	if plans.String() != "" {
		p.limits += "trusted_proxies: [0.0.0.0/0, \"::/0\"]\nplans:\n  header: " + callPlan + "\n  amounts:\n" + plans.String()
	}
	c.stage = newStage(t, p)
	c.stage.node("w1")
	c.again("w1")
	return c
}

// serve is the origin: it notes each call when it has arrived.
func (c *callers) serve(w http.ResponseWriter, r *http.Request) {
	p := pass{limit: strings.Trim(r.URL.Path, "/"), key: r.Header.Get(callKey),
		node: r.Header.Get(callNode), cost: 1, to: c.clock()}
	if p.limit == "calls" {
		timer := time.NewTimer(callHold)
		defer timer.Stop()
		wait(r.Context(), timer)
		p.left = c.clock()
	}
	sent, err := strconv.ParseInt(r.Header.Get(callSent), 10, 64)
	if err != nil {
		c.t.Errorf("origin: %v", err)
	}
	p.from = time.Duration(sent)
	if cost := r.Header.Get(callCost); cost != "" {
		p.cost, _ = strconv.Atoi(cost)
	}
	if p.limit == "tokens" {
		p.cost = streamTokens(w, r)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passes = append(c.passes, p)
}

// Of the streams of the model server: what comes before its number of tokens, and the end.
const (
	reported  = `"prompt_tokens":0,"completion_tokens":`
	streamEnd = "data: [DONE]\n\n"
)

// streamTokens answers as a model server does, and returns the number of tokens that it has reported.
func streamTokens(w http.ResponseWriter, r *http.Request) int {
	var asked struct {
		MaxTokens int `json:"max_tokens"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return 0
	}
	n := 1 + rand.IntN(asked.MaxTokens)
	w.Header().Set("Content-Type", "text/event-stream")
	for range min(n, 3) {
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n")
		_ = http.NewResponseController(w).Flush()
		wait(r.Context(), time.NewTimer(time.Duration(rand.IntN(100))*time.Millisecond))
	}
	fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{%s%d}}\n\n%s", reported, n, streamEnd)
	return n
}

// call begins to call all nodes.
func (c *callers) call(loads []load) {
	for i, l := range loads {
		for j, n := range c.nodes {
			// At times of their own, each.
			late := time.Second * time.Duration(i*len(c.nodes)+j) /
				time.Duration(l.perSecond*len(loads)*len(c.nodes))
			c.wg.Go(func() { c.keepCalling(l, n, late) })
		}
	}
}

func (c *callers) keepCalling(l load, n *node, late time.Duration) {
	if !wait(c.ctx, time.NewTimer(late)) {
		return
	}
	tick := time.NewTicker(time.Second / time.Duration(l.perSecond))
	defer tick.Stop()
	slots := make(chan struct{}, callsMost)
	for i := 0; ; i++ {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case slots <- struct{}{}:
		default: // so many wait for answers
			continue
		}
		c.wg.Go(func() {
			defer func() { <-slots }()
			a := call{limit: l.limit, key: l.key, node: n.name, cost: l.cost, sent: c.clock()}
			if i%2 == 0 || l.limit == "calls" || l.limit == "tokens" {
				c.through(n, &a)
			} else {
				c.check(n, &a)
			}
			a.ended = c.clock()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.calls = append(c.calls, a)
		})
	}
}

// through calls through the proxy of a node.
func (c *callers) through(n *node, a *call) {
	method, body := http.MethodGet, io.Reader(nil)
	if a.limit == "tokens" {
		method, body = http.MethodPost, strings.NewReader(fmt.Sprintf(`{"stream": true, "max_tokens": %d}`, a.cost))
	}
	req, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+n.public+"/"+a.limit, body)
	if err != nil {
		panic(err)
	}
	req.Header.Set(callKey, a.key)
	req.Header.Set(callNode, a.node)
	if _, plan := c.asked(a); plan != "" {
		req.Header.Set(callPlan, plan)
	}
	req.Header.Set(callCost, strconv.Itoa(a.cost))
	req.Header.Set(callSent, strconv.FormatInt(int64(a.sent), 10))
	resp, err := c.client.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
	case resp.StatusCode == http.StatusOK:
		a.became = passed
		if _, usage, ok := strings.Cut(string(text), reported); ok {
			_, err = fmt.Sscanf(usage, "%d}", &a.cost)
		}
		if a.limit == "tokens" && (err != nil || !strings.HasSuffix(string(text), streamEnd)) {
			a.became, a.said = wrong, fmt.Sprintf("the stream ends with %q", text[max(0, len(text)-80):])
		}
	case resp.StatusCode == http.StatusTooManyRequests:
		a.became = refused
	default:
		a.became, a.said = wrong, fmt.Sprintf("%s %.200s", resp.Status, text)
	}
}

// asked returns the limit that a call meets, and the plan of its caller.
func (c *callers) asked(a *call) (limit, plan string) {
	i := slices.IndexFunc(c.rules, func(r rule) bool { return r.name == a.limit })
	if of := c.rules[i].of; of != "" {
		return of, a.limit
	}
	return a.limit, ""
}

// check asks a node. A call that it lets pass is noted as the origin notes others.
func (c *callers) check(n *node, a *call) {
	limit, plan := c.asked(a)
	body := fmt.Sprintf(`{"limit": %q, "key": %q, "cost": %d, "plan": %q}`, limit, a.key, a.cost, plan)
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, "http://"+n.admin+"/v1/limits/check",
		strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	var v struct {
		Allowed bool    `json:"allowed"`
		Reset   float64 `json:"reset_seconds"`
		Retry   float64 `json:"retry_after_seconds"`
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return
	}
	switch err = json.Unmarshal(text, &v); {
	case err != nil, resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests:
		a.became, a.said = wrong, fmt.Sprintf("%s %.200s", resp.Status, text)
	case v.Allowed:
		a.became = passed
		c.mu.Lock()
		c.passes = append(c.passes, pass{limit: a.limit, key: a.key, node: a.node, cost: a.cost,
			from: a.sent, to: c.clock()})
		c.mu.Unlock()
	case v.Reset == 0 && v.Retry == 1: // as on_unreachable: deny says
		a.became = unheard
	default:
		a.became = decided
	}
}

// gone notes that a node was away until now.
func (c *callers) gone(what, name string, from time.Duration) {
	c.away = append(c.away, fault{what, name, from, c.clock(), true})
}

// strike kills a node, which is away for a while.
func (c *callers) strike(name string, down time.Duration) {
	c.t.Helper()
	from := c.clock()
	c.get(name).kill()
	c.rest(down)
	c.again(name)
	c.gone("kill", name, from)
}

// copied waits until the keys of all shards have a standby. A node that dies alone loses nothing then.
func (c *callers) copied() {
	c.t.Helper()
	for range 60 {
		shards := 0
		for _, name := range storeNodes() {
			text, err := c.answer(c.get(name), http.MethodGet, "/metrics", "", "")
			_, n, _ := strings.Cut(string(text), `headgate_limit_shards{role="standby"} `)
			n, _, _ = strings.Cut(n, "\n")
			if copies, bad := strconv.Atoi(n); errors.Join(err, bad) == nil {
				shards += copies
			}
		}
		if shards == quota.Shards {
			return
		}
		c.rest(time.Second)
	}
	c.t.Fatal("keys have no standby after a minute")
}

// usage returns what a node knows of the usage of a limit, by key, and of each kind of sums.
func (c *callers) usage(limit string) (keys, sums map[string]int) {
	c.t.Helper()
	var text struct {
		Usage []struct {
			Kind, Key string
			Units     int
		}
		More bool
	}
	for last := 0; ; last++ {
		err := c.ask(c.get("n1"), http.MethodGet, "/v1/usage?open=true&limit="+limit, "", "", &text)
		if err == nil {
			break
		}
		if last == 10 {
			c.t.Fatal(err)
		}
		c.rest(time.Second)
	}
	keys, sums = map[string]int{}, map[string]int{}
	for _, row := range text.Usage {
		if row.Kind == usage.Used {
			keys[row.Key] += row.Units
		} else {
			sums[row.Kind] += row.Units
		}
	}
	return keys, sums
}

// other is a store node that does not lead the store: what is done to it the store does not
// feel.
func (c *callers) other() string {
	c.t.Helper()
	_, leader := c.roles()
	i := slices.IndexFunc(storeNodes(), func(s string) bool { return s != leader })
	return storeNodes()[i]
}

// stalls is by how many times the longest that this machine stood still a silence may be
// longer. Chosen: a heartbeat, an answer and a write are late one after the other.
const stalls = 3

// Expected are what a run of callers is held against.
type expected struct {
	silence time.Duration // the longest without a decision, and stalls; 0: it is only shown
	struck  int           // keys at least without one for a second: else nothing was done
	ideal   int           // percent of it at least was let pass; 0: it is only shown
	spent   int           // that was let pass of the keys of the hour, at least
	besides []judge.Figure
}

// end ends the calls at a moment and judges.
func (c *callers) end(at time.Duration, want expected) {
	c.t.Helper()
	c.at(at)
	c.stop()
	c.wg.Wait()
	for _, n := range c.nodes {
		if !slices.Contains(c.lost, n.name) {
			n.alive()
		}
	}
	figures := append(c.figures(want), want.besides...)
	c.t.Logf("%d calls, %d passed\n%s", len(c.calls), len(c.passes), judge.Table(figures))
	for _, f := range figures {
		if !f.OK() {
			c.t.Errorf("%s: %.4g, limit %.4g %s", f.Name, f.Reach, f.Limit, f.Note)
		}
	}
	if !c.t.Failed() {
		c.keepLimits(figures)
	}
}

// figures hold what was seen against what is expected.
func (c *callers) figures(want expected) (all []judge.Figure) {
	share := 100
	for i := range c.rules {
		r := &c.rules[i]
		if r.most < 0 {
			continue
		}
		most1, worst, arrived, at := 0, "", 0, time.Duration(0)
		offered, let := 0, 0
		for key, ps := range c.byKey(r.name) {
			if n, when := r.reach(ps, c.recorder.began); n >= most1 {
				most1, worst, at = n, key, when
			}
			for j := range ps { // as if nobody knew when they were sent
				ps[j].from = ps[j].to
			}
			n, _ := r.reach(ps, c.recorder.began)
			arrived = max(arrived, n)
			for _, p := range ps {
				let += p.cost
			}
		}
		all = append(all, most(r.name+": passed at most", most1, cmp.Or(r.most, r.amount),
			"%s at %v; by times of arrival %d", worst, at.Round(time.Millisecond), arrived))
		for _, cs := range c.callsOf(r.name) {
			offered += r.ideal(cs)
		}
		if r.law == concurrency || offered == 0 {
			continue
		}
		percent := 100 * let / offered
		share = min(share, percent)
		all = append(all, show(r.name+": passed, % of ideal", 100*float64(let)/float64(offered),
			"%d of %d", let, offered))
	}
	all = append(all, least("passed of what an ideal limiter lets pass, %", share, want.ideal,
		"the worst limit"))
	all = append(all, c.hourFigures(want)...)
	return append(all, c.silenceFigures(want)...)
}

// hourFigures say how much was let pass of the keys of the hour.
func (c *callers) hourFigures(want expected) []judge.Figure {
	fewest, whose, n := -1, "", 0
	for key, ps := range c.byKey("hour") {
		sum := 0
		for _, p := range ps {
			sum += p.cost
		}
		if n++; fewest < 0 || sum < fewest {
			fewest, whose = sum, key
		}
	}
	if n == 0 {
		return nil
	}
	return []judge.Figure{least("hour: used of each key", fewest, want.spent, "%s, of %d keys", whose, n)}
}

func (c *callers) silenceFigures(want expected) (all []judge.Figure) {
	quietest := silences(slices.DeleteFunc(slices.Clone(c.calls), func(a call) bool {
		return a.limit == "calls" // a proxy does not say why it refuses
	}), c.away)
	s := quietest[0]
	struck := map[string]bool{}
	var longest []string
	for _, q := range quietest {
		if q.to-q.from > time.Second {
			struck[q.limit+" "+q.key] = true
		}
		if len(longest) < 4 {
			longest = append(longest, fmt.Sprintf("%v %v", q, (q.to-q.from).Round(time.Millisecond)))
		}
	}
	limit := want.silence + stalls*c.stalled
	f := most("longest without a decision, ms", int((s.to - s.from).Milliseconds()),
		int(limit.Milliseconds()), "%s", strings.Join(longest, "; "))
	f.Show = want.silence == 0
	all = append(all, f, least("keys without a decision for a second", len(struck), want.struck, ""))
	n, example := map[outcome]int{}, ""
	for _, a := range c.calls {
		n[a.became]++
		if a.became == wrong && example == "" {
			example = fmt.Sprintf("%s %s at %s %v: %s", a.limit, a.key, a.node, a.sent, a.said)
		}
	}
	var way []time.Duration
	for _, p := range c.passes {
		way = append(way, p.to-p.from)
	}
	return append(all,
		most("answers that are errors", n[wrong], 0, "%s", example),
		show("calls without an answer", float64(n[failed]), ""),
		show("refused because their host was out of reach, of the checks", float64(n[unheard]), ""),
		show("sent to arrived, ms: half", float64(at(way, 50).Microseconds())/1e3, "99 %% %v, all %v",
			at(way, 99), at(way, 100)),
		show("this machine stood still, ms: longest", float64(c.stalled.Milliseconds()), "at %v",
			c.stalledAt))
}

// byKey are the passes of a limit.
func (c *callers) byKey(limit string) map[string][]pass {
	by := map[string][]pass{}
	for _, p := range c.passes {
		if p.limit == limit {
			by[p.key] = append(by[p.key], p)
		}
	}
	return by
}

// callsOf are the calls of a limit, by key.
func (c *callers) callsOf(limit string) map[string][]call {
	by := map[string][]call{}
	for _, a := range c.calls {
		if a.limit == limit {
			by[a.key] = append(by[a.key], a)
		}
	}
	return by
}

// limitColumns are the figures in the table, by how their names begin.
func limitColumns() []string {
	return []string{
		"log: passed at most", "bucket: passed at most", "hour: passed at most", "calls: passed at most",
		"passed of what an ideal limiter lets pass", "longest without a decision", "answers that are errors",
	}
}

// keepLimits writes a run's row into the table of shared limits.
func (c *callers) keepLimits(figures []judge.Figure) {
	c.t.Helper()
	what := deeds()[c.t.Name()]
	if *table == "" || what == "" || *beside {
		return
	}
	var row strings.Builder
	row.WriteString(fmt.Sprintf("| `%s` | %s |", c.t.Name(), what))
	for _, col := range limitColumns() {
		i := slices.IndexFunc(figures, func(f judge.Figure) bool { return strings.HasPrefix(f.Name, col) })
		switch {
		case i < 0:
			row.WriteString(" |")
		case strings.HasPrefix(col, "longest"):
			row.WriteString(fmt.Sprintf(" %.1f s |", figures[i].Reach/1000))
		case strings.HasPrefix(col, "passed of"):
			row.WriteString(fmt.Sprintf(" %.0f %% |", figures[i].Reach))
		case figures[i].Limit > 0:
			row.WriteString(fmt.Sprintf(" %.0f of %.0f |", figures[i].Reach, figures[i].Limit))
		default:
			row.WriteString(fmt.Sprintf(" %.0f |", figures[i].Reach))
		}
	}
	keepRow(c.t, "## Shared limits\n", c.t.Name(), row.String())
}
