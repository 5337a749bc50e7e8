package overload

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/examples/strategies/origin"
	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/sim/report"
)

// Report plays all strategies in all scenarios, writes a table of each to w, and saves a page with plots.
// It takes some minutes.
func Report(ctx context.Context, w io.Writer, file string, seed uint64) error {
	page := &report.Report{Version: "strategies", Command: "make auto", Seed: seed, Scenario: sim.Scenario{
		Name: "The limit that finds itself", Length: time.Hour,
		About: "An origin that can be overloaded, and strategies that set the limit of the room in front."}}
	for _, s := range origin.Scenarios() {
		knee := s.Knee(seed)
		limit, best := origin.Best(s, knee, seed)
		f := figure(s, knee, limit, best)
		for _, st := range Strategies(knee) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r := origin.Play(s, st, seed)
			f.Table.Rows = append(f.Table.Rows, row(r, best.Served))
			if st.Name != "headgate" && st.Name != "Gradient2" && st.Name != "AIMD" {
				continue
			}
			f.Series = append(f.Series, line(st.Name, r.Limit))
		}
		page.Figures = append(page.Figures, f)
		if err := markdown(w, &f); err != nil {
			return err
		}
	}
	return page.Save(ctx, file)
}

// figure returns the figure of a scenario with what could be reached.
func figure(s *origin.Scenario, knee, limit int64, best *origin.Result) report.Figure {
	reference := line(best.Name, best.Limit)
	reference.Grey, reference.Dashed = true, true
	return report.Figure{
		ID: "auto-" + strings.Join(strings.FieldsFunc(strings.ToLower(s.Name), notLetter), "-"), Title: s.Name,
		Source: "examples/strategies/origin", XLabel: "minutes", YLabel: "limit", Step: true,
		Series: []report.Series{reference},
		Note: fmt.Sprintf("A steady crowd may be %d. The best number in hindsight is %d; with it %d people are served.",
			knee, limit, best.Served),
		Table: &report.Table{Columns: []string{"strategy", "served", "of the best", "time over the target",
			"oscillation", "back within the target"}},
	}
}

func notLetter(r rune) bool { return r < 'a' || r > 'z' }

// line returns the limit over time.
func line(name string, limits []float64) report.Series {
	l := report.Series{Name: name}
	for i, y := range limits {
		l.Add(float64(i+1)/2, y)
	}
	return l
}

// row returns the result of a strategy.
func row(r *origin.Result, best int64) []string {
	back := "–"
	if r.Back >= 0 {
		back = r.Back.String()
	}
	return []string{r.Name, strconv.FormatInt(r.Served, 10),
		fmt.Sprintf("%.1f %%", 100*float64(r.Served)/float64(best)), fmt.Sprintf("%.1f %%", 100*r.Over),
		fmt.Sprintf("±%.0f %%", 100*r.Swing), back}
}

// markdown writes the table of a figure.
func markdown(w io.Writer, f *report.Figure) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s. %s\n\n| %s |\n|%s\n", f.Title, f.Note, strings.Join(f.Table.Columns, " | "),
		strings.Repeat(" --- |", len(f.Table.Columns)))
	for _, cells := range f.Table.Rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
