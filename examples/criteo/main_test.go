//go:build cluster

package main

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestShow: four short windows with the real program: 25 s.
func TestShow(t *testing.T) { play(t, "-window", "3s", "-windows", "4") }

// TestKill: the node that counts is killed and comes back: 70 s.
func TestKill(t *testing.T) { play(t, "-window", "5s", "-kill") }

// play builds headgate and runs the command, which judges itself.
func play(t *testing.T, args ...string) {
	binary := filepath.Join(t.TempDir(), "headgate")
	built, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary,
		"github.com/headgate/headgate/cmd/headgate").CombinedOutput()
	if err != nil {
		t.Fatalf("build headgate: %v\n%s", err, built)
	}
	var out, told strings.Builder
	code := command(t.Context(), append(args, "-binary", binary), &out, &told)
	t.Log(out.String(), told.String())
	if code != 0 {
		t.Errorf("exit %d", code)
	}
	if want := "most in any"; !strings.Contains(out.String(), want) ||
		!strings.Contains(out.String(), strconv.Itoa(amount)) {
		t.Errorf("the output does not say %q", want)
	}
}
