//go:build real

package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/ratelimit"
)

// In a cluster of one node, clients keep their usage across a restart, at once.
func TestServerLimitsOfOneNodeSurviveARestart(t *testing.T) {
	t.Parallel()
	p := &process{t: t, dir: t.TempDir(), origin: named(t, "origin")}
	plan := join.Plan{Datacenter: "sjc", Store: []string{"n1"},
		Peers: map[string]string{"n1": loopback.Address(loopback.Port(t, 3))}}
	if _, err := join.Init(p.dir, plan, time.Now()); err != nil {
		t.Fatal(err)
	}
	p.file, p.head = filepath.Join(p.dir, "headgate.yaml"), "drain_delay: 0s\ncluster: {join: n1.join}\n"
	p.write(strings.Replace(limitsFile("3", "api"), "window: 1h", "window: 60s", 1))
	p.start()
	t.Cleanup(func() { p.stop() })
	call := func(client string, want int) {
		t.Helper()
		if res := p.call(client); res.StatusCode != want {
			t.Errorf("%s: %d, want %d", client, res.StatusCode, want)
		}
	}
	for range 3 {
		call("bob", 200)
	}
	call("eve", 200)
	p.stop()
	p.start()
	call("bob", 429)
	for _, want := range []int{200, 200, 429} {
		call("eve", want)
	}
	metrics := get(t, p.operators+"/metrics", "").body
	if !strings.Contains(metrics, `headgate_limit_unreachable_total{limit="api"} 0`) {
		t.Error("it was ready before it knew what keys had used")
	}
}

const sharedLimits = `limits:
  - {name: api, algorithm: sliding_log, amount: 3, window: 1h, overrides: {eve: 2}}
  - {name: near, algorithm: sliding_log, amount: 3, window: 1h, scope: datacenter}
`

// denies is a rule with which a node denies calls while the host does not answer in time: on a busy
// machine it must not decide alone.
func denies(amount int, scope string) string {
	return strings.Replace(madeRule(amount, scope), "{", `{"on_unreachable":"deny",`, 1)
}

// nodes runs a cluster of real nodes of one data center: three store nodes, or one store node and a
// worker.
func nodes(t *testing.T, file string, names ...string) (all []*process) {
	t.Helper()
	dir, origin := t.TempDir(), named(t, "origin")
	plan := join.Plan{Datacenter: "sjc", Store: names, Peers: map[string]string{}}
	if len(names) == 2 {
		plan.Store = names[:1]
	}
	for _, name := range plan.Store {
		plan.Peers[name] = loopback.Address(loopback.Port(t, 3))
	}
	if _, err := join.Init(dir, plan, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, name := range names[len(plan.Store):] {
		if _, err := join.Node(dir, name, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for _, name := range names {
		p := &process{t: t, dir: filepath.Join(dir, name), origin: origin}
		p.file = filepath.Join(dir, name+".yaml")
		p.head = "drain_delay: 0s\ncluster: {join: " + name + ".join}\n"
		p.write(file)
		all = append(all, p)
		wg.Go(func() { p.begin() }) // none opens before another one runs
	}
	wg.Wait()
	for _, p := range all {
		t.Cleanup(func() { p.stop() })
	}
	for _, p := range all {
		p.await()
	}
	return all
}

// notYet is what the log says when a limit was published before all nodes knew it.
const notYet = "has not said yet that it knows"

// After a limit has been created, every node knows it at once, and all nodes count together.
func TestALimitIsMadeForAllNodes(t *testing.T) {
	t.Parallel()
	all := nodes(t, limitsFile("3", "api"), "n1", "n2", "n3")
	const path = "/v1/limits/partner"
	for round := range 5 {
		amount := 30 + round
		status := 200
		if round == 0 {
			status = 201
		}
		all[round%3].said("PUT", path, denies(amount, "datacenter"), status, "")
		for i, p := range all { // at once, except at a node that took longer than the answer waits
			got := p.amount("partner")
			if late := strings.Contains(all[round%3].log.String(), notYet); got != int64(amount) && !late {
				t.Errorf("round %d: at once it is %d at n%d, want %d", round, got, i+1, amount)
			}
			eventually(t, "in force", p.has("partner", int64(amount)))
		}
	}
	knownBeforeItIsTold(t, all[0], all[1])
	passes(t, all, "bob", 34)
	c, err := all[0].s.Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range all { // the leader of the store stops
		if p.s.node.Config.Node == c.Leader {
			all[i], all[2] = all[2], all[i]
		}
	}
	all[2].stop()
	eventually(t, "changed", func() bool { // the store may have no leader for a moment
		status, _ := all[0].say("PATCH", path, `{"amount":36}`)
		return status == 200
	})
	all[0].said("PUT", "/v1/limits/late", madeRule(5, "global"), 201, "")
	all[2].start()
	if a, b := all[2].amount("partner"), all[2].amount("late"); a != 36 || b != 5 {
		t.Errorf("what began later has %d and %d, want 36 and 5", a, b)
	}
	passes(t, all, "bob", 2) // 34 of 36 were used
	all[2].said("DELETE", path, "", 200, "")
	for i, p := range all {
		if got := p.asks("partner", "bob"); got != 404 && !strings.Contains(all[2].log.String(), notYet) {
			t.Errorf("it is removed, and n%d answers %d", i+1, got)
		}
	}
	if n := all[1].s.limits.Rules.Limits(); len(n) != 3 {
		t.Errorf("%d limits", len(n))
	}
}

// knownBeforeItIsTold creates a limit at a while b is busy with another change.
func knownBeforeItIsTold(t *testing.T, a, b *process) {
	t.Helper()
	told := make(chan struct{})
	late := func() int { return strings.Count(a.log.String(), notYet) }
	before := late()
	b.s.turn.Lock()
	go func() {
		defer close(told)
		a.said("PUT", "/v1/limits/partner", denies(34, "datacenter"), 200, "")
		a.said("PUT", "/v1/limits/known", madeRule(5, "datacenter"), 201, "")
	}()
	select {
	case <-told:
		t.Error("it is told before the other node knows it")
	case <-time.After(400 * time.Millisecond): // of the second that it waits
	}
	b.s.turn.Unlock()
	<-told
	if got := b.amount("known"); got != 5 && late() == before {
		t.Errorf("it is told, and %d at the other node, want 5", got)
	}
	a.said("DELETE", "/v1/limits/known", "", 200, "")
}

// A limit that comes with a call reaches one process, while another may host its keys.
func TestALimitOfACallIsShared(t *testing.T) {
	t.Parallel()
	all := centers(t, twoSites, "sjc", "lhr")
	const name = "/override/hour/10/1"
	alone := 0 // calls that were answered too late, on a busy machine
	ask := func(dc, key string) bool {
		t.Helper()
		v, err := all[dc].s.limits.Rules.Allow(t.Context(),
			ratelimit.Check{Limit: name, Key: key, Cost: 1})
		if err != nil {
			t.Fatal(err)
		}
		if v.Local {
			alone++
		}
		return v.Allowed
	}
	for _, key := range []string{"bob", "eve", "mallory"} { // the host of a key may be this node
		for i := range 10 {
			if !ask("lhr", key) && alone == 0 {
				t.Errorf("%s: call %d of 10 is refused", key, i+1)
			}
		}
		if ask("sjc", key) && alone == 0 {
			t.Errorf("%s: an eleventh call passes in the other data center", key)
		}
	}
	if n, err := all["lhr"].s.limits.Rules.Totals(name); err != nil || n.Unreachable > 2 {
		t.Errorf("%d calls were decided without the host of their key: %v", n.Unreachable, err)
	}
}

// A request body that does not arrive must not occupy a connection to the origin, with a pass or
// without.
func TestASlowBodyEnds(t *testing.T) {
	came, ended := make(chan string, 9), make(chan error, 9)
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			came <- r.URL.Path
			_, err := io.Copy(io.Discard, r.Body)
			ended <- err
		}
	}))
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, oneRoom+"request_body_timeout: 1s\n")
	pass := get(t, visitors+"/", "").cookie
	for _, line := range []string{"POST /robots.txt HTTP/1.1\r\nHost: x\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nCookie: " + pass + "\r\n"} {
		for _, body := range []string{"Content-Length: 1000\r\n\r\nslow", "Transfer-Encoding: chunked\r\n\r\n4\r\nslow\r\n"} {
			c, in := dial(t, visitors)
			io.WriteString(c, line+body)
			<-came
			select {
			case err := <-ended:
				if err == nil {
					t.Errorf("%q: the origin takes the body for whole", body)
				}
			case <-time.After(patience):
				t.Fatalf("%q: the origin still waits", body)
			}
			io.Copy(io.Discard, in) // until headgate closes the connection
		}
	}
}

// A request with several limits uses what its process has borrowed: a busy client costs no
// messages, although the limits are hosted in another data center. It takes from all limits or from
// none.
func TestSeveralLimitsUseWhatIsLent(t *testing.T) {
	t.Parallel()
	const limits = `limits:
  - {name: wide, algorithm: sliding_window, amount: 1000000, window: 24h}
  - {name: wider, algorithm: token_bucket, amount: 1000000, window: 24h}
  - {name: narrow, algorithm: fixed_window, amount: 50, window: 1h, align: first_hit}
  - {name: calls, algorithm: concurrency, amount: 1, lease: 1h}
`
	all := centers(t, limits+twoSites, "sjc", "lhr")
	for try := range 5 { // on a busy machine an answer may be late: then try another key
		if severalUseWhatIsLent(t, all["sjc"].s, all["lhr"].s, fmt.Sprint("key-", try)) {
			return
		}
	}
	t.Error("five times the host of a key did not answer in time")
}

// severalUseWhatIsLent makes calls with one key, and with another. It ends when the host of a key
// has not answered in time, and reports that.
func severalUseWhatIsLent(t *testing.T, home, far *Server, key string) bool {
	link := far.node.Engine.Link("sjc")
	rules := far.limits.Rules
	alone := false
	ask := func(names ...string) (passed bool) {
		t.Helper()
		asks := make([]ratelimit.Check, 0, len(names))
		for _, name := range names {
			asks = append(asks, ratelimit.Check{Limit: name, Key: key, Cost: 1})
		}
		vs, err := rules.AllowAll(t.Context(), asks, true)
		if err != nil {
			t.Fatal(err)
		}
		passed = true
		for _, v := range vs {
			alone = alone || v.Local
			passed = passed && v.Allowed
		}
		return passed
	}
	totals := func(name string) ratelimit.Counts {
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
	// Limits without loans, such as concurrency, are checked as always.
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
	// Two checks of the same key: one returns what the other takes, so the sum is used.
	vs, err := rules.AllowAll(t.Context(), []ratelimit.Check{
		{Limit: "wide", Key: key + "two", Cost: 5}, {Limit: "wider", Key: key + "two", Cost: 1},
		{Limit: "wide", Key: key + "two", Cost: -3}}, true)
	if err != nil || !vs[0].Allowed || !vs[1].Allowed || !vs[2].Allowed {
		t.Errorf("%+v %v", vs, err)
	}
	if vs[0].Local || vs[1].Local || vs[2].Local {
		return false
	}
	total++ // for the count of passed calls
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
