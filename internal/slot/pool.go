package slot

import (
	"math"
	"time"
)

// A Pool is the lender's side of one counter: it answers Syncs, keeps the
// record and decides what may be lent. Nothing it says is true before the
// record it comes from is confirmed: Begin builds a write, the caller stores
// it by compare-and-set, Confirm hands out the answers.
//
// A Pool serves once Takeover has been confirmed. Used by one goroutine.
type Pool struct {
	par  Params
	rec  *Record // confirmed
	wr   *Record // in flight, or nil
	host string

	serving     bool
	epoch       uint64
	built, last time.Duration // own clock when wr, rec was built
	tauC        Time
	tauM        time.Duration

	queue      []*Sync
	claims     []claim
	making     []claim         // claims that wr makes
	toldAt     map[StayID]Time // claims whose write took longer than anybody waits: when it was done
	untold     map[StayID]Time // of them those that nobody has been told of since
	usedAt     map[StayID]Time // repeated claims: from when the window counts
	done       []pending       // what wr answers
	held       []pending       // a need that waits for others to give back
	calls      int64           // called and not yet claimed
	wait       bool            // somebody waits in the line
	recall     bool            // borrowers should Sync and give back
	recalled   time.Duration   // own clock when they were last told
	short      int64           // needs that the last write could not meet
	resign     bool            // the next write is the last of this host
	allSpoke   bool            // what is presumed lent without a name is of those who are off
	moved      string          // the next write is the last of this record: see MoveTo
	rolled     bool            // a borrower has seen a later write than this record
	ahead      uint64          // the epoch of that write
	ended      int64           // stays that have come to their end, and
	left       int64           // that were ended before by visitors seen within Idle, and
	leftSilent int64           // by others
	quiet      time.Duration
	limits     []Limit // to be in force with the next write
	rev        uint64
	line       *LinePart // to be in the next write

	tookAt           Time                     // time of the record that was taken over
	tookEpoch        uint64                   // of that record
	wentFrom, wentOn Time                     // counter time jumped: see GoOn
	latest           Time                     // no pass of an earlier epoch ends later
	unnamed          Time                     // no stay that earlier hosts wrote ends later
	owing            bool                     // the last host had not heard all stays named
	vacant           bool                     // nobody was inside when this host took over, and nothing lent
	backAt           map[LoanID]time.Duration // own clock when the loan is taken back
	settled          map[LoanID]Time
	known            map[StayID]Time
	knownAt          map[Time]*bucket
	gone             goneLog
	trials           trials
	up               upper
	fronts           map[LoanID]*front // who stands before the doors of our borrowers
	sites            map[LoanID]site   // what counters have said of themselves
	step             time.Duration     // between slots lent to people who wait, 0 for none
	lendAt           time.Duration     // own clock when the next one is due
	lined            bool              // somebody has been told that there is nothing
	linedAt          time.Duration     // own clock at the takeover: whoever waits has not said so yet
}

type pending struct {
	x     *Sync
	at    time.Duration
	until time.Duration
	open  bool // others were asked to give back: the question stays open
}

type claim struct {
	id    StayID
	hard  time.Duration
	back  bool          // the called slot is claimed again, nothing is reserved
	anew  bool          // nobody was told of the stay in time: see undo
	place uint64        // its rank in the line, 0 without one
	at    time.Duration // own clock, when it was asked for
}

// bucket holds the stays known to end at one end. ids may hold some that have
// moved on; n counts those that have not.
type bucket struct {
	n   int64
	ids []StayID
}

// A Reply carries an answer to the sender of a Sync.
type Reply struct {
	Sync   *Sync
	Answer Answer
}

// A ClaimReply says that the claim of a ticket is written. Repeated, it says the same:
// nobody can know whether the origin has seen the visitor of an answer that was lost,
// so its window entry moves to when it does (Answered). If it had moved already,
// another's of the same moment moves: never too few.
type ClaimReply struct {
	ID    StayID
	Epoch uint64 // of the counter time of End
	End   Time   // 0: nothing is known of such a stay, or it is over
	Win   Time   // end of its window entry, 0 without one
}

// NewPool returns a pool over the record as it was read. It says nothing until
// the write that Takeover builds is confirmed.
func NewPool(par Params, host string, read *Record) *Pool {
	return &Pool{
		par: par.WithDefaults(), host: host, rec: read,
		backAt:  map[LoanID]time.Duration{},
		settled: map[LoanID]Time{},
		known:   map[StayID]Time{}, knownAt: map[Time]*bucket{},
	}
}

// Takeover builds the write that makes this process the host: the same record
// with the next epoch. A stale read or a rival only makes it fail.
func (p *Pool) Takeover(clk time.Duration) *Record {
	p.epoch, p.tookEpoch = p.rec.Name.Epoch+1+gap(p.host), p.rec.Name.Epoch
	p.latest = p.rec.Time.Add(p.par.Rho.Up(p.par.Term))
	if l := p.rec.Limits[0]; l.Kind == AtOnce {
		p.latest = p.par.CeilEnd(l.Limit, p.latest.Add(l.Longest)) + p.par.Grid(l.Limit)
	}
	p.wr = p.rec.Clone()
	p.wr.Name = WriteName{Life: p.rec.Name.Life, Epoch: p.epoch, Writes: p.rec.Name.Writes + 1}
	p.wr.Host, p.tookAt = p.host, p.rec.Time
	for _, x := range p.rec.Left {
		p.gone.add(x)
	}
	p.owing = p.rec.Time < p.rec.Unnamed
	if l := p.rec.Limits[0]; l.Kind == AtOnce {
		p.unnamed = max(p.par.CeilEnd(l.Limit, p.rec.Time.Add(l.Longest)), l.Ends.last())
		if p.owing && p.rec.Unnamed < Never { // a slot may be owed that is to last as long
			p.unnamed = max(p.unnamed, p.rec.Unnamed)
		}
	}
	p.wr.Unnamed = p.unnamed
	p.vacant = len(p.rec.Loans) == 0 && p.rec.Limits[0].Ends.Len() == 0
	p.wr.breakSpan(p.epoch, 0)
	if p.par.Alone {
		for i := range p.wr.Loans {
			p.over(p.wr, &p.wr.Loans[i], p.wr.Time.Add(p.par.Rho.Up(p.par.Term)))
		}
	}
	p.built = clk
	return p.wr
}

// gap spaces epochs by the name of the host, which is drawn: should a record be
// rolled back, what was said in a lost epoch is not taken for one of the new.
func gap(host string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(host) {
		h = (h ^ uint64(host[i])) * 1099511628211
	}
	return h >> 48
}

// Tau is counter time at own clock clk.
func (p *Pool) CounterTime(clk time.Duration) Time { return p.tauC.Add(clk - p.tauM) }

// Record is the confirmed record. The caller must not change it.
func (p *Pool) Record() *Record { return p.rec }

// Params are the parameters in force.
func (p *Pool) Params() *Params { return &p.par }

// Serving reports whether the takeover was confirmed and nobody has fenced us.
func (p *Pool) Serving() bool { return p.serving }

// Writing reports whether a write is in flight.
func (p *Pool) Writing() bool { return p.wr != nil }

// Fresh reports whether the last confirmed write was built less than d ago.
func (p *Pool) Fresh(clk, d time.Duration) bool { return p.serving && clk-p.last < d }

// Held reports whether a need waits for others to give back.
func (p *Pool) Held() bool { return len(p.held) > 0 }

// Asked reports whether Anywhere has asked for what is not used here.
func (p *Pool) RecalledByParent(clk time.Duration) bool {
	return p.up.give && clk-p.up.giveAt < queueKept
}

// RolledBack reports whether a borrower has seen a later write than the
// confirmed record: the caller reads the store to learn whether it is fenced
// or must Quarantine.
func (p *Pool) RolledBack() bool { return p.rolled }

// Resign says in the next write that nobody hosts the counter any more: it is the last.
func (p *Pool) Resign() { p.resign = true }

// Quarantine lends nothing until everything that may be out has ended: the
// record was rolled back (docs/protocol.md §9). It returns for how long.
func (p *Pool) Quarantine(clk time.Duration) time.Duration {
	longest := time.Duration(0)
	for i := range p.rec.Limits {
		longest = max(longest, p.rec.Limits[i].Longest)
	}
	if p.rolled && p.ahead >= p.epoch && p.serving { // or it would never be answered again
		p.epoch = p.ahead + 1 + gap(p.host)
	}
	p.rolled = false
	wait := p.par.Rho.Up(p.par.Term) + p.par.Rho.Stretch(longest+p.par.Sigma)
	p.quiet = clk + wait
	return wait
}

// Fail drops everything that is in flight: another host has written.
func (p *Pool) Fail() {
	p.serving, p.wr = false, nil
	p.queue, p.claims, p.making, p.done, p.held = nil, nil, nil, nil, nil
}

// SetLimits changes the limits with the next write. rev is the revision of the
// configuration they come from; an older one is not heard. A higher limit is
// in force at once, a lower one when enough slots have come back.
func (p *Pool) SetLimits(rev uint64, limits ...Limit) {
	if rev > max(p.rev, p.rec.LimitRev) && len(limits) == len(p.rec.Limits) {
		p.limits, p.rev = limits, rev
	}
}

// Confirm takes in that the write of Begin or Takeover is stored, and returns
// what may now be said.
func (p *Pool) Confirm(clk time.Duration) ([]Reply, []ClaimReply) {
	p.rec, p.wr, p.last = p.wr, nil, p.built
	if !p.serving {
		p.serving = true
		p.tauC, p.tauM = p.rec.Time, clk
		if p.par.fault&faultTauAhead != 0 {
			p.tauC += Time(p.par.Term)
		}
		for i := range p.rec.Loans {
			p.backAt[p.rec.Loans[i].ID] = clk + p.par.Rho.Up(p.par.Term)
		}
		if p.rec.Quiet {
			p.Quarantine(clk)
		}
		p.lined, p.linedAt = p.par.Counters && p.rec.Waiting, clk
		return nil, nil
	}
	var replies []Reply
	for _, d := range p.done {
		if d.until > clk && (d.open && p.unmet(d.x) || p.gathers(d.x)) {
			p.held = append(p.held, d)
			continue
		}
		replies = append(replies, Reply{d.x, p.answer(clk, d.x)})
	}
	p.done = nil
	var claims []ClaimReply
	for _, c := range p.making {
		was, ok := p.rec.claimed(c.id)
		_, untold := p.untold[c.id]
		if ok && was.End > 0 && (!c.back || untold) && p.unheard(clk, was, c.at) {
			if !p.waitsFor(claim{id: c.id, back: true}) {
				p.calls++
				p.claims = append(p.claims,
					claim{id: c.id, hard: c.hard, anew: true, place: c.place, at: c.at})
			}
			continue
		}
		r := ClaimReply{ID: c.id, Epoch: p.rec.Name.Epoch}
		if end, ok := p.known[c.id]; ok && was.End > 0 { // renewed since
			was.End = max(was.End, end)
		}
		if was.End > p.rec.Time || p.rec.Limits[0].Kind != AtOnce {
			r.End = was.End // else the stay is over already: nobody comes in on it
		}
		if len(p.rec.Limits) > 1 && r.End > 0 {
			r.Win = p.par.windowEnd(p.rec.Limits[1].Limit, max(was.At, p.usedAt[c.id]))
		}
		claims = append(claims, r)
	}
	p.making = nil
	return replies, claims
}

// askedFor is how long whoever claims waits for the answer (package counter, writeWait).
const askedFor = 2 * time.Second

// unheard reports whether a claim that is written now is of no use: its stay is over, or
// half over and whoever asked has given up. One that is of use is kept from now on; who asks for it
// again later, when it is of no use any more, has still not been told.
func (p *Pool) unheard(clk time.Duration, c Claimed, asked time.Duration) bool {
	now, s := p.CounterTime(clk), &p.rec.Limits[0]
	if s.Kind != AtOnce || clk-asked <= askedFor && c.End > now {
		delete(p.untold, c.ID)
		return false
	}
	if c.End.Sub(now) <= s.Per/2 {
		return true
	}
	if p.toldAt == nil {
		p.toldAt, p.untold = map[StayID]Time{}, map[StayID]Time{}
	}
	p.toldAt[c.ID], p.untold[c.ID] = now, now
	return false
}

// unmet reports whether x needs more than its loan now holds.
func (p *Pool) unmet(x *Sync) bool {
	l := p.rec.loan(x.Loan)
	return l != nil && x.Need > 0 && l.Granted == x.Granted
}

// gathers reports whether the answer to x waits for the turn of all: while people wait elsewhere
// too, whoever hears first would call first.
func (p *Pool) gathers(x *Sync) bool { return p.lined && p.par.Counters && x.Need > 0 }

// written off: the sender of x is told that its loan is no more.
func (p *Pool) dead(x *Sync) Answer {
	return Answer{Name: p.rec.Name, Seq: x.Seq, Loan: x.Loan, Over: true}
}

// answer states the confirmed record to the sender of x.
func (p *Pool) answer(clk time.Duration, x *Sync) Answer {
	l := p.rec.loan(x.Loan)
	if l == nil || l.Dead {
		return p.dead(x)
	}
	a := Answer{
		Name: p.rec.Name, Seq: x.Seq, Loan: x.Loan, Time: p.CounterTime(clk),
		Waiting: p.wait || p.inTurn(clk),
	}
	age := p.par.Rho.Stretch(clk - p.last)
	if p.par.fault&faultNoAge != 0 {
		age = clk - p.last
	}
	from := p.last
	if p.par.fault&faultTermFromAnswer != 0 {
		age, from = 0, clk
	}
	term := p.par.Term - age
	if p.rec.Parent != nil && p.par.fault&faultNoClip == 0 {
		term = min(term, p.up.until-clk)
	}
	if l.Over > 0 { // taken back and not revived by a write
		term = 0
	}
	a.Term = max(0, term)
	a.Granted = l.Granted
	a.Part, a.Plenty = p.part(x.Loan), p.plenty(clk)
	a.GiveBack = p.wait || p.recall || len(p.held) > 0 || p.RecalledByParent(clk) || p.queueing(clk)
	for i := range x.Items {
		if it := &x.Items[i]; it.Op == Renew || it.Op == Ask {
			a.Results = append(a.Results, Result{it.ID, p.known[it.ID]})
		}
	}
	a.Gone, a.Sure = p.gone.tell(x.Loan, x.Seq, p.CounterTime(clk)), p.rec.Sure
	a.Latest = p.latest
	p.backAt[l.ID] = from + p.par.Rho.Up(p.par.Term)
	return a
}

// Put queues a Sync for the next Begin.
func (p *Pool) Receive(x *Sync) { p.queue = append(p.queue, x) }

// Waiting tells the pool whether anybody waits: while somebody does, nothing
// is lent ahead and unused slots are asked back.
func (p *Pool) Waiting(yes bool) {
	if yes && !p.wait {
		p.recall = true
	}
	p.wait = yes
}

// workerGap is between recalls of workers, and siteGap of counters: who was asked a
// moment ago is about to answer, and each answer says again that others wait. Chosen:
// well below the recall wait, and more than the way to Anywhere and back.
const (
	workerGap = 20 * time.Millisecond
	siteGap   = time.Second
)

func (p *Pool) recallGap() time.Duration {
	if p.par.Counters {
		return siteGap
	}
	return workerGap
}

// RecallDue is for how long a recall that is due is held back, false if there is none.
func (p *Pool) RecallDue(clk time.Duration) (time.Duration, bool) {
	return max(0, p.recalled+p.recallGap()-clk), p.recall && len(p.rec.Loans) > 0
}

// Recalls reports whether borrowers should be told to Sync and give back what
// they do not use, and forgets it. Anybody with nothing lent need not be told.
func (p *Pool) Recalls(clk time.Duration) bool {
	if !p.recall || len(p.rec.Loans) == 0 || p.recalled > 0 && clk-p.recalled < p.recallGap() {
		return false
	}
	p.recall, p.recalled = false, clk
	return true
}

// Free is how many more may be called now, by the newest write.
func (p *Pool) Free() int64 { return p.newest().Free() - p.calls }

func (p *Pool) newest() *Record {
	if p.wr != nil {
		return p.wr
	}
	return p.rec
}

// FreeNow is Free with the slots whose end has passed and is settled: the write
// of their next stay frees them.
func (p *Pool) FreeNow(clk time.Duration) int64 {
	r := p.newest()
	until := p.settledUntil(clk, r, p.CounterTime(clk))
	least := int64(math.MaxInt64)
	for i := range r.Limits {
		least = min(least, r.freeOf(i)+r.Limits[i].Ends.Until(until))
	}
	return p.mayUse(clk, least-p.calls) - p.notYet(clk)
}

// mayUse is how many of n free slots may be used here: while Anywhere asks for them,
// those that it has lent to the people who stand here.
func (p *Pool) mayUse(clk time.Duration, n int64) int64 {
	if p.RecalledByParent(clk) {
		return min(n, p.up.mine)
	}
	return n
}

// Unsettled is the latest end that has passed and that a report of the borrowers could
// free, 0 if there is none: one of them may yet say that the stay goes on.
func (p *Pool) Unsettled(clk time.Duration) (end Time) {
	r, now := p.newest(), p.CounterTime(clk)
	until := p.settledUntil(clk, r, now)
	for i := range r.Limits {
		for _, c := range r.Limits[i].Ends.All() {
			if c.End > now {
				break
			}
			if c.End > until {
				end = max(end, c.End)
			}
		}
	}
	return end
}

// FreeOf is Free of limit i alone, before calls.
func (p *Pool) FreeOf(i int) int64 { return p.rec.freeOf(i) }

// UsedAt is how many slots of limit i are in use at own clock clk: stays that
// have not ended, what one borrower has opened and not yet reported, and what is
// lent to the others, who may have used it. Ends are freed only with a write; this
// does not wait for one. It counts as Call does, with the write in flight: with the
// calls it is never more than the limit.
func (p *Pool) UsedAt(i int, clk time.Duration, of LoanID, opened int64) int64 {
	r := p.newest()
	n := r.Limits[i].Ends.After(p.CounterTime(clk))
	for k := range r.Loans {
		switch l := &r.Loans[k]; {
		case l.ID == of:
			n += max(0, opened-l.Opened)
		case l.Over == 0 || r.Time < l.Back[i]:
			n += l.Lent(i)
		}
	}
	return n
}

// Bound is what UsedAt(i) is at most: the limit, or the one of before until enough slots of
// it have come back; below Anywhere what was lent to this counter. It is of the write that
// UsedAt counts by. A visitor who was seen elsewhere before the borrower that let it in has told
// of it is counted twice, as a stay and as a slot that is lent: until that borrower speaks, or, if
// it is dead, as long as its slots are presumed used. The bound is higher by those of the dead;
// for the living, UsedAt may stand above it for a beat. Calls from before a limit was lowered may
// stand above it too.
func (p *Pool) Bound(i int) int64 {
	r := p.newest()
	n := max(r.capacity(i), r.Limits[i].InForce)
	if p.par.Counters {
		return n // its borrowers' stays are their own
	}
	for k := range r.Loans {
		if l := &r.Loans[k]; l.Over > 0 && r.Time < l.Back[i] {
			n += l.Lent(i)
		}
	}
	return n
}

// Call reserves a slot for a called ticket and reports whether there was one.
func (p *Pool) Call(clk time.Duration) bool {
	if !p.serving || p.rec.Parent != nil && p.up.until <= p.last || p.FreeNow(clk) <= 0 {
		return false
	}
	p.calls++
	p.up.mine = max(0, p.up.mine-1)
	return true
}

// Uncall gives the slot of a call that was not claimed back.
func (p *Pool) Uncall() { p.calls-- }

// Called is how many slots are reserved for called tickets.
func (p *Pool) Called() int64 { return p.calls }

// Claim turns a called slot into a stay with the next write. hard is the
// longest the stay may ever last, 0 without end. A ticket that was claimed
// before gets the same stay: then again is true and nothing was reserved.
// An answer that comes later than askedFor after clk must be told to nobody.
func (p *Pool) Claim(clk time.Duration, id StayID, hard time.Duration, again bool) {
	p.claims = append(p.claims, claim{id: id, hard: hard, back: again, at: clk})
}

// ClaimPlace is Claim of a ticket that had a place in the line, by its rank. While the claim waits for
// a slot the record keeps the place: another host knows nothing of the claim.
func (p *Pool) ClaimPlace(clk time.Duration, id StayID, place uint64, hard time.Duration) {
	p.claims = append(p.claims, claim{id: id, hard: hard, place: place, at: clk})
}

// ClaimedBefore reports the end of a stay that this ticket has claimed within
// the last claimKept; it is 0 if the ticket is used up.
func (p *Pool) ClaimedBefore(id StayID) (Time, bool) {
	c, ok := p.rec.claimed(id)
	return c.End, ok
}

// UsedUp reports whether the pass of a ticket that was claimed within the last claimKept has come
// back, and for how long this is remembered.
func (p *Pool) UsedUp(clk time.Duration, id StayID) (left time.Duration, ok bool) {
	c, ok := p.rec.claimed(id)
	if !ok || c.End != 0 {
		return 0, false
	}
	return max(0, max(c.At, p.toldAt[id]).Add(claimKept).Sub(p.CounterTime(clk))), true
}

// LinePart is what a record keeps of the line. Next may fall only to End of the
// line, by a host that issues no more numbers.
type LinePart struct {
	Next, Issued, Frontier uint64
	Skipped, Unconfirmed   []Run
	Heads                  []byte
	Draws                  []Draw
	Lanes                  []LanePart
	Moved                  []Moved // never changed in place
}

// PutLine hands the line's part of the record to the next write.
func (p *Pool) PutLine(part LinePart) { p.line = &part }

// EndOf is the end of a stay that this host knows, 0 if it knows none.
func (p *Pool) EndOf(id StayID) Time {
	if end, ok := p.known[id]; ok {
		return end
	}
	c, _ := p.rec.claimed(id)
	return c.End
}

// Ended is how many stays have come to their end since the takeover, and how many were over
// before it, by a word: left of visitors who had been seen within Idle, leftSilent of others.
func (p *Pool) Ended() (lapsed, left, leftSilent int64) { return p.ended, p.left, p.leftSilent }

// Quiet is for how long nothing is lent yet because the record may be older than
// what was told; 0 is not at all.
func (p *Pool) Quiet(clk time.Duration) time.Duration { return max(0, p.quiet-clk) }

// Age is how long ago the newest confirmed write was built.
func (p *Pool) Age(clk time.Duration) time.Duration { return clk - p.last }

// NextEnd is the earliest end of a stay in the confirmed record after a time,
// Never if there is none.
func (p *Pool) NextEnd(after Time) Time {
	t := Never
	for i := range p.rec.Limits {
		for _, c := range p.rec.Limits[i].Ends.All() {
			if c.End > after {
				t = min(t, c.End)
				break
			}
		}
	}
	return t
}
