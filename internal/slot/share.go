package slot

import (
	"slices"
	"time"
)

// A Share is the borrower's side of one loan at one counter: what may be used
// without asking, and what is still to be reported. Used by one goroutine at a
// time; the caller guards it.
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
	settled                   Time          // everything seen before is in items that were sent
}

// NewShare returns the empty share of a fresh loan. loan is drawn at random.
func NewShare(par Params, borrower string, loan LoanID, limits ...Limit) *Share {
	return &Share{par: par.WithDefaults(), borrower: borrower, loan: loan, limits: limits}
}

// SetLimits takes new limits for stays that are opened from now on. A longer
// stay must be in the lender's record first.
func (s *Share) SetLimits(limits ...Limit) { s.limits = limits }

// LimitOf returns the limit of a kind, the zero Limit if there is none.
func (s *Share) LimitOf(kind Kind) Limit {
	for _, l := range s.limits {
		if l.Kind == kind {
			return l
		}
	}
	return Limit{}
}

// Left is how many slots may be opened at own clock clk without asking: none
// after the term, before the counter's time is known or while somebody waits.
func (s *Share) Left(clk time.Duration) int64 {
	if clk >= s.until || !s.est.Known() || s.waiting {
		return 0
	}
	return s.Held()
}

// Held is how many unused slots are lent to us, usable or not.
func (s *Share) Held() int64 { return s.granted - s.returned - s.opened }

// Opened is the loan and how many of its slots were used so far.
func (s *Share) Opened() (LoanID, int64) { return s.loan, s.opened }

// Until is the end of the term, own clock.
func (s *Share) Until() time.Duration { return s.until }

// Waiting reports whether the last answer said that somebody waits.
func (s *Share) Waiting() bool { return s.waiting }

// NewsFor is how long a newcomer believes that somebody waits, without asking. Chosen: a message each
// so often while people wait and others come, and no write.
const NewsFor = 200 * time.Millisecond

// LineAhead reports whether a newcomer joins the line without asking: the last answer, which came
// within NewsFor, said that somebody waits. What came earlier may have ended.
func (s *Share) LineAhead(clk time.Duration) bool {
	return s.waiting && clk < s.until && clk-s.heard < NewsFor
}

// Life is the life of the counter that was last heard.
func (s *Share) Life() uint64 { return s.seen.Life }

// Lo and Hi bracket the counter's time. ok is false before the first answer.
func (s *Share) Lo(clk time.Duration) (t Time, ok bool) {
	return s.est.Lo(clk, s.par.Rho), s.est.Known()
}

// Hi is what counter time is at most.
func (s *Share) Hi(clk time.Duration) (t Time, ok bool) {
	return s.est.Hi(clk, s.par.Rho), s.est.Known()
}

// Estimate is the estimate itself, to be read without the share's guard.
func (s *Share) Estimate() Estimate { return s.est }

// Stay says until when a slot was opened.
type Stay struct {
	End Time // end of the stay
	Win Time // end of its window entry

	// Full is the end of a stay on probation if it goes on after that: End, if a session is no longer
	// than a probation. Of any other stay it is 0.
	Full Time
}

// Open uses one slot for a stay of at most last, never beyond hard (0: no hard
// end); ok is false if the share is empty.
func (s *Share) Open(clk time.Duration, id StayID, last, hard time.Duration) (o Stay, ok bool) {
	return s.OpenProbation(clk, id, 0, last, hard)
}

// OpenTrial is Open for a stay that is on probation first, if trial is not 0: its pass ends then.
func (s *Share) OpenProbation(
	clk time.Duration, id StayID, trial, last, hard time.Duration,
) (o Stay, ok bool) {
	if s.Left(clk) <= 0 {
		return o, false
	}
	lo, hi := s.est.Lo(clk, s.par.Rho), s.est.Hi(clk, s.par.Rho)
	for _, l := range s.limits {
		switch l.Kind {
		case AtOnce:
			o.End = s.par.CeilEnd(l, lo.Add(l.Per))
			if last > 0 && last < l.Per { // shorter than the longest: not a moment longer
				o.End = s.par.CeilEnd(l, lo.Add(last))
			}
			if hard > 0 {
				o.End = min(o.End, s.par.FloorEnd(l, lo.Add(hard)))
			}
			if end := s.par.CeilEnd(l, lo.Add(trial)); trial > 0 && end <= o.End {
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

// Note puts a Renew, Leave, Ask or Answered into the next Sync.
func (s *Share) AddItem(it Item) { s.items = append(s.items, it) }

// Noted is how many items wait for the next Sync.
func (s *Share) PendingItems() int { return len(s.items) }

// Return gives n unused slots back; it counts from now.
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

// Settle says that every visitor seen before lo is in the items of this loan's
// Syncs, the next one included: the counter may free what ended before. Counter
// time of another epoch is forgotten.
func (s *Share) Settle(lo Time) { s.settled = lo }

// Flying is the Sync that is not yet answered, to be repeated unchanged.
func (s *Share) InFlight() *Sync { return s.fly }

// Heard takes in an answer and reports whether it was one to the Sync that is
// flying. Told that the loan is over, the share draws a new one and keeps what
// is not about the old loan's slots.
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
		s.est = Estimate{} // another life: nothing known of its time
	}
	s.granted = max(s.granted, a.Granted)
	from := s.sent
	if s.par.fault&faultFromReply != 0 {
		from = clk
	}
	s.until = max(s.until, from+s.par.Rho.Down(a.Term))
	if s.par.fault&faultMixScales != 0 && s.est.Known() && a.Name.Epoch > s.est.Epoch {
		s.est.Epoch = a.Name.Epoch // broken on purpose: two scales in one estimate
	}
	if a.Name.Epoch > s.est.Epoch {
		s.settled = 0
	}
	s.est.Receive(a.Name.Epoch, a.Time, s.sent, clk, s.par.Rho)
	if a.Name.Newer(s.seen) || s.seen.Life != a.Name.Life {
		s.seen = a.Name
	}
	s.waiting, s.heard = a.Waiting, clk
	s.fly = nil
	return true
}

// renewLoan draws the next loan. Its number follows from the first, which was
// random, so no two lives share one.
func (s *Share) renewLoan() {
	keep := append(s.fly.Items, s.items...)
	keep = slices.DeleteFunc(keep, func(it Item) bool { return it.Op == Open })
	s.drew++
	s.loan = s.loan*0x9E3779B97F4A7C15 + LoanID(s.drew)
	s.n, s.granted, s.returned, s.opened, s.until = 0, 0, 0, 0, 0
	s.items, s.fly = keep, nil
}
