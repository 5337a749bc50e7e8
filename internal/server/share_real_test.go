//go:build real

package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/store"
)

// centres runs real servers, each a data centre of one node. The first is the home.
func centres(t *testing.T, file string, names ...string) map[string]*process {
	t.Helper()
	all := map[string]*process{}
	text, dir, origin := "", t.TempDir(), named(t, "origin")
	for _, name := range names {
		port := loopback.Port(t, 3)
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
		p.head = fmt.Sprintf("drain_delay: 0s\ncluster:\n  join: n1.join\n  home: %s\n  datacenters:\n%s",
			names[0], text)
		p.write(file)
		all[name] = p
	}
	for _, name := range names { // none is ready before another one is there
		all[name].begin()
		t.Cleanup(func() { all[name].stop() })
	}
	for _, name := range names {
		all[name].await()
	}
	return all
}

// What is pushed is there before anybody asks again, and what was missed once somebody has asked, on
// a busy machine too.
const pushed, found = 4 * time.Second, 15 * time.Second

const twoSites = "rooms:\n" +
	"  - {name: shop, origin: ORIGIN, total_active_users: 9, new_users_per_minute: 100}\n"

// Two data centres have each other's keys and live changes.
func TestTwoDataCentresShare(t *testing.T) {
	t.Parallel()
	all := centres(t, twoSites, "sjc", "lhr")
	sjc, lhr := all["sjc"], all["lhr"]
	within(t, 15*time.Second, "acquainted", func() bool {
		return len(sjc.keys()) >= 2 && len(lhr.keys()) >= 2
	})
	for _, step := range []struct {
		name string
		does func(t *testing.T, sjc, lhr *process)
	}{
		{"each tells whose the slots are", slotsAreTold},
		{"a change reaches the other", changesCross},
		{"changes at once become one", changesCollide},
		{"cookies of the other open", cookiesRoam},
		{"a forgotten key is forgotten", keysAreForgotten},
		{"one that was down hears of all", missedIsFound},
		{"what is too long is not said", tooLongIsKept},
	} {
		ok := t.Run(step.name, func(t *testing.T) {
			sjc.t, lhr.t = t, t
			step.does(t, sjc, lhr)
		})
		if sjc.t, lhr.t = t, t; !ok {
			return // the rest would be slow, and say nothing
		}
	}
}

// slotsAreTold sends visitors to both: then each data centre says what its worker holds, and the
// parts of what it has are what it has.
func slotsAreTold(t *testing.T, sjc, lhr *process) {
	for _, p := range []*process{sjc, lhr} {
		for range 2 {
			eventually(t, "inside", func() bool { return get(t, p.visitors, "").StatusCode == 200 })
		}
	}
	last := ""
	defer func() {
		if t.Failed() {
			t.Log(last)
		}
	}()
	for _, p := range []*process{sjc, lhr} {
		eventually(t, "the parts add up", func() bool {
			var st headgate.Status
			last = get(t, p.operators+"/v1/rooms/shop", "").body
			if err := json.Unmarshal([]byte(last), &st); err != nil {
				t.Fatal(err)
			}
			sum, held := st.Lent.Inside+st.Lent.Called+st.Lent.Free, int64(-1)
			for _, w := range st.Lent.Workers {
				sum += w.Held
			}
			for _, s := range st.Datacenters.Sites {
				if s.Name == st.Datacenters.Own {
					held = s.Held
				}
			}
			return st.Lent.Inside >= 2 && sum == held && len(st.Lent.Workers) == 1 &&
				st.Lent.Workers[0].Name == "n1"
		})
	}
}

func changesCross(t *testing.T, sjc, lhr *process) {
	sjc.change("shop", map[string]string{"message": "from sjc"})
	within(t, pushed, "in force at lhr", lhr.shows("from sjc", ""))
	lhr.change("shop", map[string]string{"total_active_users": "7"}) // waits for the home
	within(t, pushed, "in force at sjc", sjc.shows("from sjc", "7"))
	if by := sjc.live("shop").By; by != "a test" {
		t.Errorf("changed by %q", by)
	}
	sjc.change("shop", map[string]string{"total_active_users": "9", "message": ""})
	within(t, pushed, "gone at lhr", lhr.unchanged)
	sjc.change("shop", map[string]string{"message": "again"})
	within(t, pushed, "in force again at lhr", lhr.shows("again", ""))
	lhr.reload()
	within(t, pushed, "dropped at sjc", sjc.unchanged)
}

func changesCollide(t *testing.T, sjc, lhr *process) {
	for i := range 10 {
		var wg sync.WaitGroup
		for name, p := range map[string]*process{"sjc": sjc, "lhr": lhr} {
			wg.Go(func() {
				pairs := map[string]string{"message": fmt.Sprint(name, i)}
				if _, err := p.s.Change(t.Context(), "shop", pairs, name); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		within(t, pushed, "the same", func() bool {
			a, b := sjc.pairs("shop")["message"], lhr.pairs("shop")["message"]
			return a == b && strings.HasSuffix(a, fmt.Sprint(i))
		})
	}
}

// The keys of both have the same number.
func cookiesRoam(t *testing.T, sjc, lhr *process) {
	forged := func(p *process) int64 {
		return p.s.set.Load().find("shop").room.Status().Totals.Forged
	}
	got, want := slices.Concat(lhr.keys(), sjc.keys()), []string{"lhr-1", "sjc-1", "sjc-1", "lhr-1"}
	if !slices.Equal(got, want) {
		t.Fatalf("keys %v", got)
	}
	for range 2 {
		at := get(t, sjc.visitors+"/", "")
		at = get(t, lhr.visitors+"/", at.cookie)
		get(t, sjc.visitors+"/", at.cookie)
		sjc, lhr = lhr, sjc
	}
	if forged(sjc)+forged(lhr) > 0 {
		t.Error("a cookie was not opened")
	}
	get(t, lhr.visitors+"/", "__cfwaitingroom_shop="+strings.Repeat("A", 160))
	if forged(lhr) != 1 {
		t.Error("what is forged is not counted: the test sees nothing")
	}
}

// Of three keys of sjc, the second neither seals nor is about to.
func keysAreForgotten(t *testing.T, sjc, lhr *process) {
	var keys []node.KeyRecord
	b, revision, err := sjc.s.node.Records.Load(t.Context(), "keys")
	if err == nil {
		err = json.Unmarshal(b, &keys)
	}
	if err != nil {
		t.Fatal(err)
	}
	for id := range byte(2) {
		keys = append(keys, node.KeyRecord{ID: id + 2, Key: bytes.Repeat([]byte{id}, 32), Made: time.Now()})
	}
	b, err = json.Marshal(keys)
	if err == nil {
		_, err = sjc.s.node.Records.CompareAndSwap(t.Context(), "keys", revision, b)
	}
	if err != nil {
		t.Fatal(err)
	}
	sjc.s.node.TellDatacenters()
	within(t, pushed, "known to lhr", func() bool {
		return slices.Equal(lhr.keys(), []string{"lhr-1", "sjc-3", "sjc-2", "sjc-1"})
	})
	if err := sjc.s.node.ForgetKey(2); err != nil {
		t.Fatal(err)
	}
	within(t, pushed, "forgotten by lhr", func() bool {
		return slices.Equal(lhr.keys(), []string{"lhr-1", "sjc-3", "sjc-1"})
	})
	if err := lhr.s.node.ForgetKey(3); !errors.Is(err, api.ErrNoKey) {
		t.Errorf("a key of another data centre: %v", err)
	}
	b, err = store.NewBus(sjc.s.node.Engine.Cross("lhr")).Ask(t.Context(), "lhr.share", nil)
	if err != nil {
		t.Fatal(err)
	}
	var said struct{ Keys []node.KeyRecord }
	if err := json.Unmarshal(b, &said); err != nil || len(said.Keys) != 1 {
		t.Errorf("lhr lets others have %d keys, %v", len(said.Keys), err)
	}
	for _, p := range []*process{sjc, lhr} {
		for _, k := range keys {
			text, err := json.Marshal(k.Key)
			if err != nil || strings.Contains(p.log.String(), strings.Trim(string(text), `"`)) {
				t.Error("a log tells a key")
			}
		}
	}
}

func missedIsFound(t *testing.T, sjc, lhr *process) {
	sjc.change("shop", map[string]string{"message": "before"})
	within(t, pushed, "in force at lhr", lhr.shows("before", ""))
	lhr.stop()
	sjc.change("shop", map[string]string{"message": "meanwhile"})
	lhr.start()
	within(t, found, "found by lhr", lhr.shows("meanwhile", ""))
	lhr.stop()
	sjc.change("shop", map[string]string{"message": ""})
	lhr.start()
	within(t, found, "found by lhr", lhr.unchanged)
	if live := sjc.live("shop"); live != nil {
		t.Errorf("%+v came back", live)
	}
}

func tooLongIsKept(t *testing.T, sjc, lhr *process) {
	_, revision, err := sjc.s.node.Records.Load(t.Context(), "live.shop")
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{"version": 1 << 20, "site": "sjc",
		"pairs": map[string]string{"message": strings.Repeat("x", 512<<10)}})
	if err == nil {
		_, err = sjc.s.node.Records.CompareAndSwap(t.Context(), "live.shop", revision, b)
	}
	if err != nil {
		t.Fatal(err)
	}
	sjc.s.node.TellDatacenters()
	within(t, 20*time.Second, "refused", func() bool {
		return strings.Contains(sjc.log.String(), "sealing keys and live changes are too many")
	})
	value, _, err := lhr.s.node.Records.Load(t.Context(), "live.shop")
	if err != nil && !errors.Is(err, store.ErrNotFound) || len(value) > 1000 {
		t.Errorf("lhr has %d bytes, %v", len(value), err)
	}
}
