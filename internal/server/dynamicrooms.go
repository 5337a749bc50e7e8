package server

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/internal/manage"
	"github.com/headgate/headgate/internal/store"
)

// Book implements api.Rooms.
func (s *Server) Book(ctx context.Context) (*manage.Catalog, error) {
	set := s.set.Load()
	cfg := *set.cfg
	cfg.Rooms = slices.Clone(cfg.Rooms)
	for i := range cfg.Rooms { // with the live changes that are in force
		if g := set.find(cfg.Rooms[i].Name); g != nil && g.made == nil {
			cfg.Rooms[i] = g.now
		}
	}
	book, _, err := s.rooms.Read(ctx, s.reading(&cfg))
	return book, err
}

// zoneOf returns the name of the zone of a room, or "" if there is no such room.
func (s *Server) zoneOf(room string) string {
	set := s.set.Load()
	if g := set.find(room); g != nil {
		return manage.ZoneOf(set.cfg, g.file.Host)
	}
	return ""
}

// Edit implements api.Rooms. The result of edit is stored before it takes effect.
func (s *Server) Edit(
	ctx context.Context, edit func(*manage.Catalog) (*manage.Result, error),
) (*manage.Result, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.edit(ctx, edit)
}

// edit is Edit for a caller that holds turn.
func (s *Server) edit(
	ctx context.Context, edit func(*manage.Catalog) (*manage.Result, error),
) (*manage.Result, error) {
	if s.crew == nil {
		return nil, api.ErrBusy
	}
	// The client may disconnect; a change must not stop half done.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), control.ChangeWait)
	defer stop()
	note := func(res *manage.Result) {
		if c := res.Change; c != nil && c.Room != "" {
			s.noteChange(ctx, c.Room, "", nil, c.By)
		}
	}
	res, written, err := s.rooms.Edit(ctx, s.reading(s.set.Load().cfg), edit, note)
	if err == nil && written {
		if err := s.takeRooms(context.WithoutCancel(ctx)); err != nil {
			s.log.Error("rooms are kept, and not all in force yet", "error", err)
		}
	}
	return res, err
}

// followRooms takes over the rooms that other nodes create, and retries those that could not be put
// into force, until ctx ends.
func (s *Server) followRooms(ctx context.Context) error {
	alone := s.node.Bus == nil
	return store.Follow(ctx, s.node.Bus, control.RoomsTopic, control.FollowEvery, func([]byte) {
		s.turn.Lock()
		defer s.turn.Unlock()
		if s.crew != nil && (!alone || s.rooms.MustRetry()) {
			if err := s.takeRooms(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("rooms not all in force yet", "error", err)
			}
		}
	})
}

// takeRooms puts the rooms of the store into force. The caller holds turn.
func (s *Server) takeRooms(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, control.ChangeWait)
	defer stop()
	if news, err := s.rooms.HasNews(ctx); err != nil || !news {
		return err
	}
	old := s.set.Load()
	book, revision, err := s.rooms.Read(ctx, s.reading(old.cfg))
	if err == nil {
		err = s.rooms.Accept(book, revision)
	}
	if err != nil {
		return err
	}
	w := s.newSwap(old.cfg)
	w.made = true
	for _, g := range old.gates {
		if g.made == nil {
			w.wants = append(w.wants, want{room: g.file, look: g.look})
		}
	}
	w.wants = append(w.wants, s.madeWants(book)...)
	if err := w.prepareRooms(ctx); err != nil {
		s.rooms.Retry()
		return w.takeBack(err)
	}
	w.commitRooms()
	n := w.got.Rooms
	if len(n.Added)+len(n.Removed)+len(n.Changed) > 0 {
		s.log.Info("rooms changed", "added", n.Added, "removed", n.Removed, "changed", n.Changed)
	}
	return nil
}

// changeDynamicRoom sets keys of a room of the store, as Change does for a room of the file.
func (s *Server) changeDynamicRoom(
	ctx context.Context, g *gate, pairs map[string]string, by string,
) (api.ChangeResult, error) {
	now, err := config.Amend(&g.file, pairs)
	if err != nil {
		return api.ChangeResult{}, err
	}
	_, err = s.edit(ctx, func(b *manage.Catalog) (*manage.Result, error) {
		op, err := b.Live(g.made.id, now, slices.Sorted(maps.Keys(pairs)))
		if err != nil {
			return nil, err
		}
		op.By, op.At = by, time.Now()
		return b.Do(op)
	})
	if err != nil {
		return api.ChangeResult{}, err
	}
	return api.ChangeResult{
		Before: texts(&g.now, pairs), After: texts(now, pairs), Status: g.room.Status(),
	}, nil
}

// InForce implements api.Rooms.
func (s *Server) InForce(r *manage.Room) (yes bool, problem string) {
	problem = s.rooms.Problem(r.ID)
	g := s.set.Load().find(r.Name)
	switch {
	case problem != "":
	case g == nil:
		problem = "not open in this process yet"
	case g.damaged():
		problem = "its record cannot be read: headgate doctor says how to get it back"
	}
	return problem == "", problem
}

// texts returns the current values of the keys in pairs.
func texts(r *config.Room, pairs map[string]string) map[string]string {
	m := map[string]string{}
	for k := range pairs {
		m[k] = r.Text(k)
	}
	return m
}
