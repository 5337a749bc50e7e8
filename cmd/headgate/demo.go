package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/demo"
)

// demoListen is the default address for browsers.
const demoListen = "127.0.0.1:8080"

// These are the durations of a demo without a terminal. Chosen: a script waits for it, and a killed
// host is back within the time that a cluster needs.
const (
	plainFor        = 20 * time.Second
	plainClusterFor = 30 * time.Second
)

// worldVisitors is the maximum number of visitors with --datacenters. Chosen: at noon slightly more
// than there are slots, so that times with a line and times without one are both seen.
const worldVisitors = 70

// demoConfig parses the flags.
func demoConfig(args []string, stdout io.Writer) (demo.Config, error) {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	c := demo.Config{Limits: demo.DefaultLimits(), In: os.Stdin, Out: stdout}
	flags.StringVar(&c.Listen, "listen", "", "")
	flags.IntVar(&c.Visitors, "visitors", 120, "")
	flags.DurationVar(&c.For, "for", 0, "")
	flags.IntVar(&c.Kills, "kills", 0, "")
	flags.BoolVar(&c.Plain, "plain", false, "")
	flags.BoolVar(&c.Cluster, "cluster", false, "")
	flags.BoolVar(&c.World, "datacenters", false, "")
	if err := config.ParseFlags(flags, args); err != nil {
		return c, err
	}
	var faults []error
	fault := func(bad bool, flag, problem, hint string) {
		if bad {
			faults = append(faults, &config.Fault{Key: flag, Problem: problem, Hint: hint})
		}
	}
	fault(c.Visitors < 1 || c.Visitors > 2000, "--visitors", "is not from 1 to 2000",
		"a larger crowd is headgate crowd")
	fault(c.For < 0, "--for", "is negative", "say how long, such as 20s")
	fault(c.World && c.Cluster, "--datacenters", "cannot be shown together with --cluster", "take one of them out")
	fault(c.World && c.Kills > 0, "--kills", "is not for --datacenters",
		"take it out: one of them is cut off by itself, and in a terminal by keys")
	fault(c.Kills < 0, "--kills", "is negative", "say how often, such as 2")
	if err := errors.Join(faults...); err != nil {
		return c, err
	}
	if c.World {
		c.Limits = demo.WorldLimits()
		if !given(flags, "visitors") {
			c.Visitors = worldVisitors
		}
		if !given(flags, "for") {
			c.For = demo.WorldFor
		}
	}
	c.Another = c.Listen == ""
	if c.Another {
		c.Listen = demoListen
	}
	if os.Getenv("TERM") == "dumb" || !demo.IsTerminal(os.Stdin, stdout) {
		c.Plain = true
		if c.For == 0 {
			c.For = plainFor
			if c.Cluster {
				c.For = plainClusterFor
			}
		}
		if c.Cluster && !given(flags, "kills") {
			c.Kills = 1
		}
	}
	c.Color = os.Getenv("NO_COLOR") == ""
	return c, nil
}

// given reports whether a flag was set.
func given(flags *flag.FlagSet, name string) (yes bool) {
	flags.Visit(func(f *flag.Flag) { yes = yes || f.Name == name })
	return yes
}

// demoCommand runs the demo and prints the results.
func demoCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := demoConfig(args, stdout)
	if err != nil {
		return err
	}
	if c.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	// Closing the terminal also ends the demo in good order.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	s, err := demo.Run(ctx, c)
	if err == nil {
		err = s.Write(stdout)
	}
	if err == nil && len(s.Faults()) > 0 {
		err = exitCode(exitFailed)
	}
	return err
}
