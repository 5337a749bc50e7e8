package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
)

// Seed 10: a node that is stopped while it starts, and waits for the store, has not failed.
func TestAStopDuringTheStartIsNoFailure(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "headgate.yaml")
	text := "listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\ndata: " + dir + `
engine: {url: "nats://127.0.0.1:1"}
rooms: [{name: shop, origin: "http://127.0.0.1:1", total_active_users: 60, new_users_per_minute: 60}]
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var stdout, stderr bytes.Buffer
	err := runCommand(ctx, []string{"--config", file}, &stdout, &stderr)
	if err != nil || stdout.Len() > 0 {
		t.Errorf("%v, %s%s", err, stdout.String(), stderr.String())
	}
}
