package main

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"headgate": main})
}

// TestScripts runs testdata/script/*.txtar: each is a session at a terminal,
// with the real main in a process of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"from":  from,
		},
	})
}

// exits CODE COMMAND... is exec that wants this exit code and no other.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s: got exit code %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// from WORD FILE NEW copies the lines of FILE that begin with the one WORD
// stands alone in to NEW.
func from(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: from WORD FILE NEW")
	}
	lines := strings.Split(ts.ReadFile(args[1]), "\n")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.TrimSpace(l) == args[0] })
	if at < 0 {
		ts.Fatalf("no line %s in %s", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(strings.Join(lines[at:], "\n")), 0o600))
}

// Each command has a summary that fits its line, and a help text with usage
// and an example.
func TestEveryCommandExplainsItself(t *testing.T) {
	for _, c := range commands() {
		if c.summary == "" || len(c.name)+len(c.summary) > 66 {
			t.Errorf("%s: summary %q is empty or too long", c.name, c.summary)
		}
		if !strings.HasPrefix(c.help, "usage: headgate "+c.name) {
			t.Errorf("%s: help begins with %.40q", c.name, c.help)
		}
		if !strings.Contains(c.help, "\n  headgate "+c.name) {
			t.Errorf("%s: help has no example", c.name)
		}
		for line := range strings.Lines(c.help) {
			if len(line) > 81 {
				t.Errorf("%s: line is wider than 80 columns: %s", c.name, line)
			}
		}
	}
}
