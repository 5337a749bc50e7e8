//go:build unix

package api

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A token file that could not be read once, because the process was out of file descriptors, was
// not read again until it changed, and every token was rejected.
func TestATokenFileThatCouldNotBeReadOnceIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	tokens := NewTokens(dir, slog.New(slog.NewTextHandler(&log, nil)))
	secret, _, err := CreateToken(dir, Token{Scopes: []string{"read"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		lift := noFiles(t)
		_, first := tokens.find(secret)
		_, again := tokens.find(secret)
		lift()
		if first || again {
			t.Fatal("it was read")
		}
		if _, ok := tokens.find(secret); !ok {
			t.Fatal("refused though the file can be read again")
		}
		later := time.Now().Add(time.Minute) // so that the next round reads it again
		if err := os.Chtimes(filepath.Join(dir, tokensFile), later, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 3 {
		t.Errorf("told %d times, want once in each round: %s", n, log.String())
	}
}

// noFiles makes every open of a file in this process fail, and returns a function that ends this.
func noFiles(t *testing.T) (lift func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	set := func(l unix.Rlimit) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
			t.Fatal(err)
		}
	}
	set(unix.Rlimit{Cur: 0, Max: old.Max})
	return func() { set(old) }
}
