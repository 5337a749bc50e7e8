package server

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// metric is the value of one series, such as headgate_active_users{room="shop"}.
func (p *process) metric(series string) float64 {
	p.t.Helper()
	for line := range strings.Lines(get(p.t, p.operators+"/metrics", "").body) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return v
		}
	}
	return math.NaN()
}

func TestOffsetOfTheClock(t *testing.T) {
	for _, c := range []struct {
		others []float64
		want   float64
		why    string
	}{
		{nil, 0, "alone"},
		{[]float64{3}, -3, "of two nobody can tell"},
		{[]float64{-3}, 3, "seen from the other"},
		{[]float64{0, 3}, 0, "of three the one in the middle is right"},
		{[]float64{-3, -3}, 3, "here it is ahead of both"},
		{[]float64{5, 5, 4.9}, -4.95, "behind three"},
		{[]float64{0, 0.1, 30, -0.1}, 0, "one of five is off, and not this one"},
	} {
		if got := offset(c.others); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v gives %g, want %g", c.why, c.others, got, c.want)
		}
	}
}

const threeInside = "rooms:\n  - {name: shop, origin: ORIGIN, total_active_users: 3, " +
	"new_users_per_minute: 100, session_duration: 10m}\n"

// A limit that was lowered is in force when enough have left: until then nobody is over it.
func TestMetricsOfALimitThatWasLowered(t *testing.T) {
	t.Parallel()
	p := run(t, threeInside)
	room := func(name string) float64 { return p.metric(name + `{room="shop"}`) }
	if got := room("headgate_estimated_wait_seconds"); got != 0 {
		t.Errorf("nobody waits, and the wait is %g s", got)
	}
	for range 4 {
		get(t, p.visitors+"/", "")
	}
	p.change("shop", map[string]string{"total_active_users": "1"})
	eventually(t, "lowered", func() bool { return room("headgate_total_active_users_limit") == 1 })
	in, bound := room("headgate_active_users"), room("headgate_active_users_bound")
	if in != 3 || bound != 3 {
		t.Errorf("%g inside, bound %g: want 3 of 3", in, bound)
	}
	in, bound = room("headgate_new_users_last_minute"), room("headgate_new_users_bound")
	if in != 3 || bound != 100 {
		t.Errorf("%g new, bound %g: want 3 of 100", in, bound)
	}
	p.change("shop", map[string]string{"total_active_users": "5"})
	eventually(t, "raised", func() bool { return room("headgate_active_users_bound") == 5 })
	p.change("shop", map[string]string{"queue_all": "true"})
	eventually(t, "held", func() bool { return room("headgate_estimated_wait_seconds") == -1 })
}

func TestMetricsOfTheMachine(t *testing.T) {
	t.Parallel()
	p := run(t, threeInside)
	free, size := p.metric("headgate_data_free_bytes"), p.metric("headgate_data_size_bytes")
	if free <= 0 || !(size > free) {
		t.Errorf("%g bytes free of %g", free, size)
	}
	if p.metric(`headgate_room_hosted{datacenter="",room="shop"}`) != 1 ||
		p.metric(`headgate_room_state_age_seconds{room="shop"}`) != 0 {
		t.Error("who is alone counts the room, and knows all of it")
	}
	if n := p.metric("headgate_cluster_nodes"); !math.IsNaN(n) {
		t.Errorf("%g nodes of no cluster", n)
	}
}

func TestMetricsAsOpenMetrics(t *testing.T) {
	t.Parallel()
	p := run(t, threeInside)
	ask := func(accept string) (kind, body string) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", p.operators+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", accept)
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var b strings.Builder
		if err := res.Write(&b); err != nil {
			t.Fatal(err)
		}
		return res.Header.Get("Content-Type"), b.String()
	}
	kind, body := ask("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
	if !strings.HasPrefix(kind, "application/openmetrics-text") || !strings.Contains(body, "\n# EOF\n") ||
		!strings.Contains(body, "# TYPE headgate_admitted counter\n") {
		t.Errorf("%s:\n%s", kind, body)
	}
	suffixes := map[string][]string{"counter": {"_total", "_created"}, "info": {"_info"},
		"summary":   {"_count", "_sum", "_created"},
		"histogram": {"_count", "_sum", "_bucket", "_created"}}
	taken := map[string]string{} // OpenMetrics 1.0, "MetricFamily": names must not clash
	for line := range strings.Lines(body) {
		f := strings.Fields(line)
		if len(f) != 4 || f[0] != "#" || f[1] != "TYPE" {
			continue
		}
		for _, suffix := range append(suffixes[f[3]], "") {
			if name := f[2] + suffix; taken[name] != "" {
				t.Errorf("%s is of two metrics, %s and %s", name, f[2], taken[name])
			} else {
				taken[name] = f[2]
			}
		}
	}
	for _, name := range []string{"go_memstats_alloc_bytes", "go_memstats_heap_inuse_bytes", "go_goroutines",
		"go_gc_heap_allocs_bytes_total", "process_resident_memory_bytes"} {
		if taken[name] == "" {
			t.Errorf("%s is missing", name)
		}
	}
	kind, body = ask("text/plain")
	if !strings.HasPrefix(kind, "text/plain") || strings.Contains(body, "# EOF") ||
		!strings.Contains(body, "# TYPE headgate_admitted_total counter\n") {
		t.Errorf("%s:\n%s", kind, body)
	}
}
