package signals

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/histogram"
)

// A Report is what one node, or one data center, has measured in an interval.
type Report struct {
	From     string // the node or the data center
	Length   time.Duration
	InFlight float64          // requests at the origin, mean over the interval
	Routes   []adaptive.Route // at most adaptive.MaxRoutes, in any order
	Load     float64          // of the origin, as it was reported: 1 is full; 0: no report
	by       sketch           // how much of it one network can have made
	Trouble  string           // why a load that was asked for is not known; "": none

	// Of a data center: who was there. Nodes leave it to the host of the room.
	Inside           float64
	Waiting, Entered int64
}

// Bounds of a report as it is sent. A route takes some 60 bytes, and at most 1,013.
const (
	format    = 2
	maxFrom   = 128 // bytes, also of a trouble
	MaxReport = 68 << 10
)

// ErrReport is returned for bytes that are no report.
var ErrReport = errors.New("not a report of signals")

// Append appends the report in binary.
func (x *Report) Append(b []byte) []byte {
	b = codec.AppendUint(b, format)
	b = codec.AppendText(b, x.From[:min(len(x.From), maxFrom)])
	b = codec.AppendInt(b, int64(x.Length), x.Waiting, x.Entered)
	b = codec.AppendFixed(b, math.Float64bits(x.InFlight), math.Float64bits(x.Inside),
		math.Float64bits(x.Load))
	b = codec.AppendText(b, x.Trouble[:min(len(x.Trouble), maxFrom)])
	b = x.by.append(b)
	b = codec.AppendUint(b, uint64(len(x.Routes)))
	for i := range x.Routes {
		r := &x.Routes[i]
		b = codec.AppendText(b, r.Class)
		b = codec.AppendUint(b, r.Answered, r.Failed, r.Refused)
		used := uint64(0)
		for _, n := range r.Latency {
			used += codec.Bit(n > 0)
		}
		b = codec.AppendUint(b, used)
		last := 0
		for k, n := range r.Latency {
			if n > 0 {
				b = codec.AppendUint(b, uint64(k-last), uint64(n))
				last = k
			}
		}
	}
	return b
}

// most bounds each number of a report, so that sums do not overflow. Chosen: far above what a node
// counts.
const most = 1 << 40

// ReadReport reads what Append has written.
func ReadReport(b []byte) (*Report, error) {
	d := codec.NewReader(b)
	if len(b) > MaxReport || d.Uint() != format {
		return nil, ErrReport
	}
	x := &Report{From: d.Text(maxFrom), Length: time.Duration(d.Int()), Waiting: d.Int(), Entered: d.Int()}
	x.InFlight, x.Inside = math.Float64frombits(d.Fixed()), math.Float64frombits(d.Fixed())
	x.Load, x.Trouble = math.Float64frombits(d.Fixed()), d.Text(maxFrom)
	x.by.read(&d)
	for range d.Count(adaptive.MaxRoutes) {
		r := adaptive.Route{Class: d.Text(mostName)}
		r.Answered, r.Failed, r.Refused = d.UpTo(most), d.UpTo(most), d.UpTo(most)
		at := uint64(0)
		for range d.Count(histogram.Buckets) {
			if at += d.UpTo(histogram.Buckets); at >= histogram.Buckets {
				return nil, ErrReport
			}
			r.Latency[at] = int64(d.UpTo(most))
		}
		x.Routes = append(x.Routes, r)
	}
	ok := x.Length > 0 && x.Length <= time.Hour && x.Waiting >= 0 && x.Waiting < most &&
		x.Entered >= 0 && x.Entered < most && isCount(x.InFlight) && isCount(x.Inside) && isCount(x.Load)
	if !d.Done() || !ok {
		return nil, ErrReport
	}
	return x, nil
}

func isCount(v float64) bool { return v >= 0 && v < most } // false for NaN

// add adds the routes of another report. Of two loads the higher counts.
func (x *Report) add(o *Report) {
	for i := range o.Routes {
		r := &o.Routes[i]
		k := slices.IndexFunc(x.Routes, func(y adaptive.Route) bool { return y.Class == r.Class })
		if k < 0 {
			x.Routes = append(x.Routes, *r)
			continue
		}
		mergeRoute(&x.Routes[k], r)
	}
	x.Routes = bound(x.Routes, adaptive.MaxRoutes)
	x.by.add(&o.by)
	x.Load, x.Trouble = max(x.Load, o.Load), cmp.Or(x.Trouble, o.Trouble)
}

func mergeRoute(x, o *adaptive.Route) {
	x.Answered += o.Answered
	x.Failed += o.Failed
	x.Refused += o.Refused
	x.Latency.Merge(&o.Latency)
}

// bound returns at most n routes: those with the fewest requests become part of the rest, which is
// the last.
func bound(routes []adaptive.Route, n int) []adaptive.Route {
	slices.SortStableFunc(routes, func(a, b adaptive.Route) int {
		return cmp.Or(cmp.Compare(codec.Bit(a.Class == Rest), codec.Bit(b.Class == Rest)),
			cmp.Compare(b.Answered+b.Failed, a.Answered+a.Failed))
	})
	if len(routes) <= n {
		return routes
	}
	rest := adaptive.Route{Class: Rest}
	for i := range routes[n-1:] {
		mergeRoute(&rest, &routes[n-1+i])
	}
	return append(slices.Clone(routes[:n-1]), rest) // the memory of the others is free
}
