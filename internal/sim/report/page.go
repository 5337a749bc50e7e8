package report

import (
	_ "embed"
	"io"
	"math"
	"strconv"
	"strings"
)

//go:embed page.css
var pageCSS string

// HTML writes the page. It is well-formed XML too.
func (r *Report) HTML(w io.Writer) error {
	m := &markup{}
	r.head(m)
	r.header(m)
	m.put("<main>\n")
	if r.Plan != nil {
		r.adviceSection(m)
	}
	if len(r.Rows) > 0 {
		r.strategySection(m)
		r.timeSection(m)
	}
	if len(r.Figures) > 0 {
		r.figureSection(m)
	}
	m.put("</main>\n")
	r.footer(m)
	_, err := io.WriteString(w, m.out.String())
	return err
}

func (r *Report) head(m *markup) {
	m.put(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width,initial-scale=1"/>
<meta name="robots" content="noindex"/>
<title>%s – headgate simulate</title>
<style>`, r.Scenario.Name)
	m.out.WriteString(pageCSS)
	m.put(`</style>
</head>
`)
}

// header writes what was simulated, and what is on the page.
func (r *Report) header(m *markup) {
	m.put(`<body>
<header>
<p class="over-title">headgate simulate</p>
<h1>%s</h1>
<p class="lead">%s</p>
`, r.Scenario.Name, r.Scenario.About)
	m.with("<p>%s</p>", r.Traffic)
	m.put("\n<dl>")
	for _, f := range r.facts() {
		m.put("<div><dt>%s</dt><dd>%s</dd></div>", f.name, f.value)
	}
	m.put("</dl>\n" + `<nav aria-label="Sections"><ul>` + "\n")
	if r.Plan != nil {
		m.put(`<li><a href="#advice">Advice</a></li>`)
	}
	m.put("\n")
	if len(r.Rows) > 0 {
		m.put(`<li><a href="#strategies">Strategies</a></li><li><a href="#over-time">Over time</a></li>`)
	}
	m.put("\n")
	if len(r.Figures) > 0 {
		m.put(`<li><a href="#figures">Figures of the documents</a></li>`)
	}
	m.put(`
<li><a href="#again">Made again</a></li>
</ul></nav>
</header>
`)
}

func (r *Report) adviceSection(m *markup) {
	m.put(`<section id="advice" aria-labelledby="advice-h">
<h2 id="advice-h">Advice</h2>
`)
	for _, s := range r.advice() {
		m.put("<p>%s</p>\n", s)
	}
	m.put(`<div class="scroll" tabindex="0" role="region" aria-label="Limits compared"><table>
<caption>Limits compared</caption>
`)
	table := r.choices()
	m.heads(table[0])
	for _, cells := range table[1:] {
		m.row(cells)
	}
	m.put("</table></div>\n</section>\n")
}

// strategySection compares the strategies in a table.
func (r *Report) strategySection(m *markup) {
	m.put(`<section id="strategies" aria-labelledby="strategies-h">
<h2 id="strategies-h">Strategies</h2>
<div class="scroll" tabindex="0" role="region" aria-label="Strategies compared"><table>
<caption>The same visitors before each strategy. <span class="best"><b>+</b></span> best, ` +
		`<span class="worst"><b>!</b></span> worst of a column; ideal, the measure of all, stands outside.</caption>
`)
	all := columns()
	heads := []string{"Strategy"}
	marks := make([][]mark, len(all))
	for i := range all {
		heads = append(heads, all[i].title)
		marks[i] = all[i].marks(r.Rows)
	}
	m.heads(heads)
	m.put("<tbody>\n")
	for n, row := range r.Rows {
		m.put("<tr")
		m.with(` class="%s"`, ours(row.Result.Name))
		m.put(`><th scope="row"><a href="#s-%s">%[1]s</a></th>`, row.Result.Name)
		for i, c := range all {
			figureCell(m, c.text(row.Result), marks[i][n])
		}
		m.put("</tr>\n")
	}
	m.put("</tbody>\n</table></div>\n" +
		`<details><summary>What the columns mean</summary><dl class="meanings">`)
	for _, c := range all {
		m.put("<div><dt>%s</dt><dd>%s</dd></div>", c.title, c.about)
	}
	m.put("</dl></details>\n</section>\n")
}

// figureCell writes a figure of the table, with its mark as a sign and a word.
func figureCell(m *markup, figure string, k mark) {
	figure = strings.ReplaceAll(figure, " ", "\u202f") // the sign belongs to its number
	switch k {
	case best:
		m.put(`<td class="best">%s<b aria-hidden="true">+</b><span class="sr"> best</span></td>`, figure)
	case worst:
		m.put(`<td class="worst">%s<b aria-hidden="true">!</b><span class="sr"> worst</span></td>`, figure)
	default:
		m.put(`<td>%s<b aria-hidden="true"></b></td>`, figure)
	}
}

// timeSection shows each strategy over time.
func (r *Report) timeSection(m *markup) {
	m.put(`<section id="over-time" aria-labelledby="over-time-h">
<h2 id="over-time-h">Over time</h2>
<p>A measure has the same scale for all strategies. What is above a limit has the color of a warning, ` +
		`and is written down.</p>
`)
	plots := r.panels()
	for i, row := range r.Rows {
		m.put(`<article id="s-%s"`, row.Result.Name)
		m.with(` class="%s"`, ours(row.Result.Name))
		m.put(`>
<h3>%s</h3>
<p class="verdict">%s</p>
<p class="about">%s`, row.Result.Name, verdict(row.Result), row.Strategy.About)
		m.with(". After: <cite>%s</cite>", row.Strategy.Source)
		m.put("</p>\n" + `<div class="panels">`)
		for _, p := range plots[i] {
			m.put("<div>")
			p.svg(m)
			m.put("</div>")
		}
		m.put("</div>\n</article>\n")
	}
	m.put("</section>\n")
}

// ours returns the CSS class of headgate's own strategy, or none for the others.
func ours(name string) string {
	if name == ourName {
		return "ours"
	}
	return ""
}

// footer writes how to create the page again.
func (r *Report) footer(m *markup) {
	m.put(`<footer id="again">
<h2>Made again</h2>
<p>The same command gives the same page on every machine; the seed is %s.</p>
<pre tabindex="0"><code>%s</code></pre>
</footer>
</body>
</html>
`, strconv.FormatUint(r.Seed, 10), r.Command)
}

// A fact is a parameter of the scenario.
type fact struct{ name, value string }

// facts are the parameters of the scenario.
func (r *Report) facts() []fact {
	s := &r.Scenario
	var sites []string
	const most = 8 // sites by name, chosen: two lines
	for _, x := range s.Datacenters[:min(len(s.Datacenters), most)] {
		sites = append(sites, x.Name+" ("+count(int64(x.Workers), "worker")+")")
	}
	if n := len(s.Datacenters) - most; n > 0 {
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
	facts = append(facts, fact{"Data centers", join(sites)},
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
