package signals

import (
	"testing"
	"time"
)

// A proxied request takes some 100 µs of CPU time, with the client and the origin.
func BenchmarkFlight(b *testing.B) {
	m, r := NewMeter(), request("GET", "/product/7/reviews")
	ask(m, "GET", "/product/7/reviews", 1, Answered)
	m.Read()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for network := uint64(0); pb.Next(); network++ {
			var f Flight
			f.Begin(m, nil, network)
			f.End(r, Answered)
		}
	})
}

// Two readings of the clock are the floor.
func BenchmarkClock(b *testing.B) {
	base := time.Now()
	for b.Loop() {
		_ = time.Since(base)
	}
}
