package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/server"
)

// serve runs the rooms of cfg until ctx is done and returns the exit code.
func serve(ctx context.Context, cfg *config.Config, stdout, stderr io.Writer) int {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	s, err := server.Open(ctx, cfg, log)
	if err != nil {
		fmt.Fprintf(stderr, "headgate: %v\n", err)
		var h interface{ Hint() string }
		if errors.As(err, &h) {
			fmt.Fprintf(stderr, "hint: %s\n", h.Hint())
		}
		return exitFailed
	}
	fmt.Fprintf(stdout, "visitors  http://%s\noperators http://%s/v1/rooms\n", s.Addr(), s.AdminAddr())
	for i := range cfg.Rooms {
		r := &cfg.Rooms[i]
		fmt.Fprintf(stdout, "room      %s%s -> %s  %d at once, %d new a minute, sessions of %v\n",
			r.Host, r.Path, r.Origin, r.TotalActiveUsers, r.NewUsersPerMinute, r.SessionDuration)
	}
	if err := s.Run(ctx); err != nil {
		fmt.Fprintf(stderr, "headgate: %v\n", err)
		return exitFailed
	}
	return exitOK
}
