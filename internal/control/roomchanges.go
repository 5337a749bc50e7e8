package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/store"
)

// RoomChangesTopic is the topic of a message with the name of a room whose live changes are new.
const RoomChangesTopic = "live"

// A roomChange is the stored live changes of a room. They are in force while the file describes the
// room as it did when they were made.
type roomChange struct {
	Fingerprint string            `json:"fingerprint"`
	Pairs       map[string]string `json:"pairs"`
	At          time.Time         `json:"at"`
	By          string            `json:"by"`

	// With several data centers, each change has a version and the name of the data center that
	// made it. The version is one more than the greatest that was known there. Of two changes the
	// one with the greater version is valid; if the versions are equal, the one with the greater
	// name. A record without pairs means that there are no changes any more.
	Version    uint64 `json:"version,omitempty"`
	Datacenter string `json:"site,omitempty"` // as in older data folders

	unreadable []byte // the record, if it cannot be decoded
}

// after reports whether r is valid and not x.
func (r *roomChange) after(x *roomChange) bool {
	return r.Version > x.Version || r.Version == x.Version && r.Datacenter > x.Datacenter
}

// RoomChanges holds the live changes of the rooms in the configuration, with one record for each
// room.
type RoomChanges struct {
	node *node.Node
	log  *slog.Logger
}

// NewRoomChanges returns the live changes in the records of a node.
func NewRoomChanges(n *node.Node, log *slog.Logger) *RoomChanges { return &RoomChanges{n, log} }

// doc returns the record of a room. Its value is nil, or null in the store, if there are no
// changes.
func (s *RoomChanges) doc(room string) *store.Doc[*roomChange] {
	return &store.Doc[*roomChange]{Store: s.node.Records, Key: "live." + room,
		Encode: func(r *roomChange) ([]byte, error) {
			if r != nil && r.unreadable != nil {
				return r.unreadable, nil
			}
			return json.Marshal(r)
		},
		Decode: func(b []byte) (r *roomChange, err error) {
			if json.Unmarshal(b, &r) != nil {
				r = &roomChange{unreadable: b}
			}
			return r, nil
		},
		Lost: func(err error) {
			s.log.Error("live changes are lost: the room is as the file says", "room", room, "error", err)
		},
		Bus: s.node.Bus, Topic: RoomChangesTopic, Message: []byte(room), Log: s.log,
	}
}

// versioned returns the record with its version, if it has one. A change from before there were
// other data centers has version 1, if it is in force.
func (s *RoomChanges) versioned(file *config.Room, rec *roomChange) (r roomChange, ok bool) {
	if rec == nil {
		return r, false
	}
	r = *rec
	if r.Version == 0 && len(r.Pairs) > 0 && s.node.Linked() {
		if print, err := file.Fingerprint(); err == nil && r.Fingerprint == print {
			r.Version, r.Datacenter = 1, s.node.About.Datacenter
		}
	}
	if r.Version == 0 {
		return roomChange{}, false
	}
	return r, true
}

// Amend applies more live changes to a room of the file. It returns the room, and all changes that
// differ from the file.
func Amend(
	file *config.Room, live *api.Live, pairs map[string]string,
) (*config.Room, map[string]string, error) {
	all := map[string]string{}
	if live != nil {
		maps.Copy(all, live.Pairs)
	}
	maps.Copy(all, pairs)
	now, err := config.Amend(file, all)
	if err != nil {
		return nil, nil, err
	}
	fewer := maps.Clone(all)
	maps.DeleteFunc(fewer, func(k, _ string) bool { return now.Text(k) == file.Text(k) })
	if same, err := config.Amend(file, fewer); err == nil && reflect.DeepEqual(same, now) {
		all = fewer
	}
	return now, all, nil
}

// Keep stores the live changes of a room, or that it has none, and publishes that to the other
// nodes and data centers. undo restores the previous state.
func (s *RoomChanges) Keep(
	ctx context.Context, file *config.Room, live *api.Live,
) (undo func() error, err error) {
	print := ""
	if live != nil {
		if print, err = file.Fingerprint(); err != nil {
			return nil, err
		}
	}
	var back *roomChange
	written := false
	d := s.doc(file.Name)
	revision, err := d.Edit(ctx, func(rec **roomChange) (bool, error) {
		written = false
		was, versions := s.versioned(file, *rec)
		if live == nil && (*rec == nil || versions && len(was.Pairs) == 0) {
			return false, nil
		}
		back, *rec = *rec, nil
		if live != nil {
			*rec = &roomChange{Fingerprint: print, Pairs: live.Pairs, At: live.At, By: live.By}
		}
		if versions || s.node.Linked() { // a worker may not know of other data centers
			if *rec == nil {
				*rec = &roomChange{At: time.Now().UTC()}
			}
			(*rec).Version, (*rec).Datacenter = was.Version+1, s.node.About.Datacenter
			was.Version, was.Datacenter = (*rec).Version+1, (*rec).Datacenter
			back = &was
		}
		written = true
		return true, nil
	})
	switch {
	case err != nil:
		return nil, err
	case !written:
		return func() error { return nil }, nil
	}
	s.node.PublishToDatacenters()
	return func() error {
		err := s.putBack(ctx, d, revision, back)
		d.Publish()
		s.node.PublishToDatacenters()
		return err
	}, nil
}

// putBack undoes a write, unless another process has written since.
func (s *RoomChanges) putBack(
	ctx context.Context, d *store.Doc[*roomChange], written uint64, was *roomChange,
) error {
	ctx, stop := Afterwards(ctx)
	defer stop()
	_, err := d.Swap(ctx, written, was)
	if err != nil && !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("put it back: %w", err)
	}
	return nil
}

// Afterwards returns a context for undoing a change, when the context of the change may have ended.
func Afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), ChangeWait)
}

// Recall loads the live changes of a room that is being opened. Changes under another description
// of the room are not in force. A process without other nodes removes them from the store, so that
// they do not return with the old file.
func (s *RoomChanges) Recall(
	ctx context.Context, file *config.Room,
) (now *config.Room, live *api.Live, err error) {
	rec, _, err := s.doc(file.Name).Load(ctx)
	if err != nil || rec == nil || rec.Version > 0 && len(rec.Pairs) == 0 {
		return file, nil, err
	}
	why := ""
	print, err := file.Fingerprint()
	switch {
	case err != nil:
		return nil, nil, err
	case rec.unreadable != nil:
		why = "they cannot be read"
	case rec.Fingerprint != print:
		why = "the configuration of the room has changed since"
	default:
		now, err := config.Amend(file, rec.Pairs)
		if err == nil {
			return now, &api.Live{Pairs: rec.Pairs, At: rec.At, By: rec.By}, nil
		}
		why = err.Error()
	}
	if s.node.Bus != nil { // another node may still have another file
		return file, nil, nil
	}
	record, err := s.doc(file.Name).Encode(rec)
	if err != nil {
		return nil, nil, err
	}
	s.log.Warn("live changes dropped", "room", file.Name, "record", string(record), "why", why)
	_, err = s.Keep(ctx, file, nil)
	return file, nil, err
}

// own returns the live changes of a room as they are known here, if they have a version.
func (s *RoomChanges) own(ctx context.Context, file *config.Room) (x sharedRoom, ok bool, err error) {
	value, _, err := s.doc(file.Name).Load(ctx)
	if err != nil {
		return x, false, err
	}
	rec, ok := s.versioned(file, value)
	return sharedRoom{
		Room: file.Name, Version: rec.Version, Datacenter: rec.Datacenter, Pairs: rec.Pairs, At: rec.At,
		By: rec.By,
	}, ok, nil
}

// adopt stores the live changes of a room from another data center if they are newer than those
// known here.
func (s *RoomChanges) adopt(ctx context.Context, file *config.Room, x *sharedRoom) error {
	next := roomChange{Pairs: x.Pairs, At: x.At, By: x.By, Version: x.Version, Datacenter: x.Datacenter}
	var err error
	if next.Fingerprint, err = file.Fingerprint(); err != nil {
		return err
	}
	newer := false
	_, err = s.doc(x.Room).Edit(ctx, func(rec **roomChange) (bool, error) {
		was, ok := s.versioned(file, *rec)
		if newer = !ok || next.after(&was); newer {
			*rec = &next
		}
		return newer, nil
	})
	if err != nil || !newer {
		return err
	}
	s.log.Info("change of another data center stored", "room", x.Room, "datacenter", x.Datacenter, "by", x.By)
	if _, err := config.Amend(file, x.Pairs); err != nil {
		s.log.Warn("change of another data center does not fit the configuration here, and is not in force",
			"room", x.Room, "datacenter", x.Datacenter, "error", err)
	}
	return nil
}

// A sharedRoom is the live changes of a room, from any data center, or the fact that it has none
// any more. It has no fingerprint, because each data center has its own configuration file.
type sharedRoom struct {
	Room       string            `json:"room"`
	Version    uint64            `json:"version"`
	Datacenter string            `json:"datacenter"`
	Pairs      map[string]string `json:"pairs"`
	At         time.Time         `json:"at"`
	By         string            `json:"by"`
}
