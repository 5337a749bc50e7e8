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

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/ratelimit"
)

// dynamicKey is the key of the record with the dynamic limits: those that were made with the API
// while headgate runs. All nodes of a data center follow it. If a file has a limit of the same
// name, the one of the file is in force.
const dynamicKey = "limits-made"

// Limits for the dynamic limits, for one data center and for all data centers each. Chosen: as many
// as in the file, and a share has room for them (mostShare).
const (
	mostDynamic      = 1000
	mostDynamicBytes = 128 << 10
)

// knowWait is how long the creator of a limit waits at most until the other nodes know the limit.
// Chosen: less than linkWait.
const knowWait = time.Second

// knowName, followed by the name of a node, is the name of a request to that node. The node first
// takes the newest limits and then answers.
const knowName = "limits-known."

// A dynamicLimit is a limit that was made with the API, and its live changes since.
type dynamicLimit struct {
	Rule  json.RawMessage   `json:"rule"` // in the form of the file
	Pairs map[string]string `json:"pairs,omitempty"`
}

// limit returns the configuration of the limit, and the style of its response headers.
func (x *dynamicLimit) limit(name string) (l ratelimit.Limit, style ratelimit.HeaderStyle, err error) {
	c, err := config.ParseLimit(name, x.Rule)
	if err != nil {
		return l, "", err
	}
	l = limitConfig(c)
	if err = api.SetLimit(&l, x.Pairs); err == nil {
		_, err = ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{l}})
	}
	return l, ratelimit.HeaderStyle(c.Headers), err
}

// A dynamicSet is a snapshot of dynamic limits, by name.
type dynamicSet struct {
	// Version is the time of the write in ms since 1970, or one more than the previous version if
	// that is later.
	Version uint64                  `json:"version,omitempty"`
	Limits  map[string]dynamicLimit `json:"limits,omitempty"`
}

// next returns the version for the next write.
func (m *dynamicSet) next() uint64 { return max(uint64(time.Now().UnixMilli()), m.Version+1) }

// put sets a limit in the set, or removes it if x is nil. It does not change the old map.
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

// A dynamicRecord is all dynamic limits that a data center stores.
type dynamicRecord struct {
	Own dynamicSet `json:"own"` // of this data center, or of each process
	All dynamicSet `json:"all"` // of all data centers: a copy from the home
	// From is the data center from which All comes; it is this one if it was the home.
	From string `json:"from,omitempty"`
}

// setOf returns the set of all data centers or the own set.
func (r *dynamicRecord) setOf(all bool) *dynamicSet {
	if all {
		return &r.All
	}
	return &r.Own
}

// find reports whether a set has a limit, and whether it is the set of all data centers.
func (r *dynamicRecord) find(name string) (all, ok bool) {
	if _, ok = r.Own.Limits[name]; ok {
		return false, true
	}
	_, ok = r.All.Limits[name]
	return true, ok
}

// versions returns the versions of both sets, and the newer one.
func (r *dynamicRecord) versions() (own, all, newest uint64) {
	return r.Own.Version, r.All.Version, max(r.Own.Version, r.All.Version)
}

// before reports whether a record is older than the state in force. A suspended former leader of
// the store may return an old record. Limits in force must not be removed for it, because with a
// limit the usage of its keys is lost. The version of All may fall if the home of all data centers
// has changed and the new home has made fewer limits.
func (r *dynamicRecord) before(revision uint64, taken *taken, upTo [2]uint64) bool {
	own, all, newest := r.versions()
	return own < upTo[0] || all == 0 && upTo[1] > 0 || taken.isAfter(revision, newest)
}

// inForce is a dynamic limit as it is in force here.
type inForce struct {
	dynamicLimit
	style ratelimit.HeaderStyle
}

// dynamicDoc returns the record with the dynamic limits.
func (s *Limits) dynamicDoc() *store.Doc[dynamicRecord] {
	return &store.Doc[dynamicRecord]{Store: s.node.Records, Key: dynamicKey, Try: editTry,
		Lost: func(err error) {
			s.log.Error("limits that were made are lost: make them again", "error", err)
		},
		Bus: s.node.Bus, Topic: LimitsTopic, Log: s.log,
	}
}

// editDynamic changes the record by calling edit, which reports whether there is anything to write.
// It publishes the change to the other nodes and data centers.
func (s *Limits) editDynamic(ctx context.Context, edit func(r *dynamicRecord) (bool, error)) error {
	var refused error // the error of edit
	written := false
	_, err := s.dynamicDoc().Edit(ctx, func(r *dynamicRecord) (bool, error) {
		written, refused = edit(r)
		return written && refused == nil, nil
	})
	switch {
	case err != nil:
		return notWritten(err)
	case refused == nil && written:
		s.node.PublishToDatacenters()
	}
	return refused
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

// answerKnown answers the request of another node's makeKnown.
func (s *Limits) answerKnown(ctx context.Context, _ []byte) []byte {
	s.TakeNews(ctx)
	return []byte{1}
}

// refuseDefined returns an error if a limit is in the file or in the rules for Envoy, where it must
// not be made or removed with the API.
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

// Make makes a dynamic limit, or replaces one. It reports whether the limit is new.
func (s *Limits) Make(ctx context.Context, name string, rule []byte) (made bool, err error) {
	if err := s.refuseDefined(name); err != nil {
		return false, err
	}
	x := &dynamicLimit{Rule: rule}
	l, _, err := x.limit(name)
	if err == nil { // in the form in which it will be read again
		x.Rule, err = json.Marshal(x.Rule)
	}
	if err != nil {
		return false, err
	}
	s.note(ctx, "", name, nil, api.Actor(ctx))
	err = s.inTurn(ctx, func(ctx context.Context) error {
		if err := s.refuseDefined(name); err != nil { // a reload was first
			return err
		}
		all := ofAll(Definition{Limit: l})
		return s.putDynamic(ctx, name, all, func(was dynamicLimit, ok bool) (*dynamicLimit, error) {
			made = !ok ||
				made && bytes.Equal(was.Rule, x.Rule) // an equal rule: the answer to our own write was lost
			return x, nil
		})
	})
	return made, err
}

// Remove removes a dynamic limit. It reports whether the file has a limit of that name, which stays
// in force.
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
			return fmt.Errorf("%w: %q", ratelimit.ErrNoLimit, name)
		}
		stays = (*s.defined.Load())[name].hash != ""
		gone := func(dynamicLimit, bool) (*dynamicLimit, error) { return nil, nil }
		return s.putDynamic(ctx, name, all, gone)
	})
	return stays, err
}

// changeDynamic changes values of a dynamic limit. Like a live change of a limit in the file, the
// change is stored on top of the rule.
func (s *Limits) changeDynamic(ctx context.Context, name string, pairs map[string]string) error {
	return s.inTurn(ctx, func(ctx context.Context) error {
		r, _, err := s.dynamicDoc().Load(ctx)
		if err != nil {
			return notWritten(err)
		}
		all, _ := r.find(name)
		return s.putDynamic(ctx, name, all, func(was dynamicLimit, ok bool) (*dynamicLimit, error) {
			if !ok {
				return nil, fmt.Errorf("%w: %q", ratelimit.ErrNoLimit, name)
			}
			x := dynamicLimit{Rule: was.Rule, Pairs: map[string]string{}}
			maps.Copy(x.Pairs, was.Pairs)
			maps.Copy(x.Pairs, pairs)
			_, _, err := x.limit(name)
			return &x, err
		})
	})
}

// putDynamic stores the new state of a limit where the limit is decided. next returns that state,
// or nil to remove the limit.
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

// moves removes a limit from the other set, or returns an error if that is not allowed.
func (s *Limits) moves(r *dynamicRecord, name string, all bool) error {
	if s.node.Linked() {
		return &api.RejectedError{
			Reason: fmt.Sprintf("limit %q has another scope, which may be in use elsewhere", name),
			Do:     "headgate limit remove " + name + ", then make it anew",
		}
	}
	other := r.setOf(!all)
	return other.put(name, nil, other.next())
}
