//go:build kills && !soak

package kills

import "time"

// What make all can spare: see also the flags.
const (
	defaultKills = 10
	defaultStop  = 8 * time.Second
)
