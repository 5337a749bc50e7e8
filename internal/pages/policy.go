package pages

import (
	"fmt"
	"slices"
	"strings"
)

// reserved lists the directives that the policy of a room's own page may not have. Browsers obey
// the first sandbox directive of a policy. One that allows scripts and the same origin would open
// the origin of the management API to every page that is previewed there. headgate writes
// frame-ancestors itself. Report directives would tell another host who waits.
func reserved() []string { return []string{"sandbox", "frame-ancestors", "report-uri", "report-to"} }

// CheckPolicy rejects a Content-Security-Policy with a directive that an own page may not have.
func CheckPolicy(policy string) error {
	for one := range strings.SplitSeq(policy, ",") {
		for directive := range strings.SplitSeq(one, ";") {
			if name := directiveName(directive); slices.Contains(reserved(), name) {
				return fmt.Errorf("has the directive %s, which only headgate sets", name)
			}
		}
	}
	return nil
}

// CleanPolicy returns a policy without the directives that CheckPolicy rejects. Rooms created
// before the check existed keep the rest of their policy.
func CleanPolicy(policy string) string {
	if CheckPolicy(policy) == nil {
		return policy
	}
	var policies []string
	for one := range strings.SplitSeq(policy, ",") {
		var kept []string
		for directive := range strings.SplitSeq(one, ";") {
			if name := directiveName(directive); name != "" && !slices.Contains(reserved(), name) {
				kept = append(kept, strings.TrimSpace(directive))
			}
		}
		if kept != nil {
			policies = append(policies, strings.Join(kept, "; "))
		}
	}
	return strings.Join(policies, ", ")
}

// directiveName reads a name as browsers do (Content Security Policy 3, §2.2.1): case does not
// matter, and the name ends at the first white space. It returns "" if there is none.
func directiveName(directive string) string {
	fields := strings.Fields(directive)
	if len(fields) == 0 {
		return ""
	}
	return strings.ToLower(fields[0])
}
