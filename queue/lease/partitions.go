package lease

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A Partitioning divides the capacity of a target into equal partitions, each lent to one processor
// at a time. For example, 500 requests per second are 20 partitions of 25, as in Azure's "Rate
// Limiting pattern". Processors that know nothing of each other then never send more together than
// the target can take.
type Partitioning struct {
	Count  int           // number of partitions, up to MaxPartitions
	Amount int64         // of each partition, per Window
	Window time.Duration // default one second
	Term   time.Duration // of a lease, default 15 s

	// Rest is how long a partition is lent to nobody after a lease ends: what was sent at the very
	// end still counts at the target for one window after the answer. The default is Window plus
	// one second for the answer. Increase it if answers can take longer.
	Rest time.Duration
}

// MaxPartitions is the maximum number of partitions of a target. Chosen: twice the maximum of the
// Go library for Azure's pattern.
const MaxPartitions = 1000

// leaseTerm is the term in Azure's "Rate Limiting pattern".
const leaseTerm = 15 * time.Second

// ErrPartitioning is wrapped by every error about an invalid Partitioning.
var ErrPartitioning = errors.New("invalid partitions")

// check fills in defaults and returns all errors.
func (p *Partitioning) check() error {
	var all []error
	bad := func(wrong bool, format string, v ...any) {
		if wrong {
			all = append(all, fmt.Errorf("%w: "+format, append([]any{ErrPartitioning}, v...)...))
		}
	}
	p.Window, p.Term = cmp.Or(p.Window, time.Second), cmp.Or(p.Term, leaseTerm)
	p.Rest = cmp.Or(p.Rest, p.Window+time.Second)
	bad(p.Count < 1 || p.Count > MaxPartitions, "%d of them, want 1 to %d", p.Count, MaxPartitions)
	bad(p.Amount < 1, "an amount of %d each, want at least 1", p.Amount)
	bad(p.Window < time.Millisecond || p.Window > time.Hour, "window %v, want 1ms to 1h", p.Window)
	bad(p.Term < p.Window, "term %v is shorter than the window %v", p.Term, p.Window)
	bad(p.Rest < p.Window, "a rest of %v is shorter than the window %v", p.Rest, p.Window)
	return errors.Join(all...)
}

// A Lease is a partition that was lent.
type Lease struct {
	Partition int
	Fence     uint64 // increases with each lease
	Term      time.Duration
}

// A Holding is the partitions that one processor has. It tracks the end of each
// lease itself, so that capacity is never used after its lease. A Holding is not safe for
// concurrent use. The caller passes the time.
type Holding struct {
	rule     Partitioning
	reserved int64
	pick     func(n int) int
	held     []heldLease // by end
	gone     []uint64    // the fence of the last dropped lease of each partition
}

type heldLease struct {
	Lease
	asked, until time.Time
}

// NewHolding returns a Holding without leases. reserved is capacity that belongs to the processor,
// in addition to partitions; while it suffices, no partition is requested. pick returns a random
// number below n, like rand.IntN, so that processors rarely request the same partition.
func NewHolding(rule Partitioning, reserved int64, pick func(n int) int) (*Holding, error) {
	err := rule.check()
	if reserved < 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d reserved", ErrPartitioning, reserved))
	}
	if err != nil {
		return nil, err
	}
	return &Holding{rule: rule, reserved: reserved, pick: pick, gone: make([]uint64, rule.Count)}, nil
}

// Rate returns how much the holder may send in each window now.
func (h *Holding) Rate(now time.Time) int64 {
	h.lapse(now)
	return h.reserved + int64(len(h.held))*h.rule.Amount
}

// Falls returns when the rate falls next unless a lease is renewed. The zero time means never.
func (h *Holding) Falls(now time.Time) time.Time {
	if h.lapse(now); len(h.held) == 0 {
		return time.Time{}
	}
	return h.held[0].until
}

// Has returns the partitions that are held, in order.
func (h *Holding) Has(now time.Time) []int {
	h.lapse(now)
	has := make([]int, len(h.held))
	for i := range h.held {
		has[i] = h.held[i].Partition
	}
	slices.Sort(has)
	return has
}

// Wants returns random partitions to request, out of those that are not held: as many as are needed
// to send need in a window, but at most most. Some of them may be lent to others.
func (h *Holding) Wants(now time.Time, need int64, most int) []int {
	lack := need - h.Rate(now)
	n := min(h.worth(lack), most, h.rule.Count-len(h.held))
	if n <= 0 {
		return nil
	}
	others := make([]int, 0, h.rule.Count)
	for i := range h.rule.Count {
		if !slices.ContainsFunc(h.held, func(l heldLease) bool { return l.Partition == i }) {
			others = append(others, i)
		}
	}
	for i := range n {
		j := i + h.pick(len(others)-i)
		others[i], others[j] = others[j], others[i]
	}
	return others[:n]
}

// Got adds a new or renewed lease. Its term runs from asked, the time of the request: the answer
// may have been slow, and may arrive after the lease was dropped.
func (h *Holding) Got(asked time.Time, l Lease) {
	if l.Partition < 0 || l.Partition >= h.rule.Count || l.Fence <= h.gone[l.Partition] {
		return
	}
	until := asked.Add(slot.DefaultDrift.Down(l.Term))
	for i := range h.held {
		if was := &h.held[i]; was.Partition == l.Partition && was.Fence == l.Fence &&
			!was.until.Before(until) {
			return
		}
	}
	h.drop(l.Partition)
	h.held = append(h.held, heldLease{l, asked, until})
	slices.SortStableFunc(h.held, func(a, b heldLease) int { return a.until.Compare(b.until) })
}

// Due returns the leases that should be renewed now, because half of their term is over and need
// still requires them.
func (h *Holding) Due(now time.Time, need int64) []Lease {
	var due []Lease
	keep := h.keeps(now, need)
	for i, l := range h.held {
		if i >= len(h.held)-keep && now.Sub(l.asked) >= l.Term/2 {
			due = append(due, l.Lease)
		}
	}
	return due
}

// Spare removes and returns the leases that need does not require, earliest end first. Return them
// once everything sent with them is answered.
func (h *Holding) Spare(now time.Time, need int64) []Lease {
	keep := h.keeps(now, need)
	var spare []Lease
	for _, l := range h.held[:len(h.held)-keep] {
		spare = append(spare, l.Lease)
		h.gone[l.Partition] = l.Fence
	}
	h.held = slices.Delete(h.held, 0, len(spare))
	return spare
}

// Lost removes a lease that was not renewed.
func (h *Holding) Lost(l Lease) {
	if l.Partition >= 0 && l.Partition < h.rule.Count && l.Fence > h.gone[l.Partition] {
		h.gone[l.Partition] = l.Fence
		h.held = slices.DeleteFunc(h.held, func(g heldLease) bool { return g.Lease == l })
	}
}

// keeps returns how many leases need requires.
func (h *Holding) keeps(now time.Time, need int64) int {
	h.lapse(now)
	return max(0, min(h.worth(need-h.reserved), len(h.held)))
}

// worth returns how many partitions cover an amount, limited to Count.
func (h *Holding) worth(amount int64) int {
	if amount <= 0 {
		return 0
	}
	return int(min((amount-1)/h.rule.Amount+1, int64(h.rule.Count)))
}

func (h *Holding) drop(i int) {
	h.held = slices.DeleteFunc(h.held, func(l heldLease) bool { return l.Partition == i })
}

// lapse removes leases that have ended.
func (h *Holding) lapse(now time.Time) {
	h.held = slices.DeleteFunc(h.held, func(l heldLease) bool { return !now.Before(l.until) })
}
