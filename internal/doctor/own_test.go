package doctor

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
)

// With a NATS of the operator's own no records, keys or engine are missed here.
func TestWithYourOwnNATSNothingIsMissedHere(t *testing.T) {
	r := Examine(t.Context(), Config{Data: filepath.Join(t.TempDir(), "none"), Config: &config.Config{
		Engine: &config.Engine{URLs: []string{"nats://127.0.0.1:1"}},
	}})
	if !r.OK {
		t.Errorf("faults: %+v", r.Checks)
	}
	var said []string
	for _, c := range r.Checks {
		said = append(said, c.What)
	}
	if all := strings.Join(said, "\n"); !strings.Contains(all, "your own NATS is not looked at") {
		t.Errorf("it does not say what it leaves out:\n%s", all)
	}
}
