package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"syscall"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/server"
)

// runCommand parses the flags and the file, and serves.
func runCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg, err := config.ParseRun(args, stderr)
	if err != nil {
		return err
	}
	return serve(ctx, cfg, stdout, stderr)
}

// serve runs the rooms of cfg until ctx is done and returns the exit code.
func serve(ctx context.Context, cfg *config.Config, stdout, stderr io.Writer) error {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // before Open: an early SIGHUP would end the process
	defer signal.Stop(hangup)
	s, err := server.Open(ctx, cfg, log)
	if err != nil && ctx.Err() != nil && config.Faults(err) == nil { // stopped before it had started
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "visitors  http://%s\n", s.Addr())
	if a := s.TLSAddr(); a != nil {
		fmt.Fprintf(stdout, "          https://%s\n", a)
	}
	fmt.Fprintf(stdout, "operators http://%s/\n", s.AdminAddr())
	if a := s.EnvoyAddr(); a != nil {
		fmt.Fprintf(stdout, "envoy     %s by gRPC\n", a)
	}
	if a := s.DecideAddr(); a != nil {
		fmt.Fprintf(stdout, "proxies   http://%s\n", a)
	}
	for i := range cfg.Rooms {
		r := &cfg.Rooms[i]
		fmt.Fprintf(stdout, "room      %s%s -> %s  %s, sessions of %v\n",
			r.Host, r.Path, r.Origin, r.LimitsText(), r.SessionDuration)
	}
	reloads, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.ReloadOn(reloads, hangup) })
	boundGarbage(reloads)
	err = s.Run(ctx)
	stop()
	wg.Wait()
	return err
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
