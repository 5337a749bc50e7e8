package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/ratelimit"
)

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

// A sharedLimit is the live changes of a limit of all data centers.
type sharedLimit struct {
	Name    string            `json:"name"`
	Version uint64            `json:"version"`
	Pairs   map[string]string `json:"pairs"`
}
