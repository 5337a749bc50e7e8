package world

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

// A picky is a target that takes so many jobs in each second, and refuses the others.
type picky struct {
	mu    sync.Mutex
	most  int
	now   int64 // second
	taken int
	all   int
}

func (p *picky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	p.mu.Lock()
	if s := time.Now().Unix(); s != p.now {
		p.now, p.taken = s, 0
	}
	refuse := p.taken >= p.most
	if !refuse {
		p.taken++
		p.all++
	}
	p.mu.Unlock()
	time.Sleep(20 * time.Millisecond)
	if refuse {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// The rate of a queue is found where its target begins to refuse, follows it down, and goes on at the next
// host.
func TestTheRateOfAQueueIsFound(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		w := New(t, Config{Seed: 24, Servers: []string{"n1", "n2", "n3"}})
		for _, name := range []string{"n1", "n2", "n3"} {
			w.Add(name, "queues:\n  - {name: orders, target: {url: \"http://127.0.0.1:9000/\"}, "+
				"rate: {auto: true, min: 5, max: 500}}\n")
		}
		defer w.Close()
		l, err := w.Net.Listen(Outside, "127.0.0.1:9000")
		if err != nil {
			t.Fatal(err)
		}
		target := &picky{most: 40}
		server := &http.Server{Handler: target}
		done := make(chan struct{})
		go func() { defer close(done); server.Serve(l) }()
		defer func() { server.Close(); <-done }()
		for _, n := range w.Nodes() {
			n.Start()
		}
		for _, n := range w.Nodes() {
			n.Ready()
		}
		first := w.Nodes()[0]
		r, err := http.NewRequest("POST", "http://"+first.Admin+"/v1/queues/orders/jobs",
			strings.NewReader(strings.Repeat("{\"body\": 1}\n", 9000)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-ndjson")
		r.Header.Set("Authorization", "Bearer "+first.Token())
		resp, err := w.client.Do(r)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("jobs are not put: %v, %v", resp, err)
		}
		resp.Body.Close()
		state := func() (rate float64, host string) {
			for _, n := range w.Nodes() {
				var x struct {
					Rate float64 `json:"rate"`
					Node string  `json:"node"`
				}
				if !n.Runs() {
					continue
				}
				text, err := w.Ask(n, "GET", "/v1/queues/orders", n.Token(), "")
				if err == nil && json.Unmarshal([]byte(text), &x) == nil {
					return x.Rate, x.Node
				}
			}
			return 0, ""
		}
		delivered := func(d time.Duration) float64 {
			target.mu.Lock()
			was := target.all
			target.mu.Unlock()
			w.Rest(d)
			target.mu.Lock()
			defer target.mu.Unlock()
			return float64(target.all-was) / d.Seconds()
		}
		w.Rest(80 * time.Second)
		rate, host := state()
		if got := delivered(20 * time.Second); rate < 28 || rate > 41 || got < 28 {
			t.Errorf("the rate is %v, %.1f delivered a second; the target takes 40\n%s", rate, got, w.Node(host).Log())
		}
		rate, host = state()
		w.Node(host).Crash()
		at := ""
		for began := w.Clock(); (at == "" || at == host) && w.Clock()-began < time.Minute; _, at = state() {
			w.Rest(time.Second)
		}
		w.Rest(6 * time.Second) // the new host has taken a step
		var next float64
		next, at = state()
		if at == host || next < rate*2/3 {
			t.Errorf("the rate was %v at %s, and is %v at %s", rate, host, next, at)
		}
		target.mu.Lock()
		target.most = 15
		target.mu.Unlock()
		w.Rest(40 * time.Second)
		if rate, host = state(); rate > 18 {
			t.Errorf("the rate is %v, and the target takes 15\n%s", rate, w.Node(host).Log())
		}
	})
}
