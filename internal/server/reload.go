package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/internal/manage"
	"github.com/headgate/headgate/internal/rules"
)

// reloadWait bounds a reload, however many rooms it changes.
const reloadWait = time.Minute

// Reload implements api.Process: it reads the configuration file again and puts it into force as
// one snapshot. On an error nothing has changed. Visitors notice only the new values: sessions go
// on and places in the line stay. A room whose record cannot be read is left as it is.
func (s *Server) Reload(ctx context.Context) (api.ReloadResult, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.crew == nil {
		return api.ReloadResult{}, api.ErrBusy
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), reloadWait)
	defer stop()
	got, err := s.reload(ctx)
	if errors.Is(err, config.ErrNoFile) { // there is no file, which is not an error
		return got, err
	}
	r := &reading{at: time.Now(), good: s.read.Load().good, err: err}
	if err == nil {
		r.good = r.at
	}
	s.read.Store(r)
	return got, err
}

// ReloadOn reloads at each signal until ctx ends, and logs the result. A signal that arrives before
// Run takes effect once Run has begun.
func (s *Server) ReloadOn(ctx context.Context, signals <-chan os.Signal) {
	select {
	case <-ctx.Done():
	case <-s.running:
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		got, err := s.Reload(ctx)
		if err == nil {
			s.log.Info("configuration reloaded", "added", got.Rooms.Added,
				"removed", got.Rooms.Removed, "changed", got.Rooms.Changed, "limits", got.Limits,
				"queues", got.Queues, "webhooks", got.Webhooks,
				"dropped_live_changes", got.Dropped, "needs_restart", got.NeedsRestart)
			continue
		}
		if l, ok := errors.AsType[*api.RollbackError](err); ok {
			s.log.Error("configuration not reloaded", "error", l, "hint", l.Do)
			continue
		}
		for _, f := range config.Faults(err) {
			s.log.Error("configuration not reloaded, nothing has changed", "fault", f.Error(),
				"hint", f.Hint)
		}
		if config.Faults(err) == nil {
			s.log.Error("configuration not reloaded, nothing has changed", "error", err)
		}
	}
}

// reload reads the file again and puts it in force: all of it, or nothing. A restart must not be
// needed to get out of a failed reload.
func (s *Server) reload(ctx context.Context) (api.ReloadResult, error) {
	old := s.set.Load()
	cfg, err := old.cfg.Again()
	if err != nil {
		return api.ReloadResult{}, err
	}
	for i := range cfg.Warnings {
		s.log.Warn("configuration", "warning", cfg.Warnings[i].Error(), "hint", cfg.Warnings[i].Hint)
	}
	w := s.newSwap(cfg)
	w.got.NeedsRestart = needsRestart(s.cfg, cfg)
	if w.wants, err = s.wantsOf(ctx, cfg, old); err != nil {
		return api.ReloadResult{}, err
	}
	if err := w.prepare(ctx); err != nil {
		s.rooms.Retry() // rooms of the store were read too, and are not in force either
		return api.ReloadResult{}, w.takeBack(err)
	}
	w.got.Limits = limitChanges(w)
	w.commit(ctx)
	if err := s.limits.Take(ctx); err != nil {
		s.log.Warn("live changes of limits not looked at: what the file takes back may come again with the "+
			"next start", "error", err)
	}
	w.got.Covered = append(w.got.Covered, s.limits.Covered()...)
	return w.got, nil
}

func (s *Server) newSwap(cfg *config.Config) *swap {
	old := s.set.Load()
	w := &swap{
		s: s, old: old, new: &roomSet{cfg: cfg},
		trust: !slices.Equal(old.cfg.TrustedProxies, cfg.TrustedProxies) ||
			!config.SamePlanSource(old.cfg, cfg),
		lists: !sameLists(old.cfg, cfg),
	}
	none := api.NameChanges{Added: []string{}, Removed: []string{}, Changed: []string{}}
	w.got.Rooms, w.got.Queues, w.got.Webhooks = none, none, none
	w.got.Dropped, w.got.Covered = []string{}, []string{}
	w.got.Settings = settings(old.cfg, cfg)
	return w
}

// settings lists what a reload changes besides rooms, limits, queues and webhooks.
func settings(old, now *config.Config) []string {
	return changedOf([]changedKey{
		{"trusted_proxies", !slices.Equal(old.TrustedProxies, now.TrustedProxies)},
		{"max_connections_per_address", old.MaxConnections != now.MaxConnections ||
			old.BoundLoopback != now.BoundLoopback},
		{"request_body_timeout", old.BodyTimeout != now.BodyTimeout},
		{"request_body_rate", old.BodyRate != now.BodyRate},
		{"response_write_timeout", old.WriteTimeout != now.WriteTimeout},
		{"plans", !config.SamePlanSource(old, now)},
		{"lists", !sameLists(old, now)},
		{"zones", !reflect.DeepEqual(old.Zones, now.Zones)},
	})
}

// A changedKey is a key of the configuration, and whether a reload changes it.
type changedKey struct {
	name    string
	changed bool
}

// changedOf returns the names of the keys that have changed.
func changedOf(all []changedKey) []string {
	names := []string{}
	for _, k := range all {
		if k.changed {
			names = append(names, k.name)
		}
	}
	return names
}

// takeBack undoes the steps of a reload that failed with err.
func (w *swap) takeBack(err error) error {
	var errs []error
	for _, back := range slices.Backward(w.undo) {
		errs = append(errs, back())
	}
	if uerr := errors.Join(errs...); uerr != nil {
		return &api.RollbackError{Err: errors.Join(err, uerr),
			Left: "the reload has failed, and not all of it could be taken back: some rooms may have " +
				"their new values, or lose their live changes at the next start",
			Do: "see that the disk has room, then reload again"}
	}
	return err
}

// needsRestart lists the changed keys that take effect only after a restart.
func needsRestart(start, now *config.Config) []string {
	a, b := start.Envoy, now.Envoy
	return changedOf([]changedKey{
		{"listen", start.Listen != now.Listen},
		{"admin_listen", start.AdminListen != now.AdminListen},
		{"data", start.Data != now.Data},
		{"drain_delay", start.DrainDelay != now.DrainDelay},
		{"cluster", !reflect.DeepEqual(start.Cluster, now.Cluster)},
		{"analytics", start.Analytics != now.Analytics},
		{"traces", !reflect.DeepEqual(start.Traces, now.Traces)},
		{"crawlers", !reflect.DeepEqual(start.Crawlers, now.Crawlers)},
		{"envoy", (a == nil) != (b == nil) ||
			b != nil && (a.Listen != b.Listen || a.Headers != b.Headers || a.Decide != b.Decide)},
		{"decide", !reflect.DeepEqual(start.Decide, now.Decide)},
		{"engine", !reflect.DeepEqual(start.Engine, now.Engine)},
	})
}

// prepare does everything that can fail.
func (w *swap) prepare(ctx context.Context) error {
	if err := w.prepareRooms(ctx); err != nil {
		return err
	}
	if err := w.s.node.RereadKeys(); err != nil {
		return fmt.Errorf("sealing keys: %w", err)
	}
	if err := checkLimits(w.new.cfg); err != nil {
		return err
	}
	if c := w.new.cfg.Envoy; c != nil {
		var err error
		if w.rules, err = readRules(c.Rules); err != nil {
			return err
		}
	}
	if err := w.queues(ctx); err != nil {
		return err
	}
	if err := w.reconfigureQueues(ctx); err != nil {
		return err
	}
	if err := w.webhooks(ctx); err != nil {
		return err
	}
	restart, err := w.s.reloadTLS(ctx, &w.new.cfg.TLS) // last, because it cannot be undone
	w.got.NeedsRestart = append(w.got.NeedsRestart, restart...)
	return err
}

// prepareRooms opens the new rooms, then gives each changed room its new configuration, and forgets
// the live changes.
func (w *swap) prepareRooms(ctx context.Context) error {
	for i := range w.wants {
		x := &w.wants[i]
		g, err := w.gate(ctx, x)
		if err == nil {
			w.new.gates = append(w.new.gates, g)
			continue
		}
		name := x.room.Name
		if err := w.without(ctx, name, x.made, fmt.Errorf("room %q: %w", name, err)); err != nil {
			return err
		}
	}
	for _, g := range slices.Clone(w.changed) {
		if err := w.reconfigure(ctx, g); err != nil {
			if err := w.without(ctx, g.file.Name, g.made, err); err != nil {
				return err
			}
		}
	}
	for _, g := range w.old.gates {
		if w.new.find(g.file.Name) == nil {
			w.got.Rooms.Removed = append(w.got.Rooms.Removed, g.file.Name)
		}
		next := w.new.find(g.file.Name)
		if g.live == nil || next == g { // no live changes, or damaged and left as it is
			continue
		}
		if next == nil && w.s.node.Linked() { // it still runs in other data centers, unchanged
			continue
		}
		w.got.Dropped = append(w.got.Dropped, g.file.Name)
		undo, err := w.s.changes.Keep(ctx, &g.file, nil)
		if err != nil {
			return err
		}
		w.undo = append(w.undo, undo)
	}
	return nil
}

// gate makes the new gate of a room: the old gate where nothing has changed or nothing can change,
// a new gate around the same room where something has changed, or a gate with a new room.
func (w *swap) gate(ctx context.Context, x *want) (*gate, error) {
	c, look := &x.room, x.look
	was := w.old.find(c.Name)
	if was == nil {
		// Earlier live changes of a room of this name belong to another file. If other data centers
		// already have the room, its live changes are taken over a moment later.
		if !w.s.node.Linked() {
			if _, err := w.s.changes.Keep(ctx, c, nil); err != nil {
				return nil, err
			}
		}
		g, err := w.s.openGate(ctx, w.new.cfg, c, x)
		if err != nil {
			return nil, err
		}
		w.added = append(w.added, g)
		w.undo = append(w.undo, func() error { w.s.shut(g); return nil })
		w.got.Rooms.Added = append(w.got.Rooms.Added, c.Name)
		return g, nil
	}
	same := reflect.DeepEqual(&was.now, c) && look.same(was.look) && was.made.same(x.made)
	if same && was.live == nil && !w.trust && !w.lists || w.made && x.made == nil && was.made == nil {
		return was, nil
	}
	if was.damaged() { // the other rooms must not wait for it
		w.s.log.Warn("room not reloaded: its record cannot be read", "room", c.Name,
			"hint", "headgate doctor says how to get it back; the next start takes the new values")
		return was, nil
	}
	if look.codes != nil && was.look.codes == nil { // nobody has followed what is revoked
		if err := w.s.revoked.Load(ctx, c.Name); err != nil {
			return nil, fmt.Errorf("room %q: %w", c.Name, err)
		}
	}
	g := *was
	g.file, g.now, g.live, g.look, g.made = *c, *c, nil, look, x.made
	if !same {
		w.got.Rooms.Changed = append(w.got.Rooms.Changed, c.Name)
	}
	if w.trust || !slices.Equal(vouched(w.new.cfg, &was.now), vouched(w.new.cfg, c)) ||
		was.file.Origin.String() != c.Origin.String() || was.made.obeys() != x.made.obeys() ||
		was.meter() != g.meter() {
		if err := w.s.connect(&g, w.new.cfg); err != nil {
			return nil, err
		}
	}
	w.s.assemble(&g, w.new.cfg)
	w.changed = append(w.changed, &g)
	return &g, nil
}

// reconfigure changes a room that stays, and notes how to take that back.
func (w *swap) reconfigure(ctx context.Context, g *gate) error {
	rc, err := w.s.roomConfig(w.new.cfg, &g.now, g.look)
	if err != nil {
		return fmt.Errorf("room %q: %w", g.file.Name, err)
	}
	if err := g.room.Reconfigure(ctx, rc); err != nil {
		return fmt.Errorf("room %q: %w", g.file.Name, err)
	}
	was := w.old.find(g.file.Name)
	w.undo = append(w.undo, func() error {
		ctx, stop := control.Afterwards(ctx)
		defer stop()
		rc, err := w.s.roomConfig(w.old.cfg, &was.now, was.look)
		if err != nil {
			return err
		}
		return g.room.Reconfigure(ctx, rc)
	})
	return nil
}

// commit puts everything new into force. It cannot fail.
func (w *swap) commit(ctx context.Context) {
	known := w.s.holders.IsOpen() // then they are followed: a store that is away must not delay a reload
	if w.s.holders.Open(w.new.cfg.StaleAfter()); !known {
		w.s.readHolders(ctx)
	}
	w.s.limits.reload(w.new.cfg)
	if err := w.s.envoy.reload(w.s.limits, w.rules); err != nil {
		w.s.log.Error("rules for Envoy not reloaded", "error", err)
	}
	w.commitQueues(ctx)
	w.commitWebhooks(ctx)
	w.commitRooms()
}

// commitRooms makes the new set visible to requests.
func (w *swap) commitRooms() {
	for _, g := range w.added {
		g.run(w.s.crew)
	}
	var left []*gate // gates whose proxy, or whose room and proxy, get no new requests
	for _, g := range w.changed {
		was := w.old.find(g.file.Name)
		if g.proxy == was.proxy {
			continue
		}
		was.probes.end()
		g.room.SetOriginUp(true) // the new proxy has not seen a failure yet
		g.probes = w.s.crew.start(g.proxy.Run)
		left = append(left, was)
	}
	w.s.set.Store(w.new)
	for _, g := range w.old.gates {
		if w.new.find(g.file.Name) == nil {
			g.probes.end()
			g.runs.end()
			left = append(left, g)
		}
	}
	for _, g := range left { // requests in flight keep their connections until they end
		g.proxy.CloseIdleConnections()
	}
}

// wantsOf returns all rooms that should be open with a configuration. When the rooms in the store
// cannot be read, those that are open now stay.
func (s *Server) wantsOf(ctx context.Context, cfg *config.Config, old *roomSet) ([]want, error) {
	looks, err := readLooks(cfg, s.book)
	if err != nil {
		return nil, err
	}
	var all []want
	for i := range cfg.Rooms {
		c := &cfg.Rooms[i]
		all = append(all, want{room: *c, look: looks[c.Name]})
	}
	book, revision, err := s.rooms.Read(ctx, s.reading(cfg))
	if err == nil {
		err = s.rooms.Accept(book, revision)
	}
	if err != nil {
		s.log.Error("the rooms of the management API cannot be read, and stay as they are", "error", err)
		for _, g := range old.gates {
			named := func(c config.Room) bool { return c.Name == g.file.Name }
			if g.made != nil && old.find(g.file.Name) == g && !slices.ContainsFunc(cfg.Rooms, named) {
				all = append(all, want{g.file, g.look, g.made})
			}
		}
		s.rooms.Retry()
		return all, nil
	}
	return append(all, s.madeWants(book)...), nil
}

// madeWants returns the rooms of the store that can be opened, and records why the others cannot.
func (s *Server) madeWants(book *manage.Catalog) (all []want) {
	problems := map[string]string{}
	for _, w := range book.Wanted() {
		if w.Problem != "" {
			problems[w.ID] = w.Problem
			s.log.Warn("room of the management API not in force", "room", w.Room.Name, "why", w.Problem)
			continue
		}
		l, err := madeLook(&w, s.book)
		if err != nil {
			problems[w.ID] = err.Error()
			continue
		}
		all = append(all, want{w.Room, l, &dynamicRoom{id: w.ID, revokes: w.Revokes}})
	}
	s.rooms.SetProblems(problems)
	return all
}

// without drops the new values of one room of the store that cannot be put into force, for example
// because a rule refers to a list that is no longer in the file. The other rooms must not wait for
// it. The room stays as it is and is retried. A reload is rejected instead, because the operator
// can correct the file.
func (w *swap) without(ctx context.Context, room string, made *dynamicRoom, err error) error {
	_, rule := errors.AsType[*rules.Error](err)
	switch {
	case made != nil && w.made && ctx.Err() == nil:
		w.s.rooms.Fail(made.id, err)
		w.s.log.Warn("room of the management API not in force", "room", room, "why", err)
	case made != nil && rule:
		return &api.RejectedError{Err: err, Reason: err.Error() + "; the room was made by the management API",
			Do: "put back what the rule asks for, or change the rule first"}
	default:
		return err
	}
	here := func(g *gate) bool { return g.file.Name == room }
	w.new.gates, w.changed = slices.DeleteFunc(w.new.gates, here), slices.DeleteFunc(w.changed, here)
	w.got.Rooms.Changed = slices.DeleteFunc(w.got.Rooms.Changed, func(s string) bool { return s == room })
	if was := w.old.find(room); was != nil {
		w.new.gates = append(w.new.gates, was)
	}
	return nil
}

// reading returns the settings with which the dynamic rooms are read for a configuration.
func (s *Server) reading(cfg *config.Config) control.Reading {
	return control.Reading{Config: cfg, At: s.read.Load().good}
}
