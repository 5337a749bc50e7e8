// Package memory bounds how much memory the process takes beside what it needs.
//
// # The promise
//
// Garbage is bounded in bytes, not by the size of the heap. What is free goes back to the system within
// a minute of the last burst of work. In a container with a bound, the collector works harder before the
// system would kill the process.
//
// # Concurrency and cost
//
// Keep runs once in a process. It costs three reads of counters a minute, a stop of the world after a
// collection that changed much, and two collections after a burst.
//
// # What it does not do
//
// It refuses no work: what is live may outgrow the bound of the container. GOMEMLIMIT of the environment
// takes precedence.
package memory

import (
	"context"
	"log/slog"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// ofContainer is the part of a container's bound that Go may fill. Chosen: the rest is for the stacks of
// the system, for mapped files, and for what Go does not count.
const ofContainer = 0.9

// Keep bounds the memory of the process until ctx ends. It leaves GOGC as it is if the operator has set it.
func Keep(ctx context.Context, isGOGCSet bool, log *slog.Logger) {
	before := debug.SetMemoryLimit(-1)
	limit, err := memlimit.Set(memlimit.WithRatio(ofContainer), memlimit.WithProvider(memlimit.FromCgroup))
	switch {
	case err != nil: // a system without control groups
		log.Debug("no memory limit", "reason", err)
	case limit != before:
		log.Info("memory limit", "bytes", limit, "from", "the bound of the container")
	}
	if !isGOGCSet {
		boundGarbage(ctx)
	}
	giveBack(ctx)
}

// These constants limit garbage. mostPercent lets it grow to four times the live memory while that
// is small. Measured: a tenth less CPU for a proxied request, and about 20 MB more memory under
// load. Live memory is large with a million waiting jobs. Then garbage is limited in bytes, and
// leastPercent keeps the collector from running all the time. Measured while the jobs arrive: a
// peak of 386 MB with a fixed 400 %, 196 MB with 100 %, at the same jobs per second.
const (
	mostPercent  = 400
	leastPercent = 50
	mostGarbage  = 80 << 20
)

// garbagePercent returns the GOGC value for a heap with this number of live bytes.
func garbagePercent(live uint64) int {
	return int(max(leastPercent, min(mostPercent, 100*mostGarbage/max(live, 1))))
}

// boundGarbage adjusts GOGC to the live memory after each collection, until ctx ends. It learns of
// a collection through the cleanup of an unreachable object.
func boundGarbage(ctx context.Context) {
	now := mostPercent
	debug.SetGCPercent(now)
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var next func(struct{})
	again := func() { runtime.AddCleanup(&struct{ _ *int }{}, next, struct{}{}) }
	next = func(struct{}) {
		if ctx.Err() != nil {
			return
		}
		metrics.Read(live)
		// Each change stops the world for a moment, so small changes are skipped.
		p := garbagePercent(live[0].Value.Uint64())
		if p > now*11/10 || p < now*9/10 || p == mostPercent && p != now {
			now = p
			debug.SetGCPercent(now)
		}
		again()
	}
	again()
}

// Parameters of giveBack. Chosen: the engine frees its write buffers after 10 s, and Go collects each two
// minutes anyway, so a process that allocates a little all the time is not collected more often.
const (
	lookEvery = 20 * time.Second
	burst     = 100 << 20
)

// A reading is what the runtime has done since the process began.
type reading struct{ collections, allocated uint64 }

func read() reading {
	all := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(all)
	return reading{all[0].Value.Uint64(), all[1].Value.Uint64()}
}

// isQuietAfterBurst reports whether nothing was collected since last, and much was allocated since cleaned.
func (now reading) isQuietAfterBurst(last, cleaned reading) bool {
	return now.collections == last.collections && now.allocated-cleaned.allocated >= burst
}

// giveBack returns memory to the system when the process is quiet after a burst of work, until ctx ends.
// Go would keep it for minutes, because nothing is allocated any more: buffers in pools, which the second
// collection frees, and the stacks of idle connections, which each collection halves.
func giveBack(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	last := read()
	for cleaned := last; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := read()
		if now.isQuietAfterBurst(last, cleaned) {
			debug.FreeOSMemory()
			debug.FreeOSMemory()
			now = read()
			cleaned = now
		}
		last = now
	}
}
