package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/server"
)

// serve runs the rooms of cfg until ctx is done and returns the exit code.
func serve(ctx context.Context, cfg *config.Config, stdout, stderr io.Writer) int {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // before Open: an early SIGHUP would end the process
	defer signal.Stop(hangup)
	s, err := server.Open(ctx, cfg, log)
	if config.Faults(err) != nil { // faults of the files named in the configuration
		return printFaults(stderr, err)
	}
	if err != nil && ctx.Err() != nil { // stopped before it had started
		return exitOK
	}
	if err != nil {
		return printHinted(stderr, err)
	}
	fmt.Fprintf(stdout, "visitors  http://%s\n", s.Addr())
	if a := s.TLSAddr(); a != nil {
		fmt.Fprintf(stdout, "          https://%s\n", a)
	}
	fmt.Fprintf(stdout, "operators http://%s/\n", s.AdminAddr())
	if a := s.EnvoyAddr(); a != nil {
		fmt.Fprintf(stdout, "envoy     %s by gRPC\n", a)
	}
	for i := range cfg.Rooms {
		r := &cfg.Rooms[i]
		fmt.Fprintf(stdout, "room      %s%s -> %s  %d at once, %d new a minute, sessions of %v\n",
			r.Host, r.Path, r.Origin, r.TotalActiveUsers, r.NewUsersPerMinute, r.SessionDuration)
	}
	reloads, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.ReloadOn(reloads, hangup) })
	boundGarbage(reloads)
	err = s.Run(ctx)
	stop()
	wg.Wait()
	if err != nil {
		fmt.Fprintf(stderr, "headgate: %v\n", err)
		return exitFailed
	}
	return exitOK
}
