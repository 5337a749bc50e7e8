//go:build crowd || soak

package crowd

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/crowd"
)

// TestCrowdShort: 400 visitors before a room of 40, 40 new ones a minute.
//
// Only some ten are let in after a wait, so three of them outside the range
// shown would be too many for nine in ten and mean little: eight in ten is
// asked here, nine in ten of TestCrowd.
func TestCrowdShort(t *testing.T) {
	short := rehearsal{
		limits: Limits{Total: 40, New: 40, Spare: 2, EmptySeconds: 1.5, EstimateOK: 0.8,
			Window: time.Minute},
		session: 5 * time.Second,
		crowd: crowd.Config{N: 400, Arrive: 10 * time.Second, Duration: 75 * time.Second,
			Seed: 1},
	}
	short.run(t)
}
