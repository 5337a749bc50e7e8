package main

import (
	"iter"
	"testing"

	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/sim/lending"
)

// The instant at which a visitor is told to come in moves, while it waits: what people do is learned
// meanwhile. In one data center by half of the wait, for nine of ten: the upper end of the range may be
// a third higher, and a half with its margin, than what comes true (ADR 0052). A crowd of 3,000 before
// 200 slots has waited for a wave or two before anything is known. What other data centers do is known
// of sums alone: with several of them it may move by two and a half times as much, and by a third of the
// wait where it would not move; for the crowd by twice its wait. Measured, and rounded up.
const (
	mostSwing       = 0.5
	mostSwingCrowd  = 0.6
	mostSwingCrowds = 1.9
	swingOthers     = 2.5
	swingSums       = 0.3
)

// judgeSteady holds expected times to these bounds: alone in one data center, and as r has played.
func judgeSteady(t *testing.T, s *sim.Scenario, r *sim.Result) {
	t.Helper()
	one, most := swing(r), mostSwing
	if len(s.Datacenters) > 1 {
		alone, err := sim.Run(t.Context(), inOne(s), lending.Strategy(), sim.Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		one = swing(alone)
	}
	if s.Name == "everyone-at-once" {
		most = mostSwingCrowd
	}
	t.Logf("moved by %.2f of the wait in one data center", one)
	if one > most {
		t.Errorf("the told instant moved by %.2f of the wait, want %.2f at most", one, most)
	}
	if len(s.Datacenters) == 1 {
		return
	}
	several := swing(r)
	if most = swingSums + swingOthers*one; s.Name == "everyone-at-once" {
		most = mostSwingCrowds
	}
	t.Logf("moved by %.2f of the wait in several", several)
	if several > most {
		t.Errorf("the told instant moved by %.2f of the wait, want %.2f at most", several, most)
	}
}

// swing is by how much of their wait the instant moved at which nine of ten were told to come in.
func swing(r *sim.Result) float64 {
	if r.ExpectSwing == nil {
		return 0
	}
	return *r.ExpectSwing
}

// inOne is the same traffic at the same workers, which are all in one data center.
func inOne(s *sim.Scenario) *sim.Scenario {
	x := *s
	x.Datacenters = []sim.Datacenter{s.Datacenters[0]}
	first := []int32{0}
	for _, site := range s.Datacenters {
		first = append(first, first[len(first)-1]+int32(site.Workers))
	}
	x.Datacenters[0].Workers = int(first[len(s.Datacenters)])
	x.Arrivals = func(seed uint64) iter.Seq[sim.Arrival] {
		return func(yield func(sim.Arrival) bool) {
			for a := range s.Arrivals(seed) {
				a.Worker += first[a.Datacenter]
				if a.Datacenter = 0; !yield(a) {
					return
				}
			}
		}
	}
	return &x
}
