package figure

import (
	"context"
	"math"
	"time"

	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/sim/report"
)

// Played returns the figures that need whole runs: the two days of Cloudflare's customer, and a
// gradual against a steep rise around 750. split is a strategy that divides slots as the documents
// describe; ours is headgate. It stops early when ctx is done.
func Played(ctx context.Context, seed uint64, split, ours sim.Strategy) ([]report.Figure, error) {
	days, err := twoDays(ctx, seed, ours)
	if err != nil {
		return nil, err
	}
	rises, err := around750(ctx, seed, split, ours)
	return []report.Figure{days, rises}, err
}

func twoDays(ctx context.Context, seed uint64, ours sim.Strategy) (report.Figure, error) {
	f := report.Figure{
		ID: "cloudflare-two-days", Title: "Two days under 200 at once and 200 a minute",
		Source: `Cloudflare, "How Waiting Room makes queueing decisions" (2023); rates are chosen`,
		XLabel: "hours", YLabel: "visitors",
		Note: "The line forms when 200 are inside, about 11:45 of the second day, is gone about 12:30 " +
			"and forms again about 15:00. Inside stays at 200 to the end of each line.",
	}
	s, err := sim.Find(sim.Scenarios(), "two-days")
	if err != nil {
		return f, err
	}
	r, err := sim.Run(ctx, s, ours, sim.Options{Seed: seed})
	if err != nil {
		return f, err
	}
	inside, wait := report.Series{Name: "inside"}, report.Series{Name: "waiting"}
	for i := range r.Series.Active {
		at := (time.Duration(i) * r.Series.Step).Hours()
		inside.Add(at, r.Series.Active[i])
		wait.Add(at, r.Series.Waiting[i])
	}
	f.Series = []report.Series{inside, wait, flat("limit", 48, float64(s.Limits.Active))}
	return f, nil
}

// around750 is the figure of "around 750" (Cloudflare Japan, 2022). There a gradual rise admits
// more than 750, and a steep one queues before the limit.
func around750(ctx context.Context, seed uint64, split, ours sim.Strategy) (report.Figure, error) {
	f := report.Figure{
		ID: "cloudflare-750", Title: "A gradual and a steep rise around 750",
		Source: "Cloudflare Japan, thresholds of Waiting Room (2022): 750, two data centers that share by " +
			"the traffic of two minutes; rates and sessions are chosen",
		XLabel: "minutes", YLabel: "inside at once",
		Note: "Where slots are divided a steep rise queues well before 750, a gradual one near it; that a " +
			"gradual one passes 750, as the document also says, this model does not show. With " +
			"headgate 750 means 750 in both.",
		Table: &report.Table{Columns: []string{"rise", "strategy", "first waits at", "most inside"}},
	}
	const length = 30 * time.Minute
	rates := map[string]float64{"gradual": 110, "steep": 1500} // a minute, after ten minutes of rise
	for _, rise := range []string{"gradual", "steep"} {
		s := around(rates[rise], length)
		for _, st := range []sim.Strategy{split, ours} {
			r, err := sim.Run(ctx, s, st, sim.Options{Seed: seed})
			if err != nil {
				return f, err
			}
			line := report.Series{Name: st.Name + ", " + rise, Dashed: rise == "gradual"}
			for i, n := range r.Series.Active {
				line.Add((time.Duration(i) * r.Series.Step).Minutes(), n)
			}
			f.Series = append(f.Series, line)
			first := 0.0
			if r.FirstWaitUse != nil {
				first = math.Round(*r.FirstWaitUse * 750)
			}
			addRow(f.Table, rise, st.Name, int(first), r.PeakActive)
		}
	}
	f.Series = append(f.Series, flat("limit", length.Minutes(), 750))
	return f, nil
}

// around has a limit of 750 at once, in two data centers of four workers each; three of five
// visitors come to the second.
func around(perMinute float64, length time.Duration) *sim.Scenario {
	three := sim.ThreeDatacenters()
	s := &sim.Scenario{
		Name: "around-750", Length: length, StateLag: 3 * time.Second, Datacenters: three[:2],
		Limits: sim.Limits{Active: 750, Session: 5 * time.Minute, New: 750, Window: time.Minute},
	}
	s.Datacenters[0].Name, s.Datacenters[0].Workers = "tyo", 4
	s.Datacenters[1].Name, s.Datacenters[1].Workers = "osa", 4
	s.Arrivals = sim.Traffic{
		Rate:        func(t time.Duration) float64 { return perMinute * min(1, t.Minutes()/10) },
		Datacenters: func(time.Duration) []float64 { return []float64{2, 3} },
		Dwell:       2 * time.Minute,
	}.Over(s.Datacenters, length)
	return s
}

func flat(name string, end, y float64) report.Series {
	return report.Series{Name: name, X: []float64{0, end}, Y: []float64{y, y}, Grey: true}
}
