// Package simulate is the command "headgate simulate": it reads its flags, plays the simulation and
// writes the report. Another program may add scenarios and strategies of its own to a [Command].
package simulate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/sim/lending"
	"github.com/headgate/headgate/internal/sim/plan"
	"github.com/headgate/headgate/internal/sim/report"
)

// These are the exit codes of [Command.Run].
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// A Command holds what the simulation may play, and where it writes. Further strategies stand
// between the ideal counter and headgate.
type Command struct {
	Version    string // of the program
	Scenarios  []sim.Scenario
	Strategies []sim.Strategy
	Figures    func(ctx context.Context, seed uint64) ([]report.Figure, error) // nil: none
	Stdout     io.Writer
	Stderr     io.Writer
	Terminal   bool // Stderr is one: progress is shown there
}

// A simulation is a command with its flags.
type simulation struct {
	*Command
	*simFlags
}

// Run runs the simulation, prints the report and returns an exit code.
func (c *Command) Run(ctx context.Context, args []string) int {
	flags, err := parseFlags(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(c.Stdout, help)
		return exitOK
	case err != nil:
		config.Print(c.Stderr, err)
		return exitUsage
	}
	s := &simulation{c, flags}
	tell := &teller{w: c.Stderr, on: c.Terminal}
	switch {
	case s.list:
		err = report.List(c.Stdout, s.scenarios(), s.strategies())
	case s.hunt.asked():
		var kept bool
		if kept, err = s.hunt.run(ctx, c.Stdout, tell, s.json); err == nil && !kept {
			return exitFailed
		}
	default:
		err = s.run(ctx, tell)
	}
	return printError(c.Stderr, err)
}

// printError prints the error, if any, and returns the exit code.
func printError(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(stderr, "headgate: interrupted")
		return exitFailed
	}
	config.Print(stderr, err)
	if config.Faults(err) != nil {
		return exitUsage
	}
	return exitFailed
}

// asked makes a fault of an error about what the user has asked for.
func asked(err error) error {
	if e, ok := errors.AsType[*hint.Error](err); ok {
		return &config.Fault{Problem: err.Error(), Hint: e.Do}
	}
	return err
}

// scenarios returns all scenarios.
func (c *Command) scenarios() []sim.Scenario { return append(sim.Scenarios(), c.Scenarios...) }

// strategies returns all strategies, the reference one first.
func (c *Command) strategies() []sim.Strategy {
	return slices.Concat([]sim.Strategy{sim.Ideal()}, c.Strategies, []sim.Strategy{lending.Strategy()})
}

// chosen returns the requested strategies.
func (s *simulation) chosen() ([]sim.Strategy, error) {
	all := s.strategies()
	switch {
	case s.strategy == "" && s.plan:
		return nil, nil
	case s.strategy == "":
		return all, nil
	}
	var names []string
	for _, st := range all {
		names = append(names, st.Name)
	}
	wanted := strings.Split(s.strategy, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return nil, sim.Unknown("strategy", name, names)
		}
	}
	return slices.DeleteFunc(all, func(st sim.Strategy) bool {
		return !slices.Contains(wanted, st.Name)
	}), nil
}

// run runs the requested simulations and shows the results.
func (s *simulation) run(ctx context.Context, tell *teller) error {
	strategies, err := s.chosen()
	if err == nil {
		err = s.room()
	}
	if err == nil && s.html != "" {
		if err = report.CanSave(s.html); err != nil {
			return &config.Fault{Key: "--html", Problem: err.Error(), Hint: hint.Of(err)}
		}
	}
	if err != nil {
		return asked(err)
	}
	r := &report.Report{Version: s.Version, Command: s.command, Seed: s.seed}
	defer tell.clear()
	scenario, file, err := s.world(ctx, s.scenarios(), tell)
	if err != nil {
		return asked(err)
	}
	if file != nil {
		defer file.Close()
		r.Traffic = file.String()
	}
	r.Scenario = *scenario
	if s.plan {
		r.Plan, err = plan.Make(ctx, scenario, s.seed, tell.of("the smallest limits"))
		if err == nil && file != nil {
			r.Plan.Found = file.Found
		}
	}
	if err == nil && len(strategies) > 0 {
		r.Rows, err = s.play(ctx, scenario, strategies, tell)
	}
	if err == nil && file != nil {
		err = file.Err()
	}
	if err == nil && s.html != "" {
		err = s.save(ctx, r)
	}
	tell.clear()
	switch {
	case err != nil:
		return err
	case s.json:
		err = r.JSON(s.Stdout)
	default:
		err = r.Table(s.Stdout)
	}
	if err == nil && s.html != "" {
		fmt.Fprintf(tell.w, "wrote %s\n", s.html)
	}
	return err
}

// play runs the strategies. The ideal one runs first, because the others are compared with it.
func (s *simulation) play(ctx context.Context, scenario *sim.Scenario, strategies []sim.Strategy,
	tell *teller) ([]report.Row, error) {
	o := sim.Options{Seed: s.seed, Progress: tell.of("ideal")}
	ideal, err := sim.Run(ctx, scenario, sim.Ideal(), o)
	if err != nil {
		return nil, err
	}
	var rows []report.Row
	for i, st := range strategies {
		result := ideal
		if st.Name != ideal.Name {
			o.Ideal = ideal
			o.Progress = tell.of(fmt.Sprintf("%d of %d  %s", i+1, len(strategies), st.Name))
			if result, err = sim.Run(ctx, scenario, st, o); err != nil {
				return nil, fmt.Errorf("play %s: %w", st.Name, err)
			}
		}
		rows = append(rows, report.Row{Strategy: st, Result: result})
	}
	return rows, nil
}

// save writes the report page.
func (s *simulation) save(ctx context.Context, r *report.Report) (err error) {
	if s.Figures != nil {
		if r.Figures, err = s.Figures(ctx, s.seed); err != nil {
			return err
		}
	}
	return r.Save(ctx, s.html)
}
