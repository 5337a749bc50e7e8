//go:build strategies

package main

import (
	"context"

	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/sim/baseline"
	"github.com/headgate/headgate/internal/sim/figure"
)

// otherScenarios are those of the models of other systems. make sim builds bin/headgate-strategies
// with them, for comparison.

func otherScenarios() []sim.Scenario { return baseline.Scenarios() }

func otherStrategies() []sim.Strategy { return baseline.Strategies() }

// figures draws the figures of the papers on which the models are based.
func figures(ctx context.Context, seed uint64) ([]figure.Figure, error) {
	played, err := figure.Played(ctx, seed, otherStrategies()[0], ourStrategies()[0])
	if err != nil {
		return nil, err
	}
	return append(figure.All(seed), played...), nil
}
