package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/store"
)

// changeWait bounds a live change; the record and the store take milliseconds.
const changeWait = 15 * time.Second

// A liveRecord is what is kept of the live changes of a room. They hold as long
// as the file describes the room as it did when they were made.
type liveRecord struct {
	Fingerprint string            `json:"fingerprint"`
	Pairs       map[string]string `json:"pairs"`
	At          time.Time         `json:"at"`
	By          string            `json:"by"`

	// With several data centres each change has a version, one more than the greatest that
	// was known where it was made, and the name of that data centre. Of two the greater
	// version holds, of the same version the greater name. A record without pairs says
	// that there are no changes any more.
	Version uint64 `json:"version,omitempty"`
	Site    string `json:"site,omitempty"`
}

// after tells which of two records holds.
func (r *liveRecord) after(x *liveRecord) bool {
	return r.Version > x.Version || r.Version == x.Version && r.Site > x.Site
}

func liveKey(room string) string { return "live." + room }

// readLive is a record with a version as the store has it. What was changed before there
// were other data centres has the first one, if it is in force.
func (s *Server) readLive(g *gate, value []byte) (r liveRecord, ok bool) {
	if value == nil || json.Unmarshal(value, &r) != nil {
		return liveRecord{}, false
	}
	if r.Version == 0 && len(r.Pairs) > 0 && s.durable.linked() {
		if print, err := g.file.Fingerprint(); err == nil && r.Fingerprint == print {
			r.Version, r.Site = 1, s.durable.about.Datacenter
		}
	}
	if r.Version == 0 {
		return liveRecord{}, false
	}
	return r, true
}

// Change implements api.Process: it sets keys of a room while visitors are
// inside. The change is in the store before it is in force.
func (s *Server) Change(
	ctx context.Context, room string, pairs map[string]string, by string,
) (api.Changed, error) {
	s.change.Lock()
	defer s.change.Unlock()
	set := s.set.Load()
	g := set.find(room)
	switch {
	case s.crew == nil:
		return api.Changed{}, api.ErrBusy
	case g == nil:
		return api.Changed{}, api.ErrNoRoom
	case g.damaged():
		return api.Changed{}, api.ErrDamaged
	}
	if g.made != nil {
		return s.changeMadeRoom(ctx, g, pairs, by)
	}
	// Who asked may go away; half a change must not stay.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), changeWait)
	defer stop()
	next := *g
	now, live, err := amend(g, pairs)
	if err != nil {
		return api.Changed{}, err
	}
	next.now, next.live = *now, nil
	if len(live) > 0 {
		next.live = &api.Live{Pairs: live, At: time.Now().UTC(), By: by}
	}
	s.noteChange(ctx, room, "", slices.Sorted(maps.Keys(pairs)), by)
	undo, err := s.keep(ctx, &next)
	if err != nil {
		return api.Changed{}, err
	}
	s.tellMade(room)
	rc, err := s.roomConfig(set.cfg, now)
	if err == nil {
		err = g.room.Reconfigure(ctx, rc)
	}
	if err != nil {
		defer s.tellMade(room)
		if uerr := undo(); uerr != nil {
			return api.Changed{}, &api.Leftover{Err: errors.Join(err, uerr),
				Left: "the change is not in force, but its record could not be taken back: " +
					"it comes into force at the next start",
				Do: "see that the disk has room, then make the change again, or set the keys back"}
		}
		return api.Changed{}, err
	}
	s.set.Store(set.with(&next))
	got := api.Changed{Before: texts(&g.now, pairs), After: texts(now, pairs)}
	got.Status = g.room.Status()
	return got, nil
}

// amend is the room with more live changes, and all that then differ from the
// file.
func amend(g *gate, pairs map[string]string) (*config.Room, map[string]string, error) {
	all := map[string]string{}
	if g.live != nil {
		maps.Copy(all, g.live.Pairs)
	}
	maps.Copy(all, pairs)
	now, err := config.Amend(&g.file, all)
	if err != nil {
		return nil, nil, err
	}
	fewer := maps.Clone(all)
	maps.DeleteFunc(fewer, func(k, _ string) bool { return now.Text(k) == g.file.Text(k) })
	if same, err := config.Amend(&g.file, fewer); err == nil && reflect.DeepEqual(same, now) {
		all = fewer
	}
	return now, all, nil
}

// texts are the values of the keys that pairs names.
func texts(r *config.Room, pairs map[string]string) map[string]string {
	m := map[string]string{}
	for k := range pairs {
		m[k] = r.Text(k)
	}
	return m
}

// keep writes the live changes of a gate to the store, or that it has none.
// undo puts back what was there.
func (s *Server) keep(ctx context.Context, g *gate) (undo func() error, err error) {
	for {
		undo, err = s.tryKeep(ctx, g)
		if !errors.Is(err, store.ErrConflict) || ctx.Err() != nil {
			return undo, err
		}
		// What another node has written since is known now: ours comes after it.
	}
}

func (s *Server) tryKeep(ctx context.Context, g *gate) (undo func() error, err error) {
	var rec *liveRecord // null in the store: none
	if g.live != nil {
		rec = &liveRecord{Pairs: g.live.Pairs, At: g.live.At, By: g.live.By}
		if rec.Fingerprint, err = g.file.Fingerprint(); err != nil {
			return nil, err
		}
	}
	before, revision, err := s.loadLive(ctx, g.file.Name)
	if err != nil {
		return nil, err
	}
	was, versions := s.readLive(g, before)
	if rec == nil && (before == nil || versions && len(was.Pairs) == 0) {
		return func() error { return nil }, nil
	}
	back := before
	if before == nil {
		back = []byte("null")
	}
	if versions || s.durable.linked() { // a worker may not know of the others
		if rec == nil {
			rec = &liveRecord{At: time.Now().UTC()}
		}
		rec.Version, rec.Site = was.Version+1, s.durable.about.Datacenter
		was.Version, was.Site = rec.Version+1, rec.Site
		if back, err = json.Marshal(was); err != nil {
			return nil, err
		}
	}
	value, err := json.Marshal(rec)
	if err != nil {
		return nil, err
	}
	key := liveKey(g.file.Name)
	written, err := s.store.CompareAndSwap(ctx, key, revision, value)
	if err != nil {
		// The write may have happened all the same: then it must not come to light
		// at the next start, after it was said to have failed.
		var there []byte
		there, written, _ = s.loadLive(ctx, g.file.Name)
		if !bytes.Equal(there, value) {
			return nil, fmt.Errorf("write %s: %w", key, err)
		}
	}
	return func() error { return s.putBack(ctx, key, written, back) }, nil
}

// putBack undoes a write, unless another has taken its place since.
func (s *Server) putBack(ctx context.Context, key string, written uint64, value []byte) error {
	ctx, stop := afterwards(ctx)
	defer stop()
	_, err := s.store.CompareAndSwap(ctx, key, written, value)
	if err != nil && !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("put %s back: %w", key, err)
	}
	return nil
}

// afterwards is the context of putting things back, when the time of the change
// may be over.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), changeWait)
}

// loadLive is what the store has of a room; nil for nothing.
func (s *Server) loadLive(ctx context.Context, room string) ([]byte, uint64, error) {
	value, revision, err := s.store.Load(ctx, liveKey(room))
	switch {
	case errors.Is(err, store.ErrDamaged):
		s.log.Error("live changes are lost: the room is as the file says", "room", room, "error", err)
		return nil, 0, nil
	case errors.Is(err, store.ErrNotFound):
		return nil, 0, nil
	case err != nil:
		return nil, 0, fmt.Errorf("read %s: %w", liveKey(room), err)
	}
	return value, revision, nil
}

// recall finds the live changes of a room that is opened. Those of another file
// than this one are dropped for good: they must not come back with the old file.
func (s *Server) recall(
	ctx context.Context, file *config.Room,
) (now *config.Room, live *api.Live, err error) {
	value, _, err := s.loadLive(ctx, file.Name)
	if err != nil || value == nil {
		return file, nil, err
	}
	var rec *liveRecord
	why := ""
	print, err := file.Fingerprint()
	switch {
	case err != nil:
		return nil, nil, err
	case json.Unmarshal(value, &rec) != nil:
		why = "they cannot be read"
	case rec == nil, rec.Version > 0 && len(rec.Pairs) == 0:
		return file, nil, nil
	case rec.Fingerprint != print:
		why = "the configuration of the room has changed since"
	default:
		now, err := config.Amend(file, rec.Pairs)
		if err == nil {
			return now, &api.Live{Pairs: rec.Pairs, At: rec.At, By: rec.By}, nil
		}
		why = err.Error()
	}
	if s.durable.bus != nil { // another node may have another file, for a while
		return file, nil, nil
	}
	s.log.Warn("live changes dropped", "room", file.Name, "record", string(value), "why", why)
	_, err = s.keep(ctx, &gate{file: *file})
	return file, nil, err
}
