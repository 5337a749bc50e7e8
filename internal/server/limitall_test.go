package server

import (
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
	far := all["lhr"].s
	link := far.durable.engine.Cross("sjc")
	ask := func(names ...string) (passed bool) {
		t.Helper()
		asks := make([]headgate.Ask, 0, len(names))
		for _, name := range names {
			asks = append(asks, headgate.Ask{Limit: name, Key: "k", Cost: 1})
		}
		vs, err := far.limits.rules.AllowAll(t.Context(), asks, true)
		if err != nil {
			t.Fatal(err)
		}
		passed = true
		for i, v := range vs {
			if v.Alone {
				t.Fatalf("%s is out of reach", names[i])
			}
			passed = passed && v.Allowed
		}
		return passed
	}
	const calls = 2000
	total := 0
	for run := range 2 {
		before := link.Stats().OutMsgs
		for range calls {
			if !ask("wide", "wider") {
				t.Fatal("a call is refused")
			}
			total++
		}
		said := link.Stats().OutMsgs - before
		t.Logf("run %d: %d messages for %d calls", run, said, calls)
		if run > 0 && said > calls {
			t.Errorf("%d messages for %d calls of a busy key", said, calls)
		}
	}
	narrow := 0
	for range 100 {
		if ask("wide", "narrow", "wider") {
			narrow++
		}
	}
	if narrow != 50 {
		t.Errorf("%d of 50 pass", narrow)
	}
	total += narrow
	// What is not lent, such as a call under way, is looked at and taken as ever.
	if !ask("wide", "calls", "wider") || ask("wide", "calls", "wider") || ask("calls", "wide") {
		t.Error("want one call under way")
	}
	total++
	eventually(t, "who was refused has taken nothing", func() bool {
		v, err := all["sjc"].s.limits.rules.Explain("wide", "k")
		return err == nil && v.Remaining == 1000000-int64(total)
	})
	// What one takes another of the same key gives back: the sum is used.
	vs, err := far.limits.rules.AllowAll(t.Context(), []headgate.Ask{
		{Limit: "wide", Key: "two", Cost: 5}, {Limit: "wider", Key: "two", Cost: 1},
		{Limit: "wide", Key: "two", Cost: -3}}, true)
	if err != nil || !vs[0].Allowed || !vs[1].Allowed || !vs[2].Allowed {
		t.Errorf("%+v %v", vs, err)
	}
	total++ // for the count of those that passed
	eventually(t, "the sum is what is used", func() bool {
		v, err := all["sjc"].s.limits.rules.Explain("wide", "two")
		return err == nil && v.Remaining == 1000000-2
	})
	n, err := far.limits.rules.Totals("wide")
	if err != nil || n.Passed != uint64(total) || n.Refused != 0 || n.Unreachable != 0 {
		t.Errorf("%+v %v, want %d to have passed", n, err, total)
	}
	n, err = far.limits.rules.Totals("narrow")
	if err != nil || n.Passed != 50 || n.Refused != 50 {
		t.Errorf("%+v %v, want 50 to have passed and 50 to be refused", n, err)
	}
}
