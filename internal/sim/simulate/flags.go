package simulate

import (
	"cmp"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/sim/traffic"
)

//go:embed help.txt
var help string

// A simFlags holds the parsed flags.
type simFlags struct {
	list, json, plan         bool
	scenario, strategy, html string
	seed                     uint64
	limits                   simLimits
	arrivals                 string
	read                     traffic.Options
	hunt                     huntFlags
	command                  string // repeats the simulation
}

// A simLimits holds the flags for limits.
type simLimits struct {
	config, room  string
	active, fresh int64
	session       time.Duration
	auto          config.Auto // of the room; zero: none
	// which part of a visit renews the session; nil: all
	renewed func(dwell time.Duration) time.Duration
}

// sessionDefault is the default of a room (internal/config).
const sessionDefault = 5 * time.Minute

// parseFlags parses the flags.
func parseFlags(args []string) (*simFlags, error) {
	s := &simFlags{}
	l := &s.limits
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	flags.BoolVar(&s.list, "list", false, "")
	flags.BoolVar(&s.json, "json", false, "")
	flags.BoolVar(&s.plan, "plan", false, "")
	flags.StringVar(&s.scenario, "scenario", "", "")
	flags.StringVar(&s.strategy, "strategy", "", "")
	flags.StringVar(&s.html, "html", "", "")
	flags.Uint64Var(&s.seed, "seed", 1, "")
	flags.StringVar(&l.config, "config", "", "")
	flags.StringVar(&l.room, "room", "", "")
	flags.Int64Var(&l.active, "total-active-users", 0, "")
	flags.Int64Var(&l.fresh, "new-users-per-minute", 0, "")
	flags.DurationVar(&l.session, "session-duration", 0, "")
	flags.StringVar(&s.arrivals, "arrivals", "", "")
	flags.StringVar((*string)(&s.read.Format), "format", "", "")
	flags.StringVar(&s.read.TimeColumn, "time-column", "", "")
	flags.StringVar(&s.read.DatacenterColumn, "datacenter-column", "", "")
	s.hunt.define(flags)
	if err := config.ParseFlags(flags, args); err != nil {
		return nil, err
	}
	given := map[string]string{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = f.Value.String() })
	if err := s.check(given); err != nil {
		return nil, err
	}
	if s.arrivals == "" {
		s.scenario = cmp.Or(s.scenario, "world-spike")
		given["scenario"] = s.scenario
	}
	given["seed"] = strconv.FormatUint(s.seed, 10)
	s.command = again(given)
	return s, nil
}

// check rejects flags that do not go together.
func (s *simFlags) check(given map[string]string) error {
	var faults []error
	fault := func(bad bool, flag, problem, hint string) {
		if bad {
			faults = append(faults, &config.Fault{Key: "--" + flag, Problem: problem, Hint: hint})
		}
	}
	has := func(name string) bool { _, ok := given[name]; return ok }
	fault(has("scenario") && has("arrivals"), "arrivals", "cannot stand beside --scenario",
		"the traffic is that of a scenario or that of a file: leave one out")
	fault(has("room") && !has("config"), "room", "needs --config", "add --config headgate.yaml")
	l := &s.limits
	for i, name := range []string{"total-active-users", "new-users-per-minute", "session-duration"} {
		fault(has(name) && has("config"), name, "cannot stand beside --config",
			"the limits are those of a room or those of flags: leave one out")
		// The same limits as in a configuration.
		n, most := []int64{l.active, l.fresh, int64(l.session / time.Second)}[i], math.MaxInt32
		if name == "session-duration" {
			most = 30 * 24 * 3600
		}
		fault(has(name) && (n < 1 || n > int64(most)), name, "is out of range",
			"write what a room may have: 1 to 2147483647 users, 1s to 720h")
	}
	for _, name := range []string{"arrivals", "config", "html"} {
		fault(has(name) && given[name] == "", name, "names no file", "write --"+name+" FILE")
	}
	for _, name := range []string{"format", "time-column", "datacenter-column"} {
		fault(has(name) && !has("arrivals"), name, "needs --arrivals", "add --arrivals FILE")
	}
	f := s.read.Format
	fault(f != traffic.Auto && f != traffic.CSV && f != traffic.Log, "format",
		fmt.Sprintf("%q is not allowed here", string(f)), "write csv or log")
	for _, name := range []string{"total-active-users", "new-users-per-minute"} {
		fault(has("arrivals") && !has("config") && !has(name), name, "is missing",
			"a file says nothing of limits: add --config headgate.yaml, or --"+name+" 200")
	}
	s.hunt.check(given, fault)
	return errors.Join(faults...)
}

// again returns the command line for these flags, for a shell.
func again(given map[string]string) string {
	var rest []string
	for name := range given {
		if name != "scenario" && name != "arrivals" && name != "seed" {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	var line strings.Builder
	line.WriteString("headgate simulate")
	for _, name := range append([]string{"scenario", "arrivals", "seed"}, rest...) {
		switch value, ok := given[name]; {
		case !ok:
		case slices.Contains([]string{"json", "plan", "list"}, name):
			line.WriteString(" --" + name)
		default:
			line.WriteString(" --" + name + " " + config.ShellWord(value))
		}
	}
	return line.String()
}
