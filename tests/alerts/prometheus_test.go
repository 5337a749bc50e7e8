//go:build alerts

package alerts

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/loopback"
)

// A prom is a real Prometheus.
type prom struct {
	*process
	addr string
}

// A sample is one series of an answer.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

// value is the number of a sample.
func (s sample) value() float64 {
	text, _ := s.Value[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err) // Prometheus writes numbers
	}
	return v
}

// waits are how long alerts of the rules are pending.
func waits() *regexp.Regexp { return regexp.MustCompile(`(?m)^( *for:) .*$`) }

// watch starts Prometheus over the processes, with the rules of monitoring/: but what is to
// hold for minutes is to hold for two seconds, and what is never to be is not waited for.
func (w *world) watch() *prom {
	w.t.Helper()
	rules, err := os.ReadFile(filepath.Join("..", "..", "monitoring", "alerts.yaml"))
	if err != nil {
		w.t.Fatal(err)
	}
	text := waits().ReplaceAllString(string(rules), "$1 2s")
	over := strings.Index(text, "- alert: HeadgateQueueing") // behind all that must never be
	if over < 0 || !strings.Contains(text[:over], "for: 2s") {
		w.t.Fatal("the rules are not in the order that this test counts on")
	}
	text = strings.Replace(text[:over], "for: 2s", "for: 0s", 1) + text[over:]
	var targets []string
	for _, g := range w.gates() {
		targets = append(targets, strconv.Quote(g.admin))
	}
	config := "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [alerts.yaml]\n" +
		"scrape_configs:\n  - job_name: headgate\n    static_configs: [{targets: [" +
		strings.Join(targets, ", ") + "]}]\n"
	dir := filepath.Join(w.dir, "prometheus")
	if err := os.Mkdir(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	for name, text := range map[string]string{"alerts.yaml": text, "prometheus.yml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	p := &prom{addr: loopback.Free(w.t)}
	p.process = start(w.t, "prometheus", dir, "prometheus", "--config.file=prometheus.yml",
		"--storage.tsdb.path=data", "--web.listen-address="+p.addr)
	eventually(w.t, "Prometheus is ready", func() bool {
		res, err := http.Get("http://" + p.addr + "/-/ready")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return p
}

// ask asks Prometheus' API and fails the test if it finds fault with the question.
func (p *prom) ask(path string, q url.Values, into any) {
	p.t.Helper()
	res, err := http.Get("http://" + p.addr + "/api/v1/" + path + "?" + q.Encode())
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	got := struct {
		Status, Error string
		Data          json.RawMessage
	}{}
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
		p.t.Fatal(err)
	}
	if got.Status != "success" {
		p.t.Fatalf("%s: %s", q, got.Error)
	}
	if err := json.Unmarshal(got.Data, into); err != nil {
		p.t.Fatal(err)
	}
}

// query evaluates an expression now.
func (p *prom) query(expr string) []sample {
	p.t.Helper()
	var got struct{ Result []sample }
	p.ask("query", url.Values{"query": {expr}}, &got)
	return got.Result
}

// one is the value of an expression that has one, NaN-free; ok is false if it has another
// number of them.
func (p *prom) one(expr string) (v float64, ok bool) {
	p.t.Helper()
	got := p.query(expr)
	if len(got) != 1 {
		return 0, false
	}
	return got[0].value(), true
}

// fires lists the alerts that fire now.
func (p *prom) fires() (names []string) {
	p.t.Helper()
	for _, s := range p.query(`ALERTS{alertstate="firing"}`) {
		names = append(names, s.Metric["alertname"])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// sound wants every rule to have been evaluated without a fault.
func (p *prom) sound() {
	p.t.Helper()
	var got struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	p.ask("rules", nil, &got)
	n := 0
	for _, g := range got.Groups {
		for _, r := range g.Rules {
			if n++; r.Health != "ok" {
				p.t.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	if n < 20 {
		p.t.Errorf("%d rules are evaluated", n)
	}
}

// panel is what the dashboard asks for in one of its panels.
type panel struct {
	title string
	exprs []string
}

// panels reads the dashboard, its variables as "all".
func panels(t *testing.T) (all []panel) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "monitoring", "grafana.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	all = make([]panel, 0, len(board.Panels))
	set := strings.NewReplacer("$__rate_interval", "30s", "$job", ".*", "$room", ".*")
	for _, p := range board.Panels {
		x := panel{title: p.Title}
		for _, target := range p.Targets {
			x.exprs = append(x.exprs, set.Replace(target.Expr))
		}
		if len(x.exprs) > 0 {
			all = append(all, x)
		}
	}
	if len(all) < 30 {
		t.Fatalf("%d panels: this is not the dashboard", len(all))
	}
	return all
}

// String is for messages.
func (s sample) String() string { return fmt.Sprintf("%v %v", s.Metric, s.Value[1]) }
