package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/join"
)

// TestReadmeCommandsRun takes each headgate run of the pages through the code
// that reads its flags.
func TestReadmeCommandsRun(t *testing.T) {
	command := regexp.MustCompile(`(?m)^(?:bin/)?headgate run (.*--origin.*)$`)
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
	var found [][][]byte
	for _, page := range []string{"configuration", "identity", "service", "cluster", "http", "api", "repair"} {
		src, err := os.ReadFile("../../docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, block.FindAllSubmatch(src, -1)...)
	}
	if len(found) < 10 {
		t.Fatalf("the pages show only %d configurations", len(found))
	}
	dir := t.TempDir() // with the files that examples name
	plan := join.Plan{Datacenter: "sjc", Store: []string{"n1"},
		Peers: map[string]string{"n1": "10.0.0.1:7422"}}
	if _, err := join.Init(dir, plan, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "nats.creds"), []byte("me:secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"lhr", "del"} {
		there := t.TempDir()
		plan.Datacenter = other
		if _, err := join.Init(there, plan, time.Now()); err != nil {
			t.Fatal(err)
		}
		ca, err := os.ReadFile(filepath.Join(there, "ca.pem"))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, other+"-ca.pem"), ca, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range found {
		if cfg, err := config.Parse(filepath.Join(dir, "headgate.yaml"), m[1]); err != nil {
			t.Errorf("%s: %v", m[1], err)
		} else if len(cfg.Warnings) > 0 {
			t.Errorf("%s: %v", m[1], cfg.Warnings)
		}
	}
}
