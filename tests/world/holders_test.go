package world

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
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

// TestKeysOverThreeNodes: a key that was revoked is refused by each node in time, while a node of the store
// is killed, and by one that is cut off from the store or was frozen, which refuses all keys when it cannot
// know. Keys that nobody revoked count at every node that reaches the store.
func TestKeysOverThreeNodes(t *testing.T) {
	seeds := uint64(2)
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

// A keyring is the nodes of a world with holders of keys.
type keyring struct {
	*World
	good keyHolder
	bad  []keyHolder
}

// expect makes a call with a key at a node, and compares the status.
func (w *keyring) expect(what string, n *Node, h keyHolder, allowed ...int) {
	w.T.Helper()
	if got := callWith(w.World, n, h.Key); !slices.Contains(allowed, got) {
		w.T.Errorf("%s: %s answers %d, want %v", what, n.Name, got, allowed)
	}
}

// revoke revokes the keys of a holder at a node.
func (w *keyring) revoke(n *Node, h keyHolder) { post(w.World, n, "/v1/holders/"+h.ID+"/revoke", "") }

func testKeysOverThreeNodes(t *testing.T, seed uint64) {
	names := []string{"n1", "n2", "n3"}
	w := &keyring{World: New(t, Config{Seed: 720 + seed, Servers: names})}
	for _, name := range append(names, "w1") {
		w.Add(name, "limits:\n  - {name: api, algorithm: sliding_log, amount: 1000000, window: 60s, key: [holder]}\n"+
			"plans: {holders: {}, amounts: {pro: {api: 2000000}}}\n"+
			"rooms:\n  - {name: api, origin: \"http://127.0.0.1:9000\", suspended: true, total_active_users: 200, "+
			"new_users_per_minute: 200, limits: [api]}\n")
	}
	defer w.Close()
	defer serve(w.World, "127.0.0.1:9000", func(http.ResponseWriter, *http.Request) {})()
	for _, n := range w.Nodes() {
		n.Start()
	}
	for _, n := range w.Nodes() {
		n.Ready()
	}
	w.Rest(20 * time.Second) // until each shard of the limit has a standby
	rng := rand.New(rand.NewPCG(seed, 72))
	at := func() *Node { return w.Node(names[rng.IntN(3)]) } // a worker may not make holders
	w.good = post(w.World, at(), "/v1/holders", `{"name": "good", "plan": "pro"}`)
	for i := range 5 {
		w.bad = append(w.bad, post(w.World, at(), "/v1/holders", fmt.Sprintf(`{"name": "bad %d"}`, i)))
	}
	w.Rest(time.Second)
	for _, n := range w.Nodes() {
		for _, h := range append(w.bad, w.good) {
			w.expect("new", n, h, 200)
		}
	}
	w.revoke(at(), w.bad[0])
	w.Rest(time.Second) // by message
	for _, n := range w.Nodes() {
		w.expect("revoked", n, w.bad[0], 401)
		w.expect("not revoked", n, w.good, 200)
	}
	victim, other := w.Node(names[seed%3]), w.Node(names[(seed+1)%3])
	w.crash(victim, other)
	w.cutOff(victim, other)
	w.sleep(victim, other)

	next := post(w.World, other, "/v1/holders/"+w.bad[4].ID+"/rotate", `{"keep": "20s"}`)
	w.Rest(time.Second)
	for _, n := range w.Nodes() {
		w.expect("the new key", n, next, 200)
		w.expect("the key before", n, w.bad[4], 200)
	}
	w.Rest(20 * time.Second)
	for _, n := range w.Nodes() {
		w.expect("the new key", n, next, 200)
		w.expect("the key before, when its time is over", n, w.bad[4], 401)
	}
	worker := w.Node("w1")
	if text, err := w.Ask(worker, "DELETE", "/v1/holders/"+w.good.ID, worker.Token(), ""); err == nil {
		t.Errorf("a worker removes a holder: %s", text)
	}
	w.expect("after a worker tried to remove it", other, w.good, 200)
}

// crash kills a node while a key is revoked at another one, and starts it again.
func (w *keyring) crash(victim, other *Node) {
	victim.Crash()
	w.revoke(other, w.bad[1])
	w.Rest(followed)
	for _, n := range w.Nodes() {
		if n != victim {
			w.expect("revoked while a node is down", n, w.bad[1], 401)
			w.expect("not revoked", n, w.good, 200)
		}
	}
	victim.Start()
	victim.Ready()
	w.expect("revoked before the start", victim, w.bad[1], 401)
	w.Rest(followed)
	w.expect("after the start", victim, w.good, 200)
}

// cutOff cuts a node off from the others, and so from the store: it goes by what it knows, and then by
// nothing.
func (w *keyring) cutOff(victim, other *Node) {
	w.Cut(victim.Name, true, w.Others(victim.Name)...)
	w.revoke(other, w.bad[2])
	revoked := w.Clock()
	for w.Clock()-revoked < stale+followed {
		w.Rest(5 * time.Second)
		w.expect("cut off, not revoked", victim, w.good, 200, 503)
		for _, n := range w.Nodes() {
			if n != victim && w.Clock()-revoked > followed {
				w.expect("revoked beside one that is cut off", n, w.bad[2], 401)
				w.expect("beside one that is cut off", n, w.good, 200)
			}
		}
	}
	w.expect("cut off for longer", victim, w.bad[2], 503)
	w.expect("cut off for longer", victim, w.good, 503)
	w.Heal()
	w.Rest(2 * followed)
	w.expect("back", victim, w.bad[2], 401)
	w.expect("back", victim, w.good, 200)
}

// sleep freezes a node. When it wakes up, its table is old: it must not go by it.
func (w *keyring) sleep(victim, other *Node) {
	victim.Freeze()
	w.Rest(time.Second)
	w.revoke(other, w.bad[3])
	w.Rest(stale + time.Second)
	victim.Wake()
	w.expect("just awake", victim, w.bad[3], 401, 503, 0)
	w.Rest(2 * followed)
	w.expect("awake", victim, w.bad[3], 401)
	w.expect("awake", victim, w.good, 200)
}
