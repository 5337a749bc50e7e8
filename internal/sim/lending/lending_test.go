package lending

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/sim"
)

func play(t *testing.T, s *sim.Scenario) (ideal, r *sim.Result) {
	t.Helper()
	ideal, err := sim.Run(t.Context(), s, sim.Ideal(), sim.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	r, err = sim.Run(t.Context(), s, Strategy(), sim.Options{Seed: 1, Ideal: ideal})
	if err != nil {
		t.Fatal(err)
	}
	return ideal, r
}

// Whatever breaks, headgate is never over.
func TestHeadgateIsNeverOverUnderFaults(t *testing.T) {
	for _, s := range sim.Scenarios() {
		if s.Name == "flash-crowd" || s.Name == "two-days" || testing.Short() && s.Name != "world-spike" {
			continue // the others reach what there is, in less time
		}
		s.Faults = sim.Faults{
			Lose: 0.05, Repeat: 0.05, Drift: 0.001, Offset: time.Hour,
			Crash: 5 * time.Minute, Down: 10 * time.Second,
			Pause: 5 * time.Minute, Paused: 10 * time.Second,
			Cut: 10 * time.Minute, Cuts: 20 * time.Second,
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			_, r := play(t, &s)
			t.Logf("let in %.3f of ideal, overtaken %.3f", *r.AdmittedOfIdeal, r.OvertakenShare)
			if r.OvershootActive > 0 || r.OvershootRate > 0 {
				t.Errorf("over by %d and %d", r.OvershootActive, r.OvershootRate)
			}
		})
	}
}

func TestTheSameSeedPlaysTheSame(t *testing.T) {
	c := RandomCase(3)
	run := func() *sim.Result {
		r, err := sim.Run(t.Context(), c.scenario(), Strategy(), sim.Options{Seed: c.Seed})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b := run(), run()
	if a.WaitMax != b.WaitMax || a.MessagesPerVisitor != b.MessagesPerVisitor || a.Admitted != b.Admitted {
		t.Errorf("two runs of one seed differ: %+v and %+v", a, b)
	}
}
