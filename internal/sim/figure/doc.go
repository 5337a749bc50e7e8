// Package figure draws the figures of the documents again, as numbers: each
// [Figure] is computed by a small model that says what the document says, from one
// seed, and internal/sim/report turns it into pictures.
//
// The same seed gives the same figures; between kinds of processors the last digits
// may differ. All is one goroutine and takes about 20 ms. A figure is a value that
// belongs to its caller.
//
// The models of limits and leases here explain; no product code runs on them. What
// headgate does is in package slot, from which only the division among data centres
// is taken, and in internal/sim, which plays whole scenarios.
package figure
