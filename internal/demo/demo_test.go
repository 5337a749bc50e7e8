package demo

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// built is the binary, once TestMain has built it.
var built string

// shortDemo is a demo of a few seconds: a small room and a crowd that does not fit.
func shortDemo(t *testing.T, program string, out io.Writer) Config {
	return Config{Program: program, Temp: t.TempDir(), Listen: "127.0.0.1:0", Visitors: 60,
		Limits: Limits{AtOnce: 5, PerMinute: 180, Session: 20 * time.Second}, Kills: 1, Plain: true,
		For: 11 * time.Second, Out: out}
}

// leftovers are files of a demo that it should have taken away.
func leftovers(t *testing.T, folder string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(folder, "headgate-demo-*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRoomThatDoesNotStart: the demo says what the room said, and leaves nothing.
func TestRoomThatDoesNotStart(t *testing.T) {
	cfg := shortDemo(t, "/bin/false", io.Discard)
	_, err := Run(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "the room ended by itself") {
		t.Errorf("%v, want an error that says how the room ended", err)
	}
	cfg.Program = filepath.Join(cfg.Temp, "missing")
	if _, err := Run(t.Context(), cfg); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want an error that says there is no such program", err)
	}
	if left := leftovers(t, cfg.Temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
