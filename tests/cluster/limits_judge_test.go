package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"
)

// An algorithm is what a shared limit promises.
type algorithm string

// The algorithms, as they are configured.
const (
	slidingLog  algorithm = "sliding_log"
	tokenBucket algorithm = "token_bucket"
	fixedWindow algorithm = "fixed_window" // of an hour, by the wall
	concurrency algorithm = "concurrency"
)

// A rule is a shared limit as the judge knows it.
type rule struct {
	name   string
	of     string // the limit of which this is the plan; its calls are those of rule name. "": no plan
	law    algorithm
	amount int // a bucket holds as much, too
	most   int // may pass; 0: the amount, below 0: all
	window time.Duration
	more   string // of its configuration
}

// A pass is a call that a limit let pass. When it was let pass is not known to the judge, but
// between which moments of its own clock: of sending, and of arriving at the origin, or of
// the answer where no origin is asked. That is how the way to the origin is treated: a limit
// is said to be exceeded only if these calls exceed it whenever in between each was let pass.
type pass struct {
	limit, key, node string
	cost             int
	from, to         time.Duration
	left             time.Duration // the origin's answer was made; concurrency alone
}

// reach is how much of a limit one key has used at most, at which moment; it is to be no
// more than the amount. began is what the wall's clock said at zero.
func (r *rule) reach(all []pass, began time.Time) (most int, at time.Duration) {
	slices.SortFunc(all, func(a, b pass) int { return cmp.Compare(a.from, b.from) })
	switch r.law {
	case slidingLog:
		return r.inWindow(all)
	case tokenBucket:
		return r.beyondRate(all)
	case fixedWindow:
		return r.inHour(all, began)
	}
	return together(all)
}

// inWindow is the most that was let pass in a window for certain.
func (r *rule) inWindow(all []pass) (most int, at time.Duration) {
	for i := range all {
		n := 0
		for _, p := range all[i:] {
			if p.from >= all[i].from+r.window {
				break
			}
			if p.to < all[i].from+r.window {
				n += p.cost
			}
		}
		if n > most {
			most, at = n, all[i].from
		}
	}
	return most, at
}

// beyondRate is the most that was let pass in any time, less what the bucket was filled with
// meanwhile.
func (r *rule) beyondRate(all []pass) (most int, at time.Duration) {
	for i := range all {
		later := slices.Clone(all[i:])
		slices.SortFunc(later, func(a, b pass) int { return cmp.Compare(a.to, b.to) })
		n := 0
		for _, p := range later {
			n += p.cost
			filled := int(int64(r.amount)*int64(p.to-all[i].from)/int64(r.window)) + 1
			if n-filled > most {
				most, at = n-filled, all[i].from
			}
		}
	}
	return most, at
}

// inHour is the most that was let pass in an hour of the wall's clock.
func (r *rule) inHour(all []pass, began time.Time) (most int, at time.Duration) {
	sums := map[time.Time]int{}
	for _, p := range all {
		hour := began.Add(p.from).Truncate(r.window)
		if hour != began.Add(p.to).Truncate(r.window) { // it may be of either
			continue
		}
		if sums[hour] += p.cost; sums[hour] > most {
			most, at = sums[hour], p.from
		}
	}
	return most, at
}

// together is how many were at the origin at once.
func together(all []pass) (most int, at time.Duration) {
	type edge struct {
		at time.Duration
		n  int
	}
	var edges []edge
	for _, p := range all {
		edges = append(edges, edge{p.to, 1}, edge{p.left, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), a.n-b.n) })
	n := 0
	for _, e := range edges {
		if n += e.n; n > most {
			most, at = n, e.at
		}
	}
	return most, at
}

// What became of a call.
type outcome int

const (
	failed outcome = iota // no answer
	passed
	refused // by the limit, or because its host was out of reach: a proxy does not say
	decided // refused by the limit
	unheard // refused because its host was out of reach
	wrong   // an answer that nobody should get
)

// A call is one call, as its client saw it.
type call struct {
	limit, key, node string
	cost             int
	sent, ended      time.Duration
	became           outcome
	said             string // of a wrong one
}

// ideal is how much one limiter without any distance would have let pass of the calls that
// were answered, by the times at which they were sent.
func (r *rule) ideal(calls []call) (sum int) {
	calls = slices.DeleteFunc(slices.Clone(calls), func(c call) bool { return c.became == failed })
	slices.SortFunc(calls, func(a, b call) int { return cmp.Compare(a.sent, b.sent) })
	level, last := 0.0, time.Duration(0) // of the bucket: what is missing
	var in []call
	for _, c := range calls {
		used := 0
		switch r.law {
		case slidingLog:
			in = slices.DeleteFunc(in, func(x call) bool { return x.sent+r.window <= c.sent })
			for _, x := range in {
				used += x.cost
			}
		case tokenBucket:
			level = max(0, level-float64(r.amount)*float64(c.sent-last)/float64(r.window))
			last, used = c.sent, int(level)
		case fixedWindow:
			used = sum
		}
		if used+c.cost > r.amount {
			continue
		}
		sum, level = sum+c.cost, level+float64(c.cost)
		in = append(in, c)
	}
	return sum
}

// A silence is how long nothing was decided for a key at one node that was asked.
type silence struct {
	limit, key, node string
	from, to         time.Duration
}

func (s silence) String() string {
	return fmt.Sprintf("%s %s at %s from %.2f s", s.limit, s.key, s.node, s.from.Seconds())
}

// silences are the longest times without a decision, of each key at each node, the longest
// first. Times in which the node itself was away do not count.
func silences(calls []call, away []fault) (all []silence) {
	type where struct{ limit, key, node string }
	by := map[where][]call{}
	for _, c := range calls {
		if c.became == passed || c.became == decided {
			w := where{c.limit, c.key, c.node}
			by[w] = append(by[w], c)
		}
	}
	for w, cs := range by {
		slices.SortFunc(cs, func(a, b call) int { return cmp.Compare(a.ended, b.ended) })
		longest := silence{limit: w.limit, key: w.key, node: w.node}
		for i := 1; i < len(cs); i++ {
			from, to := cs[i-1].ended, cs[i].ended
			gone := slices.ContainsFunc(away, func(f fault) bool {
				return f.node == w.node && f.from < to && from < f.to
			})
			if !gone && to-from > longest.to-longest.from {
				longest.from, longest.to = from, to
			}
		}
		all = append(all, longest)
	}
	slices.SortFunc(all, func(a, b silence) int { return cmp.Compare(b.to-b.from, a.to-a.from) })
	return all
}

// maxTokens is what a call may cost at most, apart from what is sent, which costs 1.
const maxTokens = 500

// unsettled is how long before the death of a node a call may end whose cost the node has not yet sent to the
// host of the key. Chosen: a message, on a busy machine.
const unsettled = time.Second

// A span is what a key has used: at least, and at most.
type span struct{ least, most int }

// used returns what each key of a limit has used, by what clients and the model server saw, and whether its
// node was killed.
func used(limit string, calls []call, away []fault) (all map[string]span, killed map[string]bool) {
	all, killed = map[string]span{}, map[string]bool{}
	for _, a := range calls {
		if a.limit != limit {
			continue
		}
		s := all[a.key]
		unsure := slices.ContainsFunc(away, func(f fault) bool {
			killed[a.key] = killed[a.key] || f.node == a.node
			return f.node == a.node && a.sent < f.to && a.ended > f.from-unsettled
		})
		gone := slices.ContainsFunc(away, func(f fault) bool {
			return f.node == a.node && a.sent >= f.from && a.ended < f.from+downFor
		})
		switch {
		case gone:
		case a.became == failed || a.became == wrong:
			s.most += a.cost + 1
		case a.became == passed && unsure:
			s.most += max(a.cost, 1)
		case a.became == passed:
			s.least, s.most = s.least+a.cost, s.most+a.cost
		}
		all[a.key] = s
	}
	return all, killed
}

// steadyCalls are calls of one key, every so often, each 2 ms on its way.
func steadyCalls(n int, every time.Duration) (calls []call, passes []pass) {
	for i := range n {
		at := time.Duration(i) * every
		to := at + 2*time.Millisecond
		calls = append(calls, call{limit: "log", key: "a", node: "n1", cost: 1, sent: at, ended: to,
			became: passed})
		passes = append(passes, pass{limit: "log", key: "a", cost: 1, from: at, to: to,
			left: to + time.Millisecond})
	}
	return calls, passes
}

// TestLimitJudge: the judge of shared limits finds each fault, and none where there is none.
func TestLimitJudge(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 59, 59, 0, time.UTC)
	calls, passes := steadyCalls(100, 10*time.Millisecond) // a second
	each := map[algorithm][2]int{                          // reached, and by an ideal limiter of 50
		slidingLog: {50, 50}, tokenBucket: {50, 50 + 49}, fixedWindow: {100, 50}, concurrency: {1, 0},
	}
	for law, want := range each {
		r := rule{law: law, amount: 50, window: time.Second}
		if law == slidingLog {
			r.window = 502 * time.Millisecond // 51 are sent in it, and 50 arrive
		}
		if got, _ := r.reach(slices.Clone(passes), began.Add(-time.Minute)); got != want[0] {
			t.Errorf("%s: reached %d, want %d", law, got, want[0])
		}
		if r.window = time.Second; law != concurrency {
			if got := r.ideal(calls); got < want[1]-1 || got > want[1]+1 {
				t.Errorf("%s: ideal %d, want %d", law, got, want[1])
			}
		}
	}
	burst := slices.Clone(passes[:20])
	for i := range burst {
		burst[i].from, burst[i].to, burst[i].left = 0, 1, time.Second
	}
	atOnce := map[algorithm]int{slidingLog: 20, tokenBucket: 19, fixedWindow: 20, concurrency: 20}
	for law, want := range atOnce {
		r := rule{law: law, amount: 10, window: time.Second}
		if got, _ := r.reach(burst, began); got != want {
			t.Errorf("%s: %d at once, want %d", law, got, want)
		}
	}
	hour := rule{law: fixedWindow, amount: 10, window: time.Hour}
	if got, _ := hour.reach(slices.Clone(passes), began.Add(500*time.Millisecond)); got != 50 {
		t.Errorf("half of the calls are of the next hour: %d", got)
	}
	for i := 30; i < 60; i++ {
		calls[i].became = unheard
	}
	s := silences(calls, nil)[0]
	if s.from != calls[29].ended || s.to != calls[60].ended {
		t.Errorf("silence %v to %v", s.from, s.to)
	}
	away := []fault{{node: "n1", from: s.from + 1, to: s.to}}
	if s := silences(calls, away)[0]; s.to-s.from > 11*time.Millisecond {
		t.Errorf("the node itself was away: %v to %v", s.from, s.to)
	}
}
