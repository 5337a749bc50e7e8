//go:build real

package server

import (
	"testing"

	"github.com/headgate/headgate"
)

// A limit that a call brings is met by one process, and its keys may be another's.
func TestALimitOfACallIsShared(t *testing.T) {
	t.Parallel()
	all := centres(t, twoSites, "sjc", "lhr")
	const name = "/override/hour/10/1"
	alone := 0 // calls that were answered too late, on a busy machine
	ask := func(dc, key string) bool {
		t.Helper()
		v, err := all[dc].s.limits.Rules.Allow(t.Context(), headgate.Ask{Limit: name, Key: key, Cost: 1})
		if err != nil {
			t.Fatal(err)
		}
		if v.Alone {
			alone++
		}
		return v.Allowed
	}
	for _, key := range []string{"bob", "eve", "mallory"} { // its host may be the one that is asked
		for i := range 10 {
			if !ask("lhr", key) && alone == 0 {
				t.Errorf("%s: call %d of 10 is refused", key, i+1)
			}
		}
		if ask("sjc", key) && alone == 0 {
			t.Errorf("%s: an eleventh call passes in the other data centre", key)
		}
	}
	if n, err := all["lhr"].s.limits.Rules.Totals(name); err != nil || n.Unreachable > 2 {
		t.Errorf("%d calls were decided without the host of their key: %v", n.Unreachable, err)
	}
}
