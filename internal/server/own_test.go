package server

import (
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/config"
)

// A process stays on the engine that it has begun with.
func TestAnotherEngineNeedsARestart(t *testing.T) {
	on := func(urls ...string) *config.Config {
		return &config.Config{Engine: &config.Engine{URLs: urls}}
	}
	if got := needsRestart(on("nats://n1:4222"), on("nats://n1:4222")); len(got) > 0 {
		t.Errorf("the same engine: %v", got)
	}
	for name, now := range map[string]*config.Config{
		"another": on("nats://n2:4222"), "one more": on("nats://n1:4222", "nats://n2:4222"), "none": {},
	} {
		if got := needsRestart(on("nats://n1:4222"), now); !slices.Equal(got, []string{"engine"}) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
