package server

import (
	"context"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/api"
)

// Rooms implements api.Process.
func (s *Server) Rooms() []headgate.Status {
	var all []headgate.Status
	for _, g := range s.set.Load().gates {
		all = append(all, g.room.Status())
	}
	return all
}

// Where implements api.Process.
func (s *Server) Where(ctx context.Context, room, ticket string) (headgate.Where, error) {
	g := s.set.Load().find(room)
	if g == nil {
		return headgate.Where{}, api.ErrNoRoom
	}
	return g.room.Where(ctx, ticket)
}

// About implements api.Process.
func (s *Server) About() api.About {
	set, read := s.set.Load(), s.read.Load()
	b := readBuild()
	a := api.About{
		Version: b.version, Revision: b.revision, StartedAt: s.began.UTC(),
		UptimeSeconds: time.Since(s.began).Round(time.Millisecond).Seconds(),
		ConfigFile:    set.cfg.File, Data: s.dataFolder(), Rooms: []api.RoomAbout{},
		LastReload: api.LastReload{At: read.at.UTC(), Successful: read.err == nil},
	}
	if read.err != nil {
		a.LastReload.Error = read.err.Error()
	}
	for _, g := range set.gates {
		a.Rooms = append(a.Rooms,
			api.RoomAbout{Name: g.file.Name, Status: g.room.Status().Status, Live: g.live})
	}
	return a
}

// Cluster implements api.Process.
func (s *Server) Cluster(ctx context.Context) (api.Cluster, error) { return s.node.Describe(ctx) }

// Revoke implements api.Process.
func (s *Server) Revoke(ctx context.Context, r api.Revoked) (api.Rotated, error) {
	return s.node.Revoke(ctx, r)
}

// dataFolder is the data folder for those who stand in another folder.
func (s *Server) dataFolder() string {
	if abs, err := filepath.Abs(s.cfg.Data); err == nil {
		return abs
	}
	return s.cfg.Data
}

// A build says where the binary came from.
type build struct{ version, revision, golang string }

func readBuild() build {
	b := build{version: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.golang = info.GoVersion
	if info.Main.Version != "" {
		b.version = info.Main.Version
	}
	for _, set := range info.Settings {
		if set.Key == "vcs.revision" {
			b.revision = set.Value
		}
	}
	return b
}
