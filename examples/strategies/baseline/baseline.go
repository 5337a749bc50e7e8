// Package baseline models other systems, for comparison with headgate on the same traffic. They are
// simple models of the algorithms in the documents of [Strategies], each with the weakness that its
// authors report and the strength for which they chose it.
//
// All models share one waiting line. A waiting visitor refreshes every 20 seconds and tries again
// then. The group with the earliest minute of arrival goes first, and a newcomer waits too while
// such a group waits. Where a document leaves a choice open, the model takes the better one, and a
// comment notes it.
//
// The cost is one comparison for a visitor, one pass a second (or a tenth of one) over each
// worker's line, and nothing for a waiting visitor. Nobody leaves the line, and the faults of a
// scenario do not affect the models: they are seen at their best.
//
// These are not the original programs, which are not public, and not measurements of them.
package baseline

import "github.com/headgate/headgate/internal/sim"

// Strategies returns the models of other systems, in historical order: Waiting Room's three, then
// those of distributed rate limiting.
func Strategies() []sim.Strategy {
	return []sim.Strategy{
		evenSplit(), adaptiveSplit(), counters(), static(), sticky(), asyncCounts(), eventLog(),
		rateLeases(),
	}
}
