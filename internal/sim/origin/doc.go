// Package origin plays a site that can be overloaded, the people inside it, and a strategy that sets
// the limits of the room in front, in virtual time.
//
// A [Plant] is a queueing model: stations with a capacity, a knee by the Universal Scalability Law, a
// cache that warms, a lock in a database. A [Scenario] says who comes and what happens to the plant.
// A [Strategy] gets one [adaptive.Sample] in each interval and answers with limits, which the room
// keeps exactly. [Play] judges what the people saw, not what the samples said.
//
// Everything runs in one goroutine with an event queue and a seeded random source: the same scenario,
// strategy and seed give the same result. An hour at 60 requests a second takes about 0.2 s.
//
// The parameters are chosen, unless a source is named: they are those of no real site. People do not
// give up waiting, and do not reload a slow page.
package origin
