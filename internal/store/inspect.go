package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Inspect returns where the records are stored, and changes nothing. It returns ErrNotFound if
// there are none yet.
func Inspect(ctx context.Context, conn *nats.Conn) (Placement, error) {
	if far := clientOf(conn); far != nil {
		return far.kept(ctx)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return Placement{}, fmt.Errorf("speak to the engine: %w", err)
	}
	s, err := js.Stream(ctx, streamName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return Placement{}, ErrNotFound
	}
	if err != nil {
		return Placement{}, fmt.Errorf("look at the stream: %w", err)
	}
	info := s.CachedInfo()
	c := Placement{Wanted: max(1, info.Config.Replicas), Behind: map[string]int{}}
	if info.Cluster == nil {
		return c, nil
	}
	c.Leader = info.Cluster.Leader
	for _, r := range info.Cluster.Replicas {
		switch {
		case r.Offline:
			c.Gone = append(c.Gone, r.Name)
		case !r.Current:
			c.Behind[r.Name] = int(r.Lag)
		}
	}
	return c, nil
}

// Leader returns the name of the server that leads the stream, "" if there is none now.
func (n *NATS) Leader(ctx context.Context) (string, error) {
	k, err := Inspect(ctx, n.cfg.Conn)
	return k.Leader, err
}

// Logs returns the names of the logs that an engine stores in a folder. The engine need not run.
func Logs(engine string) (names []string) {
	// The pattern is valid, so there is no error.
	all, _ := filepath.Glob(filepath.Join(engine, "jetstream", "*", "streams", logStream+"*"))
	for _, path := range all {
		names = append(names, strings.TrimPrefix(filepath.Base(path), logStream))
	}
	return names
}
