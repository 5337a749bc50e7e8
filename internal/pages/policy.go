package pages

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/challenge"
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

const ownForms = "form-action 'self'"

// policyOf returns the policy under which only the given style and scripts run. Data blocks (script
// elements of type application/json) do not run and need no hash.
func policyOf(style string, scripts ...string) string {
	hashes := make([]string, len(scripts))
	for i, s := range scripts {
		hashes[i] = hashSource(s)
	}
	return strings.Join([]string{
		"default-src 'none'",
		"style-src " + hashSource(style),
		"script-src " + strings.Join(hashes, " "),
		"connect-src 'self'",
		"img-src data: 'self'",
		"base-uri 'none'",
		ownForms,
	}, "; ") + notFramed
}

// opened returns a policy of ours that allows what challenges of a kind load: a worker, or exactly what
// the third party documents, and the script of headgate that shows its widget.
func opened(policy, kind string) string {
	sources := challenge.Sources(kind)
	if sources == nil {
		return "worker-src 'self'; " + policy
	}
	parts := strings.Split(policy, "; ")
	own := " 'self'" // as default-src of an own page; that of ours is 'none'
	if slices.Contains(parts, "default-src 'none'") {
		own = ""
	}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		i := slices.IndexFunc(parts, func(d string) bool { return directiveName(d) == name })
		if i < 0 {
			i, parts = 0, slices.Insert(parts, 0, name+own)
		}
		if parts[i] += " " + sources[name]; name == "script-src" && !strings.Contains(parts[i], "'self'") {
			parts[i] += " 'self'"
		}
	}
	return strings.Join(parts, "; ")
}

// notFramed ends the policy of pages that no other site may show in a frame.
const notFramed = "; frame-ancestors 'none'"

// headers returns the headers of pages in one language, uncompressed and as gzip.
func headers(tag, policy string) [2]http.Header {
	plain := http.Header{
		"Content-Language":        {tag},
		"Content-Security-Policy": {policy},
		"Content-Type":            {"text/html; charset=utf-8"},
		"X-Content-Type-Options":  {"nosniff"},
	}
	gzip := maps.Clone(plain)
	gzip["Content-Encoding"] = []string{"gzip"}
	return [2]http.Header{plain, gzip}
}

// hashSource returns the hash that names an inline element by its content (Content Security Policy
// 3, §2.3.1).
func hashSource(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
