package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/tests/crowd"
)

// Limits are what a run is held against, beside what no run may do.
type limits struct {
	letIn  int            // at least so many
	waited int            // at least so many
	idle   time.Duration  // at most so long was nobody new let in although slots were free
	spells []spell        // or longer, for a reason
	onTime int            // at least so many percent of those in line asked on time to the end
	at     map[string]int // nodes, and the least of those let in that they let in, in percent
	faults int            // at least so many
	used   int            // used tickets tried again, at least
	apart  bool           // data centers were cut off: each has an order of its own
}

// overtakeSlack is by how much somebody who came later may be called earlier
// (the issue "Cluster").
const overtakeSlack = 3 * time.Second

// verdict holds the run against its limits. about are visitors whose logs show
// what was found.
func (r *run) verdict(l limits) (figures []crowd.Figure, about []*visit) {
	none := func(name string, f finding) crowd.Figure {
		for _, v := range f.about[:min(2, len(f.about))] {
			if !slices.Contains(about, v) {
				about = append(about, v)
			}
		}
		return most(name, f.n, 0, "of %d judged %s", f.judged, f.example)
	}
	stays := r.stays()
	in := r.inside(stays, func(s *stay) time.Duration { return s.to })
	held := r.inside(stays, func(s *stay) time.Duration { return s.sure })
	fresh := r.fresh(stays)
	gaps := r.gaps(stays)
	each, idle := longest(gaps, l.spells)
	placed := func(p *place) time.Duration { return p.placed }
	came := func(p *place) time.Duration { return p.since }
	near := time.Duration(0) // who came at about the same time has no order
	if r.sites != nil {
		near = apartBy
	}
	overtaken, late, worst := r.orderOf(l.apart, order{overtakeSlack, placed, gaps, near})
	unplaced, _, _ := r.orderOf(l.apart, order{overtakeSlack, came, gaps, overtakeSlack})
	unplaced.n -= min(unplaced.n, overtaken.n)
	atAll, _, most0 := r.orderOf(l.apart, order{0, placed, nil, 0})
	excused, unanswered := r.unanswered()
	used := r.doubled()
	waited, letIn := r.counts()
	figures = []crowd.Figure{
		most("inside at once, first byte in to last byte out", in.n, in.limit, "at %v", in.at),
		most("the same, and the session after it", held.n, held.limit, "at %v", held.at),
		most("new visitors in any 60 s, by the origin", fresh.n, fresh.limit, "at %v", fresh.at),
		none("tickets lost, of those read in full", r.lost()),
		none("places shown further back than before", r.risen()),
		none("overtaken by more than 3 s", overtaken),
		none("used tickets that did something again", used),
		none("visitors inside sent back to the line", r.sentBack()),
		none("answers that are errors", r.wrong()),
		none("requests without an answer, at nodes that could", unanswered),
		most("connections refused", r.refused, 0, ""),
		idle.figure("", l.idle),
		least("in line and on time to the end, %", 100*(overtaken.judged-late)/max(1, overtaken.judged),
			l.onTime, "of %d", overtaken.judged),
		least("faults", len(r.faults), l.faults, "%s", r.told()),
		least("visitors who waited", waited, l.waited, ""),
		least("visitors let in", total(letIn), l.letIn, "%s", inOrder(letIn)),
		least("used tickets tried again, that could be judged", used.judged, l.used, ""),
	}
	for i, s := range l.spells {
		figures = append(figures, each[i].figure(": "+s.what, s.most))
	}
	for _, name := range slices.Sorted(maps.Keys(l.at)) {
		figures = append(figures, least("let in by "+name+", %",
			100*letIn[name]/max(1, total(letIn)), l.at[name], ""))
	}
	figures = append(figures,
		show("requests without an answer, at killed or frozen nodes", float64(excused.n),
			"%s", excused.example),
		// Whom nobody can give a number gets one when somebody can, in the order of asking then.
		show("overtaken by more than 3 s before they were told a place", float64(unplaced.n), ""),
		show("overtaken by any time", float64(atAll.n), "of %d, worst %v, over 3 s %v", atAll.judged,
			most0.Round(time.Millisecond), worst.Round(time.Millisecond)))
	figures = append(figures, r.times()...)
	return append(figures, r.perSecond(stays), r.takenPerSecond(stays)), about
}

func (g gap) figure(when string, limit time.Duration) crowd.Figure {
	return most("nobody let in though slots were free, ms"+when, int((g.to - g.from).Milliseconds()),
		int(limit.Milliseconds()), "from %v", g.from)
}

// counts says how many waited, and how many each node let in.
func (r *run) counts() (waited int, letIn map[string]int) {
	letIn = map[string]int{}
	for _, v := range r.visits {
		if from, _ := v.waited(); from != never {
			waited++
		}
		if in := v.admitted(); in != nil {
			letIn[in.node]++
		}
	}
	return waited, letIn
}

// times shows how long answers took, of all nodes and of each.
func (r *run) times() (figures []crowd.Figure) {
	took := map[string][]time.Duration{"": nil}
	for _, v := range r.visits {
		for i := range v.asks {
			if a := &v.asks[i]; a.read() {
				took[""] = append(took[""], a.ended-a.sent)
				took[" of "+a.node] = append(took[" of "+a.node], a.ended-a.sent)
			}
		}
	}
	for _, of := range slices.Sorted(maps.Keys(took)) {
		d := took[of]
		if len(d) == 0 {
			d = []time.Duration{0}
		}
		slices.Sort(d)
		ms := func(i int) float64 { return float64(d[i].Microseconds()) / 1e3 }
		figures = append(figures, show("an answer"+of+", ms: median", ms(len(d)/2),
			"p99 %.4g, max %.4g, of %d", ms(len(d)*99/100), ms(len(d)-1), len(d)))
	}
	return figures
}

// perSecond shows how many the origin saw come in each second.
func (r *run) perSecond(stays []stay) crowd.Figure {
	var n []int
	for _, s := range stays {
		for second := int(max(0, s.from) / time.Second); len(n) <= second; {
			n = append(n, 0)
		}
		n[max(0, s.from)/time.Second]++
	}
	return show("let in, second by second", float64(len(stays)), "%s", strings.Trim(fmt.Sprint(n), "[]"))
}

// takenPerSecond shows how many slots were taken beyond doubt at each second.
func (r *run) takenPerSecond(stays []stay) crowd.Figure {
	var n []int
	for at := time.Duration(0); len(stays) > 0 && at <= stays[len(stays)-1].from; at += time.Second {
		n = append(n, taken(stays, at))
	}
	last := 0
	if len(n) > 0 {
		last = n[len(n)-1]
	}
	return show("slots taken, second by second", float64(last), "%s", strings.Trim(fmt.Sprint(n), "[]"))
}

// told lists the faults.
func (r *run) told() string {
	var out []string
	for _, f := range r.faults {
		text := fmt.Sprintf("%s %s at %.1f s", f.what, f.node, f.from.Seconds())
		if f.to != f.from {
			text += fmt.Sprintf(" to %.1f s", f.to.Seconds())
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func total(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

func inOrder(m map[string]int) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s %d", k, m[k]))
	}
	return strings.Join(out, ", ")
}

func most(name string, reach, limit int, note string, args ...any) crowd.Figure {
	return crowd.Figure{Name: name, Reach: float64(reach), Limit: float64(limit),
		Note: fmt.Sprintf(note, args...)}
}

func least(name string, reach, limit int, note string, args ...any) crowd.Figure {
	f := most(name, reach, limit, note, args...)
	f.Least = true
	return f
}

func show(name string, reach float64, note string, args ...any) crowd.Figure {
	return crowd.Figure{Name: name, Reach: reach, Show: true, Note: fmt.Sprintf(note, args...)}
}
