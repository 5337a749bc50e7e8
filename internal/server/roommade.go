package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/manage"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/store"
)

// roomsKey is the record of the rooms that were made while headgate ran, and roomsPage begins the keys
// of their pages. roomsName is told when it is another one.
const (
	roomsKey  = "rooms"
	roomsPage = "page."
	roomsName = "rooms"
)

// A madeRoom is what a gate knows of a room that is not of the file.
type madeRoom struct {
	id      string
	revokes bool
}

func (m *madeRoom) same(x *madeRoom) bool { return m == x || m != nil && x != nil && *m == *x }

// obeys tells whether the origin may end a visitor's stay: in a room of the file it always may.
func (m *madeRoom) obeys() bool { return m == nil || m.revokes }

// madeRooms are the rooms of the store as this process has them.
type madeRooms struct {
	revision uint64 // that is in force; guarded by Server.change
	again    bool   // something of it is not, and is tried again; guarded by Server.change
	version  int64  // of it; guarded by Server.change

	mu       sync.Mutex
	pages    map[string]string // by key
	problems map[string]string // of rooms that are not in force, by id
}

func (m *madeRooms) fail(id string, err error) {
	m.again = true
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.problems == nil {
		m.problems = map[string]string{}
	}
	m.problems[id] = err.Error()
}

func (m *madeRooms) problem(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.problems[id]
}

// A want is a room that shall be open.
type want struct {
	room config.Room
	look *look
	made *madeRoom
}

// wantsOf are all rooms that shall be open with a configuration. When the store cannot say which
// were made, those that are open now stay.
func (s *Server) wantsOf(ctx context.Context, cfg *config.Config, old *roomSet) ([]want, error) {
	looks, err := readLooks(cfg, s.book)
	if err != nil {
		return nil, err
	}
	var all []want
	for i := range cfg.Rooms {
		c := &cfg.Rooms[i]
		all = append(all, want{room: *c, look: looks[c.Name]})
	}
	book, revision, err := s.readBook(ctx, cfg)
	if err == nil {
		err = s.made.follow(book)
	}
	if err != nil {
		s.log.Error("the rooms of the management API cannot be read, and stay as they are", "error", err)
		for _, g := range old.gates {
			if g.made != nil && old.find(g.file.Name) == g && !names(cfg, g.file.Name) {
				all = append(all, want{g.file, g.look, g.made})
			}
		}
		s.made.again = true
		return all, nil
	}
	s.made.revision, s.made.again = revision, false
	return append(all, s.madeWants(book)...), nil
}

func names(cfg *config.Config, room string) bool {
	for i := range cfg.Rooms {
		if cfg.Rooms[i].Name == room {
			return true
		}
	}
	return false
}

// madeWants are the rooms of the store that can be, and notes why the others cannot.
func (s *Server) madeWants(book *manage.Book) (all []want) {
	problems := map[string]string{}
	for _, w := range book.Wanted() {
		if w.Problem != "" {
			problems[w.ID] = w.Problem
			s.log.Warn("room of the management API not in force", "room", w.Room.Name, "why", w.Problem)
			continue
		}
		l, err := madeLook(&w, s.book)
		if err != nil {
			problems[w.ID] = err.Error()
			continue
		}
		all = append(all, want{w.Room, l, &madeRoom{id: w.ID, revokes: w.Revokes}})
	}
	s.made.mu.Lock()
	defer s.made.mu.Unlock()
	s.made.problems = problems
	return all
}

// follow notes what is about to be in force, and refuses what is older: a leader of the store that
// stood still, and is none any more, may tell what it knew, and then rooms would be removed. The
// caller holds change.
func (m *madeRooms) follow(book *manage.Book) error {
	v := book.Version()
	if v < m.version {
		return fmt.Errorf("the store tells of version %d, and %d is in force", v, m.version)
	}
	m.version = v
	return nil
}

// readBook reads the rooms that were made, and the revision of their record.
func (s *Server) readBook(ctx context.Context, cfg *config.Config) (*manage.Book, uint64, error) {
	for {
		record, revision, err := s.store.Load(ctx, roomsKey)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, 0, fmt.Errorf("read %s: %w", roomsKey, err)
		}
		pages, gone, err := s.readPages(ctx, record)
		if gone && ctx.Err() == nil { // the record is another one meanwhile
			if _, now, lerr := s.store.Load(ctx, roomsKey); lerr == nil && now != revision {
				continue
			}
		}
		if err != nil {
			return nil, 0, err
		}
		book, err := manage.Open(cfg, record, pages, s.read.Load().good)
		return book, revision, err
	}
}

// readPages reads the pages of a record that are not known yet, and forgets all others. gone says
// that one is not there any more.
func (s *Server) readPages(ctx context.Context, record []byte) (all map[string]string, gone bool, err error) {
	keys, err := manage.PagesOf(record)
	if err != nil {
		return nil, false, err
	}
	s.made.mu.Lock()
	known := s.made.pages
	s.made.mu.Unlock()
	all = map[string]string{}
	for _, key := range keys {
		if html, ok := known[key]; ok {
			all[key] = html
			continue
		}
		html, _, err := s.store.Load(ctx, roomsPage+key)
		if err != nil {
			return nil, errors.Is(err, store.ErrNotFound), fmt.Errorf("read page %s: %w", key, err)
		}
		if len(html) == 0 {
			return nil, true, fmt.Errorf("read page %s: it is not there any more", key)
		}
		all[key] = string(html)
	}
	s.made.mu.Lock()
	s.made.pages = maps.Clone(all)
	s.made.mu.Unlock()
	return all, false, nil
}

// Book implements api.Rooms.
func (s *Server) Book(ctx context.Context) (*manage.Book, error) {
	set := s.set.Load()
	cfg := *set.cfg
	cfg.Rooms = slices.Clone(cfg.Rooms)
	for i := range cfg.Rooms { // as they are in force, with the live changes
		if g := set.find(cfg.Rooms[i].Name); g != nil && g.made == nil {
			cfg.Rooms[i] = g.now
		}
	}
	book, _, err := s.readBook(ctx, &cfg)
	return book, err
}

// zoneOf is the name of the zone of a room, "" for no room.
func (s *Server) zoneOf(room string) string {
	set := s.set.Load()
	if g := set.find(room); g != nil {
		return manage.ZoneOf(set.cfg, g.file.Host)
	}
	return ""
}

// Edit implements api.Rooms: what edit does to the rooms is in the store before it is in force.
func (s *Server) Edit(
	ctx context.Context, edit func(*manage.Book) (*manage.Result, error),
) (*manage.Result, error) {
	s.change.Lock()
	defer s.change.Unlock()
	return s.edit(ctx, edit)
}

// edit is Edit for who holds change.
func (s *Server) edit(
	ctx context.Context, edit func(*manage.Book) (*manage.Result, error),
) (*manage.Result, error) {
	if s.crew == nil {
		return nil, api.ErrBusy
	}
	// Who asked may go away; half a change must not stay.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), changeWait)
	defer stop()
	for {
		book, revision, err := s.readBook(ctx, s.set.Load().cfg)
		if err != nil {
			return nil, err
		}
		res, err := edit(book)
		if err != nil {
			return nil, err
		}
		record, fresh, err := book.Record()
		if err != nil || record == nil {
			return res, err
		}
		if c := res.Change; c != nil && c.Room != "" {
			s.noteChange(ctx, c.Room, "", nil, c.By)
		}
		err = s.writeRooms(ctx, revision, record, fresh)
		if errors.Is(err, store.ErrConflict) && ctx.Err() == nil {
			continue // another node has changed them: once more upon that
		}
		if err != nil {
			return nil, &api.NotKept{Err: err, Why: "the change could not be written",
				Do: "read it again when the store answers (headgate cluster status), and repeat the change"}
		}
		s.tellRooms()
		if err := s.takeRooms(ctx); err != nil {
			s.log.Error("rooms are kept, and not all in force yet", "error", err)
		}
		return res, nil
	}
}

// writeRooms writes pages, then the record that names them.
func (s *Server) writeRooms(
	ctx context.Context, revision uint64, record []byte, fresh map[string]string,
) error {
	for key, html := range fresh {
		if _, err := s.store.CompareAndSwap(ctx, roomsPage+key, 0, []byte(html)); err != nil {
			return fmt.Errorf("write page %s: %w", key, err)
		}
	}
	s.made.mu.Lock()
	was := maps.Clone(s.made.pages)
	s.made.mu.Unlock()
	_, err := s.store.CompareAndSwap(ctx, roomsKey, revision, record)
	if err != nil {
		// The write may have happened all the same: then it is in force, and said to be.
		there, now, lerr := s.store.Load(ctx, roomsKey)
		if lerr != nil || !bytes.Equal(there, record) {
			if lerr == nil && now != revision { // else it may have happened, or may happen still
				s.forgetUnnamed(ctx, there, fresh)
			}
			return fmt.Errorf("write %s: %w", roomsKey, err)
		}
	}
	s.forgetUnnamed(ctx, record, was)
	return nil
}

// forgetUnnamed forgets the pages that a record does not name. Another node may have changed rooms
// upon a write of ours, and then its record names our pages.
func (s *Server) forgetUnnamed(ctx context.Context, record []byte, pages map[string]string) {
	keys, err := manage.PagesOf(record)
	if err != nil {
		s.log.Warn("pages that are not needed any more are still kept", "error", err)
		return
	}
	pages = maps.Clone(pages)
	for _, key := range keys {
		delete(pages, key)
	}
	s.forgetPages(ctx, pages)
}

// forgetPages empties the records of pages that nothing refers to any more, nor can again: who adds
// a reference copies it from the newest record. What is left by a crash here, or by a write of which
// nobody knows whether it happened, is the pages of one change.
func (s *Server) forgetPages(ctx context.Context, pages map[string]string) {
	for key := range pages {
		_, revision, err := s.store.Load(ctx, roomsPage+key)
		if err == nil {
			_, err = s.store.CompareAndSwap(ctx, roomsPage+key, revision, nil)
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			s.log.Warn("a page that is not needed any more is still kept", "page", key, "error", err)
		}
	}
}

// tellRooms tells the other nodes that the rooms are others.
func (s *Server) tellRooms() {
	if s.durable.bus == nil {
		return
	}
	if err := s.durable.bus.Tell(roomsName, nil); err != nil {
		s.log.Warn("rooms not told to the other nodes: they find them themselves", "error", err)
	}
}

// followRooms takes the rooms that other nodes have made, and tries again what could not be put
// into force, until ctx ends.
func (s *Server) followRooms(ctx context.Context) error {
	heard := make(chan struct{}, 1)
	alone := s.durable.bus == nil
	if !alone {
		stop, err := s.durable.bus.Hear(roomsName, func([]byte) {
			select {
			case heard <- struct{}{}:
			default:
			}
		})
		if err != nil {
			return err
		}
		defer stop()
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		told := false
		select {
		case <-ctx.Done():
			return nil
		case <-heard:
			told = true
		case <-tick.C:
		}
		s.change.Lock()
		if s.crew != nil && (told || !alone || s.made.again) {
			if err := s.takeRooms(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("rooms not all in force yet", "error", err)
			}
		}
		s.change.Unlock()
	}
}

// takeRooms puts the rooms of the store into force. The caller holds change.
func (s *Server) takeRooms(ctx context.Context) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), changeWait)
	defer stop()
	_, revision, err := s.store.Load(ctx, roomsKey)
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("read %s: %w", roomsKey, err)
	case revision == s.made.revision && !s.made.again:
		return nil
	}
	old := s.set.Load()
	book, revision, err := s.readBook(ctx, old.cfg)
	if err == nil {
		err = s.made.follow(book)
	}
	if err != nil {
		return err
	}
	s.made.revision, s.made.again = revision, false
	w := s.newSwap(old.cfg)
	w.made = true
	for _, g := range old.gates {
		if g.made == nil {
			w.wants = append(w.wants, want{room: g.file, look: g.look})
		}
	}
	w.wants = append(w.wants, s.madeWants(book)...)
	if err := w.prepareRooms(ctx); err != nil {
		s.made.again = true
		return w.takeBack(err)
	}
	w.commitRooms()
	n := w.got.Rooms
	if len(n.Added)+len(n.Removed)+len(n.Changed) > 0 {
		s.log.Info("rooms changed", "added", n.Added, "removed", n.Removed, "changed", n.Changed)
	}
	return nil
}

// without goes on without the new values of a room of the store that cannot be, as when a rule asks for
// a list that the file has lost: the other rooms must not wait for it. It stays as it is, and is tried
// again. A reload is refused instead: it can be made good in the file.
func (w *swap) without(ctx context.Context, room string, made *madeRoom, err error) error {
	_, rule := errors.AsType[*rules.Error](err)
	switch {
	case made != nil && w.made && ctx.Err() == nil:
		w.s.made.fail(made.id, err)
		w.s.log.Warn("room of the management API not in force", "room", room, "why", err)
	case made != nil && rule:
		return &api.Refused{Err: err, Why: err.Error() + "; the room was made by the management API",
			Do: "put back what the rule asks for, or change the rule first"}
	default:
		return err
	}
	here := func(g *gate) bool { return g.file.Name == room }
	w.new.gates, w.changed = slices.DeleteFunc(w.new.gates, here), slices.DeleteFunc(w.changed, here)
	w.got.Rooms.Changed = slices.DeleteFunc(w.got.Rooms.Changed, func(s string) bool { return s == room })
	if was := w.old.find(room); was != nil {
		w.new.gates = append(w.new.gates, was)
	}
	return nil
}

// changeMadeRoom sets keys of a room of the store, as Change does of one of the file.
func (s *Server) changeMadeRoom(
	ctx context.Context, g *gate, pairs map[string]string, by string,
) (api.Changed, error) {
	now, err := config.Amend(&g.file, pairs)
	if err != nil {
		return api.Changed{}, err
	}
	_, err = s.edit(ctx, func(b *manage.Book) (*manage.Result, error) {
		op, err := b.Live(g.made.id, now, slices.Sorted(maps.Keys(pairs)))
		if err != nil {
			return nil, err
		}
		op.By, op.At = by, time.Now()
		return b.Do(op)
	})
	if err != nil {
		return api.Changed{}, err
	}
	return api.Changed{Before: texts(&g.now, pairs), After: texts(now, pairs), Status: g.room.Status()}, nil
}

// InForce implements api.Rooms.
func (s *Server) InForce(r *manage.Room) (yes bool, problem string) {
	problem = s.made.problem(r.ID)
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
