//go:build alerts

package alerts

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// inRoom are the alerts of rooms and nodes that must not fire in peace. Not among them: disk
// and clock, which are this machine's, and the certificate, which ends soon here.
func inRoom() []string {
	return strings.Fields(`HeadgateOverLimit HeadgateQueueing HeadgateLongWait HeadgateLineFull
		HeadgateOriginDown HeadgateCounterWithoutHost HeadgateStateOld HeadgateDatacenterApart
		HeadgateRecordRefused HeadgateRecordDamaged HeadgateDown HeadgateClusterCertificateExpires
		HeadgateCertificateNotRenewed HeadgateReloadFailed HeadgateQueueDeadJobs`)
}

// crowd is how many visitors come; six of them get in.
const (
	crowd  = 30
	inside = 6
)

func TestPrometheusSeesWhatHappens(t *testing.T) {
	w := build(t)
	p := w.watch()
	none := func(names []string) func() bool {
		return func() bool {
			return !slices.ContainsFunc(p.fires(), func(s string) bool { return slices.Contains(names, s) })
		}
	}
	fires := func(name string) {
		t.Helper()
		eventually(t, name+" fires", func() bool { return slices.Contains(p.fires(), name) })
	}
	eventually(t, "three are scraped", func() bool {
		n, ok := p.one(`count(headgate_build_info)`)
		return ok && n == 3
	})
	eventually(t, "peace", none(inRoom()))
	fires("HeadgateCertificateExpires")

	w.comes(crowd)
	fires("HeadgateQueueing")
	fires("HeadgateLongWait") // sessions of half an hour
	eventually(t, "all visitors are seen, once", func() bool {
		in, ok1 := p.one(exprOf(t, "Inside", 0))
		wait, ok2 := p.one(exprOf(t, "Waiting", 0))
		return ok1 && ok2 && in == inside && wait == crowd-inside
	})
	w.calls()
	w.posts()
	fires("HeadgateQueueDeadJobs")
	t.Run("dashboard", func(t *testing.T) { w.dashboard(p) })
	t.Run("lint", w.lint)

	w.origin.stop()
	for i, g := range w.gates() { // a node learns of it by a request
		w.call(g, fmt.Sprintf("visitor-%d", i))
	}
	fires("HeadgateOriginDown")
	w.origin.start()
	eventually(t, "the origin is back", none([]string{"HeadgateOriginDown"}))
	p.sound()

	w.store.kill() // of three who are left none may count the room in sjc
	fires("HeadgateDown")
	fires("HeadgateCounterWithoutHost")
	for _, s := range p.query(`ALERTS{alertname="HeadgateCounterWithoutHost", alertstate="firing"}`) {
		if s.Metric["datacenter"] != "sjc" || s.Metric["room"] != "shop" {
			t.Errorf("%v fires", s)
		}
	}
	p.sound()
	if got := p.query(`count_over_time(ALERTS{alertname="HeadgateOverLimit"}[10m])`); len(got) > 0 {
		t.Errorf("over the limit, or so it seems: %v", got)
	}
	for _, side := range []string{"headgate_active_users", "headgate_active_users_bound",
		"headgate_new_users_last_minute", "headgate_new_users_bound", "headgate_anywhere_lent_slots",
		"headgate_anywhere_bound_slots"} {
		if most, ok := p.one("max(max_over_time(" + side + "[10m]))"); !ok || most < 1 {
			t.Errorf("%s was %g at most: nothing was compared", side, most)
		}
	}
}

// comes sends newcomers, round robin; one in five is a member.
func (w *world) comes(n int) {
	w.t.Helper()
	for i := range n {
		g := w.gates()[i%3]
		r, err := http.NewRequestWithContext(w.t.Context(), "GET", "http://"+g.listen+"/", nil)
		if err != nil {
			w.t.Fatal(err)
		}
		r.Header.Set("Accept", "text/html")
		if i%5 == 4 {
			r.Header.Set("Cookie", "member=1")
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			w.t.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		cookie, _, _ := strings.Cut(res.Header.Get("Set-Cookie"), ";")
		if res.StatusCode != http.StatusServiceUnavailable || cookie == "" {
			continue
		}
		r.URL.Path = "/.headgate/here.gif" // what the waiting page loads: its cookie comes back
		r.Header.Set("Cookie", cookie)
		if res, err = http.DefaultClient.Do(r); err != nil {
			w.t.Fatal(err)
		}
		res.Body.Close()
	}
}

// calls meets the limit until it refuses.
func (w *world) calls() {
	w.t.Helper()
	eventually(w.t, "a call is refused", func() bool { return w.call(w.work, "bob") == 429 })
}

// call is one call of a client to what is excluded from the room.
func (w *world) call(g *gate, client string) (status int) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), "GET", "http://"+g.listen+"/api/x", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("X-Client", client)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// posts puts a job that dies, for its target is nobody.
func (w *world) posts() {
	w.t.Helper()
	token := w.run("token", "create", "--scope", "put", "--data", w.store.dir)
	token, _, _ = strings.Cut(token, "\n")
	r, err := http.NewRequestWithContext(w.t.Context(), "POST",
		"http://"+w.store.admin+"/v1/queues/mail/jobs", strings.NewReader(`{"body": {"to": "nobody"}}`))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	if b, _ := io.ReadAll(res.Body); res.StatusCode/100 != 2 {
		w.t.Fatalf("%s: %s", res.Status, b)
	}
}

// exprOf is an expression of a panel.
func exprOf(t *testing.T, title string, i int) string {
	t.Helper()
	for _, p := range panels(t) {
		if p.title == title {
			return p.exprs[i]
		}
	}
	t.Fatalf("no panel %q", title)
	return ""
}

// dashboard wants an answer to all that Grafana's dashboard asks, and the true one where it is known.
func (w *world) dashboard(p *prom) {
	t := w.t
	for _, x := range panels(t) {
		for _, expr := range x.exprs {
			var got []sample
			eventually(t, x.title+" has an answer to "+expr, func() bool {
				got = p.query(expr)
				return len(got) > 0
			})
		}
	}
	for title, want := range map[string]float64{
		"Inside": inside, "Waiting": crowd - inside, "Inside and limit": inside,
		"Origins that do not answer": 0, "Rooms that nobody counts": 0, "Origin answers": 1,
	} {
		if v, ok := p.one(exprOf(t, title, 0)); !ok || v != want {
			t.Errorf("%s: %g, want %g", title, v, want)
		}
	}
	if v, ok := p.one(exprOf(t, "Inside and limit", 1)); !ok || v != inside {
		t.Errorf("the limit is %g, want %d", v, inside)
	}
	if got := p.query(exprOf(t, "Who counts each room", 0)); len(got) != 2 {
		t.Errorf("%v count the room, want one in each data center", got)
	}
	sum := 0.0
	for _, s := range p.query(exprOf(t, "Data centers: inside and held", 0)) {
		sum += s.value()
	}
	if sum != inside {
		t.Errorf("%g are inside over data centers, want %d", sum, inside)
	}
}

// lint lets promtool read what one process tells.
func (w *world) lint(t *testing.T) {
	res, err := http.Get("http://" + w.store.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = res.Body
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
