package main

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Who looks for a command in the documents finds it, and each help fits a terminal.
func TestEachCommandIsInTheDocumentsAndFitsATerminal(t *testing.T) {
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands() {
		if !bytes.Contains(page, []byte("| `headgate "+c.name+"` |")) {
			t.Errorf("docs/cli.md has no row for headgate %s in its table of commands", c.name)
		}
		for line := range strings.Lines(helpOf(c.name)) {
			if text := strings.TrimRight(line, "\n"); len(text) > 80 {
				t.Errorf("headgate help %s: a line of %d columns: %s", c.name, len(text), text)
			}
		}
		if helpOf(c.name) == "" && c.name != "crowd" && c.name != "simulate" { // they print their own
			t.Errorf("headgate help %s has no text", c.name)
		}
	}
}

// Completions and manual pages have each flag: the hint about a wrong one lists all.
func TestCompletionsHaveEachFlag(t *testing.T) {
	listed, hinted := regexp.MustCompile(`--([a-z][a-z0-9-]*)`), 0
	for _, c := range explained(t.Context()) {
		var known []string
		for _, f := range c.Flags() {
			known = append(known, f.Name)
		}
		for _, sub := range append([]string{""}, c.Subcommands()...) {
			args := []string{c.Name, sub, "--zzzzzzzzzzzz"}
			if sub == "" {
				args = []string{c.Name, "--zzzzzzzzzzzz"}
			}
			var stderr strings.Builder
			dispatch(t.Context(), args, io.Discard, &stderr)
			_, hint, ok := strings.Cut(stderr.String(), "hint: the flags are ")
			if !ok {
				continue
			}
			hinted++
			for _, m := range listed.FindAllStringSubmatch(hint, -1) {
				if !slices.Contains(known, m[1]) {
					t.Errorf("headgate help %s does not explain --%s as a flag (of %q)", c.Name, m[1], args)
				}
			}
		}
	}
	if hinted < 30 {
		t.Errorf("only %d hints list flags", hinted)
	}
}
