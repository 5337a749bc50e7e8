package demo

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// add adds the answers of another city.
func (n *newcomers) add(o *newcomers) {
	n.slots = append(n.slots, o.slots...)
	n.lent = append(n.lent, o.lent...)
	n.line = append(n.line, o.line...)
}

// A worldSummary is the part of a Summary about data centers.
type worldSummary struct {
	letIn []string // admissions through each city
	cuts  []cutting
	came  newcomers
	doubt time.Duration // uncertainty of the order between cities, measured; 0: unknown
	sent  []string      // messages a second, by sender
}

// sum adds the part about data centers.
func (d *worldwide) sum(all *Summary) {
	now := d.begun.Add(all.took)
	s := &worldSummary{}
	for _, c := range d.cities {
		s.letIn = append(s.letIn, fmt.Sprintf("%s %d", c.title, all.report.By[c.name]))
		c.sum(s)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.cuts {
		if k.took == 0 {
			k.took, k.after = now.Sub(k.at), all.report.By[k.city.name]
		}
		s.cuts = append(s.cuts, k)
	}
	all.world = s
}

// sum adds the results of one city.
func (c *city) sum(s *worldSummary) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.came.add(&c.came)
	if c.says.World != nil {
		s.doubt = max(s.doubt, time.Duration(c.says.World.Doubt*float64(time.Second)))
	}
	var sent []string
	for _, p := range places() {
		if n, ok := c.sent[p.name].perSecond(); ok {
			sent = append(sent, fmt.Sprintf("%.1f to %s", n, p.title))
		}
	}
	if sent != nil {
		s.sent = append(s.sent, c.title+" "+strings.Join(sent, ", "))
	}
}

// write prints the lines about data centers.
func (s *worldSummary) write(line func(name, format string, args ...any)) {
	line("let in through", "%s", strings.Join(s.letIn, ", "))
	for _, k := range s.cuts {
		line("cut off", "%s for %.1f s: it held %d slots, and let in %d meanwhile",
			k.title, k.took.Seconds(), k.held, k.after-k.first)
	}
	name := "first answer, median"
	for _, a := range []struct {
		took []time.Duration
		when string
	}{
		{s.came.slots, "let in; a slot was unused at the last look"},
		{s.came.lent, "let in; none was: lent, or came free"},
		{s.came.line, "told to wait"},
	} {
		if len(a.took) > 0 {
			line(name, "%d ms, of %d %s", median(a.took).Milliseconds(), len(a.took), a.when)
			name = ""
		}
	}
	if s.doubt > 0 {
		line("order between cities", "certain to %d ms, as they measured", s.doubt.Milliseconds())
	}
	for i, sent := range s.sent {
		line([]string{"messages a second", ""}[min(i, 1)], "%s", sent)
	}
	line("delays one way", "%s", distanceList())
	line("", "chosen: about half of usual round trips")
}

// distanceList returns the distances between the cities, as text.
func distanceList() string {
	var all []string
	ps := places()
	for i := range ps {
		for j := i + 1; j < len(ps); j++ {
			d := distances()[endsOf(ps[i].name, ps[j].name)]
			all = append(all, fmt.Sprintf("%s–%s %d ms", ps[i].name, ps[j].name, d.Milliseconds()))
		}
	}
	return strings.Join(all, ", ")
}

// endsOf returns the ends of the wire between two data centers.
func endsOf(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

// median returns the median; all must not be empty.
func median(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
