package control

import (
	"bytes"
	"context"
	"encoding/json"
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

// dynamicKey is the record of limits that were made while headgate runs, by the API. All nodes of
// a data centre follow it. Of a name that the file has too the file's is in force.
const dynamicKey = "limits-made"

// Bounds of limits that were made, of a data centre and of all data centres each. Chosen: as
// many as in the file, and what data centres tell each other has room for it (mostShare).
const (
	mostDynamic      = 1000
	mostDynamicBytes = 128 << 10
)

// knowWait bounds how long who makes a limit waits until the other nodes know it, too. Chosen:
// less than linkWait.
const knowWait = time.Second

// knowName is asked of each node, with its name behind it: it takes what is new of limits first.
const knowName = "limits-known."

// A dynamicLimit is a limit that was made, and what was changed of it since.
type dynamicLimit struct {
	Rule  json.RawMessage   `json:"rule"` // as the file has it
	Pairs map[string]string `json:"pairs,omitempty"`
}

// limit is the limit, and how answers tell of it.
func (x *dynamicLimit) limit(name string) (l headgate.LimitConfig, style headgate.HeaderStyle, err error) {
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

// A dynamicSet is a snapshot of limits that were made, by name.
type dynamicSet struct {
	// Version is when it was written, in ms since 1970, or one more than the version before.
	Version uint64                  `json:"version,omitempty"`
	Limits  map[string]dynamicLimit `json:"limits,omitempty"`
}

// next is the version after it.
func (m *dynamicSet) next() uint64 { return max(uint64(time.Now().UnixMilli()), m.Version+1) }

// put puts a limit into the set, nil for none. The map before stays as it is.
func (m *dynamicSet) put(name string, x *dynamicLimit, version uint64) error {
	m.Version, m.Limits = version, maps.Clone(m.Limits)
	delete(m.Limits, name)
	if x == nil {
		return nil
	}
	if m.Limits == nil {
		m.Limits = map[string]dynamicLimit{}
	}
	m.Limits[name] = *x
	b, err := json.Marshal(m)
	if err == nil && (len(m.Limits) > mostDynamic || len(b) > mostDynamicBytes) {
		err = &api.RejectedError{
			Reason: fmt.Sprintf("limits that were made would be more than %d, or larger than %d KB together",
				mostDynamic, mostDynamicBytes>>10),
			Do: "remove some (headgate limit remove NAME); what stays for good belongs into the configuration"}
	}
	return err
}

// A dynamicRecord is all limits that were made, as one data centre keeps them.
type dynamicRecord struct {
	Own dynamicSet `json:"own"` // of this data centre, or of each process
	All dynamicSet `json:"all"` // of all data centres: a copy of what the home has
	// From is the data centre that has told All, this one if it was the home.
	From string `json:"from,omitempty"`
}

// setOf is the set that a limit belongs to.
func (r *dynamicRecord) setOf(all bool) *dynamicSet {
	if all {
		return &r.All
	}
	return &r.Own
}

// find tells which set has a limit.
func (r *dynamicRecord) find(name string) (all, ok bool) {
	if _, ok = r.Own.Limits[name]; ok {
		return false, true
	}
	_, ok = r.All.Limits[name]
	return true, ok
}

// versions are those of the record: of each of its sets, and the newest.
func (r *dynamicRecord) versions() (own, all, newest uint64) {
	return r.Own.Version, r.All.Version, max(r.Own.Version, r.All.Version)
}

// before reports whether a record is older than the one that was taken: a leader of the
// store that stood still, and is none any more, may tell what it knew. Nothing that is in force is
// removed for that, for with a limit all would go that its keys have used. The home of all data
// centers may be another now, which made fewer.
func (r *dynamicRecord) before(revision uint64, taken *taken, upTo [2]uint64) bool {
	own, all, newest := r.versions()
	return own < upTo[0] || all == 0 && upTo[1] > 0 || taken.isAfter(revision, newest)
}

// inForce is a limit that was made, as it is in force here.
type inForce struct {
	dynamicLimit
	style headgate.HeaderStyle
}

// dynamicDoc is the record of dynamic limits.
func (s *Limits) dynamicDoc() *store.Doc[dynamicRecord] {
	return &store.Doc[dynamicRecord]{Store: s.node.Records, Key: dynamicKey, Try: editTry,
		Lost: func(err error) {
			s.log.Error("limits that were made are lost: make them again", "error", err)
		},
		Bus: s.node.Bus, Topic: LimitsTopic, Log: s.log,
	}
}

// editDynamic changes the record by edit, which reports whether there is anything to write, and
// tells the other nodes and data centers.
func (s *Limits) editDynamic(ctx context.Context, edit func(r *dynamicRecord) (bool, error)) error {
	var refused error // by edit
	written := false
	_, err := s.dynamicDoc().Edit(ctx, func(r *dynamicRecord) (bool, error) {
		written, refused = edit(r)
		return written && refused == nil, nil
	})
	switch {
	case err != nil:
		return notWritten(err)
	case refused == nil && written:
		s.node.TellDatacenters()
	}
	return refused
}

// takeDynamic puts the limits that were made into force here. The caller holds change, or is alone.
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
			err = s.Rules.Define(l)
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
			_ = s.Rules.Remove(name) // it was listed
		}
	}
	s.dynamic.Store(&next)
	s.takenDynamic, s.dynamicUpTo = now, [2]uint64{own, all}
	return nil
}

// wanted are the limits that were made and are to be in force, and those that are not, as files
// say something else.
func (s *Limits) wanted(
	r *dynamicRecord, defined map[string]Definition,
) (all map[string]dynamicLimit, covered []string) {
	all = maps.Clone(r.All.Limits)
	if all == nil {
		all = map[string]dynamicLimit{}
	}
	for name, x := range r.Own.Limits {
		if _, twice := all[name]; twice { // made at once in two data centres
			s.log.Warn("a limit of all data centres is not in force here: one of this data centre has its name",
				"limit", name, "hint", "headgate limit remove "+name+" forgets that one")
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

// inTurn holds change for what is done to limits that were made, and puts it into force:
// here, and at the other nodes as far as they answer.
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

// makeKnown waits until the other nodes have what is new of limits in force, as far as they answer:
// whoever is told that there is a limit may ask any of them, and another counts the key.
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
					s.log.Info("a node has not said yet that it knows what is new of limits", "node", n.Name, "error", err)
				}
			})
		}
	}
	wg.Wait()
}

// answerKnown answers makeKnown of another node.
func (s *Limits) answerKnown(ctx context.Context, _ []byte) []byte {
	s.TakeNews(ctx)
	return []byte{1}
}

// refuseDefined refuses to make or remove a limit that the file or the rules for Envoy have.
func (s *Limits) refuseDefined(name string) error {
	switch {
	case IsEnvoys(name):
		return &api.RejectedError{Reason: fmt.Sprintf("limit %q is of the rules for Envoy", name),
			Do: "change those files, and reload"}
	case (*s.defined.Load())[name].hash != "":
		return &api.RejectedError{Reason: fmt.Sprintf("limit %q stands in the configuration", name),
			Do: "change the file, and reload; headgate limit set changes its amount while it is used"}
	}
	return nil
}

// Make makes a limit, or replaces one that was made. It reports whether it is new.
func (s *Limits) Make(ctx context.Context, name string, rule []byte) (made bool, err error) {
	if err := s.refuseDefined(name); err != nil {
		return false, err
	}
	x := &dynamicLimit{Rule: rule}
	l, _, err := x.limit(name)
	if err == nil { // as it will be read again
		x.Rule, err = json.Marshal(x.Rule)
	}
	if err != nil {
		return false, err
	}
	s.note(ctx, "", name, nil, api.Actor(ctx))
	err = s.inTurn(ctx, func(ctx context.Context) error {
		if err := s.refuseDefined(name); err != nil { // a reload was faster
			return err
		}
		all := ofAll(Definition{LimitConfig: l})
		return s.putDynamic(ctx, name, all, func(was dynamicLimit, ok bool) (*dynamicLimit, error) {
			made = !ok || made && bytes.Equal(was.Rule, x.Rule) // the answer to our own write was lost
			return x, nil
		})
	})
	return made, err
}

// Remove removes a limit that was made. It reports whether the file has one of that name,
// which stays in force.
func (s *Limits) Remove(ctx context.Context, name string) (stays bool, err error) {
	s.note(ctx, "", name, nil, api.Actor(ctx))
	err = s.inTurn(ctx, func(ctx context.Context) error {
		r, _, err := s.dynamicDoc().Load(ctx)
		if err != nil {
			return notWritten(err)
		}
		all, ok := r.find(name)
		if !ok {
			if err := s.refuseDefined(name); err != nil {
				return err
			}
			return fmt.Errorf("%w: %q", headgate.ErrNoLimit, name)
		}
		stays = (*s.defined.Load())[name].hash != ""
		gone := func(dynamicLimit, bool) (*dynamicLimit, error) { return nil, nil }
		return s.putDynamic(ctx, name, all, gone)
	})
	return stays, err
}

// changeDynamic changes a limit that was made, as a change of one of the file is: above what it was
// made of.
func (s *Limits) changeDynamic(ctx context.Context, name string, pairs map[string]string) error {
	return s.inTurn(ctx, func(ctx context.Context) error {
		r, _, err := s.dynamicDoc().Load(ctx)
		if err != nil {
			return notWritten(err)
		}
		all, _ := r.find(name)
		return s.putDynamic(ctx, name, all, func(was dynamicLimit, ok bool) (*dynamicLimit, error) {
			if !ok {
				return nil, fmt.Errorf("%w: %q", headgate.ErrNoLimit, name)
			}
			x := dynamicLimit{Rule: was.Rule, Pairs: map[string]string{}}
			maps.Copy(x.Pairs, was.Pairs)
			maps.Copy(x.Pairs, pairs)
			_, _, err := x.limit(name)
			return &x, err
		})
	})
}

// putDynamic keeps what becomes of a limit, nil for its end, where the limit is decided.
func (s *Limits) putDynamic(
	ctx context.Context, name string, all bool, next func(was dynamicLimit, ok bool) (*dynamicLimit, error),
) error {
	if all {
		if home := s.home(Definition{}); home != "" {
			return s.putAtHome(ctx, home, name, next)
		}
	}
	return s.editDynamic(ctx, func(r *dynamicRecord) (bool, error) {
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
			r.From = s.node.About.Datacenter
		}
		return true, set.put(name, x, set.next())
	})
}

// moves ends that a limit is of the other set, or refuses it.
func (s *Limits) moves(r *dynamicRecord, name string, all bool) error {
	if s.node.Linked() {
		return &api.RejectedError{Reason: fmt.Sprintf("limit %q has another scope, which may be in use elsewhere", name),
			Do: "headgate limit remove " + name + ", then make it anew"}
	}
	other := r.setOf(!all)
	return other.put(name, nil, other.next())
}
