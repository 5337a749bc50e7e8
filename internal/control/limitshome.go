package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/ratelimit"
)

// The home decides the limits that all data centers share, and stores their live changes. Another
// data center sends its change to the home as a request. The others have copies, which come with
// the shares.

// Parameters of a change in another data center. Chosen: as long as a change of a room.
const (
	homeWait = 5 * time.Second
	linkWait = 1500 * time.Millisecond // for the own link; then other nodes try theirs
)

// Names of the requests: to the home on a link, and to the own store nodes.
const (
	changeName = ".limit"
	passName   = "limit-at-home"
)

// A limitAsk asks the home to change a limit. All nodes of the home receive it, so it may be
// handled more than once. It takes effect once, if the version Was is still in force.
type limitAsk struct {
	Name string      `json:"name"`
	Was  uint64      `json:"was"`
	Next limitChange `json:"next"` // the home ignores Of, which is from the sender
	By   string      `json:"by,omitempty"`
	// Made requests a dynamic limit instead of a change.
	Made *dynamicAsk `json:"made,omitempty"`
}

// A limitAnswer is what is in force after a request, or why the change was rejected.
type limitAnswer struct {
	Now     limitChange `json:"now"`
	Made    *dynamicSet `json:"made,omitempty"`
	Refused string      `json:"refused,omitempty"`
}

// A sharedLimit is the live changes of a limit of all data centers.
type sharedLimit struct {
	Name    string            `json:"name"`
	Version uint64            `json:"version"`
	Pairs   map[string]string `json:"pairs"`
}

// ofAll reports whether all data centers share a limit.
func ofAll(f Definition) bool { return f.Scope == ratelimit.ScopeGlobal || f.Scope == "" }

// home returns the other data center that decides a limit, or "" if this one does.
func (s *Limits) home(f Definition) string {
	k := s.node
	if !k.Linked() || !ofAll(f) {
		return ""
	}
	if home := k.Rooms.AnywhereHome(); home != k.Config.Datacenters.Own {
		return home
	}
	return ""
}

// changeAtHome sends a change to the home. Then it stores the state of the home here.
func (s *Limits) changeAtHome(
	ctx context.Context, home string, f Definition, pairs map[string]string,
) error {
	ctx, stop := context.WithTimeout(ctx, homeWait)
	defer stop()
	live, _, err := s.changes().Load(ctx)
	if err != nil {
		return err
	}
	was := live[f.Name]
	for {
		q := limitAsk{Name: f.Name, Was: was.Version, Next: was.next(f, pairs)}
		told, err := s.askHome(ctx, home, &q)
		if err != nil {
			return err
		}
		if told.Refused != "" {
			return &api.NotPersistedError{Err: errors.New(told.Refused),
				Reason: "data center " + home + ", which decides this limit, refuses the change: " + told.Refused,
				Do:     "make the configurations of the data centers agree, and repeat the change"}
		}
		was = told.Now
		was.Of = f.hash
		if was.Version == q.Next.Version && maps.Equal(was.Pairs, q.Next.Pairs) {
			return s.adoptChanges(ctx, []sharedLimit{{f.Name, was.Version, was.Pairs}})
		}
	}
}

// askHome sends a request to the home, through the link of this node or, if that fails, through
// those of the other nodes.
func (s *Limits) askHome(ctx context.Context, home string, q *limitAsk) (told limitAnswer, err error) {
	q.By = api.Actor(ctx)
	msg, err := json.Marshal(q)
	if err != nil {
		return told, err
	}
	b, err := s.askByLink(ctx, home, msg)
	if err != nil {
		b, err = s.node.Bus.Request(ctx, passName, msg)
	}
	if err == nil {
		err = json.Unmarshal(b, &told)
	}
	if err != nil {
		err = &api.NotPersistedError{Err: err,
			Reason: "this limit is decided in data center " + home + ", which does not answer",
			Do: "check that the data centers reach each other (headgate doctor) and whether the " +
				"change is in force, and repeat it if not"}
	}
	return told, err
}

// askByLink sends a request to the home through the link of this node.
func (s *Limits) askByLink(ctx context.Context, home string, msg []byte) ([]byte, error) {
	if s.node.Engine == nil {
		return nil, store.ErrNoResponder
	}
	ctx, stop := context.WithTimeout(ctx, linkWait)
	defer stop()
	return store.NewBus(s.node.Engine.Link(home)).Request(ctx, home+changeName, msg)
}

// serve forwards requests from nodes of this data center to the home, until stop is called.
func (s *Limits) serve() (stop func(), err error) {
	return s.node.Bus.Serve(passName, func(ctx context.Context, msg []byte) []byte {
		home := s.node.Rooms.AnywhereHome()
		if home == s.node.Config.Datacenters.Own {
			return nil
		}
		b, err := s.askByLink(ctx, home, msg)
		if err != nil {
			return nil // another node may have a working link
		}
		return b
	})
}

// answer handles a request of another data center. It returns nil for no answer if this is not the
// home, or while it cannot write.
func (s *Limits) answer(ctx context.Context, msg []byte) []byte {
	ctx, stop := context.WithTimeout(ctx, homeWait)
	defer stop()
	var q limitAsk
	if json.Unmarshal(msg, &q) != nil {
		return nil
	}
	f, ok := (*s.defined.Load())[q.Name]
	if s.home(f) != "" {
		return nil
	}
	var told limitAnswer
	s.note(ctx, "", q.Name, nil, q.By)
	switch err := fits(f, q.Next.Pairs); {
	case q.Made != nil:
		if told.Made, told.Refused, err = s.answerDynamic(ctx, q.Name, q.Made); err != nil {
			return nil
		}
	case !ok:
		told.Refused = fmt.Sprintf("its configuration has no limit %q", q.Name)
	case err != nil:
		told.Refused = err.Error()
	default:
		err := s.editChanges(ctx, func(live map[string]limitChange) bool {
			x := live[q.Name]
			told.Now = limitChange{Version: x.Version, Pairs: x.under(f)}
			if x.Version != q.Was {
				return false
			}
			told.Now = limitChange{Pairs: q.Next.Pairs, Version: q.Next.Version}
			live[q.Name] = limitChange{Of: f.hash, Pairs: q.Next.Pairs, Version: q.Next.Version}
			return true
		})
		if errors.Is(err, errChanges) {
			told.Refused = err.Error()
		} else if err != nil {
			return nil
		}
	}
	b, err := json.Marshal(told)
	if err != nil {
		return nil
	}
	return b
}

// fits returns an error if a change does not fit a limit.
func fits(f Definition, pairs map[string]string) error {
	c := f.Limit
	if err := api.SetLimit(&c, pairs); err != nil {
		return err
	}
	_, err := ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{c}})
	return err
}

// ownChanges returns the live changes of the limits that all data centers share, if this is the
// home.
func (s *Limits) ownChanges(ctx context.Context) (all []sharedLimit, err error) {
	live, _, err := s.changes().Load(ctx)
	if err != nil {
		return nil, err
	}
	for name, x := range live {
		f, ok := (*s.defined.Load())[name]
		if ok && x.Version > 0 && x.Of == f.hash && ofAll(f) && s.home(f) == "" {
			all = append(all, sharedLimit{name, x.Version, x.Pairs})
		}
	}
	return all, nil
}

// takeShared stores the changes of limits from another data center if that is the home.
func (s *Limits) takeShared(ctx context.Context, from string, all []sharedLimit) error {
	if len(all) == 0 || from != s.node.Rooms.AnywhereHome() {
		return nil
	}
	return s.adoptChanges(ctx, all)
}

// adoptChanges stores the changes of the home that are newer.
func (s *Limits) adoptChanges(ctx context.Context, all []sharedLimit) error {
	return s.editChanges(ctx, func(live map[string]limitChange) (newer bool) {
		for _, x := range all {
			f, ok := (*s.defined.Load())[x.Name]
			if !ok || s.home(f) == "" || x.Version <= live[x.Name].Version {
				continue
			}
			live[x.Name], newer = limitChange{Of: f.hash, Pairs: x.Pairs, Version: x.Version}, true
		}
		return newer
	})
}
