//go:build soak

package kills

import "time"

// What make soak does: see also the flags.
const (
	defaultKills = 100
	defaultStop  = 30 * time.Second
	defaultSoak  = time.Hour
)
