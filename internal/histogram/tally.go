// Package histogram counts how long things took, in buckets that can be added up.
//
// # The promise
//
// A Histogram holds a value within an eighth of what it was, from 0.1 ms to nine days, and two
// of them are merged by adding bucket to bucket: what percentiles of many minutes and many nodes
// say is as true as what those of one say.
//
// # Concurrency and cost
//
// A Histogram may be used by many goroutines at once. Add is an atomic addition, without a lock and
// without an allocation; a Histogram takes 1 KB.
//
// # What it does not do
//
// It keeps nothing and knows no time: who reads it does.
package histogram

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Buckets are how many there are: 4 to a doubling. Unit is the least that is told apart.
const (
	Buckets = 128
	Unit    = 100 * time.Microsecond
)

// A Histogram counts durations. The zero value is empty and ready.
type Histogram struct{ n [Buckets]atomic.Int64 }

// Add counts one duration; what is negative, as when a clock was set back, is none.
func (h *Histogram) Add(d time.Duration) { h.n[BucketOf(d)].Add(1) }

// Read is how many each bucket holds, since the beginning.
func (h *Histogram) Read() (all [Buckets]int64) {
	for i := range h.n {
		all[i] = h.n[i].Load()
	}
	return all
}

// Bucket is where a duration is counted: units 0 to 3 are buckets of their own, then each doubling
// is four.
func BucketOf(d time.Duration) int {
	if d < Unit {
		return 0
	}
	v := uint64(d / Unit)
	if v < 4 {
		return int(v)
	}
	e := bits.Len64(v) - 1 // 2 at least
	return min(Buckets-1, 4*(e-1)+int(v>>(e-2)&3))
}

// Value is the middle of a bucket, 0 of the first.
func Value(bucket int) time.Duration {
	if bucket < 4 {
		return time.Duration(bucket) * Unit
	}
	e, quarter := bucket/4+1, bucket%4
	least := uint64(4+quarter) << (e - 2)
	return time.Duration(2*least+1<<(e-2)) * Unit / 2
}
