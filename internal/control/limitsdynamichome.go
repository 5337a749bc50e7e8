package control

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/headgate/headgate/internal/api"
)

// Limits of all data centres that are made while headgate runs. The home keeps them, as it keeps
// changes; all that it has is one snapshot with one version, which the others copy.

// A dynamicAsk asks the home to keep what becomes of a limit. It is done once, if the version of
// the snapshot is still that of before.
type dynamicAsk struct {
	Was  uint64        `json:"was"`
	Next uint64        `json:"next"`
	Put  *dynamicLimit `json:"put"` // null: it is removed
}

// putAtHome has the home keep what becomes of a limit, and keeps what it has then here.
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
				Reason: "data centre " + home + ", which decides this limit, refuses it: " + told.Refused,
				Do:     "bring the configuration of the data centres in line, and say it again"}
		}
		set = *told.Made
		if set.Version == q.Made.Next && set.has(name, x) {
			return s.adoptDynamic(ctx, home, set)
		}
	}
}

// has reports whether a limit of the set is this one, nil for none.
func (m *dynamicSet) has(name string, x *dynamicLimit) bool {
	y, ok := m.Limits[name]
	if x == nil || !ok {
		return x == nil && !ok
	}
	a, err := json.Marshal(x)
	b, err2 := json.Marshal(y)
	return err == nil && err2 == nil && slices.Equal(a, b)
}

// answerDynamic keeps what another data centre wants to become of a limit, and tells what there is
// then, or why it is refused.
func (s *Limits) answerDynamic(
	ctx context.Context, name string, q *dynamicAsk,
) (told *dynamicSet, refused string, err error) {
	if q.Put != nil {
		err = s.refuseDefined(name)
		if err == nil {
			_, _, err = q.Put.limit(name)
		}
	}
	if err == nil {
		err = s.editDynamic(ctx, func(r *dynamicRecord) (news bool, err error) {
			told = &r.All
			if r.All.Version != q.Was || q.Next <= q.Was || q.Next > mostVersion {
				return false, nil
			}
			if _, own := r.Own.Limits[name]; own && q.Put != nil {
				return false, s.moves(r, name, true) // it has another there
			}
			r.From = s.node.About.Datacenter
			return true, r.All.put(name, q.Put, q.Next)
		})
	}
	if _, ok := errors.AsType[*api.NotPersistedError](err); ok {
		return nil, "", err // it may be done, or not
	}
	if err != nil {
		return nil, err.Error(), nil
	}
	s.TakeNews(ctx)
	s.makeKnown(ctx)
	return told, "", nil
}

// ownDynamic is what this data centre, if it is the home, has made for all; nil for nothing.
func (s *Limits) ownDynamic(ctx context.Context) (*dynamicSet, error) {
	r, _, err := s.dynamicDoc().Load(ctx)
	if err != nil || r.All.Version == 0 || s.home(Definition{}) != "" {
		return nil, err
	}
	return &r.All, nil
}

// adoptDynamic keeps what the home has made for all, if it is newer, or the home another one.
func (s *Limits) adoptDynamic(ctx context.Context, from string, set dynamicSet) error {
	return s.editDynamic(ctx, func(r *dynamicRecord) (bool, error) {
		if s.home(Definition{}) != from || r.From == from && set.Version <= r.All.Version {
			return false, nil
		}
		r.All, r.From = set, from
		return true, nil
	})
}
