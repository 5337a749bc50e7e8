package report

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/sim/plan"
	"github.com/headgate/headgate/internal/sim/traffic"
)

// advice returns the plan as sentences.
func (r *Report) advice() []string {
	all := r.limitsAdvice()
	if r.Plan.Found != nil {
		all = append(all, found(r.Plan.Found))
	}
	return all
}

// found returns what the limit that finds itself would have found.
func found(f *traffic.Found) string {
	switch {
	case f.Timed == 0:
		return "The lines do not say how long the answers took. So nobody knows which number auto would have " +
			"found: let the server write it at the end of each line ($request_time of nginx)."
	case f.Knee == 0:
		return fmt.Sprintf("With auto: true, total_active_users would have been %s in the end: the origin was "+
			"never full with at most %s visitors inside, so it may take more (%s).", whole(f.Active),
			whole(f.Most), f.Reason)
	}
	return fmt.Sprintf("With auto: true, total_active_users would have been %s in the end: the origin answers "+
		"%s requests a second within its target (%s).", whole(f.Active), whole(int64(f.Knee+0.5)), f.Reason)
}

// limitsAdvice returns what limits do to the traffic.
func (r *Report) limitsAdvice() []string {
	p := r.Plan
	g := &p.Given
	at := fmt.Sprintf("At %s at once and %s new a minute", whole(g.Active), whole(g.New))
	if g.Waited == 0 {
		return []string{
			fmt.Sprintf("%s nobody of %s waits.", at, count(g.Visitors, "visitor")),
			fmt.Sprintf("At most %s are inside at once, and %s come within a minute: smaller limits "+
				"than these make somebody wait.", whole(g.MostActive), whole(g.MostNew)),
		}
	}
	all := []string{
		fmt.Sprintf("%s, %s of %s wait, the longest %s; at most %s wait at once, and the last is let "+
			"in after %s.", at, whole(g.Waited), count(g.Visitors, "visitor"), period(g.LongestWait),
			whole(g.MostWaiting), period(g.Last)),
		r.culprit(),
	}
	m := &p.More
	more := fmt.Sprintf("A tenth more of both limits would cut the longest wait to %s and the line to %s; "+
		"%s fewer would wait.", period(m.LongestWait), whole(m.MostWaiting), whole(g.Waited-m.Waited))
	if m.Waited == 0 {
		more = "A tenth more of both limits would let everybody in at once."
	}
	all = append(all, more)
	var goals []string
	for _, goal := range p.Goals {
		what := "nobody longer than " + period(goal.Within)
		if goal.Within == 0 {
			what = "nobody waits"
		}
		o := goal.Outcome
		goals = append(goals, fmt.Sprintf("%s at %s at once and %s new a minute", what, whole(o.Active),
			whole(o.New)))
	}
	all = append(all, "The smallest limits: "+strings.Join(goals, "; ")+". In each pair neither can be "+
		"smaller alone.")
	return append(all, "This is what the ideal counter does; a real room is a little behind. Nobody "+
		"gives up in it.")
}

// culprit returns which of the two limits makes people wait.
func (r *Report) culprit() string {
	active, fresh := r.Plan.OnlyActive.LongestWait, r.Plan.OnlyNew.LongestWait
	switch {
	case fresh <= active/10: // chosen: nobody complains about a tenth
		return fmt.Sprintf("It is the limit at once that makes them wait: without the one a minute the "+
			"longest wait would be %s, without the one at once %s.", period(active), wait(fresh))
	case active <= fresh/10:
		return fmt.Sprintf("It is the limit a minute that makes them wait: without the one at once the "+
			"longest wait would be %s, without the one a minute %s.", period(fresh), wait(active))
	}
	return fmt.Sprintf("Both limits make them wait: without the one a minute the longest wait would be "+
		"%s, without the one at once %s.", period(active), period(fresh))
}

func wait(d time.Duration) string {
	if d == 0 {
		return "nobody would wait"
	}
	return period(d)
}

// choices returns the limits that the plan compares, as table rows.
func (r *Report) choices() [][]string {
	row := func(name string, o plan.Outcome) []string {
		return []string{name, whole(o.Active), whole(o.New), period(o.LongestWait), whole(o.Waited),
			whole(o.MostWaiting)}
	}
	p := r.Plan
	table := [][]string{
		{"limits", "at once", "a minute", "longest wait", "who wait", "in line at once"},
		row("as given", p.Given), row("a tenth more", p.More),
	}
	for _, g := range p.Goals {
		name := "longest wait " + period(g.Within)
		if g.Within == 0 {
			name = "nobody waits"
		}
		table = append(table, row(name, g.Outcome))
	}
	return table
}

// advise writes the plan for a terminal.
func (r *Report) advise(b *strings.Builder) {
	for _, s := range r.advice() {
		b.WriteString(fold(s, 78) + "\n")
	}
	b.WriteString("\n")
	table := r.choices()
	for _, line := range table {
		for i := 1; i < len(line); i++ {
			line[i] = " " + line[i]
		}
	}
	grid(b, table)
}

// fold breaks a sentence into lines of a width.
func fold(s string, width int) string {
	var b strings.Builder
	at := -1
	for i, word := range strings.Fields(s) {
		switch {
		case i == 0:
		case at+1+utf8.RuneCountInString(word) > width:
			b.WriteByte('\n')
			at = -1
		default:
			b.WriteByte(' ')
		}
		b.WriteString(word)
		at += 1 + utf8.RuneCountInString(word)
	}
	return b.String()
}
