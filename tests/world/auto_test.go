package world

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

// autoMin is below what the origin of these tests bears.
const autoMin = 12

// An autoRoom is what a node says of its room.
type autoRoom struct {
	Active  int64 `json:"active_users"`
	Limit   int64 `json:"total_active_users"`
	Waiting int64 `json:"waiting_users"`
	Hosted  bool  `json:"hosted"`
	Bound   struct {
		Active int64 `json:"total_active_users"`
	} `json:"bound"`
	Auto *struct {
		Active  int64   `json:"total_active_users"`
		Senders int     `json:"senders"`
		Held    bool    `json:"held"`
		Trouble string  `json:"trouble"`
		Load    float64 `json:"load"`
		Reason  string  `json:"reason"`
		Knee    float64 `json:"knee_requests_per_second"`
	} `json:"auto"`
}

func autoOf(w *World, n *Node) (x autoRoom, ok bool) {
	text, err := w.Ask(n, "GET", "/v1/rooms/shop", n.Token(), "")
	return x, err == nil && json.Unmarshal([]byte(text), &x) == nil
}

// The limit rises while the origin answers well, is the same at all nodes, and goes on with what it has
// learned when its host is killed.
func TestTheFoundLimitSurvivesItsHost(t *testing.T) {
	if testing.Short() {
		return // minutes of three nodes, which the race detector slows tenfold: make all plays them
	}
	virtual.Test(t, func(t *testing.T) {
		w := New(t, Config{Seed: 24, Servers: []string{"n1", "n2", "n3"}})
		for _, name := range []string{"n1", "n2", "n3"} {
			w.Add(name, fmt.Sprintf("trusted_proxies: [127.0.0.0/8]\nrooms:\n  - {name: shop, origin: "+
				"\"http://127.0.0.1:9000\", total_active_users: {auto: true, min: %d, max: 60}, "+
				"new_users_per_minute: 600, session_duration: 20s, origin_target: {p95: 1s}}\n", autoMin))
		}
		defer w.Close()
		origin := serveAuto(w)
		defer origin()
		for _, n := range w.Nodes() {
			n.Start()
		}
		for _, n := range w.Nodes() {
			n.Ready()
		}
		end := autoCrowd(w, 90, nil)
		defer end()
		host := func() *Node {
			all := w.Nodes()
			i := slices.IndexFunc(all, func(n *Node) bool {
				x, ok := autoOf(w, n)
				return n.Runs() && ok && x.Hosted
			})
			if i < 0 {
				return nil
			}
			return all[i]
		}
		var before autoRoom
		for began := w.Clock(); before.Limit < 2*autoMin; w.Rest(10 * time.Second) {
			if n := host(); n != nil {
				before, _ = autoOf(w, n)
			}
			if before.Active > max(before.Bound.Active, before.Limit) {
				t.Errorf("%d inside, and the limit is %d, %d in force",
					before.Active, before.Limit, before.Bound.Active)
			}
			t.Logf("%v: %+v, %+v", w.Clock(), before, before.Auto)
			if w.Clock()-began > 10*time.Minute {
				t.Fatalf("the limit does not rise: %+v", before)
			}
		}
		t.Logf("after %v: %+v, %+v", w.Clock(), before, *before.Auto)
		if before.Auto.Senders != 3 {
			t.Errorf("signals of %d nodes", before.Auto.Senders)
		}
		old := host()
		before, _ = autoOf(w, old)
		old.Crash()
		var next *Node
		for next = nil; next == nil || next == old; next = host() {
			w.Rest(250 * time.Millisecond)
		}
		after, ok := autoOf(w, next)
		if !ok || after.Limit < before.Limit {
			t.Errorf("the limit was %d, and is %d at the next host: %+v",
				before.Limit, after.Limit, after.Auto)
		}
		w.Rest(20 * time.Second) // steps of the new host
		if after, ok = autoOf(w, next); !ok || after.Auto == nil || after.Limit < before.Limit*2/3 {
			t.Errorf("the limit was %d, and the next host finds %+v", before.Limit, after)
		}
		t.Logf("%+v, %+v", after, *after.Auto)
	})
}

// A target that the origin misses when almost nobody is inside is named, with what the origin takes. A
// query of Prometheus with an empty result is no signal: that is said, and the origin's answers count alone.
func TestWhatCannotBeFoundIsSaid(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		w := New(t, Config{Seed: 24, Servers: []string{"n1"}, Alone: true})
		n := w.Add("n1", fmt.Sprintf("trusted_proxies: [127.0.0.0/8]\nrooms:\n  - {name: shop, origin: "+
			"\"http://127.0.0.1:9000\", total_active_users: {auto: true, min: %d, max: 60}, "+
			"new_users_per_minute: 600, session_duration: 20s, origin_target: {p95: 20ms}, "+
			"origin_signal: {prometheus: \"http://127.0.0.1:9090\", query: max(load)}}\n", autoMin))
		defer w.Close()
		defer serveAuto(w)()
		var result atomic.Value
		result.Store("")
		defer serve(w, "127.0.0.1:9090", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, result.Load())
		})()
		n.Start()
		n.Ready()
		defer autoCrowd(w, 30, nil)()
		w.Rest(3 * time.Minute)
		x, ok := autoOf(w, n)
		if !ok || x.Auto == nil {
			t.Fatalf("%v, %+v", ok, x)
		}
		if a := x.Auto; !strings.Contains(a.Reason, "more than its target of 20ms: change the target") ||
			!strings.HasPrefix(a.Reason, "the origin takes 5") && // 50 ms, in steps of a histogram
				!strings.HasPrefix(a.Reason, "the origin takes 60ms") || !a.Held || a.Active != autoMin {
			t.Errorf("a target that is missed always: %+v", a)
		}
		if a := x.Auto; !strings.Contains(a.Trouble, "is empty") || a.Load != -1 {
			t.Errorf("a query with an empty result: %+v", a)
		}
		if n := strings.Count(n.Log(), "origin_signal gives no signal"); n != 1 {
			t.Errorf("%d lines of the log say that the query has an empty result", n)
		}
		result.Store(`{"metric":{},"value":[1,"0.25"]}`)
		w.Rest(15 * time.Second)
		if x, ok = autoOf(w, n); !ok || x.Auto.Trouble != "" || x.Auto.Load != 0.25 {
			t.Errorf("a query with a result again: %+v", x.Auto)
		}
	})
}

// serve serves a handler at an address outside.
func serve(w *World, addr string, h http.HandlerFunc) (stop func()) {
	l, err := w.Net.Listen(Outside, addr)
	if err != nil {
		w.T.Fatal(err)
	}
	s := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	return func() { s.Close(); <-done }
}

// serveAuto serves an origin that takes 50 ms for each request.
func serveAuto(w *World) (stop func()) {
	return serve(w, "127.0.0.1:9000", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(50 * time.Millisecond)
		io.WriteString(w, "page")
	})
}

// autoCrowd lets visitors of many networks come, wait and look at pages, until stop is called. It calls in,
// if there is one, with the number of a visitor that has got a page.
func autoCrowd(w *World, visitors int, in func(visitor int)) (stop func()) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	for i := range visitors {
		wg.Go(func() {
			for k := i; ; k++ {
				n := w.Nodes()[k%len(w.Nodes())]
				jar, err := cookiejar.New(nil)
				if err != nil {
					w.T.Error(err)
					return
				}
				client := &http.Client{Transport: w.client.Transport, Jar: jar, Timeout: 5 * time.Second}
				for pages := 0; pages < 10; { // then the next visitor comes
					select {
					case <-over:
						return
					case <-time.After(time.Second + time.Duration(i%7)*100*time.Millisecond):
					}
					url := "http://" + n.Public + "/" + []string{"", "cart", "list"}[pages%3]
					r, err := http.NewRequest("GET", url, nil)
					if err != nil {
						w.T.Error(err)
						return
					}
					r.Header.Set("X-Forwarded-For", fmt.Sprintf("198.%d.%d.1", 18+i%2, k%250))
					resp, err := client.Do(r)
					if err != nil {
						break // the next visitor comes, to another node
					}
					b, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					if resp.StatusCode == http.StatusOK && strings.HasPrefix(string(b), "page") {
						if pages++; in != nil {
							in(k*visitors + i)
						}
					}
				}
			}
		})
	}
	return func() { close(over); wg.Wait() }
}
