package counter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// claimWalks is how many walks the test below takes. Chosen: they take about a second.
const claimWalks = 600

// In any order of polls, claims, slow writes, lost answers and takeovers, a ticket admits at most
// once, and the record keeps its place until then: as not called, as skipped or as claimed.
func TestATicketAdmitsOnceAndItsPlaceIsKept(t *testing.T) {
	var told, lost, repeated int
	for seed := range uint64(claimWalks) {
		w := newClaimWalk(t, seed)
		for range 600 {
			w.step()
		}
		told, lost, repeated = told+w.told, lost+w.lost, repeated+w.repeated
	}
	if n := claimWalks; told < 2*n || lost < n/2 || repeated < 5*n {
		t.Errorf("in %d walks %d claims were answered, %d answers were lost, %d repeated: too few to judge",
			n, told, lost, repeated)
	}
}

// A claimWalk is one host after another of one record, in virtual time, with the visitors of its
// line.
type claimWalk struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	clk     time.Duration
	cfg     Config
	desk    *Core
	writing *slot.Record  // not confirmed
	slow    time.Duration // it is not confirmed before
	swift   int           // one of so many writes is slow
	stored  []byte
	loan    slot.LoanID
	items   []slot.Item // reported since writing was built
	sent    []slot.Item // in writing
	tickets []*walkTicket
	did     []string

	told, lost, repeated int
}

// A walkTicket is a ticket and what its visitor and the host know about it.
type walkTicket struct {
	number uint64
	asked  []time.Duration // requests that wait for the answer to a claim
	told   bool            // the host has answered a claim in time, or presumes it
	end    slot.Time       // of that session
	back   bool            // its pass has come back, as a write says
	left   bool            // its session has ended early
	late   bool            // a claim was answered, but later than anybody waited
	until  slot.Time       // such a claim is remembered up to then
}

func newClaimWalk(t *testing.T, seed uint64) *claimWalk {
	t.Helper()
	w := &claimWalk{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), clk: time.Hour}
	w.swift = 2 + w.rng.IntN(12)
	limits := [2]slot.Limit{
		{Kind: slot.AtOnce, N: 1 + w.rng.Int64N(3), Per: time.Duration(6+w.rng.IntN(40)) * time.Second},
		{Kind: slot.PerWindow, N: 600, Per: time.Minute},
	}
	w.cfg = Config{Room: "shop", Host: "a", Random: w.rng.Float64, Settings: Settings{
		Active: limits[0], New: limits[1], Spread: true, RandomOrder: w.rng.IntN(3) == 0,
		Line: LineConfig{
			MaxWaiting: 1000, PollMin: time.Second, PollMax: 2 * time.Second, Hold: 24 * time.Hour,
		},
	}}
	w.takeOver(slot.NewRecord(1, nil, limits[:]...), true)
	return w
}

func (w *claimWalk) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d: %s\n%v", w.seed, fmt.Sprintf(format, args...), w.did[max(0, len(w.did)-60):])
}

func (w *claimWalk) note(format string, args ...any) {
	w.did = append(w.did, fmt.Sprintf("%.1f ", (w.clk-time.Hour).Seconds())+fmt.Sprintf(format, args...)+"\n")
}

func (w *claimWalk) takeOver(rec *slot.Record, first bool) {
	w.cfg.Host += "x"
	w.desk, w.writing = NewCore(w.cfg, rec, first, func() {}), nil
	w.keep(w.desk.TakeOver(w.clk))
	if err := w.desk.Begin(w.clk); err != nil {
		w.fail("%v", err)
	}
}

func (w *claimWalk) now() slot.Time { return w.desk.pool.CounterTime(w.clk) }

// step does one thing.
func (w *claimWalk) step() {
	switch w.rng.IntN(16) {
	case 0:
		w.join()
	case 1, 2:
		w.poll()
	case 3, 4, 5:
		w.claim()
	case 6, 7, 8:
		w.build()
	case 9, 10, 11:
		w.confirm()
	case 12:
		w.passBack()
	case 13:
		switch w.rng.IntN(8) {
		case 0, 1:
			w.crash()
		case 2:
			w.stop()
		case 3:
			w.cfg.Active.N = 1 + w.rng.Int64N(3)
			w.desk.setLimits(w.desk.nextRev(), w.cfg.Active, w.cfg.New)
			w.note("%d at once", w.cfg.Active.N)
		case 4:
			w.desk.hold(!w.desk.held, nil, w.clk)
			w.note("held: %v", w.desk.held)
		case 5:
			w.leave()
		}
	default:
		w.pass()
	}
	w.desk.CallNext(w.clk)
	clear(w.desk.struck) // a visitor who never comes in loses its place
}

func (w *claimWalk) join() {
	if len(w.open()) > 5 || !w.desk.IsReady(w.clk, true) || w.clk < w.desk.issueAt {
		return
	}
	x := &walkTicket{number: w.desk.Join(w.clk, 24*time.Hour, 0).Number}
	w.desk.Poll(w.clk, x.number) // its cookie comes back
	w.tickets = append(w.tickets, x)
	w.note("%d joins", x.number)
}

// open returns the tickets that have admitted nobody.
func (w *claimWalk) open() (all []*walkTicket) {
	for _, x := range w.tickets {
		if !x.told {
			all = append(all, x)
		}
	}
	return all
}

func (w *claimWalk) poll() {
	for _, x := range w.tickets {
		if w.desk.IsReady(w.clk, false) {
			w.desk.Poll(w.clk, x.number)
		}
	}
}

// claim claims a called ticket, or any: a copy may have it, or the answer was lost.
func (w *claimWalk) claim() {
	for range 4 {
		if len(w.tickets) == 0 {
			return
		}
		x := w.tickets[w.rng.IntN(len(w.tickets))]
		if w.desk.Claim(w.clk, x.number, len(x.asked) > 0) {
			w.note("%d claims", x.number)
			if len(x.asked) > 0 || x.told || x.late {
				w.repeated++
			}
			x.asked = append(x.asked, w.clk)
			return
		}
	}
}

func (w *claimWalk) build() {
	if w.writing != nil {
		return
	}
	if _, w.writing = w.desk.Build(w.clk, w.rng.IntN(2) == 0); w.writing == nil {
		return
	}
	w.items, w.sent = nil, w.items
	for _, x := range w.tickets {
		c, ok := claimOf(w.writing, x.number)
		x.back = x.back || ok && c.End == 0
	}
	if w.note("writes"); w.rng.IntN(w.swift) == 0 {
		w.slow = w.clk + time.Duration(w.rng.Int64N(int64(20*time.Second)))
	}
}

// confirm ends the write in flight, and hands out its answers.
func (w *claimWalk) confirm() {
	if w.writing == nil || w.clk < w.slow {
		return
	}
	w.keep(w.writing)
	w.writing, w.sent = nil, nil
	_, claims := w.desk.Stored(w.clk)
	for _, r := range claims {
		i := slices.IndexFunc(w.tickets, func(x *walkTicket) bool { return x.number == uint64(r.ID) })
		w.answer(w.tickets[i], &r)
	}
	for _, x := range w.tickets { // a confirmed renewal counts
		if x.told && !x.left && w.desk.pool.EndOf(slot.SessionID(x.number)) > x.end {
			x.end = w.desk.pool.EndOf(slot.SessionID(x.number))
		}
	}
	w.note("written")
}

// answer gives the answer to a claim to the requests that still wait for it.
func (w *claimWalk) answer(x *walkTicket, r *slot.ClaimReply) {
	inTime := slices.ContainsFunc(x.asked, func(at time.Duration) bool { return w.clk-at <= writeWait })
	x.asked = nil
	w.note("%d is answered %v, in time %v", x.number, r.End, inTime)
	switch {
	case r.End == 0:
		if !x.told {
			w.fail("%d has admitted nobody and is answered that it is used up", x.number)
		}
	case r.End <= w.now() || !inTime: // no worker admits with an end that has passed
		x.late, x.until = true, w.now().Add(30*time.Second)
		w.lost++
	case x.told && (x.back || x.end < w.now()):
		w.fail("%d admits twice: its session ended at %v, pass come back %v, and it is answered %+v",
			x.number, x.end, x.back, *r)
	default:
		w.told++
		x.told, x.end = true, max(x.end, r.End)
	}
}

// passBack reports that a visitor was seen with its pass a moment ago, by a worker that may be new.
func (w *claimWalk) passBack() {
	for _, x := range w.tickets {
		if !x.told || x.end < w.now() || w.rng.IntN(3) > 0 {
			continue
		}
		w.report(slot.Item{
			Op: slot.Renew, ID: slot.SessionID(x.number), From: x.end, At: w.now(), Use: w.now(),
		})
		w.note("the pass of %d comes back", x.number)
		return
	}
}

// pass lets time pass.
func (w *claimWalk) pass() {
	d := time.Duration(w.rng.Int64N(int64(800 * time.Millisecond)))
	if w.rng.IntN(4) == 0 {
		d = time.Duration(w.rng.Int64N(int64(6 * time.Second)))
	}
	for end := w.clk + d; w.clk < end; {
		w.clk = min(end, w.clk+time.Second)
		w.desk.awake(w.clk)
	}
}

// leave ends a session early, or gives up a place.
func (w *claimWalk) leave() {
	for i, x := range w.tickets {
		switch {
		case w.rng.IntN(4) > 0 || len(x.asked) > 0 || x.late:
			continue
		case x.told && x.end > w.now():
			w.report(slot.Item{Op: slot.Leave, ID: slot.SessionID(x.number), From: x.end, At: w.now()})
			x.left, x.end = true, 0
		case !x.told:
			w.desk.Leave(w.clk, x.number)
			w.tickets = slices.Delete(w.tickets, i, i+1)
		}
		w.note("%d leaves", x.number)
		return
	}
}

// report sends an item of a new worker.
func (w *claimWalk) report(it slot.Item) {
	w.loan++
	w.items = append(w.items, it)
	w.desk.Receive(w.clk, &slot.Sync{Loan: w.loan, Borrower: fmt.Sprint(w.loan), Seq: slot.Seq{N: 1},
		Items: []slot.Item{it}})
}

// stop ends the host as a clean stop does, as Counter.farewell.
func (w *claimWalk) stop() {
	if w.writing != nil {
		return
	}
	w.note("stops")
	w.desk.lapse(w.clk)
	w.desk.pool.PutLine(w.desk.linePart(w.clk))
	w.desk.pool.Resign()
	_, w.writing = w.desk.pool.Begin(w.clk, true)
	w.slow = 0
	w.confirm()
	w.crash()
}

// crash ends the host. A write in flight may be stored all the same.
func (w *claimWalk) crash() {
	w.note("crash")
	if w.writing != nil && w.rng.IntN(2) == 0 {
		w.keep(w.writing)
		w.sent = nil
	}
	rec := &slot.Record{}
	if err := rec.UnmarshalBinary(w.stored); err != nil {
		w.fail("%v", err)
	}
	for _, x := range w.tickets {
		c, claimed := claimOf(rec, x.number)
		if claimed { // the next host presumes that it was answered
			x.told, x.end = true, max(x.end, c.End)
		}
		if x.left {
			x.end = 0
		}
		x.asked, x.back = nil, claimed && c.End == 0
	}
	w.takeOver(rec, false)
	again := append(w.sent, w.items...)
	w.sent, w.items = nil, nil
	for _, it := range again { // what was not confirmed is reported to the next host
		w.report(it)
	}
}

// keep stores a record, and judges what it says of each ticket.
func (w *claimWalk) keep(r *slot.Record) {
	b, err := r.AppendBinary(nil)
	if err != nil {
		w.fail("%v", err)
	}
	w.stored = b
	inside := int64(0)
	for _, x := range w.tickets {
		_, claimed := claimOf(r, x.number)
		waits := x.number >= r.Frontier || slices.ContainsFunc(r.Skipped, func(run slot.Run) bool {
			return run.First <= x.number && x.number < run.First+run.N
		})
		switch {
		case claimed && waits, x.told && waits:
			w.fail("%d was claimed and has a place in the record: claimed %v, skipped %v, frontier %d", x.number,
				r.Claimed, r.Skipped, r.Frontier)
		case !x.told && !claimed && !waits && (!x.late || r.Time < x.until):
			w.fail("the place of %d is not in the record: claimed %v, skipped %v, frontier %d", x.number,
				r.Claimed, r.Skipped, r.Frontier)
		}
		if x.told && x.end > r.Time {
			inside++
		}
	}
	if n := r.Limits[0].Ends.After(r.Time); n < inside {
		w.fail("%d are inside, and the record says %d", inside, n)
	}
}

func claimOf(r *slot.Record, number uint64) (c slot.Claimed, ok bool) {
	i := slices.IndexFunc(r.Claimed, func(c slot.Claimed) bool { return uint64(c.ID) == number })
	if i < 0 {
		return c, false
	}
	return r.Claimed[i], true
}
