package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// Who looks for a command in the documents finds it, and each help fits a terminal.
func TestEachCommandIsInTheDocumentsAndFitsATerminal(t *testing.T) {
	operations, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands() {
		if !bytes.Contains(operations, []byte("| `headgate "+c.name+"` |")) {
			t.Errorf("docs/operations.md has no row for headgate %s in its table of commands", c.name)
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
