// Package sim runs traffic against admission strategies in virtual time. The strategies are the
// algorithms of the documents that headgate is based on, and headgate itself with its own code.
//
// A [Scenario] defines when and where visitors arrive, and a [Strategy] decides who is admitted.
// The [World] between them is the judge. It alone counts the visitors inside, in total and in any
// minute, those that had to wait while there was a slot, and those that were overtaken. A strategy
// knows only what its messages carry.
//
// Everything runs in one goroutine, with an event queue and a seeded random source. The same
// scenario, strategy and seed give the same result on every machine. Memory grows with the visitors
// inside and waiting, and time with the events: about 0.4 µs per visitor of a plain counter.
//
// The package sends nothing over a network. Except for headgate, it does not run the original code
// of a strategy; each strategy names its source.
package sim
