// Package lending runs headgate itself in the simulator: the pools, shares and lines of package
// slot and the core of internal/counter. Workers, counters and Anywhere exchange real messages,
// which may be late, lost or repeated, and processes may be paused, killed and restarted.
//
// The arithmetic is headgate's own code. The simulation replaces what carries it: the network, the
// clocks, the store with its compare-and-set writes, and visitors that poll when they should and
// enter when they are called.
//
// [Hunt] searches for a world in which a promise of docs/design.md §2 breaks.
//
// # The files
//
// From the top down: hunt plays random cases, and faults breaks things in them. headgate is the strategy
// of package sim. above (Anywhere), host (a counter) and worker are the parts that talk; writer and store
// keep the records; process is what each of them is: it has a clock, and dies.
package lending
