// Package figure redraws the figures of the documents as numbers. Each [Figure] is computed from
// one seed by a small model of what the document describes, and internal/sim/report turns it into
// pictures.
//
// The same seed gives the same figures; between kinds of processors the last digits may differ.
// Everything runs in one goroutine and takes about 50 ms. A figure is a value that belongs to its
// caller.
//
// The models of estimates and leases here are explanations; no product code uses them. Package
// limit decides what limits let pass, and a test compares it with the models. Package slot divides
// slots among data centers. Whole scenarios run in internal/sim.
package figure
