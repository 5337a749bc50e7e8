package house

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
)

// TestReadmeCommandsRun takes each headgate run of the pages through the code
// that reads its flags.
func TestReadmeCommandsRun(t *testing.T) {
	command := regexp.MustCompile(`(?m)^headgate run (.*--origin.*)$`)
	src, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := command.FindAllStringSubmatch(string(src), -1)
	if len(found) == 0 {
		t.Fatal("README.md shows no headgate run")
	}
	for _, m := range found {
		var warnings strings.Builder
		cfg, err := config.ParseRun(strings.Fields(m[1]), &warnings)
		if err != nil || warnings.Len() > 0 {
			t.Errorf("%s: %v %s", m[0], err, warnings.String())
			continue
		}
		if r := cfg.Rooms[0]; r.TotalActiveUsers != 200 || r.NewUsersPerMinute != 200 {
			t.Errorf("%s: limits %d and %d, want 200", m[0], r.TotalActiveUsers, r.NewUsersPerMinute)
		}
	}
}

// TestPageConfigurationsAreGood checks each YAML example of the pages.
func TestPageConfigurationsAreGood(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	src, err := os.ReadFile("../../" + Operations)
	if err != nil {
		t.Fatal(err)
	}
	found := block.FindAllSubmatch(src, -1)
	if len(found) == 0 {
		t.Fatalf("%s shows no configuration", Operations)
	}
	for _, m := range found {
		if cfg, err := config.Parse(Operations, m[1]); err != nil {
			t.Errorf("%s: %v", m[1], err)
		} else if len(cfg.Warnings) > 0 {
			t.Errorf("%s: %v", m[1], cfg.Warnings)
		}
	}
}
