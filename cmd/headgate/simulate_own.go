//go:build !strategies

package main

import (
	"context"

	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/sim/figure"
)

// otherScenarios is empty: the shipped binary has no models of other systems. See
// simulate_others.go.

func otherScenarios() []sim.Scenario { return nil }

func otherStrategies() []sim.Strategy { return nil }

func figures(context.Context, uint64) ([]figure.Figure, error) { return nil, nil }
