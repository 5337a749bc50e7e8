package demo

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// sum adds the lines about data centers.
func (d *worldwide) sum(s *Summary) {
	var letIn, sent []string
	var came newcomers
	var doubt time.Duration // uncertainty of the order between cities, measured; 0: unknown
	for _, c := range d.cities {
		letIn = append(letIn, fmt.Sprintf("%s %d", c.title, s.report.By[c.name]))
		c.mu.Lock()
		for kind, took := range c.came {
			came[kind] = append(came[kind], took...)
		}
		if c.says.World != nil {
			doubt = max(doubt, time.Duration(c.says.World.Doubt*float64(time.Second)))
		}
		var to []string
		for _, p := range places() {
			if n, ok := c.sent[p.name].perSecond(); ok {
				to = append(to, fmt.Sprintf("%.1f to %s", n, p.title))
			}
		}
		c.mu.Unlock()
		if to != nil {
			sent = append(sent, c.title+" "+strings.Join(to, ", "))
		}
	}
	s.add("let in through", "%s", strings.Join(letIn, ", "))
	for _, k := range d.cuts {
		if k.took == 0 {
			k.took, k.after = d.begun.Add(s.took).Sub(k.at), s.report.By[k.city.name]
		}
		s.add("cut off", "%s for %.1f s: it held %d slots, and let in %d meanwhile",
			k.city.title, k.took.Seconds(), k.held, k.after-k.first)
	}
	name := "first answer, median"
	for kind, when := range []string{hadSlot: "let in; a slot was unused at the last look",
		gotSlot: "let in; none was: lent, or came free", hadToWait: "told to wait"} {
		if took := came[kind]; len(took) > 0 {
			s.add(name, "%d ms, of %d %s", median(took).Milliseconds(), len(took), when)
			name = ""
		}
	}
	if doubt > 0 {
		s.add("order between cities", "certain to %d ms, as they measured", doubt.Milliseconds())
	}
	for i, one := range sent {
		s.add([]string{"messages a second", ""}[min(i, 1)], "%s", one)
	}
	s.add("delays one way", "%s", distanceList())
	s.add("", "chosen: about half of usual round trips")
}

// distanceList returns the distances between the cities, as text.
func distanceList() string {
	var all []string
	ps := places()
	for i := range ps {
		for j := i + 1; j < len(ps); j++ {
			d := distances()[[2]string{min(ps[i].name, ps[j].name), max(ps[i].name, ps[j].name)}]
			all = append(all, fmt.Sprintf("%s–%s %d ms", ps[i].name, ps[j].name, d.Milliseconds()))
		}
	}
	return strings.Join(all, ", ")
}

// median returns the median; all must not be empty.
func median(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
