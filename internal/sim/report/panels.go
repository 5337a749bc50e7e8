package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// These are the sizes of the pictures, in letters of size 13: the four of a strategy form a 2 by 2
// grid.
const (
	panelWidth, panelHeight   = 430, 170
	figureWidth, figureHeight = 520, 300
)

// A measure is one of the four pictures of a strategy.
type measure struct {
	id, name string
	of       func(*sim.Series) []float64
	limit    float64
	over     func(*sim.Result) int64 // excess over the limit, as the judge saw it
}

func measures(l sim.Limits) []measure {
	nothing := func(*sim.Result) int64 { return 0 }
	return []measure{
		{"active", "inside at once", func(s *sim.Series) []float64 { return s.Active }, float64(l.Active),
			func(r *sim.Result) int64 { return r.OvershootActive }},
		{"new", "let in within " + windowName(l.Window), func(s *sim.Series) []float64 { return s.New },
			float64(l.New), func(r *sim.Result) int64 { return r.OvershootRate }},
		{"waiting", "waiting", func(s *sim.Series) []float64 { return s.Waiting }, math.NaN(), nothing},
		{"arrivals", "arriving a minute", func(s *sim.Series) []float64 { return s.Arrivals }, math.NaN(),
			nothing},
	}
}

func windowName(d time.Duration) string {
	if d == time.Minute {
		return "a minute"
	}
	return period(d)
}

// panels draws the measures of each strategy, with the same scale for all strategies.
func (r *Report) panels() [][]*plot {
	all := make([][]*plot, len(r.Rows))
	for _, m := range measures(r.Scenario.Limits) {
		most := 0.0
		if !math.IsNaN(m.limit) {
			most = m.limit
		}
		for _, row := range r.Rows {
			most = max(most, slices.Max(append([]float64{0}, m.of(&row.Result.Series)...)))
		}
		y := newAxis(0, most, 5)
		for i, row := range r.Rows {
			all[i] = append(all[i], r.panel(&m, row.Result, y))
		}
	}
	return all
}

// panel draws one measure of one strategy.
func (r *Report) panel(m *measure, result *sim.Result, y axis) *plot {
	s := &result.Series
	values := m.of(s)
	times := make([]float64, len(values))
	for i := range times {
		times[i] = (time.Duration(i) * s.Step).Seconds()
	}
	x, unit := timeAxis(r.Scenario.Length, 8)
	greatest := int64(slices.Max(append([]float64{0}, values...)))
	about := fmt.Sprintf("Over %s; at most %s in the samples.", period(r.Scenario.Length), whole(greatest))
	p := &plot{
		id: "p-" + result.Name + "-" + m.id, title: result.Name + ": " + m.name, about: about,
		yName: m.name, xName: unit, width: panelWidth, height: panelHeight, x: x, y: y, limit: m.limit,
		lines: []curve{{x: times, y: values, class: "c0", filled: true}},
	}
	if m.id == "arrivals" {
		p.lines[0].class = "grey"
	}
	if over := m.over(result); over > 0 {
		p.peak = whole(over) + " over"
		p.about += fmt.Sprintf(" It was %s over the limit of %s.", whole(over), whole(int64(m.limit)))
	}
	return p
}
