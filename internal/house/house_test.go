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
	hard := func(f func(*Tree) (hard, soft []Fault)) func(*Tree) []Fault {
		return func(t *Tree) []Fault { hard, _ := f(t); return hard }
	}
	return []rule{
		{"package comments", PackageComments},
		{"documented", Documented},
		{"unfinished", Unfinished},
		{"names", Names},
		{"imports", Imports},
		{"clocks", Clocks},
		{"environment", Environment},
		{"file sizes", hard(FileSizes)},
		{"function sizes", FunctionSizes},
		{"line sizes", hard(LineSizes)},
		{"format", Format},
		{"inits", Inits},
		{"state", func(t *Tree) []Fault { return State(t, variables()) }},
		{"goroutines", func(t *Tree) []Fault { return Goroutines(t, waiters()) }},
		{"sleeps", func(t *Tree) []Fault { return Sleeps(t, sleepers()) }},
		{"skips", Skips},
		{"words", Words},
		{"links", Links},
		{"pages named", PagesNamed},
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

// TestSizesReported prints what is over the aim and under the limit. It fails
// for nothing: go test -v shows it.
func TestSizesReported(t *testing.T) {
	tree, err := Read(os.DirFS("../.."))
	if err != nil {
		t.Fatalf("read the repository: %v", err)
	}
	_, files := FileSizes(tree)
	_, lines := LineSizes(tree)
	for _, f := range append(files, lines...) {
		t.Log(f)
	}
}
