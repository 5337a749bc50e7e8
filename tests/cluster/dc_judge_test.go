package cluster

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/tests/crowd"
)

// unsureMost bounds what is believed of the nodes' own word: two round trips. Chosen.
const unsureMost = 250 * time.Millisecond

// apartBy is how near two may have come to each other, in two data centers, and be in no
// order: a second, a round trip between them and what that varies by (the issue
// "Datacenters").
const apartBy = 1100 * time.Millisecond

// at is the node that a visitor came to first, "" if to none. Of data centers it is the
// one that it stays with.
func (v *visit) at() string {
	for i := range v.asks {
		if v.asks[i].node != "" {
			return v.asks[i].node
		}
	}
	return ""
}

// homeless reports whether a visitor's data center was dead when another one answered it:
// what it has there is not renewed (docs/protocol.md §8, "Roaming").
func (r *run) homeless(v *visit, node string, at time.Duration) bool {
	home := v.at()
	return r.sites != nil && node != home && slices.ContainsFunc(r.faults, func(f fault) bool {
		return f.deaf && f.node == home && at > f.from-renewed
	})
}

// silentAfter is how long the others may take to see that a data center is out of reach:
// until then a pass that they cannot judge waits. Chosen: pictures come each 1.5 s.
const silentAfter = 6 * time.Second

// newlyHomeless is homeless at a moment when the other data center may not know it yet.
func (r *run) newlyHomeless(v *visit, a *ask) bool {
	return r.homeless(v, a.node, a.ended) && slices.ContainsFunc(r.faults, func(f fault) bool {
		return f.node == v.at() && a.ended < f.from+silentAfter
	})
}

// orderOf judges the order of all, or when data centers were apart that of each: those
// who cannot reach each other keep no order between them.
func (r *run) orderOf(apart bool, o order) (f finding, late int, worst time.Duration) {
	if !apart {
		return r.overtaken(o)
	}
	for _, site := range r.sites {
		of := *r
		of.visits = slices.DeleteFunc(slices.Clone(r.visits), func(v *visit) bool { return v.at() != site })
		one, n, most := of.overtaken(o)
		if f.n == 0 {
			f.example = one.example
		}
		f.n, f.judged, f.about = f.n+one.n, f.judged+one.judged, append(f.about, one.about...)
		late, worst = late+n, max(worst, most)
	}
	return f, late, worst
}

// worstSecond is the second of the run in which most were overtaken by a slack or more,
// by when they were told to wait although somebody who came later had been called.
func worstSecond(f finding) (n int, at time.Duration) {
	seconds := map[time.Duration]int{}
	for i := 0; i < len(f.about); i += 2 { // the one that was overtaken, and by whom
		_, to := f.about[i].waited()
		seconds[to.Truncate(time.Second)]++
	}
	for second, k := range seconds {
		if k > n || k == n && second < at {
			n, at = k, second
		}
	}
	return n, at
}

// standing is how many wait at a moment, wherever.
func (r *run) standing(at time.Duration) (n int) {
	for _, v := range r.visits {
		if from, to := v.waited(); from != never && from <= at && to >= at {
			n++
		}
	}
	return n
}

// aLine is so many people that one who asks late does not leave a slot empty. Chosen.
const aLine = 30

// fewestTaken is how many slots are taken at least from a moment on, at the seconds at
// which a line stands.
func (r *run) fewestTaken(from time.Duration, line, limit int) crowd.Figure {
	stays, n, when, looked := r.stays(), math.MaxInt, never, 0
	for at := from; len(stays) > 0 && at < stays[len(stays)-1].from; at += time.Second {
		if r.standing(at) < line {
			continue
		}
		looked++
		if k := taken(stays, at); k < n {
			n, when = k, at
		}
	}
	if looked == 0 {
		return show("slots taken while a line stands, from then on", 0, "none stood")
	}
	return least("slots taken while a line stands, from then on", n, limit, "at %v, of %d s with a line",
		when, looked)
}

// letInAt counts those whom one node let in within a time.
func (r *run) letInAt(node string, from, to time.Duration) (n int) {
	for _, v := range r.visits {
		if a := v.admitted(); a != nil && a.node == node && a.ended >= from && a.ended < to {
			n++
		}
	}
	return n
}

// Of data centers that are apart each has an order of its own, and only then.
func TestOrderOfApart(t *testing.T) {
	r := goodRun()
	r.sites = []string{"n1", "n2"}
	for i, v := range r.visits {
		for j := range v.asks {
			v.asks[j].node = r.sites[i%2]
		}
	}
	o := order{overtakeSlack, func(p *place) time.Duration { return p.placed }, nil, 0}
	r.direct(42) // past all who came to n1 and n2
	last := &r.visits[len(r.visits)-1].asks[0]
	last.node = "n2"
	if f, _, _ := r.orderOf(false, o); f.n != 4 {
		t.Errorf("%d overtaken in all, want 4", f.n)
	}
	f, _, _ := r.orderOf(true, o)
	if f.n != 2 {
		t.Errorf("%d overtaken in their own data center, want 2", f.n)
	}
	for _, v := range f.about {
		if v.at() != "n2" {
			t.Errorf("%s is of %s", v.name, v.at())
		}
	}
	if n, at := worstSecond(f); n != 1 || at != secs(59) {
		t.Errorf("most in a second: %d at %v, want 1 at 59s", n, at)
	}
	for limit, ok := range map[int]bool{1: true, 2: false} {
		if f := r.fewestTaken(secs(12), 1, limit); f.Reach != 1 || f.OK() != ok {
			t.Errorf("fewest taken %v, with a limit of %d it is %v", f.Reach, limit, f.OK())
		}
	}
	got := []int{r.letInAt("n1", 0, never+secs(100)), r.letInAt("n2", secs(20), secs(42))}
	if d := cmp.Diff([]int{4, 2}, got); d != "" {
		t.Error(d)
	}
}

// What one data center keeps another does not know, while the one is dead, and only then;
// and a used ticket is judged where a line stands.
func TestHomeless(t *testing.T) {
	r := goodRun()
	v := r.visits[2] // at n1, waits from 0.53 s to 29.5 s
	if r.homeless(v, "n2", secs(50)) || !r.lineAt("n2", secs(50)) {
		t.Error("without data centers nobody is homeless, and a line stands everywhere")
	}
	r.sites = []string{"n1", "n2"}
	r.faults = []fault{{what: "kill", node: "n1", from: secs(20), to: secs(60), deaf: true}}
	for _, tt := range []struct {
		node       string
		at         float64
		want, soon bool
	}{{"n2", 18, false, false}, {"n2", 21, true, true}, {"n2", 40, true, false}, {"n1", 40, false, false}} {
		a := asked(askPage, tt.at, "", 0, 0)
		a.node = tt.node
		if got := r.homeless(v, tt.node, a.ended); got != tt.want {
			t.Errorf("at %s at %v s: homeless %v", tt.node, tt.at, got)
		}
		if got := r.newlyHomeless(v, &a); got != tt.soon {
			t.Errorf("at %s at %v s: newly homeless %v", tt.node, tt.at, got)
		}
	}
	for at, want := range map[float64]bool{0.6: false, 40: true, 79.8: false} {
		if got := r.lineAt("n1", secs(at)); got != want {
			t.Errorf("a line at %v s: %v", at, got)
		}
	}
	if r.lineAt("n3", secs(40)) {
		t.Error("nobody came to n3, and yet a line stands there")
	}
}
