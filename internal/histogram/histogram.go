// Package histogram counts durations in buckets that can be added up.
//
// # The promise
//
// A Histogram keeps each value to within an eighth, from 0.1 ms to nine days. Two histograms are
// merged by adding their buckets. So percentiles over many minutes and many nodes are as precise as
// those of one.
//
// # Concurrency and cost
//
// Many goroutines may use a Histogram at once. Add is one atomic addition, without a lock and
// without an allocation. A Histogram takes 1 KB.
//
// # Limits of the package
//
// It stores nothing and does not know the time: its reader does both.
package histogram

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Buckets is the number of buckets: 4 to a doubling. Unit is the width of the smallest
// buckets.
const (
	Buckets = 128
	Unit    = 100 * time.Microsecond
)

// A Histogram counts durations. The zero value is empty and ready.
type Histogram struct{ n [Buckets]atomic.Int64 }

// Add counts one duration. A negative one, as when a clock was set back, counts as 0.
func (h *Histogram) Add(d time.Duration) { h.n[BucketOf(d)].Add(1) }

// Read returns the count of each bucket since the start.
func (h *Histogram) Read() (all [Buckets]int64) {
	for i := range h.n {
		all[i] = h.n[i].Load()
	}
	return all
}

// BucketOf returns the bucket of a duration. Units 0 to 3 have a bucket each; from then on, each
// doubling has four.
func BucketOf(d time.Duration) int {
	if d < Unit {
		return 0
	}
	v := uint64(d / Unit)
	if v < 4 {
		return int(v)
	}
	e := bits.Len64(v) - 1 // at least 2
	return min(Buckets-1, 4*(e-1)+int(v>>(e-2)&3))
}

// Value returns the middle of a bucket, or 0 for the first.
func Value(bucket int) time.Duration {
	if bucket < 4 {
		return time.Duration(bucket) * Unit
	}
	e, quarter := bucket/4+1, bucket%4
	least := uint64(4+quarter) << (e - 2)
	return time.Duration(2*least+1<<(e-2)) * Unit / 2
}

// Counts are the counts of all buckets, as Read returns them.
type Counts [Buckets]int64

// Add counts n durations of a bucket's value.
func (c *Counts) Add(d time.Duration, n int64) { c[BucketOf(d)] += n }

// Merge adds the counts of another.
func (c *Counts) Merge(o *Counts) {
	for i, n := range o {
		c[i] += n
	}
}

// Total returns the number of durations.
func (c *Counts) Total() (sum int64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// Durations are how long things took in a room since the start of the process. A room embeds them under
// an unexported name, so that its documentation has no type that users cannot import.
type Durations struct {
	Waited *Histogram // from joining the line to admission, of admitted visitors
	Inside *Histogram // of sessions that began here and ended: first request to last byte
	Silent *Histogram // of the same sessions: longest time between two requests
}
