//go:build edges

package edges

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// Times within which 99 % of the decisions for visitors inside are made on a machine at half load: the
// aim, and how many times that of the smallest handler in the same run is no fault on a busy machine.
const (
	soon     = time.Millisecond
	mostLate = 3
)

// TestHalfLoad: questions about requests of a visitor inside arrive at a rate at which headgate and
// those who ask use half of the CPU, whatever the answers take. It prints how long 99 % of them take at
// most, and the same of the smallest handlers at the same rate, in turns.
func TestHalfLoad(t *testing.T) {
	for _, x := range questions(t, 64) {
		cpuOf(t, x.with, x.headgate) // warm up
		each := cpuOf(t, x.with, x.headgate, os.Getpid())
		gap := time.Duration(each * float64(2*time.Microsecond) / float64(runtime.NumCPU()))
		with, without := least(func() float64 { return late(t, x.with, gap) },
			func() float64 { return late(t, x.without, gap) })
		load, _ := os.ReadFile("/proc/loadavg")
		t.Logf("99 %% of the questions by %s at half load, %.0f a second, are answered within %.3f ms by "+
			"headgate, %.3f ms by the smallest handler; load %s",
			x.name, float64(time.Second)/float64(gap), with, without, load)
		if most := max(soon.Seconds()*1e3, mostLate*without); with > most {
			t.Errorf("%s: %.3f ms, at most %.3f ms", x.name, with, most)
		}
	}
}

// late asks once in each gap, for a second, and returns the time within which 99 % are answered, in
// milliseconds. It counts from when a question is due, also if it is asked later.
func late(t *testing.T, ask func() error, gap time.Duration) float64 {
	t.Helper()
	took := make([]time.Duration, time.Second/gap)
	begin := time.Now()
	var all sync.WaitGroup
	for i := range took {
		due := begin.Add(time.Duration(i) * gap)
		if wait := time.Until(due); wait > 0 {
			<-time.After(wait)
		}
		all.Go(func() {
			if err := ask(); err != nil {
				t.Error(err)
			}
			took[i] = time.Since(due)
		})
	}
	all.Wait()
	slices.Sort(took)
	return took[len(took)*99/100].Seconds() * 1e3
}
