package server

import (
	"context"
	"slices"
	"time"
)

// Parameters of following events. Chosen: nobody notices a start that is a quarter of a second
// late, and a store that is down must not keep operators from changing rooms.
const (
	eventEvery = 250 * time.Millisecond
	eventWait  = 3 * time.Second // for the record of one room
	eventAgain = 2 * time.Second // after a failed attempt
)

// followEvents applies the events to the rooms, by the wall clock, until ctx ends. It reads the
// clock repeatedly instead of sleeping until the next event, so that it notices a clock that was
// set.
func (s *Server) followEvents(ctx context.Context) {
	tick := time.NewTicker(eventEvery)
	defer tick.Stop()
	failed := map[string]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, g := range s.set.Load().gates {
			name := g.file.Name
			if len(g.now.Events) == 0 || time.Since(failed[name]) < eventAgain || g.followed() {
				continue
			}
			delete(failed, name)
			if err := s.takeEvent(ctx, name); err != nil {
				failed[name] = time.Now()
				s.log.Warn("event of a room not in force yet", "room", name, "error", err)
			}
		}
	}
}

// followed reports whether the room already has the settings of its current event.
func (g *gate) followed() bool {
	at := time.Now()
	_, m := g.now.At(at)
	want, draw, has := eventOf(&g.now, &m, at), drawOf(&m, at), g.room.Config()
	return want.Name == has.Event.Name && want.Prequeue == has.Event.Prequeue &&
		want.StartsAt.Equal(has.Event.StartsAt) && slices.Equal(want.Early, has.Event.Early) &&
		draw.Event == has.Draw.Event && draw.Begun == has.Draw.Begun && draw.Started == has.Draw.Started
}

// takeEvent applies the current event to a room.
func (s *Server) takeEvent(ctx context.Context, room string) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	set := s.set.Load()
	g := set.find(room)
	if g == nil || g.damaged() {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, eventWait)
	defer stop()
	rc, err := s.roomConfig(set.cfg, &g.now, g.look)
	if err != nil {
		return err
	}
	if err := g.room.Reconfigure(ctx, rc); err != nil {
		return err
	}
	e := &rc.Event
	s.log.Info("events of a room", "room", room, "event", e.Name, "prequeue", e.Prequeue,
		"next_draw", rc.Draw.Event)
	return nil
}
