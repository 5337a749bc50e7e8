package histogram_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/histogram"
)

// Each value is recovered to within an eighth, and buckets are in order.
func TestBucketsHoldWithinAnEighth(t *testing.T) {
	last := time.Duration(-1)
	for b := range histogram.Buckets {
		v := histogram.Value(b)
		if v <= last {
			t.Errorf("bucket %d is %v, after %v", b, v, last)
		}
		if got := histogram.BucketOf(v); got != b {
			t.Errorf("%v of bucket %d is counted in %d", v, b, got)
		}
		last = v
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		d := time.Duration(rng.Int64N(1 << (10 + rng.IntN(39)))) // up to six days
		off := histogram.Value(histogram.BucketOf(d)) - d
		if off.Abs() > d/8+histogram.Unit {
			t.Fatalf("%v is told as %v", d, d+off)
		}
	}
	for d, want := range map[time.Duration]int{-time.Hour: 0, 0: 0, 1 << 62: histogram.Buckets - 1} {
		if got := histogram.BucketOf(d); got != want {
			t.Errorf("%v is counted in %d, want %d", d, got, want)
		}
	}
}

func TestHistogramLosesNothing(t *testing.T) {
	var h histogram.Histogram
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 1000 {
				h.Add(time.Duration(i*j) * time.Millisecond)
			}
		})
	}
	wg.Wait()
	sum := int64(0)
	for _, n := range h.Read() {
		sum += n
	}
	if sum != 8000 {
		t.Errorf("%d counted, want 8000", sum)
	}
	if n := testing.AllocsPerRun(100, func() { h.Add(time.Second) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	var h histogram.Histogram
	b.ReportAllocs()
	for b.Loop() {
		h.Add(37 * time.Millisecond)
	}
}
