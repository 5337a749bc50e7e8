package queue

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A Partitioning cuts what a target can take into equal parts, each lent to one processor at a
// time: 500 a second are 20 partitions of 25, as in Azure's "Rate Limiting pattern". Processors
// that know nothing of each other never send more than the target can take, together.
type Partitioning struct {
	Count  int           // partitions, up to MaxPartitions
	Amount int64         // of each, in every Window
	Window time.Duration // default a second
	Term   time.Duration // of a lease, default 15 s

	// Rest is how long a partition is lent to nobody after a lease: what was sent at its very
	// end still counts at the target for a window after the answer. Default Window and a
	// second for the answer; whoever waits longer for answers must say more.
	Rest time.Duration
}

// MaxPartitions bounds the partitions of a target. Chosen: twice what the Go library of Azure's
// pattern has.
const MaxPartitions = 1000

// leaseTerm is that of Azure's "Rate Limiting pattern".
const leaseTerm = 15 * time.Second

// ErrPartitioning is wrapped by what is wrong with a Partitioning.
var ErrPartitioning = errors.New("impossible partitions")

// check fills in what is not said and reports all that is wrong.
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
	bad(p.Amount < 1, "an amount of %d each, want 1 at least", p.Amount)
	bad(p.Window < time.Millisecond || p.Window > time.Hour, "window %v, want 1ms to 1h", p.Window)
	bad(p.Term < p.Window, "term %v is shorter than the window %v", p.Term, p.Window)
	bad(p.Rest < p.Window, "a rest of %v is shorter than the window %v", p.Rest, p.Window)
	return errors.Join(all...)
}

// A PartitionLease is a partition that was lent.
type PartitionLease struct {
	Partition int
	Fence     uint64 // of all leases: a later one has a greater number
	Term      time.Duration
}

// Partitions say who has which partition: the lender's side. A partition is lent to one
// holder at a time and to nobody for a rest after. It is one value that its caller guards;
// time is an argument.
type Partitions struct {
	rule  Partitioning
	parts []partition
	fence uint64 // of the last lease
}

type partition struct {
	fence uint64    // of the last lease
	until time.Time // it is lent
	free  time.Time // it can be lent again
}

// NewPartitions makes Partitions of which none is lent. Unless they are fresh, leases of
// before a restart may still be held: then the first is lent a term and a rest after now, and
// fence must be above all that have been given.
func NewPartitions(
	rule Partitioning, now time.Time, fence uint64, fresh bool,
) (*Partitions, error) {
	if err := rule.check(); err != nil {
		return nil, err
	}
	p := &Partitions{rule: rule, parts: make([]partition, rule.Count), fence: fence}
	for i := range p.parts {
		if !fresh {
			p.parts[i].free = now.Add(slot.DefaultDrift.Up(rule.Term) + rule.Rest)
		}
	}
	return p, nil
}

// Lend lends partition i to whoever asks first. It refuses while somebody has it, or had it
// until just now.
func (p *Partitions) Lend(now time.Time, i int) (PartitionLease, bool) {
	if i < 0 || i >= len(p.parts) || now.Before(p.parts[i].free) {
		return PartitionLease{}, false
	}
	p.fence++
	p.parts[i].fence = p.fence
	return p.lend(now, i), true
}

// Renew begins the term of a lease anew. It refuses one that has ended, or was returned.
func (p *Partitions) Renew(now time.Time, l PartitionLease) (PartitionLease, bool) {
	if !p.Holds(now, l) {
		return PartitionLease{}, false
	}
	return p.lend(now, l.Partition), true
}

func (p *Partitions) lend(now time.Time, i int) PartitionLease {
	q := &p.parts[i]
	q.until = now.Add(slot.DefaultDrift.Up(p.rule.Term))
	q.free = q.until.Add(p.rule.Rest)
	return PartitionLease{i, q.fence, p.rule.Term}
}

// Return ends a lease before its time: its holder has stopped to use it.
func (p *Partitions) Return(now time.Time, l PartitionLease) bool {
	if !p.Holds(now, l) {
		return false
	}
	q := &p.parts[l.Partition]
	q.until, q.free = now, now.Add(p.rule.Rest)
	return true
}

// Holds tells whether a lease is in force, so that what comes from a holder of before can be
// refused.
func (p *Partitions) Holds(now time.Time, l PartitionLease) bool {
	if l.Partition < 0 || l.Partition >= len(p.parts) {
		return false
	}
	q := &p.parts[l.Partition]
	return q.fence == l.Fence && l.Fence > 0 && now.Before(q.until)
}

// Lent counts the leases that are in force.
func (p *Partitions) Lent(now time.Time) int {
	n := 0
	for i := range p.parts {
		if now.Before(p.parts[i].until) {
			n++
		}
	}
	return n
}

// A Holding is what one processor has of the partitions: the holder's side. It keeps its own
// book of when each lease ends, so that capacity that was lent is never used longer. It is one
// value that its caller guards; time is an argument.
type Holding struct {
	rule     Partitioning
	reserved int64
	pick     func(n int) int
	held     []heldLease // by their ends
	gone     []uint64    // the last fence of each partition that was let go
}

type heldLease struct {
	PartitionLease
	asked, until time.Time
}

// NewHolding makes a Holding without a lease. reserved is capacity of the processor's own,
// beside the partitions: while it is enough, none is asked for. pick picks one of n at random
// (rand.IntN), so that processors seldom want the same.
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

// Rate is what the holder may send in each window now.
func (h *Holding) Rate(now time.Time) int64 {
	h.lapse(now)
	return h.reserved + int64(len(h.held))*h.rule.Amount
}

// Falls is when the rate falls next unless a lease is renewed; the zero time is never.
func (h *Holding) Falls(now time.Time) time.Time {
	if h.lapse(now); len(h.held) == 0 {
		return time.Time{}
	}
	return h.held[0].until
}

// Has are the partitions that are held, in order.
func (h *Holding) Has(now time.Time) []int {
	h.lapse(now)
	has := make([]int, len(h.held))
	for i := range h.held {
		has[i] = h.held[i].Partition
	}
	slices.Sort(has)
	return has
}

// Wants picks partitions to ask for, at random, of those that are not held: as many as it
// takes to send need in a window, but most at most. Not all of them may be given.
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

// Got notes a lease, or one that was renewed. Its term runs from when it was asked for: the
// answer may have taken long, and may come when the lease has been let go.
func (h *Holding) Got(asked time.Time, l PartitionLease) {
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

// Due are the leases to be renewed by now, half of their term being over, as far as need asks
// for them.
func (h *Holding) Due(now time.Time, need int64) []PartitionLease {
	var due []PartitionLease
	keep := h.keeps(now, need)
	for i, l := range h.held {
		if i >= len(h.held)-keep && now.Sub(l.asked) >= l.Term/2 {
			due = append(due, l.PartitionLease)
		}
	}
	return due
}

// Spare takes leases out of use that need does not ask for, those that end first, to be
// returned to the lender when what was sent by them is answered.
func (h *Holding) Spare(now time.Time, need int64) []PartitionLease {
	keep := h.keeps(now, need)
	var spare []PartitionLease
	for _, l := range h.held[:len(h.held)-keep] {
		spare = append(spare, l.PartitionLease)
		h.gone[l.Partition] = l.Fence
	}
	h.held = slices.Delete(h.held, 0, len(spare))
	return spare
}

// Lost takes a lease out of use that the lender did not renew.
func (h *Holding) Lost(l PartitionLease) {
	if l.Partition >= 0 && l.Partition < h.rule.Count && l.Fence > h.gone[l.Partition] {
		h.gone[l.Partition] = l.Fence
		h.held = slices.DeleteFunc(h.held, func(g heldLease) bool { return g.PartitionLease == l })
	}
}

// keeps is how many leases need asks for.
func (h *Holding) keeps(now time.Time, need int64) int {
	h.lapse(now)
	return max(0, min(h.worth(need-h.reserved), len(h.held)))
}

// worth is how many partitions an amount takes, of those that there are.
func (h *Holding) worth(amount int64) int {
	if amount <= 0 {
		return 0
	}
	return int(min((amount-1)/h.rule.Amount+1, int64(h.rule.Count)))
}

func (h *Holding) drop(i int) {
	h.held = slices.DeleteFunc(h.held, func(l heldLease) bool { return l.Partition == i })
}

// lapse lets go of what has ended.
func (h *Holding) lapse(now time.Time) {
	h.held = slices.DeleteFunc(h.held, func(l heldLease) bool { return !now.Before(l.until) })
}
