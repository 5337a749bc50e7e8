package baseline

import "github.com/headgate/headgate/internal/sim"

// These are the documents on which the models are based.
const (
	cloudflare2022 = "Cloudflare Japan, thresholds of Waiting Room (2022)"
	cloudflare2023 = `Cloudflare, "How Waiting Room makes queueing decisions" (2023)`
	criteo         = "Criteo, distributed rate limiting"
	azure          = "Azure, rate limiting pattern"
)

// Strategies returns the models of other systems, in historical order: Waiting Room's three, then
// those of distributed rate limiting.
func Strategies() []sim.Strategy {
	return []sim.Strategy{
		evenSplit(), adaptiveSplit(), counters(), static(), sticky(), asyncCounts(), eventLog(),
		rateLeases(),
	}
}
