//go:build bench

package baseline

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// Two million visitors a second of CPU, 10,000 of them inside: the median of eleven
// runs, by the time that the process used.
func TestSpeedOfCounters(t *testing.T) {
	s, err := sim.Find(sim.Scenarios(), "flash-crowd")
	if err != nil {
		t.Fatal(err)
	}
	var rates []float64
	for range 11 {
		from := used(t)
		r, err := sim.Run(t.Context(), s, counters(), sim.Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		rates = append(rates, float64(r.Visitors)/(used(t)-from).Seconds())
	}
	slices.Sort(rates)
	t.Logf("%.2f M visitors a second of CPU, at least %.2f, at most %.2f",
		rates[5]/1e6, rates[0]/1e6, rates[10]/1e6)
	if rates[5] < 2e6 {
		t.Error("fewer than 2 M visitors a second of CPU")
	}
}

func used(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
