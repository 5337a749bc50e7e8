package slot

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The random walk of docs/protocol.md §13 runs the real Pool and Share: three host processes that
// may each take over and wake up at any time, two workers with restarts, a network that loses,
// duplicates and reorders messages, and clocks at 7/8, 1 and 9/8 of true time. A crashed process is
// never scheduled again; a process under SIGSTOP is scheduled late. The promises are checked after
// each step.

var walkSteps = flag.Int64("walk-steps", 400_000, "steps of each sound random walk")

const (
	walkHosts, walkWorkers, walkMsgs, walkStays, walkUses = 3, 2, 4, 6, 16
	unit                                                  = 8 // own-clock units per true tick
)

type walkConfig struct {
	kind        Kind
	n, term, s  int64 // slots, T and S in units
	horizon     int64 // ticks
	drift       bool
	lower       bool
	two         bool  // the counter borrows from Anywhere
	upTerm      int64 // Anywhere's term
	settle      int64
	sigma       int64 // pauses of counter time that Anywhere allows
	softRenew   bool  // a pass is renewed before the counter has confirmed it
	noWAL       bool  // answers before the write
	noFence     bool  // no compare-and-set
	workerGrace bool  // a worker admits while a renewal is pending
}

type walkHost struct {
	p     *Pool
	state int // 0 unborn, 1 taking over, 2 serving, 3 over
	wr    int // 0 none, 1 in flight, 2 applied, 3 refused
	exp   uint64
}

type walkMsg struct {
	w    int
	sync *Sync
	ans  *Answer
}

type walk struct {
	c       walkConfig
	par     Params
	r       *rand.Rand
	now     int64
	rate    [walkHosts + walkWorkers]int64
	stopped [walkHosts + walkWorkers]int64
	store   *Record
	rev     uint64
	hosts   [walkHosts]walkHost
	ws      [walkWorkers]*Share
	loans   uint64
	net     []walkMsg
	ends    [walkStays]Time // latest end sent to the visitor
	lives   [walkStays]uint64
	noted   [walkStays]map[int]Item
	stays   int
	uses    []int64
	bound   int64
	lowered bool
	root    *Pool
	told    ParentTerm // the newest that a host published
	cov     *walkCover
}

type walkCover struct {
	refused, revived, late, renewed, admitted, walks, wentOn atomic.Int64
}

func newWalk(c walkConfig, r *rand.Rand, cov *walkCover) *walk {
	w := &walk{c: c, r: r, bound: c.n, cov: cov}
	w.par = Params{
		Drift: 1, Term: time.Duration(c.term), Settle: time.Duration(c.settle), Buckets: int(c.s),
		Allotment: Counter, RecallWait: 1, Sigma: time.Duration(max(1, c.sigma)),
	}.WithDefaults()
	w.par.Settle = time.Duration(c.settle)
	for i := range w.rate {
		w.rate[i] = unit
		if c.drift {
			w.rate[i] = 7 + int64(r.IntN(3))
		}
	}
	if c.drift {
		w.par.Drift = 125_000
	}
	lim := Limit{Kind: c.kind, N: c.n, Per: time.Duration(c.s)}
	w.store = NewRecord(1, nil, lim)
	w.store.Time = unit
	w.store.Limits[0].Refilled = unit
	if c.two {
		w.store.Parent = &ParentLoan{Loan: 77}
		up := w.par
		up.Counters, up.Term = true, time.Duration(c.upTerm)
		w.root = NewPool(up, "anywhere", NewRecord(2, nil, lim))
		w.root.Takeover(0)
		w.root.Confirm(0)
	}
	for i := range w.ws {
		w.restart(i)
	}
	return w
}

func (w *walk) restart(i int) {
	w.loans++
	lim := Limit{Kind: w.c.kind, N: w.c.n, Per: time.Duration(w.c.s)}
	w.ws[i] = NewShare(w.par, fmt.Sprint("w", i), LoanID(w.loans*1000003), lim)
	for k := range w.noted {
		delete(w.noted[k], i)
	}
}

func (w *walk) hclk(h int) time.Duration { return time.Duration(w.now * w.rate[h]) }
func (w *walk) wclk(i int) time.Duration { return time.Duration(w.now * w.rate[walkHosts+i]) }
func (w *walk) rclk() time.Duration      { return time.Duration(w.now * unit) }

func (w *walk) send(m walkMsg) {
	if len(w.net) < walkMsgs {
		w.net = append(w.net, m)
	}
}

func (w *walk) replies(rs []Reply) {
	for _, r := range rs {
		a := r.Answer
		w.send(walkMsg{w: int(r.Sync.Borrower[1] - '0'), ans: &a})
	}
}

// begin makes host h build its next write.
func (w *walk) begin(h int, force bool) {
	x := &w.hosts[h]
	clk := w.hclk(h)
	now, wr := x.p.Begin(clk, force)
	w.replies(now)
	if wr == nil {
		return
	}
	x.wr, x.exp = 1, w.rev
	if x.p.wr.Name.Epoch != w.store.Name.Epoch || x.p.rec.Name != w.store.Name {
		x.exp = 0 // built on a record that is no longer the newest
	}
	if w.c.noWAL {
		old := x.p.rec
		x.p.rec = wr
		for _, d := range x.p.done {
			w.replies([]Reply{{d.x, x.p.answer(clk, d.x)}})
		}
		x.p.rec = old
	}
}

// step performs one random action and reports whether it was enabled.
func (w *walk) step() bool {
	roll := w.r.IntN(1000)
	h, i := w.r.IntN(walkHosts), w.r.IntN(walkWorkers)
	switch {
	case roll < 100:
		return w.tick()
	case roll < 103:
		return w.take(h)
	case roll < 300:
		return w.apply(h)
	case roll < 430:
		return w.running(h) && w.learn(h)
	case roll < 442:
		return w.running(h) && w.beat(h)
	case roll < 445:
		return w.running(h) && w.lower(h)
	case roll < 455:
		return w.running(h) && w.upSync(h)
	case roll < 465:
		return w.running(h) && w.goOn(h, i)
	case roll < 540:
		return w.running(walkHosts+i) && w.sync(i)
	case roll < 552:
		return w.running(walkHosts+i) && w.resend(i)
	case roll < 700:
		return w.running(walkHosts+i) && w.admit(i)
	case roll < 790:
		return w.running(walkHosts+i) && w.visit(i)
	case roll < 796:
		return w.running(walkHosts+i) && w.giveBack(i)
	case roll < 798:
		w.restart(i)
		return true
	case roll < 990:
		return w.deliver(h, roll < 950)
	}
	if len(w.net) == 0 {
		return false
	}
	w.net = slices.Delete(w.net, 0, 1)
	return true
}

// running decides whether a process is scheduled. It sometimes stops one.
func (w *walk) running(proc int) bool {
	if w.stopped[proc] > w.now {
		return false
	}
	if w.r.IntN(200) == 0 {
		w.stopped[proc] = w.now + w.r.Int64N(w.c.horizon)
	}
	return true
}

func (w *walk) tick() bool {
	if w.now >= w.c.horizon {
		return false
	}
	w.now++
	if w.root != nil {
		w.rootWrite()
	}
	return true
}

// rootWrite makes Anywhere, which works and is always reachable, write.
func (w *walk) rootWrite() []Reply {
	now, wr := w.root.Begin(w.rclk(), true)
	if wr != nil {
		rs, _ := w.root.Confirm(w.rclk())
		now = append(now, rs...)
	}
	return now
}

func (w *walk) take(h int) bool {
	x := &w.hosts[h]
	if x.state != 0 || h > 0 && w.hosts[h-1].state == 0 {
		return false
	}
	x.p = NewPool(w.par, fmt.Sprint("h", h), w.store.Clone())
	x.p.Takeover(w.hclk(h))
	x.state, x.wr, x.exp = 1, 1, w.rev
	return true
}

func (w *walk) apply(h int) bool {
	x := &w.hosts[h]
	if x.wr != 1 {
		return false
	}
	if !w.c.noFence && w.rev != x.exp {
		x.wr = 3
		w.cov.refused.Add(1)
		return true
	}
	w.rev++
	w.store = x.p.wr.Clone()
	x.wr = 2
	return true
}

func (w *walk) learn(h int) bool {
	x := &w.hosts[h]
	switch x.wr {
	case 2:
		rs, _ := x.p.Confirm(w.hclk(h))
		x.wr, x.state = 0, 2
		w.replies(rs)
		w.begin(h, false)
	case 3:
		x.p.Fail()
		x.wr, x.state = 0, 3
	default:
		return false
	}
	return true
}

func (w *walk) beat(h int) bool {
	if w.hosts[h].state != 2 || w.hosts[h].wr != 0 {
		return false
	}
	w.begin(h, true)
	return true
}

func (w *walk) lower(h int) bool {
	x := &w.hosts[h]
	if !w.c.lower || w.lowered || x.state != 2 || x.wr != 0 || w.store.Limits[0].N < 2 {
		return false
	}
	w.lowered = true
	l := x.p.rec.Limits[0].Limit
	l.N--
	x.p.SetLimits(x.p.rec.LimitRev+1, l)
	w.begin(h, true)
	return true
}

func (w *walk) upSync(h int) bool {
	x := &w.hosts[h]
	if w.root == nil || x.state != 2 {
		return false
	}
	m := x.p.ParentSync(w.hclk(h), 2, 0, nil)
	w.root.Receive(m)
	for _, r := range w.rootWrite() {
		x.p.ReceiveParent(w.hclk(h), r.Answer)
	}
	return true
}

// goOn makes a host continue the published term of the previous host, with bounds on the time from
// a worker beside it. Or the host publishes its own term.
func (w *walk) goOn(h, i int) bool {
	x, s := &w.hosts[h], w.ws[i]
	if w.root == nil || x.state != 2 {
		return false
	}
	if t, ok := x.p.ParentTerm(w.hclk(h)); ok {
		w.told = t
		return true
	}
	e, clk := s.Estimate(), w.wclk(i)
	if e.Epoch != w.told.Epoch ||
		!x.p.ContinueTerm(w.hclk(h), w.told, e.Lo(clk, w.par.Drift), e.Hi(clk, w.par.Drift)) {
		return false
	}
	w.cov.wentOn.Add(1)
	return true
}

func (w *walk) sync(i int) bool {
	if lo, ok := w.ws[i].Lo(w.wclk(i)); ok {
		w.ws[i].Settle(lo)
	}
	m := w.ws[i].Sync(w.wclk(i), int64(w.r.IntN(2)), 0)
	if m == nil {
		return false
	}
	for k := range w.noted {
		delete(w.noted[k], i)
	}
	w.send(walkMsg{w: i, sync: m})
	return true
}

func (w *walk) resend(i int) bool {
	m := w.ws[i].InFlight()
	if m == nil || slices.ContainsFunc(w.net, func(x walkMsg) bool { return x.sync == m }) {
		return false
	}
	w.send(walkMsg{w: i, sync: m})
	return true
}

func (w *walk) admit(i int) bool {
	if w.stays >= walkStays || len(w.uses) >= walkUses || w.ws[i].PendingItems() >= 3 {
		return false
	}
	o, ok := w.ws[i].Open(w.wclk(i), SessionID(w.stays+1), 0, 0)
	if !ok {
		return false
	}
	w.cov.admitted.Add(1)
	if w.c.kind == AtOnce {
		w.ends[w.stays], w.lives[w.stays] = o.End, w.ws[i].Life()
		w.stays++
	} else {
		w.uses = append(w.uses, w.now)
	}
	return true
}

// visit makes a visitor come with its pass; the worker adds a renewal.
func (w *walk) visit(i int) bool {
	k := w.r.IntN(walkStays)
	s := w.ws[i]
	if w.c.kind != AtOnce || k >= w.stays || s.Life() != w.lives[k] || s.PendingItems() >= 3 {
		return false
	}
	hi, _ := s.Hi(w.wclk(i))
	at, _ := s.Lo(w.wclk(i))
	if hi >= w.ends[k] || at.Add(time.Duration(w.c.s)) <= w.ends[k] {
		return false
	}
	if _, dup := w.noted[k][i]; dup {
		return false
	}
	it := Item{Op: Renew, ID: SessionID(k + 1), From: w.ends[k], At: at}
	s.AddItem(it)
	if w.noted[k] == nil {
		w.noted[k] = map[int]Item{}
	}
	w.noted[k][i] = it
	if w.c.softRenew {
		w.ends[k] = at.Add(time.Duration(w.c.s))
	}
	return true
}

func (w *walk) giveBack(i int) bool {
	if w.ws[i].Held() <= 0 {
		return false
	}
	w.ws[i].Return(1)
	return true
}

func (w *walk) deliver(h int, consume bool) bool {
	if len(w.net) == 0 {
		return false
	}
	k := w.r.IntN(len(w.net))
	m := w.net[k]
	if m.sync != nil {
		x := &w.hosts[h]
		if x.state != 2 || x.wr != 0 || w.stopped[h] > w.now {
			return false
		}
		if l := x.p.rec.loan(m.sync.Loan); l != nil && l.Over > 0 && !l.Dead {
			w.cov.revived.Add(1)
		}
		x.p.Receive(m.sync)
		w.begin(h, false)
	} else {
		w.hear(m)
	}
	if consume {
		w.net = slices.DeleteFunc(w.net, func(x walkMsg) bool {
			return x == m
		})
	}
	return true
}

func (w *walk) hear(m walkMsg) {
	s := w.ws[m.w]
	if !s.Receive(w.wclk(m.w), m.ans) {
		return
	}
	if m.ans.Name.Epoch < w.store.Name.Epoch {
		w.cov.late.Add(1)
	}
	for _, r := range m.ans.Results {
		if k := int(r.ID) - 1; r.End > w.ends[k] {
			w.cov.renewed.Add(1)
			w.ends[k] = r.End
		}
	}
}

// reader returns the counter time that the most generous reader of passes of a life assumes: any
// worker, or a new one beside the newest host.
func (w *walk) reader(life uint64) Time {
	t := Never
	for i, s := range w.ws {
		if hi, ok := s.Hi(w.wclk(i)); ok && s.Life() == life {
			t = min(t, hi)
		}
	}
	top := -1
	for h := range w.hosts {
		if w.hosts[h].state == 2 && (top < 0 || w.hosts[h].p.epoch > w.hosts[top].p.epoch) {
			top = h
		}
	}
	if top < 0 || w.hosts[top].p.rec.Name.Life != life {
		return t
	}
	p := w.hosts[top].p
	if !p.termOver(w.hclk(top)) {
		t = min(t, p.CounterTime(w.hclk(top)))
	}
	return t
}

// check checks the promises.
func (w *walk) check() error {
	switch w.c.kind {
	case AtOnce:
		return w.checkAtOnce()
	case PerWindow:
		n := int64(0)
		for _, u := range w.uses {
			if (w.now-u)*unit < w.c.s {
				n++
			}
		}
		if n > w.c.n {
			return fmt.Errorf("over: %d uses in a window, limit %d", n, w.c.n)
		}
	case Bucket:
		for i, u := range w.uses {
			d := (w.uses[len(w.uses)-1] - u) * unit
			if n := int64(len(w.uses) - i); n > w.c.n+d/w.c.s {
				return fmt.Errorf("over: %d uses in %d, burst %d", n, d, w.c.n)
			}
		}
	}
	return w.checkLent()
}

func (w *walk) checkAtOnce() error {
	n := int64(0)
	for k := range w.stays {
		if w.ends[k] > w.reader(w.lives[k]) || w.c.workerGrace && w.grace(k) {
			n++
		}
	}
	if w.lowered && w.store.Used(0) <= w.store.Limits[0].N {
		w.bound = w.store.Limits[0].N
	}
	bound := w.bound
	if w.root != nil {
		bound = w.root.rec.lent(0)
	}
	if n > bound {
		return fmt.Errorf("over: %d in use, limit %d", n, bound)
	}
	return w.checkLent()
}

func (w *walk) checkLent() error {
	for i := range w.store.Loans {
		if w.store.Loans[i].Lent(0) < 0 {
			return fmt.Errorf("lent < 0")
		}
	}
	return w.checkBound()
}

// checkBound checks that a host's UsedAt is within its Bound, except for sessions that a live
// borrower has opened and not reported. An operator's alarm depends on this.
func (w *walk) checkBound() error {
	for i := range w.hosts {
		if p, clk := w.hosts[i].p, w.hclk(i); p != nil && w.hosts[i].state == 2 && w.c.kind != Bucket {
			n, bound := p.UsedAt(0, clk, 0, 0), p.Bound(0)
			for k := range p.newest().Loans {
				if l := &p.newest().Loans[k]; l.Over == 0 {
					bound += l.Lent(0)
				}
			}
			if n > bound {
				return fmt.Errorf("host %d tells of %d in use, bound %d", i, n, bound)
			}
		}
	}
	if w.root != nil {
		if n, bound := w.root.UsedAt(0, w.rclk(), 0, 0), w.root.Bound(0); n > bound {
			return fmt.Errorf("Anywhere tells of %d lent, bound %d", n, bound)
		}
	}
	return nil
}

// grace reports whether a worker still admits this visitor because its renewal is pending.
func (w *walk) grace(k int) bool {
	for i, s := range w.ws {
		clk := w.wclk(i)
		items := slices.Clone(s.items)
		if s.fly != nil {
			items = append(items, s.fly.Items...)
		}
		hi, ok := s.Hi(clk)
		for _, it := range items {
			if ok && clk < s.until && it.Op == Renew && it.ID == SessionID(k+1) && it.From == w.ends[k] &&
				hi < min(it.From.Add(w.par.Settle), it.At.Add(time.Duration(w.c.s))) {
				return true
			}
		}
	}
	return false
}

// drain ends all faults, with one new host and no more visitors. Every slot must come back.
func (w *walk) drain() error {
	p := NewPool(w.par, "last", w.store.Clone())
	p.Takeover(w.rclk())
	p.Confirm(w.rclk())
	for range 80 {
		w.now++
		if _, wr := p.Begin(w.rclk(), true); wr != nil {
			p.Confirm(w.rclk())
		}
	}
	r := p.rec
	if r.lent(0) != 0 || r.Limits[0].Ends.Len() != 0 || w.c.kind == Bucket && r.Limits[0].Tokens != w.c.n {
		return fmt.Errorf("never back: lent %d used %d tokens %d", r.lent(0),
			r.Limits[0].Ends.Len(), r.Limits[0].Tokens)
	}
	return nil
}

// walks runs random walks from one seed until budget steps or a broken promise.
func walks(c walkConfig, seed uint64, budget int64, cov *walkCover) (steps int64, err error) {
	for n := uint64(0); steps < budget; n++ {
		w := newWalk(c, rand.New(rand.NewPCG(seed, n)), cov)
		cov.walks.Add(1)
		w.tick()
		w.take(0)
		w.apply(0)
		w.learn(0)
		w.upSync(0)
		for idle := 0; idle < 300; {
			if !w.step() {
				idle++
				continue
			}
			idle = 0
			steps++
			if err := w.check(); err != nil {
				return steps, fmt.Errorf("seed %d/%d: %w", seed, n, err)
			}
		}
		if w.root == nil {
			if err := w.drain(); err != nil {
				return steps, fmt.Errorf("seed %d/%d: %w", seed, n, err)
			}
		}
	}
	return steps, nil
}

func runWalks(c walkConfig, budget int64) (int64, *walkCover, error) {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		total int64
		first error
		cov   walkCover
		chunk atomic.Uint64
		stop  atomic.Bool
	)
	const size = 50_000
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !stop.Load() {
				seed := chunk.Add(1)
				if int64(seed-1)*size >= budget {
					return
				}
				n, err := walks(c, seed, size, &cov)
				mu.Lock()
				total += n
				if err != nil && first == nil {
					first = err
					stop.Store(true)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return total, &cov, first
}

var walkBase = map[string]walkConfig{
	"at once":             {kind: AtOnce, n: 2, term: 24, s: 32, horizon: 40},
	"at once, drift":      {kind: AtOnce, n: 2, term: 24, s: 32, horizon: 40, drift: true},
	"at once, one slot":   {kind: AtOnce, n: 1, term: 16, s: 16, horizon: 24},
	"at once, four, long": {kind: AtOnce, n: 4, term: 24, s: 48, horizon: 80, drift: true},
	"at once, lowered": {kind: AtOnce, n: 3, term: 24, s: 32, horizon: 40,
		drift: true, lower: true},
	"window": {kind: PerWindow, n: 2, term: 24, s: 32, horizon: 40, drift: true},
	"bucket": {kind: Bucket, n: 2, term: 24, s: 32, horizon: 40, drift: true},
	"two levels, drift": {kind: AtOnce, n: 2, term: 24, s: 32, upTerm: 56, horizon: 60,
		drift: true, two: true},
	"two levels, going on": {kind: AtOnce, n: 2, term: 24, s: 32, upTerm: 64, horizon: 120, sigma: 16,
		settle: 8, drift: true, two: true},
	"at once, settle, drift": {kind: AtOnce, n: 2, term: 40, s: 32, settle: 16, horizon: 60,
		drift: true},
}

func TestWalkKeepsThePromises(t *testing.T) {
	budget := *walkSteps
	if testing.Short() { // the race detector is ten times slower; make walk runs them all
		budget = min(budget, 50_000)
	}
	for name, c := range walkBase {
		t.Run(name, func(t *testing.T) {
			steps, cov, err := runWalks(c, budget)
			t.Logf("%d steps, %d walks, %d admitted, %d renewed, "+
				"%d refused writes, %d revived, %d late answers, %d went on",
				steps, cov.walks.Load(), cov.admitted.Load(), cov.renewed.Load(), cov.refused.Load(),
				cov.revived.Load(), cov.late.Load(), cov.wentOn.Load())
			if err != nil {
				t.Fatal(err)
			}
			if c.sigma > 0 && cov.wentOn.Load() == 0 {
				t.Error("no host went on with the term of the one before")
			}
			if cov.admitted.Load() == 0 || cov.refused.Load() == 0 || cov.late.Load() == 0 {
				t.Error("the walks did not reach what they are for")
			}
		})
	}
}

func TestWalkCatchesBrokenRules(t *testing.T) {
	broken := []struct {
		name, base string
		change     func(*walkConfig)
	}{
		{"no write before the answer", "at once", func(c *walkConfig) { c.noWAL = true }},
		{"no fencing", "at once", func(c *walkConfig) { c.noFence = true }},
		{"pass renewed before confirmed", "at once", func(c *walkConfig) { c.softRenew = true }},
		{"worker lets pass while pending", "at once, settle, drift",
			func(c *walkConfig) { c.workerGrace = true }},
	}
	if testing.Short() { // those that a few steps find; make walk runs them all
		broken = broken[:2]
	}
	for _, b := range broken {
		t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
			c := walkBase[b.base]
			b.change(&c)
			steps, _, err := runWalks(c, max(20*(*walkSteps), 60_000_000))
			if err == nil {
				t.Fatalf("not caught in %d steps", steps)
			}
			t.Logf("caught after %d steps: %v", steps, err)
		})
	}
}
