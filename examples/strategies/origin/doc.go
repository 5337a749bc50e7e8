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
// People are a closed loop: a visitor waits for an answer, thinks, and asks again. So beyond the knee
// latency grows to people inside / throughput - time to think, and not without bound. Three things make
// a cliff of that slope: the time to think is thirty times the target; throughput falls with the queue
// (the coherency of the law above); and people ask more often in the beginning, so that a room that
// fills needs a quarter more than the same room later. Some give up when an answer is slow or fails.
//
// The parameters are chosen, unless a source is named: they are those of no real site. People do not
// give up waiting in line, and do not reload a slow page.
package origin
