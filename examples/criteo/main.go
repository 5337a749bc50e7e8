// Command criteo shows one limit shared by six data centers.
//
// Criteo's API ran in six data centers, with several instances in each, and a client could make 100
// calls a minute to the API as a whole, not to each instance. Here six data centers of two real
// headgate processes each stand in front of one origin. One client calls all of them at once,
// twelve times as often as it may, and changes its preference all the time. The origin counts the
// calls that pass, by its own clock, and is the judge: at most 100 in every window, and no fewer
// while the client wants more.
//
// It needs the headgate program (make build), runs on loopback and leaves nothing behind. See
// README.md in this folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// amount is the limit of calls per window: Criteo's number.
const amount = 100

// A plan defines what to show.
type plan struct {
	binary  string
	window  time.Duration
	windows int
	kill    bool
	seed    uint64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command runs the example. It returns the exit code: 0 when the limit held, 1 when it did not or
// could not be tried, 2 when the arguments are wrong.
func command(ctx context.Context, args []string, out, told io.Writer) int {
	var p plan
	flags := flag.NewFlagSet("criteo", flag.ContinueOnError)
	flags.SetOutput(told)
	flags.StringVar(&p.binary, "binary", "bin/headgate", "the headgate program")
	flags.DurationVar(&p.window, "window", 10*time.Second, "of the limit; Criteo's own is 60s")
	flags.IntVar(&p.windows, "windows", 6, "how many windows to call for")
	flags.BoolVar(&p.kill, "kill", false, "kill the node that counts, and start it again")
	flags.Uint64Var(&p.seed, "seed", 1, "the same seed gives the same client")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if p.kill { // until it counts again, and two more windows
		p.windows = max(p.windows, killAfter+3+int(math.Ceil(float64(awayFor)/float64(p.window))))
	}
	if p.window < time.Second || p.windows < 2 || flags.NArg() > 0 {
		fmt.Fprintln(told, "criteo: -window is 1s at least, -windows 2, and there are no arguments")
		return 2
	}
	v, err := show(ctx, p, out)
	if err != nil {
		fmt.Fprintln(told, "criteo:", err)
		return 1
	}
	v.print(out)
	if len(v.faults()) > 0 {
		return 1
	}
	return 0
}

// show starts everything, runs the client, and stops everything.
func show(ctx context.Context, p plan, out io.Writer) (v *verdict, err error) {
	if _, err := os.Stat(p.binary); err != nil {
		return nil, fmt.Errorf("there is no headgate at %s: run make build, or name it with -binary: %w",
			p.binary, err)
	}
	folder, err := os.MkdirTemp("", "criteo-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	o, err := openOrigin()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	w, err := newWorld(p, folder, o.url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	fmt.Fprintf(out, "%d data centers, %d headgates. Starting them: ", len(w.cities), len(w.nodes()))
	began := time.Now()
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "%.1f s.\n\n", time.Since(began).Seconds())
	return watch(ctx, p, stage{world: w, origin: o, out: out})
}
