package control

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/ratelimit"
)

// TakeNews puts the changes of other nodes into force here.
func (s *Limits) TakeNews(ctx context.Context) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if err := s.Take(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn("changes of limits by another node not taken yet", "error", err)
	}
}

// Take puts the dynamic limits and the live changes into force here. The caller holds the turn or
// is the only goroutine.
func (s *Limits) Take(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, ChangeWait)
	defer stop()
	if err := s.takeDynamic(ctx); err != nil {
		return err
	}
	s.eraseFound(ctx)
	if err := s.takeFound(ctx); err != nil {
		return err
	}
	defined := s.defined.Load()
	if s.taken.defined != defined {
		if err := s.dropLimits(ctx, *defined); err != nil {
			return err
		}
	}
	live, revision, err := s.changes().Load(ctx)
	now := taken{revision, newestOf(live), defined}
	if err != nil || now == s.taken || s.taken.isAfter(revision, now.newest) {
		return err
	}
	for name, x := range live {
		f := (*defined)[name]
		if f.hash == "" || x.Of != f.hash {
			continue
		}
		if err := s.Rules.Update(name, func(l *ratelimit.Limit) error {
			*l = f.Limit
			err := api.SetLimit(l, x.Pairs)
			s.fit(l)
			return err
		}); err != nil {
			s.log.Warn("change of a limit not taken", "limit", name, "error", err)
		}
	}
	s.taken = now
	return nil
}

// dropLimits removes the live changes that were made under another definition than the one in force
// here. Nodes that still have the old file keep their state until they read the new one.
func (s *Limits) dropLimits(ctx context.Context, defined map[string]Definition) error {
	var dropped []string
	err := s.editChanges(ctx, func(live map[string]limitChange) (news bool) {
		dropped = nil
		for name, x := range live {
			f := defined[name]
			if f.hash == x.Of || f.hash == "" && IsEnvoys(name) { // not every node serves Envoy
				continue
			}
			if len(x.Pairs) > 0 {
				dropped = append(dropped, name)
			}
			y := limitChange{Of: f.hash, Pairs: map[string]string{}, Version: x.Version}
			if s.home(f) == "" {
				y = x.next(f, nil)
			}
			live[name], news = y, true
		}
		return news
	})
	if err == nil && len(dropped) > 0 {
		s.log.Info("live changes dropped: the file says something else of these limits now", "limits",
			dropped)
	}
	return err
}

// newestOf returns the greatest version of some changes.
func newestOf(live map[string]limitChange) (newest uint64) {
	for _, x := range live {
		newest = max(newest, x.Version)
	}
	return newest
}

// takeDynamic puts the dynamic limits into force here. The caller holds the turn or is the only
// goroutine.
func (s *Limits) takeDynamic(ctx context.Context) error {
	defined := s.defined.Load()
	r, revision, err := s.dynamicDoc().Load(ctx)
	own, all, newest := r.versions()
	now := taken{revision, newest, defined}
	if err != nil || now == s.takenDynamic ||
		r.before(revision, &s.takenDynamic, s.dynamicUpTo) {
		return err
	}
	was, next := *s.dynamic.Load(), map[string]inForce{}
	var wanted map[string]dynamicLimit
	wanted, s.covered = s.wanted(&r, *defined)
	for name, x := range wanted {
		old, ok := was[name]
		if ok && reflect.DeepEqual(old.dynamicLimit, x) {
			next[name] = old
			continue
		}
		l, style, err := x.limit(name)
		if err == nil {
			err = s.Rules.SetLimit(l)
		}
		if err == nil {
			next[name] = inForce{x, style}
			continue
		}
		s.log.Error("a limit that was made is not in force here as it was made", "limit", name, "error", err)
		if ok {
			next[name] = old
		}
	}
	for name := range was {
		if _, kept := next[name]; !kept && (*defined)[name].hash == "" {
			_ = s.Rules.Remove(name) // it exists: it was listed
		}
	}
	s.dynamic.Store(&next)
	s.takenDynamic, s.dynamicUpTo = now, [2]uint64{own, all}
	return nil
}

// wanted returns the dynamic limits that should be in force, and the names of those that should not
// because a file has limits of the same names.
func (s *Limits) wanted(
	r *dynamicRecord, defined map[string]Definition,
) (all map[string]dynamicLimit, covered []string) {
	all = maps.Clone(r.All.Limits)
	if all == nil {
		all = map[string]dynamicLimit{}
	}
	for name, x := range r.Own.Limits {
		if _, twice := all[name]; twice { // made in two data centers at the same time
			s.log.Warn(
				"a limit of all data centers is not in force here: this data center has one of the same name",
				"limit", name, "hint", "headgate limit remove "+name+" forgets that one",
			)
		}
		all[name] = x
	}
	for name := range all {
		if defined[name].hash != "" {
			covered = append(covered, name)
			delete(all, name)
		}
	}
	if slices.Sort(covered); len(covered) > 0 {
		s.log.Warn("limits that were made are not in force: the configuration has others of the same name",
			"limits", covered, "hint", "headgate limit remove NAME forgets one that was made")
	}
	return all, covered
}

// inTurn calls do while it holds the turn, and then puts the change of dynamic limits into force:
// here, and at the other nodes that answer.
func (s *Limits) inTurn(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), ChangeWait)
	defer stop()
	s.turn.Lock()
	err := do(ctx)
	if err == nil {
		if err := s.Take(ctx); err != nil {
			s.log.Warn("limits that were made are kept, and not in force here yet", "error", err)
		}
	}
	s.turn.Unlock()
	if err == nil {
		s.makeKnown(ctx)
	}
	return err
}

// makeKnown waits until the other nodes that answer have the newest limits in force. A client that
// learns of a new limit may use it at any node, and another node may count its key.
func (s *Limits) makeKnown(ctx context.Context) {
	k := s.node
	if k.Bus == nil {
		return
	}
	ctx, stop := context.WithTimeout(ctx, knowWait)
	defer stop()
	var wg sync.WaitGroup
	for _, n := range k.Rooms.Nodes() {
		if n.Alive && n.Name != k.Config.Node {
			wg.Go(func() {
				if _, err := k.Bus.Request(ctx, knowName+n.Name, nil); err != nil {
					s.log.Info("a node has not said yet that it knows what is new of limits", "node", n.Name,
						"error", err)
				}
			})
		}
	}
	wg.Wait()
}

// adoptDynamic stores the snapshot of the home if it is newer, or if it comes from a new home.
func (s *Limits) adoptDynamic(ctx context.Context, from string, set dynamicSet) error {
	return s.editDynamic(ctx, func(r *dynamicRecord) (bool, error) {
		if s.home(Definition{}) != from || r.From == from && set.Version <= r.All.Version {
			return false, nil
		}
		r.All, r.From = set, from
		return true, nil
	})
}

// ownDynamic returns the dynamic limits of all data centers if this one is the home, nil if there
// are none.
func (s *Limits) ownDynamic(ctx context.Context) (*dynamicSet, error) {
	r, _, err := s.dynamicDoc().Load(ctx)
	if err != nil || r.All.Version == 0 || s.home(Definition{}) != "" {
		return nil, err
	}
	return &r.All, nil
}

// knowName, followed by the name of a node, is the name of a request to that node. The node first
// takes the newest limits and then answers.
const knowName = "limits-known."

// knowWait is how long the creator of a limit waits at most until the other nodes know the limit.
// Chosen: less than linkWait.
const knowWait = time.Second
