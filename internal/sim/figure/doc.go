// Package figure draws the figures of the documents again, as numbers: each
// [Figure] is computed by a small model that says what the document says, from one
// seed, and internal/sim/report turns it into pictures.
//
// The same seed gives the same figures; between kinds of processors the last digits
// may differ. All is one goroutine and takes about 50 ms. A figure is a value that
// belongs to its caller.
//
// The models of estimates and leases here explain; no product code runs on them. What
// limits let through is decided by package limit, and a test holds it against the models;
// the division among data centres is that of package slot. Whole scenarios are played by
// internal/sim.
package figure
