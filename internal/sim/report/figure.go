package report

import (
	"fmt"
	"io"
	"math"
	"slices"
)

// A Figure is one picture: lines over common axes, a table, or both.
type Figure struct {
	ID             string // lower case and hyphens, unique and stable
	Title          string
	Source         string // the document it is based on
	XLabel, YLabel string // with the unit; empty without lines
	Note           string // what to look for
	Series         []Series
	Table          *Table // nil: none
	Step           bool   // a value is constant until the next one
}

// A Series is one line: Y[i] over X[i], sorted by X.
type Series struct {
	Name   string
	X, Y   []float64
	Dashed bool
	Grey   bool // the reference for the others
}

// A Table has as many cells in each row as it has columns.
type Table struct {
	Columns []string
	Rows    [][]string
}

// Add adds a point.
func (s *Series) Add(x, y float64) {
	s.X, s.Y = append(s.X, x), append(s.Y, y)
}

// figureSection shows the figures of the documents: a plot, a table, or both.
func (r *Report) figureSection(m *markup) {
	m.put(`<section id="figures" aria-labelledby="figures-h">
<h2 id="figures-h">Figures of the documents</h2>
<p>What the documents describe, drawn again by small models of their words.</p>
<div class="figures">
`)
	for i := range r.Figures {
		f := &r.Figures[i]
		m.put(`<figure id="%s">
<figcaption><h3>%s</h3><p class="about"><cite>%s</cite></p></figcaption>
`, f.ID, f.Title, f.Source)
		if len(f.Series) > 0 {
			m.put(`<div class="scroll" tabindex="0" role="region" aria-label="Plot">`)
			figurePlot(f).svg(m)
			m.put("</div>")
		}
		m.put("\n")
		m.with("<p>%s</p>", f.Note)
		m.put("\n")
		if f.Table != nil {
			m.put(`<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>` + "\n")
			m.heads(f.Table.Columns)
			m.put("<tbody>")
			for _, cells := range f.Table.Rows {
				m.row(cells)
			}
			m.put("</tbody></table></div>")
		}
		m.put("\n</figure>\n")
	}
	m.put("</div>\n</section>\n")
}

// figurePlot creates the plot of a figure.
func figurePlot(f *Figure) *plot {
	p := &plot{
		id: "f-" + f.ID, title: f.Title, about: f.Note, xName: f.XLabel, yName: f.YLabel,
		width: figureWidth, height: figureHeight, limit: math.NaN(),
	}
	lowX, highX, lowY, highY := math.Inf(1), math.Inf(-1), 0.0, 0.0
	color := 0
	for _, s := range f.Series {
		n := min(len(s.X), len(s.Y))
		if n == 0 {
			continue
		}
		lowX, highX = min(lowX, slices.Min(s.X[:n])), max(highX, slices.Max(s.X[:n]))
		lowY, highY = min(lowY, slices.Min(s.Y[:n])), max(highY, slices.Max(s.Y[:n]))
		c := curve{name: s.Name, x: s.X[:n], y: s.Y[:n], class: "grey", dashed: s.Dashed, step: f.Step}
		if !s.Grey {
			c.class = fmt.Sprintf("c%d", color%colors)
			color++
		}
		p.lines = append(p.lines, c)
	}
	p.x, p.y = newAxis(lowX, highX, 8), newAxis(lowY, highY, 5)
	p.x.low, p.x.high = lowX, max(highX, lowX+1e-9)
	return p
}

// SVG writes figures one below the other as an SVG file that needs nothing else. It is light or dark, as
// its reader's screen is.
func SVG(w io.Writer, figures ...Figure) error {
	m := &markup{}
	width, height := 0.0, 0.0
	for i := range figures {
		p := figurePlot(&figures[i])
		labels := p.labels()
		width = max(width, p.total(labels))
		m.put(`<g transform="translate(0 %s)">`, number(height))
		p.content(m, labels)
		m.put("</g>\n")
		height += p.height
	}
	all := &markup{}
	all.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%[1]s" height="%[2]s" role="img">
<style>`, number(width), number(height))
	all.out.WriteString(pageCSS)
	all.put("</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"var(--card)\"/>\n")
	all.out.WriteString(m.out.String() + "</svg>\n")
	_, err := io.WriteString(w, all.out.String())
	return err
}

// colors is the number of curve colors on the page.
const colors = 6
