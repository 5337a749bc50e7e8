package limiters

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
)

var manyKeys = flag.Int("keys", 1_000_000, "how many keys a limit holds")

// nameLength is that of a client's name.
const nameLength = 16

func client(i int) string { return fmt.Sprintf("client-%09d", i) }

// TestManyKeys: a key costs at most 100 bytes and its length, and no decision waits longer
// while idle keys go.
func TestManyKeys(t *testing.T) {
	// Longer than it takes to make them all, or the first would be idle before the last is there.
	window := time.Duration(*manyKeys) * time.Second / 300_000 // chosen
	for _, a := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow} {
		t.Run(a.String(), func(t *testing.T) {
			(&crowd{t: t, rule: limit.Rule{Algorithm: a, Amount: 1, Window: window}}).run()
		})
	}
}

// A crowd is a limit with many keys, and the few that go on calling.
type crowd struct {
	t    *testing.T
	rule limit.Rule
	l    *ratelimit.Limiter
	live []string
	next int
}

func (c *crowd) run() {
	t := c.t
	before, began := heap(), time.Now()
	l, err := ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{
		{Name: "api", Rule: c.rule, MaxKeys: *manyKeys},
	}})
	if err != nil {
		t.Fatal(err)
	}
	c.l = l
	for i := range *manyKeys {
		c.allow(client(i))
	}
	filled := time.Since(began)
	each := float64(heap()-before) / float64(*manyKeys)
	if n := c.keys(); n != *manyKeys {
		t.Fatalf("%d keys of %d are there after %v: some were idle already", n, *manyKeys, filled)
	}
	t.Logf("%d keys in %v; %.1f bytes a key, %d of them its name", *manyKeys, filled, each, nameLength)
	if each > 100+nameLength {
		t.Errorf("%.1f bytes a key, want 100 and its length at most", each)
	}
	const calling, measure = 5000, 500 * time.Millisecond
	for i := range calling {
		c.live = append(c.live, client(i*(*manyKeys/calling)))
	}
	full := c.sample(measure)
	if n := c.keys(); n != *manyKeys {
		t.Fatalf("%d keys of %d are there after %v: some were idle already", n, *manyKeys, time.Since(began))
	}
	// A key is idle a window after its call, of two counters two, and is kept a second more.
	idle := c.rule.Window + time.Second
	if c.rule.Algorithm == limit.SlidingWindow {
		idle += c.rule.Window
	}
	<-time.After(time.Until(began.Add(filled + idle)))
	going := latency{}
	for wait := time.Now(); c.keys() > *manyKeys/100+2*calling; {
		going = append(going, c.sample(100*time.Millisecond)...)
		if time.Since(wait) > time.Minute {
			t.Fatalf("%d keys are there after a minute of calls; %d calls", c.keys(), c.next)
		}
	}
	gone := c.sample(measure)
	t.Logf("before   %v", full)
	t.Logf("while    %v", going)
	t.Logf("after    %v", gone)
	if left := heap() - min(heap(), before); float64(left) > each*float64(*manyKeys)/10 {
		t.Errorf("%d MB are left of %.0f when the keys are gone", left>>20, each*float64(*manyKeys)/(1<<20))
	}
	for what, l := range map[string]latency{"while keys go": going, "when they are gone": gone} {
		l.steady(t, what, full)
	}
	runtime.KeepAlive(c)
}

func (c *crowd) allow(key string) {
	if _, err := c.l.Allow(context.Background(), ratelimit.Check{Limit: "api", Key: key, Cost: 1}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *crowd) keys() int {
	totals, err := c.l.Totals("api")
	if err != nil {
		c.t.Fatal(err)
	}
	return totals.Keys
}

// latency are rounds of 1,000 decisions: the median, the slowest hundredth and the worst of each.
type latency [][3]time.Duration

// sample measures decisions of the keys that go on calling. A round in which the machine gave
// this thread's core to another process is left out: that is tens of milliseconds that are not ours.
func (c *crowd) sample(d time.Duration) (l latency) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var took [1000]time.Duration
	for began := time.Now(); time.Since(began) < d || len(l) == 0; {
		before := c.preempted()
		for i := range took {
			key := c.live[c.next%len(c.live)]
			c.next++
			from := time.Now()
			c.allow(key)
			took[i] = time.Since(from)
		}
		if c.preempted() > before {
			continue
		}
		slices.Sort(took[:])
		l = append(l, [3]time.Duration{took[500], took[990], took[999]})
	}
	return l
}

// preempted is how often this thread had to leave its core.
func (c *crowd) preempted() int64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &r); err != nil {
		c.t.Fatal(err)
	}
	return r.Nivcsw
}

// middle are the medians over the rounds, and worst is the worst of all.
func (l latency) middle() (m [3]time.Duration, worst time.Duration) {
	for i := range m {
		slices.SortFunc(l, func(a, b [3]time.Duration) int { return int(a[i] - b[i]) })
		m[i] = l[len(l)/2][i]
	}
	return m, l[len(l)-1][2]
}

// steady compares decisions with those before. Chosen: what forgets a few keys may take some
// microseconds, and the slowest of millions 20 ms; a look at a million keys takes 100 ms.
func (l latency) steady(t *testing.T, what string, before latency) {
	t.Helper()
	m, worst := l.middle()
	was, _ := before.middle()
	for i, name := range [...]string{"p50", "p99", "worst of 1,000"} {
		most := was[i] + 10*time.Microsecond
		if i == 0 {
			most = was[i] + was[i]/2
		}
		if float64(m[i]) > float64(most)**slack {
			t.Errorf("%s of decisions %s: %v, before %v, want %v", name, what, m[i], was[i], most)
		}
	}
	if most := 20 * time.Millisecond; float64(worst) > float64(most)**slack {
		t.Errorf("the slowest decision %s: %v, want %v", what, worst, most)
	}
}

// String tells the medians, and the worst of all.
func (l latency) String() string {
	m, worst := l.middle()
	return fmt.Sprintf("p50 %v, p99 %v, worst of 1,000 %v; worst of %d,000 %v",
		m[0], m[1], m[2], len(l), worst)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
