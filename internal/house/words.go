package house

import (
	"regexp"
	"strings"
)

// banned are words that belong to a place where headgate is written and not to
// headgate. They are put together here, so that this file holds none of them.
func banned() *regexp.Regexp {
	return regexp.MustCompile(strings.Join([]string{
		`(?i)(^|[^a-z0-9._~-])/wo` + `rk/`,
		`(?i)/ro` + `ot/go/`,
		`(?i)/ho` + `me/[a-z]`,
		`(?i)sub` + `agent`,
		`(?i)\bcla` + `ude\b`,
		`(?i)anth` + `ropic`,
		`(?i)\bA` + `I-generated\b`,
		`(?i)proxy\.gol` + `ang\.org`,
		`(?i)registry\.np` + `mjs`,
		`(?i)registry\.yar` + `npkg`,
		`(?i)deb\.deb` + `ian\.org`,
		`(?i)/tmp/[a-z_]+\.md`,
	}, "|"))
}

// Words finds words of the workplace in any text file.
func Words(t *Tree) []Fault {
	var faults []Fault
	words := banned()
	for _, name := range t.texts(func(string) bool { return true }) {
		for _, at := range words.FindAllIndex(t.Text[name], -1) {
			src := t.Text[name]
			faults = append(faults, Fault{name, lineAt(src, at[0]),
				"this belongs to a workplace, not here: " + string(src[at[0]:at[1]])})
		}
	}
	return faults
}
