package quota

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/tests/virtual"
)

// A use is a call that passed, and was used between the two times.
type use struct{ from, to time.Time }

// A tally is the result of the calls of one key.
type tally struct {
	uses []use
	last time.Time     // of the last decision
	gap  time.Duration // the longest time without a decision
	errs int
	slow time.Duration // the longest call
	odd  error         // other than ErrUnreachable
}

// A callers makes calls until it is stopped.
type callers struct {
	g      *group
	name   string
	pace   time.Duration
	ctx    context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	keys   []string
	counts map[string]*tally
}

// drive makes callers at each member call all keys in turn, one per pace.
func (g *group) drive(name string, keys []string, pace time.Duration, rs ...*rig) *callers {
	l := &callers{g: g, name: name, pace: pace, keys: keys, counts: map[string]*tally{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	for _, k := range keys {
		l.counts[k] = &tally{last: time.Now()}
	}
	for _, r := range rs {
		l.add(r)
	}
	g.t.Cleanup(l.end)
	return l
}

// add makes calls at another member too.
func (l *callers) add(r *rig) {
	for first := range 2 {
		l.wg.Go(func() {
			tick := time.NewTicker(l.pace)
			defer tick.Stop()
			for i := first * len(l.keys) / 2; ; i++ {
				select {
				case <-l.ctx.Done():
					return
				case <-r.ctx.Done():
					return
				case <-tick.C:
				}
				l.call(r, l.keys[i%len(l.keys)])
			}
		})
	}
}

// call makes one call and returns its decision.
func (l *callers) call(r *rig, key string) limit.Decision {
	from := time.Now()
	d, err := r.Limit(l.name).Take(r.ctx, key, 1)
	to := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counts[key]
	c.slow = max(c.slow, to.Sub(from))
	switch {
	case errors.Is(err, ErrUnreachable):
		c.errs++
		return d
	case err != nil:
		if r.ctx.Err() == nil {
			c.odd = err
		}
		return d
	case d.Allowed:
		c.uses = append(c.uses, use{from, to})
	}
	c.gap, c.last = max(c.gap, to.Sub(c.last)), to
	return d
}

func (l *callers) end() {
	l.stop()
	l.wg.Wait()
}

// drain calls each key until it is used up, and no Client holds units of it.
func (l *callers) drain(r *rig) {
	l.g.t.Helper()
	l.end()
	for _, key := range l.keys {
		deadline := time.Now().Add(3 * time.Minute)
		for {
			if d := l.call(r, key); !d.Allowed && d.Retry > time.Minute {
				break
			}
			if time.Now().After(deadline) {
				l.g.t.Fatalf("%s is never used up: %d calls passed", key, len(l.counts[key].uses))
			}
			wait(5 * time.Millisecond)
		}
	}
}

// judgeCalls checks calls made in a time without a fault: each is answered within a second, and
// none is decided without its host.
func (g *group) judgeCalls(slow time.Duration, errs int) {
	g.t.Helper()
	if most := patience; slow > most || errs > 0 {
		g.t.Errorf("slowest call %s, %d were unreachable, want all within %s", slow, errs, most)
	}
}

func wait(d time.Duration) { <-time.After(d) }

// worst returns the worst result of all keys.
func (l *callers) worst() (gap, slow time.Duration, errs int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.counts {
		gap, slow, errs = max(gap, c.gap), max(slow, c.slow), errs+c.errs
		if c.odd != nil {
			l.g.t.Error(c.odd)
		}
	}
	return gap, slow, errs
}

// exact checks that all of each key can be used, except for what was lost.
func (l *callers) exact(most int, lost map[string]int64) {
	l.g.t.Helper()
	for _, key := range l.keys {
		got := len(l.counts[key].uses)
		if got > most || int64(got) < int64(most)-lost[key] {
			l.g.t.Errorf("%s: %d calls passed, want %d, of which %d may be lost", key, got, most, lost[key])
		}
	}
}

// never checks that no more than the given number of calls were used in any window. It counts only
// calls that are certain: each was used at some time while it was made.
func (l *callers) never(more int, in time.Duration) {
	l.g.t.Helper()
	for _, key := range l.keys {
		us := slices.Clone(l.counts[key].uses)
		slices.SortFunc(us, func(a, b use) int { return a.from.Compare(b.from) })
		for i, first := range us {
			n := 0
			for _, u := range us[i:] {
				if u.to.Sub(first.from) < in {
					n++
				}
			}
			if n > more {
				l.g.t.Errorf("%s: %d calls used within %s of %s, want at most %d", key, n, in,
					first.from.Format("05.000"), more)
				break
			}
		}
	}
}

// lost returns what hosts have lent of each key to a process that is dead now.
func (g *group) lost(name string, keys []string, dead *rig, rs ...*rig) map[string]int64 {
	g.t.Helper()
	lost := map[string]int64{}
	for _, key := range keys {
		h, _, _ := g.whoHas(name, key, rs...)
		s := &h.host.ledger.shards[shardOf(name, key)]
		s.mu.Lock()
		var c limittable.Table // a copy, in which the dead process returns its units
		c.SetRules(0, g.rules(name).Rules, 1000)
		hash := func(string) uint64 { return 1 }
		t := s.tables[name]
		for i := range t.Places() {
			b := t.AppendKey(nil, i)
			if !bytes.Contains(b[:min(len(b), 1+len(key))], []byte(key)) {
				continue
			}
			if err := c.ReadKey(b, 0, hash); err != nil {
				g.t.Error(err)
			}
		}
		s.mu.Unlock()
		was := c.Lent(1)
		c.Borrow(0, 0, 1, key, &limittable.Report{Borrower: dead.who, Loan: 1 << 60})
		lost[key] = was - c.Lent(1)
	}
	return lost
}

func keysOf(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint("client-", i))
	}
	return keys
}

// A host is killed during calls: its standbys host its shards, and all of each key can be used
// except for what the dead process held.
func TestKilledHost(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testKilledHost)
}

func testKilledHost(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 1000, Window: time.Hour})
	g.define("small", limit.Rule{Algorithm: limit.SlidingLog, Amount: 30, Window: time.Hour})
	rs := []*rig{g.launch("a", launch{}), g.launch("b", launch{}), g.launch("c", launch{})}
	w := g.launch("w", launch{worker: true})
	g.spreadOf(rs...)
	g.await("the worker knows", w.Ready)
	hot := g.drive("api", []string{"hot"}, 20*time.Millisecond, append(rs, w)...)
	cold := g.drive("small", keysOf(50), 4*time.Millisecond, append(rs, w)...)
	wait(time.Second)
	dead, _, rest := g.whoHas("api", "hot", rs...)
	dead.kill()
	lost, lostCold := g.lost("api", hot.keys, dead, rs...), g.lost("small", cold.keys, dead, rs...)
	live := slices.DeleteFunc(slices.Clone(rs), func(r *rig) bool { return r == dead })
	g.spreadOf(live...)
	wait(limittable.Term + time.Second) // by then the units of the dead process count as used
	gap, slow, errs := hot.worst()
	gap2, slow2, errs2 := cold.worst()
	hot.drain(rest[0])
	cold.drain(w)
	hot.exact(1000, lost)
	cold.exact(30, lostCold)
	t.Logf("hot: %d of 1000 passed, the dead held at most %d; gap %s, slowest %s, %d errors; "+
		"cold: gap %s, slowest %s, %d errors", len(hot.counts["hot"].uses), lost["hot"], gap, slow, errs,
		gap2, slow2, errs2)
	if most := 4 * time.Second; gap > most {
		t.Errorf("nothing was decided for %s, want the standby within %s", gap, most)
	}
}

// A standby is killed: calls continue within about a second, and nothing is lost.
func TestKilledStandby(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testKilledStandby)
}

func testKilledStandby(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 300, Window: time.Hour})
	rs := []*rig{g.launch("a", launch{}), g.launch("b", launch{}), g.launch("c", launch{})}
	w := g.launch("w", launch{worker: true})
	g.spreadOf(rs...)
	g.await("the worker knows", w.Ready)
	_, dead, _ := g.whoHas("api", "hot", rs...)
	hot := g.drive("api", []string{"hot"}, 20*time.Millisecond, w)
	wait(500 * time.Millisecond)
	dead.kill()
	live := slices.DeleteFunc(slices.Clone(rs), func(r *rig) bool { return r == dead })
	g.spreadOf(live...)
	gap, slow, errs := hot.worst()
	hot.drain(w)
	hot.exact(300, nil)
	t.Logf("gap %s, slowest %s, %d errors", gap, slow, errs)
	if most := 2 * time.Second; gap > most {
		t.Errorf("nothing was decided for %s, want %s", gap, most)
	}
}

// All three hosts are stopped and restarted, one after the other: nothing is lost, and nobody
// waits.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testRollingRestart)
}

func testRollingRestart(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 2000, Window: time.Hour})
	names := []string{"a", "b", "c"}
	var rs []*rig
	for _, n := range names {
		rs = append(rs, g.launch(n, launch{}))
	}
	w := g.launch("w", launch{worker: true})
	g.spreadOf(rs...)
	g.await("the worker knows", w.Ready)
	load := g.drive("api", keysOf(20), 5*time.Millisecond, w)
	for i, n := range names {
		rs[i].stop()
		rs[i] = g.launch(n, launch{})
		g.spreadOf(rs...)
	}
	gap, slow, errs := load.worst()
	c := g.chart(rs[0])
	for i, x := range c.Shards {
		if x.UsageLost {
			t.Fatalf("shard %d is lost", i)
		}
	}
	load.end()
	used := map[string]int{}
	for k, c := range load.counts {
		used[k] = len(c.uses)
	}
	for _, key := range load.keys { // what is left is exactly what was not used
		g.await("all that is held is back", func() bool {
			d, err := w.Limit("api").Peek(t.Context(), key, 1)
			return err == nil && d.Remaining == int64(2000-used[key])
		})
	}
	t.Logf("gap %s, slowest %s, %d errors", gap, slow, errs)
	g.judgeCalls(slow, errs)
}

// Host and standby are killed at once: the third process hosts their keys after the lease, and
// counts them as fully used for one window.
func TestKilledHostAndStandby(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testKilledHostAndStandby)
}

func testKilledHostAndStandby(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 20, Window: time.Second})
	g.define("hour", limit.Rule{Algorithm: limit.SlidingLog, Amount: 20, Window: time.Hour})
	o := launch{lease: time.Second}
	rs := []*rig{g.launch("a", o), g.launch("b", o), g.launch("c", o)}
	w := g.launch("w", launch{worker: true})
	g.spreadOf(rs...)
	g.await("the worker knows", w.Ready)
	load := g.drive("api", keysOf(10), 5*time.Millisecond, w)
	wait(time.Second)
	h, s, rest := g.whoHas("api", "client-0", rs...)
	hour := ""
	for _, k := range keysOf(100) { // with the same host and standby
		if h2, s2, _ := g.whoHas("hour", k, rs...); h2 == h && s2 == s {
			hour = k
			break
		}
	}
	if got, errs := g.burst("hour", hour, 1, w.member); got != 4 || errs > 0 {
		t.Fatalf("%d calls passed, %d errors", got, errs)
	}
	h.kill()
	s.kill()
	began := time.Now()
	g.await("the third hosts all", func() bool { n, _ := rest[0].ShardCounts(); return n == Shards })
	took := time.Since(began)
	d, err := w.Limit("hour").Take(t.Context(), hour, 1)
	for err != nil {
		d, err = w.Limit("hour").Take(t.Context(), hour, 1)
		wait(10 * time.Millisecond)
	}
	if d.Remaining > 20-4-1 { // all used, or what was written in advance
		t.Errorf("a key that was called four times, and once more, has %+v", d)
	}
	passed := func() int {
		load.mu.Lock()
		defer load.mu.Unlock()
		return len(load.counts["client-0"].uses)
	}
	was := passed()
	g.await("a window later the key is free", func() bool { return passed() >= was+20 })
	free := time.Since(began)
	wait(time.Second)
	load.end()
	load.never(20, time.Second)
	gap, slow, errs := load.worst()
	t.Logf("third hosts all after %s, free after %s; gap %s, slowest %s, %d errors", took, free, gap, slow, errs)
}

// A host whose messages are held back for some seconds is replaced, and notices it.
func TestHostStandsStill(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testHostStandsStill)
}

func testHostStandsStill(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 400, Window: time.Hour})
	g.define("short", limit.Rule{Algorithm: limit.SlidingLog, Amount: 20, Window: 2 * time.Second})
	rs := []*rig{g.launch("a", launch{}), g.launch("b", launch{}), g.launch("c", launch{})}
	w := g.launch("w", launch{worker: true})
	g.spreadOf(rs...)
	g.await("the worker knows", w.Ready)
	h, s, _ := g.whoHas("api", "hot", rs...)
	// The stopped host makes calls too: the units that it holds count.
	hot := g.drive("api", []string{"hot"}, 20*time.Millisecond, w, h)
	short := g.drive("short", keysOf(5), 5*time.Millisecond, w, h)
	wait(500 * time.Millisecond)
	h.all.shut()
	h.beats.shut()
	g.await("the standby hosts the key", func() bool {
		return s.host.ledger.roleOf(int(shardOf("api", "hot"))) == hosts
	})
	wait(3 * time.Second)
	h.all.flow()
	h.beats.flow()
	g.spreadOf(rs...)
	short.end()
	// Its clock also jumps by 20 s: its lease and its loans are over.
	h.ahead.Add(int64(20 * time.Second))
	wait(time.Second)
	g.spreadOf(rs...)
	gap, slow, errs := hot.worst()
	hot.end()
	hot.exact(400, map[string]int64{"hot": 400})
	short.never(20, 2*time.Second)
	t.Logf("%d of 400 passed; gap %s, slowest %s, %d errors", len(hot.counts["hot"].uses), gap, slow, errs)
}

// A host whose heartbeats do not arrive, but that can write and receive requests, gives up what its
// standby took over.
func TestHostUnheard(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testHostUnheard)
}

func testHostUnheard(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 300, Window: time.Hour})
	rs := []*rig{g.launch("a", launch{}), g.launch("b", launch{}), g.launch("c", launch{})}
	w := g.launch("w", launch{worker: true})
	g.spreadOf(rs...)
	g.await("the worker knows", w.Ready)
	h, s, _ := g.whoHas("api", "hot", rs...)
	hot := g.drive("api", []string{"hot"}, 20*time.Millisecond, w)
	i := int(shardOf("api", "hot"))
	h.beats.shut()
	g.await("the standby hosts the key, and the host does not", func() bool {
		return s.host.ledger.roleOf(i) == hosts && h.host.ledger.roleOf(i) != hosts
	})
	wait(500 * time.Millisecond)
	h.beats.flow()
	g.spreadOf(rs...)
	gap, slow, errs := hot.worst()
	hot.drain(w)
	hot.exact(300, nil)
	t.Logf("gap %s, slowest %s, %d errors", gap, slow, errs)
}

// A host that cannot renew its lease decides nothing once the lease is over, and continues when it
// can renew it.
func TestHostCutOffFromTheStore(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testHostCutOffFromTheStore)
}

func testHostCutOffFromTheStore(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 300, Window: time.Hour})
	o := launch{lease: 2 * time.Second}
	rs := []*rig{g.launch("a", o), g.launch("b", o), g.launch("c", o)}
	w := g.launch("w", launch{worker: true})
	g.spreadOf(rs...)
	g.await("the worker knows", w.Ready)
	h, _, _ := g.whoHas("api", "hot", rs...)
	hot := g.drive("api", []string{"hot"}, 20*time.Millisecond, w)
	h.store.cut.Store(true)
	wait(2500 * time.Millisecond)
	if d, err := w.Limit("api").Peek(t.Context(), "hot", 1); err == nil {
		t.Errorf("a host without a lease says %+v", d)
	}
	h.store.cut.Store(false)
	g.await("it goes on", func() bool {
		_, err := w.Limit("api").Peek(t.Context(), "hot", 1)
		return err == nil
	})
	g.spreadOf(rs...)
	gap, slow, errs := hot.worst()
	hot.drain(w)
	hot.exact(300, nil)
	t.Logf("gap %s, slowest %s, %d errors", gap, slow, errs)
}

// Another host joins and leaves: its shards move there and back during calls. Calls in progress and
// reservations move with them.
func TestJoins(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testJoins)
}

func testJoins(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 2000, Window: time.Hour})
	g.define("calls", limit.Rule{Algorithm: limit.Concurrency, Amount: 5, Lease: time.Minute})
	g.define("pool", limit.Rule{Algorithm: limit.TokenBucket, Amount: 10, Window: time.Hour})
	rs := []*rig{g.launch("a", launch{}), g.launch("b", launch{}), g.launch("c", launch{})}
	w := g.launch("w", launch{worker: true})
	g.spreadOf(rs...)
	g.await("the worker knows", w.Ready)
	ctx := t.Context()
	calls, held := map[string]uint64{}, map[string]uint64{}
	for _, k := range keysOf(40) {
		for range 5 {
			d, err := w.Limit("calls").TakeAtHost(ctx, k, 1)
			if err != nil || !d.Allowed {
				t.Fatal(k, d, err)
			}
			calls[k] = d.ID
		}
		d, err := w.Limit("pool").Reserve(ctx, k, 8, time.Minute)
		if err != nil || !d.Allowed {
			t.Fatal(k, d, err)
		}
		held[k] = d.ID
	}
	load := g.drive("api", keysOf(20), 5*time.Millisecond, w)
	d := g.launch("d", launch{})
	rs = append(rs, d)
	order := []string{}
	for _, r := range rs {
		order = append(order, r.host.self)
	}
	began := time.Now()
	g.await("each shard is where it ranks first", func() bool {
		for i, x := range g.chart(w).Shards {
			if want := ranked(i, order); x.Host != want[0] || x.Standby != want[1] {
				return false
			}
		}
		return true
	})
	t.Log("all shards have moved after", time.Since(began))
	gap, slow, errs := load.worst()
	d.kill() // its standbys host its shards
	g.spreadOf(rs[:3]...)
	for k, id := range calls {
		lane := w.Limit("calls")
		if d, err := lane.TakeAtHost(ctx, k, 1); err != nil || d.Allowed {
			t.Errorf("%s: a sixth call beside five: %+v, %v", k, d, err)
		}
		if _, err := lane.Settle(ctx, k, id, 0); err != nil {
			t.Errorf("%s: end of a call: %v", k, err)
		}
		if d, err := lane.TakeAtHost(ctx, k, 1); err != nil || !d.Allowed {
			t.Errorf("%s: a fifth call beside four: %+v, %v", k, d, err)
		}
		d, err := w.Limit("pool").Settle(ctx, k, held[k], 3)
		if err != nil || d.Remaining != 7 {
			t.Errorf("%s: settled 3 of 8: %+v, %v", k, d, err)
		}
	}
	load.end()
	for _, key := range load.keys {
		g.await("all that is held is back", func() bool {
			d, err := w.Limit("api").Peek(ctx, key, 1)
			return err == nil && d.Remaining == int64(2000-len(load.counts[key].uses))
		})
	}
	t.Logf("while it joined: gap %s, slowest %s, %d errors", gap, slow, errs)
	g.judgeCalls(slow, errs)
}

// While there is no host, calls fail within a second and then at once. They succeed again without
// intervention.
func TestNobodyHosts(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testNobodyHosts)
}

func testNobodyHosts(t *testing.T) {
	g := newGroup(t)
	g.define("api", limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Second})
	o := launch{lease: time.Second}
	w := g.launch("w", launch{worker: true})
	lane := w.Limit("api")
	first := time.Now()
	if _, err := lane.Take(t.Context(), "k", 1); !errors.Is(err, ErrUnreachable) {
		t.Fatalf("want ErrUnreachable, got %v", err)
	}
	if took := time.Since(first); took > 1500*time.Millisecond {
		t.Errorf("it took %s, want a second", took)
	}
	next, probes := time.Now(), 0
	for range 200 {
		began := time.Now()
		if _, err := lane.Take(t.Context(), "k", 1); !errors.Is(err, ErrUnreachable) {
			t.Fatalf("want ErrUnreachable, got %v", err)
		}
		if time.Since(began) > 50*time.Millisecond {
			probes++
		}
	}
	if took := time.Since(next); probes > 2 || took > time.Second {
		t.Errorf("200 calls took %s, %d of them waited", took, probes)
	}
	a := g.launch("a", o)
	passes := func() bool {
		d, err := lane.Take(t.Context(), "k", 1)
		return err == nil && d.Allowed
	}
	g.await("calls pass", passes)
	a.kill()
	g.await("calls do not", func() bool {
		_, err := lane.Take(t.Context(), "k", 1)
		return errors.Is(err, ErrUnreachable)
	})
	began := time.Now()
	g.launch("a", o)
	g.await("calls pass again", passes)
	t.Log("calls pass again after", time.Since(began))
}
