package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/tests/yardstick"
)

// pulled returns an API in front of a real queue named orders, whose jobs are claimed, and a token for that.
func pulled(t *testing.T) (s *site, q *queue.Queue, claims string) {
	t.Helper()
	s, q = queuedAs(t, queue.Config{Lease: 30 * time.Second})
	return s, q, s.token("claim:orders")
}

// claims is the answer to a claim.
type claims struct {
	Jobs []struct {
		Receipt, ID, Key, Text, Base64 string
		OrderKey                       string `json:"order_key"`
		Attempt                        int
		Body                           json.RawMessage
		Until                          time.Time
		Headers                        map[string]string
	}
}

func (s *site) claim(token, body string) (c claims) {
	s.t.Helper()
	status, text := s.ask("POST", "/v1/queues/orders/claim", token, body)
	if err := json.Unmarshal([]byte(text), &c); err != nil || status != 200 {
		s.t.Fatalf("claim %s: %d %s", body, status, text)
	}
	return c
}

// ask sends a JSON body, and returns the status and the answer.
func (s *site) ask(method, path, token, body string) (status int, text string) {
	s.t.Helper()
	a := s.do(method, s.admin+path, body, "Authorization: Bearer "+token, "Content-Type: application/json")
	return a.StatusCode, a.body
}

// A worker claims jobs by HTTP, in the form in which they were put, and says what became of them.
func TestAWorkerClaimsByHTTP(t *testing.T) {
	s, q, token := pulled(t)
	at := time.Now()
	_, err := q.Put(t.Context(), []queue.Job{
		{Key: "a", Body: []byte(`{"n": 1}`), Headers: map[string]string{"Content-Type": "application/json"}},
		{Key: "b", OrderKey: "o", Body: []byte("text")}, {Key: "c", Body: []byte("\xff")}, {Key: "d"}})
	if err != nil {
		t.Fatal(err)
	}
	got := s.claim(token, `{"max": 10, "lease": "1m", "wait": "10s", "worker": "w1"}`).Jobs
	if len(got) != 4 || string(got[0].Body) != `{"n":1}` || got[0].Key != "a" || got[1].Text != "text" ||
		got[2].Base64 != "/w==" || got[3].ID == "" || got[0].Attempt != 1 ||
		got[0].Until.Before(at.Add(time.Minute)) {
		t.Fatalf("%+v", got)
	}
	status, body := s.ask("POST", "/v1/queues/orders/jobs", s.write, `{"order_key": "o", "key": "e"}`)
	if status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	status, body = s.ask("GET", "/v1/queues/orders/jobs/e", s.read, "")
	want := `"behind":"` + got[1].ID + `"`
	if status != 200 || !strings.Contains(body, want) || got[1].OrderKey != "o" {
		t.Errorf("%d %s, want %s; %+v", status, body, want, got[1])
	}
	if status, body := s.ask("DELETE", "/v1/queues/orders/jobs/e", s.write, ""); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	status, body = s.ask("GET", "/v1/queues/orders/jobs/a", s.read, "")
	if status != 200 || !strings.Contains(body, `"state":"under_way"`) || !strings.Contains(body, `"worker":"w1"`) ||
		!strings.Contains(body, `"until":"20`) || strings.Contains(body, got[0].Receipt) {
		t.Errorf("look-up: %d %s", status, body)
	}
	if status, body := s.ask("DELETE", "/v1/queues/orders/jobs/a", s.write, ""); status != 409 ||
		!strings.Contains(body, "job_under_way") {
		t.Errorf("cancel: %d %s", status, body)
	}
	for _, tt := range []struct {
		verb, body string
		status     int
		want       string
	}{
		{"ack", `{"receipts": ["` + got[0].Receipt + `", "x"]}`, 200,
			`{"count":1,"results":[{"ok":true,"id":"` + got[0].ID + `"},{"ok":false,"code":"invalid_receipt"}]}`},
		{"ack", `{"receipts": ["` + got[0].Receipt + `"]}`, 410,
			`"results":[{"ok":false,"id":"` + got[0].ID + `","code":"lease_over","state":"delivered"}]`},
		{"ack", `{"receipts": ["x"]}`, 422, `"code":"invalid_receipt"`},
		{"extend", `{"receipts": ["` + got[1].Receipt + `"], "lease": "1h"}`, 200, `"until":"20`},
		{"extend", `{"receipts": ["` + got[1].Receipt + `"]}`, 200, `"until":"20`},
		{"nack", `{"receipts": ["` + got[1].Receipt + `"], "dead": true, "why": "no table"}`, 200, `"count":1`},
		{"nack", `{"receipts": ["` + got[2].Receipt + `"], "delay": "1h"}`, 200, `"count":1`},
		{"nack", `{"receipts": ["` + got[2].Receipt + `"], "delay": "1h"}`, 410, `"state":"waiting"`},
		{"nack", `{"receipts": ["` + got[3].Receipt + `"], "untried": true}`, 200, `"count":1`},
	} {
		status, body := s.ask("POST", "/v1/queues/orders/"+tt.verb, token, tt.body)
		if status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s %s: %d %s, want %d %s", tt.verb, tt.body, status, body, tt.status, tt.want)
		}
		if status >= 400 && !strings.Contains(body, `"hint":"`) {
			t.Errorf("%s %s: no hint: %s", tt.verb, tt.body, body)
		}
	}
	if again := s.claim(token, ``).Jobs; len(again) != 1 || again[0].Key != "d" || again[0].Attempt != 1 {
		t.Errorf("claimed again: %+v", again)
	}
	dead, _, err := q.Dead(t.Context(), queue.DeadFilter{}, "", 10)
	if err != nil || len(dead) != 1 || dead[0].Reason != "no table" {
		t.Errorf("dead: %+v %v", dead, err)
	}
	if strings.Contains(s.log.String(), got[0].Receipt) {
		t.Error("the log has a receipt")
	}
}

func TestBadClaimsByHTTP(t *testing.T) {
	s, _, token := pulled(t)
	many := `"` + strings.Repeat(`x","`, 1000) + `x"`
	for _, tt := range []struct {
		verb, body string
		status     int
		code       string
	}{
		{"claim", `{`, 422, "invalid_claim"}, {"claim", `[]`, 422, "invalid_claim"},
		{"claim", `null`, 422, "invalid_claim"}, {"claim", `{} {}`, 422, "invalid_claim"},
		{"claim", `{"maximum": 1}`, 422, "invalid_claim"}, {"claim", `{"Max": 1}`, 422, "invalid_claim"},
		{"claim", `{"max": -1}`, 422, "invalid_claim"}, {"claim", `{"max": 1001}`, 422, "invalid_claim"},
		{"claim", `{"max": 1.5}`, 422, "invalid_claim"}, {"claim", `{"max": 1e99}`, 422, "invalid_claim"},
		{"claim", `{"lease": 30}`, 422, "invalid_claim"}, {"claim", `{"lease": "1ms"}`, 422, "invalid_claim"},
		{"claim", `{"lease": "13h"}`, 422, "invalid_claim"}, {"claim", `{"wait": "61s"}`, 422, "invalid_claim"},
		{"claim", `{"wait": "-1s"}`, 422, "invalid_claim"}, {"claim", `{"worker": "a\nb"}`, 422, "invalid_claim"},
		{"claim", `{"worker": "` + strings.Repeat("x", 65) + `"}`, 422, "invalid_claim"},
		{"claim", `{"worker": "` + strings.Repeat("x", 70_000) + `"}`, 413, "body_too_large"},
		{"ack", ``, 422, "invalid_claim"}, {"ack", `{"receipts": "x"}`, 422, "invalid_claim"},
		{"ack", `{"receipts": []}`, 422, "invalid_claim"}, {"ack", `{"receipts": [` + many + `]}`, 422, "invalid_claim"},
		{"ack", `{"receipts": ["x"], "dead": true}`, 422, "invalid_claim"},
		{"nack", `{"receipts": ["x"], "delay": "-1s"}`, 422, "invalid_claim"},
		{"nack", `{"receipts": ["x"], "delay": "999999h"}`, 422, "invalid_claim"},
		{"nack", `{"receipts": ["x"], "dead": true, "untried": true}`, 422, "invalid_claim"},
		{"nack", `{"receipts": ["x"], "why": "` + strings.Repeat("x", 201) + `"}`, 422, "invalid_claim"},
		{"extend", `{"receipts": ["x"], "lease": "13h"}`, 422, "invalid_claim"},
		{"extend", `{"receipts": ["1-0.AAAAAAAAAAAAAAAAAAAAAA"]}`, 410, "lease_over"},
		{"claim?max=3", `{}`, 400, "invalid_query"},
	} {
		status, body := s.ask("POST", "/v1/queues/orders/"+tt.verb, token, tt.body)
		if status != tt.status || !strings.Contains(body, `"code":"`+tt.code+`"`) || !strings.Contains(body, `"hint":"`) {
			t.Errorf("%s %.80s: %d %s, want %d %s", tt.verb, tt.body, status, body, tt.status, tt.code)
		}
	}
	push, q := queued(t)
	status, body := push.ask("POST", "/v1/queues/orders/claim", push.write, `{}`)
	if status != 409 || !strings.Contains(body, `"code":"not_pulled"`) || !strings.Contains(body, "pull:") {
		t.Errorf("a queue with a target: %d %s", status, body)
	}
	if _, err := q.Claim(t.Context(), queue.Want{}); !errors.Is(err, queue.ErrPush) {
		t.Error(err)
	}
}

// A claim that waits longer than a body may take is answered, and one whose client has left frees its place.
// One token cannot take all places.
func TestClaimsThatWait(t *testing.T) {
	s, q, token := pulled(t)
	waiting := func(n int) {
		yardstick.Await(t, fmt.Sprintf("%d workers wait", n), func() bool {
			is, err := q.Status(t.Context())
			return err == nil && is.Workers == n
		})
	}
	gone, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	ask := func(ctx context.Context, done func(status int)) {
		wg.Go(func() {
			r, err := http.NewRequestWithContext(ctx, "POST", s.admin+"/v1/queues/orders/claim",
				strings.NewReader(`{"wait": "60s"}`))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Authorization", "Bearer "+token)
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				done(0)
				return
			}
			defer res.Body.Close()
			done(res.StatusCode)
		})
	}
	const most = 250
	for range most {
		ask(gone, func(status int) {
			if status != 0 {
				t.Errorf("a worker that has left: %d", status)
			}
		})
	}
	waiting(most)
	status, body := s.ask("POST", "/v1/queues/orders/claim", token, `{"wait": "1s"}`)
	if status != 503 || !strings.Contains(body, `"code":"busy"`) {
		t.Errorf("one more of the token: %d %s", status, body)
	}
	if status, body := s.ask("POST", "/v1/queues/orders/claim", s.write, `{"wait": "1ms"}`); status != 200 {
		t.Errorf("another token: %d %s", status, body)
	}
	leave()
	wg.Wait()
	waiting(0)
	if log := s.log.String(); strings.Contains(log, "level=ERROR msg=\"operator refused\" code=failed") {
		t.Errorf("workers that leave are errors: %.400s", log)
	}
	ask(t.Context(), func(status int) {
		if status != 200 {
			t.Errorf("a worker that waits: %d", status)
		}
	})
	waiting(1)
	if _, err := q.Put(t.Context(), []queue.Job{{Key: "a"}}); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if is, err := q.Job(t.Context(), queue.NameJob("a"), 0); err != nil || is.State != queue.StateUnderWay {
		t.Errorf("%+v %v", is, err)
	}
}

// A job whose body only claims to be JSON text does not spoil the answer for the other jobs.
func TestABodyThatIsNotText(t *testing.T) {
	s, q, token := pulled(t)
	_, err := q.Put(t.Context(), []queue.Job{
		{Key: "a", Body: []byte("\"\xff\""), Headers: map[string]string{"Content-Type": "application/json"}},
		{Key: "b", Body: []byte(`{"n":1}`), Headers: map[string]string{"Content-Type": "application/json"}}})
	if err != nil {
		t.Fatal(err)
	}
	yardstick.Await(t, "the jobs are known", func() bool {
		is, err := q.Status(t.Context())
		return err == nil && is.Depth == 2
	})
	status, text := s.ask("POST", "/v1/queues/orders/claim", token, `{"max": 10, "wait": "10s"}`)
	var got claims
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != 200 || !utf8.ValidString(text) {
		t.Fatalf("%d %q %v", status, text, err)
	}
	if len(got.Jobs) != 2 || got.Jobs[0].Base64 != "Iv8i" || string(got.Jobs[1].Body) != `{"n":1}` {
		t.Errorf("%q", text)
	}
}

// A queue that ends sends its workers to another node: that is no fault of this one.
func TestWorkersOfAQueueThatEnds(t *testing.T) {
	s, q, token := pulled(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		status, text := s.ask("POST", "/v1/queues/orders/claim", token, `{"wait": "60s"}`)
		if status != 503 || !strings.Contains(text, `"code":"no_host"`) {
			t.Errorf("a worker of a queue that ends: %d %s", status, text)
		}
	})
	yardstick.Await(t, "a worker waits", func() bool {
		is, err := q.Status(t.Context())
		return err == nil && is.Workers == 1
	})
	s.stop()
	wg.Wait()
}
