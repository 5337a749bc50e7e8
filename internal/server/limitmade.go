package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/store"
)

// madeKey is the record of limits that were made while headgate runs, by the API. All nodes of
// a data centre follow it. Of a name that the file has too the file's is in force.
const madeKey = "limits-made"

// Bounds of limits that were made, of a data centre and of all data centres each. Chosen: as
// many as in the file, and what data centres tell each other has room for it (mostShare).
const (
	mostMade      = 1000
	mostMadeBytes = 128 << 10
)

// knowWait bounds how long who makes a limit waits until the other nodes know it, too. Chosen:
// less than linkWait.
const knowWait = time.Second

// knowName is asked of each node, with its name behind it: it takes what is new of limits first.
const knowName = "limits-known."

// A madeLimit is a limit that was made, and what was changed of it since.
type madeLimit struct {
	Rule  json.RawMessage   `json:"rule"` // as the file has it
	Pairs map[string]string `json:"pairs,omitempty"`
}

// limit is the limit, and how answers tell of it.
func (x *madeLimit) limit(name string) (l headgate.LimitConfig, style headgate.HeaderStyle, err error) {
	c, err := config.ParseLimit(name, x.Rule)
	if err != nil {
		return l, "", err
	}
	l = limitConfig(c)
	if err = api.SetLimit(&l, x.Pairs); err == nil {
		_, err = headgate.NewLimiter(headgate.LimiterConfig{Limits: []headgate.LimitConfig{l}})
	}
	return l, headgate.HeaderStyle(c.Headers), err
}

// A madeSet is a snapshot of limits that were made, by name.
type madeSet struct {
	// Version is when it was written, in ms since 1970, or one more than the version before.
	Version uint64               `json:"version,omitempty"`
	Limits  map[string]madeLimit `json:"limits,omitempty"`
}

// next is the version after it.
func (m *madeSet) next() uint64 { return max(uint64(time.Now().UnixMilli()), m.Version+1) }

// put puts a limit into the set, nil for none. The map before stays as it is.
func (m *madeSet) put(name string, x *madeLimit, version uint64) error {
	m.Version, m.Limits = version, maps.Clone(m.Limits)
	delete(m.Limits, name)
	if x == nil {
		return nil
	}
	if m.Limits == nil {
		m.Limits = map[string]madeLimit{}
	}
	m.Limits[name] = *x
	b, err := json.Marshal(m)
	if err == nil && (len(m.Limits) > mostMade || len(b) > mostMadeBytes) {
		err = &api.Refused{
			Why: fmt.Sprintf("limits that were made would be more than %d, or larger than %d KB together",
				mostMade, mostMadeBytes>>10),
			Do: "remove some (headgate limit remove NAME); what stays for good belongs into the configuration"}
	}
	return err
}

// A madeRecord is all limits that were made, as one data centre keeps them.
type madeRecord struct {
	Own madeSet `json:"own"` // of this data centre, or of each process
	All madeSet `json:"all"` // of all data centres: a copy of what the home has
	// From is the data centre that has told All, this one if it was the home.
	From string `json:"from,omitempty"`
}

// setOf is the set that a limit belongs to.
func (r *madeRecord) setOf(all bool) *madeSet {
	if all {
		return &r.All
	}
	return &r.Own
}

// find tells which set has a limit.
func (r *madeRecord) find(name string) (all, ok bool) {
	if _, ok = r.Own.Limits[name]; ok {
		return false, true
	}
	_, ok = r.All.Limits[name]
	return true, ok
}

// versions are those of the record: of each of its sets, and the newest.
func (r *madeRecord) versions() (own, all, newest uint64) {
	return r.Own.Version, r.All.Version, max(r.Own.Version, r.All.Version)
}

// before reports whether a record is older than the one that was taken: a leader of the
// store that stood still, and is none any more, may tell what it knew. Nothing that is in force is
// removed for that, for with a limit all would go that its keys have used. The home of all data
// centers may be another now, which made fewer.
func (r *madeRecord) before(revision uint64, taken *takenLimits, upTo [2]uint64) bool {
	own, all, newest := r.versions()
	return own < upTo[0] || all == 0 && upTo[1] > 0 || taken.isAfter(revision, newest)
}

// inForce is a limit that was made, as it is in force here.
type inForce struct {
	madeLimit
	style headgate.HeaderStyle
}

// loadMade is what was made, and its revision.
func (s *Server) loadMade(ctx context.Context) (r madeRecord, revision uint64, err error) {
	value, revision, err := s.reread(ctx, madeKey)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return r, 0, nil
	case errors.Is(err, store.ErrDamaged):
		s.log.Error("limits that were made are lost: make them again", "error", err)
		return r, 0, nil
	case err == nil:
		err = json.Unmarshal(value, &r)
	}
	if err != nil {
		return r, 0, fmt.Errorf("read %s: %w", madeKey, err)
	}
	return r, revision, nil
}

// editMade changes the record by edit, which says whether there is anything to write, and
// tells the other nodes.
func (s *Server) editMade(ctx context.Context, edit func(r *madeRecord) (bool, error)) error {
	var refused error // by edit
	err := s.rewrite(ctx, madeKey, func(ctx context.Context) ([]byte, uint64, error) {
		r, revision, err := s.loadMade(ctx)
		if err != nil {
			return nil, 0, err
		}
		news, err := edit(&r)
		if refused = err; err != nil || !news {
			return nil, 0, nil
		}
		value, err := json.Marshal(r)
		return value, revision, err
	})
	if err != nil {
		return notWritten(err)
	}
	return refused
}

// takeMade puts the limits that were made into force here. The caller holds change, or is alone.
func (s *Server) takeMade(ctx context.Context) error {
	said := s.limits.said.Load()
	r, revision, err := s.loadMade(ctx)
	own, all, newest := r.versions()
	now := takenLimits{revision, newest, said}
	if err != nil || now == s.limits.takenMade ||
		r.before(revision, &s.limits.takenMade, s.limits.madeUpTo) {
		return err
	}
	was, next := *s.limits.made.Load(), map[string]inForce{}
	var wanted map[string]madeLimit
	wanted, s.limits.covered = s.wanted(&r, *said)
	for name, x := range wanted {
		old, ok := was[name]
		if ok && reflect.DeepEqual(old.madeLimit, x) {
			next[name] = old
			continue
		}
		l, style, err := x.limit(name)
		if err == nil {
			err = s.limits.rules.Define(l)
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
		if _, kept := next[name]; !kept && (*said)[name].of == "" {
			_ = s.limits.rules.Remove(name) // it was listed
		}
	}
	s.limits.made.Store(&next)
	s.limits.takenMade, s.limits.madeUpTo = now, [2]uint64{own, all}
	return nil
}

// wanted are the limits that were made and are to be in force, and those that are not, as files
// say something else.
func (s *Server) wanted(
	r *madeRecord, said map[string]saidLimit,
) (all map[string]madeLimit, covered []string) {
	all = maps.Clone(r.All.Limits)
	if all == nil {
		all = map[string]madeLimit{}
	}
	for name, x := range r.Own.Limits {
		if _, twice := all[name]; twice { // made at once in two data centres
			s.log.Warn("a limit of all data centres is not in force here: one of this data centre has its name",
				"limit", name, "hint", "headgate limit remove "+name+" forgets that one")
		}
		all[name] = x
	}
	for name := range all {
		if said[name].of != "" {
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

// whileMaking holds change for what is done to limits that were made, and puts it into force:
// here, and at the other nodes as far as they answer.
func (s *Server) whileMaking(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), changeWait)
	defer stop()
	s.change.Lock()
	err := do(ctx)
	if err == nil {
		if err := s.takeLimits(ctx); err != nil {
			s.log.Warn("limits that were made are kept, and not in force here yet", "error", err)
		}
	}
	s.change.Unlock()
	if err == nil {
		s.makeKnown(ctx)
	}
	return err
}

// makeKnown waits until the other nodes have what is new of limits in force, as far as they answer:
// whoever is told that there is a limit may ask any of them, and another counts the key.
func (s *Server) makeKnown(ctx context.Context) {
	k := s.durable
	if k.bus == nil {
		return
	}
	ctx, stop := context.WithTimeout(ctx, knowWait)
	defer stop()
	var wg sync.WaitGroup
	for _, n := range k.rooms.Nodes() {
		if n.Alive && n.Name != k.node.Node {
			wg.Go(func() {
				if _, err := k.bus.Ask(ctx, knowName+n.Name, nil); err != nil {
					s.log.Info("a node has not said yet that it knows what is new of limits", "node", n.Name, "error", err)
				}
			})
		}
	}
	wg.Wait()
}

// knowLimits answers makeKnown of another node.
func (s *Server) knowLimits(ctx context.Context, _ []byte) []byte {
	s.followLimits(ctx)
	return []byte{1}
}

// ofFile refuses to make or remove a limit that the file or the rules for Envoy have.
func (s *Server) ofFile(name string) error {
	switch {
	case envoys(name):
		return &api.Refused{Why: fmt.Sprintf("limit %q is of the rules for Envoy", name),
			Do: "change those files, and reload"}
	case (*s.limits.said.Load())[name].of != "":
		return &api.Refused{Why: fmt.Sprintf("limit %q stands in the configuration", name),
			Do: "change the file, and reload; headgate limit set changes its amount while it is used"}
	}
	return nil
}

// makeLimit makes a limit, or replaces one that was made. It reports whether it is new.
func (s *Server) makeLimit(ctx context.Context, name string, rule []byte) (made bool, err error) {
	if err := s.ofFile(name); err != nil {
		return false, err
	}
	x := &madeLimit{Rule: rule}
	l, _, err := x.limit(name)
	if err == nil { // as it will be read again
		x.Rule, err = json.Marshal(x.Rule)
	}
	if err != nil {
		return false, err
	}
	s.noteChange(ctx, "", name, nil, api.By(ctx))
	err = s.whileMaking(ctx, func(ctx context.Context) error {
		if err := s.ofFile(name); err != nil { // a reload was faster
			return err
		}
		all := ofAll(saidLimit{LimitConfig: l})
		return s.putMade(ctx, name, all, func(was madeLimit, ok bool) (*madeLimit, error) {
			made = !ok || made && bytes.Equal(was.Rule, x.Rule) // the answer to our own write was lost
			return x, nil
		})
	})
	return made, err
}

// removeLimit removes a limit that was made. It reports whether the file has one of that name,
// which stays in force.
func (s *Server) removeLimit(ctx context.Context, name string) (stays bool, err error) {
	s.noteChange(ctx, "", name, nil, api.By(ctx))
	err = s.whileMaking(ctx, func(ctx context.Context) error {
		r, _, err := s.loadMade(ctx)
		if err != nil {
			return notWritten(err)
		}
		all, ok := r.find(name)
		if !ok {
			if err := s.ofFile(name); err != nil {
				return err
			}
			return fmt.Errorf("%w: %q", headgate.ErrNoLimit, name)
		}
		stays = (*s.limits.said.Load())[name].of != ""
		return s.putMade(ctx, name, all, func(madeLimit, bool) (*madeLimit, error) { return nil, nil })
	})
	return stays, err
}

// changeMade changes a limit that was made, as a change of one of the file is: above what it was
// made of.
func (s *Server) changeMade(ctx context.Context, name string, pairs map[string]string) error {
	return s.whileMaking(ctx, func(ctx context.Context) error {
		r, _, err := s.loadMade(ctx)
		if err != nil {
			return notWritten(err)
		}
		all, _ := r.find(name)
		return s.putMade(ctx, name, all, func(was madeLimit, ok bool) (*madeLimit, error) {
			if !ok {
				return nil, fmt.Errorf("%w: %q", headgate.ErrNoLimit, name)
			}
			x := madeLimit{Rule: was.Rule, Pairs: map[string]string{}}
			maps.Copy(x.Pairs, was.Pairs)
			maps.Copy(x.Pairs, pairs)
			_, _, err := x.limit(name)
			return &x, err
		})
	})
}

// putMade keeps what becomes of a limit, nil for its end, where the limit is decided.
func (s *Server) putMade(
	ctx context.Context, name string, all bool, next func(was madeLimit, ok bool) (*madeLimit, error),
) error {
	if all {
		if home := s.limitHome(saidLimit{}); home != "" {
			return s.putAtHome(ctx, home, name, next)
		}
	}
	return s.editMade(ctx, func(r *madeRecord) (bool, error) {
		set := r.setOf(all)
		was, ok := set.Limits[name]
		_, moves := r.setOf(!all).Limits[name]
		x, err := next(was, ok || moves)
		if err == nil && moves && !ok {
			err = s.moves(r, name, all)
		}
		if err != nil {
			return false, err
		}
		if all {
			r.From = s.durable.about.Datacenter
		}
		return true, set.put(name, x, set.next())
	})
}

// moves ends that a limit is of the other set, or refuses it.
func (s *Server) moves(r *madeRecord, name string, all bool) error {
	if s.durable.linked() {
		return &api.Refused{Why: fmt.Sprintf("limit %q has another scope, which may be in use elsewhere", name),
			Do: "headgate limit remove " + name + ", then make it anew"}
	}
	other := r.setOf(!all)
	return other.put(name, nil, other.next())
}
