package control

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
)

// A Definition is the configuration of a limit in a file, with its hash.
type Definition struct {
	ratelimit.Limit
	hash string
}

// define returns the definition of a limit.
func define(c ratelimit.Limit) Definition {
	zone, rule := "", c.Rule
	if rule.Zone != nil {
		zone, rule.Zone = rule.Zone.String(), nil
	}
	b := fmt.Appendf(nil, "%v %q %q %v %v %q %q %d",
		rule, zone, c.Unit, c.Shadow, c.Overrides, c.Scope, c.OnUnreachable, c.MaxKeys)
	if len(c.Plans) > 0 {
		b = fmt.Appendf(b, " plans %v", c.Plans)
	}
	if c.Soft {
		b = append(b, " soft"...)
	}
	if len(c.Reserved) > 0 {
		b = fmt.Appendf(b, " %v", c.Reserved)
	}
	if c.Usage {
		b = append(b, " usage"...)
	}
	if c.Auto.Mode != "" {
		b = fmt.Appendf(b, " %v", c.Auto)
	}
	sum := sha256.Sum256(b)
	return Definition{c, hex.EncodeToString(sum[:])}
}

// LimitConfigs returns the limits of a configuration.
func LimitConfigs(cfg *config.Config) (all []ratelimit.Limit) {
	reserved := map[string]map[string]int64{}
	for i := range cfg.Queues {
		for _, name := range cfg.Queues[i].Limits {
			if n := cfg.Queues[i].Reserved; n > 0 {
				if reserved[name] == nil {
					reserved[name] = map[string]int64{}
				}
				reserved[name][cfg.Queues[i].Name] = n
			}
		}
	}
	for i := range cfg.Limits {
		c := limitConfig(&cfg.Limits[i])
		c.Reserved = reserved[c.Name]
		all = append(all, c)
	}
	return all
}

func limitConfig(c *config.Limit) ratelimit.Limit {
	var auto limit.Auto
	if a := &c.Auto; a.Mode != "" {
		auto = limit.Auto{Mode: a.Mode, Min: a.Min, Max: a.Max, Start: c.Amount, TargetP95: a.TargetP95,
			TargetErrors: a.TargetErrors}
	}
	return ratelimit.Limit{
		Name: c.Name, Rule: c.Rule, Auto: auto, Unit: ratelimit.Unit(c.Unit),
		Overrides: c.Overrides, Plans: c.Plans, Soft: c.Soft, Shadow: c.Shadow, MaxKeys: c.MaxKeys,
		Usage: c.Usage,
		Scope: ratelimit.Scope(c.Scope), OnUnreachable: ratelimit.Unreachable(c.OnUnreachable),
	}
}

// IsEnvoys reports whether a limit is from the rules for Envoy. Their names have a slash; names in
// the configuration do not.
func IsEnvoys(limit string) bool { return strings.Contains(limit, "/") }
