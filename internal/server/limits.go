package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/internal/envoy"
	"github.com/headgate/headgate/internal/holders"
	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/ratelimit"
)

func (s *Server) newLimits(cfg *config.Config) (*callLimits, error) {
	rules, err := ratelimit.New(ratelimit.Config{Limits: control.LimitConfigs(cfg),
		Engine: s.node.Rooms, CreateMissing: envoy.Brought})
	if err != nil {
		return nil, err
	}
	l := &callLimits{Limits: control.NewLimits(rules, cfg, s.node, &s.turn, s.noteChange, s.log),
		traces: s.traces, planOf: s.planOf, holders: s.holders}
	l.met.Store(l.metBy(cfg))
	return l, nil
}

// metBy returns the limits of a configuration that can apply to requests of rooms.
func (l *callLimits) metBy(cfg *config.Config) *metLimits {
	known, plan := map[string]ratelimit.RequestLimit{}, l.planOf(cfg)
	for i := range cfg.Limits {
		c := &cfg.Limits[i]
		r := ratelimit.RequestLimit{
			Name: c.Name, Cost: c.Cost, CostHeader: c.CostHeader, CostField: c.CostField,
			Unit:    ratelimit.Unit(c.Unit),
			Headers: ratelimit.HeaderStyle(c.Headers), Addr: clientAddr(cfg.TrustedProxies), Plan: plan,
			OnError: func(_ *http.Request, err error) bool {
				return errors.Is(err, ratelimit.ErrNoLimit) // a reload has just removed it
			},
		}
		for _, k := range c.Key {
			r.Key = append(r.Key, ratelimit.KeyPart{Kind: k.Kind, Name: k.Name, Prefix4: k.Prefix4,
				Prefix6: k.Prefix6})
		}
		if c.Settle != (config.Settle{}) {
			s := ratelimit.Settle(c.Settle)
			r.Settle = &s
		}
		known[c.Name] = r
	}
	met := &metLimits{known: known, ofHolders: map[string]bool{}}
	for i := range cfg.Limits {
		c := &cfg.Limits[i]
		met.ofHolders[c.Name] = c.Usage && len(c.Key) == 1 && c.Key[0].Kind == ratelimit.KeyHolder
	}
	if h := cfg.HoldersOf(); h != nil {
		met.gate = &holders.Gate{Book: l.holders, Header: h.Header, Optional: !h.Required, Forward: h.Forward,
			Counts: &l.keyCounts}
	}
	return met
}

// newUsage returns the records of what keys have used. A worker has none: it could change what is charged.
func (s *Server) newUsage() *usage.Keeper {
	k := s.node
	if k.Worker {
		return nil
	}
	c := store.LogConfig{Conn: k.Config.NATS, Replicas: k.Config.Replicas, Log: s.log}
	if k.Engine != nil {
		c.Conn, c.OnWriteFailure = k.Engine.Conn(), k.Engine.Heal
	}
	return usage.NewKeeper(usage.Config{Store: k.Records, Log: s.log,
		OpenLog: func(ctx context.Context, name string, most int64) (usage.Log, error) {
			c := c
			c.Name, c.MaxBytes = name, most
			return store.OpenLog(ctx, c)
		}})
}

// keepUsage records what keys use until ctx ends.
func (s *Server) keepUsage(ctx context.Context) {
	if s.usage != nil {
		s.limits.Rules.RecordUsage(ctx, s.usage)
	}
}

// usageOfHolders answers holders of keys who ask, at .headgate/usage of a room, what they have used of its
// limits. They do not wait in its line.
func (s *Server) usageOfHolders(g *gate, next http.Handler) http.Handler {
	if s.usage == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		met := s.limits.met.Load()
		reads := func(limit string) bool {
			return met.ofHolders[limit] && slices.Contains(g.now.Limits, limit)
		}
		name, ok := g.places.Own(r)
		if !ok || name != "usage" || met.gate == nil || !slices.ContainsFunc(g.now.Limits, reads) {
			next.ServeHTTP(w, r)
			return
		}
		gate := *met.gate
		gate.Optional, gate.Counts = false, &s.limits.keyCounts
		gate.Before(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.holderUsage.ServeHolder(w, r, r.Header.Get(holders.HolderHeader), reads)
		})).ServeHTTP(w, r)
	})
}

// readHolders reads the holders of keys, if there may be any. What cannot be read now is read later: until
// then calls with keys are answered with 503.
func (s *Server) readHolders(ctx context.Context) {
	if !s.holders.IsOpen() {
		return
	}
	if err := s.holders.Check(ctx); err != nil {
		s.log.Warn("holders of keys not read yet: calls with keys are answered with 503", "error", err)
	}
}

// holderPlans returns the plans for which a limit has an amount.
func (l *callLimits) holderPlans() []string {
	plans := map[string]bool{}
	for _, x := range l.Rules.Limits() {
		for plan := range x.Plans {
			plans[plan] = true
		}
	}
	return slices.Sorted(maps.Keys(plans))
}

// style returns the style of the headers of a limit.
func (l *callLimits) style(limit string) ratelimit.HeaderStyle {
	if r, ok := l.met.Load().known[limit]; ok {
		return r.Headers
	}
	return l.Style(limit)
}

// checkLimits reports the limits that cannot be put into force.
func checkLimits(cfg *config.Config) error {
	_, err := ratelimit.New(ratelimit.Config{Limits: control.LimitConfigs(cfg)})
	return err
}

// reload puts the limits of a checked configuration into force.
func (l *callLimits) reload(cfg *config.Config) {
	l.SetFile(cfg, func() { l.met.Store(l.metBy(cfg)) })
}

// limitChanges returns which limits a reload adds, changes and removes.
func limitChanges(w *swap) api.NameChanges {
	said := func(cfg *config.Config, rules *envoy.Rules) map[string]any {
		all := map[string]any{}
		for i := range cfg.Limits {
			all[cfg.Limits[i].Name] = cfg.Limits[i]
		}
		if rules != nil {
			for _, c := range rules.Limits() {
				all[c.Name] = c
			}
		}
		return all
	}
	var was *envoy.Rules
	if w.s.envoy != nil {
		was = w.s.envoy.rules
	}
	old, next := said(w.old.cfg, was), said(w.new.cfg, cmp.Or(w.rules, was))
	n := api.NameChanges{Added: []string{}, Removed: []string{}, Changed: []string{}}
	for _, name := range slices.Sorted(maps.Keys(next)) {
		switch before, known := old[name]; {
		case !known:
			n.Added = append(n.Added, name)
		case !reflect.DeepEqual(before, next[name]):
			n.Changed = append(n.Changed, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if _, kept := next[name]; !kept {
			n.Removed = append(n.Removed, name)
		}
	}
	return n
}

// before puts the limits of a room in front of its origin, so that visitors who wait in the line
// use up nothing. A room that is not in the file no longer meets limits that were removed from the
// file.
func (l *callLimits) before(c *config.Room, next http.Handler) http.Handler {
	return &limited{limits: l, names: c.Limits, anyCase: !c.PathCaseSensitive, next: next}
}

// limited is the handler that applies the current limits in front of a room's origin.
type limited struct {
	limits *callLimits
	names  []string
	next   http.Handler

	anyCase bool // paths in keys ignore case
	built   atomic.Pointer[builtLimits]
}

type builtLimits struct {
	met *metLimits
	http.Handler

	plain []string      // the names of limits that do not ask for keys, or did not while they were known
	gate  *holders.Gate // the last one
}

// ServeHTTP implements http.Handler.
func (h *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	met, b := h.limits.met.Load(), h.built.Load()
	if b == nil || b.met != met {
		b = h.build(met, b)
		h.built.Store(b)
	}
	b.ServeHTTP(w, r)
}

// build returns the handler for the current limits. old is the one before, or nil.
//
// A room may have the name of a limit that a reload has removed: a room of the file for a moment, one of the
// API until it is changed. It asks for keys if that limit did, or if nobody knows whether it did.
func (h *limited) build(met *metLimits, old *builtLimits) *builtLimits {
	b := &builtLimits{met: met, gate: met.gate}
	var wasPlain []string
	if old != nil {
		wasPlain, b.gate = old.plain, cmp.Or(met.gate, old.gate)
	}
	var all []ratelimit.RequestLimit
	var meters []*signals.Meter
	for _, name := range h.names {
		x, known := met.known[name]
		if known {
			if m := h.limits.Meter(name); m != nil {
				meters = append(meters, m)
			}
			x.Key = slices.Clone(x.Key)
			for i := range x.Key {
				x.Key[i].AnyCase = h.anyCase
			}
			all = append(all, x)
		}
		if known && !byHolder(&x) || !known && slices.Contains(wasPlain, name) {
			b.plain = append(b.plain, name)
		}
	}
	b.Handler = ratelimit.Middleware(h.limits.asked(), all, measured(meters, h.next))
	if len(b.plain) < len(h.names) && b.gate != nil {
		b.Handler = b.gate.Before(b.Handler)
	}
	return b
}

func byHolder(x *ratelimit.RequestLimit) bool {
	return slices.ContainsFunc(x.Key, func(p ratelimit.KeyPart) bool { return p.Kind == ratelimit.KeyHolder })
}

// measured returns a handler that measures the calls that hold slots of limits whose amount is found.
func measured(meters []*signals.Meter, next http.Handler) http.Handler {
	if len(meters) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, m := range meters {
			m.Enter()
			defer m.Leave()
		}
		next.ServeHTTP(w, r.WithContext(signals.WithCalls(r.Context(), meters)))
	})
}
