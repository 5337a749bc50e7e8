package hint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
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
