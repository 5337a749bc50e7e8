package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
)

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
