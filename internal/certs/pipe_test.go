//go:build unix

package certs

import (
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A pipe that nobody writes to must not hold the start for ever.
func TestAPipeIsRefusedAtOnce(t *testing.T) {
	certificate, _ := pairFiles(t, "shop.example")
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPair(certificate, pipe, time.Now()); err == nil {
		t.Error("a pipe is no key")
	}
}
