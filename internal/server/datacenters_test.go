package server

import (
	"fmt"
	"testing"
	"time"
)

// within waits for something for so long, and says how long it took.
func within(t *testing.T, most time.Duration, what string, ok func() bool) {
	t.Helper()
	begin := time.Now()
	eventually(t, what, ok)
	took := time.Since(begin)
	t.Logf("%s after %v", what, took.Round(time.Millisecond))
	if took > most {
		t.Errorf("%s after %v, and not within %v", what, took, most)
	}
}

// keys are the numbers of the keys that a process opens with, by data centre.
func (p *process) keys() (all []string) {
	p.t.Helper()
	list, err := p.s.node.ListKeys()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, k := range list {
		all = append(all, fmt.Sprintf("%s-%d", k.Datacenter, k.Key))
	}
	return all
}

// pairs are the live changes in force.
func (p *process) pairs(room string) map[string]string {
	if live := p.live(room); live != nil {
		return live.Pairs
	}
	return nil
}

// shows tells whether a data centre has a message and a limit in force by live changes.
func (p *process) shows(message, limit string) func() bool {
	return func() bool {
		m := p.pairs("shop")
		return m["message"] == message && m["total_active_users"] == limit &&
			(limit == "" || fmt.Sprint(p.status("shop").TotalActiveUsers) == limit)
	}
}

func (p *process) unchanged() bool { return p.live("shop") == nil }
