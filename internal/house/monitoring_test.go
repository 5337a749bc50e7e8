package house

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// These are the files that Monitoring checks: the alert rules, the page that explains them, and the
// dashboard.
const (
	alertRules = "monitoring/alerts.yaml"
	alertTests = "monitoring/alerts_test.yaml"
	alertPage  = "docs/monitoring.md"
	grafana    = "monitoring/grafana.json"
)

// Monitoring requires that every metric used by the alert rules and the dashboard is in the table
// of docs/metrics.md. Every alert needs a test, a section in docs/monitoring.md, and all
// annotations that the person on call needs. Every page that it names must exist.
func Monitoring(t *Tree) []Fault {
	var faults []Fault
	page := cells(t.Text[metricPage])
	metric := regexp.MustCompile(`\bheadgate_[a-z0-9_]*[a-z0-9]`)
	for _, name := range []string{alertRules, alertTests, grafana} {
		for _, at := range metric.FindAllIndex(t.Text[name], -1) {
			series := strings.TrimSuffix(series(string(t.Text[name][at[0]:at[1]])), "_count")
			if !slices.Contains(page, series) {
				faults = append(faults, Fault{name, lineAt(t.Text[name], at[0]),
					fmt.Sprintf("metric %s is not in %s", series, metricPage)})
			}
		}
	}
	alert := regexp.MustCompile(`(?m)^ *- alert: (\S+)$`)
	src := t.Text[alertRules]
	all := alert.FindAllSubmatchIndex(src, -1)
	for i, m := range all {
		end := len(src)
		if i+1 < len(all) {
			end = all[i+1][0]
		}
		for _, text := range t.alertFaults(string(src[m[2]:m[3]]), src[m[0]:end]) {
			faults = append(faults, Fault{alertRules, lineAt(src, m[0]), text})
		}
	}
	return append(faults, t.anchorsNamed(alertRules)...)
}

// alertFaults returns what an alert lacks; body is its rule.
func (t *Tree) alertFaults(name string, body []byte) (faults []string) {
	anchor := strings.ToLower(name)
	if !bytes.Contains(t.Text[alertTests], []byte(`alertname="`+name+`", alertstate="firing", `)) {
		faults = append(faults, fmt.Sprintf("no test of %s lets %s fire", alertTests, name))
	}
	flat := strings.Join(strings.Fields(string(body)), " ") + " "
	for _, want := range []string{"summary:", "description:", "{severity:",
		"/" + alertPage + "#" + anchor + " "} {
		if !strings.Contains(flat, want) {
			faults = append(faults, fmt.Sprintf("%s has no %s", name, want))
		}
	}
	if !regexp.MustCompile(` docs/[a-z]+\.md#`).MatchString(flat) {
		faults = append(faults, name+" names no heading of a page that says what to do")
	}
	return faults
}

// anchorsNamed requires that each heading named by a file exists.
func (t *Tree) anchorsNamed(name string) (faults []Fault) {
	src := t.Text[name]
	for _, m := range regexp.MustCompile(`\b(docs/[a-z/]+\.md)#([a-z0-9-]+)`).FindAllSubmatchIndex(src, -1) {
		page, anchor := string(src[m[2]:m[3]]), string(src[m[4]:m[5]])
		if !slices.Contains(anchors(t.Text[page]), anchor) {
			faults = append(faults, Fault{name, lineAt(src, m[0]), "no heading #" + anchor + " in " + page})
		}
	}
	return faults
}
