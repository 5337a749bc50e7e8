package counter

import (
	"log/slog"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A Core is a Counter without its lock, store and clock. It makes the same decisions for package
// sim, which keeps the records and the time. One goroutine uses it. clk is the own clock of the
// host, as Config.Boot would return it.
type Core struct {
	desk
	first bool
	read  *slot.Record
}

// NewCore returns a Core for a record as it was read, or for the first record. To become the host,
// store the write of TakeOver and then call Begin. The Core calls again when a write may be due
// that no other call requests; again must not block.
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

// Begin starts to serve once the write of TakeOver is stored. It returns an error if the record is
// inconsistent.
func (d *Core) Begin(clk time.Duration) error { return d.begin(d.read, d.first, clk) }

// Pool returns the lender's side, for inspection.
func (d *Core) Pool() *slot.Pool { return d.pool }

// Build returns the next write, if one is due or requested, and the replies that need no write.
func (d *Core) Build(clk time.Duration, asked bool) ([]slot.Reply, *slot.Record) {
	return d.build(clk, asked)
}

// Stored confirms that the write of Build is stored. It returns the replies that may now be sent.
func (d *Core) Stored(clk time.Duration) ([]slot.Reply, []slot.ClaimReply) {
	d.awake(clk)
	replies, claims := d.pool.Confirm(clk)
	d.fore.update(&d.desk, clk)
	return replies, claims
}

// CallNext calls the visitors that may be called. It reports whether borrowers should be recalled
// and how long until the next look is due.
func (d *Core) CallNext(clk time.Duration) (recall bool, next time.Duration) { return d.look(clk) }

// IsReady reports whether numbers may be issued and positions returned; otherwise a write must come
// first.
func (d *Core) IsReady(clk time.Duration, join bool) bool {
	return d.pool.Fresh(clk, fresh) && (!join || d.line.Ordinary().End() < d.pool.Record().Next)
}

// Join adds a newcomer to the end of the ordinary line. waited is how long it has already waited
// for its join. IsReady must be true.
func (d *Core) Join(clk, hold, waited time.Duration) PlaceInfo { return d.join(clk, 0, hold, waited) }

// JoinLane is Join for a lane of the settings, by its id.
func (d *Core) JoinLane(clk time.Duration, lane uint64, hold time.Duration) PlaceInfo {
	return d.join(clk, d.line.Lane(lane), hold, 0)
}

// PollUnproven is Poll for a ticket whose challenge is not solved.
func (d *Core) PollUnproven(clk time.Duration, number uint64) PlaceInfo {
	return d.place(number, clk, true)
}

// Poll notes that the visitor of a ticket is present, and returns its place. IsReady must be true.
func (d *Core) Poll(clk time.Duration, number uint64) PlaceInfo { return d.place(number, clk, false) }

// Claim claims the session of a called ticket with the next write. It returns false if the ticket
// is not called. waits means that the answer to an earlier claim is still pending.
func (d *Core) Claim(clk time.Duration, number uint64, waits bool) bool {
	return d.claim(number, clk, 0, waits)
}

// Receive takes a borrower's Sync for the next Build.
func (d *Core) Receive(clk time.Duration, x *slot.Sync) { d.put(x, clk) }

// ParentSync returns the Sync to send to Anywhere now, or an unanswered one to send again. It
// returns nil if none is due, and the time until one may be.
func (d *Core) ParentSync(clk time.Duration) (*slot.Sync, time.Duration) { return d.upSync(clk) }

// ReceiveParent handles an answer of Anywhere.
func (d *Core) ReceiveParent(clk time.Duration, a slot.Answer) { d.upHeard(a, clk) }

// RecallByParent handles a recall: Anywhere asks for unused slots.
func (d *Core) RecallByParent(clk time.Duration) { d.upRecall(clk) }

// SetOthers sets the visitors that wait and are inside in the other data centers.
func (d *Core) SetOthers(o Others) { d.elsewhere = o }

// LocalTotals returns the visitors that wait and are inside in this data center, for the others.
func (d *Core) LocalTotals(clk time.Duration) Others {
	r, now := d.pool.Record(), d.pool.CounterTime(clk)
	return Others{
		Waiting: d.waiting(), Active: r.Limits[0].Ends.After(now), New: r.Limits[1].Ends.After(now),
	}
}

// Leave gives up a place.
func (d *Core) Leave(clk time.Duration, number uint64) { d.leave(number, clk) }

// Totals returns the totals since the takeover.
func (d *Core) Totals() Totals { return d.stats }

// Waiting returns how many tickets wait, and how many of them are called.
func (d *Core) Waiting() (waiting, called int64) {
	return int64(d.line.Len()), int64(d.line.Called())
}
