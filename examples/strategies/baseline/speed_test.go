package baseline

import (
	"testing"

	"github.com/headgate/headgate/internal/sim"
)

func BenchmarkFlashCrowd(b *testing.B) {
	s, err := sim.Find(sim.Scenarios(), "flash-crowd")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	visitors := int64(0)
	for b.Loop() {
		r, err := sim.Run(b.Context(), s, counters(), sim.Options{Seed: 1})
		if err != nil {
			b.Fatal(err)
		}
		visitors += r.Visitors
	}
	b.ReportMetric(float64(visitors)/b.Elapsed().Seconds(), "visitors/s")
}
