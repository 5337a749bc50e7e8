package world

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

// A keyHolder is a holder of a key as the API returns it.
type keyHolder struct{ ID, Key string }

// callWith makes a call with a key at a node, and returns the status; 0 if there was no answer.
func callWith(w *World, n *Node, key string) int {
	r, err := http.NewRequest(http.MethodGet, "http://"+n.Public+"/", nil)
	if err != nil {
		w.T.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	answer, err := w.client.Do(r)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return 0
	}
	return answer.StatusCode
}

// post sends a change to a node until it is acknowledged.
func post(w *World, n *Node, path, body string) (h keyHolder) {
	w.T.Helper()
	last := ""
	for end := w.Clock() + time.Minute; w.Clock() < end; w.Rest(100 * time.Millisecond) {
		r, err := http.NewRequest(http.MethodPost, "http://"+n.Admin+path, strings.NewReader(body))
		if err != nil {
			w.T.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+n.Token())
		r.Header.Set("Content-Type", "application/json")
		answer, err := w.client.Do(r)
		if err != nil {
			last = err.Error()
			continue
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if last = string(text); answer.StatusCode/100 == 2 && json.Unmarshal(text, &h) == nil {
			return h
		}
	}
	w.T.Fatalf("%s: %s", path, last)
	return h
}

// TestKeysOverThreeNodes: a key that was revoked is refused by each node in time, while the leader of the store
// is killed, and by one that is cut off from the store or was frozen, which refuses all keys when it cannot
// know. Keys that nobody revoked count at every node that reaches the store.
func TestKeysOverThreeNodes(t *testing.T) {
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		virtual.Test(t, func(t *testing.T) { testKeysOverThreeNodes(t, seed) })
	}
}

// Times in which a change is in force: a message takes milliseconds, a check that finds what a lost message
// said comes within followed, and after stale nobody goes by what it knew.
const (
	followed = 12 * time.Second // a check, and the time that an attempt may take
	stale    = 60 * time.Second
)

func testKeysOverThreeNodes(t *testing.T, seed uint64) {
	names := []string{"n1", "n2", "n3"}
	w := New(t, Config{Seed: 720 + seed, Servers: names})
	for _, name := range append(names, "w1") {
		w.Add(name, "limits:\n  - {name: api, algorithm: sliding_log, amount: 1000000, window: 60s, key: [holder]}\n"+
			"plans: {holders: {}, amounts: {pro: {api: 2000000}}}\n"+
			"rooms:\n  - {name: api, origin: \"http://127.0.0.1:9000\", suspended: true, total_active_users: 200, "+
			"new_users_per_minute: 200, limits: [api]}\n")
	}
	defer w.Close()
	defer serve(w, "127.0.0.1:9000", func(http.ResponseWriter, *http.Request) {})()
	for _, n := range w.Nodes() {
		n.Start()
	}
	for _, n := range w.Nodes() {
		n.Ready()
	}
	w.Rest(20 * time.Second) // until each shard of the limit has a standby
	rng := rand.New(rand.NewPCG(seed, 72))
	at := func() *Node { return w.Node(names[rng.IntN(3)]) } // a worker may not make holders
	good := post(w, at(), "/v1/holders", `{"name": "good", "plan": "pro"}`)
	var bad []keyHolder
	for i := range 6 {
		bad = append(bad, post(w, at(), "/v1/holders", fmt.Sprintf(`{"name": "bad %d"}`, i)))
	}
	expect := func(what string, n *Node, h keyHolder, allowed ...int) {
		t.Helper()
		got := callWith(w, n, h.Key)
		for _, status := range allowed {
			if got == status {
				return
			}
		}
		t.Errorf("%s: %s answers %d, want %v", what, n.Name, got, allowed)
	}
	w.Rest(time.Second)
	for _, n := range w.Nodes() {
		for _, h := range append(bad, good) {
			expect("new", n, h, 200)
		}
	}

	post(w, at(), "/v1/holders/"+bad[0].ID+"/revoke", "")
	w.Rest(time.Second) // by message
	for _, n := range w.Nodes() {
		expect("revoked", n, bad[0], 401)
		expect("not revoked", n, good, 200)
	}

	victim := w.Node(names[seed%3])
	victim.Crash()
	other := w.Node(names[(seed+1)%3])
	post(w, other, "/v1/holders/"+bad[1].ID+"/revoke", "")
	w.Rest(followed)
	for _, n := range w.Nodes() {
		if n != victim {
			expect("revoked while a node is down", n, bad[1], 401)
			expect("not revoked", n, good, 200)
		}
	}
	victim.Start()
	victim.Ready()
	expect("revoked before the start", victim, bad[1], 401)
	w.Rest(followed)
	expect("after the start", victim, good, 200)

	// Cut off from the others, and so from the store: it goes by what it knows, and then by nothing.
	victim.world.Cut(victim.Name, true, w.Others(victim.Name)...)
	post(w, other, "/v1/holders/"+bad[2].ID+"/revoke", "")
	revoked := w.Clock()
	for w.Clock()-revoked < stale+followed {
		w.Rest(5 * time.Second)
		expect("cut off, not revoked", victim, good, 200, 503)
		for _, n := range w.Nodes() {
			if n != victim && w.Clock()-revoked > followed {
				expect("revoked beside one that is cut off", n, bad[2], 401)
				expect("beside one that is cut off", n, good, 200)
			}
		}
	}
	expect("cut off for longer", victim, bad[2], 503)
	expect("cut off for longer", victim, good, 503)
	w.Heal()
	w.Rest(2 * followed)
	expect("back", victim, bad[2], 401)
	expect("back", victim, good, 200)

	// A node that slept wakes up with an old table: it must not go by it.
	victim.Freeze()
	w.Rest(time.Second)
	post(w, other, "/v1/holders/"+bad[3].ID+"/revoke", "")
	w.Rest(2 * stale)
	victim.Wake()
	expect("just awake", victim, bad[3], 401, 503, 0)
	w.Rest(2 * followed)
	expect("awake", victim, bad[3], 401)
	expect("awake", victim, good, 200)

	next := post(w, other, "/v1/holders/"+bad[4].ID+"/rotate", `{"keep": "2m"}`)
	w.Rest(time.Second)
	for _, n := range w.Nodes() {
		expect("the new key", n, next, 200)
		expect("the key before", n, bad[4], 200)
	}
	w.Rest(2 * time.Minute)
	for _, n := range w.Nodes() {
		expect("the new key", n, next, 200)
		expect("the key before, when its time is over", n, bad[4], 401)
	}
	if text, err := w.Ask(w.Node("w1"), "DELETE", "/v1/holders/"+good.ID, w.Node("w1").Token(), ""); err == nil {
		t.Errorf("a worker removes a holder: %s", text)
	}
	expect("after a worker tried to remove it", other, good, 200)
}
