package baseline

import (
	"math"

	"github.com/headgate/headgate/internal/sim"
)

// The arithmetic of cloudflare2023, apart from everything that waits. Its worked
// examples are the tests.

// slots is how many may come in now: the lesser of what the two limits leave.
func slots(l sim.Limits, active, fresh int64) int64 {
	return max(0, min(l.Active-active, l.New-fresh))
}

// budget is how many may come in during the whole of a minute in which fresh came
// in already: what a count that began with the minute is held against. Held against
// slots alone, those who came since would be counted twice.
func budget(l sim.Limits, active, fresh int64) int64 {
	return max(0, min(l.Active-active+fresh, l.New))
}

// divide gives each data centre its part of the slots, in the ratio of the users
// seen there to the limit, or to all users seen if these are more. Parts are
// rounded down; the rest is Anywhere's.
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

// each is what one of so many workers may let in of a part.
func each(part int64, workers float64) int64 { return int64(float64(part) / workers) }

// adapted is the adaptedWorkerCount: workers × workerMultiplier, which is
// utilization^curveFactor. Less than one worker is none that divides anything.
func adapted(workers int, utilization, curve float64) float64 {
	return max(1, float64(workers)*math.Pow(utilization, curve))
}

// A counter is that of a data centre, or Anywhere's, in one minute.
type counter struct{ value int64 }

// ask answers the value, which lets pass if it is below the slots, and then adds
// one. The document adds one to any answer; a refusal adds nothing here, which is
// kinder: slots that come back within the minute can still be used in it.
func (c *counter) ask(slots int64) (value int64, pass bool) {
	value = c.value
	if pass = value < slots; pass {
		c.value++
	}
	return value, pass
}
