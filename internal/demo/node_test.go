package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/adminclient"
	"github.com/headgate/headgate/tests/yardstick"
)

// A played node is a process that does nothing, with the answers of another in front.
type played struct {
	*node
	busy   atomic.Bool
	lodges atomic.Bool // it hosts the room
	leader string
	got    atomic.Int64 // requests of visitors
	site   *httptest.Server
}

// playNodes makes nodes n1, n2, … that are started, and looked at until the test ends.
func playNodes(t *testing.T, n int) ([]*played, *room) {
	t.Helper()
	folder := t.TempDir()
	sleeper := filepath.Join(folder, "sleeper")
	if err := os.WriteFile(sleeper, []byte("#!/bin/sh\nexec sleep 60\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c, failed := &room{}, make(chan error, 1)
	var all []*played
	for i := range n {
		p := &played{leader: "n1"}
		name := fmt.Sprintf("n%d", i+1)
		admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rooms := "[]"
			if p.lodges.Load() {
				rooms = `["pond"]`
			}
			switch {
			case p.busy.Load():
				w.WriteHeader(503)
			case r.URL.Path == "/v1/cluster": // of others it may have heard what is over
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"leader":%q,"nodes":[{"name":"other","rooms":["pond"]},{"name":%q,"rooms":%s}]}`,
					p.leader, name, rooms)
			}
		}))
		p.site = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p.got.Add(1)
			fmt.Fprint(w, r.Header.Get(nodeHeader), " ", r.Host)
		}))
		p.node = newNode(name, name, sleeper, folder, failed)
		p.admin, p.about = &adminclient.Client{URL: admin.URL}, "/v1/cluster"
		p.visitors = strings.TrimPrefix(p.site.URL, "http://")
		t.Cleanup(func() { p.kill(); admin.Close(); p.site.Close() })
		if err := p.launch(); err != nil {
			t.Fatal(err)
		}
		all, c.nodes = append(all, p), append(c.nodes, p.node)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, n)
	for _, p := range all {
		go func() {
			for again := true; again; again = rest(ctx, lookEvery) {
				p.look(ctx)
			}
			ended <- ctx.Err()
		}()
	}
	t.Cleanup(func() {
		stop()
		for range all {
			<-ended
		}
	})
	return all, c
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	t.Helper()
	yardstick.Await(t, what, holds)
}

func TestNodesAreLookedAt(t *testing.T) {
	all, c := playNodes(t, 3)
	eventually(t, "all are up", func() bool { return c.count(up) == 3 })
	if c.host() != nil || c.whole() || !c.quorate() {
		t.Error("somebody hosts the room by what another says")
	}
	all[1].lodges.Store(true)
	eventually(t, "n2 hosts, n1 leads", func() bool {
		return c.host() == all[1].node && c.leader() == "n1" && c.whole()
	})
	all[1].busy.Store(true)
	eventually(t, "nobody hosts", func() bool { return c.host() == nil })
	all[1].busy.Store(false)
	eventually(t, "n2 hosts again", func() bool { return c.host() == all[1].node })
	all[2].busy.Store(true)
	eventually(t, "n3 is not ready", func() bool { return all[2].stands() == starting })
	if c.whole() || !c.quorate() {
		t.Error("a room without n3 is whole, or two are not enough")
	}
	if err := all[0].kill(); err != nil || c.leader() != "" { // n2 has not heard of it
		t.Errorf("%v; leader %q though it is killed", err, c.leader())
	}
	life := all[1].life
	if err := all[1].kill(); err != nil {
		t.Fatal(err)
	}
	all[1].saw(life, func() { t.Error("an answer of an earlier life counts") })
	if all[1].stands() != down || c.host() != nil || c.quorate() {
		t.Errorf("n2 is killed and stands %d, host %v", all[1].stands(), c.host())
	}
}

// TestBalancer: requests go to the nodes that are up in turn, and none twice.
func TestBalancer(t *testing.T) {
	all, c := playNodes(t, 3)
	eventually(t, "all are up", func() bool { return c.count(up) == 3 })
	ask := func(method string) (string, error) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://shop.example/x", nil)
		if err != nil {
			return "", err
		}
		r.Header.Set(nodeHeader, "n9")
		r.Host = "" // the one in the URL
		resp, err := c.RoundTrip(r)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b := make([]byte, 100)
		n, _ := resp.Body.Read(b)
		return string(b[:n]), nil
	}
	met := map[string]int{}
	many := func(n int) {
		clear(met)
		for range n {
			who, err := ask("GET")
			if err != nil {
				t.Fatal(err)
			}
			met[who]++
		}
	}
	const n1, n2, n3 = "n1 shop.example", "n2 shop.example", "n3 shop.example"
	if many(9); met[n1] != 3 || met[n2] != 3 || met[n3] != 3 {
		t.Errorf("met %v, want each three times", met)
	}
	all[0].busy.Store(true)
	eventually(t, "n1 is not ready", func() bool { return all[0].stands() == starting })
	all[1].site.Close() // and nobody has noticed yet
	if many(6); met[n3] != 6 {
		t.Errorf("met %v, want n3 alone", met)
	}
	if err := all[2].kill(); err != nil {
		t.Fatal(err)
	}
	before := all[2].got.Load()
	if _, err := ask("GET"); err == nil || all[2].got.Load() != before {
		t.Errorf("%v: somebody answers though n3 is killed", err)
	}
	all[1].kill()
	if _, err := ask("GET"); !errors.Is(err, errNobody) {
		t.Errorf("%v, want %v", err, errNobody)
	}
}

// TestFrontBeforeNodes: a browser meets another node with each click, under one name.
func TestFrontBeforeNodes(t *testing.T) {
	_, c := playNodes(t, 2)
	eventually(t, "all are up", func() bool { return c.count(up) == 2 })
	f, err := openFront("127.0.0.1:0", false, c)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	host := strings.Trim(strings.TrimPrefix(f.URL, "http://"), "/")
	met := map[string]bool{}
	for range 2 {
		_, body := get(t, "GET", f.URL, nodeHeader, "n9")
		met[body] = true
	}
	if !met["n1 "+host] || !met["n2 "+host] {
		t.Errorf("met %v, want n1 and n2 as %s", met, host)
	}
}

// TestARequestIsSentOnce: a node that hangs up may have done what it was asked.
func TestARequestIsSentOnce(t *testing.T) {
	all, c := playNodes(t, 2)
	eventually(t, "all are up", func() bool { return c.count(up) == 2 })
	for _, p := range all {
		p.site.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			p.got.Add(1)
			panic(http.ErrAbortHandler)
		})
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://shop.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.RoundTrip(r); err == nil || all[0].got.Load()+all[1].got.Load() != 1 {
		t.Errorf("%v, asked %d and %d times", err, all[0].got.Load(), all[1].got.Load())
	}
}

// TestClusterKeys: 1, 2, 3 kill a node or start it again, k kills the host.
func TestClusterKeys(t *testing.T) {
	all, c := playNodes(t, 3)
	d := &clustered{demo: &demo{judge: newJudge(), failed: make(chan error, 1), begun: time.Now()}, room: c}
	all[2].lodges.Store(true)
	eventually(t, "the room is whole", c.whole)
	d.key(t.Context(), '1')
	if c.count(down) != 0 {
		t.Error("a key kills before the room is open")
	}
	d.opened = time.Now()
	d.key(t.Context(), '4')
	d.key(t.Context(), 'u')
	if c.count(up) != 3 {
		t.Error("a key that means nothing does something")
	}
	d.key(t.Context(), '1')
	d.key(t.Context(), 'k')
	if all[0].stands() != down || all[2].stands() != down || all[1].stands() != up {
		t.Errorf("%d %d %d, want n2 alone to be up", all[0].stands(), all[1].stands(), all[2].stands())
	}
	if d.key(t.Context(), 'k'); all[1].stands() != up || d.note != "nobody hosts the room just now" {
		t.Errorf("n2 stands %d, note %q", all[1].stands(), d.note)
	}
	if d.key(t.Context(), '1'); all[0].stands() == down || d.note != "" {
		t.Errorf("n1 is not started again, or the note %q stays", d.note)
	}
	eventually(t, "n1 is back", func() bool { return all[0].stands() == up })
	s := &scene{Now: time.Now(), Shop: report{Here: 7, By: map[string]int{"n1": 5}}}
	d.show(s)
	all[1].lodges.Store(true)
	eventually(t, "n2 hosts", func() bool { return c.host() == all[1].node })
	now := &scene{Now: time.Now()}
	d.show(now)
	if s.Up || !now.Up || !now.Nodes[1].Hosts || now.Nodes[1].Leads || s.State.Active != 7 ||
		s.Nodes[0].LetIn != 5 || s.Nodes[2].Stands != down || now.News != nil {
		t.Errorf("%+v, then %+v", s, now)
	}
	var told []string
	for _, n := range s.News {
		told = append(told, n.text)
	}
	const want = "n1 is killed, n3 is killed, the host of the room, n1 is started again"
	if got := strings.Join(told, ", "); got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	k := d.judge.finding().Kills
	if len(k) != 2 || k[0].who != "n1" || k[1].who != "n3, the host" {
		t.Errorf("kills %+v", k)
	}
	select {
	case err := <-c.nodes[0].failed:
		t.Errorf("an end that was meant is told: %v", err)
	case err := <-d.failed:
		t.Error(err)
	default:
	}
}
