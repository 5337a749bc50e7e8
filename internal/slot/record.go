package slot

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/codec"
)

// Version is the format of the records that this code writes. It reads all formats up to it.
const Version = 11

// A Record is all that a counter must not forget: a few KB, independent of the number of visitors
// inside. A confirmed Record never changes, except for Seq at a heartbeat.
type Record struct {
	Version     int
	Name        WriteName
	Host        string
	Time        Time   // counter time when the write was built
	LimitRev    uint64 // revision of the configuration of Limits
	Limits      []LimitState
	Parent      *ParentLoan // nil at the root
	Loans       []Loan
	Quiet       bool   // lend nothing at first: the record may be older than what was sent
	Next        uint64 // first ticket number not reserved
	Issued      uint64 // first ticket number not issued when the write was built
	Frontier    uint64 // all tickets below were called
	Waiting     bool
	Heads       []byte // how long the first from the frontier on may be silent: see HeadGrace
	Skipped     []Run  // late tickets below the frontier
	Unconfirmed []Run  // reserved before a restart and not polled since
	Draws       []Draw // future ones and those whose tickets may wait, oldest first
	Lanes       []LanePart
	Moved       []Moved      // places now on another device, by number; never changed in place
	Released    []Released   // tickets that an operator has released, by number; never changed in place
	Claimed     []Claimed    // claims of the last claimKept
	Left        []EarlyLeave // early leaves, oldest first; never changed in place
	Unnamed     Time         // no session whose name the host does not know ends later
	Sure        []Span       // times whose renewals are all in this record, oldest first
	MovedTo     string       // data center that Anywhere has moved to: no write follows
	Found       []byte       // what the search for the limits has learned; never changed in place

	Before  uint64 // tickets of this life are valid too; 0: only those of its own life
	WasRoot bool   // it was the root, and Anywhere has not answered yet
}

// A Span is an interval of one epoch's counter time: after From, before To.
type Span struct {
	Epoch    uint64
	From, To Time
}

// mostSpans bounds how many spans are kept. Each takeover adds one, and so does each lost borrower.
// Chosen.
const mostSpans = 64

// Holds reports whether time t of an epoch lies within one of spans.
func Holds(spans []Span, epoch uint64, t Time) bool {
	return slices.ContainsFunc(spans, func(s Span) bool {
		return s.Epoch == epoch && s.From < t && t < s.To
	})
}

// breakSpan begins a new span, because renewals of visitors seen up to from may be missing.
func (r *Record) breakSpan(epoch uint64, from Time) {
	if n := len(r.Sure); n > 0 && r.Sure[n-1].Epoch == epoch && r.Sure[n-1].To <= r.Sure[n-1].From {
		r.Sure[n-1].From = max(r.Sure[n-1].From, from) // it was empty
		return
	}
	r.Sure = append(r.Sure, Span{Epoch: epoch, From: from})
	r.Sure = r.Sure[max(0, len(r.Sure)-mostSpans):]
}

// LimitState is one limit and its use.
type LimitState struct {
	Limit
	InForce  int64         // the bound: N, or the old N until enough slots came back
	Longest  time.Duration // longest session that may still run
	Since    Time          // when Per was written
	Ends     Ends
	Tokens   int64
	Refilled Time
}

// ParentLoan is a counter's own loan from Anywhere, as totals.
type ParentLoan struct {
	Loan     LoanID
	Granted  int64
	Returned PerLimit
}

// PerLimit is a number for each limit. Grants are the same for each limit. Returns differ, because
// a window is over long before the session.
type PerLimit [MaxLimits]int64

// JoinParent makes a record that was the root a borrower of Anywhere. With all, the slots of the
// record count as lent by Anywhere, which presumes all of them lent (Presume). Otherwise the record
// begins with no slots, and the visitors that it has admitted exceed its loan until they leave.
func (r *Record) JoinParent(loan LoanID, all bool) {
	r.Parent, r.WasRoot = &ParentLoan{Loan: loan}, all
	for i := range r.Limits {
		if all {
			r.Parent.Granted = max(r.Parent.Granted, r.Limits[i].N)
		}
	}
	for i := range r.Limits {
		if all {
			r.Parent.Returned[i] = r.Parent.Granted - r.Limits[i].N
		}
	}
}

// evenly returns n for every limit.
func evenly(n int64) (e PerLimit) {
	for i := range e {
		e[i] = n
	}
	return e
}

// Loan is the lender's record of one borrower's life.
type Loan struct {
	ID              LoanID
	Borrower        string
	Seq             Seq
	Granted, Opened int64
	Returned        PerLimit
	Over            Time // when taken back; 0: alive
	Dead            bool
	Back            [MaxLimits]Time // when the slots of each limit are no longer presumed used
}

// Lent returns how many slots of limit i the borrower may hold or may have used without a report.
func (l *Loan) Lent(i int) int64 { return l.Granted - l.Returned[i] - l.Opened }

// out reports whether any slot of any limit is lent to the borrower.
func (l *Loan) out(r *Record) bool {
	for i := range r.Limits {
		if l.Lent(i) > 0 {
			return true
		}
	}
	return false
}

// Claimed is a claimed ticket and the end of its session. End is 0 once the pass of the session has
// come back: then the ticket is used up.
type Claimed struct {
	ID  SessionID
	At  Time
	End Time
}

// useUp records that the pass of a claimed ticket has come back.
func (r *Record) useUp(id SessionID) {
	for i := range slices.Backward(r.Claimed) { // most were claimed a moment ago
		if r.Claimed[i].ID == id {
			r.Claimed[i].End = 0
			return
		}
	}
}

// claimKept is how long a claim is remembered. If the answer to a claim is lost with the old host,
// the visitor does not lose its place (docs/protocol.md §3).
const claimKept = 30 * time.Second

// mostClaimed bounds the claims that are remembered; the oldest are forgotten first. At a thousand
// claims a second it is eight seconds of them, 64 KB. Chosen.
const mostClaimed = 8192

// NewRecord makes the first record of a counter. life is random; up is nil at
// the root.
func NewRecord(life uint64, up *ParentLoan, limits ...Limit) *Record {
	r := &Record{
		Version: Version, Name: WriteName{Life: life}, Parent: up, Time: 1,
		Next: 1, Issued: 1, Frontier: 1,
	}
	for _, l := range limits {
		r.Limits = append(r.Limits, LimitState{
			Limit: l, InForce: l.N, Longest: l.Per, Tokens: l.N, Refilled: 1,
		})
	}
	return r
}

// Clone returns a copy that shares nothing that changes.
func (r *Record) Clone() *Record {
	c := *r
	c.Limits = slices.Clone(r.Limits)
	for i := range c.Limits {
		c.Limits[i].Ends = r.Limits[i].Ends.Clone()
	}
	if r.Parent != nil {
		c.Parent = new(*r.Parent)
	}
	c.Loans = slices.Clone(r.Loans)
	c.Skipped = slices.Clone(r.Skipped)
	c.Unconfirmed = slices.Clone(r.Unconfirmed)
	c.Heads, c.Draws = slices.Clone(r.Heads), slices.Clone(r.Draws)
	c.Lanes = cloneLanes(r.Lanes)
	c.Claimed = slices.Clone(r.Claimed)
	c.Sure = slices.Clone(r.Sure)
	return &c
}

// capacity returns C of limit i: its N at the root, else the slots lent by Anywhere.
func (r *Record) capacity(i int) int64 {
	if r.Parent != nil {
		return r.Parent.Granted - r.Parent.Returned[i]
	}
	return r.Limits[i].N
}

// lent returns how many slots of limit i all borrowers are presumed to hold.
func (r *Record) lent(i int) (n int64) {
	for k := range r.Loans {
		if l := &r.Loans[k]; l.Over == 0 || r.Time < l.Back[i] {
			n += l.Lent(i)
		}
	}
	return n
}

// freeOf returns how many slots limit i has left, before calls. It may be negative.
func (r *Record) freeOf(i int) int64 {
	s := &r.Limits[i]
	if s.Kind == Bucket {
		return s.Tokens
	}
	return r.capacity(i) - r.lent(i) - s.Ends.Len()
}

// Free returns how many slots every limit has left, before calls.
func (r *Record) Free() int64 {
	n := r.freeOf(0)
	for i := 1; i < len(r.Limits); i++ {
		n = min(n, r.freeOf(i))
	}
	return n
}

func (r *Record) loan(id LoanID) *Loan {
	for i := range r.Loans {
		if r.Loans[i].ID == id {
			return &r.Loans[i]
		}
	}
	return nil
}

func (r *Record) claimed(id SessionID) (c Claimed, ok bool) {
	for _, c := range slices.Backward(r.Claimed) { // most look-ups follow the claim closely
		if c.ID == id {
			return c, true
		}
	}
	return Claimed{}, false
}

// refill adds one token per Per of counter time, stretched by drift, while
// tokens + lent < b (docs/protocol.md §5).
func (r *Record) refill(i int, p *Params) {
	s := &r.Limits[i]
	room := s.N - s.Tokens - r.lent(i)
	if room <= 0 {
		s.Refilled = r.Time
		return
	}
	step := Time(p.Drift.Up(s.Per))
	n := min(room, int64((r.Time-s.Refilled)/step))
	if n <= 0 {
		return
	}
	s.Tokens += n
	s.Refilled += Time(n) * step
	if n == room {
		s.Refilled = r.Time
	}
}

// Run is a run of N ticket numbers from First.
type Run struct{ First, N uint64 }

// skippedOf returns the frontier and the skipped places of the line of a rank. It returns a nil
// pointer if the record has no such line.
func (r *Record) skippedOf(rank uint64) (frontier uint64, skipped *[]Run) {
	lane := LaneIndex(rank)
	switch {
	case lane > len(r.Lanes):
		return 0, nil
	case lane > 0:
		return r.Lanes[lane-1].Frontier, &r.Lanes[lane-1].Skipped
	}
	return r.Frontier, &r.Skipped
}

// runOf returns the index of the first run, of runs in falling order, that does not begin above a
// rank, and reports whether the rank is in it.
func runOf(runs []Run, rank uint64) (i int, found bool) {
	i = slices.IndexFunc(runs, func(run Run) bool { return run.First <= rank })
	if i < 0 {
		return len(runs), false
	}
	return i, rank-runs[i].First < runs[i].N
}

// keepPlace adds a place below the frontier of its line to those that were skipped.
func (r *Record) keepPlace(rank uint64) {
	frontier, skipped := r.skippedOf(rank)
	if skipped == nil || rank == 0 || rank >= frontier {
		return
	}
	if i, found := runOf(*skipped, rank); !found {
		*skipped = slices.Insert(*skipped, i, Run{rank, 1})
	}
}

// dropPlace removes what keepPlace added, once the claim of the place is made. A write that has
// nothing to say about the line would copy the place from the record before, and after a crash the
// used ticket would hold a place again.
func (r *Record) dropPlace(rank uint64) {
	_, skipped := r.skippedOf(rank)
	if skipped == nil || rank == 0 {
		return
	}
	i, found := runOf(*skipped, rank)
	if !found {
		return
	}
	run := (*skipped)[i]
	var rest []Run // in falling order
	if above := run.First + run.N - 1 - rank; above > 0 {
		rest = append(rest, Run{rank + 1, above})
	}
	if below := rank - run.First; below > 0 {
		rest = append(rest, Run{run.First, below})
	}
	*skipped = slices.Replace(*skipped, i, i+1, rest...)
}

// A Moved records that a place has moved to another device. Its ticket is valid only with this key.
// A number without a Moved has not moved.
type Moved struct {
	Number, Key uint64
	Held        Time // when it was last known to hold its place
}

// MaxMoved bounds the moved places in a record: 70 KB. Chosen.
const MaxMoved = 4096

// FindMoved returns the index of a number in a list that is sorted by number.
func FindMoved(all []Moved, number uint64) (at int, ok bool) {
	return slices.BinarySearchFunc(all, number, func(m Moved, n uint64) int {
		return cmp.Compare(m.Number, n)
	})
}

func appendMoved(b []byte, all []Moved) []byte {
	b = codec.AppendUint(b, uint64(len(all)))
	last := Moved{}
	for _, m := range all {
		b = codec.AppendUint(b, m.Number-last.Number, m.Key)
		b = codec.AppendInt(b, int64(m.Held-last.Held))
		last = m
	}
	return b
}

func (d *decoder) moved() (all []Moved) {
	last := Moved{}
	for range d.Count(MaxMoved) {
		m := Moved{Number: last.Number + d.Uint(), Key: d.Uint(), Held: last.Held + Time(d.Int())}
		if m.Number <= last.Number || m.Key == 0 {
			d.Fail()
			return nil
		}
		all = append(all, m)
		last = m
	}
	return all
}

// A Released is a ticket that an operator has taken out of its lane. Its visitor stands where the first
// ticket that it had would stand, and has a session of its own: see counter.placeReleased.
type Released struct {
	Number uint64
	Used   bool // it has let its visitor in: it never does again
	Held   Time // when its visitor was last known to wait
}

// RoamerBit is set in the number of the session of whoever waits outside the line, and in no ticket
// number.
const RoamerBit = 1 << 63

// MaxReleased bounds the released tickets in a record: 20 KB. Chosen.
const MaxReleased = 1024

// FindReleased returns the index of a number in a list that is sorted by number.
func FindReleased(all []Released, number uint64) (at int, ok bool) {
	return slices.BinarySearchFunc(all, number, func(x Released, n uint64) int {
		return cmp.Compare(x.Number, n)
	})
}

// putReleased replaces the released tickets. What was used stays used.
func (r *Record) putReleased(all []Released) {
	was := r.Released
	r.Released = all
	for _, x := range was {
		if x.Used {
			r.useReleased(SessionID(x.Number))
		}
	}
}

// useReleased notes that the claim of a released ticket is made: of its session, or, by a host that did not
// know of the release, of its place in the lane.
func (r *Record) useReleased(id SessionID) {
	at, ok := FindReleased(r.Released, uint64(id)&^RoamerBit)
	if ok && !r.Released[at].Used {
		r.Released = slices.Clone(r.Released) // records share the slice
		r.Released[at].Used = true
	}
}

func appendReleased(b []byte, all []Released) []byte {
	b = codec.AppendUint(b, uint64(len(all)))
	last := Released{}
	for _, x := range all {
		b = codec.AppendUint(b, x.Number-last.Number, codec.Bit(x.Used))
		b = codec.AppendInt(b, int64(x.Held-last.Held))
		last = x
	}
	return b
}

func (d *decoder) released() (all []Released) {
	last := Released{}
	for range d.Count(MaxReleased) {
		x := Released{Number: last.Number + d.Uint(), Used: d.UpTo(1) == 1, Held: last.Held + Time(d.Int())}
		if x.Number <= last.Number || x.Number >= RoamerBit {
			d.Fail()
			return nil
		}
		all = append(all, x)
		last = x
	}
	return all
}
