package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/ratelimit"
)

// Change stores a live change of a limit and puts it into force: first where the limit is decided,
// then here.
func (s *Limits) Change(ctx context.Context, name string, pairs map[string]string) error {
	keys := []string{}
	for key := range pairs {
		key, _, _ = strings.Cut(key, ".") // overrides.bob
		keys = append(keys, key)
	}
	s.note(ctx, "", name, keys, api.Actor(ctx))
	if _, made := (*s.dynamic.Load())[name]; made {
		return s.changeDynamic(ctx, name, pairs)
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), ChangeWait)
	defer stop()
	f, ok := (*s.defined.Load())[name]
	if !ok { // a call defined it, so only this process has it
		return s.Rules.Update(name, func(l *ratelimit.Limit) error {
			return api.SetLimit(l, pairs)
		})
	}
	var err error
	if home := s.home(f); home != "" {
		err = s.changeAtHome(ctx, home, f, pairs)
	} else {
		err = s.editChanges(ctx, func(live map[string]limitChange) bool {
			live[name] = live[name].next(f, pairs)
			return true
		})
	}
	if errors.Is(err, errChanges) {
		return &api.NotPersistedError{
			Err:    err,
			Reason: "the change is not kept, and not in force: there are too many",
			Do:     "write overrides into the configuration, and reload: that drops the changes of a limit",
		}
	}
	if _, ok := errors.AsType[*api.NotPersistedError](err); err != nil && !ok {
		err = notWritten(err)
	}
	if err != nil {
		return err
	}
	if err = s.Take(ctx); err != nil {
		s.log.Warn("change of a limit is kept, and not in force here yet", "limit", name, "error", err)
	}
	return nil
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

// Follow puts the changes of other nodes into force here, until ctx ends.
func (s *Limits) Follow(ctx context.Context) error {
	if s.node.Bus == nil {
		return nil
	}
	stop, err := s.node.Bus.Serve(knowName+s.node.Config.Node, s.answerKnown)
	if err != nil {
		return err
	}
	defer stop()
	return store.Follow(ctx, s.node.Bus, LimitsTopic, FollowEvery, func([]byte) { s.TakeNews(ctx) })
}
