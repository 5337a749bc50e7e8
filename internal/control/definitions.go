package control

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
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
	if len(c.Reserved) > 0 {
		b = fmt.Appendf(b, " %v", c.Reserved)
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
	return ratelimit.Limit{
		Name: c.Name, Rule: c.Rule, Unit: ratelimit.Unit(c.Unit), Overrides: c.Overrides, Shadow: c.Shadow,
		MaxKeys: c.MaxKeys, Scope: ratelimit.Scope(c.Scope),
		OnUnreachable: ratelimit.Unreachable(c.OnUnreachable),
	}
}

// Source returns where a limit comes from: the file, the rules for Envoy or the API.
func (s *Limits) Source(limit string) string {
	if IsEnvoys(limit) {
		return api.FromEnvoy
	}
	if (*s.defined.Load())[limit].hash != "" {
		return api.FromFile
	}
	return api.FromAPI
}

// SetFile puts the limits of a checked configuration into force. The usage of their keys stays. A
// limit that has the same definition as before keeps its live changes. SetFile calls before ahead
// of removing limits that are not in the file any more.
func (s *Limits) SetFile(cfg *config.Config, before func()) {
	was, kept := *s.defined.Load(), map[string]Definition{}
	for name, x := range was {
		if IsEnvoys(name) {
			kept[name] = x
		}
	}
	for _, c := range LimitConfigs(cfg) {
		if kept[c.Name] = define(c); kept[c.Name].hash == was[c.Name].hash {
			continue
		}
		if err := s.Rules.SetLimit(c); err != nil {
			panic(fmt.Sprintf("limit %q was checked: %v", c.Name, err))
		}
	}
	s.defined.Store(&kept)
	before() // requests would otherwise use removed limits
	dynamic := *s.dynamic.Load()
	for _, c := range s.Rules.Limits() {
		if _, stays := dynamic[c.Name]; !stays && kept[c.Name].hash == "" && !IsEnvoys(c.Name) {
			_ = s.Rules.Remove(c.Name) // it exists: it was listed
		}
	}
}

// Define defines limits of the rules for Envoy. It stops at the first error. Limits with an
// unchanged definition stay as they are.
func (s *Limits) Define(limits []ratelimit.Limit) error {
	defined := maps.Clone(*s.defined.Load())
	for _, c := range limits {
		x := define(c)
		if defined[c.Name].hash == x.hash {
			continue
		}
		if err := s.Rules.SetLimit(c); err != nil {
			return err
		}
		defined[c.Name] = x
	}
	s.defined.Store(&defined)
	return nil
}

// Undefine removes a limit of the rules for Envoy.
func (s *Limits) Undefine(limit string) {
	_ = s.Rules.Remove(limit) // an error would mean that it is already gone
	defined := maps.Clone(*s.defined.Load())
	delete(defined, limit)
	s.defined.Store(&defined)
}

// IsEnvoys reports whether a limit is from the rules for Envoy. Their names have a slash; names in
// the configuration do not.
func IsEnvoys(limit string) bool { return strings.Contains(limit, "/") }

// Style returns the style of the response headers of a dynamic limit.
func (s *Limits) Style(limit string) ratelimit.HeaderStyle { return (*s.dynamic.Load())[limit].style }

// Covered returns the dynamic limits that are not in force because a file has limits of the same
// names. The caller holds the turn.
func (s *Limits) Covered() []string { return s.covered }
