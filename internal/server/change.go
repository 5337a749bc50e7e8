package server

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/internal/invite"
	"github.com/headgate/headgate/internal/store"
)

// Change implements api.Process: it sets keys of a room while visitors are inside. The change is
// stored before it takes effect.
func (s *Server) Change(
	ctx context.Context, room string, pairs map[string]string, by string,
) (api.ChangeResult, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	set := s.set.Load()
	g := set.find(room)
	switch {
	case s.crew == nil:
		return api.ChangeResult{}, api.ErrBusy
	case g == nil:
		return api.ChangeResult{}, api.ErrNoRoom
	case g.damaged():
		return api.ChangeResult{}, api.ErrDamaged
	}
	if g.made != nil {
		return s.changeDynamicRoom(ctx, g, pairs, by)
	}
	// The client may disconnect; a change must not stop half done.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), control.ChangeWait)
	defer stop()
	next := *g
	now, live, err := control.Amend(&g.file, g.live, pairs)
	if err != nil {
		return api.ChangeResult{}, err
	}
	next.now, next.live = *now, nil
	if len(live) > 0 {
		next.live = &api.Live{Pairs: live, At: time.Now().UTC(), By: by}
	}
	s.noteChange(ctx, room, "", slices.Sorted(maps.Keys(pairs)), by)
	undo, err := s.changes.Keep(ctx, &g.file, next.live)
	if err != nil {
		return api.ChangeResult{}, err
	}
	rc, err := s.roomConfig(set.cfg, now, g.look)
	if err == nil {
		err = g.room.Reconfigure(ctx, rc)
	}
	if err != nil {
		if uerr := undo(); uerr != nil {
			return api.ChangeResult{}, &api.RollbackError{Err: errors.Join(err, uerr),
				Left: "the change is not in force, but its record could not be taken back: " +
					"it comes into force at the next start",
				Do: "see that the disk has room, then make the change again, or set the keys back"}
		}
		return api.ChangeResult{}, err
	}
	s.set.Store(set.with(&next))
	got := api.ChangeResult{Before: texts(&g.now, pairs), After: texts(now, pairs)}
	got.Status = g.room.Status()
	return got, nil
}

// invitingRooms returns the rooms that take invitations.
func (s *Server) invitingRooms() (all []string) {
	for _, g := range s.set.Load().gates {
		if g.look.codes != nil {
			all = append(all, g.file.Name)
		}
	}
	return all
}

// codesOf returns the key of a room that takes invitations.
func (s *Server) codesOf(room string) (*invite.Key, error) {
	switch g := s.set.Load().find(room); {
	case g == nil:
		return nil, api.ErrNoRoom
	case g.look.codes == nil:
		return nil, api.ErrNoCodes
	default:
		return g.look.codes, nil
	}
}

// MakeCodes implements api.Process.
func (s *Server) MakeCodes(room string, first invite.Code, count int) (codes []string, err error) {
	key, err := s.codesOf(room)
	for c := first; err == nil && c.Serial < first.Serial+count; c.Serial++ {
		codes = append(codes, key.New(c))
	}
	return codes, err
}

// ReviseCodes implements api.Process.
func (s *Server) ReviseCodes(
	ctx context.Context, room string, revoke, allow []string, by string,
) (after, before []string, err error) {
	key, err := s.codesOf(room)
	if err != nil {
		return nil, nil, err
	}
	var targets [2][]invite.Target
	for i, names := range [][]string{revoke, allow} {
		for _, name := range names {
			t, err := key.Target(name)
			if err != nil {
				return nil, nil, &api.RejectedError{Reason: err.Error(),
					Do: "write a batch such as 3, one code of it such as 3-15, or the text of a code", Err: err}
			}
			targets[i] = append(targets[i], t)
		}
	}
	if len(revoke)+len(allow) == 0 {
		after = s.revoked.Of(room).Names()
		return after, after, nil
	}
	return s.revoked.Change(ctx, room, targets[0], targets[1], by)
}

// followChanges takes over the live changes that other nodes make to rooms, until ctx ends.
func (s *Server) followChanges(ctx context.Context) error {
	if s.node.Bus == nil {
		return nil
	}
	return store.Follow(ctx, s.node.Bus, control.RoomChangesTopic, control.FollowEvery, func(room []byte) {
		rooms := []string{string(room)}
		if room == nil {
			rooms = rooms[:0]
			for _, g := range s.set.Load().gates {
				rooms = append(rooms, g.file.Name)
			}
			s.finishMove(ctx, rooms)
		}
		for _, room := range rooms {
			if err := s.takeLive(ctx, room); err != nil && ctx.Err() == nil {
				s.log.Warn("change of another node not taken yet", "room", room, "error", err)
			}
		}
	})
}

// takeLive applies the live changes in the store to a room.
func (s *Server) takeLive(ctx context.Context, room string) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	ctx, stop := context.WithTimeout(ctx, control.ChangeWait)
	defer stop()
	set := s.set.Load()
	g := set.find(room)
	if g == nil || g.made != nil || g.damaged() {
		return nil
	}
	now, live, err := s.changes.Recall(ctx, &g.file)
	if err != nil || reflect.DeepEqual(live, g.live) {
		return err
	}
	next := *g
	next.now, next.live = *now, live
	rc, err := s.roomConfig(set.cfg, now, g.look)
	if err == nil {
		err = g.room.Reconfigure(ctx, rc)
	}
	if err != nil {
		return err
	}
	s.set.Store(set.with(&next))
	by := ""
	if live != nil {
		by = live.By
	}
	s.log.Info("change of another node taken", "room", room, "by", by)
	return nil
}
