package main

import (
	"context"
	"io"
	"os"

	"github.com/headgate/headgate/internal/platform"
	"github.com/headgate/headgate/internal/sim/simulate"
)

// simulateCommand plays headgate's own code alone: the shipped binary has no models of other systems.
func simulateCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := &simulate.Command{Version: readBuild().Version, Stdout: stdout, Stderr: stderr,
		Terminal: platform.IsScreen(stderr) && os.Getenv("TERM") != "dumb"}
	return exited(c.Run(ctx, args))
}
