package slot

import "time"

// A LoanID identifies one loan: one life of one borrower. It is drawn at random and never 0.
type LoanID uint64

// A SessionID identifies a session: the ticket number if it came through the line, else 64 random
// bits.
type SessionID uint64

// Seq orders the Syncs of one loan. A worker counts N up from 1; a counter draws (own epoch, N).
type Seq struct{ Epoch, N uint64 }

// Before reports whether s was drawn before t.
func (s Seq) Before(t Seq) bool {
	return s.Epoch < t.Epoch || s.Epoch == t.Epoch && s.N < t.N
}

// A WriteName identifies one write of one record.
type WriteName struct{ Life, Epoch, Writes uint64 }

// Newer reports whether w is a later write than v of the same life.
func (w WriteName) Newer(v WriteName) bool {
	return w.Life == v.Life && (w.Epoch > v.Epoch || w.Epoch == v.Epoch && w.Writes > v.Writes)
}

// An Op is the kind of an Item.
type Op uint8

// The items of a Sync (docs/protocol.md §4; Answered: ADR 0015).
const (
	Open     Op = iota + 1 // a slot of the share was used: ID, End, Use
	Renew                  // the visitor was seen: ID, From, At, Hard
	Leave                  // the session ended early: ID, From, Hard
	Ask                    // may this pass, whose end has passed, continue? fields as Renew
	Answered               // the target answered: the use of a window entry From was at Use
)

// An Item is one entry of a Sync. Ends are in the lender's counter time.
type Item struct {
	Op   Op
	ID   SessionID
	From Time // the end in the pass; Answered: the end of the window entry
	At   Time // Renew: when the visitor was seen, by Lo
	End  Time // Open: end of the session
	Use  Time // Open, Answered: time of use, by Hi; the window starts here. Renew: see Returned. Leave: Held
	Hard Time // Renew: latest possible end, 0: none; Open, Leave: see probation
}

// Returned reports whether a Renew means that the pass of a ticket has come back, so that the
// visitor's browser has stored it. This is sent in Use, which earlier versions ignore in a Renew.
func (it *Item) Returned() bool { return it.Op == Renew && it.Use != 0 }

// Held returns until when the slot of a Leave is held, because somebody may let its visitor in without
// a question; 0 is not at all. This is sent in Use, which earlier versions ignore in a Leave.
func (it *Item) Held() Time {
	if it.Op != Leave {
		return 0
	}
	return (it.Use + leaveGrid - 1) / leaveGrid * leaveGrid
}

// leaveGrid is the grid of the ends of slots that are held. Chosen: finer than that of a long session,
// so that slots are free soon, and at most some ten more buckets.
const leaveGrid = Time(250 * time.Millisecond)

// A Sync contains a borrower's whole state at its lender, in running totals. So a lost, duplicated,
// late or reordered Sync has the same effect as silence.
type Sync struct {
	Loan     LoanID
	Borrower string
	Seq      Seq
	Seen     WriteName // greatest write received
	Est      uint64    // epoch of the estimate behind Settled; 0: none
	Granted  int64
	Returned PerLimit
	Opened   int64  // including those in Items
	Settled  Time   // every visitor seen before is in Items
	Need     int64  // slots that newcomers are held for right now
	Want     int64  // slots wanted ahead of need
	Queue    []Time // from a counter: arrivals of the first visitors that need a slot
	Traffic  int64  // from a counter: new users per window, over the last minutes
	Idle     int64  // from a counter: unused slots that it holds
	Lapsed   bool   // from a counter: its own term is over
	Items    []Item
}

// A Result answers a Renew or an Ask with the confirmed end, or 0 if it is rejected.
type Result struct {
	ID  SessionID
	End Time
}

// An Answer contains the state of a confirmed record and nothing else.
type Answer struct {
	Name     WriteName
	Seq      Seq
	Loan     LoanID
	Over     bool // the loan is written off: draw a new one
	Time     Time
	Granted  int64
	Term     time.Duration
	GiveBack bool // visitors wait: return unused slots
	Waiting  bool // visitors wait: newcomers join the line
	Again    bool // a slot may come free: request again, and report the visitors seen meanwhile
	Results  []Result
	Gone     []EarlyLeave
	Sure     []Span // times whose renewals are all in the record; do not change
	Latest   Time   // no pass of an earlier epoch ends later, unless the record was rolled back
	Part     int64  // to a counter: what its traffic has earned of all unused slots
	Plenty   uint64 // to a counter: bit i: limit i has enough for all who wait anywhere
}
