package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/yardstick"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/queue"
)

// refuses is a target that rejects everything.
type refuses struct{}

func (refuses) Deliver(context.Context, *queue.Job) queue.Outcome {
	return queue.Outcome{Err: errors.New("not wanted")}
}

// queued returns an API in front of a real, paused queue named orders.
func queued(t *testing.T) (*site, *queue.Queue) {
	t.Helper()
	s, q := queuedAs(t, queue.Config{Handler: refuses{}})
	if err := q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, q
}

// queuedAs returns an API in front of a real queue named orders.
func queuedAs(t *testing.T, cfg queue.Config) (*site, *queue.Queue) {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), log: &syncBuffer{}}
	engine, err := embedded.Open(t.Context(), embedded.Config{Dir: filepath.Join(s.dir, "engine")})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Name, cfg.NATS = "orders", engine.Conn()
	q, err := queue.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { q.Run(ctx) })
	log := slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	a := api.New(api.Config{Tokens: api.NewTokens(s.dir, log), Audit: api.NewAudit(s.dir), Log: log,
		Queues: func() []*queue.Queue { return []*queue.Queue{q} }})
	srv := httptest.NewServer(a)
	t.Cleanup(func() { srv.Close(); stop(); wg.Wait(); engine.Close() })
	s.admin, s.stop = srv.URL, func() { stop(); wg.Wait() }
	s.read, s.write, s.tea = s.token("read"), s.token("write"), s.token("put:orders")
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !q.Hosted() {
		<-tick.C
	}
	return s, q
}

// put sends jobs, and returns the status and the answer.
func (s *site) put(query, kind, token, body string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequest("POST", s.admin+"/v1/queues/orders/jobs"+query, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestPutJobs(t *testing.T) {
	s, q := queued(t)
	const one, many = "application/json", "application/x-ndjson"
	long := strings.Repeat("x", queue.MaxLine+10)
	for i, st := range []struct {
		query, kind, token, body string
		status                   int
		want                     string
	}{
		{"", one, s.tea, `{"key":"a","body":{"n":1}}`, 200, `{"duplicate":false,"id":"`},
		{"", one, "", `{}`, 401, "token_missing"},
		{"", one, s.read, `{}`, 403, "scope_missing"},
		{"", one, s.write, `{"key":"b"}`, 200, `"id"`},
		{"", "text/plain", s.tea, `{}`, 415, "unknown_format"},
		{"", "", s.tea, `{}`, 415, "unknown_format"},
		{"", one, s.tea, `{"ky":"b"}`, 422, `unknown field \"ky\"`},
		{"", one, s.tea, `{"text":"` + long + `"}`, 413, "body_too_large"},
		{"", one, s.tea, `{"text":"` + strings.Repeat("x", queue.MaxBody+1) + `"}`, 422, "it elsewhere"},

		{"", many, s.tea, "{\"text\":\"1\"}\n\n{\"text\":\"2\"}\r\n", 200, `{"put":2,"duplicates":0,"broken":0,"faults":[],"ids":["`},
		{"", many, s.tea, "{\"text\":\"1\"}\n{x\n{\"text\":\"2\"}\n[]", 422, `"lines":[{"line":2,"detail":"`},
		{"?line=100", many, s.tea, "\n{x", 422, `"line":101`},
		{"?broken=keep", many, s.tea, "{\"text\":\"1\"}\n{x\n{\"text\":\"2\"}\n[]", 200, `{"put":2,"duplicates":0,"broken":2,"faults":[{"line":2,`},
		{"?broken=keep", many, s.tea, "{\"text\":\"1\"}\n" + long + "\n{\"text\":\"2\"}", 200, `"faults":[{"line":2,"detail":"longer than`},
		{"", many, s.tea, long + "\n{\"text\":\"2\"}", 422, `longer than`},
		{"?broken=perhaps", many, s.tea, "", 400, "invalid_query"},
		{"?line=0", many, s.tea, "", 400, "invalid_query"},
		{"?brokn=keep", many, s.tea, "{}", 400, `use broken, line`},
		{"", many, s.tea, "", 200, `{"put":0,"duplicates":0,"broken":0,"faults":[]}`},
		{"", many, s.tea, strings.Repeat("{}\n", 17<<20/3), 413, "in parts"},
	} {
		status, body := s.put(st.query, st.kind, st.token, st.body)
		if status != st.status || !strings.Contains(body, st.want) {
			t.Errorf("%d: %d %.300s, want %d %s", i, status, body, st.status, st.want)
		}
	}
	wait := time.NewTicker(time.Millisecond)
	defer wait.Stop()
	for n := 0; n != 8; <-wait.C { // nothing of the rejected requests
		st, err := q.Status(t.Context())
		if n = st.Depth; err != nil || n > 8 {
			t.Fatalf("%d jobs are there, want 8, %v", n, err)
		}
	}
}

func TestALongStreamIsPutAsItComes(t *testing.T) {
	s, q := queued(t)
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "{\"key\":\"k%d\",\"text\":\"x\"}\n", i)
		if i%5000 == 4999 {
			b.WriteString("{broken\n")
		}
	}
	status, body := s.put("?broken=keep", "application/x-ndjson", s.tea, b.String())
	if status != 200 || !strings.Contains(body, `"put":20000,"duplicates":0,"broken":4,"faults":[{"line":5001,`) ||
		strings.Contains(body, `"ids"`) {
		t.Errorf("%d %.300s", status, body)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for st, _ := q.Status(t.Context()); st.Depth < 20_000; st, _ = q.Status(t.Context()) {
		<-tick.C
	}
	status, body = s.put("?broken=keep", "application/x-ndjson", s.tea, b.String())
	if status != 200 || !strings.Contains(body, `"put":0,"duplicates":20000,"broken":4`) {
		t.Errorf("again: %d %.300s", status, body)
	}
}

func TestQueueOperations(t *testing.T) {
	s, q := queued(t)
	const at = " /v1/queues/orders"
	s.steps([][4]string{
		{"GET /v1/queues", "", ok, `{"queues":[{"name":"orders",`},
		{"GET" + at, "", ok, `"paused":true`},
		{"GET /v1/queues/none", "", notFound, "no_such_queue"},
		{"POST /v1/queues/none/jobs", "{}", notFound, "no_such_queue"},
		{"POST /v1/queues/none/pause", "", notFound, "no_such_queue"},
		{"PATCH" + at, `{"rate": 50}`, ok, `"rate":50`},
		{"PATCH" + at, `{"rate": -1}`, unclear, "invalid_change"},
		{"PATCH" + at, `{"rate": "NaN"}`, unclear, "invalid_change"},
		{"PATCH" + at, `{"limit": 1}`, unclear, "invalid_change"},
		{"PATCH" + at, `{"rate": 1, "x": 1}`, unclear, "invalid_change"},
		{"PATCH" + at, `{"rate": 0}`, ok, `"rate":0`},
	})
	const two = "{\"key\":\"1\"}\n{\"key\":\"2\"}\n"
	if status, _ := s.put("", "application/x-ndjson", s.write, two); status != 200 {
		t.Fatal(status)
	}
	s.steps([][4]string{{"POST" + at + "/resume", "", ok, `"paused":false`}})
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for st, _ := q.Status(t.Context()); st.Dead < 2; st, _ = q.Status(t.Context()) {
		<-tick.C
	}
	dead, next, err := q.Dead(t.Context(), queue.DeadFilter{}, "", 1)
	if err != nil || len(dead) != 1 || next == "" {
		t.Fatal(dead, next, err)
	}
	first := dead[0].ID
	place := url.QueryEscape(next)
	s.steps([][4]string{
		{"GET" + at + "/dead", "", ok, `"why":"not wanted"}],"next":""}`},
		{"GET" + at + "/dead?count=1", "", ok, `"next":"` + next + `"}`},
		{"GET" + at + "/dead?count=1&after=" + place, "", ok, `"why":"not wanted"}],"next":""}`},
		{"GET" + at + "/dead?after=" + first, "", bad, "invalid_query"},
		{"GET" + at + "/dead?count=0", "", bad, "invalid_query"},
		{"POST" + at + "/pause", "", ok, `"paused":true`},
		{"POST" + at + "/redrive?id=x", "", ok, `{"redriven":0}`},
		{"POST" + at + "/redrive?ids=1-0", "", bad, `\"ids\" does not exist here; nothing was changed`},
		{"DELETE" + at + "/dead?ids=1-0", "", bad, "invalid_query"},
		{"DELETE" + at + "/dead?id=1-9&id=x", "", ok, `{"purged":0}`},
		{"POST" + at + "/pause?for=1h", "", bad, "invalid_query"},
		{"GET" + at + "/dead?tenant=acme", "", ok, `{"jobs":[],"next":""}`},
		{"GET" + at + "/dead?status=999&tenant=", "", ok, `{"jobs":[],"next":""}`},
		{"GET" + at + "/dead?since=2026-01-01T00:00:00Z&count=1", "", ok, `"why":"not wanted"}]`},
		{"GET" + at + "/dead?most=1", "", bad, "does not exist here"},
		{"POST" + at + "/redrive?tenant=acme", "", ok, `{"redriven":0}`},
		{"POST" + at + "/redrive?before=2026-01-01T00:00:00Z", "", ok, `{"redriven":0}`},
		{"POST" + at + "/redrive?id=", "", bad, "an id is empty"},
		{"POST" + at + "/redrive?status=", "", bad, "status must be"},
		{"POST" + at + "/redrive?most=0", "", bad, "most must be"},
		{"POST" + at + "/redrive?since=", "", bad, "since must be"},
		{"POST" + at + "/redrive?tenant=a&tenant=b", "", bad, "tenant can be given once"},
		{"POST" + at + "/redrive", `{"ids":["1-0"]}`, bad, "this takes no body, and nothing was changed"},
		{"POST" + at + "/redrive?status=1", ` {}`, ok, `{"redriven":0}`},
		{"DELETE" + at + "/dead", "tenant=acme", bad, "this takes no body"},
		{"DELETE" + at + "/jobs", `{"tenant":"acme"}`, bad, "this takes no body"},
		{"POST" + at + "/resume", `{"tenant":"acme"}`, bad, "this takes no body"},
		{"POST" + at + "/resume?tenant=a&tenant=b", "", bad, "tenant can be given once"},
		{"DELETE" + at + "/dead?tenant=acme&most=1", "", ok, `{"purged":0}`},
		{"POST" + at + "/pause?tenant=a%2Fb", "", ok, `"paused_tenants":["a/b"]`},
		{"GET" + at + "/tenants/a/b?count=1", "", ok, `{"tenant":"a/b","paused":true,"weight":1,"in_line":0`},
		{"GET" + at + "/tenants/", "", ok, `{"tenant":"","paused":false,"weight":1,"in_line":0,"dead":2,"jobs":[]}`},
		{"GET" + at + "/tenants/a?count=0", "", bad, "count must be"},
		{"POST" + at + "/resume?tenant=a%2Fb", "", ok, `"paused":true`},
		{"POST" + at + "/pause?tenant=" + strings.Repeat("x", 200), "", unclear, "up to 128 bytes"},
		{"DELETE" + at + "/dead?id=" + first + "&id=" + first, "", ok, `{"purged":1}`},
		{"POST" + at + "/redrive", "", ok, `{"redriven":1}`},
		{"DELETE" + at + "/jobs?dead=true", "", bad, `\"dead\" does not exist here`},
		{"DELETE" + at + "/jobs", "", ok, `{"purged":1}`},
		{"DELETE" + at + "/dead", "", ok, `{"purged":0}`},
	})
	if got := s.do("POST", "/v1/queues/orders/pause", "", s.tea); got.StatusCode != http.StatusForbidden {
		t.Errorf("who may put pauses: %d", got.StatusCode)
	}
}

// A job is followed, changed and canceled by its ID or key.
func TestOneJob(t *testing.T) {
	s, _ := queued(t)
	const jobs = " /v1/queues/orders/jobs"
	hour := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	day := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	three := "{\"key\":\"a/b ü\"}\n{\"key\":\"1-0\"}\n{\"at\":\"" + hour + "\"}\n"
	status, body := s.put("", "application/x-ndjson", s.write, three)
	var put struct{ IDs []string }
	if err := json.Unmarshal([]byte(body), &put); status != 200 || err != nil || len(put.IDs) != 3 {
		t.Fatal(status, body, err)
	}
	first, at, later := put.IDs[0], jobs+"/", put.IDs[2]
	s.steps([][4]string{
		{"GET" + at + first, "", ok, `"state":"waiting"`},
		{"GET" + at + first, "", ok, `"position":1,"expected_seconds":-1`},
		{"GET" + at + "a%2Fb%20%C3%BC", "", ok, `{"id":"` + first + `","key":"a/b ü","state":"waiting"`},
		{"GET" + at + "a%2Fb%20%C3%BC?by=id", "", notFound, "no_such_job"},
		{"GET" + at + "1-0?by=key", "", ok, `{"id":"` + put.IDs[1] + `","key":"1-0"`},
		{"GET" + at + later + "?wait=1ms", "", ok, `"at":"` + hour},
		{"GET" + at + "9999-0", "", notFound, "no_such_job"},
		{"GET" + at + "none", "", notFound, "no_such_job"},
		{"DELETE" + at, "", notFound, "no_such_job"},
		{"GET" + at + first + "?wait=2m", "", bad, "wait must be"},
		{"GET" + at + first + "?wait=-1s", "", bad, "wait must be"},
		{"GET" + at + first + "?by=name", "", bad, "by must be"},
		{"DELETE" + at + first + "?wait=1s", "", bad, "nothing was changed"},
		{"PATCH" + at + later, `{"at":"` + day + `"}`, ok, `"at":"` + day},
		{"PATCH" + at + first, `{"priority":5}`, ok, `"priority":5`},
		{"PATCH" + at + first, `{"priority":10}`, unclear, "want 0 to 9"},
		{"PATCH" + at + first, `{"body":1}`, unclear, "invalid_change"},
		{"PATCH" + at + first, `{"at":"soon"}`, unclear, "invalid_change"},
		{"PATCH" + at + first, `{} {}`, unclear, "invalid_change"},
		{"PATCH" + at + first, `null`, unclear, "neither a time nor a priority"},
		{"DELETE" + at + later, "", ok, `"state":"canceled"`},
		{"DELETE" + at + later, "", ok, `"state":"canceled"`},
		{"GET" + at + later, "", ok, `"what":"canceled"`},
		{"PATCH" + at + later, `{"priority":5}`, "Conflict", "job_ended"},
		{"POST /v1/queues/orders/resume", "", ok, ""},
		{"GET" + at + first + "?wait=30s", "", ok, `"state":"dead"`},
		{"DELETE" + at + first, "", "Conflict", "it is dead"},
	})
	if got := s.do("DELETE", "/v1/queues/orders/jobs/"+first, "", s.read); got.StatusCode != http.StatusForbidden {
		t.Errorf("who may read cancels: %d", got.StatusCode)
	}
}

// Lines of a slow sender are put as they arrive, not when there are thousands.
func TestASlowStreamIsPutAsItComes(t *testing.T) {
	s, q := queued(t)
	body, lines := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), "POST",
		s.admin+"/v1/queues/orders/jobs?broken=keep", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-ndjson")
	r.Header.Set("Authorization", "Bearer "+s.tea)
	answer := make(chan string, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		answer <- fmt.Sprint(string(b), err)
	})
	for n := 1; n <= 3; n++ {
		if _, err := io.WriteString(lines, "{\"text\":\"x\"}\n"); err != nil {
			t.Fatal(err)
		}
		yardstick.Await(t, fmt.Sprintf("put: line %d, while the next is awaited", n), func() bool {
			st, _ := q.Status(t.Context())
			return st.Depth >= n
		})
	}
	lines.Close()
	if got := <-answer; !strings.Contains(got, `"put":3,`) {
		t.Errorf("the answer is %s", got)
	}
}
