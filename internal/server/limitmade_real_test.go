//go:build real

package server

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/loopback"
)

// denies is a rule by which a node refuses while who counts does not answer in time: on a busy
// machine it must not decide by itself.
func denies(amount int, scope string) string {
	return strings.Replace(madeRule(amount, scope), "{", `{"on_unreachable":"deny",`, 1)
}

// nodes runs a cluster of real nodes of one data centre: three that keep the records, or one that
// does and a worker.
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
		wg.Go(func() { p.begin() }) // none opens before another one is there
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

// notYet is what the log says when a limit was told before all nodes knew it.
const notYet = "has not said yet that it knows"

// Who is told that there is a limit may ask any node, at once; all nodes count together.
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
		for i, p := range all { // at once, but for a node that took longer than the answer waits
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
	for i, p := range all { // who orders the writes goes
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

// knownBeforeItIsTold makes a limit at a while b is busy with another change.
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
