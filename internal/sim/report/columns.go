package report

import (
	"math"
	"strings"

	"github.com/headgate/headgate/internal/sim"
)

// A column is one figure of all strategies.
type column struct {
	over, name string // the header of a terminal, in two lines
	title      string // used where there is more space
	about      string // explanation
	text       func(*sim.Result) string
	bad        func(*sim.Result) float64 // smaller is better; NaN: not rated
}

// columns returns the columns of the table, in order.
func columns() []column {
	return []column{
		{"queued", "early", "queued early", "made to wait while a slot was free and due, of all visitors",
			func(r *sim.Result) string { return percent(r.EarlyShare) },
			func(r *sim.Result) float64 { return r.EarlyShare }},
		{"first", "wait", "first wait at", "lowest use at which one had to wait though nobody else did; – nobody waited",
			func(r *sim.Result) string { return share(r.FirstWaitUse) },
			func(r *sim.Result) float64 { return -value(r.FirstWaitUse) }},
		{"over", "inside", "over at once", "most inside at once, above the limit",
			func(r *sim.Result) string { return whole(r.OvershootActive) },
			func(r *sim.Result) float64 { return float64(r.OvershootActive) }},
		{"over", "new", "over a minute", "most let in within any minute, above the limit",
			func(r *sim.Result) string { return whole(r.OvershootRate) },
			func(r *sim.Result) float64 { return float64(r.OvershootRate) }},
		{"added", "median", "added ms, median", "by the first decision about a visitor, to its first answer",
			func(r *sim.Result) string { return millis(r.LatencyP50) },
			func(r *sim.Result) float64 { return r.LatencyP50 }},
		{"added", "99 %", "added ms, 99 %", "the same, that 99 of 100 do not exceed",
			func(r *sim.Result) string { return millis(r.LatencyP99) },
			func(r *sim.Result) float64 { return r.LatencyP99 }},
		{"msgs", "each", "messages each", "for each visitor, between the parts of the system; polls are not counted",
			func(r *sim.Result) string { return millis(r.MessagesPerVisitor) },
			func(r *sim.Result) float64 { return r.MessagesPerVisitor }},
		{"over-", "taken", "overtaken", "of those who waited, passed by one who came later",
			func(r *sim.Result) string { return share(overtaken(r)) },
			func(r *sim.Result) float64 { return value(overtaken(r)) }},
		{"of", "ideal", "let in of ideal", "until the ideal counter's line was gone, of what it let in",
			func(r *sim.Result) string { return share(r.AdmittedOfIdeal) },
			func(r *sim.Result) float64 { return math.Abs(value(r.AdmittedOfIdeal) - 1) }},
	}
}

// overtaken returns nil where nobody could be overtaken.
func overtaken(r *sim.Result) *float64 {
	if r.WaitedShare == 0 {
		return nil
	}
	return &r.OvertakenShare
}

func share(x *float64) string {
	if x == nil {
		return "–"
	}
	return percent(*x)
}

func value(x *float64) float64 {
	if x == nil {
		return math.NaN()
	}
	return *x
}

// A mark rates a figure among those of its column.
type mark int

const (
	plain mark = iota
	best
	worst
)

// marks finds the best and the worst of a column, as displayed. It leaves out the ideal, which
// nothing can equal. If all are equal there are no marks.
func (c *column) marks(rows []Row) []mark {
	marks := make([]mark, len(rows))
	low, high := math.Inf(1), math.Inf(-1)
	var lowText, highText string
	for _, r := range rows {
		x := c.bad(r.Result)
		if r.Result.Name == idealName || math.IsNaN(x) {
			continue
		}
		if x < low {
			low, lowText = x, c.text(r.Result)
		}
		if x > high {
			high, highText = x, c.text(r.Result)
		}
	}
	if lowText == highText {
		return marks
	}
	for i, r := range rows {
		text := c.text(r.Result)
		switch x := c.bad(r.Result); {
		case r.Result.Name == idealName || math.IsNaN(x):
		case x == low || text == lowText:
			marks[i] = best
		case x == high || text == highText:
			marks[i] = worst
		}
	}
	return marks
}

// verdict describes a result in words.
func verdict(r *sim.Result) string {
	var over []string
	if r.OvershootActive > 0 {
		over = append(over, whole(r.OvershootActive)+" at once")
	}
	if r.OvershootRate > 0 {
		over = append(over, whole(r.OvershootRate)+" a minute")
	}
	parts := []string{"held both limits", "nobody waited early", "nobody was overtaken"}
	if len(over) > 0 {
		parts[0] = "over by " + join(over)
	}
	if r.EarlyShare > 0 {
		parts[1] = percent(r.EarlyShare) + " waited early"
	}
	switch {
	case r.WaitedShare == 0:
		parts = append(parts[:1], "nobody waited")
	case r.OvertakenShare > 0:
		parts[2] = percent(r.OvertakenShare) + " overtaken"
	}
	return strings.Join(parts, "; ")
}
