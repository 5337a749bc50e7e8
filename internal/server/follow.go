package server

import (
	"context"
	"reflect"

	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/internal/store"
)

// followChanges takes the live changes of rooms that other nodes have made, until ctx ends.
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

// takeLive puts the live changes that the store has of a room into force here.
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
	rc, err := s.roomConfig(set.cfg, now)
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
