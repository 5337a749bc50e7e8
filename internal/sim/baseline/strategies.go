package baseline

import "github.com/headgate/headgate/internal/sim"

// The documents that the models are made after.
const (
	cloudflare2022 = "Cloudflare Japan, thresholds of Waiting Room (2022)"
	cloudflare2023 = `Cloudflare, "How Waiting Room makes queueing decisions" (2023)`
	criteo         = "Criteo, distributed rate limiting"
	azure          = "Azure, rate limiting pattern"
)

// Strategies are the models of what others do, in the order of their history:
// Waiting Room's three, then those of distributed rate limiting.
func Strategies() []sim.Strategy {
	return []sim.Strategy{
		evenSplit(), adaptiveSplit(), counters(), static(), sticky(), asyncCounts(), eventLog(),
		rateLeases(),
	}
}
