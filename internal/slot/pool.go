package slot

import (
	"math"
	"slices"
	"time"
)

// A Pool is the lender's side of one counter. It answers Syncs, keeps the record and decides what
// may be lent. It sends nothing before the record behind it is confirmed: Begin builds a write, the
// caller stores it by compare-and-set, and Confirm returns the answers.
//
// A Pool serves once Takeover has been confirmed. Only one goroutine may use it.
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
	making     []claim            // claims that wr contains
	toldAt     map[SessionID]Time // claims whose write took longer than callers wait: when it was done
	untold     map[SessionID]Time // those of them with no answer delivered since
	usedAt     map[SessionID]Time // repeated claims: when the window starts
	done       []pending          // requests that wr answers
	held       []pending          // requests that wait for others to return slots
	calls      int64              // called and not yet claimed
	wait       bool               // a visitor waits in the line
	recall     bool               // borrowers should Sync and return slots
	recalled   time.Duration      // own clock of the last recall
	short      int64              // needs that the last write could not meet
	resign     bool               // the next write is the last of this host
	allSpoke   bool               // slots presumed lent without a name are of data centers declared off
	moved      string             // the next write is the last of this record: see MoveTo
	rolled     bool               // a borrower has seen a later write than this record
	ahead      uint64             // the epoch of that write
	ended      int64              // sessions that reached their end,
	left       int64              // that left early and were seen within Idle,
	leftSilent int64              // and that left early without that
	quiet      time.Duration
	limits     []Limit // to be in force with the next write
	setting    bool    // the write in flight changes the limits
	finding    bool    // the write in flight changes what was learned
	found      *[]byte // to be in the next write
	rev        uint64
	line       *LinePart // to be in the next write

	tookAt           Time                     // time of the record that was taken over
	tookEpoch        uint64                   // of that record
	wentFrom, wentOn Time                     // counter time jumped: see ContinueTerm
	latest           Time                     // no pass of an earlier epoch ends later
	unnamed          Time                     // no session that earlier hosts wrote ends later
	owing            bool                     // the last host did not know the names of all sessions
	vacant           bool                     // at the takeover nobody was inside and nothing lent
	backAt           map[LoanID]time.Duration // own clock when the loan is taken back
	settled          map[LoanID]Time
	known            map[SessionID]Time
	knownAt          map[Time]*bucket
	gone             goneLog
	probation        probation
	up               upper
	fronts           map[LoanID]*front // visitors that wait at our borrowers
	sites            map[LoanID]site   // what counters have reported about themselves
	step             time.Duration     // between slots lent for waiting visitors, 0 for none
	lendAt           time.Duration     // own clock when the next one is due
	lined            bool              // a counter was answered that there is no slot
	linedAt          time.Duration     // own clock at the takeover: waiting visitors are not known yet
}

type pending struct {
	x     *Sync
	at    time.Duration
	until time.Duration
	open  bool // others were recalled: the request stays open
}

type claim struct {
	id    SessionID
	hard  time.Duration
	back  bool          // repeated claim: nothing is reserved
	anew  bool          // nobody got an answer in time: see undo
	place uint64        // its rank in the line, 0 without one
	at    time.Duration // own clock at the latest request
}

// bucket holds the known sessions with the same end. ids may contain sessions whose end has moved;
// n counts only the others.
type bucket struct {
	n   int64
	ids []SessionID
}

// A Reply carries an answer to the sender of a Sync.
type Reply struct {
	Sync   *Sync
	Answer Answer
}

// A ClaimReply confirms that the claim of a ticket is written. A repeated claim gets the same
// reply. Nobody can know whether the origin saw the visitor of a lost answer, so the window entry
// moves when the origin answers (Answered). If it had already moved, the entry of another session
// with the same end moves. So the window never counts too few.
type ClaimReply struct {
	ID    SessionID
	Epoch uint64 // epoch of the counter time of End
	End   Time   // 0: no such session is known, or it is over
	Win   Time   // end of its window entry, 0 without one
}

// NewPool returns a pool over a record that was read. It sends nothing until the write that
// Takeover builds is confirmed.
func NewPool(par Params, host string, read *Record) *Pool {
	return &Pool{
		par: par.WithDefaults(), host: host, rec: read, backAt: map[LoanID]time.Duration{},
		settled: map[LoanID]Time{}, known: map[SessionID]Time{}, knownAt: map[Time]*bucket{},
	}
}

// Takeover builds the write that makes this process the host: the same record with the next epoch.
// If the record is out of date or another process takes over too, the write fails.
func (p *Pool) Takeover(clk time.Duration) *Record {
	p.epoch, p.tookEpoch = p.rec.Name.Epoch+1+gap(p.host), p.rec.Name.Epoch
	p.latest = p.rec.Time.Add(p.par.Drift.Up(p.par.Term))
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
		if p.owing && p.rec.Unnamed < Never { // a slot may be owed that must last as long
			p.unnamed = max(p.unnamed, p.rec.Unnamed)
		}
	}
	p.wr.Unnamed = p.unnamed
	p.vacant = len(p.rec.Loans) == 0 && p.rec.Limits[0].Ends.Len() == 0
	p.wr.breakSpan(p.epoch, 0)
	if p.par.Alone {
		for i := range p.wr.Loans {
			p.over(p.wr, &p.wr.Loans[i], p.wr.Time.Add(p.par.Drift.Up(p.par.Term)))
		}
	}
	p.built = clk
	return p.wr
}

// gap spaces epochs by the host's name, which is random. If a record is rolled back, messages of a
// lost epoch are then not taken for ones of the new epoch.
func gap(host string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(host) {
		h = (h ^ uint64(host[i])) * 1099511628211
	}
	return h >> 48
}

// CounterTime returns counter time at own clock clk.
func (p *Pool) CounterTime(clk time.Duration) Time { return p.tauC.Add(clk - p.tauM) }

// Record returns the confirmed record. The caller must not change it.
func (p *Pool) Record() *Record { return p.rec }

// Params returns the parameters in force.
func (p *Pool) Params() *Params { return &p.par }

// Serving reports whether the takeover was confirmed and no other host has fenced this one.
func (p *Pool) Serving() bool { return p.serving }

// Writing reports whether a write is in flight.
func (p *Pool) Writing() bool { return p.wr != nil }

// Fresh reports whether the last confirmed write was built less than d ago.
func (p *Pool) Fresh(clk, d time.Duration) bool { return p.serving && clk-p.last < d }

// Held reports whether a need waits for others to return slots.
func (p *Pool) Held() bool { return len(p.held) > 0 }

// RecalledByParent reports whether Anywhere requests slots that are unused here.
func (p *Pool) RecalledByParent(clk time.Duration) bool {
	return p.up.give && clk-p.up.giveAt < queueKept
}

// RolledBack reports whether a borrower has seen a later write than the confirmed record. The
// caller then reads the store to learn whether this host is fenced or must Quarantine.
func (p *Pool) RolledBack() bool { return p.rolled }

// Resign makes the next write the last one of this host. It records that nobody hosts the counter
// any more.
func (p *Pool) Resign() { p.resign = true }

// Quarantine stops lending until every slot that may be in use has ended, because the record was
// rolled back (docs/protocol.md §9). It returns how long that takes.
func (p *Pool) Quarantine(clk time.Duration) time.Duration {
	longest := time.Duration(0)
	for i := range p.rec.Limits {
		longest = max(longest, p.rec.Limits[i].Longest)
	}
	if p.rolled && p.ahead >= p.epoch && p.serving { // else the borrower would never get an answer
		p.epoch = p.ahead + 1 + gap(p.host)
	}
	p.rolled = false
	wait := p.par.Drift.Up(p.par.Term) + p.par.Drift.Stretch(longest+p.par.Sigma)
	p.quiet = clk + wait
	return wait
}

// Fail drops everything that is in flight: another host has written.
func (p *Pool) Fail() {
	p.serving, p.wr = false, nil
	p.queue, p.claims, p.making, p.done, p.held = nil, nil, nil, nil, nil
}

// SetLimits changes the limits with the next write. rev is the revision of their configuration; an
// older one is ignored. Limits that were found have that of the configuration by which they were. A
// higher limit is in force at once, a lower one when enough slots have come back.
func (p *Pool) SetLimits(rev uint64, limits ...Limit) {
	if rev >= max(p.rev, p.rec.LimitRev) && len(limits) == len(p.rec.Limits) {
		p.limits, p.rev = limits, rev
	}
}

// LimitsPending reports whether limits of SetLimits are not in the confirmed record yet.
func (p *Pool) LimitsPending() bool { return p.limits != nil || p.wr != nil && p.setting }

// SetFound puts what the search for the limits has learned into the next write; nothing clears it. It
// makes no write necessary. More than MaxFound bytes are dropped: nobody could read the record again.
func (p *Pool) SetFound(b []byte) {
	if len(b) <= MaxFound {
		p.found = &b
	}
}

// FoundPending reports whether what was learned is not yet written.
func (p *Pool) FoundPending() bool { return p.found != nil || p.wr != nil && p.finding }

// Confirm records that the write of Begin or Takeover is stored, and returns the replies that may
// now be sent.
func (p *Pool) Confirm(clk time.Duration) ([]Reply, []ClaimReply) {
	p.rec, p.wr, p.last = p.wr, nil, p.built
	if !p.serving {
		p.serving = true
		p.tauC, p.tauM = p.rec.Time, clk
		for i := range p.rec.Loans {
			p.backAt[p.rec.Loans[i].ID] = clk + p.par.Drift.Up(p.par.Term)
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
			p.calls++
			p.claims = append(p.claims,
				claim{id: c.id, hard: c.hard, anew: true, place: c.place, at: c.at})
			continue
		}
		r := ClaimReply{ID: c.id, Epoch: p.rec.Name.Epoch}
		if end, ok := p.known[c.id]; ok && was.End > 0 { // renewed since
			was.End = max(was.End, end)
		}
		if was.End > p.rec.Time || p.rec.Limits[0].Kind != AtOnce {
			r.End = was.End // else the session is over already: the claim must not admit
		}
		if len(p.rec.Limits) > 1 && r.End > 0 {
			r.Win = p.par.windowEnd(p.rec.Limits[1].Limit, max(was.At, p.usedAt[c.id]))
		}
		claims = append(claims, r)
	}
	p.making = nil
	return replies, claims
}

// askedFor is how long the caller of a claim waits for the answer (package counter, writeWait).
const askedFor = 2 * time.Second

// unheard reports whether a claim that is written now is useless: its session is over, or half over
// and the caller has given up. Any other claim is remembered for claimKept from now on. A caller that
// has given up may repeat it later: if it is useless by then, it counts as never answered.
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
		p.toldAt, p.untold = map[SessionID]Time{}, map[SessionID]Time{}
	}
	p.toldAt[c.ID], p.untold[c.ID] = now, now
	return false
}

// unmet reports whether x needs more than its loan now holds.
func (p *Pool) unmet(x *Sync) bool {
	l := p.rec.loan(x.Loan)
	return l != nil && x.Need > 0 && l.Granted == x.Granted
}

// gathers reports whether the answer to x waits for the common turn of all counters. While visitors
// also wait elsewhere, the counter that receives its answer first would call first.
func (p *Pool) gathers(x *Sync) bool { return p.lined && p.par.Counters && x.Need > 0 }

// dead returns the answer for a loan that is written off.
func (p *Pool) dead(x *Sync) Answer {
	return Answer{Name: p.rec.Name, Seq: x.Seq, Loan: x.Loan, Over: true}
}

// answer returns the state of the confirmed record for the sender of x.
func (p *Pool) answer(clk time.Duration, x *Sync) Answer {
	l := p.rec.loan(x.Loan)
	if l == nil || l.Dead {
		return p.dead(x)
	}
	a := Answer{
		Name: p.rec.Name, Seq: x.Seq, Loan: x.Loan, Time: p.CounterTime(clk),
		Waiting: p.wait || p.inTurn(clk),
	}
	term := p.par.Term - p.par.Drift.Stretch(clk-p.last)
	if p.rec.Parent != nil {
		term = min(term, p.up.until-clk)
	}
	if l.Over > 0 { // taken back, and no write has revived it
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
	p.backAt[l.ID] = p.last + p.par.Drift.Up(p.par.Term)
	return a
}

// Receive queues a Sync for the next Begin.
func (p *Pool) Receive(x *Sync) { p.queue = append(p.queue, x) }

// Waiting sets whether any visitor waits. While one does, nothing is lent ahead and unused slots
// are recalled.
func (p *Pool) Waiting(yes bool) {
	if yes && !p.wait {
		p.recall = true
	}
	p.wait = yes
}

// workerGap is the time between recalls of workers, siteGap of counters. A borrower that was
// recalled a moment ago is about to answer, and each answer repeats that others wait. Chosen: well
// below the recall wait, and more than a round trip to Anywhere.
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

// RecallDue returns how long a due recall must still wait. ok is false if none is due.
func (p *Pool) RecallDue(clk time.Duration) (time.Duration, bool) {
	return max(0, p.recalled+p.recallGap()-clk), p.recall && len(p.rec.Loans) > 0
}

// Recalls reports whether to recall unused slots from borrowers, and resets that. Borrowers without
// lent slots need no message.
func (p *Pool) Recalls(clk time.Duration) bool {
	if !p.recall || len(p.rec.Loans) == 0 || p.recalled > 0 && clk-p.recalled < p.recallGap() {
		return false
	}
	p.recall, p.recalled = false, clk
	return !p.inTurn(clk) ||
		slices.ContainsFunc(p.rec.Loans, func(l Loan) bool { return !p.toldInTurn(clk, &l) })
}

// Free returns how many more slots may be called now, by the newest write.
func (p *Pool) Free() int64 { return p.newest().Free() - p.calls }

func (p *Pool) newest() *Record {
	if p.wr != nil {
		return p.wr
	}
	return p.rec
}

// FreeNow is Free plus the slots whose end has passed and is settled. The write of their next
// session frees them.
func (p *Pool) FreeNow(clk time.Duration) int64 {
	r := p.newest()
	until := p.settledUntil(clk, r, p.CounterTime(clk))
	least := int64(math.MaxInt64)
	for i := range r.Limits {
		least = min(least, r.freeOf(i)+r.Limits[i].Ends.Until(until))
	}
	return p.mayUse(clk, least-p.calls) - p.notYet(clk)
}

// mayUse returns how many of n free slots may be used here. While Anywhere recalls slots, these are
// only the slots that it has lent for visitors that wait here.
func (p *Pool) mayUse(clk time.Duration, n int64) int64 {
	if p.RecalledByParent(clk) {
		return min(n, p.up.mine)
	}
	return n
}

// Unsettled returns the latest end that has passed and that reports of the borrowers could free, or
// 0 if there is none. A borrower may yet report that the session continues.
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

// FreeOf returns what is free of limit i alone, before calls, by the confirmed record.
func (p *Pool) FreeOf(i int) int64 { return p.rec.freeOf(i) }

// UsedAt returns how many slots of limit i are in use at own clock clk: sessions that have not
// ended, slots that the borrower of has opened and not reported yet, and slots lent to the others,
// which may have used them. Only a write frees ends; UsedAt does not wait for one. Like Call, it
// uses the write in flight. Together with the calls it is never more than the limit.
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

// Bound returns the greatest value of UsedAt(i): the limit, or the former limit until enough of its
// slots have come back; below Anywhere, the slots lent to this counter. It uses the same write as
// UsedAt. A visitor that is seen elsewhere before the borrower that admitted it reports the session
// is counted twice, as a session and as a lent slot: until that borrower reports, or, if it is
// dead, while its slots are presumed used. Bound includes the lent slots of dead borrowers. For
// live ones, UsedAt may exceed Bound for a heartbeat. Calls from before a limit was lowered may
// exceed it too.
func (p *Pool) Bound(i int) int64 {
	r := p.newest()
	n := max(r.capacity(i), r.Limits[i].InForce)
	if p.par.Counters {
		return n // its borrowers record their own sessions
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

// Uncall frees the slot of a call that was not claimed.
func (p *Pool) Uncall() { p.calls-- }

// Called returns how many slots are reserved for called tickets.
func (p *Pool) Called() int64 { return p.calls }

// Claim turns a called slot into a session with the next write. place is the rank of the ticket in
// the line, 0 without one: while the claim waits for a slot, the record keeps the place, because
// another host does not know of the claim. hard is the longest that the session may ever last; 0
// means no bound. The caller must discard an answer that comes later than askedFor after clk.
func (p *Pool) Claim(clk time.Duration, id SessionID, place uint64, hard time.Duration) {
	p.claims = append(p.claims, claim{id: id, hard: hard, place: place, at: clk})
}

// ClaimAgain repeats the claim of a ticket, which gets the same session. If an earlier claim has no
// answer yet, its answer is for this request too. Otherwise no slot is reserved, and the ticket
// must be ClaimedBefore.
func (p *Pool) ClaimAgain(clk time.Duration, id SessionID, place uint64, hard time.Duration) {
	for _, all := range [...][]claim{p.making, p.claims} {
		if i := slices.IndexFunc(all, func(c claim) bool { return c.id == id }); i >= 0 {
			all[i].at = clk
			return
		}
	}
	p.claims = append(p.claims, claim{id: id, hard: hard, place: place, back: true, at: clk})
}

// Claims reports whether a claim of a place from from up to, but not including, to may not be written yet.
func (p *Pool) Claims(from, to uint64) bool {
	return slices.ContainsFunc(slices.Concat(p.making, p.claims), func(c claim) bool {
		return c.place >= from && c.place < to
	})
}

// ClaimedBefore returns the end of a session that this ticket has claimed within the last
// claimKept, or 0 if the ticket is used up. ok is false if there was no claim.
func (p *Pool) ClaimedBefore(id SessionID) (Time, bool) {
	c, ok := p.rec.claimed(id)
	return c.End, ok
}

// UsedUp reports whether the pass of a ticket that was claimed within the last claimKept has come
// back, and returns how long this is remembered.
func (p *Pool) UsedUp(clk time.Duration, id SessionID) (left time.Duration, ok bool) {
	c, ok := p.rec.claimed(id)
	if !ok || c.End != 0 {
		return 0, false
	}
	return max(0, max(c.At, p.toldAt[id]).Add(claimKept).Sub(p.CounterTime(clk))), true
}

// A LinePart is what a record keeps of the line. Next may fall only to the End of the line, and
// only on a host that issues no more numbers.
type LinePart struct {
	Next, Issued, Frontier uint64
	Skipped, Unconfirmed   []Run
	Heads                  []byte
	Draws                  []Draw
	Lanes                  []LanePart
	Moved                  []Moved    // never changed in place
	Released               []Released // the same
}

// PutLine sets the line's part of the record for the next write.
func (p *Pool) PutLine(part LinePart) { p.line = &part }

// EndOf returns the end of a session known to this host, or 0 if it knows none.
func (p *Pool) EndOf(id SessionID) Time {
	if end, ok := p.known[id]; ok {
		return end
	}
	c, _ := p.rec.claimed(id)
	return c.End
}

// Session returns the end of a session, 0 if it is over or never began. sure is false while it may
// be a session of an earlier host that nobody has seen since. Call it while no write is in flight.
func (p *Pool) Session(id SessionID) (end Time, sure bool) {
	if end = p.EndOf(id); end > p.rec.Time {
		return end, true
	}
	return 0, p.vacant || p.rec.Time >= p.unnamed || p.gone.has(id)
}

// Ended returns how many sessions have reached their end since the takeover, and how many ended
// early: left of visitors seen within Idle, leftSilent of others.
func (p *Pool) Ended() (lapsed, left, leftSilent int64) { return p.ended, p.left, p.leftSilent }

// Quiet returns how long lending is still stopped because the record may be older than what was
// sent. 0 means not at all.
func (p *Pool) Quiet(clk time.Duration) time.Duration { return max(0, p.quiet-clk) }

// Age returns the time since the newest confirmed write was built.
func (p *Pool) Age(clk time.Duration) time.Duration { return clk - p.last }

// NextEnd returns the earliest end of a session after a time in the confirmed record, or Never if
// there is none.
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

// A ParentTerm is the time until which a counter may use its loan from Anywhere, in the counter's
// own time, as its host publishes it. If another process becomes the host while Anywhere is
// unreachable, it continues with this term.
type ParentTerm struct {
	Loan   LoanID        `json:"loan"`
	Epoch  uint64        `json:"epoch"` // the epoch of the counter time of Until
	Until  Time          `json:"until"`
	Paused time.Duration `json:"paused"` // how long counter time has stood still since Anywhere last answered
}

// ParentTerm returns the term of this counter. ok is false if there is no term or it is over.
func (p *Pool) ParentTerm(clk time.Duration) (t ParentTerm, ok bool) {
	if !p.serving || p.rec.Parent == nil || clk >= p.up.until {
		return t, false
	}
	return ParentTerm{p.rec.Parent.Loan, p.epoch, p.CounterTime(clk).Add(p.up.until - clk), p.up.paused}, true
}

// ContinueTerm lets a host that has received nothing from Anywhere continue the term of the
// previous host. lo and hi bound, at clk, the counter time that the previous host would have now,
// by what this process received from it. ContinueTerm returns false and changes nothing unless the
// term surely still runs.
//
// Counter time jumps to lo. This is necessary: when Anywhere presumes a loan to be used, it assumes
// that counter time is at most sigma behind. The jump is allowed because a host that has sent
// nothing yet may choose where its time begins.
func (p *Pool) ContinueTerm(clk time.Duration, t ParentTerm, lo, hi Time) bool {
	if !p.serving || p.wr != nil || p.rec.Parent == nil || p.up.est.Known() || p.up.until > 0 ||
		t.Loan != p.rec.Parent.Loan || t.Epoch != p.tookEpoch {
		return false
	}
	now := p.CounterTime(clk)
	next := max(now, lo)
	paused := t.Paused + max(0, hi.Sub(next))
	if paused > p.par.Sigma || t.Until <= hi {
		return false
	}
	p.up.until = clk + p.par.Drift.Shrink(t.Until.Sub(hi))
	p.up.paused = paused
	p.wentFrom, p.wentOn = now, next
	p.tauC, p.tauM = next, clk
	return true
}

// courtesy returns the latest end that may be freed at counter time now even if a borrower has more
// to report. Borrowers could not report ends that passed while counter time jumped before the jump
// was over.
func (p *Pool) courtesy(now Time) Time {
	until := now.Add(-p.par.Settle)
	if now < p.wentOn.Add(p.par.Settle) {
		until = min(until, p.wentFrom.Add(-p.par.Settle))
	}
	return until
}
