package slot

import "time"

// LoanID names one loan: one life of one borrower. Drawn at random, never 0.
type LoanID uint64

// StayID names a stay: the ticket number if it came through the line, else 64
// random bits.
type StayID uint64

// Seq orders the Syncs of one loan: a worker counts N up from 1, a counter
// draws (own epoch, N).
type Seq struct{ Epoch, N uint64 }

// Before reports whether s was drawn before t.
func (s Seq) Before(t Seq) bool {
	return s.Epoch < t.Epoch || s.Epoch == t.Epoch && s.N < t.N
}

// WriteName names one write of one record.
type WriteName struct{ Life, Epoch, Writes uint64 }

// Newer reports whether w is a later write of the same life than v.
func (w WriteName) Newer(v WriteName) bool {
	return w.Life == v.Life && (w.Epoch > v.Epoch || w.Epoch == v.Epoch && w.Writes > v.Writes)
}

// Op says what an Item reports or asks.
type Op uint8

// The items of a Sync (docs/protocol.md §4, and Answered: ADR 0015).
const (
	Open     Op = iota + 1 // a slot of the share was used: ID, End, Use
	Renew                  // the stay was seen: ID, From, At, Hard
	Leave                  // the stay is over early: ID, From, Hard
	Ask                    // may this pass whose end has passed go on? as Renew
	Answered               // the target answered: the use of a window entry From was at Use
)

// An Item of a Sync. Ends are in the lender's counter time.
type Item struct {
	Op   Op
	ID   StayID
	From Time // the end the pass carries; Answered: the end of the window entry
	At   Time // Renew: when it was seen, by lo
	End  Time // Open: end of the stay
	Use  Time // Open, Answered: when it was used, by hi; the window runs from here. Renew: see Returned
	Hard Time // Renew: never later than this, 0 is no hard end; Open, Leave: see trials
}

// Returned reports whether a Renew says that the pass of a ticket has come back: the browser of the
// visitor has stored it. It travels in Use, which programs from before it do not read in a Renew.
func (it *Item) Returned() bool { return it.Op == Renew && it.Use != 0 }

// A Sync is a borrower's whole state at its lender, in running totals: lost,
// repeated, late and reordered are all the same as silence.
type Sync struct {
	Loan     LoanID
	Borrower string
	Seq      Seq
	Seen     WriteName // greatest write heard of
	Est      uint64    // epoch of the estimate that Settled is taken from; 0 none
	Granted  int64
	Returned PerLimit
	Opened   int64  // with those in Items
	Settled  Time   // everything seen before is in Items
	Need     int64  // slots somebody stands before right now
	Want     int64  // slots wanted ahead of need
	Queue    []Time // from a counter: arrivals of the first of those who need one
	Traffic  int64  // from a counter: new users in a window, over the last minutes
	Idle     int64  // from a counter: slots it holds that nobody uses
	Lapsed   bool   // from a counter: its own term is over
	Items    []Item
}

// A Result answers a Renew or an Ask: the confirmed end, or 0 if refused.
type Result struct {
	ID  StayID
	End Time
}

// An Answer states a confirmed record and nothing else.
type Answer struct {
	Name     WriteName
	Seq      Seq
	Loan     LoanID
	Over     bool // the loan is written off: draw a new one
	Time     Time
	Granted  int64
	Term     time.Duration
	GiveBack bool // somebody waits: return what is not used
	Waiting  bool // somebody waits: newcomers join the line
	Again    bool // there may be a slot yet: ask again, and say who was seen meanwhile
	Results  []Result
	Gone     []EarlyLeave
	Sure     []Span // when every renewal that was seen is in the record; not to be changed
	Latest   Time   // no pass of an earlier epoch ends later, or the record was rolled back
	Part     int64  // to a counter: what its traffic has earned of all slots that are unused
	Plenty   uint64 // to a counter: bit i says that limit i has enough for all who stand anywhere
}
