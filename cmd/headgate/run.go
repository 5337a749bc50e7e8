package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/headgate/headgate/internal/config"
)

const runHelp = `usage: headgate run --origin URL --total-active-users N --new-users-per-minute N
       headgate run --config FILE

Runs headgate until an interrupt or SIGTERM.

One room, without a file:

  headgate run --origin http://127.0.0.1:3000 \
      --total-active-users 200 --new-users-per-minute 200 --session-duration 5m

  --origin URL               the site behind the room; http or https
  --total-active-users N     how many may be inside at once
  --new-users-per-minute N   how many may enter in any minute
  --session-duration D       how long a visitor stays inside after the last
                             request, such as 30s, 5m or 1h; default 5m
  --host NAME                the host of the room; default any
  --path PATH                the room is everything below it; default /
  --title TEXT               shown to visitors; default "Waiting room"

Rooms from a file, which headgate check explains:

  headgate run --config headgate.yaml

  --config FILE              instead of the flags above

Either way:

  --listen ADDR              where visitors arrive; default :8080
  --admin-listen ADDR        health, metrics, changes; default 127.0.0.1:8081
  --data DIR                 the data folder; default ./headgate-data
`

// runCommand parses the flags and the file, and serves.
func runCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := config.ParseRun(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, runHelp)
		return exitOK
	}
	if err != nil {
		return printFaults(stderr, err)
	}
	return serve(ctx, cfg, stdout, stderr)
}
