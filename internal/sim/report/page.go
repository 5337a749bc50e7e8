package report

import (
	_ "embed"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageCSS string

// A fact is a parameter of the scenario.
type fact struct{ Name, Value string }

// A cell is a figure of the table and its mark.
type cell struct{ Text, Class, Mark, Said string }

// A line is a strategy of the table.
type line struct {
	Name  string
	Ours  bool
	Cells []cell
}

// A page is what the template shows.
type page struct {
	*Report
	CSS     template.CSS
	Title   string
	Facts   []fact
	Columns []struct{ Name, About string }
	Lines   []line
	Cards   []card
	Advice  []string
	Choices [][]string
	Figures []drawing
}

// HTML writes the page. It is well-formed XML too.
func (r *Report) HTML(w io.Writer) error {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	p := page{
		Report: r, CSS: template.CSS(pageCSS), Title: r.Scenario.Name, Facts: r.facts(),
		Cards: r.cards(), Figures: r.drawings(),
	}
	p.table()
	if r.Plan != nil {
		p.Advice, p.Choices = r.advice(), r.choices()
	}
	return t.Execute(w, p)
}

// facts are the parameters of the scenario.
func (r *Report) facts() []fact {
	s := &r.Scenario
	var sites []string
	const most = 8 // sites by name, chosen: two lines
	for _, x := range s.Sites[:min(len(s.Sites), most)] {
		sites = append(sites, x.Name+" ("+count(int64(x.Workers), "worker")+")")
	}
	if n := len(s.Sites) - most; n > 0 {
		sites = append(sites, whole(int64(n))+" more")
	}
	facts := []fact{
		{"At once", whole(s.Limits.Active)},
		{"New a minute", whole(perMinute(s.Limits))},
		{"Session", period(s.Limits.Session)},
		{"Length", period(s.Length)},
	}
	if len(r.Rows) > 0 {
		facts = append(facts, fact{"Visitors", whole(r.Rows[0].Result.Visitors)})
	}
	facts = append(facts, fact{"Data centres", join(sites)},
		fact{"State is behind by", period(s.StateLag)}, fact{"Faults", r.faults()},
		fact{"Seed", strconv.FormatUint(r.Seed, 10)})
	if s.Source != "" {
		facts = append(facts, fact{"Parameters from", s.Source})
	}
	if r.Version != "" {
		facts = append(facts, fact{"Made by", "headgate " + r.Version})
	}
	return facts
}

func (r *Report) faults() string {
	f := &r.Scenario.Faults
	if f.None() {
		return "none"
	}
	var all []string
	note := func(there bool, text string) {
		if there {
			all = append(all, text)
		}
	}
	note(f.Lose > 0, percent(f.Lose)+" of messages lost")
	note(f.Repeat > 0, percent(f.Repeat)+" delivered twice")
	note(f.Crash > 0, "a crash every "+period(f.Crash)+" for "+period(f.Down))
	note(f.Pause > 0, "a pause every "+period(f.Pause)+" for "+period(f.Paused))
	note(f.Cut > 0, "a cut every "+period(f.Cut)+" for "+period(f.Cuts))
	note(f.Drift > 0, "clocks off by "+percent(math.Abs(f.Drift)))
	return join(all)
}

// table fills in the table of strategies.
func (p *page) table() {
	for _, row := range p.Rows {
		p.Lines = append(p.Lines, line{Name: row.Result.Name, Ours: row.Result.Name == ourName})
	}
	for _, c := range columns() {
		p.Columns = append(p.Columns, struct{ Name, About string }{c.title, c.about})
		for i, m := range c.marks(p.Rows) {
			x := cell{Text: strings.ReplaceAll(c.text(p.Rows[i].Result), " ", "\u202f")}
			switch m {
			case best:
				x.Class, x.Mark, x.Said = "best", "+", "best"
			case worst:
				x.Class, x.Mark, x.Said = "worst", "!", "worst"
			}
			p.Lines[i].Cells = append(p.Lines[i].Cells, x)
		}
	}
}
