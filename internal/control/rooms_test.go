package control

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/manage"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/store"
)

func newRooms(s store.Store) *Rooms {
	return NewRooms(&node.Node{Records: s}, slog.New(slog.DiscardHandler))
}

// edit makes a room with its own page.
func (m *Rooms) edit(t *testing.T, before func()) error {
	t.Helper()
	cfg, err := config.Parse("t", []byte("rooms:\n  - "+siteRoom))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = m.Edit(t.Context(), Reading{Config: cfg}, func(b *manage.Catalog) (*manage.Result, error) {
		before()
		return b.Do(&manage.Op{What: manage.Rooms, Verb: manage.Create, Zone: manage.DefaultZone,
			At: time.Now(),
			Body: []byte(`{"name":"tea","host":"tea.example","total_active_users":200,"new_users_per_minute":200,
				"custom_page_html":"<p>1</p>","headgate":{"origin":"http://127.0.0.1:1"}}`)})
	}, func(*manage.Result) {})
	return err
}

// page returns the page that the record names.
func page(t *testing.T, s store.Store) (key, html string) {
	t.Helper()
	record, _, err := s.Load(t.Context(), roomsKey)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := manage.PagesOf(record)
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	b, _, err := s.Load(t.Context(), roomsPage+keys[0])
	if err != nil {
		t.Fatal(err)
	}
	return keys[0], string(b)
}

// A page without references is emptied. A reader that still looks for it reads the newest record.
func TestAPageIsForgotten(t *testing.T) {
	s := &store.Memory{}
	m := newRooms(s)
	if err := m.edit(t, func() {}); err != nil {
		t.Fatal(err)
	}
	key, html := page(t, s)
	if html != "<p>1</p>" {
		t.Fatalf("page %q", html)
	}
	m.forgetPages(t.Context(), map[string]string{key: ""})
	if _, html := page(t, s); html != "" {
		t.Errorf("page %q; want none", html)
	}
	m.pages = nil
	record, _, err := s.Load(t.Context(), roomsKey)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.readPages(t.Context(), record); !errors.Is(err, errPageGone) {
		t.Errorf("error %v; want errPageGone", err)
	}
	if _, _, err := m.Read(t.Context(), Reading{Config: &config.Config{}}); !errors.Is(err, errPageGone) {
		t.Errorf("error %v of the newest record; want errPageGone", err)
	}
}

// An edit that loses a race is repeated on the state of the other process, and leaves no unused
// page.
func TestAnEditOfRoomsIsRepeated(t *testing.T) {
	s := &store.Memory{}
	m, tries := newRooms(s), 0
	err := m.edit(t, func() {
		if tries++; tries > 1 {
			return
		}
		if err := newRooms(s).edit(t, func() {}); err != nil {
			t.Fatal(err)
		}
	})
	if err == nil || tries != 2 {
		t.Errorf("%d tries, %v; want 2, as the name is taken", tries, err)
	}
	if _, html := page(t, s); html != "<p>1</p>" {
		t.Errorf("page %q of the room that is there", html)
	}
}

// A silent store writes the record of rooms, and acknowledges nothing.
type silent struct{ store.Store }

func (s *silent) CompareAndSwap(ctx context.Context, key string, rev uint64, v []byte) (uint64, error) {
	got, err := s.Store.CompareAndSwap(ctx, key, rev, v)
	if key == roomsKey {
		return 0, errors.New("no answer")
	}
	return got, err
}

func (s *silent) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	b, rev, err := s.Store.Load(ctx, key)
	if key == roomsKey && rev > 0 {
		return nil, 0, errors.New("no answer")
	}
	return b, rev, err
}

// The pages of a write that may have happened are not emptied.
func TestAWriteOfUnknownOutcomeKeepsItsPages(t *testing.T) {
	mem := &store.Memory{}
	err := newRooms(&silent{mem}).edit(t, func() {})
	if _, ok := errors.AsType[*api.NotPersistedError](err); !ok {
		t.Errorf("error %v; want a NotKept", err)
	}
	if _, html := page(t, mem); html != "<p>1</p>" {
		t.Errorf("the record names a page that is %q", html)
	}
}
