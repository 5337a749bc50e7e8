package baseline

import (
	"math"

	"github.com/headgate/headgate/internal/sim"
)

// The following functions are the arithmetic of cloudflare2023, without the waiting line. Its
// worked examples are the tests.

// budget returns how many may enter during a whole minute in which fresh have entered already. It
// is compared with a count since the start of the minute; the smaller remainder of the two limits would
// count these visitors twice.
func budget(l sim.Limits, active, fresh int64) int64 {
	return max(0, min(l.Active-active+fresh, l.New))
}

// divide gives each data center its part of the slots, in the ratio of the users seen there to the
// limit, or to all users seen if these are more. Parts are rounded down; the rest is Anywhere's.
func divide(parts []int64, slots int64, seen []int64, limit int64) (anywhere int64) {
	whole, sum := limit, int64(0)
	for _, n := range seen {
		sum += n
	}
	whole = max(1, whole, sum)
	anywhere = slots
	for i, n := range seen {
		parts[i] = slots * n / whole
		anywhere -= parts[i]
	}
	return anywhere
}

// each returns what each of this number of workers may admit of a part.
func each(part int64, workers float64) int64 { return int64(float64(part) / workers) }

// adapted is the adaptedWorkerCount: workers × workerMultiplier, which is utilization^curveFactor.
// It is at least one.
func adapted(workers int, utilization, curve float64) float64 {
	return max(1, float64(workers)*math.Pow(utilization, curve))
}

// A counter is the counter of a data center or of Anywhere in one minute.
type counter struct{ value int64 }

// ask returns the value; it passes if the value is below the slots, and then adds one. The document
// adds one to any answer. Here a rejection adds nothing, which gives better results: slots that
// come back within the minute can still be used.
func (c *counter) ask(slots int64) (value int64, pass bool) {
	value = c.value
	if pass = value < slots; pass {
		c.value++
	}
	return value, pass
}
