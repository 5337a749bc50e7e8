package slot

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestStaysRenewedBeforeTheyAreReported checks invariant D of docs/protocol.md §5 with two workers.
// One admits visitors and reports them late. The other sees them, renews them or reports their
// leave before. Hosts follow each other and know no session. For every t there are at least as many
// entries and lent slots that end after t as passes that do.
func TestStaysRenewedBeforeTheyAreReported(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range 800 {
		if when, ok := newNamed(rng).run(60); !ok {
			t.Fatalf("world %d: %s", i, when)
		}
	}
}

// TestAnOwedSlotLastsAsLongForTheNextHost: the latest entry was used for a session that was not
// reported yet, and the next host did not know how late it was.
func TestAnOwedSlotLastsAsLongForTheNextHost(t *testing.T) {
	rng := rand.New(rand.NewPCG(115477422027728623, 1))
	for i := range 575 {
		if when, ok := newNamed(rng).run(60); !ok {
			t.Fatalf("world %d: %s", i, when)
		}
	}
}

// named is a counter with one worker that opens sessions and one that renews them.
type named struct {
	rng     *rand.Rand
	par     Params
	p       *Pool
	clk     time.Duration
	hosts   uint64
	n       uint64 // of Syncs
	granted int64
	opened  int64
	pending []Item // opened and not reported
	passes  map[SessionID]Time
}

const (
	opener, renewer = LoanID(99), LoanID(7)
	namedStay       = 400 // S in units; buckets are one unit
)

func newNamed(rng *rand.Rand) *named {
	rec := NewRecord(1, nil, Limit{AtOnce, 1000, namedStay}, Limit{PerWindow, 1 << 30, 1})
	rec.Time, rec.Unnamed = 1000, Time(rng.IntN(2000))
	w := &named{
		rng: rng, passes: map[SessionID]Time{}, clk: 10_000, granted: 4,
		par: Params{Term: 1 << 40, Settle: 1, Drift: 1},
	}
	for id := range SessionID(rng.IntN(6)) {
		end := rec.Time + 1 + Time(rng.IntN(namedStay))
		rec.Limits[0].Ends.Add(end, 1)
		w.passes[id+1] = end
	}
	rec.Loans = append(rec.Loans, Loan{ID: opener, Granted: w.granted})
	w.takeover(rec)
	return w
}

func (w *named) takeover(rec *Record) {
	w.hosts++
	w.p = NewPool(w.par, "host", rec.Clone())
	w.p.Takeover(w.clk)
	w.p.Confirm(w.clk)
}

func (w *named) run(steps int) (when string, ok bool) {
	for range steps {
		now := w.p.CounterTime(w.clk)
		switch w.rng.IntN(8) {
		case 0, 1:
			when = "after one was let in"
			if w.opened < w.granted {
				w.opened++
				id := SessionID(1000 + w.opened)
				it := Item{Op: Open, ID: id, End: now + namedStay, Use: now}
				w.pending, w.passes[id] = append(w.pending, it), it.End
			}
		case 2, 3, 4:
			when = "after renewals"
			w.renew(now)
		case 5:
			when = "after a report"
			w.report()
		case 6:
			when = "after a takeover"
			if w.rng.IntN(3) == 0 {
				w.takeover(w.p.rec)
			}
		case 7:
			when = "after a while"
			w.clk += time.Duration(w.rng.IntN(200))
			w.sync(&Sync{Loan: renewer})
		}
		if !w.holds() {
			return when, false
		}
	}
	return "", true
}

// renew makes some visitors inside visit the other worker, or leave.
func (w *named) renew(now Time) {
	x := &Sync{Loan: renewer}
	for _, id := range slices.Sorted(maps.Keys(w.passes)) {
		switch end := w.passes[id]; {
		case end <= now:
			delete(w.passes, id)
		case w.rng.IntN(3) == 0:
			x.Items = append(x.Items, Item{Op: Renew, ID: id, From: end, At: now})
		case w.rng.IntN(12) == 0:
			x.Items = append(x.Items, Item{Op: Leave, ID: id, From: end})
			delete(w.passes, id)
		}
	}
	w.sync(x)
}

func (w *named) report() {
	w.sync(&Sync{Loan: opener, Granted: w.granted, Opened: w.opened, Need: 2, Items: w.pending})
	w.pending = nil
}

func (w *named) sync(x *Sync) {
	w.n++
	x.Seq = Seq{0, w.n}
	w.p.Receive(x)
	now, wr := w.p.Begin(w.clk, false)
	if wr != nil {
		more, _ := w.p.Confirm(w.clk)
		now = append(now, more...)
	}
	for _, r := range now {
		if r.Answer.Loan == opener {
			w.granted = max(w.granted, r.Answer.Granted)
		}
		for _, res := range r.Answer.Results {
			if _, in := w.passes[res.ID]; in {
				w.passes[res.ID] = max(w.passes[res.ID], res.End)
			}
		}
	}
}

func (w *named) holds() bool {
	r, now := w.p.Record(), w.p.CounterTime(w.clk)
	l := r.loan(opener)
	for t := now; t < now+2*namedStay; t++ {
		have, need := r.Limits[0].Ends.After(t)+l.Lent(0), int64(0)
		have -= l.Granted - max(l.Opened, w.opened) // lent, and surely not used
		for _, end := range w.passes {
			if end > t {
				need++
			}
		}
		if have < need {
			return false
		}
	}
	return true
}
