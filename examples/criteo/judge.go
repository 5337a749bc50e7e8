package main

import (
	"fmt"
	"time"
)

// A verdict is what the origin and the client observed.
type verdict struct {
	plan    plan
	calls   []call
	passes  []pass
	most    int           // in any window, by the origin's clock
	early   time.Duration // how much too early a call came, for a full window
	sure    int           // in any window, proven: see mostSure
	full    []int         // calls in each full window, from the first call and after a silence
	after   int           // how many of these windows are after the last silence
	silent  time.Duration // the longest time, of a window or more, without a call
	fixed   int           // most in any window if each city had its own fixed window
	through int           // all calls that these would allow
	least   int           // smallest remaining number in answers
	highest int
	refused int
	hinted  int // of these with Retry-After
	failed  int // failed, or an unexpected answer
}

// enough is how much of the limit a demanding client must get, on average over full windows.
// Chosen: out of 100, so that the test fails if calls that come back late are lost.
const enough = 99.4

// judge checks the calls against the limit. Both lists are in order.
func judge(p plan, calls []call, passes []pass) *verdict {
	v := &verdict{plan: p, calls: calls, passes: passes, least: amount, highest: -1}
	at := make([]time.Time, len(passes))
	for i, x := range passes {
		at[i] = x.at
	}
	v.most, v.sure = most(at, p.window), mostSure(passes, p.window)
	for i := range max(0, len(at)-amount) {
		v.early = max(v.early, p.window-at[i+amount].Sub(at[i]))
	}
	if len(calls) > 0 {
		v.count(at, calls[len(calls)-1].sent)
	}
	each := fixedWindows(calls, p.window)
	v.fixed, v.through = most(each, p.window), len(each)
	for _, c := range calls {
		v.note(c)
	}
	return v
}

// count counts full windows from the first pass on, and again from the first one after a silence,
// because a window border inside a burst would split it. end is the end of the calls.
func (v *verdict) count(at []time.Time, end time.Time) {
	w := v.plan.window
	for i := 0; i < len(at); {
		next := i + 1
		for next < len(at) && at[next].Sub(at[next-1]) < w {
			next++
		}
		until := end
		if next < len(at) {
			until = at[next-1].Add(w)
			v.silent = max(v.silent, at[next].Sub(at[next-1]))
		}
		v.after = 0
		for from := at[i]; !from.Add(w).After(until); from = from.Add(w) {
			v.full = append(v.full, within(at[i:next], from, w))
			v.after++
		}
		i = next
	}
}

// note adds the answer to one call.
func (v *verdict) note(c call) {
	switch c.status {
	case 200:
	case 429:
		v.refused++
		if c.retry {
			v.hinted++
		}
	default:
		v.failed++
	}
	if c.left >= 0 {
		v.least, v.highest = min(v.least, c.left), max(v.highest, c.left)
	}
}

// most returns the largest number of times in any window, wherever it begins. The times are in
// order. A window includes its beginning and not its end.
func most(at []time.Time, window time.Duration) (n int) {
	first := 0
	for i, t := range at {
		for !at[first].Add(window).After(t) {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}

// mostSure returns the largest number of calls that certainly passed in one window. A call passes
// after it was sent and before it reaches the origin. So calls that were all sent and all received
// within one window passed in it, whatever delayed them.
func mostSure(passes []pass, window time.Duration) (n int) {
	for _, first := range passes {
		in := 0
		for _, x := range passes {
			if !x.sent.Before(first.sent) && x.at.Before(first.sent.Add(window)) {
				in++
			}
		}
		n = max(n, in)
	}
	return n
}

// within returns how many times lie in a window.
func within(at []time.Time, from time.Time, window time.Duration) (n int) {
	for _, t := range at {
		if !t.Before(from) && t.Before(from.Add(window)) {
			n++
		}
	}
	return n
}

// fixedWindows returns the times of the calls that would have passed if each city counted by itself
// in windows of the clock.
func fixedWindows(calls []call, window time.Duration) (passed []time.Time) {
	type counter struct {
		city int
		from int64
	}
	used := map[counter]int{}
	for _, c := range calls {
		k := counter{c.city, c.sent.UnixNano() / int64(window)}
		if used[k] < amount {
			used[k]++
			passed = append(passed, c.sent)
		}
	}
	return passed
}

// mean returns the average number of passes in a full window after the last silence.
func (v *verdict) mean() float64 {
	total := 0
	for _, n := range v.full[len(v.full)-v.after:] {
		total += n
	}
	return float64(total) / float64(max(1, v.after))
}

// faults returns the broken promises, or nothing. After a kill, calls may be rejected for a while,
// and fail at the killed node; the windows after that must be full again.
func (v *verdict) faults() (list []string) {
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	w := v.plan.window
	fault(v.sure > amount, "%d passed in one %v", v.sure, w)
	fault(v.after == 0, "nothing passed for long enough to be judged")
	fault(v.after > 0 && v.mean() < enough, "only %.1f passed in a full %v, on average", v.mean(), w)
	fault(v.silent > 0 && !v.plan.kill, "nothing passed for %v", v.silent)
	fault(v.failed > 0 && !v.plan.kill, "%d calls were neither passed nor refused", v.failed)
	fault(v.hinted < v.refused, "%d refusals did not say when to come again", v.refused-v.hinted)
	return list
}
