package quota

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Shared are the limits that processes share: those of one data center, and those of all data
// centers. A nil *Shared shares nothing.
type Shared struct {
	near  *Node // the limits of this data center
	far   *Node // the limits of all data centers; nil: there is only one
	rules atomic.Pointer[func(name string) *Definition]
}

// An Access gives package ratelimit the shared limits of an engine. The engine embeds it under an
// unexported name, so that its documentation has no type that users cannot import.
type Access struct{ shared *Shared }

// NewAccess returns an Access to s.
func NewAccess(s *Shared) Access { return Access{s} }

// SharedLimits returns the shared limits, or nil if there are no other processes.
func (a Access) SharedLimits() *Shared { return a.shared }

// NewShared returns the limits that are shared by cfg. It sets Prefix and Rules of cfg.
func NewShared(cfg Config) *Shared {
	s := &Shared{}
	cfg.Rules = s.definition
	if cfg.Datacenters != nil {
		far := cfg
		far.Prefix = "global."
		s.far = NewNode(far)
	}
	cfg.Prefix, cfg.Datacenters = "limits.", nil
	s.near = NewNode(cfg)
	return s
}

// SetRules sets the function that returns the definition of a limit, or nil if the limit is not
// shared.
func (s *Shared) SetRules(rules func(name string) *Definition) {
	if s != nil {
		s.rules.Store(&rules)
	}
}

func (s *Shared) definition(name string) *Definition {
	if rules := s.rules.Load(); rules != nil {
		return (*rules)(name)
	}
	return nil
}

// Limit returns the client of a limit, of all data centers if global, or nil if this process shares
// nothing.
func (s *Shared) Limit(name string, global bool) *LimitClient {
	if s == nil {
		return nil
	}
	return s.node(global).Limit(name)
}

// Run sends requests and hosts shards until ctx ends.
func (s *Shared) Run(ctx context.Context) error {
	if s.far == nil {
		return s.near.Run(ctx)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var near, far error
	var wg sync.WaitGroup
	wg.Go(func() { near = s.near.Run(ctx); stop() })
	wg.Go(func() { far = s.far.Run(ctx); stop() })
	wg.Wait()
	return errors.Join(near, far)
}

// CheckHosts reports whether all hosts of the shared limits answer.
func (s *Shared) CheckHosts(ctx context.Context) bool {
	return s == nil || s.near.CheckHosts(ctx) && (s.far == nil || s.far.CheckHosts(ctx))
}

// ShardCounts returns how many shards this process hosts, and for how many it is the standby. It
// counts the shards of both kinds of limits.
func (s *Shared) ShardCounts() (hosted, standby int) {
	if s == nil {
		return 0, 0
	}
	hosted, standby = s.near.ShardCounts()
	if s.far != nil {
		a, b := s.far.ShardCounts()
		hosted, standby = hosted+a, standby+b
	}
	return hosted, standby
}
