package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// How much garbage there may be. mostPercent lets it grow to four times what lives while that
// is little. Measured: a tenth less CPU for a proxied request, some 20 MB more memory under
// load. What lives is much with a million jobs that wait: then garbage is bounded by bytes, and
// leastPercent keeps the collector from running all the time. Measured: 386 MB at the peak
// while they come in with a fixed 400 %, 196 MB with 100 %, and as many jobs a second.
const (
	mostPercent  = 400
	leastPercent = 50
	mostGarbage  = 80 << 20
)

// garbagePercent is for a heap of which so many bytes live.
func garbagePercent(live uint64) int {
	return int(max(leastPercent, min(mostPercent, 100*mostGarbage/max(live, 1))))
}

// boundGarbage follows what lives, from one collection to the next, until ctx ends: what is
// nobody's is cleaned up after the collection that found it. The environment's GOGC has the
// last word.
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
		// Each change stops the world for a moment: small ones are not worth it.
		p := garbagePercent(live[0].Value.Uint64())
		if p > now*11/10 || p < now*9/10 || p == mostPercent && p != now {
			now = p
			debug.SetGCPercent(now)
		}
		again()
	}
	again()
}
