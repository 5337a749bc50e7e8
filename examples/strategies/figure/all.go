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

import "github.com/headgate/headgate/internal/sim/report"

// All returns every figure, from one seed: Cloudflare's, Criteo's, Azure's.
func All(seed uint64) []report.Figure {
	figures := []report.Figure{slotsPerWorker(), curves(), latencies(seed)}
	figures = append(figures, limits(seed)...)
	return append(figures, retries(), smoothing(), granted(seed), partitioned(seed))
}
