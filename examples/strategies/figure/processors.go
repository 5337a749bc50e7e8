package figure

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/sim/report"
)

// These constants are the document's last example: 10,000 records of type A, 5,000 of type B,
// leases of 15 s on partitions of 100 requests a second. Ten partitions are chosen: the example
// mentions the partitions 0, 1, 2, 3 and 6.
const (
	recordsA, recordsB = 10_000, 5_000
	partitionCount     = 10
	partitionRate      = 100
	leaseTerm          = 15 * time.Second
)

// A processor takes the records of one queue.
type processor struct {
	name  string
	left  int64
	first []int // partitions to try in the first seconds, from the document
}

// A turn is one second of one processor.
type turn struct {
	at      time.Duration
	tried   int // the partition; −1: none (empty queue, or it holds all)
	got     bool
	ended   int // its leases that expire at the start of this second
	rate    int64
	written int64
	refused int64
}

// run runs the processors until both queues are empty. Each second each processor with records
// tries one partition that it does not hold, writes at the rate of those it holds, and releases
// them when its queue is empty. B tries first, as in the document's first second.
func run(r *rand.Rand) (a, b []turn) {
	pa := &processor{name: "A", left: recordsA, first: []int{2, 6, 0}}
	pb := &processor{name: "B", left: recordsB, first: []int{2, 3, 1}}
	share := newPartitions(partitionCount, partitionRate, leaseTerm)
	database := &service{perSecond: partitionCount * partitionRate, cost: 1}
	for second := 0; pa.left+pb.left > 0; second++ {
		at := time.Duration(second) * time.Second
		ta := turn{at: at, ended: share.ended("A", at)}
		tb := turn{at: at, ended: share.ended("B", at)}
		pb.try(share, &tb, r)
		pa.try(share, &ta, r)
		pb.write(share, database, &tb)
		pa.write(share, database, &ta)
		a, b = append(a, ta), append(b, tb)
	}
	return a, b
}

// try requests one partition.
func (p *processor) try(share *partitions, t *turn, r *rand.Rand) {
	t.tried = -1
	if p.left == 0 {
		return
	}
	if second := int(t.at / time.Second); second < len(p.first) {
		t.tried = p.first[second]
	} else {
		for _, i := range r.Perm(partitionCount) {
			if !share.holds(p.name, i, t.at) {
				t.tried = i
				break
			}
		}
	}
	t.got = t.tried >= 0 && share.lease(p.name, t.tried, t.at)
}

// write takes the records of a second from the queue and writes them.
func (p *processor) write(share *partitions, s *service, t *turn) {
	t.rate = share.rate(p.name, t.at)
	n := min(p.left, t.rate)
	t.written = s.send(t.at, n)
	t.refused = n - t.written
	p.left -= t.written
	if p.left == 0 {
		share.release(p.name, t.at+time.Second)
	}
}

// try returns the partition of a turn, as text.
func (t turn) try() string {
	switch {
	case t.tried < 0:
		return "–"
	case t.got:
		return strconv.Itoa(t.tried)
	}
	return strconv.Itoa(t.tried) + " (held)"
}

func partitioned(seed uint64) report.Figure {
	a, b := run(source(seed, "azure-partitions"))
	f := report.Figure{
		ID: "azure-partitions", Title: "Two processors and ten partitions", Source: azure,
		XLabel: "seconds", YLabel: "requests a second", Step: true,
		Note: "Both want partition 2 and B gets it. Each second both try one more, and what they hold " +
			"is their rate. After 15 s leases end, and a rate falls unless another partition is won.",
		Table: &report.Table{Columns: []string{"second", "A tries", "A's leases ended", "A's rate",
			"A writes", "B tries", "B's leases ended", "B's rate", "B writes"}},
	}
	sa, sb := report.Series{Name: "A"}, report.Series{Name: "B"}
	both := report.Series{Name: "A and B", Dashed: true}
	for i := range a {
		ta, tb := a[i], b[i]
		sa.Add(float64(i), float64(ta.rate))
		sb.Add(float64(i), float64(tb.rate))
		both.Add(float64(i), float64(ta.rate+tb.rate))
		addRow(f.Table, i, ta.try(), ta.ended, ta.rate, ta.written,
			tb.try(), tb.ended, tb.rate, tb.written)
	}
	end := float64(len(a))
	for _, s := range []*report.Series{&sa, &sb, &both} {
		s.Add(end, 0)
	}
	capacity := line("the service's limit", end, end, func(float64) float64 {
		return partitionCount * partitionRate
	})
	capacity.Grey = true
	f.Series = []report.Series{capacity, sa, sb, both}
	return f
}
