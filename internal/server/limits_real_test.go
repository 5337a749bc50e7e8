//go:build real

package server

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/loopback"
)

// A cluster of one node: after a restart its clients have what they had, at once.
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
