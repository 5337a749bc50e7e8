package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/ratelimit"
)

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

// putAtHome sends the new state of a limit to the home. Then it stores the snapshot of the home
// here.
func (s *Limits) putAtHome(
	ctx context.Context, home, name string, next func(was dynamicLimit, ok bool) (*dynamicLimit, error),
) error {
	ctx, stop := context.WithTimeout(ctx, homeWait)
	defer stop()
	r, _, err := s.dynamicDoc().Load(ctx)
	if err != nil {
		return notWritten(err)
	}
	_, own := r.Own.Limits[name]
	for set := r.All; ; {
		was, ok := set.Limits[name]
		x, err := next(was, ok)
		if err == nil && own && !ok {
			err = s.moves(&r, name, true)
		}
		if err != nil {
			return err
		}
		q := limitAsk{Name: name, Made: &dynamicAsk{Was: set.Version, Next: set.next(), Put: x}}
		told, err := s.askHome(ctx, home, &q)
		switch {
		case err != nil:
			return err
		case told.Refused != "" || told.Made == nil:
			return &api.RejectedError{
				Reason: "data center " + home + ", which decides this limit, refuses it: " + told.Refused,
				Do:     "make the configurations of the data centers agree, and repeat the change"}
		}
		set = *told.Made
		if set.Version == q.Made.Next && set.has(name, x) {
			return s.adoptDynamic(ctx, home, set)
		}
	}
}

// answerKnown answers the request of another node's makeKnown.
func (s *Limits) answerKnown(ctx context.Context, _ []byte) []byte {
	s.TakeNews(ctx)
	return []byte{1}
}
