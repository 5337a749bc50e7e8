package server

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/internal/config"
)

// What is wrong with the files of targets and webhooks is told before anything is taken: the data folder,
// the ports of a cluster, the addresses.
func TestCheckFilesOfTargets(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, torn := file("good", oneSecret, 0o600), file("torn", "-----BEGIN CERT", 0o600)
	open := file("open", oneSecret, 0o644)
	parse := func(target, hook string) *config.Config {
		cfg, err := config.Parse(filepath.Join(dir, "headgate.yaml"), []byte("data: "+dir+"/data\n"+
			"listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\n"+
			"queues:\n  - {name: one, target: {url: 'https://127.0.0.1:1', "+target+"}}\n"+
			"webhooks:\n  - {name: ops, url: 'https://127.0.0.1:1', secret_files: ["+hook+"]}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	for _, c := range []struct {
		target, hook string
		faults       int
	}{
		{"secret_files: [" + good + "]", good, 0},
		{"secret_files: [" + dir + "/none]", good, 1},
		{"secret_files: [" + good + "]", torn, 1},
		{"secret_files: [" + open + "]", open, 2},
		{"ca: " + torn, good, 1},
		{"certificate: " + torn + ", key: " + torn, dir + "/none", 2},
	} {
		cfg := parse(c.target, c.hook)
		if faults := config.Faults(CheckFiles(cfg)); len(faults) != c.faults {
			t.Errorf("%s, webhook %s: %d faults %v, want %d", c.target, c.hook, len(faults), faults, c.faults)
		}
		if c.faults == 0 {
			continue
		}
		if _, err := Open(t.Context(), cfg, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s, webhook %s: headgate starts", c.target, c.hook)
		}
		if _, err := os.Stat(dir + "/data"); err == nil {
			t.Errorf("%s, webhook %s: the data folder was made before", c.target, c.hook)
		}
	}
}
