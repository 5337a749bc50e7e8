package lending

import (
	"time"

	"github.com/headgate/headgate/internal/borrower"
	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/slot"
)

// Strategy returns headgate itself as a strategy.
func Strategy() sim.Strategy {
	return sim.Strategy{
		Name: "headgate", About: "slots are lent, recalled and come back; one line in order",
		Source: "this program: packages slot and internal/counter", Spread: true, Ends: true,
		Make: func(s *sim.Scenario, w *sim.World) sim.Model { return newModel(s, w, never) },
	}
}

const never = time.Duration(1<<62 - 1)

// A model is headgate in one world.
type model struct {
	w     *sim.World
	s     *sim.Scenario
	sites []*site
	above *above // nil with one data center
	top   disk

	calls  []func()
	unused []int32
	guests []guest

	faultsEnd time.Duration
	hosts     int // number of hosts started
	fenced    int
	count     counts
	reserved  int64 // as reported to the judge
	called    int64
}

// counts are what a hunt checks in addition to the judge.
type counts struct {
	lost    int64 // tickets confirmed to visitors and then lost
	late    int64 // answers to a claim lost for longer than it is remembered
	thrown  int64 // visitors inside, on time, and rejected
	takes   int64 // takeovers
	crashes int64
}

type site struct {
	workers  []*worker
	stays    map[slot.SessionID]sim.ID // visitors inside
	host     *host
	disk     disk
	cutUntil time.Duration
}

// A guest is what a visitor knows about itself: its ticket or its pass.
type guest struct {
	n         int64 // order of arrival: tells which visitor has the ID now
	status    status
	decided   bool
	ticket    uint64
	refused   bool // its last claim was rejected
	confirmed bool // the cookie of its ticket has come back
	try       int  // number of the newest request: older answers are ignored
	id        slot.SessionID
	end       slot.Time // in its pass
	usable    slot.Time // the latest end that any worker would accept
	until     time.Duration
}

type status uint8

const (
	asks status = iota
	joins
	waits
	enters
	isInside
	isGone
)

// These are the times of visitors. A page polls again when an answer has not come after giveUp.
// Entering takes a round trip after the call. Chosen.
const (
	giveUp   = 5 * time.Second
	entering = 20 * time.Millisecond
)

// newModel starts all processes: Anywhere first, then each counter, then its workers.
func newModel(s *sim.Scenario, w *sim.World, faultsEnd time.Duration) *model {
	m := &model{w: w, s: s, faultsEnd: faultsEnd}
	for range s.Datacenters {
		m.sites = append(m.sites, &site{stays: map[slot.SessionID]sim.ID{}})
	}
	if len(s.Datacenters) > 1 {
		m.above = &above{writer: writer{process: m.newProcess(-1), disk: &m.top}}
		m.above.host = m.above
		m.above.begin()
	}
	for i, x := range m.sites {
		x.host = m.newHost(i)
		x.host.begin()
		for k := range s.Datacenters[i].Workers {
			x.workers = append(x.workers, newWorker(m, i, k))
		}
		for _, k := range x.workers {
			k.begin()
		}
	}
	if m.above != nil {
		m.pictures()
	}
	if !s.Faults.None() {
		m.breakThings()
	}
	return m
}

// pictureEvery is the interval of snapshots (docs/protocol.md §12).
const pictureEvery = 1500 * time.Millisecond

// pictures sends each data center the numbers of waiting visitors and sessions in the others.
func (m *model) pictures() {
	for i, x := range m.sites {
		if !x.host.serving() {
			continue
		}
		var others counter.Others
		for k, y := range m.sites {
			if k != i && y.host.serving() {
				o := y.host.desk.LocalTotals(y.host.clk())
				others.Waiting += o.Waiting
				others.Active += o.Active
				others.New += o.New
			}
		}
		x.host.desk.SetOthers(others)
	}
	m.after(pictureEvery, m.pictures)
}

func (m *model) limits() []slot.Limit {
	l := m.s.Limits
	return []slot.Limit{
		{Kind: slot.AtOnce, N: l.Active, Per: l.Session},
		{Kind: slot.PerWindow, N: l.New, Per: l.Window},
	}
}

// params returns the parameters of docs/protocol.md §12.
func (m *model) params(counters bool) slot.Params {
	p := slot.Params{Counters: counters}
	if counters {
		p.Term = termAbove
	} else if len(m.s.Datacenters) > 1 {
		p.RecallWait = counter.RecallWaitBelow
	}
	return p.WithDefaults()
}

// patience is how long a request may stay open at a counter.
func (m *model) patience() time.Duration { return m.params(false).RecallWait }

// roundTrip is the duration of a request to Anywhere that may be left open.
func (m *model) roundTrip(h *host) time.Duration {
	return m.params(true).RecallWait + 2*m.s.Datacenters[h.site].Home.Mean
}

func (m *model) settings() counter.Settings {
	l := m.limits()
	return counter.Settings{Active: l[0], New: l[1], Spread: true, Line: counter.LineConfig{
		MaxWaiting: 1 << 40, PollMin: time.Second, PollMax: 30 * time.Second, Hold: hold,
	}}
}

func (m *model) anyInside(site int) bool { return len(m.sites[site].stays) > 0 }

// asks reports whether the visitor of a wish still waits for it.
func (m *model) asks(q wish) bool {
	g := &m.guests[q.v]
	return g.n == q.visit && g.status == asks
}

// Arrive handles the first request of a visitor.
func (m *model) Arrive(v sim.ID) {
	for int(v) >= len(m.guests) {
		m.guests = append(m.guests, guest{})
	}
	m.guests[v] = guest{n: m.w.Visitor(v).N}
	m.ask(v, int(m.w.Visitor(v).Worker))
}

// Left forgets a visitor.
func (m *model) Left(v sim.ID) {
	delete(m.sites[m.w.Visitor(v).Datacenter].stays, m.guests[v].id)
	m.guests[v].status = isGone
}

// ask is a request without a ticket, first to one worker, later to any.
func (m *model) ask(v sim.ID, first int) {
	g := &m.guests[v]
	k := m.worker(v, first)
	n := g.n
	if k == nil {
		m.later(v, time.Second, func() { m.ask(v, -1) })
		return
	}
	if !m.s.Faults.None() {
		m.later(v, giveUp, func() { // its worker has died
			if m.guests[v].status == asks {
				m.ask(v, -1)
			}
		})
	}
	k.when(k.life, func() { k.newcomer(wish{v, n}) })
}

// later runs f for the same visitor.
func (m *model) later(v sim.ID, d time.Duration, f func()) {
	n := m.guests[v].n
	m.after(d, func() {
		if m.guests[v].n == n && m.guests[v].status != isGone {
			f()
		}
	})
}

// worker returns a running worker: the requested one, else any.
func (m *model) worker(v sim.ID, first int) *worker {
	all := m.sites[m.w.Visitor(v).Datacenter].workers
	if first < 0 {
		first = m.w.Rand().IntN(len(all))
	}
	for i := range all {
		if k := all[(first+i)%len(all)]; k.up && k.paused <= m.w.Now() {
			return k
		}
	}
	return nil
}

func (m *model) decided(v sim.ID) {
	if g := &m.guests[v]; !g.decided {
		g.decided = true
		m.w.Decided(v, m.w.Now()-m.w.Visitor(v).Arrival.At)
	}
}

// join puts a newcomer without a slot at the end of the line.
func (m *model) join(k *worker, q wish) {
	if !m.asks(q) {
		return
	}
	g := &m.guests[q.v]
	g.status = joins
	g.try++
	try, v := g.try, q.v
	h := k.host()
	m.send(&k.process, &h.process, k.local(), func() {
		h.join(m.w.Visitor(v).Arrival.At, func(p counter.PlaceInfo) {
			m.send(&h.process, &k.process, k.local(), func() {
				if x := &m.guests[v]; x.n == q.visit && x.status == joins && x.try == try {
					x.ticket = p.Number
					m.placed(v, p)
				}
			})
		})
	})
	m.later(v, giveUp, func() {
		if x := &m.guests[v]; x.status == joins && x.try == try {
			x.status = asks
			m.ask(v, -1)
		}
	})
}

// placed processes the answer about a ticket.
func (m *model) placed(v sim.ID, p counter.PlaceInfo) {
	g := &m.guests[v]
	g.confirmed = g.confirmed && g.status != joins || // of a ticket that the visitor has
		g.status != joins && p.Status != slot.TicketGone && p.Status != slot.TicketUnknown
	m.decided(v)
	m.reserve()
	told := sim.WaitEstimate{Known: p.ETA.Known, Expect: p.ETA.Expect, Low: p.ETA.Low, High: p.ETA.High}
	if g.status != waits && g.status != enters {
		m.w.Wait(v, told)
	}
	if p.Position > 0 {
		m.w.Told(v, told)
	}
	g.status = waits
	g.try++ // the answer has arrived
	switch p.Status {
	case slot.TicketWaiting, slot.TicketLate:
		if !g.confirmed { // loading a file of the page confirms the cookie at once
			m.later(v, entering, func() { m.poll(v) })
			return
		}
		if !p.Called {
			m.w.Asked(v)
		}
		m.later(v, max(p.PollAfter, 10*time.Millisecond), func() { m.poll(v) })
	case slot.TicketCalled:
		m.later(v, entering, func() { m.enter(v) })
	case slot.TicketUsed: // the answer to a claim was lost; request it again
		if g.refused { // for too long: a used ticket never admits again
			m.count.late++
			g.status, g.refused = asks, false
			m.ask(v, -1)
			return
		}
		m.later(v, entering, func() { m.enter(v) })
	default:
		if g.confirmed {
			m.count.lost++
		}
		g.status = asks
		m.ask(v, -1)
	}
}

// reserve reports to the judge how many slots are held for called visitors.
func (m *model) reserve() {
	sum, calls := int64(0), int64(0)
	for _, x := range m.sites {
		if x.host.serving() {
			_, called := x.host.desk.Waiting()
			sum += called
			calls += x.host.desk.Totals().Called
		}
	}
	if calls != m.called {
		m.called = calls
		m.w.Called()
	}
	m.w.Reserve(sum - m.reserved)
	m.reserved = sum
}

// poll requests the state of the ticket. In a world without faults it skips the network delay,
// which would double the events of a run and change nothing.
func (m *model) poll(v sim.ID) {
	if h := m.sites[m.w.Visitor(v).Datacenter].host; m.s.Faults.None() {
		n := m.guests[v].n
		h.poll(m.guests[v].ticket, func(p counter.PlaceInfo) {
			if g := &m.guests[v]; g.n == n && g.status == waits {
				m.placed(v, p)
			}
		})
		return
	}
	m.request(v, waits, func(k *worker, h *host, mine func() bool) {
		m.carry(&k.process, &h.process, k.local(), func() {
			if !mine() {
				return
			}
			h.poll(m.guests[v].ticket, func(p counter.PlaceInfo) {
				m.carry(&h.process, &k.process, k.local(), func() {
					if mine() {
						m.placed(v, p)
					}
				})
			})
		})
	}, func() { m.poll(v) })
}

// enter claims the slot of a called ticket.
func (m *model) enter(v sim.ID) {
	g := &m.guests[v]
	id := slot.SessionID(g.ticket)
	m.request(v, enters, func(k *worker, h *host, mine func() bool) {
		m.send(&k.process, &h.process, k.local(), func() {
			if !mine() {
				return
			}
			h.claim(g.ticket, func(r slot.ClaimReply, ok bool) {
				m.send(&h.process, &k.process, k.local(), func() {
					if mine() {
						m.claimed(k, v, id, r, ok)
					}
				})
			})
		})
	}, func() { m.enter(v) })
}

// request makes one request of a visitor at any worker, and repeats it if no answer comes.
func (m *model) request(
	v sim.ID, as status, do func(k *worker, h *host, mine func() bool), again func(),
) {
	g := &m.guests[v]
	g.status = as
	g.try++
	n, try := g.n, g.try
	mine := func() bool { x := &m.guests[v]; return x.n == n && x.try == try && x.status == as }
	if k := m.worker(v, -1); k != nil {
		do(k, k.host(), mine)
	}
	m.after(giveUp, func() {
		if mine() {
			again()
		}
	})
}

func (m *model) claimed(k *worker, v sim.ID, id slot.SessionID, r slot.ClaimReply, ok bool) {
	switch {
	case !ok:
		m.guests[v].status, m.guests[v].refused = waits, true
		m.later(v, time.Second, func() { m.poll(v) })
	default:
		hi, known := k.share.Hi(k.clk())
		if r.End == 0 || !known || hi >= r.End { // no answer for a whole session
			m.count.late++
			m.guests[v].status = asks
			m.ask(v, -1)
			return
		}
		if r.Win > 0 {
			k.share.AddItem(slot.Item{Op: slot.Answered, ID: id, From: r.Win, Use: hi})
			k.borrower.Hurry()
		}
		m.admitted(k, v, id, r.End)
	}
}

// admitted records that a visitor is admitted with a pass that ends at end.
func (m *model) admitted(k *worker, v sim.ID, id slot.SessionID, end slot.Time) {
	g := &m.guests[v]
	m.decided(v)
	g.status, g.id, g.end, g.usable = isInside, id, end, end
	g.until = m.w.Now() + m.w.Visitor(v).Dwell
	m.sites[k.site].stays[id] = v
	m.w.Admit(v)
	k.visit(id, end)
	m.browse(v)
	if !m.s.Faults.None() {
		m.later(v, m.s.Limits.Session, func() { m.lapse(v) })
	}
}

// lapse records when no reader would accept the pass any more, although the visitor is not done.
func (m *model) lapse(v sim.ID) {
	g := &m.guests[v]
	if g.status != isInside {
		return
	}
	left := g.usable.Sub(m.readers(v))
	if left <= 0 {
		m.w.Lapse(v)
	}
	m.later(v, max(20*time.Millisecond, min(left, m.s.Limits.Session)), func() { m.lapse(v) })
}

// confirmed records a later end that a worker may write into a pass from now on.
func (m *model) confirmed(v sim.ID, end slot.Time) {
	g := &m.guests[v]
	g.usable = max(g.usable, end)
	if g.usable > m.readers(v) {
		m.w.Renew(v)
	}
}

// readers returns the latest counter time among the processes that read a pass.
func (m *model) readers(v sim.ID) (now slot.Time) {
	x := m.sites[m.w.Visitor(v).Datacenter]
	if h := x.host; h.serving() {
		now = h.desk.Pool().CounterTime(h.clk())
	}
	for _, k := range x.workers {
		if hi, ok := k.share.Hi(k.clk()); ok {
			now = max(now, hi)
		}
	}
	return now
}

// browse requests a page twice per session duration, and a last time when the visitor has seen
// enough.
func (m *model) browse(v sim.ID) {
	g := &m.guests[v]
	left := g.until - m.w.Now()
	if left <= 0 { // its last request is reported within a flush
		m.later(v, min(m.s.Limits.Session/4, 2*borrower.FlushEvery), func() { m.leave(v) })
		return
	}
	m.later(v, min(left, m.s.Limits.Session/2), func() { m.visit(v) })
}

// visit is the next request of a visitor inside, at whichever worker the balancer picks.
func (m *model) visit(v sim.ID) {
	g := &m.guests[v]
	k := m.worker(v, -1)
	if k == nil {
		m.later(v, time.Second, func() { m.visit(v) })
		return
	}
	end, over, ok := k.visit(g.id, g.end)
	if !ok { // it has just started and knows no counter time yet
		m.later(v, time.Second, func() { m.visit(v) })
		return
	}
	g.end = end
	if !over {
		m.browse(v)
		return
	}
	n := g.n
	k.question(g.id, end, func(end slot.Time) {
		if x := &m.guests[v]; x.n != n || x.status != isInside {
			return
		} else if end > 0 {
			x.end, x.usable = end, max(x.usable, end)
			m.w.Renew(v)
			m.browse(v)
		} else {
			m.count.thrown++
			m.w.Leave(v)
		}
	})
	m.later(v, giveUp, func() { // no answer: the pass has ended and nobody renews it
		if x := &m.guests[v]; x.status == isInside && x.end == end {
			m.leave(v)
		}
	})
}

// leave ends a session when no reader would accept the pass any more.
func (m *model) leave(v sim.ID) {
	g := &m.guests[v]
	if g.status != isInside {
		return
	}
	now := m.readers(v)
	if now >= g.usable {
		m.w.Leave(v)
		return
	}
	m.later(v, max(time.Millisecond, min(g.usable.Sub(now), time.Minute)), func() { m.leave(v) })
}
