//go:build soak

package crowd

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/crowd"
)

// TestCrowd: 10,000 visitors within 30 s before a room of 500, 500 new ones a
// minute. Each stays 2 to 15 s, half leave by revoke, three minutes in all.
func TestCrowd(t *testing.T) {
	full := rehearsal{
		limits: Limits{Total: 500, New: 500, Spare: 2, EmptySeconds: 1.5, EstimateOK: 0.9,
			Window: time.Minute},
		session: 20 * time.Second,
		crowd: crowd.Config{N: 10_000, Arrive: 30 * time.Second, Duration: 180 * time.Second,
			Seed: 1},
	}
	full.run(t)
}
