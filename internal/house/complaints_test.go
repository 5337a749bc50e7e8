package house

import (
	"path"
	"regexp"
	"strings"
)

// complaintsPage lists which test covers the fix of which complaint.
const complaintsPage = "docs/complaints.md"

// Complaints requires that each row of the page names existing tests, and that each subtest of
// TestComplaints is in a row.
func Complaints(t *Tree) []Fault {
	src := t.Text[complaintsPage]
	if src == nil {
		return nil // the tree is a test's
	}
	there := map[string]bool{}
	names := regexp.MustCompile(`(?m)^func (Test\w+)\(|(?:bubble\(t|\bt\.Run\(|b\.Run\(),? ?"([^"]+)"`)
	var faults []Fault
	for name, text := range t.Text {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, m := range names.FindAllStringSubmatch(string(text), -1) {
			there[m[1]+m[2]] = true
			if m[2] != "" && path.Base(name) == "complaints_test.go" &&
				!strings.Contains(string(src), "`"+m[2]+"`") {
				faults = append(faults, Fault{name, 1, "no row of " + complaintsPage + " names " + m[2]})
			}
		}
	}
	named := regexp.MustCompile("`([^`]+)`")
	n := 0
	for line := range strings.Lines(string(src)) {
		n++
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| complaint ") {
			continue
		}
		cells := strings.Split(strings.TrimSpace(line), "|")
		all := named.FindAllStringSubmatch(cells[len(cells)-2], -1)
		if len(all) == 0 {
			faults = append(faults, Fault{complaintsPage, n, "names no test"})
		}
		for _, m := range all {
			if !there[m[1]] {
				faults = append(faults, Fault{complaintsPage, n, "there is no test " + m[1]})
			}
		}
	}
	return faults
}
