package house

import "strings"

// alertCases break the rule of what is monitored.
func alertCases() []bad {
	const rule = "- alert: A\n  expr: headgate_called > 0\n  labels: {severity: info}\n" +
		"  summary: x\n  description: See docs/metrics.md#here.\n  url: x/docs/monitoring.md#a\n"
	good := map[string]string{
		metricPage: "# Here\n| `headgate_called` | x |\n", alertPage: "# A\n", alertRules: rule,
		alertTests: `ALERTS{alertname="A", alertstate="firing", x="y"}`, grafana: "headgate_called_sum",
	}
	with := func(file, old, text string) map[string]string {
		files := map[string]string{}
		for name, src := range good {
			if name == file {
				src = strings.Replace(src, old, text, 1)
			}
			files[name] = src
		}
		return files
	}
	const name = "monitoring"
	return []bad{
		{"good", name, good, ""},
		{"metric of a rule", name, with(alertRules, "_called", "_gone"), "metric headgate_gone"},
		{"metric of a test", name, with(alertTests, "ALERTS", "headgate_gone"), "metric headgate_gone"},
		{"metric of the dashboard", name, with(grafana, "called", "gone"), "metric headgate_gone"},
		{"no heading", name, with(alertPage, "A", "B"), "no heading"},
		{"never fires", name, with(alertTests, ", x=", "}"), "lets A fire"},
		{"no severity", name, with(alertRules, "severity", "rank"), "no {severity:"},
		{"no summary", name, with(alertRules, "summary", "x"), "no summary:"},
		{"no description", name, with(alertRules, "description", "x"), "no description:"},
		{"no page", name, with(alertRules, "monitoring.md#a", "monitoring"), "no /docs/monitoring.md#a"},
		{"no place", name, with(alertRules, "#here", ""), "names no heading"},
		{"no such place", name, with(alertRules, "#here", "#there"), "no heading #there"},
	}
}
