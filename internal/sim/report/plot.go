package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A plot is a picture of lines over common axes.
type plot struct {
	id           string // unique on the page, for title and description
	title, about string
	xName, yName string // of the axes; "" for none
	width        float64
	height       float64
	x, y         axis
	lines        []curve
	limit        float64 // a level that is not to be exceeded; NaN: none
	peak         string  // text at the highest value above the limit
}

// A curve is one line of a plot.
type curve struct {
	name   string // written at its end; "" for none
	x, y   []float64
	class  string // c0 to c5, or grey
	dashed bool
	step   bool
	filled bool
}

// These are the margins around the axes, and the size of letters, in units of the picture.
const (
	leftRoom, topRoom, bottomRoom, rightRoom = 52, 24, 34, 12
	letter                                   = 13
	letterWidth                              = 6.4 // average, measured with system fonts
	lineHeight                               = 15
)

// maxPoints limits the points of a curve. Chosen: more than any screen shows.
const maxPoints = 2000

// svg draws the plot.
func (p *plot) svg(m *markup) {
	labels := p.labels()
	m.put(`<svg viewBox="0 0 %s %s" role="img" aria-labelledby="%s-t %[3]s-d">`,
		number(p.total(labels)), number(p.height), p.id)
	p.content(m, labels)
	m.put("</svg>")
}

// total returns the width with the names of the curves.
func (p *plot) total(labels []label) float64 {
	right := float64(rightRoom)
	for _, l := range labels {
		right = max(right, 10+letterWidth*float64(l.width()))
	}
	return p.width + right
}

// content draws what is within the picture.
func (p *plot) content(m *markup, labels []label) {
	p.x.from, p.x.to = leftRoom, p.width
	p.y.from, p.y.to = p.height-bottomRoom, topRoom
	if p.xName == "" {
		p.y.from += lineHeight - 2
	}
	m.put(`<title id="%s-t">%s</title><desc id="%[1]s-d">%[3]s</desc>`, p.id, p.title, p.about)
	p.axes(m)
	for i := range p.lines {
		p.draw(m, &p.lines[i])
	}
	p.level(m)
	p.name(m, labels)
}

// text writes words at a position.
func text(m *markup, x, y float64, class, words string) {
	m.put(`<text x="%s" y="%s" class="%s">%s</text>`, number(x), number(y), class, words)
}

func (p *plot) axes(m *markup) {
	for _, v := range p.y.ticks() {
		y := p.y.place(v)
		m.put(`<path class="grid" d="M%s %sH%s"/>`, number(p.x.from), number(y), number(p.x.to))
		text(m, p.x.from-7, y+4, "tick end", p.y.label(v))
	}
	for _, v := range p.x.ticks() {
		x := p.x.place(v)
		m.put(`<path class="axis" d="M%s %sv4"/>`, number(x), number(p.y.from))
		text(m, x, p.y.from+17, "tick mid", p.x.label(v))
	}
	m.put(`<path class="axis" d="M%s %sH%s"/>`, number(p.x.from), number(p.y.from), number(p.x.to))
	if p.xName != "" {
		text(m, (p.x.from+p.x.to)/2, p.height-2, "name mid", p.xName)
	}
	if p.yName != "" {
		text(m, 2, letter, "name", p.yName)
	}
}

// draw draws one curve.
func (p *plot) draw(m *markup, c *curve) {
	if len(c.x) == 0 {
		return
	}
	d := p.path(c)
	if c.filled {
		last := min(len(c.x), len(c.y)) - 1
		area := fmt.Sprintf("%sV%sH%sZ", d, number(p.y.from), number(p.x.place(c.x[0])))
		m.put(`<path class="area %s" d="%s"/>`, c.class, area)
		if level := p.limit; level < slices.Max(c.y[:last+1]) { // false for NaN
			m.put(`<clipPath id="%s-c"><path d="M%s 0H%sV%sH%[2]sZ"/></clipPath>`,
				p.id, number(p.x.from), number(p.x.to), number(p.y.place(level)))
			m.put(`<path class="over" clip-path="url(#%s-c)" d="%s"/>`, p.id, area)
		}
	}
	dash := ""
	if c.dashed {
		dash = " dash"
	}
	m.put(`<path class="line %s%s" d="%s"/>`, c.class, dash, d)
}

// path returns the path of a curve, no finer than visible.
func (p *plot) path(c *curve) string {
	xs, ys := thin(c.x, c.y)
	var d strings.Builder
	lastX, lastY := "", ""
	for i := range xs {
		x, y := number(p.x.place(xs[i])), number(p.y.place(min(max(ys[i], p.y.low), p.y.high)))
		switch {
		case i == 0:
			d.WriteString("M" + x + " " + y)
		case c.step:
			if x != lastX {
				d.WriteString("H" + x)
			}
			if y != lastY {
				d.WriteString("V" + y)
			}
		case y == lastY && i+1 < len(xs) && number(p.y.place(ys[i+1])) == y:
			continue // inside a constant part
		default:
			d.WriteString("L" + x + " " + y)
		}
		lastX, lastY = x, y
	}
	return d.String()
}

// thin reduces a long curve to the smallest and the largest value of each section.
func thin(xs, ys []float64) ([]float64, []float64) {
	n := min(len(xs), len(ys))
	if n <= maxPoints {
		return xs[:n], ys[:n]
	}
	outX, outY := make([]float64, 0, maxPoints), make([]float64, 0, maxPoints)
	for i := range maxPoints / 2 {
		from, to := i*n/(maxPoints/2), (i+1)*n/(maxPoints/2)
		low, high := from, from
		for k := from; k < to; k++ {
			if ys[k] < ys[low] {
				low = k
			}
			if ys[k] > ys[high] {
				high = k
			}
		}
		for _, k := range []int{min(low, high), max(low, high)} {
			outX, outY = append(outX, xs[k]), append(outY, ys[k])
		}
	}
	return outX, outY
}

// level draws the limit, and by how much it was exceeded.
func (p *plot) level(m *markup) {
	if math.IsNaN(p.limit) {
		return
	}
	y := p.y.place(p.limit)
	m.put(`<path class="limit" d="M%s %sH%s"/>`, number(p.x.from), number(y), number(p.x.to))
	text(m, p.x.to, y-5, "limit-name end", "limit "+whole(int64(p.limit)))
	if p.peak != "" {
		text(m, p.x.to, topRoom-8, "over-name end", p.peak)
	}
}

// A label is the name of a curve, at its end.
type label struct {
	lines []string
	class string
	c     *curve
	x, y  float64
}

func (l *label) width() int {
	n := 0
	for _, s := range l.lines {
		n = max(n, utf8.RuneCountInString(s))
	}
	return n
}

// labels returns the names of the named curves.
func (p *plot) labels() []label {
	var all []label
	for i := range p.lines {
		c := &p.lines[i]
		if c.name == "" || len(c.x) == 0 {
			continue
		}
		const widest = 22 // letters, chosen: a third of the plot
		all = append(all, label{lines: strings.Split(fold(c.name, widest), "\n"), class: c.class, c: c})
	}
	return all
}

// name writes the names at the ends of the curves, moved apart where they overlap.
func (p *plot) name(m *markup, labels []label) {
	for i := range labels {
		l := &labels[i]
		end := min(len(l.c.x), len(l.c.y)) - 1
		l.x = p.x.place(l.c.x[end]) + 7
		l.y = p.y.place(l.c.y[end]) + 4
	}
	slices.SortStableFunc(labels, func(a, c label) int { return int(a.y - c.y) })
	bottom := p.y.from
	for i := range labels { // down, so that none covers the one above
		l := &labels[i]
		for k := range labels[:i] {
			if o := &labels[k]; math.Abs(o.x-l.x) < letterWidth*float64(max(o.width(), l.width())) {
				l.y = max(l.y, o.y+lineHeight*float64(len(o.lines)))
			}
		}
	}
	for i := len(labels) - 1; i >= 0; i-- { // and up again from the edge
		l := &labels[i]
		l.y = min(l.y, bottom-lineHeight*float64(len(l.lines)-1))
		for k := i + 1; k < len(labels); k++ {
			if o := &labels[k]; math.Abs(o.x-l.x) < letterWidth*float64(max(o.width(), l.width())) {
				l.y = min(l.y, o.y-lineHeight*float64(len(l.lines)))
			}
		}
		for k, words := range l.lines {
			text(m, l.x, l.y+lineHeight*float64(k), "at "+l.class, words)
		}
	}
}

// number formats a position to a tenth.
func number(x float64) string {
	return strconv.FormatFloat(math.Round(10*x)/10, 'f', -1, 64)
}
