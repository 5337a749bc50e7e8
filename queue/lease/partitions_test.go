package lease

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// noon is the start time of the tests of partitions.
func noon() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) }

func lenders(t testing.TB, p Partitioning) *lender {
	t.Helper()
	all, err := newLender(p, noon(), 0, true)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func holding(t testing.TB, p Partitioning, reserved int64, pick func(int) int) *Holding {
	t.Helper()
	h, err := NewHolding(p, reserved, pick)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// first picks the first of the remaining ones.
func first(int) int { return 0 }

// As in Azure's "Rate Limiting pattern": 500 per second are 20 partitions of 25. A process that
// needs 100 requests 4, is granted 2 for ten seconds, runs at 50 per second, finishes after 2 s and
// returns them.
func TestFourAskedForTwoGiven(t *testing.T) {
	rule := Partitioning{Count: 20, Amount: 25, Term: 10 * time.Second}
	all, h := lenders(t, rule), holding(t, rule, 0, first)
	now := noon()
	others := []Lease{}
	for _, i := range []int{1, 3, 7} {
		l, _ := all.Lend(now, i)
		others = append(others, l)
	}
	wants := h.Wants(now, 100, 20)
	if d := cmp.Diff([]int{0, 1, 2, 3}, wants); d != "" {
		t.Fatal(d)
	}
	for _, i := range wants {
		if l, ok := all.Lend(now, i); ok {
			h.Got(now, l)
		}
	}
	if d := cmp.Diff([]int{0, 2}, h.Has(now)); d != "" || h.Rate(now) != 50 {
		t.Fatal(d, h.Rate(now))
	}
	sent := int64(0)
	for now = noon(); sent < 100; now = now.Add(time.Second) {
		sent += h.Rate(now)
	}
	if now.Sub(noon()) != 2*time.Second {
		t.Errorf("done after %v, want 2 s", now.Sub(noon()))
	}
	spare := h.Spare(now, 0)
	for _, l := range spare {
		if !all.Return(now, l) {
			t.Errorf("%+v is not taken back", l)
		}
	}
	if len(spare) != 2 || h.Rate(now) != 0 || all.Lent(now) != len(others) {
		t.Errorf("%d returned, %d a second left, %d lent", len(spare), h.Rate(now), all.Lent(now))
	}
	rest := 2 * time.Second // a window and a second, by default
	if _, ok := all.Lend(now.Add(rest-1), 0); ok {
		t.Error("lent to somebody else while the target still counts what was sent")
	}
	if _, ok := all.Lend(now.Add(rest), 0); !ok {
		t.Error("what was returned early is lent to nobody")
	}
}

// As in Azure's "Rate Limiting pattern": a lease lasts 15 s, and its holder knows by itself when it
// ends. It counts from the request, because the answer may have been slow.
func TestTheHolderKeepsTheTime(t *testing.T) {
	rule := Partitioning{Count: 1, Amount: 25}
	all, h, other := lenders(t, rule), holding(t, rule, 0, first), holding(t, rule, 0, first)
	asked := noon()
	granted := asked.Add(3 * time.Second)
	l, ok := all.Lend(granted, 0)
	if !ok || l.Term != 15*time.Second {
		t.Fatalf("%+v %v", l, ok)
	}
	h.Got(asked, l)
	end := asked.Add(15*time.Second - 15*time.Millisecond) // a clock may be slow by 0.1 %
	if h.Rate(end.Add(-1)) != 25 || !h.Falls(end.Add(-1)).Equal(end) {
		t.Errorf("%d a second until %v", h.Rate(end.Add(-1)), h.Falls(end.Add(-1)))
	}
	if h.Rate(end) != 0 || !h.Falls(end).IsZero() || len(h.Has(end)) != 0 {
		t.Error("it is used when it is over")
	}
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {15 * time.Second, false}, {15*time.Second + 15*time.Millisecond, false},
		{17*time.Second + 15*time.Millisecond - 1, false}, {17*time.Second + 15*time.Millisecond, true}} {
		if _, ok := all.Lend(granted.Add(c.after), 0); ok != c.want {
			t.Errorf("after %v: lent anew %v, want %v", c.after, ok, c.want)
		}
	}
	now := granted.Add(17*time.Second + 15*time.Millisecond)
	if _, ok := all.Renew(now, l); ok || all.Return(now, l) || all.Holds(now, l) {
		t.Error("the lease of before is in force again")
	}
	if other.Rate(now) != 0 {
		t.Error("somebody else has it, who never got it")
	}
}

// As in Azure's "Rate Limiting pattern": partitions are tried at random, and a small reserved
// capacity makes requests rarely necessary.
func TestTriedAtRandomBeyondWhatIsReserved(t *testing.T) {
	rule := Partitioning{Count: 20, Amount: 25}
	h := holding(t, rule, 30, rand.New(rand.NewPCG(1, 2)).IntN)
	now := noon()
	for need, want := range map[int64]int{0: 0, 30: 0, 31: 1, 55: 1, 56: 2, 130: 4, 530: 20, 1 << 62: 20} {
		if got := h.Wants(now, need, 100); len(got) != want {
			t.Errorf("%d a second: asks for %d, want %d", need, len(got), want)
		}
	}
	if got := h.Wants(now, 1000, 3); len(got) != 3 {
		t.Errorf("asks for %d, want 3 at most", len(got))
	}
	tried := make([]int, rule.Count)
	for range 10_000 {
		two := h.Wants(now, 80, 100)
		if len(two) != 2 || two[0] == two[1] {
			t.Fatal(two)
		}
		tried[two[0]]++
		tried[two[1]]++
	}
	if least, most := slices.Min(tried), slices.Max(tried); least < 850 || most > 1150 {
		t.Errorf("each was tried 1,000 times in the mean, and %d to %d times", least, most)
	}
	h.Got(now, Lease{Partition: 7, Fence: 1, Term: leaseTerm})
	if h.Rate(now) != 55 {
		t.Errorf("%d a second of 30 reserved and one partition", h.Rate(now))
	}
	for range 100 {
		if slices.Contains(h.Wants(now, 505, 100), 7) {
			t.Fatal("it asks for what it has")
		}
	}
}

// As in Azure's "Rate Limiting pattern": both want 2 and B is faster; then A gets 6 and B gets 3;
// then A gets 0 and B gets 1. Each lease ends after 15 s, and the rates fall.
func TestTheRatesOfTwoProcessors(t *testing.T) {
	rule := Partitioning{Count: 10, Amount: 100}
	all := lenders(t, rule)
	picks := map[string][]int{"A": {2, 6, 0}, "B": {2, 3, 1}}
	var picture strings.Builder
	holders := map[string]*Holding{}
	for name := range picks {
		holders[name] = holding(t, rule, 0, first)
	}
	for second := range 19 {
		now := noon().Add(time.Duration(second) * time.Second)
		for _, name := range []string{"B", "A"} { // B's request arrives first
			if second >= len(picks[name]) {
				continue
			}
			if l, ok := all.Lend(now, picks[name][second]); ok {
				holders[name].Got(now, l)
			}
		}
		if second < 4 || second > 13 {
			fmt.Fprintf(&picture, "%2d s  A %d %v  B %d %v\n", second, holders["A"].Rate(now),
				holders["A"].Has(now), holders["B"].Rate(now), holders["B"].Has(now))
		}
	}
	want := strings.TrimPrefix(`
 0 s  A 0 []  B 100 [2]
 1 s  A 100 [6]  B 200 [2 3]
 2 s  A 200 [0 6]  B 300 [1 2 3]
 3 s  A 200 [0 6]  B 300 [1 2 3]
14 s  A 200 [0 6]  B 300 [1 2 3]
15 s  A 200 [0 6]  B 200 [1 3]
16 s  A 100 [0]  B 100 [1]
17 s  A 0 []  B 0 []
18 s  A 0 []  B 0 []
`, "\n")
	if d := cmp.Diff(want, picture.String()); d != "" {
		t.Error(d)
	}
}

// A lease that is renewed in time never ends, and one that is no longer needed is dropped.
func TestLeasesAreRenewedAndReturned(t *testing.T) {
	rule := Partitioning{Count: 10, Amount: 100}
	all, h := lenders(t, rule), holding(t, rule, 0, first)
	now := noon()
	for _, i := range h.Wants(now, 300, 10) {
		l, _ := all.Lend(now, i)
		h.Got(now, l)
	}
	if due := h.Due(now.Add(7*time.Second), 300); len(due) != 0 {
		t.Errorf("%d due before half of the term", len(due))
	}
	for range 20 {
		now = now.Add(7500 * time.Millisecond)
		due := h.Due(now, 300)
		if len(due) != 3 || h.Rate(now) != 300 {
			t.Fatalf("%d due, %d a second", len(due), h.Rate(now))
		}
		for _, l := range due {
			l, ok := all.Renew(now.Add(time.Second), l)
			if !ok {
				t.Fatal("not renewed")
			}
			h.Got(now, l)
		}
	}
	now = now.Add(8 * time.Second)
	if due := h.Due(now, 150); len(due) != 2 {
		t.Errorf("%d due of what is needed, want 2", len(due))
	}
	// An answer that arrives after its lease was dropped does not bring the lease back.
	late := h.Due(now, 300)
	spare := h.Spare(now, 150)
	if len(spare) != 1 || h.Rate(now) != 200 {
		t.Fatalf("%+v let go, %d a second", spare, h.Rate(now))
	}
	for _, l := range late {
		renewed, _ := all.Renew(now, l)
		h.Got(now, renewed)
	}
	all.Return(now, spare[0])
	if h.Rate(now) != 200 {
		t.Errorf("%d a second: it uses what it has given back", h.Rate(now))
	}
	h.Lost(late[2])
	h.Got(now, late[2])
	if h.Rate(now) != 100 {
		t.Errorf("%d a second: it uses what it has lost", h.Rate(now))
	}
	h.Got(now, Lease{Partition: 99, Fence: 1})
	h.Lost(Lease{Partition: -1})
	if all.Return(now, Lease{Partition: -1}) || all.Holds(now, Lease{}) {
		t.Error("no lease of anybody")
	}
}

func TestAfterARestartTheLeasesOfBeforeCount(t *testing.T) {
	rule := Partitioning{Count: 2, Amount: 1}
	all, err := newLender(rule, noon(), 7, false)
	if err != nil {
		t.Fatal(err)
	}
	end := 17*time.Second + 15*time.Millisecond
	if _, ok := all.Lend(noon().Add(end-1), 1); ok {
		t.Error("lent while the process of before may have lent it")
	}
	if l, ok := all.Lend(noon().Add(end), 1); !ok || l.Fence != 8 {
		t.Errorf("%+v %v", l, ok)
	}
}

func TestImpossiblePartitions(t *testing.T) {
	for _, p := range []Partitioning{
		{}, {Count: 1}, {Amount: 1}, {Count: MaxPartitions + 1, Amount: 1}, {Count: 1, Amount: 1, Window: -1},
		{Count: 1, Amount: 1, Term: time.Millisecond}, {Count: 1, Amount: 1, Rest: time.Millisecond},
	} {
		if _, err := newLender(p, noon(), 0, true); !errors.Is(err, ErrPartitioning) {
			t.Errorf("%+v: %v", p, err)
		}
		if _, err := NewHolding(p, 0, first); !errors.Is(err, ErrPartitioning) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if _, err := NewHolding(Partitioning{Count: 1, Amount: 1}, -1, first); err == nil {
		t.Error("less than nothing is reserved")
	}
}

// A crowd is a set of processors that share a target by partitions. Messages are slow or lost,
// clocks are inaccurate, and processors die. Each one keeps to its own rate by its own records.
type crowd struct {
	rng     *rand.Rand
	rule    Partitioning
	all     *lender
	members []*processor
	seen    []time.Time // by the target
	later   map[time.Duration][]func(now time.Time)
}

// A processor is one of them. Its clock runs at rate, with any start.
type processor struct {
	h    *Holding
	rate float64
	need int64
	out  []time.Duration // what it has sent, by time of answer
}

func (m *processor) clock(at time.Duration) time.Time {
	return noon().Add(time.Duration(float64(at) * m.rate))
}

// Together they never send more in any window than the target can take, whatever messages are lost.
func TestPartitionsNeverSumUpToMore(t *testing.T) {
	const step, length = 10 * time.Millisecond, 90 * time.Second
	for seed := range uint64(20) {
		c := &crowd{rng: rand.New(rand.NewPCG(5, seed)), later: map[time.Duration][]func(time.Time){},
			rule: Partitioning{Count: 6, Amount: 5, Window: time.Second, Term: 4 * time.Second}}
		c.all = lenders(t, c.rule)
		for range 4 {
			c.members = append(c.members, c.join(t))
		}
		for at := time.Duration(0); at < length; at += step {
			for _, f := range c.later[at] {
				f(noon().Add(at))
			}
			delete(c.later, at)
			for i, m := range c.members {
				if c.rng.IntN(3000) == 0 { // it dies, and a new one starts
					c.members[i] = c.join(t)
					continue
				}
				c.live(m, at, step)
			}
		}
		worst, from := 0, 0
		slices.SortFunc(c.seen, time.Time.Compare)
		for i := range c.seen {
			for c.seen[i].Sub(c.seen[from]) >= time.Second {
				from++
			}
			worst = max(worst, i-from+1)
		}
		if worst > 30 || len(c.seen) < 750 { // needs are small, and messages are lost
			t.Errorf("seed %d: %d in a second of 30, %d in all", seed, worst, len(c.seen))
		}
	}
}

func (c *crowd) join(t *testing.T) *processor {
	return &processor{h: holding(t, c.rule, 0, c.rng.IntN), rate: 0.999 + 0.002*c.rng.Float64()}
}

// after runs f when a message has arrived, or never.
func (c *crowd) after(at, step time.Duration, f func(now time.Time)) {
	if c.rng.IntN(10) > 0 {
		at += step * time.Duration(1+c.rng.IntN(150))
		c.later[at] = append(c.later[at], f)
	}
}

// live performs one step of a processor: it sends, requests more, renews and returns.
func (c *crowd) live(m *processor, at, step time.Duration) {
	now := m.clock(at)
	if c.rng.IntN(300) == 0 {
		m.need = c.rng.Int64N(30)
	}
	m.out = slices.DeleteFunc(m.out, func(answered time.Duration) bool {
		return answered <= at-c.rule.Window-step
	})
	for int64(len(m.out)) < min(m.need, m.h.Rate(now)) {
		m.out = append(m.out, at+step*time.Duration(2+c.rng.IntN(90)))
		arrived := at + step*time.Duration(c.rng.IntN(int((m.out[len(m.out)-1]-at)/step)))
		c.seen = append(c.seen, noon().Add(arrived))
	}
	if c.rng.IntN(30) > 0 {
		return
	}
	for _, i := range m.h.Wants(now, m.need, 2) {
		c.after(at, step, func(there time.Time) {
			if l, ok := c.all.Lend(there, i); ok {
				c.after(there.Sub(noon()), step, func(time.Time) { m.h.Got(now, l) })
			}
		})
	}
	for _, l := range m.h.Due(now, m.need) {
		c.after(at, step, func(there time.Time) {
			if l, ok := c.all.Renew(there, l); ok {
				c.after(there.Sub(noon()), step, func(time.Time) { m.h.Got(now, l) })
			}
		})
	}
	for _, l := range m.h.Spare(now, m.need) {
		c.after(at, step, func(there time.Time) { c.all.Return(there, l) })
	}
}
