// Package sim plays traffic against strategies of admission in virtual time: the
// algorithms of the documents that headgate learned from, and headgate itself,
// by its own code.
//
// A [Scenario] says who comes when and where, a [Strategy] decides who is let in,
// and the [World] between them is the judge: it alone counts who is inside, in
// whole and in any minute, who was made to wait while there was room, and who was
// overtaken. Strategies are told nothing that their messages do not carry.
//
// All of it is one goroutine, an event queue and a seeded random source: the same
// scenario, strategy and seed give the same result on every machine. Memory is
// bounded by who is inside and who waits, time by events: about 0.4 µs for a
// visitor of a plain counter.
//
// What it does not do: it sends nothing over a network, and no strategy but
// headgate's runs its authors' code; each says what it is modelled on.
package sim
