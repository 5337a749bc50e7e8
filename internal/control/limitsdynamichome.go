package control

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/headgate/headgate/internal/api"
)

// The home stores the dynamic limits of all data centers, as it stores their live changes. All of
// them are one snapshot with one version, which the other data centers copy.

// A dynamicAsk asks the home to store the new state of a limit. The home does so once, if its
// snapshot still has the version Was.
type dynamicAsk struct {
	Was  uint64        `json:"was"`
	Next uint64        `json:"next"`
	Put  *dynamicLimit `json:"put"` // null: remove it
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

// has reports whether the set has a limit with this state; nil means that it does not have the
// limit.
func (m *dynamicSet) has(name string, x *dynamicLimit) bool {
	y, ok := m.Limits[name]
	if x == nil || !ok {
		return x == nil && !ok
	}
	a, err := json.Marshal(x)
	b, err2 := json.Marshal(y)
	return err == nil && err2 == nil && slices.Equal(a, b)
}

// answerDynamic stores the state of a limit that another data center requests. It returns the
// resulting snapshot, or the reason for a rejection.
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
				return false, s.moves(r, name, true) // it has a limit of its own with that name
			}
			r.From = s.node.About.Datacenter
			return true, r.All.put(name, q.Put, q.Next)
		})
	}
	if _, ok := errors.AsType[*api.NotPersistedError](err); ok {
		return nil, "", err // it may or may not have been written
	}
	if err != nil {
		return nil, err.Error(), nil
	}
	s.TakeNews(ctx)
	s.makeKnown(ctx)
	return told, "", nil
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
