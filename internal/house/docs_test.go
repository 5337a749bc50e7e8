package house

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// These pages list the interfaces that operators depend on.
const (
	commandPage = "docs/cli.md"
	keyPage     = "docs/configuration.md"
	metricPage  = "docs/metrics.md"
)

func markdown(name string) bool {
	return path.Ext(name) == ".md" && !strings.Contains(name, "testdata/")
}

// Links requires that every relative link of a page leads to a file, and to a heading if it names
// one.
func Links(t *Tree) []Fault {
	var faults []Fault
	link := regexp.MustCompile(`\]\(([^()\s]+)\)`)
	for _, name := range t.texts(markdown) {
		src := prose(t.Text[name])
		for _, m := range link.FindAllSubmatchIndex(src, -1) {
			target := string(src[m[2]:m[3]])
			if strings.Contains(target, ":") {
				continue // an absolute URL
			}
			file, anchor, _ := strings.Cut(target, "#")
			full := name
			if file != "" {
				full = path.Join(path.Dir(name), file)
			}
			switch {
			case !t.Files[full]:
				faults = append(faults, Fault{name, lineAt(src, m[0]), "no file " + full})
			case anchor != "" && !slices.Contains(anchors(t.Text[full]), anchor):
				faults = append(faults, Fault{name, lineAt(src, m[0]),
					"no heading #" + anchor + " in " + full})
			}
		}
	}
	return faults
}

// prose blanks out fenced code but keeps the lines.
func prose(src []byte) []byte {
	out, fenced := make([]byte, 0, len(src)), false
	for line := range strings.Lines(string(src)) {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence || fenced {
			line = "\n"
		}
		fenced = fenced != fence
		out = append(out, line...)
	}
	return out
}

// anchors returns the headings of a page, in the form used by links.
func anchors(src []byte) []string {
	drop := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	var list []string
	for line := range strings.Lines(string(prose(src))) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && line[0] == '#' {
			title = drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			list = append(list, strings.ReplaceAll(title, " ", "-"))
		}
	}
	return list
}

// PagesNamed requires that every page of docs named by Go code or another page exists.
func PagesNamed(t *Tree) []Fault {
	var faults []Fault
	page := regexp.MustCompile(`\bdocs/[a-z0-9/_-]+\.md\b`)
	for _, name := range t.texts(func(string) bool { return true }) {
		if strings.HasPrefix(name, "internal/house/") || name == "docs/design.md" {
			continue // bad trees of the tests; the plan names future pages
		}
		for _, at := range page.FindAllIndex(t.Text[name], -1) {
			if named := string(t.Text[name][at[0]:at[1]]); !t.Files[named] {
				line := lineAt(t.Text[name], at[0])
				faults = append(faults, Fault{name, line, "no page " + named})
			}
		}
	}
	return faults
}

// Changelog requires a section for unreleased changes.
func Changelog(t *Tree) []Fault {
	if !regexp.MustCompile(`(?m)^## \[?Unreleased\]?\s*$`).Match(t.Text["CHANGELOG.md"]) {
		return []Fault{{Path: "CHANGELOG.md", Text: `no heading "## [Unreleased]"`}}
	}
	return nil
}

// Targets requires that every `make x` in the pages is a target of the Makefile.
func Targets(t *Tree) []Fault {
	var faults []Fault
	call := regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)")
	target := regexp.MustCompile(`(?m)^([a-z-]+):`)
	var have []string
	for _, m := range target.FindAllSubmatch(t.Text["Makefile"], -1) {
		have = append(have, string(m[1]))
	}
	for _, name := range t.texts(markdown) {
		if name == "docs/design.md" {
			continue // the plan names future targets
		}
		for _, m := range call.FindAllSubmatchIndex(t.Text[name], -1) {
			if verb := string(t.Text[name][m[2]:m[3]]); !slices.Contains(have, verb) {
				faults = append(faults, Fault{name, lineAt(t.Text[name], m[0]),
					"the Makefile has no target " + verb})
			}
		}
	}
	return faults
}

// Pinned requires that the Makefile fetches source by commit. Otherwise anyone who can move a tag
// or a branch could change what `make` runs.
func Pinned(t *Tree) []Fault {
	var faults []Fault
	text := t.Text["Makefile"]
	for _, bad := range []struct{ pattern, problem string }{
		{`git\b[^\n]* clone\b`, "git clone takes what a tag or a branch names now: fetch a commit by its hash"},
		{`go\)? (?:install|run) [^\n]*@`, "a module is not pinned by a checksum: pin it in tools.mod"},
		{`(?m)^\w+_COMMIT\s*[?:]?=\s*(?:[0-9a-f]{0,39}|[0-9a-f]{41,}|\S*[^0-9a-f\s].*)$`,
			"a commit is not pinned by its 40 hexadecimal digits"},
	} {
		for _, at := range regexp.MustCompile(bad.pattern).FindAllIndex(text, -1) {
			faults = append(faults, Fault{"Makefile", lineAt(text, at[0]), bad.problem})
		}
	}
	return faults
}

// Decisions requires that each decision record is complete, and that the numbers have no gaps.
func Decisions(t *Tree) []Fault {
	var faults []Fault
	sections := []string{"Status", "Context", "Decision", "Consequences", "What we gave up",
		"How we would notice it was wrong"}
	file := regexp.MustCompile(`^docs/adr/(\d{4})-[a-z0-9-]+\.md$`)
	next := 1
	for _, name := range t.texts(markdown) {
		m := file.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		if n, _ := strconv.Atoi(m[1]); n != next {
			text := fmt.Sprintf("expected number %04d", next)
			faults = append(faults, Fault{Path: name, Text: text})
			next = n
		}
		next++
		text := string(t.Text[name])
		if !strings.HasPrefix(text, "# "+m[1]+" ") {
			faults = append(faults, Fault{name, 1, "begin with # " + m[1] + " and a title"})
		}
		for _, s := range sections {
			if !strings.Contains(text, "\n## "+s+"\n") {
				faults = append(faults, Fault{Path: name, Text: "no section " + s})
			}
		}
	}
	return faults
}
