package server

import (
	"encoding/json"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate"
)

// adminHandler answers operators and probes, on an address of its own.
func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.Load() {
			http.Error(w, "not ready: starting or draining", http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /v1/rooms", func(w http.ResponseWriter, _ *http.Request) {
		rooms := []headgate.Status{}
		for _, g := range s.gates {
			rooms = append(rooms, g.room.Status())
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		json.NewEncoder(w).Encode(map[string]any{"rooms": rooms})
	})
	reg := prometheus.NewRegistry()
	reg.MustRegister(&collector{s}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	return mux
}

// collector reads the rooms at each scrape: counting costs a request nothing
// beyond the counters it has anyway.
type collector struct{ s *Server }

// Describe sends nothing: the rooms are known only at a scrape.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	for _, g := range c.s.gates {
		st := g.room.Status()
		send := func(kind prometheus.ValueType, name, help string, v float64) {
			d := prometheus.NewDesc(name, help, []string{"room"}, nil)
			ch <- prometheus.MustNewConstMetric(d, kind, v, st.Name)
		}
		gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
		t := &st.Totals
		up := 0.0
		if st.OriginUp {
			up = 1
		}
		send(gauge, "headgate_active_users", "Visitors inside.", float64(st.ActiveUsers))
		send(gauge, "headgate_waiting_users", "Visitors in the line.", float64(st.WaitingUsers))
		send(gauge, "headgate_called_users", "Tickets called and not yet in.", float64(st.Called))
		send(gauge, "headgate_total_active_users_limit", "Limit of visitors at once.",
			float64(st.TotalActiveUsers))
		send(gauge, "headgate_new_users_per_minute_limit", "Limit of new visitors in any minute.",
			float64(st.NewUsersPerMinute))
		send(gauge, "headgate_new_users_last_minute", "New visitors within the last minute.",
			float64(st.NewUsersLastMinute))
		send(gauge, "headgate_origin_up", "1 if the origin answers.", up)
		send(counter, "headgate_admitted_total", "Visitors let in.", float64(t.Admitted))
		send(counter, "headgate_joined_total", "Tickets issued.", float64(t.Joined))
		send(counter, "headgate_called_total", "Calls of tickets.", float64(t.Called))
		send(counter, "headgate_claimed_total", "Calls that were claimed.", float64(t.Claimed))
		send(counter, "headgate_calls_lapsed_total", "Calls that nobody claimed.",
			float64(t.CallsLapsed))
		empty := prometheus.NewDesc("headgate_call_empty_seconds",
			"How long claimed slots stood called and empty.", []string{"room"}, nil)
		ch <- prometheus.MustNewConstSummary(empty, uint64(t.Claimed), t.CallEmptySeconds, nil, st.Name)
		send(counter, "headgate_waiting_answers_total", "Answers to visitors who wait.",
			float64(t.WaitingAnswers))
		send(counter, "headgate_revoked_total", "Stays ended by the origin.", float64(t.Revoked))
		send(counter, "headgate_excluded_total", "Requests that pass uncounted.",
			float64(t.Excluded))
		send(counter, "headgate_forged_cookies_total", "Cookies this room did not seal.",
			float64(t.Forged))
		send(counter, "headgate_refused_full_total", "Visitors told that the line is full.",
			float64(t.Full))
		send(counter, "headgate_refused_join_limit_total",
			"Joins refused because of their address.", float64(t.Limited))
		send(counter, "headgate_shadow_held_total", "Visitors shadow mode would have held.",
			float64(t.Shadowed))
		send(counter, "headgate_record_writes_total", "Writes of the counter's record.",
			float64(t.Writes))
	}
}
