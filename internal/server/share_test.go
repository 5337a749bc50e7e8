package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/store"
)

// freePorts finds the first of n ports in a row that are free, and not among those that
// the system gives to connections.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for range 1000 {
		first, ok := 12000+rand.IntN(18000), true
		for port := first; port < first+n && ok; port++ {
			ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if ok = err == nil; ok {
				ln.Close()
			}
		}
		if ok {
			return first
		}
	}
	t.Fatal("no free ports")
	return 0
}

// centres runs real servers, each a data centre of one node. The first is the home.
func centres(t *testing.T, file string, names ...string) map[string]*process {
	t.Helper()
	all := map[string]*process{}
	text, dir, origin := "", t.TempDir(), named(t, "origin")
	for _, name := range names {
		port := freePorts(t, 3)
		plan := join.Plan{Datacenter: name, Store: []string{"n1"},
			Peers: map[string]string{"n1": fmt.Sprintf("127.0.0.1:%d", port)}}
		if _, err := join.Init(filepath.Join(dir, name), plan, time.Now()); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("    %s: {url: '127.0.0.1:%d', ca: %s/%s/ca.pem}\n", name, port+2, dir, name)
	}
	for _, name := range names {
		p := &process{t: t, dir: filepath.Join(dir, name), origin: origin}
		p.file = filepath.Join(p.dir, "headgate.yaml")
		p.head = fmt.Sprintf("drain_delay: 0s\ncluster:\n  join: n1.join\n  home: %s\n  datacenters:\n%s", names[0], text)
		p.write(file)
		all[name] = p
	}
	for _, name := range names {
		all[name].start()
		t.Cleanup(func() { all[name].stop() })
	}
	return all
}

// within waits for something for so long, and says how long it took.
func within(t *testing.T, most time.Duration, what string, ok func() bool) {
	t.Helper()
	begin := time.Now()
	eventually(t, what, ok)
	if took := time.Since(begin); took > most {
		t.Errorf("%s after %v, and not within %v", what, took, most)
	}
}

// both waits until two data centres have each other's keys.
func both(t *testing.T, a, b *process) {
	t.Helper()
	eventually(t, "acquainted", func() bool { return len(a.keys()) >= 2 && len(b.keys()) >= 2 })
}

// keys are the numbers of the keys that a process opens with, by data centre.
func (p *process) keys() (all []string) {
	p.t.Helper()
	list, err := p.s.durable.listKeys()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, k := range list {
		all = append(all, fmt.Sprintf("%s-%d", k.Datacenter, k.Key))
	}
	return all
}

// pairs are the live changes in force.
func (p *process) pairs(room string) map[string]string {
	if live := p.live(room); live != nil {
		return live.Pairs
	}
	return nil
}

const twoSites = "rooms:\n  - {name: shop, origin: ORIGIN, total_active_users: 9, new_users_per_minute: 100}\n"

func TestALiveChangeReachesTheOtherDataCentre(t *testing.T) {
	t.Parallel()
	all := centres(t, twoSites, "sjc", "lhr")
	sjc, lhr := all["sjc"], all["lhr"]
	both(t, sjc, lhr)
	is := func(p *process, message, limit string) func() bool {
		return func() bool {
			m := p.pairs("shop")
			return m["message"] == message && m["total_active_users"] == limit &&
				(limit == "" || fmt.Sprint(p.status("shop").TotalActiveUsers) == limit)
		}
	}
	sjc.change("shop", map[string]string{"message": "from sjc"})
	within(t, 2*time.Second, "in force at lhr", is(lhr, "from sjc", ""))
	lhr.change("shop", map[string]string{"total_active_users": "7"}) // waits for the home
	within(t, 2*time.Second, "in force at sjc", is(sjc, "from sjc", "7"))
	if by := sjc.live("shop").By; by != "a test" {
		t.Errorf("changed by %q", by)
	}
	sjc.change("shop", map[string]string{"total_active_users": "9", "message": ""})
	within(t, 2*time.Second, "gone at lhr", func() bool { return lhr.live("shop") == nil })
	sjc.change("shop", map[string]string{"message": "again"})
	within(t, 2*time.Second, "in force again at lhr", is(lhr, "again", ""))
	lhr.reload()
	within(t, 2*time.Second, "dropped at sjc", func() bool { return sjc.live("shop") == nil })

	// One that was down finds what it has missed, and brings nothing old back.
	sjc.change("shop", map[string]string{"message": "before"})
	within(t, 2*time.Second, "in force at lhr", is(lhr, "before", ""))
	lhr.stop()
	sjc.change("shop", map[string]string{"message": "meanwhile"})
	lhr.start()
	within(t, 6*time.Second, "found by lhr", is(lhr, "meanwhile", ""))
	lhr.stop()
	sjc.change("shop", map[string]string{"message": ""})
	lhr.start()
	within(t, 6*time.Second, "found by lhr", func() bool { return lhr.live("shop") == nil })
	if live := sjc.live("shop"); live != nil {
		t.Errorf("%+v came back", live)
	}
}

var _ = []any{context.Background, json.Marshal, io.EOF, maps.Keys[map[int]int], http.MethodGet, os.Args, slices.Sort[[]int], strings.Cut, store.ErrConflict}
