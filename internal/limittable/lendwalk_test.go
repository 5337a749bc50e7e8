package limittable

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

var (
	lendSeeds = flag.Uint64("lend-seeds", 150, "worlds of each rule of the walk of what is lent")
	lendFirst = flag.Uint64("lend-first", 0, "the first of them")
)

// A lendWorld is a lender with its standby, borrowers that use what they hold as package quota
// does, and messages that are lost, late, repeated and out of order.
type lendWorld struct {
	t      *testing.T
	seed   uint64
	random *rand.Rand
	rule   limit.Rule
	rules  *Rules
	now    Time // lender's clock
	lag    Time // how far the current lender's clock is behind the first one's

	host, second       *Table
	hostClk, secondClk Time // offsets of their own clocks
	reign              Time // since when host lends

	asked   uint64
	net     []parcel
	all     []*borrower
	who     uint64
	uses    [lendKeys][]call
	spans   [lendKeys][]span // windows of FirstHit
	granted int64
	counted int
}

const lendKeys = 3

// lendKey returns the name of a key; the last key has an amount of its own.
func lendKey(k int) string { return string('a' + rune(k)) }

// A span is a window as the lender counted it.
type span struct{ from, begin, end Time }

// A parcel is one message in transit.
type parcel struct {
	b     *borrower
	k     int
	n     uint64 // number of the request
	told  bool   // it is the answer
	ask   Report
	reply LoanState
}

type borrower struct {
	who    uint64
	drift  Time // its clock gains one part in this many; negative: it loses
	dead   bool
	loans  uint64
	shares [lendKeys]borrowed
}

// A borrowed is what a borrower holds of a key, like internal/quota's share.
type borrowed struct {
	loan              uint64
	given, used, back int64
	said              int64
	until, last       Time // own clock
	question          uint64
	sent              Time
	need              int64
	closing           bool
	held              int64
	jobs              []job // that hold units
}

func (s *borrowed) left() int64 { return s.given - s.used - s.back - s.held }

// giveUp counts everything outstanding as used. After that nothing is guaranteed for jobs.
func (s *borrowed) giveUp(now Time) {
	if s.used = s.given - s.back; s.held > 0 {
		s.held, s.jobs, s.last = 0, nil, now
	}
}

// clock returns the time of a borrower's own clock.
func (w *lendWorld) clock(b *borrower) Time { return w.now + (w.now-lendBegan)/b.drift }

const lendBegan = Time(1_700_000_000_000_000_000)

// lendRules returns all rules that can lend, with windows shorter and longer than Term.
func lendRules(random *rand.Rand) []limit.Rule {
	n := 1 + random.Int64N(40)
	w := []time.Duration{40, 300, 1_700, 6_100, 31_000}[random.IntN(5)] * time.Millisecond
	return []limit.Rule{
		{Algorithm: limit.SlidingLog, Amount: n, Window: w},
		{Algorithm: limit.SlidingLog, Amount: logMost + 100*n, Window: w},
		{Algorithm: limit.SlidingWindow, Amount: n, Window: w},
		{Algorithm: limit.SlidingWindow, Amount: n, Window: w, Parts: 2 + random.IntN(9)},
		{Algorithm: limit.FixedWindow, Amount: n, Window: w},
		{Algorithm: limit.FixedWindow, Amount: n, Window: w, Align: limit.FirstHit},
		{Algorithm: limit.FixedWindow, Amount: n, Align: limit.Minute, Window: time.Minute},
		{Algorithm: limit.FixedWindow, Amount: n, Align: limit.Hour, Window: time.Hour,
			Zone: time.FixedZone("", 20_700)},
		{Algorithm: limit.TokenBucket, Amount: n, Window: w, Burst: 1 + random.Int64N(60)},
		{Algorithm: limit.LeakyBucket, Amount: n, Window: w},
	}
}

// What borrowers use of their loans keeps the guarantee of the algorithm at the times of use,
// whatever happens to messages, borrowers and lenders.
func TestWalkOfWhatIsLent(t *testing.T) {
	granted, counted := int64(0), 0
	for seed := *lendFirst; seed < *lendFirst+*lendSeeds; seed++ {
		random := rand.New(rand.NewPCG(seed, 11))
		for _, r := range lendRules(random) {
			w := newLendWorld(t, seed, r)
			for range 600 {
				w.step()
			}
			w.judge()
			granted, counted = granted+w.granted, counted+w.counted
		}
		if t.Failed() {
			return
		}
	}
	if counted < int(*lendSeeds) {
		t.Errorf("only %d jobs were counted while they were held", counted)
	}
	t.Log(granted, "units used of what was lent;", counted, "jobs were counted while they were held")
}

func newLendWorld(t *testing.T, seed uint64, r limit.Rule) *lendWorld {
	w := &lendWorld{t: t, seed: seed, rule: r, random: rand.New(rand.NewPCG(seed, 12)), now: lendBegan}
	own := map[string]int64{lendKey(lendKeys - 1): 2 * r.Amount}
	w.rules = compiled(t, r, own)
	w.host, w.second = w.table(), w.table()
	w.hostClk, w.secondClk, w.reign = w.someClock(), w.someClock(), w.now
	for range 3 + w.random.IntN(4) {
		w.join()
	}
	return w
}

func (w *lendWorld) table() *Table {
	table := &Table{}
	table.SetRules(w.now-w.lag, w.rules, 100)
	return table
}

func (w *lendWorld) someClock() Time { return Time(w.random.Int64N(1e15)) - lendBegan }

// join adds a borrower. Its clock and the lender's differ from true time by at most one part in a
// thousand each.
func (w *lendWorld) join() {
	w.who++
	b := &borrower{who: w.who, drift: Time(501 + w.random.Int64N(5000))}
	if w.random.IntN(2) == 0 {
		b.drift = -b.drift
	}
	for k := range b.shares {
		b.loans++
		b.shares[k].loan = b.loans
	}
	w.all = append(w.all, b)
}

// pass lets time pass: mostly little, sometimes more than Term.
func (w *lendWorld) pass() {
	d := w.random.Int64N(int64(20 * time.Millisecond))
	switch w.random.IntN(30) {
	case 0:
		d = w.random.Int64N(int64(Term) + int64(Term)/4)
	case 1, 2, 3:
		d = w.random.Int64N(int64(w.rule.Window) / 2)
	case 4: // to the end of a window
		d = int64(Time(w.rule.Window) - w.now%Time(w.rule.Window) - Time(w.random.IntN(2)))
	case 5:
		d = int64(Term - Term/lendDrift)
	}
	w.now += Time(d)
}

func (w *lendWorld) step() {
	w.pass()
	b, k := w.all[w.random.IntN(len(w.all))], w.random.IntN(lendKeys)
	s := &b.shares[k]
	switch w.random.IntN(27) {
	case 0, 1, 2, 3:
		w.call(b, k)
	case 4, 5: // report, or return everything
		if s.question == 0 && !b.dead {
			w.ask(b, k, Report{Want: w.amount() * w.random.Int64N(2), Close: w.random.IntN(2) == 0})
		}
	case 6: // no borrower waits that long for an answer
		if s.question != 0 {
			s.question, s.closing, s.said = 0, false, -1
		}
	case 7: // recalled
		s.back += max(0, s.left())
	case 8:
		w.take(k)
	case 9:
		w.expire()
	case 10:
		w.grab(b, k)
	case 13, 14, 15:
		w.jobs(b, k)
	case 11:
		w.useLast(b, k)
	case 12:
		switch w.random.IntN(8) {
		case 0, 1, 2:
			w.takeOver()
			w.expire()
			w.grab(b, k)
		case 4, 5:
			w.copySecond()
		case 6:
			w.loseAll()
		case 7:
			b.dead = true
			w.join()
		}
	default:
		w.deliver()
	}
	w.look()
}

func (w *lendWorld) amount() int64 {
	return 1 + w.random.Int64N(max(1, w.rule.MaxCost()/int64(1+w.random.IntN(8))))
}

// call uses what is held, or requests more.
func (w *lendWorld) call(b *borrower, k int) {
	s, n := &b.shares[k], w.amount()
	if b.dead { // it may use what it holds until then
		n = max(1, s.left())
	}
	if s.left() >= n && w.clock(b) < s.until {
		w.useOrHold(b, k, n)
		return
	}
	if s.question == 0 && !b.dead {
		w.ask(b, k, Report{Need: n, Least: 1 + w.random.Int64N(n), Want: n * w.random.Int64N(4)})
	}
}

func (w *lendWorld) use(b *borrower, k int, n int64) {
	s := &b.shares[k]
	s.used, s.last = s.used+n, w.clock(b)
	w.count(k, n)
}

// useOrHold uses n, or sends a job that costs n.
func (w *lendWorld) useOrHold(b *borrower, k int, n int64) {
	if s := &b.shares[k]; w.random.IntN(3) > 0 {
		s.held += n
		s.jobs = append(s.jobs, job{n, -1})
		return
	}
	w.use(b, k, n)
}

func (w *lendWorld) count(k int, n int64) {
	w.uses[k] = append(w.uses[k], call{w.now, n})
	w.granted += n
}

// jobs lets services count some of the jobs in progress, and answer some.
func (w *lendWorld) jobs(b *borrower, k int) {
	s := &b.shares[k]
	if w.clock(b) >= s.until {
		return // given up
	}
	for i := 0; i < len(s.jobs); i++ {
		j := &s.jobs[i]
		if j.counted < 0 && w.random.IntN(2) == 0 {
			j.counted = w.now
			w.count(k, j.n)
			w.counted++
		}
		if b.dead || w.random.IntN(3) > 0 {
			continue
		}
		s.held -= j.n
		if j.counted >= 0 {
			s.used, s.last = s.used+j.n, w.clock(b)
		}
		s.jobs = slices.Delete(s.jobs, i, i+1)
		i--
	}
}

// ask sends a report.
func (w *lendWorld) ask(b *borrower, k int, r Report) {
	s, now := &b.shares[k], w.clock(b)
	if s.given > s.used+s.back && now >= s.until {
		s.giveUp(now)
	}
	r.Held, r.Weight, r.More = s.held, w.random.Int64N(3), w.random.Int64N(9)
	r.Spread = w.random.Int64N(2) == 0
	if r.Close = r.Close && r.Want == 0 && s.held == 0; r.Close {
		s.back += s.left()
	}
	r.Borrower, r.Loan, r.Used, r.Back = b.who, s.loan, s.used, s.back
	if s.used > s.said {
		r.Age = time.Duration(max(0, now-s.last))
	}
	w.asked++
	s.question, s.sent, s.need, s.said, s.closing = w.asked, now, r.Need, s.used, r.Close
	w.net = append(w.net, parcel{b: b, k: k, n: w.asked, ask: r})
}

// deliver delivers a message, loses it, or delivers it and keeps it to deliver it again.
func (w *lendWorld) deliver() {
	if len(w.net) == 0 {
		return
	}
	i := w.random.IntN(len(w.net))
	p := w.net[i]
	if w.random.IntN(4) > 0 {
		w.net = append(w.net[:i:i], w.net[i+1:]...)
	}
	switch lost := w.random.IntN(8) == 0; {
	case lost:
	case p.told:
		w.hear(&p)
	default:
		l := w.lend(&p, w.second)
		w.net = append(w.net, parcel{b: p.b, k: p.k, n: p.n, told: true, reply: l})
	}
}

// lend makes the lender decide, and the standby replicate it.
func (w *lendWorld) lend(p *parcel, second *Table) LoanState {
	at, r, key, hash := w.now-w.lag, p.ask, lendKey(p.k), uint64(p.k)+1
	l := w.host.Borrow(at, w.now+w.hostClk, hash, key, &r)
	w.look()
	if second != nil && (l.Booked != 0 || l.Given != 0 || !l.Closed) {
		second.Replicate(at, w.now+w.secondClk, hash, key, &Entry{
			Kind: EntryLend, N: l.Booked, At: l.At, Borrower: r.Borrower, Loan: r.Loan,
			Given: l.Given, Used: l.Used,
			Back: l.Back, Want: r.Want, Close: l.Closed})
	}
	return l
}

// expire makes the lender expire silent borrowers, and the standby replicate it.
func (w *lendWorld) expire() {
	w.host.Expire(w.now-w.lag, w.now+w.hostClk, func(key string, d *Entry) {
		if w.second != nil {
			w.second.Replicate(w.now-w.lag, w.now+w.secondClk, uint64(key[0]-'a')+1, key, d)
		}
	})
	w.look()
}

// hear processes an answer if the borrower still waits for it.
func (w *lendWorld) hear(p *parcel) {
	s := &p.b.shares[p.k]
	if s.question != p.n {
		return
	}
	s.question = 0
	s.given, s.until = max(p.reply.Given, s.used+s.back), s.sent+Time(BorrowTerm)
	if s.left() < 0 {
		s.giveUp(w.clock(p.b))
	}
	if now := w.clock(p.b); s.need > 0 && s.left() > 0 && now < s.until {
		w.useOrHold(p.b, p.k, min(s.need, s.left()))
	}
	if s.closing {
		p.b.loans++
		*s = borrowed{loan: p.b.loans}
	}
}

// grab uses everything that is free of a key, so that anything uncounted shows.
func (w *lendWorld) grab(b *borrower, k int) {
	if b.dead || b.shares[k].question != 0 {
		return
	}
	w.askNow(b, k, Report{Need: w.rule.MaxCost(), Least: 1})
	if s := &b.shares[k]; s.left() > 0 && w.clock(b) < s.until {
		w.use(b, k, s.left())
	}
}

// askNow sends a request and processes the answer at once. The request is delivered once more
// later.
func (w *lendWorld) askNow(b *borrower, k int, r Report) {
	w.ask(b, k, r)
	p := w.net[len(w.net)-1]
	p.reply = w.lend(&p, w.second)
	w.hear(&p)
}

// useLast uses what is held in the last moment in which that is allowed. Just before and soon after
// it another borrower grabs what is free.
func (w *lendWorld) useLast(b *borrower, k int) {
	s, other := &b.shares[k], w.all[w.random.IntN(len(w.all))]
	if s.question == 0 && !b.dead {
		w.askNow(b, k, Report{Want: w.amount()})
	}
	if s.left() <= 0 || w.clock(b) >= s.until || other == b {
		return
	}
	was := w.now
	for range 5 { // the clocks differ little: each step is 500 times as near
		w.now += s.until - 1 - w.clock(b)
	}
	w.now = max(was, w.now-1)
	w.expire()
	w.grab(other, k)
	if w.clock(b) < s.until {
		w.use(b, k, s.left())
	}
	w.pass()
	w.expire()
	w.grab(other, k)
}

// take makes the lender decide about units that are used at once.
func (w *lendWorld) take(k int) {
	at, n := w.now-w.lag, w.amount()
	var d limit.Decision
	deed := Entry{Kind: EntryTake, N: n}
	if w.random.IntN(2) == 0 {
		d, _ = w.host.Take(at, uint64(k)+1, lendKey(k), n)
	} else {
		deed.TTL = time.Duration(1 + w.random.Int64N(1e10))
		d, _ = w.host.Reserve(at, uint64(k)+1, lendKey(k), n, deed.TTL)
	}
	if deed.ID = d.ID; !d.Allowed {
		return
	}
	w.uses[k] = append(w.uses[k], call{w.now, n})
	if w.second != nil {
		w.second.Replicate(at, w.now+w.secondClk, uint64(k)+1, lendKey(k), &deed)
	}
}

// takeOver makes the standby the lender. The messages of the first lender are lost.
func (w *lendWorld) takeOver() {
	if w.second == nil {
		return
	}
	for i := range w.net {
		if !w.net[i].told && w.random.IntN(2) == 0 {
			w.lend(&w.net[i], nil)
		}
	}
	w.host, w.hostClk, w.second = w.second, w.secondClk, nil
	w.host.RenewBorrowers(w.now + w.hostClk)
	if w.reign = w.now; w.rule.Algorithm != limit.FixedWindow {
		w.lag += Time(w.random.Int64N(1e7))
	}
}

// copySecond makes a standby from copies.
func (w *lendWorld) copySecond() {
	w.second, w.secondClk = w.table(), w.someClock()
	if err := w.second.ReadHeader(w.host.AppendHeader(nil)); err != nil {
		w.t.Fatal(err)
	}
	hash := func(key string) uint64 { return uint64(key[0]-'a') + 1 }
	for i := range w.host.Places() {
		if err := w.second.ReadKey(w.host.AppendKey(nil, i), w.now+w.secondClk, hash); err != nil {
			w.t.Fatal(err)
		}
	}
}

// loseAll loses the lender and the standby. Loans may still be used for a term, so the next lender
// waits that long, or counts everything as used only then.
func (w *lendWorld) loseAll() {
	w.host, w.second, w.hostClk = w.table(), nil, w.someClock()
	end := w.now + LendTerm
	if w.reign = end; w.random.IntN(2) == 0 {
		w.now = end
	}
	w.host.Presume(end - w.lag)
}

// look records the windows of FirstHit, and checks the sums.
func (w *lendWorld) look() {
	for k := range lendKeys {
		_, e := w.host.slot(uint64(k) + 1)
		if e == nil {
			continue
		}
		sum := int64(0)
		if e.more != nil {
			for i := range e.more.loans {
				if out := e.more.loans[i].out(); out < 0 {
					w.t.Fatalf("seed %d, %s: %+v", w.seed, name(w.rule), e.more.loans[i])
				}
				sum += e.more.loans[i].out()
			}
		}
		if sum != e.lent() {
			w.t.Fatalf("seed %d, %s: %d lent, loans of %d", w.seed, name(w.rule), e.lent(), sum)
		}
		all := w.spans[k]
		if w.rule.Align != limit.FirstHit || e.b == 0 ||
			len(all) > 0 && all[len(all)-1].begin == Time(e.c) {
			continue
		}
		x := span{from: min(Time(e.c), w.reign), begin: Time(e.c), end: Time(e.a)}
		if len(all) > 0 {
			last := &all[len(all)-1]
			if last.end = min(last.end, x.begin); last.end > w.reign {
				x.from = last.end
			}
		}
		w.spans[k] = append(all, x)
	}
}

// judge checks the uses of all keys against the guarantee.
func (w *lendWorld) judge() {
	for k := range lendKeys {
		rule := w.rule
		if k == lendKeys-1 {
			rule = withAmount(rule, 2*rule.Amount)
		}
		if over, at := overshoot(rule, w.uses[k]); over > 0 {
			w.t.Errorf("seed %d, %s: key %d: %v more than promised from %v on", w.seed, name(rule), k, over,
				time.Duration(at-lendBegan))
		}
		for _, x := range w.spans[k] {
			sum := int64(0)
			for _, c := range w.uses[k] {
				if c.at >= x.from && c.at < x.end {
					sum += c.n
				}
			}
			if sum > rule.Amount {
				w.t.Errorf("seed %d, %s: key %d: %d in a window from %v on", w.seed, name(rule), k, sum,
					time.Duration(x.begin-lendBegan))
			}
		}
	}
}

// overshoot returns the maximum by which calls, ordered by time, exceed the guarantee of a rule,
// and from when on.
func overshoot(r limit.Rule, calls []call) (worst float64, from Time) {
	r = r.WithDefaults()
	window, law := Time(r.Window), lawOf(r)
	fixed, _ := law.(*fixedLaw)
	for i := range calls {
		sum := int64(0)
		end := Never
		if fixed != nil && r.Align != limit.FirstHit {
			_, end = fixed.around(calls[i].at)
		}
		for j := i; j < len(calls) && calls[j].at < end; j++ {
			sum += calls[j].n
			span, most := calls[j].at-calls[i].at, float64(r.Amount)
			switch {
			case r.Algorithm.HasBurst():
				most = float64(r.Burst) + float64(r.Amount)*float64(span)/float64(window)
			case fixed != nil && r.Align != limit.FirstHit:
			case span >= window:
				end = 0 // no more of this window
				continue
			case fixed != nil:
				continue // look records its windows
			case r.Algorithm == limit.SlidingWindow:
				if parts := Time(r.Parts); span >= window-(window+parts-1)/parts {
					most = 2 * float64(r.Amount)
				}
			}
			if over := float64(sum) - most; over > worst+1e-6 {
				worst, from = over, calls[i].at
			}
		}
	}
	return worst, from
}
