// Command strategies is headgate simulate with models of what Cloudflare, Criteo and Azure describe:
// their strategies and scenarios play beside headgate's own, and the page shows the figures of their
// documents. It takes the flags of headgate simulate. With "auto FILE" it plays strategies that find a
// limit by themselves, and writes the page to FILE.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/headgate/headgate/examples/strategies/baseline"
	"github.com/headgate/headgate/examples/strategies/figure"
	"github.com/headgate/headgate/examples/strategies/overload"
	"github.com/headgate/headgate/internal/platform"
	"github.com/headgate/headgate/internal/sim/lending"
	"github.com/headgate/headgate/internal/sim/report"
	"github.com/headgate/headgate/internal/sim/simulate"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if len(os.Args) == 3 && os.Args[1] == "auto" {
		err := overload.Report(ctx, os.Stdout, os.Args[2], 1)
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	c := &simulate.Command{
		Version: "strategies", Scenarios: baseline.Scenarios(), Strategies: baseline.Strategies(),
		Figures: figures, Stdout: os.Stdout, Stderr: os.Stderr,
		Terminal: platform.IsScreen(os.Stderr),
	}
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "simulate" { // so that a printed command line runs here too
		args = args[1:]
	}
	code := c.Run(ctx, args)
	stop()
	os.Exit(code)
}

// figures draws the figures of the documents on which the models are based.
func figures(ctx context.Context, seed uint64) ([]report.Figure, error) {
	played, err := figure.Played(ctx, seed, baseline.Strategies()[0], lending.Strategy())
	if err != nil {
		return nil, err
	}
	return append(figure.All(seed), played...), nil
}
