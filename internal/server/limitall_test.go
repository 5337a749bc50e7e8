//go:build real

package server

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate"
)

// A request that meets several limits at once uses what is lent to its process: who is busy costs
// no message, though the limits are hosted in another data centre. All take, or none does.
func TestSeveralLimitsUseWhatIsLent(t *testing.T) {
	t.Parallel()
	const limits = `limits:
  - {name: wide, algorithm: sliding_window, amount: 1000000, window: 24h}
  - {name: wider, algorithm: token_bucket, amount: 1000000, window: 24h}
  - {name: narrow, algorithm: fixed_window, amount: 50, window: 1h, align: first_hit}
  - {name: calls, algorithm: concurrency, amount: 1, lease: 1h}
`
	all := centres(t, limits+twoSites, "sjc", "lhr")
	for try := range 5 { // on a busy machine an answer may take longer than a call waits: then another key
		if severalUseWhatIsLent(t, all["sjc"].s, all["lhr"].s, fmt.Sprint("key-", try)) {
			return
		}
	}
	t.Error("five times the host of a key did not answer in time")
}

// severalUseWhatIsLent calls with one key, and another. It ends when the host of a key has not
// answered in time, and reports that.
func severalUseWhatIsLent(t *testing.T, home, far *Server, key string) bool {
	link := far.node.Engine.Cross("sjc")
	rules := far.limits.Rules
	alone := false
	ask := func(names ...string) (passed bool) {
		t.Helper()
		asks := make([]headgate.Ask, 0, len(names))
		for _, name := range names {
			asks = append(asks, headgate.Ask{Limit: name, Key: key, Cost: 1})
		}
		vs, err := rules.AllowAll(t.Context(), asks, true)
		if err != nil {
			t.Fatal(err)
		}
		passed = true
		for _, v := range vs {
			alone = alone || v.Alone
			passed = passed && v.Allowed
		}
		return passed
	}
	totals := func(name string) headgate.LimitTotals {
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
	// What is not lent, such as a call under way, is looked at and taken as ever.
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
	// What one takes another of the same key gives back: the sum is used.
	vs, err := rules.AllowAll(t.Context(), []headgate.Ask{
		{Limit: "wide", Key: key + "two", Cost: 5}, {Limit: "wider", Key: key + "two", Cost: 1},
		{Limit: "wide", Key: key + "two", Cost: -3}}, true)
	if err != nil || !vs[0].Allowed || !vs[1].Allowed || !vs[2].Allowed {
		t.Errorf("%+v %v", vs, err)
	}
	if vs[0].Alone || vs[1].Alone || vs[2].Alone {
		return false
	}
	total++ // for the count of those that passed
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
