package world

import (
	"bytes"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

// A work is a challenge in an answer.
type work struct {
	Parameters struct {
		Cost                   int
		KeyPrefix, Nonce, Salt string
	}
	Signature string
}

// solve returns the header of a solution.
func (x *work) solve(t *testing.T) string {
	t.Helper()
	if x == nil {
		t.Fatal("no challenge")
	}
	p := &x.Parameters
	nonce, err1 := hex.DecodeString(p.Nonce)
	salt, err2 := hex.DecodeString(p.Salt)
	prefix, err3 := hex.DecodeString(p.KeyPrefix)
	for n := uint32(0); ; n++ {
		password := string(binary.BigEndian.AppendUint32(slices.Clip(nonce), n))
		key, err := pbkdf2.Key(sha256.New, password, salt, p.Cost, 32)
		if err != nil || err1 != nil || err2 != nil || err3 != nil {
			t.Fatal(err, err1, err2, err3)
		}
		if bytes.HasPrefix(key, prefix) {
			return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"challenge":{"signature":%q},`+
				`"solution":{"counter":%d,"derivedKey":"%x"}}`, x.Signature, n, key))
		}
	}
}

// A newcomer keeps its cookie, and may ask any node.
type newcomer struct {
	w      *World
	path   string // below /
	cookie string
}

// A told is what a newcomer is told of its place.
type told struct {
	Position, Number int64
	Waiting          int64
	Ticket, Notice   string
	Challenge        *work
}

// asks asks a node: the first time for a page, and then as the waiting page does.
func (v *newcomer) asks(node, solution string) (x told, ok bool) {
	v.w.T.Helper()
	r, err := http.NewRequest("GET", "http://"+v.w.Node(node).Public+"/"+v.path, nil)
	if err != nil {
		v.w.T.Fatal(err)
	}
	r.Header.Set("Accept", "application/json")
	if v.cookie != "" {
		r.Header.Set("Cookie", v.cookie)
		r.Header.Set("Headgate-Poll", "1")
		r.Header.Set("Headgate-Solution", solution)
	}
	answer, err := v.w.client.Do(r)
	if err != nil {
		return x, false
	}
	defer answer.Body.Close()
	for _, c := range answer.Cookies() {
		v.cookie = c.Name + "=" + c.Value
	}
	all := struct{ Headgate *told }{&x}
	return x, json.NewDecoder(answer.Body).Decode(&all) == nil && x.Ticket != ""
}

// TestAChallengeOverTwoNodes: a challenge of one node is solved at another, on which it is the same.
// The node that hosts the line is killed: what was not solved is no place at the next host either, and
// what is solved there has the place of its arrival.
func TestAChallengeOverTwoNodes(t *testing.T) {
	for seed := range uint64(3) {
		virtual.Test(t, func(t *testing.T) { testAChallengeOverTwoNodes(t, seed) })
	}
}

// challengedNodes starts nodes of two rooms in which nobody is called, and returns the name of the host of
// shop. The other room is at /other.
func challengedNodes(w *World, names []string) (host string) {
	const keys = "origin: \"http://127.0.0.1:9000\", total_active_users: 9, new_users_per_minute: 600, " +
		"queue_all: true, challenge: {kind: work}}\n"
	for _, name := range names {
		w.Add(name, "rooms:\n  - {name: shop, "+keys+"  - {name: other, path: /other, "+keys).Start()
	}
	for _, n := range w.Nodes() {
		n.Ready()
	}
	for host == "" {
		w.Rest(time.Second)
		for _, n := range w.Nodes() {
			if x, ok := autoOf(w, n); ok && x.Hosted {
				host = n.Name
			}
		}
	}
	return host
}

// placed returns a function that returns what a visitor with a place was told, and fails without one.
func placed(t *testing.T) func(told, bool) told {
	return func(x told, ok bool) told {
		t.Helper()
		if !ok {
			t.Fatalf("no place: %+v", x)
		}
		return x
	}
}

func testAChallengeOverTwoNodes(t *testing.T, seed uint64) {
	names := []string{"n1", "n2", "n3"}
	w := New(t, Config{Seed: 25 + seed, Servers: names})
	defer w.Close()
	host := challengedNodes(w, names)
	others := w.Others(host)
	a, b := others[0], others[1]
	must := placed(t)
	waiting := func(node string, want int64) {
		t.Helper()
		if x, ok := autoOf(w, w.Node(node)); !ok || x.Waiting != want {
			t.Errorf("seed %d: %d wait, want %d", seed, x.Waiting, want)
		}
	}

	first := &newcomer{w: w}
	must(first.asks(a, ""))
	if x := must(first.asks(b, "")); x.Challenge != nil {
		t.Fatalf("a proof while nobody else waits: %+v", x)
	}
	solves := &newcomer{w: w}
	x := must(solves.asks(a, ""))
	solution, ticket, cookie := x.Challenge.solve(t), x.Ticket, solves.cookie
	if y := must(solves.asks(b, "")); y.Challenge == nil || y.Challenge.Signature != x.Challenge.Signature {
		t.Fatalf("another challenge at another node: %+v", y)
	}
	for _, node := range []string{b, a, host} { // the answers are lost: the same cookie at each node
		solves.cookie = cookie
		y := must(solves.asks(node, solution))
		if y.Challenge != nil || y.Ticket != ticket || y.Position != 2 {
			t.Errorf("at %s: %+v", node, y)
		}
	}
	w.Rest(time.Second)
	waiting(host, 2)

	early, never := &newcomer{w: w}, &newcomer{w: w}
	x, y := must(early.asks(a, "")), must(never.asks(a, ""))
	w.Rest(time.Duration(seed) * 150 * time.Millisecond) // in the record, or not yet
	w.Node(host).Crash()
	for { // until there is a new host
		w.Rest(500 * time.Millisecond)
		z, ok := first.asks(b, "")
		if ok && z.Position > 0 {
			break
		}
	}
	must(solves.asks(a, ""))
	late := &newcomer{w: w}
	z := must(late.asks(b, ""))
	if z = must(late.asks(a, z.Challenge.solve(t))); z.Challenge != nil {
		t.Fatalf("%+v", z)
	}
	if n := must(never.asks(b, "")); n.Challenge == nil || n.Challenge.Signature != y.Challenge.Signature {
		t.Errorf("seed %d: a place for nothing: %+v", seed, n)
	}
	e := must(early.asks(b, x.Challenge.solve(t)))
	if e.Challenge != nil || e.Ticket != x.Ticket || e.Position >= z.Position || e.Number >= z.Number {
		t.Errorf("seed %d: %+v behind %+v", seed, e, z)
	}
	notices := map[string]bool{}
	for range 30 {
		w.Rest(time.Second)
		for _, v := range []*newcomer{first, solves, early, late} {
			if s := must(v.asks(a, "")); s.Challenge != nil || s.Notice != "" {
				t.Fatalf("seed %d: %+v", seed, s)
			}
		}
		s := must(never.asks(b, ""))
		notices[s.Notice] = true
	}
	if !notices["new_challenge"] || !notices["unsolved"] {
		t.Errorf("seed %d: %v", seed, notices)
	}
	for _, n := range others {
		if s, ok := autoOf(w, w.Node(n)); ok && s.Hosted {
			waiting(n, 5)
		}
	}
}
