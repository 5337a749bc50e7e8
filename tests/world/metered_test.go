package world

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

// Streams of a model server, and what each may cost at most: what is sent, and max_tokens.
const (
	streams   = 10_000
	fewer     = 300 // with the race detector
	consumers = 20
	sentCost  = 20
)

// A stream is one call to the model server.
type stream struct {
	client   string
	most     int64 // what it may cost
	reported int64 // what the model server says that it cost
	ended    bool  // the client has seen its end
	at       string
}

// serveModel serves an origin that streams as many tokens as it is asked for at most, and then says in the
// format of OpenAI how many there were.
func serveModel(w *World) (stop func()) {
	return serve(w, "127.0.0.1:9000", func(rw http.ResponseWriter, r *http.Request) {
		var asked struct {
			MaxTokens int64  `json:"max_tokens"`
			Prompt    string `json:"prompt"`
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			rw.WriteHeader(http.StatusBadRequest)
			return
		}
		rng := rand.New(rand.NewPCG(uint64(asked.MaxTokens), uint64(len(asked.Prompt))))
		tokens := 1 + rng.Int64N(asked.MaxTokens)
		rw.Header().Set("Content-Type", "text/event-stream")
		for range min(tokens, 5) {
			fmt.Fprint(rw, "data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}],\"usage\":null}\n\n")
			_ = http.NewResponseController(rw).Flush()
			time.Sleep(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
		}
		fmt.Fprintf(rw, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n",
			len(asked.Prompt), tokens)
	})
}

// call makes one call at a node.
func (s *stream) call(w *World, at *Node, maxTokens int64, prompt string) {
	s.at, s.most = at.Name, sentCost+maxTokens
	body := fmt.Sprintf(`{"stream": true, "prompt": %q, "max_tokens": %d}`, prompt, maxTokens)
	r, err := http.NewRequest(http.MethodPost, "http://"+at.Public+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		w.T.Error(err)
		return
	}
	r.Header.Set("X-Client", s.client)
	answer, err := w.client.Do(r)
	if err != nil {
		return
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	s.ended = err == nil && bytes.HasSuffix(text, []byte("data: [DONE]\n\n"))
	if _, usage, ok := strings.Cut(string(text), `"prompt_tokens":`); ok {
		var in, out int64
		if _, err := fmt.Sscanf(usage, `%d,"completion_tokens":%d`, &in, &out); err == nil {
			s.reported = in + out
		}
	}
}

// TestStreamsSettleToTheToken: of ten thousand streams over three nodes, each costs what the model server has
// reported, also after a node was killed. Those that die with it cost at most what was estimated, once,
// however often a node had to ask.
func TestStreamsSettleToTheToken(t *testing.T) {
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		virtual.Test(t, func(t *testing.T) { testStreamsSettle(t, seed) })
	}
}

func testStreamsSettle(t *testing.T, seed uint64) {
	count := streams / 9
	if testing.Short() {
		count = fewer / 9
	}
	w := New(t, Config{Seed: 260 + seed, Servers: []string{"n1", "n2", "n3"}})
	for _, name := range []string{"n1", "n2", "n3"} {
		w.Add(name, "limits:\n  - {name: tokens, algorithm: fixed_window, amount: 10000000, align: day, unit: units, "+
			"key: [\"header:x-client\"], cost: 20, cost_field: max_tokens, settle: {input: 1, output: 1}, "+
			"on_unreachable: deny}\n"+
			"rooms:\n  - {name: api, origin: \"http://127.0.0.1:9000\", suspended: true, total_active_users: 200, "+
			"new_users_per_minute: 200, limits: [tokens]}\n")
	}
	defer w.Close()
	defer serveModel(w)()
	for _, n := range w.Nodes() {
		n.Start()
	}
	for _, n := range w.Nodes() {
		n.Ready()
	}
	w.Rest(20 * time.Second) // until each shard has a standby
	victim := w.Nodes()[seed%3]
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, phase := range []string{"before", "during", "after"} {
		all := make([]stream, count)
		var wg sync.WaitGroup
		for i := range all {
			if phase == "during" && i == count/2 {
				victim.Crash()
			}
			all[i].client = fmt.Sprint(phase, i%consumers)
			var up []*Node
			for _, n := range w.Nodes() {
				if n.Runs() {
					up = append(up, n)
				}
			}
			at, most := up[rng.IntN(len(up))], 1+rng.Int64N(500)
			prompt := strings.Repeat("x", rng.IntN(sentCost))
			wg.Go(func() { all[i].call(w, at, most, prompt) })
			w.Rest(2 * time.Millisecond)
		}
		wg.Wait()
		w.Rest(10 * time.Second) // until another process has taken over
		judgeStreams(t, w, w.Node(w.Others(victim.Name)[0]), all, phase, victim.Name)
	}
}

// judgeStreams compares what each client has used with what its streams have cost.
func judgeStreams(t *testing.T, w *World, n *Node, all []stream, phase, victim string) {
	t.Helper()
	want, unsure := map[string]int64{}, map[string]int64{}
	ended, other := 0, 0
	for i := range all {
		switch s := &all[i]; {
		case s.ended:
			ended++
			want[s.client] += s.reported
		case phase != "during":
			t.Errorf("%s: a stream at %s broke off: %+v", phase, s.at, s)
		default:
			other++
			unsure[s.client] += s.most
		}
	}
	total, cost := int64(0), int64(0)
	for client, least := range want {
		text, err := w.Ask(n, "GET", "/v1/limits/tokens/keys/"+client, n.Token(), "")
		var now struct{ Remaining int64 }
		if err != nil || json.Unmarshal([]byte(text), &now) != nil {
			t.Fatal(text, err)
		}
		used := 10_000_000 - now.Remaining
		total, cost = total+used, cost+least
		if used < least || used > least+unsure[client] {
			t.Errorf("%s has used %d, its streams cost %d, and those that broke off %d at most",
				client, used, least, unsure[client])
		}
	}
	t.Logf("%s: %d streams ended, %d did not; they cost %d tokens, and %d are used", phase, ended, other, cost, total)
	if ended < len(all)/3 {
		t.Errorf("%s: %d of %d ended", phase, ended, len(all))
	}
}
