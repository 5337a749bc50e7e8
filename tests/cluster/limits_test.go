package cluster

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/usage"
	judge "github.com/headgate/headgate/tests/crowd"
)

// TestLimitsQuiet: three nodes and a worker share limits, no fault.
func TestLimitsQuiet(t *testing.T) { play(t, testLimitsQuiet) }

func testLimitsQuiet(t *testing.T) {
	c := newCallers(t, sharedRules(), 1)
	c.call(sharedLoads())
	c.end(18*time.Second, expected{ideal: 99, spent: 5000, silence: time.Second})
}

// TestLimitsGoRed: the nodes have twice the limits that the judge was told, and the judge
// must see it.
func TestLimitsGoRed(t *testing.T) { play(t, testLimitsGoRed) }

func testLimitsGoRed(t *testing.T) {
	c := newCallers(t, sharedRules(), 2)
	c.call(sharedLoads())
	c.at(10 * time.Second)
	c.stop()
	c.wg.Wait()
	figures := c.figures(expected{})
	t.Logf("\n%s", judge.Table(figures))
	for _, r := range c.rules {
		if f := figure(t, figures, r.name+": passed at most"); f.OK() {
			t.Errorf("%s: %v is no fault, though the nodes were told twice the limit", f.Name, f.Reach)
		}
	}
}

// Times without a decision. Chosen: heartbeats are missed after 2 s, and when the leader of
// the store is gone too, an election takes 4 to 9 s, or twice that.
const (
	silentHost   = 5 * time.Second
	silentLeader = 14 * time.Second
	silentStop   = 2 * time.Second
	backWithin   = 16 * time.Second // after a cut: an election twice, and the chart is read each 2 s
)

// TestLimitsKillHost: one of the three is killed while calls flow.
func TestLimitsKillHost(t *testing.T) { play(t, testLimitsKillHost) }

func testLimitsKillHost(t *testing.T) {
	c := newCallers(t, sharedRules(), 1)
	c.call(sharedLoads())
	c.at(6 * time.Second)
	c.strike(c.other(), downFor)
	c.end(18*time.Second, expected{struck: 1, spent: 4800, silence: silentHost})
}

// TestLimitsOfPlans: the same keys are called by callers of two plans and by callers of none, while
// one of the three is killed.
func TestLimitsOfPlans(t *testing.T) { play(t, testLimitsOfPlans) }

func testLimitsOfPlans(t *testing.T) {
	const deny = "on_unreachable: deny"
	c := newCallers(t, []rule{
		{name: "log", law: slidingLog, amount: 50, window: 5 * time.Second, more: deny},
		{name: "plus", of: "log", law: slidingLog, amount: 150, window: 5 * time.Second},
		{name: "pro", of: "log", law: slidingLog, amount: 300, window: 5 * time.Second},
		{name: "bucket", law: tokenBucket, amount: 50, window: 5 * time.Second, more: deny},
		{name: "large", of: "bucket", law: tokenBucket, amount: 200, window: 5 * time.Second},
	}, 1)
	var loads []load
	for _, key := range []string{"a", "b", "c"} {
		for _, limit := range []string{"log", "plus", "pro", "bucket", "large"} {
			loads = append(loads, load{limit, key, 25, 1})
		}
	}
	c.call(loads)
	c.at(6 * time.Second)
	c.strike(c.other(), downFor)
	c.end(18*time.Second, expected{struck: 1, silence: silentHost})
}

// TestLimitsKillLeader: the leader of the store is killed, which hosts keys, too.
func TestLimitsKillLeader(t *testing.T) { play(t, testLimitsKillLeader) }

func testLimitsKillLeader(t *testing.T) {
	c := newCallers(t, sharedRules(), 1)
	c.call(sharedLoads())
	c.at(6 * time.Second)
	_, leader := c.roles()
	c.strike(leader, downFor)
	c.end(25*time.Second, expected{struck: 1, spent: 4800, silence: silentLeader})
}

// TestLimitsKillBoth: two of three are killed at once, and one of them comes back: the host
// and the standby of a third of the keys are gone. These are decided again when the lease of
// the dead is over: those of seconds count as used for a window, those of the hour as what was
// written ahead.
func TestLimitsKillBoth(t *testing.T) { play(t, testLimitsKillBoth) }

func testLimitsKillBoth(t *testing.T) {
	c := newCallers(t, sharedRules(), 1)
	c.call(sharedLoads())
	c.at(6 * time.Second)
	from := c.clock()
	c.get("n1").kill()
	c.get("n2").kill()
	c.again("n1")
	c.gone("kill", "n1", from)
	t.Logf("n1 is back after %v", c.clock()-from)
	const after = 50 * time.Second // an election, the lease of 15 s, a term, a window
	c.at(after)
	c.away = append(c.away, fault{"kill", "n2", from, after, true})
	again := c.passedSince(after - 5*time.Second)
	c.lost = []string{"n2"}
	c.end(after, expected{struck: 5, spent: 4000, silence: 40 * time.Second, besides: []judge.Figure{
		least("log: passed of a, b and c in the last 5 s", again, 3*150, ""),
	}})
}

// TestLimitsFreeze: a host sleeps for 8 s, and wakes up.
func TestLimitsFreeze(t *testing.T) { play(t, testLimitsFreeze) }

func testLimitsFreeze(t *testing.T) {
	c := newCallers(t, sharedRules(), 1)
	c.call(sharedLoads())
	c.at(6 * time.Second)
	name, from := c.other(), c.clock()
	c.get(name).freeze()
	c.rest(8 * time.Second)
	c.get(name).wake()
	c.rest(time.Second)
	c.gone("freeze", name, from)
	c.end(20*time.Second, expected{struck: 1, spent: 4800, silence: silentHost})
}

// TestLimitsRollingRestart: each node is stopped in order and started again.
func TestLimitsRollingRestart(t *testing.T) { play(t, testLimitsRollingRestart) }

func testLimitsRollingRestart(t *testing.T) {
	c := newCallers(t, sharedRules(), 1)
	c.call(sharedLoads())
	for i, name := range storeNodes() {
		c.at(time.Duration(3+6*i) * time.Second)
		from := c.clock()
		c.get(name).stop()
		c.again(name)
		c.gone("restart", name, from)
	}
	c.end(24*time.Second, expected{spent: 4800, silence: silentStop})
}

// TestLimitsCut: a node is cut off from all others for 10 s, and decides by on_unreachable. When
// it comes back the store elects a leader anew, and what is handed to it meanwhile waits.
func TestLimitsCut(t *testing.T) { play(t, testLimitsCut) }

func testLimitsCut(t *testing.T) {
	rules := []rule{
		{name: "log", law: slidingLog, amount: 200, window: 5 * time.Second, more: "on_unreachable: deny"},
		// Beside what the host let pass, each of four that does not reach it lets a quarter pass.
		{name: "here", law: slidingLog, amount: 200, window: 5 * time.Second, more: "on_unreachable: local",
			most: 400},
		{name: "open", law: slidingLog, amount: 200, window: 5 * time.Second, more: "on_unreachable: allow",
			most: -1},
	}
	var loads []load
	for _, r := range rules {
		for i := range 6 {
			loads = append(loads, load{r.name, fmt.Sprintf("%s%d", r.name, i), 15, 1})
		}
	}
	c := newCallers(t, rules, 1)
	c.call(loads)
	c.at(5 * time.Second)
	name, from := c.other(), c.clock()
	c.links.sever(name, closed)
	c.rest(10 * time.Second)
	c.links.heal()
	healed := c.clock()
	const cut = 5500 * time.Millisecond // units that are held may be used for 5 s
	c.at(healed + backWithin)
	besides := c.cutFigures(name, from+cut, healed)
	c.away = append(c.away, fault{"cut", name, from, healed + backWithin, false})
	c.end(healed+backWithin, expected{struck: 1, silence: silentLeader, besides: besides})
}

// cutFigures hold what a node let pass while it was cut off against its policies.
func (c *callers) cutFigures(name string, from, to time.Duration) []judge.Figure {
	c.mu.Lock()
	calls := slices.Clone(c.calls)
	c.mu.Unlock()
	let, refusals, asked := map[string]int{}, map[string]int{}, map[string]int{}
	here := map[string][]pass{}
	back := map[string]time.Duration{}
	for _, a := range calls {
		if a.node != name {
			continue
		}
		if a.limit == "log" && a.sent > to && (a.became == decided || a.became == passed) {
			if b, ok := back[a.key]; !ok || a.ended < b {
				back[a.key] = a.ended
			}
		}
		if a.sent < from || a.ended > to {
			continue
		}
		asked[a.limit]++
		if a.became == passed {
			let[a.limit]++
			if a.limit == "here" {
				here[a.key] = append(here[a.key], pass{cost: 1, from: a.sent, to: a.ended})
			}
		} else {
			refusals[a.limit]++
		}
	}
	local := 0
	for _, ps := range here {
		n, _ := c.rules[1].inWindow(ps)
		local = max(local, n)
	}
	latest := time.Duration(0)
	for _, b := range back { // a key that never came back is missed in the count
		latest = max(latest, b-to)
	}
	return []judge.Figure{
		most("deny: passed while cut off", let["log"], 0, "of %d", asked["log"]),
		most("allow: refused while cut off", refusals["open"], 0, "of %d", asked["open"]),
		most("local: passed of a key in 5 s while cut off", local, 50, "of %d calls of 6 keys", asked["here"]),
		least("local: the same", local, 40, ""),
		least("deny: keys decided again after it", len(back), 6, "of 6, the last after %v", latest),
	}
}

// TestLimitsPatch: an amount is lowered at one node and raised at another, and all nodes
// follow.
func TestLimitsPatch(t *testing.T) { play(t, testLimitsPatch) }

func testLimitsPatch(t *testing.T) {
	rules := sharedRules()
	rules[0].most = 300
	c := newCallers(t, rules, 1)
	c.call(sharedLoads())
	c.at(6 * time.Second)
	down, took1 := c.patch("n2", 50)
	c.at(down + took1 + 11*time.Second)
	up, took2 := c.patch("w1", 300)
	const until = 8 * time.Second // after it
	c.at(up + until)
	r := &c.rules[0]
	between := c.reached(r, down+took1+r.window, up)
	after := c.reached(r, up+took2, up+until)
	c.end(up+until, expected{silence: time.Second, spent: 5000, besides: []judge.Figure{
		most("until all nodes show 50, ms", int(took1.Milliseconds()), 1000, ""),
		most("until all nodes show 300, ms", int(took2.Milliseconds()), 1000, ""),
		most("log: passed at most before", c.reached(r, 0, down), 200, ""),
		most("log: passed at most while it was 50", between, 50, ""),
		least("log: the same", between, 45, ""),
		least("log: passed at most after it was 300", after, 295, ""),
	}})
}

// reached is the most that a key of a limit has used between two moments.
func (c *callers) reached(r *rule, from, to time.Duration) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ps := range c.byKey(r.name) {
		ps = slices.DeleteFunc(ps, func(p pass) bool { return p.from < from || p.to > to })
		one, _ := r.reach(ps, c.recorder.began)
		n = max(n, one)
	}
	return n
}

// patch changes the amount of the log at one node, and says when, and how long it took until
// all show it.
func (c *callers) patch(name string, amount int) (at, took time.Duration) {
	c.t.Helper()
	n := c.get(name)
	token := n.token()
	type shown struct {
		Amount int `json:"amount"`
	}
	var now shown
	at = c.clock()
	err := c.ask(n, http.MethodPatch, "/v1/limits/log", token, fmt.Sprintf(`{"amount": %d}`, amount), &now)
	if err != nil {
		c.t.Fatal(err)
	}
	for {
		var others []string
		for _, n := range c.nodes {
			var now shown
			err := c.ask(n, http.MethodGet, "/v1/limits/log", "", "", &now)
			if err != nil || now.Amount != amount {
				others = append(others, fmt.Sprintf("%s %d %v", n.name, now.Amount, err))
			}
		}
		took = c.clock() - at
		if len(others) == 0 {
			return at, took
		}
		if took > 2*within {
			c.t.Fatalf("%v after %d was set at %s: %s", took, amount, name, strings.Join(others, ", "))
		}
		c.rest(20 * time.Millisecond)
	}
}

// passedSince is how much of the keys that are called far above the log has passed since.
func (c *callers) passedSince(from time.Duration) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.passes {
		if p.limit == "log" && len(p.key) == 1 && p.from >= from {
			n += p.cost
		}
	}
	return n
}

// TestLimitsUsageKillEach: each of the three is killed in turn while calls flow whose usage is recorded: of
// tokens, which a model server reports, and of calls. Each key is called at one node, so what the death of a
// node leaves unknown is not in the usage of keys of others.
func TestLimitsUsageKillEach(t *testing.T) { play(t, testLimitsUsageKillEach) }

func testLimitsUsageKillEach(t *testing.T) {
	const plenty, deny = 1_000_000_000, "on_unreachable: deny, usage: true"
	c := newCallers(t, []rule{
		{name: "tokens", law: fixedWindow, amount: plenty, window: time.Hour,
			more: deny + ", unit: units, cost: 1, cost_field: max_tokens, settle: {input: 1, output: 1}"},
		{name: "units", law: fixedWindow, amount: plenty, window: time.Hour, more: deny},
	}, 1)
	for i := range 4 {
		for _, n := range c.nodes {
			late := 50 * time.Millisecond * time.Duration(i)
			tokens := load{"tokens", fmt.Sprint(n.name, "-", i), 5, maxTokens}
			units := load{"units", fmt.Sprint(n.name, "-", i), 10, 1}
			c.wg.Go(func() { c.keepCalling(tokens, n, late) })
			c.wg.Go(func() { c.keepCalling(units, n, late) })
		}
	}
	c.at(6 * time.Second)
	for _, name := range storeNodes() {
		c.copied()
		c.strike(name, downFor)
		c.rest(3 * time.Second)
	}
	c.stop()
	c.wg.Wait()
	besides := c.usageFigures()
	c.end(c.clock(), expected{silence: silentLeader, besides: besides})
}

// tellWithin is how long a settlement is told that met a takeover, and a write after it.
const tellWithin = 3 * time.Minute

// usageFigures wait until the usage of all keys is what was used, and look again after the next write.
func (c *callers) usageFigures() (all []judge.Figure) {
	for until := c.clock() + tellWithin; c.clock() < until; c.rest(5 * time.Second) {
		if all = c.usageNow(); !slices.ContainsFunc(all, func(f judge.Figure) bool { return !f.OK() }) {
			break
		}
	}
	c.t.Logf("usage was waited for until %v after the last call", c.clock()-c.calls[len(c.calls)-1].ended)
	c.rest(15 * time.Second)
	return c.usageNow()
}

func (c *callers) usageNow() (all []judge.Figure) {
	for _, limit := range []string{"tokens", "units"} {
		recorded, sums := c.usage(limit)
		want, killed := used(limit, c.calls, c.away)
		wrong, example, exact, sum, total := 0, "", 0, 0, 0
		for key, n := range recorded {
			if _, ok := want[key]; !ok {
				wrong, example = wrong+1, fmt.Sprintf("%s has %d, and was never called", key, n)
			}
		}
		for key, s := range want {
			n := recorded[key]
			sum, total = sum+s.least, total+n
			// What a node was lent when it died is a sum of the limit.
			if n > s.most || n < s.least && (limit == "tokens" || !killed[key]) {
				wrong, example = wrong+1, fmt.Sprintf("%s has %d, want %d to %d", key, n, s.least, s.most)
			} else if s.least == s.most {
				exact++
			}
		}
		all = append(all,
			most(limit+": keys whose usage is wrong", wrong, 0, "%s", example),
			least(limit+": keys whose usage is known to the unit", exact, 4, "of %d", len(want)),
			least(limit+": recorded", total+sums[usage.Unreported], sum, "of which for no key %d",
				sums[usage.Unreported]),
			most(limit+": lost or dropped", sums[usage.Lost]+sums[usage.Dropped], 0, ""))
	}
	return all
}
