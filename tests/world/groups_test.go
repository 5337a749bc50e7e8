package world

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

// A member of a group, or of none, asks any node for a page until it is in.
type member struct {
	name, group string
	cookie      string
	in          time.Duration // 0: not yet
}

// asks reports whether the visitor got the page of the origin.
func (v *member) asks(w *World, n *Node) bool {
	r, err := http.NewRequest(http.MethodGet, "http://"+n.Public+"/", nil)
	if err != nil {
		w.T.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	r.Header.Set("Cookie", v.cookie)
	r.Header.Set("X-Tier", "gold")          // of nobody whom the site does not know
	r.Header.Set("X-Forwarded-For", v.ip()) // of networks of their own
	if v.group != "" {
		r.Header.Set("X-Member", v.name)
		r.Header.Set("X-Tier", "friends, "+v.group)
	}
	answer, err := w.client.Do(r)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	for _, c := range answer.Cookies() {
		v.cookie = c.Name + "=" + c.Value
	}
	text, err := io.ReadAll(answer.Body)
	return err == nil && string(text) == "page"
}

func (v *member) ip() string { return fmt.Sprintf("192.0.%d.1", v.name[len(v.name)-1]) }

// Times of the sale, from the beginning of the world.
const (
	prequeueAt = time.Minute
	goldAt     = 2 * time.Minute
	silverAt   = 4 * time.Minute
	saleAt     = 5 * time.Minute
	saleStay   = 20 * time.Second
	saleUsers  = 3
)

// TestMembersComeInFirst: the groups of an event come in at their times, in order and within the limit, at
// three nodes, while the host of the room is killed in the time of a group, and at the start.
func TestMembersComeInFirst(t *testing.T) {
	kills := []time.Duration{goldAt + 30*time.Second, saleAt}
	if testing.Short() {
		kills = kills[:1]
	}
	for seed, kill := range kills {
		virtual.Test(t, func(t *testing.T) { testMembersComeInFirst(t, uint64(seed), kill) })
	}
}

func testMembersComeInFirst(t *testing.T, seed uint64, kill time.Duration) {
	names := []string{"n1", "n2", "n3"}
	w := New(t, Config{Seed: 81 + seed, Servers: names})
	at := func(d time.Duration) string { return w.Began.Add(d).UTC().Format(time.RFC3339Nano) }
	for _, name := range names {
		w.Add(name, fmt.Sprintf("trusted_proxies: [127.0.0.0/8]\nrooms:\n  - name: shop\n    origin: \"http://127.0.0.1:9000\"\n"+
			"    total_active_users: %d\n    new_users_per_minute: 600\n    session_duration: %v\n"+
			"    identity: {header: x-member, group_header: x-tier, groups: [{name: gold, share: 40}, {name: silver}]}\n"+
			"    events:\n      - {name: sale, prequeue_start: %s, start: %s, end: %s, shuffle: true,\n"+
			"         early: [{group: gold, before: %v}, {group: silver, before: %v}]}\n", saleUsers, saleStay,
			at(prequeueAt), at(saleAt), at(time.Hour), saleAt-goldAt, saleAt-silverAt))
	}
	defer w.Close()
	defer serve(w, "127.0.0.1:9000", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "page") })()
	for _, n := range w.Nodes() {
		n.Start()
	}
	for _, n := range w.Nodes() {
		n.Ready()
	}
	w.Rest(prequeueAt + time.Second - w.Clock())
	var all []*member
	for i := range 18 {
		group := []string{"", "gold", "", "gold", "silver", ""}[i%6]
		all = append(all, &member{name: fmt.Sprintf("%s %c", group, 'a'+i), group: group})
	}
	rng := rand.New(rand.NewPCG(seed, 81))
	for killed := false; w.Clock() < saleAt+4*time.Minute; w.Rest(250 * time.Millisecond) {
		if !killed && w.Clock() >= kill {
			killed = true
			for _, n := range w.Nodes() {
				if x, ok := autoOf(w, n); ok && x.Hosted {
					n.Crash()
				}
			}
		}
		for _, v := range all {
			if n := w.Node(names[rng.IntN(3)]); v.in == 0 && n.Runs() && v.asks(w, n) {
				v.in = w.Clock()
			}
		}
	}
	judgeMembers(t, kill, all)
}

// judgeMembers compares when visitors came in with the times of their groups, the order and the limit.
func judgeMembers(t *testing.T, kill time.Duration, all []*member) {
	from := map[string]time.Duration{"gold": goldAt, "silver": silverAt, "": saleAt}
	last := map[string]time.Duration{}
	var in []time.Duration
	for _, v := range all {
		switch {
		case v.in == 0:
			t.Errorf("killed at %v: %q never came in", kill, v.name)
		case v.in < from[v.group]:
			t.Errorf("killed at %v: %q came in at %v", kill, v.name, v.in)
		case v.group != "" && v.in < last[v.group]:
			t.Errorf("killed at %v: %q came in at %v, before one who came earlier", kill, v.name, v.in)
		}
		last[v.group] = v.in
		in = append(in, v.in)
	}
	slices.Sort(in)
	for i := range in[saleUsers:] {
		if in[i+saleUsers]-in[i] < saleStay-time.Second {
			t.Errorf("killed at %v: more than %d inside: %v", kill, saleUsers, in)
			break
		}
	}
	if gold := slices.IndexFunc(all, func(v *member) bool { return v.group == "gold" }); all[gold].in > goldAt+15*time.Second {
		t.Errorf("killed at %v: the first one of the group came in at %v", kill, all[gold].in)
	}
}
