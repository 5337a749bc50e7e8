package hint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// The text of a file's error has its path once, and the cause is still found.
func TestErrors(t *testing.T) {
	_, cause := os.Open("/no/such/file")
	e := File(cause, "/no/such/file: cannot be read", "make it")
	if got := e.Error(); got != "/no/such/file: cannot be read: no such file or directory" {
		t.Errorf("got %q", got)
	}
	if !errors.Is(e, fs.ErrNotExist) {
		t.Error("the cause is lost")
	}
	if got := (&Error{Text: "it failed"}).Error(); got != "it failed" {
		t.Errorf("got %q", got)
	}
	if Of(fmt.Errorf("start: %w", e)) != "make it" || Of(cause) != "" || Of(nil) != "" {
		t.Error("a hint is lost, or one came from nowhere")
	}
}

func TestQuoteAndCut(t *testing.T) {
	long := strings.Repeat("é", 61)
	for _, tt := range []struct{ got, want string }{
		{Quote("a\x1b[1m"), `"a\x1b[1m"`}, // no control sequence reaches a terminal
		{Quote(long[2:]), `"` + long[2:] + `"`},
		{Quote(long), `"` + long[2:] + `"…`},
		{Cut(long, 200), long},
		{Cut("aé", 2), "a…"}, // never half a character
	} {
		if tt.got != tt.want {
			t.Errorf("got %s, want %s", tt.got, tt.want)
		}
	}
}
