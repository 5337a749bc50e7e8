package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/sim"
)

// Table writes the report for a terminal of about 90 columns, without colors.
func (r *Report) Table(w io.Writer) error {
	var b strings.Builder
	l := r.Scenario.Limits
	fmt.Fprintf(&b, "%s: %s\n", r.Scenario.Name, r.Scenario.About)
	fmt.Fprintf(&b, "%s at once, %s new a minute, sessions of %s; %s, seed %d\n",
		whole(l.Active), whole(perMinute(l)), period(l.Session), period(r.Scenario.Length), r.Seed)
	if r.Traffic != "" {
		b.WriteString(r.Traffic + "\n")
	}
	if len(r.Rows) > 0 {
		b.WriteString("\n")
		r.figures(&b)
		b.WriteString("\n")
		r.verdicts(&b)
		b.WriteString("\n")
		legend(&b)
	}
	if r.Plan != nil {
		b.WriteString("\n")
		r.advise(&b)
	}
	fmt.Fprintf(&b, "\nmade again by\n  %s\n", r.Command)
	_, err := io.WriteString(w, b.String())
	return err
}

// figures writes the table itself.
func (r *Report) figures(b *strings.Builder) {
	all := columns()
	table := [][]string{{""}, {"strategy"}}
	for _, c := range all {
		table[0] = append(table[0], c.over+" ")
		table[1] = append(table[1], c.name+" ")
	}
	marks := make([][]mark, len(all))
	for i := range all {
		marks[i] = all[i].marks(r.Rows)
	}
	for n, row := range r.Rows {
		line := []string{row.Result.Name}
		for i, c := range all {
			// A non-breaking space: the sign belongs to its number.
			text := strings.ReplaceAll(c.text(row.Result), " ", "")
			line = append(line, text+[]string{" ", "+", "!"}[marks[i][n]])
		}
		table = append(table, line)
	}
	grid(b, table)
}

// grid writes cells in columns: the first one left-aligned, the others right-aligned.
func grid(b *strings.Builder, table [][]string) {
	width := make([]int, len(table[0]))
	for _, line := range table {
		for i, cell := range line {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range table {
		var out strings.Builder
		for i, cell := range line {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				out.WriteString(cell + pad)
			} else {
				out.WriteString(" " + pad + cell)
			}
		}
		b.WriteString(strings.TrimRight(out.String(), " ") + "\n")
	}
}

// verdicts writes a summary of each strategy.
func (r *Report) verdicts(b *strings.Builder) {
	width := 0
	for _, row := range r.Rows {
		width = max(width, len(row.Result.Name))
	}
	for _, row := range r.Rows {
		fmt.Fprintf(b, "%-*s  %s\n", width, row.Result.Name, verdict(row.Result))
	}
}

func legend(b *strings.Builder) {
	b.WriteString("+ best, ! worst of a column; ideal, the measure of all, stands outside\n")
	for _, c := range columns() {
		fmt.Fprintf(b, "  %-17s %s\n", c.title, c.about)
	}
}

// List writes the available scenarios and strategies.
func List(w io.Writer, scenarios []sim.Scenario, strategies []sim.Strategy) error {
	var b strings.Builder
	width := 0
	for _, s := range scenarios {
		width = max(width, len(s.Name))
	}
	for _, s := range strategies {
		width = max(width, len(s.Name))
	}
	b.WriteString("scenarios\n")
	for _, s := range scenarios {
		fmt.Fprintf(&b, "  %-*s  %s\n", width, s.Name, s.About)
	}
	b.WriteString("\nstrategies\n")
	for _, s := range strategies {
		fmt.Fprintf(&b, "  %-*s  %s\n", width, s.Name, s.About)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
