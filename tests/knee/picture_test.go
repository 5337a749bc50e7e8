//go:build crowd

package knee

import (
	"flag"
	"fmt"
	"os"

	"github.com/headgate/headgate/internal/sim/report"
)

var picture = flag.String("picture", "", "draw what TestKnee has seen into this SVG file")

// draw draws what was seen, if a file is named.
func (s *stage) draw(knee float64) {
	s.t.Helper()
	if *picture == "" {
		return
	}
	limit, inside := report.Series{Name: "limit"}, report.Series{Name: "people inside"}
	measured := report.Series{Name: "knee, as measured", Grey: true, Dashed: true}
	p95, most := report.Series{Name: "95 of 100 answers"}, report.Series{Name: "target", Grey: true, Dashed: true}
	for _, r := range s.rows {
		minutes := r.at.Minutes()
		limit.Add(minutes, float64(r.Limit))
		inside.Add(minutes, float64(r.Inside))
		measured.Add(minutes, knee*float64(r.capacity)/connections)
		p95.Add(minutes, r.took.p95()*target.Seconds()*1000)
		most.Add(minutes, target.Seconds()*1000)
	}
	people := report.Figure{ID: "people", Title: "The limit that finds itself", XLabel: "minutes", YLabel: "people",
		Note: fmt.Sprintf("The limit follows the knee of the origin, %.0f people, when headgate is killed, and when "+
			"half of the origin is taken away and given back.", knee),
		Series: []report.Series{limit, inside, measured}}
	answers := report.Figure{ID: "answers", Title: "What the origin took", XLabel: "minutes", YLabel: "milliseconds",
		Note: "The 95th percentile of 5 s each, as the origin saw it.", Series: []report.Series{p95, most}}
	f, err := os.Create(*picture)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := report.SVG(f, people, answers); err != nil {
		s.t.Error(err)
	}
	if err := f.Close(); err != nil {
		s.t.Error(err)
	}
}
