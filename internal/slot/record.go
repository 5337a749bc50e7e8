package slot

import (
	"slices"
	"time"
)

// Version is the format of the records this code writes. It reads all up to it.
const Version = 8

// A Record is all that a counter must not forget, a few KB however many people
// are inside. A confirmed Record is never changed but for Seq of a heartbeat.
type Record struct {
	Version     int
	Name        WriteName
	Host        string
	Time        Time   // counter time when the write was built
	LimitRev    uint64 // revision of the configuration that Limits came from
	Limits      []LimitState
	Parent      *ParentLoan // nil at the root
	Loans       []Loan
	Quiet       bool   // lend nothing at first: the record may be older than what was told
	Next        uint64 // first ticket number not reserved
	Issued      uint64 // first ticket number not issued when the write was built
	Frontier    uint64 // all tickets below were called
	Waiting     bool
	Heads       []byte // how long each of the first from the frontier may be silent: see HeadGrace
	Skipped     []Run  // late tickets below the frontier
	Unconfirmed []Run  // numbers reserved before a restart and not heard since
	Draws       []Draw // to come, and those whose tickets may wait, the oldest first
	Lanes       []LanePart
	Moved       []Moved      // places that are on another device now, by number; never changed in place
	Claimed     []Claimed    // claims of the last claimKept
	Left        []EarlyLeave // who left early, the oldest first; never changed in place
	Unnamed     Time         // no stay whose name the host has not heard ends later
	Sure        []Span       // when every renewal that was seen is in this record, oldest first
	MovedTo     string       // the data centre that Anywhere has gone to: nothing follows this write

	Before  uint64 // tickets of this life are of this line too; 0: of its own life alone
	WasRoot bool   // it was alone until now, and Anywhere has not answered yet
}

// A Span is a stretch of one epoch's counter time: after From, before To.
type Span struct {
	Epoch    uint64
	From, To Time
}

// mostSpans bounds how many spans are kept: one more each takeover and each time a
// borrower is lost. Chosen.
const mostSpans = 64

// Holds reports whether what was seen at t in an epoch lies within one of spans.
func Holds(spans []Span, epoch uint64, t Time) bool {
	return slices.ContainsFunc(spans, func(s Span) bool {
		return s.Epoch == epoch && s.From < t && t < s.To
	})
}

// breakSpan begins a new span: of renewals seen up to from some may be missing.
func (r *Record) breakSpan(epoch uint64, from Time) {
	if n := len(r.Sure); n > 0 && r.Sure[n-1].Epoch == epoch && r.Sure[n-1].To <= r.Sure[n-1].From {
		r.Sure[n-1].From = max(r.Sure[n-1].From, from) // it was empty
		return
	}
	r.Sure = append(r.Sure, Span{Epoch: epoch, From: from})
	r.Sure = r.Sure[max(0, len(r.Sure)-mostSpans):]
}

// LimitState is one limit with what is used of it.
type LimitState struct {
	Limit
	InForce  int64         // the bound: N, or the old N until enough slots came back
	Longest  time.Duration // of the stays that may still run
	Since    Time          // when Per was written
	Ends     Ends
	Tokens   int64
	Refilled Time
}

// Upper is a counter's own loan at Anywhere, as totals.
type ParentLoan struct {
	Loan     LoanID
	Granted  int64
	Returned PerLimit
}

// Each is a number for each limit. What is granted is the same in each; what comes
// back comes back by limit, for a window is over long before the stay.
type PerLimit [MaxLimits]int64

// GoBelow makes a record that was the root a borrower of Anywhere. all says that what it
// has let in counts as lent by Anywhere, which presumes all of it lent (Presume); else
// it has nothing, and what it has let in is too many until it ends.
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

// evenly is n for every limit.
func evenly(n int64) (e PerLimit) {
	for i := range e {
		e[i] = n
	}
	return e
}

// Loan is the lender's line for one borrower's life.
type Loan struct {
	ID              LoanID
	Borrower        string
	Seq             Seq
	Granted, Opened int64
	Returned        PerLimit
	Over            Time // when taken back; 0 is alive
	Dead            bool
	Back            [MaxLimits]Time // when the presumption of each limit ends
}

// Lent is what the borrower may hold of limit i or have used without having said so.
func (l *Loan) Lent(i int) int64 { return l.Granted - l.Returned[i] - l.Opened }

// out reports whether anything of any limit is lent to the borrower.
func (l *Loan) out(r *Record) bool {
	for i := range r.Limits {
		if l.Lent(i) > 0 {
			return true
		}
	}
	return false
}

// Claimed is a ticket that was claimed, and the end of its stay. End is 0 once the pass of the stay
// has come back: then the ticket is used up.
type Claimed struct {
	ID  StayID
	At  Time
	End Time
}

// useUp notes that the pass of a claimed ticket has come back.
func (r *Record) useUp(id StayID) {
	for i := range slices.Backward(r.Claimed) { // claimed a moment ago, mostly
		if r.Claimed[i].ID == id {
			r.Claimed[i].End = 0
			return
		}
	}
}

// claimKept is how long a claim is remembered, so that a claim whose answer
// was lost with the old host is not a place lost (docs/protocol.md §3).
const claimKept = 30 * time.Second

// mostClaimed bounds the claims that are remembered, the oldest are forgotten
// first: at a thousand claims a second eight seconds of them, 64 KB. Chosen.
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

// capacity is C of limit i: its N at the root, else what Anywhere has lent.
func (r *Record) capacity(i int) int64 {
	if r.Parent != nil {
		return r.Parent.Granted - r.Parent.Returned[i]
	}
	return r.Limits[i].N
}

// lent is what all borrowers are presumed to hold of limit i.
func (r *Record) lent(i int) (n int64) {
	for k := range r.Loans {
		if l := &r.Loans[k]; l.Over == 0 || r.Time < l.Back[i] {
			n += l.Lent(i)
		}
	}
	return n
}

// freeOf is what limit i has left, before calls; it may be negative.
func (r *Record) freeOf(i int) int64 {
	s := &r.Limits[i]
	if s.Kind == Bucket {
		return s.Tokens
	}
	return r.capacity(i) - r.lent(i) - s.Ends.Len()
}

// Free is what every limit has left, before calls.
func (r *Record) Free() int64 {
	n := r.freeOf(0)
	for i := 1; i < len(r.Limits); i++ {
		n = min(n, r.freeOf(i))
	}
	return n
}

// Used is how many slots of limit i are used or presumed to be used.
func (r *Record) Used(i int) int64 { return r.lent(i) + r.Limits[i].Ends.Len() }

func (r *Record) loan(id LoanID) *Loan {
	for i := range r.Loans {
		if r.Loans[i].ID == id {
			return &r.Loans[i]
		}
	}
	return nil
}

func (r *Record) claimed(id StayID) (c Claimed, ok bool) {
	for _, c := range slices.Backward(r.Claimed) { // asked for soon after, mostly
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
	out := r.lent(i)
	if p.fault&faultNoCountLent != 0 {
		out = 0
	}
	room := s.N - s.Tokens - out
	if room <= 0 {
		s.Refilled = r.Time
		return
	}
	step := Time(p.Rho.Up(s.Per))
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

// keepPlace adds a place below the frontier of its line to those that were skipped.
func (r *Record) keepPlace(rank uint64) {
	frontier, skipped := r.Frontier, &r.Skipped
	if lane := LaneIndex(rank); lane > len(r.Lanes) {
		return
	} else if lane > 0 {
		frontier, skipped = r.Lanes[lane-1].Frontier, &r.Lanes[lane-1].Skipped
	}
	i := slices.IndexFunc(*skipped, func(run Run) bool { return run.First <= rank })
	if i < 0 {
		i = len(*skipped)
	} else if run := (*skipped)[i]; rank-run.First < run.N {
		return
	}
	if rank > 0 && rank < frontier {
		*skipped = slices.Insert(*skipped, i, Run{rank, 1})
	}
}
