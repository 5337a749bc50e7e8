package slot

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestRenewalsUnknownToANewHostKeepTheInvariant checks invariant D of docs/protocol.md §5 after a
// takeover. Visitors unknown to the new host renew and leave at random. For every t there are at
// least as many entries and presumed slots that end after t as passes that do.
func TestRenewalsUnknownToANewHostKeepTheInvariant(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		w := newUnknown(t, rng)
		for range 30 {
			w.step()
		}
	}
}

// unknown is a counter after a takeover by a process that knows no session.
type unknown struct {
	t      *testing.T
	rng    *rand.Rand
	p      *Pool
	clk    time.Duration
	n      uint64
	passes map[SessionID]Time
}

const unknownStay = 400 // S in units; buckets are one unit

func newUnknown(t *testing.T, rng *rand.Rand) *unknown {
	w := &unknown{t: t, rng: rng, passes: map[SessionID]Time{}, clk: 10_000}
	rec := NewRecord(1, nil, Limit{AtOnce, 1000, unknownStay}, Limit{PerWindow, 1 << 30, 1})
	now := Time(1000)
	rec.Time = now
	for id := range SessionID(1 + rng.IntN(8)) { // reported: an entry at or after the pass
		end := now + 1 + Time(rng.IntN(unknownStay))
		rec.Limits[0].Ends.Add(end, 1)
		w.passes[id+1] = max(now-50, end-Time(rng.IntN(60)))
		if rng.IntN(4) == 0 { // nobody has this entry's pass any more
			delete(w.passes, id+1)
		}
	}
	lent := rng.IntN(4)
	if lent > 0 { // a loan of the dead process: slots it may have used and not reported
		l, back := Loan{ID: 99, Granted: int64(lent)}, now+unknownStay
		if rng.IntN(2) == 0 { // taken back a while ago
			l.Over = now - Time(rng.IntN(unknownStay))
			back = l.Over + unknownStay
			l.Back = [MaxLimits]Time{back, back}
		}
		rec.Loans = append(rec.Loans, l)
		for id := range SessionID(rng.IntN(lent + 1)) {
			// The dead process admitted somebody up to a term after its last write.
			last := now + unknownStay + 100
			if l.Over > 0 {
				last = back
			}
			w.passes[100+id] = min(last, now+1+Time(rng.IntN(unknownStay+100)))
		}
	}
	w.p = NewPool(Params{Term: 100, Settle: 1, Alone: true, Drift: 1}, "new", rec)
	w.p.Takeover(w.clk)
	w.p.Confirm(w.clk)
	w.check("at the takeover")
	return w
}

// step makes some visitors renew or leave in one Sync, and advances the time.
func (w *unknown) step() {
	w.n++
	x := &Sync{Loan: 7, Borrower: "w", Seq: Seq{0, w.n}}
	now := w.p.CounterTime(w.clk)
	for id, end := range w.passes {
		switch w.rng.IntN(6) {
		case 0:
			x.Items = append(x.Items, Item{Op: Renew, ID: id, From: end, At: now})
		case 1:
			if end > now && w.rng.IntN(3) == 0 {
				x.Items = append(x.Items, Item{Op: Leave, ID: id, From: end})
			}
		}
	}
	w.p.Receive(x)
	if _, wr := w.p.Begin(w.clk, true); wr == nil {
		w.t.Fatal("no write")
	}
	replies, _ := w.p.Confirm(w.clk)
	for _, r := range replies {
		for _, res := range r.Answer.Results {
			if res.End > 0 {
				w.passes[res.ID] = max(w.passes[res.ID], res.End)
			}
		}
	}
	for _, it := range x.Items {
		if it.Op == Leave {
			delete(w.passes, it.ID)
		}
	}
	w.check("after a Sync")
	w.clk += time.Duration(w.rng.IntN(60))
}

func (w *unknown) check(when string) {
	w.t.Helper()
	r := w.p.Record()
	now := w.p.CounterTime(w.clk)
	for t := now; t < now+2*unknownStay; t++ {
		have, need := r.Limits[0].Ends.After(t), int64(0)
		for i := range r.Loans {
			if l := &r.Loans[i]; l.ID == 99 && (l.Over == 0 || t < l.Back[0]) {
				have += l.Lent(0)
			}
		}
		for _, end := range w.passes {
			if end > t {
				need++
			}
		}
		if have < need {
			w.t.Fatalf("%s: at %d, now %d: %d passes and %d entries or slots presumed used",
				when, t, now, need, have)
		}
	}
}
