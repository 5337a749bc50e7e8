package counter

import (
	"log/slog"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A Desk is a Counter without its lock, its store and its clock: the same
// arithmetic for package sim, which keeps the records and the time. Used by one
// goroutine. clk is the own clock of the host, as Config.Boot would tell it.
type Core struct {
	desk
	first bool
	read  *slot.Record
}

// NewDesk takes a record over as it was read, or begins with a first one. It returns
// the write that makes it the host: stored, Confirmed must follow. again is called
// when a write may be due that nothing else asks for; it must not block.
func NewCore(cfg Config, read *slot.Record, first bool, again func()) *Core {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	d := &Core{desk: desk{cfg: cfg, again: again}, first: first, read: read}
	d.pool = slot.NewPool(cfg.Params, cfg.Host, read)
	return d
}

// TakeOver builds the write of the takeover.
func (d *Core) TakeOver(clk time.Duration) *slot.Record { return d.pool.Takeover(clk) }

// Begin serves, once the takeover is stored. An error says that the record makes no
// sense.
func (d *Core) Begin(clk time.Duration) error { return d.begin(d.read, d.first, clk) }

// Pool is the lender's side, to be looked at.
func (d *Core) Pool() *slot.Pool { return d.pool }

// Build makes the next write, if one is due or asked for, and what may be answered
// without one.
func (d *Core) Build(clk time.Duration, asked bool) ([]slot.Reply, *slot.Record) {
	return d.build(clk, asked)
}

// Stored takes in that the write of Build is stored, and gives what may now be said.
func (d *Core) Stored(clk time.Duration) ([]slot.Reply, []slot.ClaimReply) {
	d.awake(clk)
	replies, claims := d.pool.Confirm(clk)
	d.fore.update(&d.desk, clk)
	return replies, claims
}

// Look calls whoever may be called. It tells whether borrowers should be recalled
// and how long until the next look is due.
func (d *Core) CallNext(clk time.Duration) (recall bool, next time.Duration) { return d.look(clk) }

// Ready reports whether numbers may be issued and positions be told; else a write
// must come first.
func (d *Core) IsReady(clk time.Duration, join bool) bool {
	return d.pool.Fresh(clk, fresh) && (!join || d.line.Ordinary().End() < d.pool.Record().Next)
}

// Join puts a newcomer at the end of the ordinary line, who has waited for a while before a door.
// Ready must be true.
func (d *Core) Join(clk, hold, waited time.Duration) PlaceInfo { return d.join(clk, 0, hold, waited) }

// Poll notes that the visitor of a ticket is there. Ready must be true.
func (d *Core) Poll(clk time.Duration, number uint64) PlaceInfo { return d.place(number, clk) }

// Claim asks for the stay of a called ticket, with the next write; false if it is
// not called. waits: the answer to an earlier claim is still to come.
func (d *Core) Claim(clk time.Duration, number uint64, waits bool) bool {
	return d.claim(number, clk, 0, waits)
}

// Put takes a borrower's Sync in, for the next Build.
func (d *Core) Receive(clk time.Duration, x *slot.Sync) { d.put(x, clk) }

// UpSync is the Sync to send to Anywhere now, the one that is not answered included; nil
// if none is due, and then for how long.
func (d *Core) ParentSync(clk time.Duration) (*slot.Sync, time.Duration) { return d.upSync(clk) }

// UpHeard takes an answer of Anywhere in.
func (d *Core) ReceiveParent(clk time.Duration, a slot.Answer) { d.upHeard(a, clk) }

// UpRecall takes in that Anywhere asks for what is not used.
func (d *Core) RecallByParent(clk time.Duration) { d.upRecall(clk) }

// Elsewhere takes in who waits and who is inside in the other data centers.
func (d *Core) SetOthers(o Others) { d.elsewhere = o }

// Here is what this data center tells the others of who waits and who is inside.
func (d *Core) LocalTotals(clk time.Duration) Others {
	r, now := d.pool.Record(), d.pool.CounterTime(clk)
	return Others{
		Waiting: d.waiting(), Active: r.Limits[0].Ends.After(now), New: r.Limits[1].Ends.After(now),
	}
}

// Leave gives up a place.
func (d *Core) Leave(clk time.Duration, number uint64) { d.leave(number, clk) }

// Totals count what has happened since the takeover.
func (d *Core) Totals() Totals { return d.stats }

// Waiting is how many wait, and how many of them are called.
func (d *Core) Waiting() (waiting, called int64) {
	return int64(d.line.Len()), int64(d.line.Called())
}
