package world

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

// A foundLimit is what a node says of a limit whose amount is found.
type foundLimit struct {
	Amount int64 `json:"amount"`
	Auto   struct {
		Mode  string `json:"mode"`
		Found *struct {
			Amount  int64   `json:"amount"`
			Knee    float64 `json:"knee_requests_per_second"`
			InUse   float64 `json:"in_use"`
			Reason  string  `json:"reason"`
			Senders int     `json:"senders"`
		} `json:"found"`
	} `json:"auto"`
}

func limitOf(w *World, n *Node) (x foundLimit, ok bool) {
	text, err := w.Ask(n, "GET", "/v1/limits/api", n.Token(), "")
	return x, err == nil && json.Unmarshal([]byte(text), &x) == nil
}

// A narrow is an origin that works on few requests at once; the others wait.
type narrow struct {
	mu       sync.Mutex
	under    int
	arrivals []arrival
	free     chan struct{}
}

// An arrival is a moment, and how many requests were under way then.
type arrival struct {
	at    time.Duration
	under int
}

func serveNarrow(w *World, servers int) (o *narrow, stop func()) {
	l, err := w.Net.Listen(Outside, "127.0.0.1:9000")
	if err != nil {
		w.T.Fatal(err)
	}
	o = &narrow{free: make(chan struct{}, servers)}
	origin := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		o.mu.Lock()
		o.under++
		o.arrivals = append(o.arrivals, arrival{w.Clock(), o.under})
		o.mu.Unlock()
		o.free <- struct{}{}
		time.Sleep(100 * time.Millisecond)
		<-o.free
		o.mu.Lock()
		o.under--
		o.mu.Unlock()
		io.WriteString(rw, "answer")
	})}
	done := make(chan struct{})
	go func() { defer close(done); origin.Serve(l) }()
	return o, func() { origin.Close(); <-done }
}

// callers let clients call the API of all nodes again and again, until stop is called.
func callers(w *World, n int) (stop func()) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			client := &http.Client{Transport: w.client.Transport, Timeout: 5 * time.Second}
			for k := i; ; k++ {
				select {
				case <-over:
					return
				case <-time.After(time.Duration(150+10*(i%7)) * time.Millisecond):
				}
				at := w.Nodes()[k%len(w.Nodes())]
				resp, err := client.Get("http://" + at.Public + "/" + []string{"list", "item"}[k%2])
				if err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
		})
	}
	return func() { close(over); wg.Wait() }
}

// The amount of a limit of calls is found, is the same at all nodes, is never exceeded over all of them, and
// goes on when the process that finds it is killed.
func TestTheFoundAmountSurvivesItsHost(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		w := New(t, Config{Seed: 24, Servers: []string{"n1", "n2", "n3"}})
		for _, name := range []string{"n1", "n2", "n3"} {
			w.Add(name, "limits:\n  - {name: api, algorithm: concurrency, amount: {auto: true, min: 2, max: 100}}\n"+
				"rooms:\n  - {name: shop, origin: \"http://127.0.0.1:9000\", suspended: true, total_active_users: 200, "+
				"new_users_per_minute: 200, limits: [api]}\n")
		}
		defer w.Close()
		origin, stop := serveNarrow(w, 8)
		defer stop()
		for _, n := range w.Nodes() {
			n.Start()
		}
		for _, n := range w.Nodes() {
			n.Ready()
		}
		end := callers(w, 40)
		var amounts []arrival
		watch := func(d time.Duration) {
			for began := w.Clock(); w.Clock()-began < d; w.Rest(500 * time.Millisecond) {
				most := int64(0)
				for _, n := range w.Nodes() {
					if x, ok := limitOf(w, n); n.Runs() && ok {
						most = max(most, x.Amount)
					}
				}
				amounts = append(amounts, arrival{w.Clock(), int(most)})
			}
		}
		watch(70 * time.Second)
		for _, n := range w.Nodes() {
			x, ok := limitOf(w, n)
			t.Logf("%s: %+v %+v", n.Name, x, x.Auto.Found)
			if !ok || x.Amount < 7 || x.Amount > 13 || x.Auto.Found == nil || x.Auto.Found.Senders != 3 {
				t.Errorf("%s finds %+v, %+v; the origin works on 8 at once", n.Name, x, x.Auto.Found)
			}
		}
		finds := func(n *Node) bool {
			if !n.Runs() {
				return false
			}
			text, err := w.Ask(n, "GET", "/metrics", "", "")
			return err == nil && strings.Contains(text, `headgate_found_amount{limit="api"}`)
		}
		at := slices.IndexFunc(w.Nodes(), finds)
		if at < 0 {
			t.Fatal("no process finds the amount")
		}
		host := w.Nodes()[at]
		before, _ := limitOf(w, host)
		host.Crash()
		watch(10 * time.Second)
		found := 0
		for _, n := range w.Nodes() {
			x, ok := limitOf(w, n)
			if n.Runs() && (!ok || x.Amount < before.Amount*2/3) {
				t.Errorf("the amount was %d, and is %+v at %s", before.Amount, x, n.Name)
			}
			if finds(n) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%d processes find the amount after the death of one", found)
		}
		end()
		judgeArrivals(t, origin, amounts)
	})
}

// judgeArrivals checks that no more requests were under way than an amount that was in force when the
// oldest of them could begin.
func judgeArrivals(t *testing.T, o *narrow, amounts []arrival) {
	k := 0
	for _, a := range o.arrivals {
		for k < len(amounts) && amounts[k].at < a.at-2*time.Second {
			k++
		}
		most := 0
		for _, x := range amounts[k:] {
			if x.at > a.at+time.Second {
				break
			}
			most = max(most, x.under)
		}
		if a.under > most {
			t.Fatalf("at %v %d were under way, and the amount was %d", a.at, a.under, most)
		}
	}
}

// An operator freezes the amount, sets a number and lets it be found again. It goes on after a restart, with
// what was learned.
func TestTheFoundAmountObeysItsOperator(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		w := New(t, Config{Seed: 24, Servers: []string{"n1"}})
		n := w.Add("n1", "limits:\n  - {name: api, algorithm: concurrency, amount: {auto: shadow, min: 2, max: 100, "+
			"start: 3}, origin_target: {p95: 1s}}\n"+
			"rooms:\n  - {name: shop, origin: \"http://127.0.0.1:9000\", suspended: true, total_active_users: 200, "+
			"new_users_per_minute: 200, limits: [api]}\n")
		defer w.Close()
		_, stop := serveNarrow(w, 8)
		defer stop()
		n.Start()
		n.Ready()
		end := callers(w, 30)
		defer end()
		set := func(to string, d time.Duration) foundLimit {
			t.Helper()
			if _, err := w.Ask(n, "PATCH", "/v1/limits/api", n.Token(), `{"amount":"`+to+`"}`); err != nil {
				t.Fatal(err)
			}
			w.Rest(d)
			x, ok := limitOf(w, n)
			if !ok || x.Auto.Mode != "" && x.Auto.Found == nil {
				t.Fatalf("%s for %v: %+v, nothing found", to, d, x)
			}
			t.Logf("%s for %v: %+v %+v", to, d, x, x.Auto.Found)
			return x
		}
		w.Rest(20 * time.Second)
		x, ok := limitOf(w, n)
		if !ok || x.Amount != 3 || x.Auto.Mode != "shadow" || x.Auto.Found == nil || x.Auto.Found.Amount <= 3 {
			t.Fatalf("in shadow: %+v, %+v", x, x.Auto.Found)
		}
		x = set("auto", 60*time.Second)
		if x.Amount < 7 || x.Auto.Mode != "on" || x.Auto.Found.Amount != x.Amount ||
			x.Auto.Found.InUse < float64(x.Amount)/2 || x.Auto.Found.InUse > float64(x.Amount)+1 {
			t.Errorf("found: %+v, %+v", x, x.Auto.Found)
		}
		if frozen := set("frozen", 20*time.Second); frozen.Amount != x.Amount {
			t.Errorf("the amount was %d, and is %d although it is frozen", x.Amount, frozen.Amount)
		}
		text, err := w.Ask(n, "GET", "/metrics", "", "")
		for _, want := range []string{fmt.Sprintf(`headgate_found_amount{limit="api"} %d`, x.Amount),
			`headgate_amount_decision{limit="api",mode="frozen",reason="frozen by an operator"`} {
			if err != nil || !strings.Contains(text, want) {
				t.Errorf("the metrics lack %s (%v)", want, err)
			}
		}
		if x := set("50", time.Second); x.Amount != 50 || x.Auto.Mode != "" {
			t.Errorf("a number: %+v", x)
		}
		if _, err := w.Ask(n, "PATCH", "/v1/limits/api", n.Token(), `{"amount":"often"}`); err == nil {
			t.Error("the amount may be often")
		}
		found := set("frozen", time.Second)
		n.Crash()
		n.Start()
		n.Ready()
		if again, _ := limitOf(w, n); again.Amount != found.Amount || found.Amount < 7 {
			t.Errorf("the amount was %d, and is %d after a restart", found.Amount, again.Amount)
		}
	})
}
