//go:build real

package server

import (
	"testing"
)

// A worker asks another data center, by way of a store node, about shared limits and nothing
// else: what data centers tell each other holds their sealing keys.
func TestWorkerGetsNoKeysOfAnotherDataCenter(t *testing.T) {
	t.Parallel()
	all := centres(t, twoSites, "sjc", "lhr")
	thief := all["lhr"].thief("worker")
	pass := func(name string) string {
		return asked(t, thief, "global.pass.n1", `{"name":"`+name+`","msg":null}`)
	}
	eventually(t, "the home has a chart", func() bool { return len(pass("global.chart")) > 100 })
	others := []string{"share", "where", "take", "left", "limits.chart", ".share", "", "lhr.share"}
	for _, name := range others {
		if got := pass(name); got != "" {
			t.Errorf("%q: answered %.60q", name, got)
		}
	}
}
