// Package lending is headgate itself in the simulator: the pools, shares and lines
// of package slot and the desk of internal/counter, with real messages between
// workers, counters and Anywhere, every one of which may be late, lost or repeated,
// and processes that are stopped, killed and started anew.
//
// What is headgate's own here is its arithmetic. What is played is what carries it:
// the network, the clocks, the store that takes a write by compare-and-set, and
// visitors who poll when they are told to and enter when they are called.
//
// [Hunt] looks for a world in which a promise of docs/design.md §2 breaks.
package lending
