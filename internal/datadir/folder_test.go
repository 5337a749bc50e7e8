package datadir

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/hint"
)

// A folder that was copied to another node is refused there, and goes on where it belongs.
func TestAFolderIsThatOfOneNode(t *testing.T) {
	f, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, owner := range []string{"sjc/n1", "sjc/n1"} {
		if err := f.Claim(owner); err != nil {
			t.Fatal(err)
		}
	}
	for _, owner := range []string{"sjc/n2", "lhr/n1"} {
		e, ok := errors.AsType[*hint.Error](f.Claim(owner))
		if !ok || !strings.Contains(e.Text, `"sjc/n1"`) || !strings.Contains(e.Hint(), "empty folder") {
			t.Errorf("%s in the folder of sjc/n1: %v", owner, e)
		}
	}
	if err := f.Claim("sjc/n1"); err != nil {
		t.Error(err)
	}
}
