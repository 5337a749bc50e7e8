package lease

import (
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A lender is to a Holding what Leases are, without an engine. It is not safe for concurrent use.
type lender struct {
	rule  Partitioning
	parts []partition
	fence uint64 // of the last lease
}

type partition struct {
	fence uint64    // of the last lease
	until time.Time // end of the lease
	free  time.Time // when it can be lent again
}

// newLender returns a lender of which no partition is lent. If fresh is false, leases from before a
// restart may still be in use: the first partition is lent only a term and a rest after now, and
// fence must be at least as large as every fence used so far.
func newLender(
	rule Partitioning, now time.Time, fence uint64, fresh bool,
) (*lender, error) {
	if err := rule.check(); err != nil {
		return nil, err
	}
	p := &lender{rule: rule, parts: make([]partition, rule.Count), fence: fence}
	for i := range p.parts {
		if !fresh {
			p.parts[i].free = now.Add(slot.DefaultDrift.Up(rule.Term) + rule.Rest)
		}
	}
	return p, nil
}

// Lend lends partition i to the first caller. It reports false while another holder has the
// partition and during the rest after that.
func (p *lender) Lend(now time.Time, i int) (Lease, bool) {
	if i < 0 || i >= len(p.parts) || now.Before(p.parts[i].free) {
		return Lease{}, false
	}
	p.fence++
	p.parts[i].fence = p.fence
	return p.lend(now, i), true
}

// Renew starts the term of a lease again. It reports false if the lease has ended or was returned.
func (p *lender) Renew(now time.Time, l Lease) (Lease, bool) {
	if !p.Holds(now, l) {
		return Lease{}, false
	}
	return p.lend(now, l.Partition), true
}

func (p *lender) lend(now time.Time, i int) Lease {
	q := &p.parts[i]
	q.until = now.Add(slot.DefaultDrift.Up(p.rule.Term))
	q.free = q.until.Add(p.rule.Rest)
	return Lease{i, q.fence, p.rule.Term}
}

// Return ends a lease early. The holder must have stopped using it.
func (p *lender) Return(now time.Time, l Lease) bool {
	if !p.Holds(now, l) {
		return false
	}
	q := &p.parts[l.Partition]
	q.until, q.free = now, now.Add(p.rule.Rest)
	return true
}

// Holds reports whether a lease is in force. Use it to reject requests of an earlier holder.
func (p *lender) Holds(now time.Time, l Lease) bool {
	if l.Partition < 0 || l.Partition >= len(p.parts) {
		return false
	}
	q := &p.parts[l.Partition]
	return q.fence == l.Fence && l.Fence > 0 && now.Before(q.until)
}

// Lent returns the number of leases in force.
func (p *lender) Lent(now time.Time) int {
	n := 0
	for i := range p.parts {
		if now.Before(p.parts[i].until) {
			n++
		}
	}
	return n
}
