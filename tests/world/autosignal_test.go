package world

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/webhook"
	"github.com/headgate/headgate/tests/virtual"
)

// A far is a server outside that tests change while it runs.
type far struct {
	mu     sync.Mutex
	answer http.HandlerFunc
}

func (f *far) set(h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = h
}

// serveFar serves HTTP at an address outside, until stop is called.
func serveFar(w *World, addr string) (f *far, stop func()) {
	f = &far{}
	return f, serve(w, addr, func(rw http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		answer := f.answer
		f.mu.Unlock()
		answer(rw, r)
	})
}

// vector returns the answer of Prometheus with these values.
func vector(values ...string) http.HandlerFunc {
	var all []string
	for i, v := range values {
		all = append(all, fmt.Sprintf(`{"metric":{"instance":"%d"},"value":[1435781451.781,%q]}`, i, v))
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/query" || r.URL.Query().Get("query") != `max(load{job="shop"})` {
			http.Error(w, "another question: "+r.URL.String(), http.StatusNotFound)
			return
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, strings.Join(all, ","))
	}
}

// A noLoad is what a server may answer in place of a load, and what status says then. A server without an
// answer is down.
type noLoad struct {
	answer  http.HandlerFunc
	trouble string
}

func noLoads() []noLoad {
	return []noLoad{
		{vector(), "the result is empty"}, // also what is older than five minutes
		{vector("NaN"), "the result is NaN"},
		{vector("-1"), "not a number from 0 on"},
		{vector("0.9", "0.9"), "the result has 2 series"},
		{func(http.ResponseWriter, *http.Request) { time.Sleep(4 * time.Second) },
			"the server does not answer"},
		{http.NotFound, "of status 404"},
		{func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"status":"error","errorType":"bad_data","error":"secret"}`)
		}, "the server cannot read the query"},
		{nil, "the server does not answer"}, // it is down
	}
}

// A change is one message about limits.
type change struct {
	By      string
	Changes []webhook.Change
}

// serveChanges serves a webhook outside, and returns what says which changes of limits it has got.
func serveChanges(w *World, addr string) (got func() []change, stop func()) {
	var mu sync.Mutex
	var changes []change
	stop = serve(w, addr, func(_ http.ResponseWriter, r *http.Request) {
		var x struct {
			Type string
			Data change
		}
		b, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(b, &x); err != nil {
			w.T.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if x.Type == webhook.LimitChanged {
			changes = append(changes, x.Data)
		}
	})
	return func() []change {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(changes)
	}, stop
}

// The load that Prometheus knows lowers the limit, and the webhook says why. What is no load is no signal:
// status and log say plainly what is wrong with it, an earlier load does not go on, and the limit holds.
func TestPrometheusIsTheSignal(t *testing.T) { virtual.Test(t, testPrometheus) }

func testPrometheus(t *testing.T) {
	w := New(t, Config{Seed: 26, Servers: []string{"one"}, Alone: true})
	secret := filepath.Join(t.TempDir(), "secret")
	key := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	if err := os.WriteFile(secret, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	n := w.Add("one", "rooms:\n  - {name: shop, origin: \"http://127.0.0.1:9000\", total_active_users: "+
		"{auto: true, min: 12, max: 60, start: 40}, new_users_per_minute: 600, origin_signal: "+
		"{prometheus: \"http://127.0.0.1:9090\", query: 'max(load{job=\"shop\"})'}}\n"+
		"webhooks:\n  - {name: ops, url: \"http://127.0.0.1:9100/in\", secret_files: ["+secret+"]}\n")
	defer w.Close()
	defer serveAuto(w)()
	changed, stop := serveChanges(w, "127.0.0.1:9100")
	defer stop()
	server, down := serveFar(w, "127.0.0.1:9090")
	defer func() { down() }()
	server.set(vector("0.5"))
	n.Start()
	n.Ready()
	type room struct {
		Limit int64 `json:"total_active_users"`
		Auto  struct {
			Load            float64
			Reason, Trouble string
		}
	}
	// is waits until the node says so of its room: a few reports later, at most.
	is := func(what string, ok func(*room) bool) (x room) {
		t.Helper()
		for began := w.Clock(); ; w.Rest(time.Second) {
			text, err := w.Ask(n, "GET", "/v1/rooms/shop", n.Token(), "")
			if x = (room{}); err == nil && json.Unmarshal([]byte(text), &x) == nil && ok(&x) {
				return x
			}
			if w.Clock()-began > 20*time.Second {
				t.Fatalf("%s: %+v, %v", what, x, err)
			}
		}
	}
	load := func(v float64) func(*room) bool {
		return func(x *room) bool { return x.Auto.Load == v && x.Auto.Trouble == "" }
	}
	is("a load", load(0.5))
	for _, x := range noLoads() {
		if x.answer == nil {
			down()
		} else {
			server.set(x.answer)
		}
		is(x.trouble, func(y *room) bool {
			return strings.Contains(y.Auto.Trouble, "origin_signal gives no signal: ") &&
				strings.Contains(y.Auto.Trouble, x.trouble) && y.Auto.Load == -1
		})
		w.Rest(15 * time.Second)
		if got := is(x.trouble, func(*room) bool { return true }); got.Limit != 40 || got.Auto.Load != -1 ||
			got.Auto.Reason != "no signals of the origin: the limit holds still" {
			t.Errorf("%s: %+v", x.trouble, got)
		}
		if x.answer == nil {
			server, down = serveFar(w, "127.0.0.1:9090")
		}
		server.set(vector("0.5"))
		is("a load again", load(0.5))
	}
	log := n.Log()
	if lost, found := strings.Count(log, "origin_signal gives no signal"),
		strings.Count(log, "origin_signal gives a signal again"); lost != 8 || found != 8 ||
		strings.Contains(log, "bad_data") {
		t.Errorf("the log says %d times that there is no signal, and %d times that there is one, want 8:\n%s",
			lost, found, log)
	}

	server.set(vector("1.2"))
	is("a load that is too high", func(x *room) bool { return x.Limit == 12 })
	w.Rest(15 * time.Second) // the message is sent
	if _, err := w.Ask(n, "PATCH", "/v1/rooms/shop", n.Token(), `{"total_active_users":"25"}`); err != nil {
		t.Fatal(err)
	}
	is("a number", func(x *room) bool { return x.Limit == 25 })
	w.Rest(15 * time.Second)
	changes := changed()
	at := func(from, to, by string) bool {
		return slices.ContainsFunc(changes, func(c change) bool {
			return strings.Contains(c.By, by) && slices.Contains(c.Changes,
				webhook.Change{Key: "total_active_users", From: from, To: to})
		})
	}
	if !at("40", "12", "auto: the reported load is too high") || !at("12", "25", "test") {
		t.Errorf("the webhook got %+v", changes)
	}
}
