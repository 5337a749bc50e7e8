package slot

import (
	"slices"
	"time"
)

// A Share is the borrower's side of one loan at one counter: the slots that may be used without a
// request, and the items still to be reported. It is not safe for concurrent use.
type Share struct {
	par      Params
	limits   []Limit
	loan     LoanID
	borrower string

	n                         uint64
	granted, returned, opened int64
	items                     []Item
	fly                       *Sync
	sent                      time.Duration
	until                     time.Duration
	seen                      WriteName
	est                       Estimate
	waiting                   bool
	heard                     time.Duration // own clock when the last answer came
	drew                      uint64        // loans drawn so far
	settled                   Time          // every visitor seen before is in items that were sent
}

// NewShare returns the empty share of a fresh loan. loan is drawn at random.
func NewShare(par Params, borrower string, loan LoanID, limits ...Limit) *Share {
	return &Share{par: par.WithDefaults(), borrower: borrower, loan: loan, limits: limits}
}

// SetLimits sets the limits for sessions opened from now on. A longer session must be in the
// lender's record first.
func (s *Share) SetLimits(limits ...Limit) { s.limits = limits }

// LimitOf returns the limit of a kind, or the zero Limit if there is none.
func (s *Share) LimitOf(kind Kind) Limit {
	for _, l := range s.limits {
		if l.Kind == kind {
			return l
		}
	}
	return Limit{}
}

// Left returns how many slots may be opened at own clock clk without a request. It is 0 after the
// term, before the counter's time is known, or while visitors wait.
func (s *Share) Left(clk time.Duration) int64 {
	if clk >= s.until || !s.est.Known() || s.waiting {
		return 0
	}
	return s.Held()
}

// Held returns how many unused slots the share has, usable or not.
func (s *Share) Held() int64 { return s.granted - s.returned - s.opened }

// Opened returns the loan and how many of its slots were used so far.
func (s *Share) Opened() (LoanID, int64) { return s.loan, s.opened }

// Until returns the end of the term, own clock.
func (s *Share) Until() time.Duration { return s.until }

// Waiting reports whether visitors wait, by the last answer.
func (s *Share) Waiting() bool { return s.waiting }

// NewsFor is how long an answer that visitors wait stays valid for newcomers without a request.
// Chosen: while people wait and others arrive, it costs one message per NewsFor and no write.
const NewsFor = 200 * time.Millisecond

// LineAhead reports whether a newcomer joins the line without a request: an answer within the last
// NewsFor reported that visitors wait. By an older answer the line may already be empty.
func (s *Share) LineAhead(clk time.Duration) bool {
	return s.waiting && clk < s.until && clk-s.heard < NewsFor
}

// Lo returns the lower bound of counter time. ok is false before the first answer.
func (s *Share) Lo(clk time.Duration) (t Time, ok bool) {
	return s.est.Lo(clk, s.par.Drift), s.est.Known()
}

// Hi returns the upper bound of counter time. ok is false before the first answer.
func (s *Share) Hi(clk time.Duration) (t Time, ok bool) {
	return s.est.Hi(clk, s.par.Drift), s.est.Known()
}

// Estimate returns a copy of the estimate, which can be read without the share's guard.
func (s *Share) Estimate() Estimate { return s.est }

// A Session is an opened session: the ends of its entries.
type Session struct {
	End Time // end of the session
	Win Time // end of its window entry

	// Full is the later end of a session on probation if it continues after that. It equals End if
	// a session is no longer than a probation. It is 0 for other sessions.
	Full Time
}

// Open uses one slot for a session of at most last and never beyond hard (0: no hard end). ok is
// false if the share is empty.
func (s *Share) Open(clk time.Duration, id SessionID, last, hard time.Duration) (o Session, ok bool) {
	return s.OpenProbation(clk, id, 0, last, hard)
}

// OpenProbation is Open for a session that begins on probation if probation is not 0: its pass then
// ends after probation.
func (s *Share) OpenProbation(
	clk time.Duration, id SessionID, probation, last, hard time.Duration,
) (o Session, ok bool) {
	if s.Left(clk) <= 0 {
		return o, false
	}
	lo, hi := s.est.Lo(clk, s.par.Drift), s.est.Hi(clk, s.par.Drift)
	for _, l := range s.limits {
		switch l.Kind {
		case AtOnce:
			o.End = s.par.CeilEnd(l, lo.Add(l.Per))
			if last > 0 && last < l.Per { // shorter than the longest: never exceed it
				o.End = s.par.CeilEnd(l, lo.Add(last))
			}
			if hard > 0 {
				o.End = min(o.End, s.par.FloorEnd(l, lo.Add(hard)))
			}
			if end := s.par.CeilEnd(l, lo.Add(probation)); probation > 0 && end <= o.End {
				o.End, o.Full = end, o.End
			}
		case PerWindow:
			o.Win = s.par.windowEnd(l, hi)
		}
	}
	s.opened++
	s.items = append(s.items, Item{Op: Open, ID: id, End: o.End, Use: hi, Hard: o.Full})
	return o, true
}

// AddItem adds a Renew, Leave, Ask or Answered to the next Sync.
func (s *Share) AddItem(it Item) { s.items = append(s.items, it) }

// PendingItems returns how many items wait for the next Sync.
func (s *Share) PendingItems() int { return len(s.items) }

// Return gives back n unused slots. They cannot be used from now on.
func (s *Share) Return(n int64) { s.returned += max(0, min(n, s.Held())) }

// Sync builds the next Sync, or returns nil while one is unanswered.
func (s *Share) Sync(clk time.Duration, need, want int64) *Sync {
	if s.fly != nil {
		return nil
	}
	s.n++
	x := &Sync{
		Loan: s.loan, Borrower: s.borrower, Seq: Seq{0, s.n}, Seen: s.seen,
		Granted: s.granted, Returned: evenly(s.returned), Opened: s.opened,
		Need: need, Want: want, Items: s.items,
	}
	if s.est.Known() {
		x.Est, x.Settled = s.est.Epoch, s.settled
	}
	s.items, s.fly, s.sent = nil, x, clk
	return x
}

// Settle declares that the items of this loan's Syncs, including the next one, contain every
// visitor seen before lo. The counter may then free what ended before. A new epoch discards this
// value.
func (s *Share) Settle(lo Time) { s.settled = lo }

// InFlight returns the Sync that is not answered yet, to be repeated unchanged.
func (s *Share) InFlight() *Sync { return s.fly }

// Receive processes an answer and reports whether it answers the Sync in flight. If the loan is
// over, the share draws a new one and keeps the items that are not about the old loan's slots.
func (s *Share) Receive(clk time.Duration, a *Answer) bool {
	if s.fly == nil || a.Loan != s.loan || a.Seq != s.fly.Seq {
		return false
	}
	if a.Over {
		s.renewLoan()
		return true
	}
	if a.Name.Epoch < s.est.Epoch && s.seen.Life == a.Name.Life {
		return false
	}
	if s.seen.Life != 0 && s.seen.Life != a.Name.Life {
		s.est = Estimate{} // another life: its time is not known
	}
	s.granted = max(s.granted, a.Granted)
	s.until = max(s.until, s.sent+s.par.Drift.Down(a.Term))
	if a.Name.Epoch > s.est.Epoch {
		s.settled = 0
	}
	s.est.Receive(a.Name.Epoch, a.Time, s.sent, clk, s.par.Drift)
	if a.Name.Newer(s.seen) || s.seen.Life != a.Name.Life {
		s.seen = a.Name
	}
	s.waiting, s.heard = a.Waiting, clk
	s.fly = nil
	return true
}

// renewLoan draws the next loan. Its ID follows from the first one, which was random, so no two
// lives share an ID.
func (s *Share) renewLoan() {
	keep := append(s.fly.Items, s.items...)
	keep = slices.DeleteFunc(keep, func(it Item) bool { return it.Op == Open })
	s.drew++
	s.loan = s.loan*0x9E3779B97F4A7C15 + LoanID(s.drew)
	s.n, s.granted, s.returned, s.opened, s.until = 0, 0, 0, 0, 0
	s.items, s.fly = keep, nil
}
