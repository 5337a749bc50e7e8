package simulate

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// An interrupt ends a simulation at once and leaves no page, whatever it was at.
func TestSimulateInterrupted(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	visits := filepath.Join(dir, "visits.csv")
	if err := os.WriteFile(visits, []byte("time\n"+strings.Repeat("1\n", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(dir, "page.html")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for _, args := range [][]string{
		{"--scenario", "flash-crowd"}, {"--plan"},
		{"--arrivals", visits, "--total-active-users", "9", "--new-users-per-minute", "9"},
	} {
		var stdout, stderr strings.Builder
		c := &Command{Stdout: &stdout, Stderr: &stderr}
		code := c.Run(ctx, append(args, "--html", page))
		if code != exitFailed || stderr.String() != "headgate: interrupted\n" || stdout.Len() > 0 {
			t.Errorf("%v: got %d, %q and %q", args, code, stderr.String(), stdout.String())
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%v: left behind: %v, %v", args, left, err)
		}
	}
}

// The command that makes a report again says all that matters, for a shell.
func TestSimulateAgain(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"", "headgate simulate --scenario world-spike --seed 1"},
		{"--json --seed 7 --scenario ramp --plan", "headgate simulate --scenario ramp --seed 7 --json --plan"},
		{"--arrivals=it's.log --config a,b.yaml",
			`headgate simulate --arrivals 'it'\''s.log' --seed 1 --config a,b.yaml`},
		{"--total-active-users 5 --session-duration 90s",
			"headgate simulate --scenario world-spike --seed 1 --session-duration 1m30s --total-active-users 5"},
	} {
		s, err := parseFlags(strings.Fields(test.args))
		if err != nil {
			t.Fatal(err)
		}
		if s.command != test.want {
			t.Errorf("%s: got %s, want %s", test.args, s.command, test.want)
		}
	}
}

// A room whose sessions are not renewed, or end hard, bounds what a visit takes.
func TestSimulateRoomBoundsVisits(t *testing.T) {
	longest := func(more string) time.Duration {
		file := filepath.Join(t.TempDir(), "headgate.yaml")
		text := "rooms:\n  - name: a\n    origin: http://127.0.0.1:3000\n    total_active_users: 5\n" +
			"    new_users_per_minute: 6\n    session_duration: 2m\n" + more
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &simFlags{limits: simLimits{config: file}}
		if err := s.room(); err != nil {
			t.Fatal(err)
		}
		scenario := sim.Scenarios()[0]
		s.limits.apply(&scenario)
		want := sim.Limits{Active: 5, New: 6, Session: 2 * time.Minute, Window: time.Minute}
		if scenario.Limits != want {
			t.Errorf("got %+v", scenario.Limits)
		}
		visits := slices.Collect(scenario.Arrivals(1))
		return slices.MaxFunc(visits, func(a, b sim.Arrival) int { return int(a.Dwell - b.Dwell) }).Dwell
	}
	if d := longest(""); d < 5*time.Minute {
		t.Errorf("renewed: %v", d)
	}
	if d := longest("    hard_end: 3m\n"); d != time.Minute {
		t.Errorf("hard end: %v", d)
	}
	if d := longest("    session_renewal: false\n"); d != 0 {
		t.Errorf("not renewed: %v", d)
	}
}

// On a terminal a line says how far it is, and is gone in the end.
func TestTeller(t *testing.T) {
	var b strings.Builder
	tell := &teller{w: &b, on: true}
	say := tell.of("1 of 2  counters")
	say(0.254)
	say(0.3) // too soon to be read
	tell.clear()
	tell.clear()
	if want := "\r\x1b[K1 of 2  counters  25 %\r\x1b[K"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
	b.Reset()
	tell = &teller{w: &b}
	if tell.of("hidden")(0.5); b.Len() > 0 {
		t.Error("what is no terminal gets a line")
	}
}
