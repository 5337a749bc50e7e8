package house

import (
	"os"
	"testing"
)

// rule is one house rule as the tests run it.
type rule struct {
	name  string
	check func(*Tree) []Fault
}

func rules() []rule {
	return []rule{
		{"names", Names},
		{"glossary", Glossary},
		{"package size", PackageSize},
		{"root size", RootSize},
		{"goroutines", func(t *Tree) []Fault { return Goroutines(t, waiters()) }},
		{"sleeps", Sleeps},
		{"secrets", Secrets},
		{"links", Links},
		{"pages named", PagesNamed},
		{"references", References},
		{"changelog", Changelog},
		{"targets", Targets},
		{"pinned", Pinned},
		{"decisions", Decisions},
		{"complaints", Complaints},
		{"metrics", Metrics},
		{"monitoring", Monitoring},
		{"flags", Flags},
		{"keys", Keys},
	}
}

func TestHouseRules(t *testing.T) {
	tree, err := Read(os.DirFS("../.."))
	if err != nil {
		t.Fatalf("read the repository: %v", err)
	}
	if len(tree.Go) < 10 || tree.Text["go.mod"] == nil {
		t.Fatalf("read %d Go files and no go.mod: this is not the repository", len(tree.Go))
	}
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			for _, f := range r.check(tree) {
				t.Error(f)
			}
		})
	}
}
