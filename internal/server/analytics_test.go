package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// past is a room's statistics as the API returns them.
type past struct {
	Missing []string       `json:"missing_nodes"`
	Total   map[string]any `json:"total"`
}

func (p *process) past(what string) (got past) {
	p.t.Helper()
	res := get(p.t, p.operators+"/v1/analytics?from=-1h&"+what, "")
	if err := json.Unmarshal([]byte(res.body), &got); err != nil || res.StatusCode != 200 {
		p.t.Fatal(err, res.Status, res.body)
	}
	return got
}

// Answers and failures of the origin are counted correctly.
func TestAnalyticsOfTheOrigin(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hang":
			hang <- struct{}{}
			<-r.Context().Done()
		case "/slow":
			<-time.After(300 * time.Millisecond)
		case "/revoke":
			w.Header().Set("Headgate-Command", "revoke")
		case "/404":
			w.WriteHeader(404)
		case "/500":
			w.WriteHeader(500)
		case "/302":
			http.Redirect(w, r, "/", http.StatusFound)
		case "/break":
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, "x")
	}))
	defer origin.Close()
	visitors, operators, stop := start(t, origin.URL, "  - {name: shop, origin: ORIGIN, "+
		"total_active_users: 99, new_users_per_minute: 99}\n")
	defer stop()
	var answers []float64 // durations as the visitors saw them, in seconds
	var stay float64
	for path := range strings.FieldsSeq("/ / / /404 /404 /500 /302 /break /slow /revoke") {
		began := time.Now()
		first := get(t, visitors+path, "")
		took := time.Since(began).Seconds()
		if path == "/revoke" {
			stay = took
			continue
		}
		answers = append(answers, took)
		if len(first.Cookies()) != 1 {
			t.Errorf("%s: cookies %v", path, first.Cookies())
		}
	}
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		r, _ := http.NewRequestWithContext(ctx, "GET", visitors+"/hang", nil)
		r.Header.Set("Accept", "text/html")
		_, err := http.DefaultTransport.RoundTrip(r)
		gone <- err
	}()
	<-hang
	leave()
	<-gone
	p := &process{t: t, operators: operators}
	var got past
	eventually(t, "the client gone", func() bool {
		got = p.past("room=shop")
		return got.Total["originClientGone"] == 1.0
	})
	for name, want := range map[string]float64{"origin2xx": 5, "origin3xx": 1, "origin4xx": 2, "origin5xx": 1,
		"originUnanswered": 1, "requests": 11, "admitted": 11, "sessionsRevoked": 1, "sessionsEnded": 1} {
		if got.Total[name] != want {
			t.Errorf("%s: %v, want %v", name, got.Total[name], want)
		}
	}
	slices.Sort(answers)
	const coarse = 1.2 // resolution of a histogram's buckets
	if v, most := got.Total["originLatencyP99"].(float64), answers[len(answers)-2]; v > most*coarse+0.01 {
		t.Errorf("all but one took up to %v s, and P99 is %v", most, v)
	}
	if v, _ := got.Total["timeOnOriginP50"].(float64); v > stay*coarse+0.01 {
		t.Errorf("a stay of one request took %v, and its visitor waited %v s", v, stay)
	}
}

// Limits are included, a restart loses nothing, and nothing is stored when analytics are off.
func TestAnalyticsOfLimitsAndRestarts(t *testing.T) {
	t.Parallel()
	p := &process{t: t, dir: t.TempDir(), origin: named(t, "origin")}
	p.file = filepath.Join(p.dir, "headgate.yaml")
	p.write("limits: [{name: api, algorithm: sliding_log, amount: 3, window: 1h, key: [client_address]}]\n" +
		"rooms: [{name: shop, origin: ORIGIN, total_active_users: 99, new_users_per_minute: 99, limits: [api]}]\n")
	p.start()
	cookie := get(t, p.visitors, "").Cookies()[0]
	for range 4 {
		get(t, p.visitors, cookie.Name+"="+cookie.Value)
	}
	check := func(when string) {
		t.Helper()
		limit, room := p.past("limit=api").Total, p.past("room=shop").Total
		if limit["allowed"] != 3.0 || limit["refused"] != 2.0 || room["requests"] != 3.0 ||
			room["admitted"] != 1.0 {
			t.Errorf("%s: %v %v", when, limit, room)
		}
	}
	check("before")
	p.stop()
	p.start()
	check("after a restart")
	p.stop()
	p.head = "analytics: {enabled: false}\n"
	p.write(shop)
	p.start()
	defer p.stop()
	res := get(t, p.operators+"/v1/analytics?room=shop", "")
	if res.StatusCode != 404 || !strings.Contains(res.body, "analytics_off") {
		t.Error(res.Status, res.body)
	}
	files, err := os.ReadDir(filepath.Join(p.dir, "data", "analytics"))
	if err != nil || len(files) != 1 {
		t.Error(err, files)
	}
	p.head = "analytics: {keep: 7d}\n"
	p.write(shop)
	if got := p.reload(); !slices.Contains(got.NeedsRestart, "analytics") {
		t.Error(fmt.Sprint(got))
	}
}
