package lending

import (
	"testing"

	"github.com/headgate/headgate/internal/sim"
)

// On every scenario without faults headgate is never over, never early and nearly as
// good as a counter that knows everything at once.
func TestHeadgateOnEveryScenario(t *testing.T) {
	for _, s := range sim.Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			ideal, err := sim.Run(t.Context(), &s, sim.Ideal(), sim.Options{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			r, err := sim.Run(t.Context(), &s, Strategy(), sim.Options{Seed: 1, Ideal: ideal})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("admitted %.4f of ideal, early %.5f, over %d/%d, waited %.3f (%.3f), overtaken %.4f %.2f s",
				*r.AdmittedOfIdeal, r.EarlyShare, r.OvershootActive, r.OvershootRate, r.WaitedShare,
				ideal.WaitedShare, r.OvertakenShare, r.OvertakenWorst)
			t.Logf("latency %.1f %.1f ms, messages %.1f, peak %d, wait p50 %.0f max %.0f (%.0f) s",
				r.LatencyP50, r.LatencyP99, r.MessagesPerVisitor, r.PeakActive, r.WaitP50, r.WaitMax,
				ideal.WaitMax)
			if r.ExpectError != nil {
				t.Logf("expected: off %.2f within %.2f", *r.ExpectError, *r.ExpectWithin)
			}
			if r.FirstWaitUse != nil {
				t.Logf("first waited at %.3f", *r.FirstWaitUse)
			}
			if r.OvershootActive > 0 || r.OvershootRate > 0 {
				t.Error("over the limit")
			}
			if r.EarlyShare > 0 {
				t.Error("made to wait while a slot was free and due")
			}
			if *r.AdmittedOfIdeal < 0.994 {
				t.Error("admitted fewer than 99.4 % of the ideal")
			}
		})
	}
}
