package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/manage"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/store"
)

// roomsKey is the record of dynamic rooms, and roomsPage begins the keys of their pages.
const (
	roomsKey  = "rooms"
	roomsPage = "page."
)

// RoomsTopic carries a message when the dynamic rooms are others.
const RoomsTopic = "rooms"

// Rooms are the dynamic rooms: those that the management API made while headgate ran.
type Rooms struct {
	node *node.Node
	log  *slog.Logger

	revision uint64 // that is in force; guarded by the turn of changes
	again    bool   // something of it is not, and is tried again; guarded by the turn of changes
	version  int64  // of it; guarded by the turn of changes

	mu       sync.Mutex
	pages    map[string]string // by key
	problems map[string]string // of rooms that are not in force, by id
}

// NewRooms returns the dynamic rooms that the records of a node have.
func NewRooms(n *node.Node, log *slog.Logger) *Rooms { return &Rooms{node: n, log: log} }

// doc is the record of the rooms.
func (m *Rooms) doc() *store.Doc[[]byte] {
	same := func(b []byte) ([]byte, error) { return b, nil }
	return &store.Doc[[]byte]{Store: m.node.Records, Key: roomsKey, Encode: same, Decode: same,
		Bus: m.node.Bus, Topic: RoomsTopic, Log: m.log}
}

// Fail notes why a room is not in force, and that it is tried again. The caller holds the turn.
func (m *Rooms) Fail(id string, err error) {
	m.again = true
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.problems == nil {
		m.problems = map[string]string{}
	}
	m.problems[id] = err.Error()
}

// SetProblems replaces what is wrong with rooms, by ID.
func (m *Rooms) SetProblems(problems map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problems = problems
}

// Problem is why a room is not in force, "" if nothing is wrong with it.
func (m *Rooms) Problem(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.problems[id]
}

// Retry notes that something is not in force. The caller holds the turn.
func (m *Rooms) Retry() { m.again = true }

// MustRetry reports whether something is not in force. The caller holds the turn.
func (m *Rooms) MustRetry() bool { return m.again }

// HasNews reports whether there is anything to put into force. The caller holds the turn.
func (m *Rooms) HasNews(ctx context.Context) (bool, error) {
	_, revision, err := m.doc().Load(ctx)
	return err == nil && (revision != m.revision || m.again), err
}

// Accept notes what is about to be in force, and refuses what is older: a leader of the store that
// stood still, and is none any more, may tell what it knew, and then rooms would be removed. The
// caller holds the turn.
func (m *Rooms) Accept(book *manage.Catalog, revision uint64) error {
	v := book.Version()
	if v < m.version {
		return fmt.Errorf("the store tells of version %d, and %d is in force", v, m.version)
	}
	m.version, m.revision, m.again = v, revision, false
	return nil
}

// A Reading is the configuration that the rooms are read with, and when it was read.
type Reading struct {
	Config *config.Config
	At     time.Time
}

// errPageGone: a record names a page that is not there any more.
var errPageGone = errors.New("it is not there any more")

// Read reads the rooms, and the revision of their record.
func (m *Rooms) Read(ctx context.Context, r Reading) (book *manage.Catalog, revision uint64, err error) {
	err = m.newest(ctx, func() error {
		record, at, err := m.doc().Load(ctx)
		if err == nil {
			book, err = m.open(ctx, r, record)
		}
		revision = at
		return err
	}, &revision)
	if err != nil {
		return nil, 0, err
	}
	return book, revision, nil
}

// newest calls do again when a page is gone because its record, of a revision, is not the newest
// any more.
func (m *Rooms) newest(ctx context.Context, do func() error, revision *uint64) error {
	for {
		err := do()
		if !errors.Is(err, errPageGone) || ctx.Err() != nil {
			return err
		}
		if _, now, lerr := m.doc().Load(ctx); lerr != nil || now == *revision {
			return err
		}
	}
}

func (m *Rooms) open(ctx context.Context, r Reading, record []byte) (*manage.Catalog, error) {
	pages, err := m.readPages(ctx, record)
	if err != nil {
		return nil, err
	}
	return manage.Open(r.Config, record, pages, r.At)
}

// readPages reads the pages of a record that are not known yet, and forgets all others. The error
// is errPageGone if one is not there any more.
func (m *Rooms) readPages(ctx context.Context, record []byte) (all map[string]string, err error) {
	keys, err := manage.PagesOf(record)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	known := m.pages
	m.mu.Unlock()
	all = map[string]string{}
	for _, key := range keys {
		if html, ok := known[key]; ok {
			all[key] = html
			continue
		}
		html, _, err := m.node.Records.Load(ctx, roomsPage+key)
		if errors.Is(err, store.ErrNotFound) || err == nil && len(html) == 0 {
			err = errPageGone
		}
		if err != nil {
			return nil, fmt.Errorf("read page %s: %w", key, err)
		}
		all[key] = string(html)
	}
	m.mu.Lock()
	m.pages = maps.Clone(all)
	m.mu.Unlock()
	return all, nil
}

// Edit writes what edit does to the rooms, and tells the other nodes. note is called with each change
// before it is written. written reports whether there is anything to put into force.
func (m *Rooms) Edit(
	ctx context.Context, r Reading, edit func(*manage.Catalog) (*manage.Result, error),
	note func(*manage.Result),
) (res *manage.Result, written bool, err error) {
	var base, record []byte
	var fresh map[string]string // pages that an attempt has written
	var revision uint64
	d := m.doc()
	err = m.newest(ctx, func() error {
		revision, err = d.Edit(ctx, func(v *[]byte) (bool, error) {
			m.forgetUnnamed(ctx, *v, fresh) // another node has changed the rooms: once more upon that
			base, fresh, written = *v, nil, false
			book, err := m.open(ctx, r, *v)
			if err != nil {
				return false, err
			}
			if res, err = edit(book); err != nil {
				return false, err
			}
			if record, fresh, err = book.Record(); err != nil || record == nil {
				return false, err
			}
			note(res)
			written = true
			*v = record
			return true, m.writePages(ctx, fresh)
		})
		return err
	}, &revision)
	switch {
	case err != nil && written:
		if there, _, lerr := d.Load(ctx); lerr == nil && !bytes.Equal(there, base) {
			m.forgetUnnamed(ctx, there, fresh) // else it may have happened, or may happen still
		}
		return nil, false, &api.NotPersistedError{Err: err, Reason: "the change could not be written",
			Do: "read it again when the store answers (headgate cluster status), and repeat the change"}
	case err != nil:
		return nil, false, err
	case written:
		m.mu.Lock()
		known := m.pages
		m.mu.Unlock()
		m.forgetUnnamed(ctx, record, known)
	}
	return res, written, nil
}

// writePages writes new pages, before the record that names them.
func (m *Rooms) writePages(ctx context.Context, fresh map[string]string) error {
	for key, html := range fresh {
		if _, err := m.node.Records.CompareAndSwap(ctx, roomsPage+key, 0, []byte(html)); err != nil {
			return fmt.Errorf("write page %s: %w", key, err)
		}
	}
	return nil
}

// forgetUnnamed forgets the pages that a record does not name. Another node may have changed rooms
// upon a write of ours, and then its record names our pages.
func (m *Rooms) forgetUnnamed(ctx context.Context, record []byte, pages map[string]string) {
	keys, err := manage.PagesOf(record)
	if err != nil {
		m.log.Warn("pages that are not needed any more are still kept", "error", err)
		return
	}
	pages = maps.Clone(pages)
	for _, key := range keys {
		delete(pages, key)
	}
	m.forgetPages(ctx, pages)
}

// forgetPages empties the records of pages that nothing refers to any more, nor can again: who adds
// a reference copies it from the newest record. What is left by a crash here, or by a write of which
// nobody knows whether it happened, is the pages of one change.
func (m *Rooms) forgetPages(ctx context.Context, pages map[string]string) {
	for key := range pages {
		_, revision, err := m.node.Records.Load(ctx, roomsPage+key)
		if err == nil {
			_, err = m.node.Records.CompareAndSwap(ctx, roomsPage+key, revision, nil)
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			m.log.Warn("a page that is not needed any more is still kept", "page", key, "error", err)
		}
	}
}
