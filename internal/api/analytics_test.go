package api_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// visit sends visitors to the rooms: one is admitted, two wait.
func (s *site) visit(path string, n int) {
	s.t.Helper()
	for range n {
		s.do("GET", s.visitors+path, "", "Accept: text/html")
	}
}

// The statistics of a room match what its visitors did, in each format, and include the current
// minute.
func TestAnalytics(t *testing.T) {
	s := open(t)
	s.visit("/shop", 3)
	res := s.do("GET", "/v1/analytics?room=shop&from=-1h&step=1m", "")
	var got struct {
		Room   string
		Step   int `json:"step_seconds"`
		Points []map[string]any
		Total  map[string]any
	}
	if err := json.Unmarshal([]byte(res.body), &got); err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(err, res.Status, res.body)
	}
	if got.Room != "shop" || got.Step != 60 || len(got.Points) == 0 {
		t.Error(res.body)
	}
	for name, want := range map[string]any{"admitted": 1.0, "joined": 2.0, "polls": 2.0, "requests": 1.0,
		"origin2xx": 1.0, "origin5xx": 0.0, "abandoned": 0.0, "totalActiveUsersConfig": 1.0,
		"newUsersPerMinuteConfig": 99.0, "totalTimeWaitedP50": nil, "timeOnOriginP50": nil} {
		if got.Total[name] != want {
			t.Errorf("%s: %v, want %v", name, got.Total[name], want)
		}
	}
	if v, ok := got.Total["originLatencyP99"].(float64); !ok || v <= 0 || v > 5 {
		t.Errorf("originLatencyP99: %v", got.Total["originLatencyP99"])
	}
	res = s.do("GET", "/v1/analytics?room=shop&metrics=admitted,%20joined&step=1m&from=-1h", "", "Accept: text/csv")
	all, err := csv.NewReader(strings.NewReader(res.body)).ReadAll()
	if err != nil || len(all) < 2 || fmt.Sprint(all[0]) != "[at admitted joined]" ||
		!strings.HasPrefix(res.Header.Get("Content-Type"), "text/csv") {
		t.Error(err, res.body)
	}
	for accept, want := range map[string]string{
		"text/csv;q=0.1, application/json": "application/json", "text/csv;q=0.9, */*;q=0.1": "text/csv",
		"text/*": "text/csv", "application/jsonl, */*;q=0.5": "application/x-ndjson",
		"*/*": "application/json", "text/csv;q=0": "application/json",
	} {
		res = s.do("GET", "/v1/analytics?room=shop", "", "Accept: "+accept)
		if got := res.Header.Get("Content-Type"); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", accept, got, want)
		}
	}
	sums := map[string]int{}
	res = s.do("GET", "/v1/analytics?room=shop&format=ndjson&from=-30d&step=1m", "")
	for line := range strings.Lines(res.body) {
		var p map[string]any
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err, line)
		}
		sums["admitted"] += int(p["admitted"].(float64))
	}
	if sums["admitted"] != 1 {
		t.Error(res.body)
	}
	for path, want := range map[string]string{
		"/v1/analytics?room=tea":                       `"admitted":0`,
		"/v1/analytics?room=shop&from=-2h&to=-1h":      `"points":[],"total":null`,
		"/v1/analytics/advice":                         `"rooms":["shop","tea"]`,
		"/v1/analytics/advice?room=tea&from=-300d":     `"rooms":["tea"]`,
		"/v1/analytics?room=shop&from=0&to=86400":      `"step_seconds":300`,
		"/v1/analytics?room=shop&from=-10d&to=-1d":     `"step_seconds":1800`,
		"/v1/analytics?room=shop&from=-365d&step=auto": `"step_seconds":86400`,
	} {
		if res := s.do("GET", path, ""); res.StatusCode != 200 || !strings.Contains(res.body, want) {
			t.Errorf("%s: %s %s, want %s", path, res.Status, res.body, want)
		}
	}
}

// Each mistake is rejected with its position.
func TestAnalyticsRefusesMistakes(t *testing.T) {
	s := open(t)
	for query, at := range map[string]string{
		"":                                           "/room",
		"room=":                                      "/room",
		"room=shop&limit=a":                          "/limit",
		"room=shop&room=tea":                         "/room",
		"room=shop&rooom=tea":                        "/rooom",
		"room=shop&step=7m":                          "/step",
		"room=shop&step=-5m":                         "/step",
		"room=shop&step=x":                           "/step",
		"room=shop&step=1m":                          "", // a day is less than 1,500 points
		"room=shop&step=1m&from=-2d":                 "/step",
		"room=shop&step=1m&from=-40d&format=csv":     "/step",
		"room=shop&from=yesterday":                   "/from",
		"room=shop&from=-5x":                         "/from",
		"room=shop&from=-99999999999d":               "/from",
		"room=shop&from=1&to=1":                      "/from",
		"room=shop&from=-1h&to=-2h":                  "/from",
		"room=shop&from=0001-01-01T00:00:00Z":        "/from",
		"room=shop&to=9999-12-31T23:59:59Z&from=-1h": "/from",
		"room=shop&to=2026-13-01T00:00:00Z":          "/to",
		"room=shop&metrics=admitted,nix":             "/metrics",
		"room=shop&metrics=,":                        "/metrics",
		"limit=api&metrics=admitted":                 "/metrics",
		"room=shop&format=xml":                       "/format",
		"room=shop&metrics=" + strings.Repeat("polls,", 200) + "polls": "/metrics",
		"room=%zz":                         "/",
		"room=" + strings.Repeat("x", 300): "/room",
	} {
		res := s.do("GET", "/v1/analytics?"+query, "")
		var got struct{ Errors []struct{ Pointer string } }
		if err := json.Unmarshal([]byte(res.body), &got); err != nil {
			t.Error(query, err)
		}
		switch {
		case at == "" && res.StatusCode != 200:
			t.Errorf("%s: %s", query, res.body)
		case at != "" && (res.StatusCode != 400 || len(got.Errors) != 1 || got.Errors[0].Pointer != at):
			t.Errorf("%s: %s %s, want a fault at %s", query, res.Status, res.body, at)
		}
	}
	for _, query := range []string{"room=none", "limit=none", "queue=none", "room=none&format=csv"} {
		res := s.do("GET", "/v1/analytics?"+query, "")
		if res.StatusCode != 404 || res.problem.Code != "nothing_known" {
			t.Errorf("%s: %s %s", query, res.Status, res.body)
		}
	}
	for query, status := range map[string]int{"room=none": 404, "step=1m": 400, "from=x": 400} {
		if res := s.do("GET", "/v1/analytics/advice?"+query, ""); res.StatusCode != status {
			t.Errorf("advice %s: %s %s", query, res.Status, res.body)
		}
	}
}

// A token reads only the statistics in its scope: one room, one zone, one queue.
func TestAnalyticsAreForWhoMayRead(t *testing.T) {
	s := open(t)
	far := "X-Forwarded-For: 192.0.2.1"
	zone := s.token("read:zone/default")
	for _, c := range []struct {
		path, token string
		status      int
	}{
		{"?room=tea", s.tea, 200}, {"?room=shop", s.tea, 403}, {"?limit=tea", s.tea, 403},
		{"?room=shop", s.read, 200}, {"?room=none", s.read, 404}, {"?room=none", s.tea, 403},
		{"/advice?room=tea", s.tea, 200}, {"/advice?room=shop", s.tea, 403}, {"/advice", s.tea, 200},
		{"?room=shop", zone, 200}, {"?limit=none", zone, 403}, {"/advice", zone, 200},
		{"?room=tea", "", 401}, {"/advice", "", 401},
	} {
		options := []string{far}
		if c.token != "" {
			options = append(options, c.token)
		}
		if res := s.do("GET", "/v1/analytics"+c.path, "", options...); res.StatusCode != c.status {
			t.Errorf("%s: %s %s, want %d", c.path, res.Status, res.body, c.status)
		}
	}
	res := s.do("GET", "/v1/analytics/advice", "", far, s.tea)
	if !strings.Contains(res.body, `"rooms":["tea"]`) {
		t.Error(res.body)
	}
}
