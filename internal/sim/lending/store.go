package lending

import (
	"time"

	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/slot"
)

// A disk keeps the record of one counter, compare-and-set on its revision.
type disk struct {
	rec *slot.Record
	rev uint64
}

// writing is the duration of a synced write: measured with SyncAlways, 0.5 to 0.9 ms at the median
// and 4 ms at the 90th percentile (docs/design.md §4).
func writing() sim.Delay {
	return sim.Delay{Least: 300 * time.Microsecond, Mean: 1500 * time.Microsecond}
}

// write stores a record if the revision is still the one it was built on, and then reports to its
// writer, which may be paused or dead by then.
func (m *model) write(p *process, d *disk, expect uint64, wr *slot.Record, done func(ok bool)) {
	life := p.life // a restarted process gets no result of earlier writes
	m.after(writing().Draw(m.w.Rand()), func() {
		ok := d.rev == expect
		if ok {
			d.rec, d.rev = wr.Clone(), d.rev+1
		}
		m.after(writing().Draw(m.w.Rand())/2, func() { p.when(life, func() { done(ok) }) })
	})
}

// read returns what a starting process would read: the bytes, decoded.
func (d *disk) read() *slot.Record {
	b, err := d.rec.AppendBinary(nil)
	if err != nil {
		panic(err)
	}
	r := &slot.Record{}
	if err := r.UnmarshalBinary(b); err != nil {
		panic(err)
	}
	return r
}
