package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

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
// a collection through the cleanup of an unreachable object. The environment's GOGC takes
// precedence.
func boundGarbage(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
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
