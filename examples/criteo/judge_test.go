package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// start is the beginning of all made-up calls: a multiple of their windows.
func start() time.Time { return time.Unix(1_000_000_000, 0) }

// burst is n passes, a millisecond apart, each so long on its way.
func burst(from, way time.Duration, n int) (all []pass) {
	for i := range n {
		at := start().Add(from + time.Duration(i)*time.Millisecond)
		all = append(all, pass{sent: at.Add(-way), at: at})
	}
	return all
}

// callsOf are the calls that passed, one that was refused after them, and one at the end of
// the plan, so that all windows before it are full.
func callsOf(p plan, passes []pass) (calls []call) {
	for _, x := range passes {
		calls = append(calls, call{city: x.city, sent: x.sent, status: 200, left: 1})
	}
	end := start().Add(time.Duration(p.windows)*p.window + time.Second)
	return append(calls, call{sent: end, status: 429, retry: true})
}

// TestJudge: calls that are right, and one fault each that the judge must find.
func TestJudge(t *testing.T) {
	const w, way = 10 * time.Second, 2 * time.Millisecond
	both := func(second time.Duration, n int) []pass {
		return append(burst(0, way, amount), burst(second, way, n)...)
	}
	for _, c := range []struct {
		name   string
		passes []pass
		kill   bool
		change func(calls []call)
		want   string // part of the one fault; "": none
	}{
		{name: "a window after the other", passes: both(w, amount)},
		{name: "earlier by less than the way", passes: both(w-time.Millisecond, amount)},
		{name: "earlier by more than the way", passes: both(w-5*time.Millisecond, amount),
			want: "passed in one 10s"},
		{name: "one too many", passes: both(w-time.Second, amount), want: "passed in one 10s"},
		{name: "lost calls", passes: both(w, amount-2), want: "only 99.0 passed in a full 10s"},
		{name: "silence after a kill", passes: both(2*w, amount), kill: true},
		{name: "silence", passes: both(2*w, amount), want: "nothing passed for 19.901s"},
		{name: "lost calls after a kill", passes: both(2*w, amount-2), kill: true,
			want: "only 98.0 passed in a full 10s"},
		{name: "nothing passed", want: "nothing passed"},
		{name: "an error", passes: both(w, amount), change: func(c []call) { c[len(c)-1].status = 502 },
			want: "1 calls were neither"},
		{name: "an error after a kill", passes: both(w, amount), kill: true,
			change: func(c []call) { c[len(c)-1].status = 0 }},
		{name: "no word when to come again", passes: both(w, amount),
			change: func(c []call) { c[len(c)-1].retry = false }, want: "1 refusals did not say"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := plan{window: w, windows: 2, kill: c.kill}
			if len(c.passes) > 0 && c.passes[len(c.passes)-1].at.After(start().Add(2*w)) {
				p.windows = 3
			}
			calls := callsOf(p, c.passes)
			if c.change != nil {
				c.change(calls)
			}
			v := judge(p, calls, c.passes)
			got := strings.Join(v.faults(), "\n")
			one := !strings.Contains(got, "\n")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) || !one {
				t.Errorf("found %q, want %q", got, c.want)
			}
			var out bytes.Buffer
			v.print(&out)
			if strings.Contains(out.String(), "WRONG: ") != (c.want != "") {
				t.Errorf("printed\n%s", &out)
			}
		})
	}
}

// TestFixedWindows: 07:09:59 and 07:10:00 of Criteo's article, in two cities.
func TestFixedWindows(t *testing.T) {
	const w = time.Minute
	border := start().Truncate(w).Add(w)
	var calls []call
	for city := range 2 {
		for i := range 3 * amount { // one and a half times what each window takes
			at := border.Add(time.Duration(i-3*amount/2) * time.Millisecond)
			calls = append(calls, call{city: city, sent: at})
		}
	}
	if got := len(fixedWindows(calls, w)); got != 4*amount {
		t.Errorf("fixed windows of two cities pass %d around a border, want %d", got, 4*amount)
	}
}

// TestArguments: what is wrong with them is said before anything is started.
func TestArguments(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
	}{
		{"-window 10ms", 2}, {"-windows 1", 2}, {"more", 2}, {"-no-such", 2},
		{"-binary no/such/headgate", 1},
	} {
		var out, told strings.Builder
		got := command(t.Context(), strings.Fields(c.args), &out, &told)
		if got != c.code || out.Len() > 0 || told.Len() == 0 {
			t.Errorf("criteo %s: exit %d, want %d; %s%s", c.args, got, c.code, &out, &told)
		}
	}
}
