package house

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Names bans meaningless names of files and folders. The linter only knows the names of packages.
func Names(t *Tree) []Fault {
	var faults []Fault
	empty := regexp.MustCompile(
		`^(utils?|commons?|helpers?|managers?|impl|info|data|models?|pkg|src|misc)$`)
	for name := range t.Files {
		base := strings.TrimSuffix(strings.TrimSuffix(path.Base(name), ".go"), "_test")
		if empty.MatchString(base) && !strings.Contains(name, "testdata/") {
			faults = append(faults,
				Fault{Path: name, Text: "name it after what it holds, not " + base})
		}
	}
	slices.SortFunc(faults, func(a, b Fault) int { return strings.Compare(a.Path, b.Path) })
	return faults
}

// packageFiles limits the code files of a package, and its test files: a longer list is not read. The
// scenarios of a cluster have one judge and one stage, and a file for each kind.
const packageFiles, clusterTests = 25, 37

// PackageSize limits the number of files in each package.
func PackageSize(t *Tree) []Fault {
	code, tests := map[string]int{}, map[string]int{"tests/cluster": packageFiles - clusterTests}
	var faults []Fault
	for _, f := range t.Go {
		count, kind := code, "code"
		if f.Test {
			count, kind = tests, "test"
		}
		if count[f.Dir]++; count[f.Dir] == packageFiles+1 {
			faults = append(faults, Fault{Path: f.Dir, Text: fmt.Sprintf(
				"the package has more than %d %s files: move some into a package of their own", packageFiles, kind)})
		}
	}
	return faults
}

// rootFiles and rootLines limit the root package. It is the public face of the room; anything
// beyond that belongs in its own package.
const rootFiles, rootLines = 14, 3900

// RootSize limits the size of the root package.
func RootSize(t *Tree) []Fault {
	files, lines := 0, 0
	t.code(func(f *File) {
		if f.Dir == "." {
			files, lines = files+1, lines+bytes.Count(f.Src, []byte("\n"))
		}
	})
	if files <= rootFiles && lines <= rootLines {
		return nil
	}
	return []Fault{{Path: ".", Text: fmt.Sprintf("the root package has %d files and %d lines "+
		"(at most %d and %d): move a face into its own package", files, lines, rootFiles, rootLines)}}
}
