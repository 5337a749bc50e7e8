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

// roomsKey is the key of the record with the dynamic rooms. roomsPage is the prefix of the keys of
// their pages.
const (
	roomsKey  = "rooms"
	roomsPage = "page."
)

// RoomsTopic is the topic of a message that the dynamic rooms have changed.
const RoomsTopic = "rooms"

// Rooms holds the dynamic rooms: those that were made with the management API while headgate runs.
type Rooms struct {
	node *node.Node
	log  *slog.Logger

	revision uint64 // in force; guarded by the turn of changes
	again    bool   // part of it is not in force and is retried; guarded by the turn
	version  int64  // in force; guarded by the turn of changes

	mu       sync.Mutex
	pages    map[string]string // by key
	problems map[string]string // why rooms are not in force, by ID
}

// NewRooms returns the dynamic rooms in the records of a node.
func NewRooms(n *node.Node, log *slog.Logger) *Rooms { return &Rooms{node: n, log: log} }

// doc returns the record with the dynamic rooms.
func (m *Rooms) doc() *store.Doc[[]byte] {
	same := func(b []byte) ([]byte, error) { return b, nil }
	return &store.Doc[[]byte]{Store: m.node.Records, Key: roomsKey, Encode: same, Decode: same,
		Bus: m.node.Bus, Topic: RoomsTopic, Log: m.log}
}

// Fail notes why a room is not in force. The room is retried later. The caller holds the turn.
func (m *Rooms) Fail(id string, err error) {
	m.again = true
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.problems == nil {
		m.problems = map[string]string{}
	}
	m.problems[id] = err.Error()
}

// SetProblems replaces the problems of all rooms, by room ID.
func (m *Rooms) SetProblems(problems map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problems = problems
}

// Problem returns why a room is not in force, "" if it has no problem.
func (m *Rooms) Problem(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.problems[id]
}

// Retry notes that something is not in force and must be retried. The caller holds the turn.
func (m *Rooms) Retry() { m.again = true }

// MustRetry reports whether something is not in force and must be retried. The caller holds the
// turn.
func (m *Rooms) MustRetry() bool { return m.again }

// HasNews reports whether there is anything to put into force. The caller holds the turn.
func (m *Rooms) HasNews(ctx context.Context) (bool, error) {
	_, revision, err := m.doc().Load(ctx)
	return err == nil && (revision != m.revision || m.again), err
}

// Accept notes the version that is about to be in force, and rejects an older one. A suspended
// former leader of the store may return an old record, and rooms would be removed. The caller holds
// the turn.
func (m *Rooms) Accept(book *manage.Catalog, revision uint64) error {
	v := book.Version()
	if v < m.version {
		return fmt.Errorf("the store tells of version %d, and %d is in force", v, m.version)
	}
	m.version, m.revision, m.again = v, revision, false
	return nil
}

// A Reading is the configuration with which the rooms are read, and the time of reading it.
type Reading struct {
	Config *config.Config
	At     time.Time
}

// errPageGone reports that a record names a page that does not exist any more.
var errPageGone = errors.New("it is not there any more")

// Read returns the rooms and the revision of their record.
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

// newest repeats do when a page is gone because a newer record has replaced the one at revision.
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

// readPages returns the pages of a record. It reads those that are not cached and drops all others
// from the cache. It returns errPageGone if a page does not exist any more.
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

// Edit applies edit to the rooms, stores the result and publishes it to the other nodes. It calls
// note with each change before writing it. written reports whether there is anything to put into
// force.
func (m *Rooms) Edit(
	ctx context.Context, r Reading, edit func(*manage.Catalog) (*manage.Result, error),
	note func(*manage.Result),
) (res *manage.Result, written bool, err error) {
	var base, record []byte
	var fresh map[string]string // pages written by an attempt
	var revision uint64
	d := m.doc()
	err = m.newest(ctx, func() error {
		revision, err = d.Edit(ctx, func(v *[]byte) (bool, error) {
			m.forgetUnnamed(ctx, *v, fresh) // after a conflict: another node has changed the rooms
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
			m.forgetUnnamed(ctx, there, fresh) // otherwise the write may have happened, or may still happen
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

// writePages writes new pages. It must run before the write of the record that names them.
func (m *Rooms) writePages(ctx context.Context, fresh map[string]string) error {
	for key, html := range fresh {
		if _, err := m.node.Records.CompareAndSwap(ctx, roomsPage+key, 0, []byte(html)); err != nil {
			return fmt.Errorf("write page %s: %w", key, err)
		}
	}
	return nil
}

// forgetUnnamed empties the pages that a record does not name. Another node may have built on a
// write of this process; its record then names pages of this process.
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

// forgetPages empties pages that no record refers to. No record can refer to them again, because a
// new reference is always copied from the newest record. After a crash here, or a write with
// unknown result, the pages of one change may stay.
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
