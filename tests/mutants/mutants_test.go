//go:build mutants

package mutants

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMutantsAreFound: each fault is found by its scenario, or by one of its seeds.
func TestMutantsAreFound(t *testing.T) {
	for _, m := range mutants() {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) { m.hunt(t) })
	}
}

func (m *mutant) hunt(t *testing.T) {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	program := filepath.Join(dir, "mutant.test")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{changed: []byte(m.mutate(t)), overlay: list} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay", overlay, "-c",
		"-o", program, "./"+m.folder())
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	seeds := m.seeds
	if seeds == nil {
		seeds = []string{"1"}
	}
	for _, seed := range seeds {
		args := []string{"-test.timeout", "20m", "-test." + m.run[0][1:], m.run[1]}
		if m.tests == "" {
			args = append(args, "-seed", seed)
		}
		cmd := exec.CommandContext(t.Context(), program, append(args, m.run[2:]...)...)
		cmd.Dir = filepath.Join(root, m.folder())
		out, err := cmd.CombinedOutput()
		found := false
		for line := range strings.SplitSeq(string(out), "\n") {
			if err != nil && m.found(line) {
				found = true
				t.Logf("seed %s: %.200s", seed, strings.TrimSpace(line))
			}
		}
		if found {
			return
		}
	}
	t.Errorf("not found")
}

// folder is that of the tests that must find it.
func (m *mutant) folder() string { return cmp.Or(m.tests, "tests/cluster") }

// found reports whether a line of the tests says that they found it.
func (m *mutant) found(line string) bool {
	if m.tests != "" {
		return strings.HasPrefix(line, "--- FAIL: ")
	}
	return strings.Contains(line, ", limit ") && strings.Contains(line, m.finds)
}
