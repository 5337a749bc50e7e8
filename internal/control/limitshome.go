package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/store"
)

// Changes of limits that all data centres share. The home decides such a limit and keeps what
// is changed of it; a change that is said elsewhere is asked of it. The others have a copy,
// which they find among what data centres ask each other.

// Parameters of a change in another data centre. Chosen: as long as a change of a room.
const (
	homeWait = 5 * time.Second
	linkWait = 1500 * time.Millisecond // for the own link, then the other nodes try theirs
)

// Names of what is asked: of the home on a link, and of the own store nodes.
const (
	changeName = ".limit"
	passName   = "limit-at-home"
)

// A limitAsk asks the home for a change of a limit. All its nodes hear it, and may do so twice:
// it is done once, if the version before is still in force.
type limitAsk struct {
	Name string      `json:"name"`
	Was  uint64      `json:"was"`
	Next limitChange `json:"next"` // Of is of who asks: the home does not look at it
	By   string      `json:"by,omitempty"`
	// Made asks for a limit that is made, in place of the others.
	Made *dynamicAsk `json:"made,omitempty"`
}

// A limitAnswer is what is in force then, or why nothing can be changed.
type limitAnswer struct {
	Now     limitChange `json:"now"`
	Made    *dynamicSet `json:"made,omitempty"`
	Refused string      `json:"refused,omitempty"`
}

// A sharedLimit is what was changed of a limit of all data centres.
type sharedLimit struct {
	Name    string            `json:"name"`
	Version uint64            `json:"version"`
	Pairs   map[string]string `json:"pairs"`
}

// ofAll reports whether all data centres share a limit.
func ofAll(f Definition) bool { return f.Scope == headgate.ScopeGlobal || f.Scope == "" }

// home is the other data centre that decides a limit, "" if it is this one.
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

// changeAtHome has the home keep a change, and keeps what is in force then here.
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
				Reason: "data centre " + home + ", which decides this limit, refuses the change: " + told.Refused,
				Do:     "bring the configuration of the data centres in line, and say it again"}
		}
		was = told.Now
		was.Of = f.hash
		if was.Version == q.Next.Version && maps.Equal(was.Pairs, q.Next.Pairs) {
			return s.adoptChanges(ctx, []sharedLimit{{f.Name, was.Version, was.Pairs}})
		}
	}
}

// askHome asks the home by the link of this node, else by those of the others.
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
			Reason: "this limit is decided in data centre " + home + ", which does not answer",
			Do: "see that the data centres reach each other (headgate doctor), look whether the " +
				"change is in force, and say it again"}
	}
	return told, err
}

// askByLink asks by the link of this node.
func (s *Limits) askByLink(ctx context.Context, home string, msg []byte) ([]byte, error) {
	if s.node.Engine == nil {
		return nil, store.ErrNoResponder
	}
	ctx, stop := context.WithTimeout(ctx, linkWait)
	defer stop()
	return store.NewBus(s.node.Engine.Link(home)).Request(ctx, home+changeName, msg)
}

// serve passes on, until stop, what nodes of this data centre ask of the home.
func (s *Limits) serve() (stop func(), err error) {
	return s.node.Bus.Serve(passName, func(ctx context.Context, msg []byte) []byte {
		home := s.node.Rooms.AnywhereHome()
		if home == s.node.Config.Datacenters.Own {
			return nil
		}
		b, err := s.askByLink(ctx, home, msg)
		if err != nil {
			return nil // another node may have a link
		}
		return b
	})
}

// answer does what another data centre asks of the home. It answers nothing where that is
// not, or while nothing can be written.
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

// fits reports why a limit cannot be changed so.
func fits(f Definition, pairs map[string]string) error {
	c := f.LimitConfig
	if err := api.SetLimit(&c, pairs); err != nil {
		return err
	}
	_, err := headgate.NewLimiter(headgate.LimiterConfig{Limits: []headgate.LimitConfig{c}})
	return err
}

// ownChanges is what this data centre, if it is the home, has changed of limits of all.
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

// takeShared keeps what another data centre has changed of limits, if it is the home.
func (s *Limits) takeShared(ctx context.Context, from string, all []sharedLimit) error {
	if len(all) == 0 || from != s.node.Rooms.AnywhereHome() {
		return nil
	}
	return s.adoptChanges(ctx, all)
}

// adoptChanges keeps what the home has changed, as far as it is newer.
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
