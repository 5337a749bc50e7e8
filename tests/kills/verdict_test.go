package kills

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/tests/crowd"
)

// Limits are what a run is held against.
type limits struct {
	total, fresh int // at once, and in any minute
	clients      int
	kills        int // at least so many
	inFlight     int // at least so many of them while a write was in flight
	frozen       bool
}

// A run is all that was seen, from all sides.
type run struct {
	limits  limits
	visits  []*visit
	replays []replay
	kills   []kill
	gauges  []gauge
	origin  []crowd.Request
	fsyncs  []time.Duration // 4 KB written and synced beside the data folder
	began   time.Time       // time 0 of all but the origin's log
	lives   int             // of the process
}

// verdict holds the run against its limits. about are visitors whose logs show
// what was found.
func (r *run) verdict() (figures []crowd.Figure, about []*visit) {
	l := &r.limits
	flying, aimed := 0, 0
	for _, k := range r.kills {
		if k.inFlight != "" {
			flying++
		}
		if k.aimed {
			aimed++
		}
	}
	in := crowd.Arrivals(r.origin)
	late := missed(r.visits)
	none := func(name string, f finding) crowd.Figure {
		about = append(about, f.about[:min(2, len(f.about))]...)
		return most(name, f.n, 0, "of %d judged %s", f.judged, f.example)
	}
	back := none("visitors inside sent back to the line", sentBack(r.visits))
	if l.frozen { // every stay ends while the process does not run: they may well be
		back.Show = true
	}
	figures = []crowd.Figure{
		least("kills", len(r.kills), l.kills, "%d of them aimed", aimed),
		least("kills with a write in flight", flying, l.inFlight, "%s", r.flights()),
		none("tickets lost, of those read in full", lost(r.visits, l.frozen)),
		none("places shown further back than before", risen(r.visits)),
		none("overtaken", overtaken(r.visits, r.lives)),
		none("used tickets that did something again", r.doubled()),
		none("the same of revoked stays, within 35 s", r.revived()),
		back,
		most("inside at once, by the origin", crowd.MaxInside(r.origin), l.total, ""),
		most("requests of different visitors in flight", crowd.MaxAtOnce(r.origin), l.total, ""),
		most("new visitors in any 60 s, by the origin", crowd.MaxInWindow(in, time.Minute),
			l.fresh, "%s", r.slowest()),
		most("active and called, by the metrics", r.most(func(g *gauge) float64 {
			return g.active + g.called
		}), l.total, ""),
		most("new in the last minute, by the metrics", r.most(func(g *gauge) float64 {
			return g.fresh
		}), l.fresh, ""),
		least("visitors who joined, polled, entered and renewed", r.whole(), l.clients, ""),
		most("visitors late by themselves, %", 100*late.n/max(1, late.judged), 20, "%s",
			late.example),
	}
	return append(figures, r.times()...), about
}

// whole counts visitors who waited, polled, were let in and were there again.
func (r *run) whole() (n int) {
	for _, v := range r.visits {
		polls, visits := 0, 0
		for i := range v.asks {
			switch a := &v.asks[i]; {
			case a.kind == askPoll && a.read():
				polls++
			case a.kind == askVisit && a.origin():
				visits++
			}
		}
		if polls > 0 && visits > 1 {
			n++
		}
	}
	return n
}

// times are for show: how long things took.
func (r *run) times() []crowd.Figure {
	var ready, outage, first, claims []time.Duration
	for i, k := range r.kills {
		end := never
		if i+1 < len(r.kills) {
			end = r.kills[i+1].at
		}
		ready = append(ready, k.ready-k.started)
		if d := r.firstAnswer(k.at); d != never {
			outage = append(outage, d-k.at)
		}
		if d := r.firstArrival(k.ready, end); d != never {
			first = append(first, d-k.ready)
		}
	}
	for _, v := range r.visits {
		for i := range v.asks {
			if a := &v.asks[i]; a.kind == askEnter && a.origin() {
				claims = append(claims, a.answered-a.sent)
			}
		}
	}
	return []crowd.Figure{
		middle("start to ready, ms: median", ready),
		middle("kill to the first answer, ms: median", outage),
		middle("ready to the first admission, ms: median", first),
		middle("a claim, from request to page, ms: median", claims),
		middle("4 KB written and synced here, ms: median", r.fsyncs),
		{Name: "writes of the record per second", Reach: r.writeRate(), Show: true},
	}
}

// slowest is the longest that a visitor who was seen by the origin had tried to
// enter before: its window begins when it is seen.
func (r *run) slowest() string {
	seen := map[string]time.Duration{}
	for _, q := range r.origin {
		at := q.From.Sub(r.began)
		if old, ok := seen[q.Visitor]; !ok || at < old {
			seen[q.Visitor] = at
		}
	}
	var worst time.Duration
	for _, v := range r.visits {
		for i := range v.asks {
			a := &v.asks[i]
			if at, ok := seen[v.name]; ok && a.kind == askEnter {
				worst = max(worst, at-a.sent)
				break
			}
		}
	}
	return fmt.Sprintf("seen at most %v after the first try to enter", worst.Round(time.Millisecond))
}

func (r *run) firstAnswer(after time.Duration) time.Duration {
	first := never
	for _, v := range r.visits {
		for i := range v.asks {
			a := &v.asks[i]
			if a.sent > after && a.read() && (first == never || a.answered < first) {
				first = a.answered
			}
		}
	}
	return first
}

func (r *run) firstArrival(after, before time.Duration) time.Duration {
	for _, at := range crowd.Arrivals(r.origin) {
		if d := at.Sub(r.began); d > after && (before == never || d < before) {
			return d
		}
	}
	return never
}

func (r *run) most(of func(*gauge) float64) int {
	most := 0.0
	for i := range r.gauges {
		most = max(most, of(&r.gauges[i]))
	}
	return int(most)
}

// writeRate adds up what each process counted since it started.
func (r *run) writeRate() float64 {
	writes, took := 0.0, time.Duration(0)
	for i := 1; i < len(r.gauges); i++ {
		if a, b := &r.gauges[i-1], &r.gauges[i]; a.life == b.life {
			writes, took = writes+b.writes-a.writes, took+b.at-a.at
		}
	}
	return writes / took.Seconds()
}

// flights counts the writes in flight by system call.
func (r *run) flights() string {
	kinds := map[string]int{}
	for _, k := range r.kills {
		if k.inFlight != "" {
			kinds[k.inFlight]++
		}
	}
	return fmt.Sprint(kinds)
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

// middle shows the median in milliseconds, with the 99th percentile and the most.
func middle(name string, d []time.Duration) crowd.Figure {
	f := crowd.Figure{Name: name, Show: true, Note: "none"}
	if len(d) == 0 {
		return f
	}
	slices.Sort(d)
	ms := func(i int) float64 { return float64(d[i].Microseconds()) / 1e3 }
	f.Reach = ms(len(d) / 2)
	f.Note = fmt.Sprintf("p99 %.4g, max %.4g, of %d", ms((len(d)*99)/100), ms(len(d)-1), len(d))
	return f
}
