//go:build real

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/invite"
	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/status"
)

// centers runs real servers, each a data center of one node. The first is the home.
func centers(t *testing.T, file string, names ...string) map[string]*process {
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
	for _, name := range names { // none is ready before another one runs
		all[name].begin()
		t.Cleanup(func() { all[name].stop() })
	}
	for _, name := range names {
		all[name].await()
	}
	return all
}

// pushed is enough for an update that is sent at once, and found for a missed one that is found by
// the next poll, even on a busy machine.
const pushed, found = 4 * time.Second, 15 * time.Second

const twoSites = "rooms:\n" +
	"  - {name: shop, origin: ORIGIN, total_active_users: 9, new_users_per_minute: 100}\n"

// Two data centers have each other's keys and live changes.
func TestTwoDatacentersShare(t *testing.T) {
	t.Parallel()
	all := centers(t, twoSites, "sjc", "lhr")
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
			return // the rest would be slow and show nothing more
		}
	}
}

// slotsAreTold sends visitors to both data centers. Each then reports what its worker holds, and
// the parts add up.
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
			var st status.Room
			last = get(t, p.operators+"/v1/rooms/shop", "").body
			if err := json.Unmarshal([]byte(last), &st); err != nil {
				t.Fatal(err)
			}
			sum, held := st.Lent.Inside+st.Lent.Called+st.Lent.Free, int64(-1)
			for _, w := range st.Lent.Workers {
				sum += w.Held
			}
			for _, s := range st.Datacenters.Datacenters {
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

// The keys of both data centers have the same number.
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
	sjc.s.node.PublishToDatacenters()
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
		t.Errorf("a key of another data center: %v", err)
	}
	b, err = store.NewBus(sjc.s.node.Engine.Link("lhr")).Request(t.Context(), "lhr.share", nil)
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
	sjc.s.node.PublishToDatacenters()
	within(t, 20*time.Second, "refused", func() bool {
		return strings.Contains(sjc.log.String(), "sealing keys and live changes are too large")
	})
	value, _, err := lhr.s.node.Records.Load(t.Context(), "live.shop")
	if err != nil && !errors.Is(err, store.ErrNotFound) || len(value) > 1000 {
		t.Errorf("lhr has %d bytes, %v", len(value), err)
	}
}

const workersRoom = "rooms:\n" +
	"  - {name: shop, origin: ORIGIN, total_active_users: 9, new_users_per_minute: 100}\n"

// Finding 13 of the review: with a worker's certificate all records could be read and written,
// including the sealing keys. What a worker needs still works: its process serves the room, and a
// change of the room by its API is in force at the store node.
func TestWorkerCertificateReadsNoKeysAndNoLoans(t *testing.T) {
	t.Parallel()
	all := nodes(t, workersRoom, "n1", "w7")
	n1, w7 := all[0], all[1]
	thief := n1.thief("worker")
	secret := []string{"keys", "keys.lhr", "revoked", "counter.shop", "limits.kept.n1.0", "nothing"}
	for _, key := range secret {
		for _, op := range []string{"load", "swap"} {
			msg, err := json.Marshal(map[string]string{"op": op, "name": key})
			if err != nil {
				t.Fatal(err)
			}
			got := asked(t, thief, "records", string(msg)+"\nmine")
			if got != `{"code":"denied"}`+"\n" {
				t.Errorf("%s %s: answered %q", op, key, got)
			}
		}
	}
	for _, key := range []string{"limits.chart", "home"} {
		got := asked(t, thief, "records", `{"op":"swap","name":"`+key+`","seq":1}`+"\n{}")
		if !strings.HasPrefix(got, `{"code":"denied"`) {
			t.Errorf("%s written: %q", key, got)
		}
	}
	for _, msg := range []string{"", "\n", "{}\n", "null\n", "[]\n", `{"op":"keys","name":""}` + "\n",
		`{"op":"load","name":"live.` + strings.Repeat("x", 800) + `"}` + "\n",
		strings.Repeat("x", 2000) + "\n"} {
		if got := asked(t, thief, "records", msg); !strings.HasPrefix(got, `{"code":"`) {
			t.Errorf("%.40q: answered %.80q", msg, got)
		}
		if got := asked(t, thief, "logs", msg); !strings.HasPrefix(got, `{"code":"`) {
			t.Errorf("log %.40q: answered %.80q", msg, got)
		}
	}
	got := asked(t, thief, "logs", `{"op":"append","name":"HEADGATE","id":"x"}`+"\nmine")
	if !strings.HasPrefix(got, `{"code":"not found"`) {
		t.Errorf("a log that nobody has made: %q", got)
	}

	for _, p := range all { // the real worker works as before
		if res := get(t, p.visitors+"/", "text/html"); res.StatusCode != 200 {
			t.Errorf("a visitor got %d", res.StatusCode)
		}
	}
	w7.change("shop", map[string]string{"total_active_users": "7"})
	eventually(t, "in force at the store node", func() bool {
		return n1.status("shop").TotalActiveUsers == 7
	})
	if !slices.Equal(n1.keys(), w7.keys()) {
		t.Errorf("the worker has the keys %v, the store node %v", w7.keys(), n1.keys())
	}
	for path, body := range map[string]string{"/v1/keys/rotate": "{}",
		"/v1/cluster/revoke": `{"serial":"00112233445566778899"}`} {
		w7.said("POST", path, body, 409, "store node")
	}
	w7.said("DELETE", "/v1/keys/1", "", 409, "store node")
	if c, err := w7.s.Cluster(t.Context()); err != nil || len(c.Nodes) != 2 || c.Problem != "" {
		t.Errorf("the worker sees %+v %v", c, err)
	}
}

// A worker serves a room of invitations, hears at once of those that are revoked, and revokes some itself.
func TestAWorkerHearsOfRevokedInvitations(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "codes.key")
	if err := os.WriteFile(secret, []byte(strings.Repeat("5ecret", 6)), 0o600); err != nil {
		t.Fatal(err)
	}
	all := nodes(t, strings.Replace(workersRoom, "}", ", identity: {codes: {secret_file: "+secret+"}, "+
		"required: true, sign_in: \"/invited?why={reason}\"}}", 1), "n1", "w7")
	for i, from := range all {
		batch := i + 3
		codes, err := from.s.MakeCodes("shop", invite.Code{Batch: batch, Serial: 1, Uses: 1,
			End: invite.EndAt(time.Now()) + 5}, 1)
		if err != nil {
			t.Fatal(err)
		}
		from.written(func() error {
			_, _, err := from.s.ReviseCodes(t.Context(), "shop", []string{fmt.Sprint(batch)}, nil, "a test")
			return err
		})
		for _, at := range all {
			within(t, pushed, "revoked", func() bool {
				status, to := at.invited().open("/?invitation=" + codes[0])
				return status == 303 && to == "/invited?why=revoked"
			})
		}
	}
}

// A revoked worker is disconnected, receives no new sealing key, and stays out after a restart of
// the store node. Other workers are not affected.
func TestRevokedWorkerGetsNoNewKeys(t *testing.T) {
	t.Parallel()
	all := nodes(t, workersRoom, "n1", "w7")
	n1, w7 := all[0], all[1]
	other := n1.thief("worker")
	serial, _, err := n1.joinFile("w7").Serial()
	if err != nil {
		t.Fatal(err)
	}
	before := n1.keys()
	own, _, err := n1.joinFile("n1").Serial()
	if err != nil {
		t.Fatal(err)
	}
	n1.said("POST", "/v1/cluster/revoke", `{"serial":"`+own+`"}`, 409, "another store node")
	n1.said("POST", "/v1/cluster/revoke", `{"serial":"w7"}`, 409, "serial")
	n1.said("POST", "/v1/cluster/revoke", `{"node":"w7"}`, 422, "")
	body := `{"serial":"` + strings.ToUpper(serial) + `","node":"w7"}`
	n1.said("POST", "/v1/cluster/revoke", body, 200, `"key":2`)
	eventually(t, "cut off", func() bool { return !w7.s.node.Config.NATS.IsConnected() })
	if got := n1.keys(); len(got) != len(before)+1 {
		t.Errorf("the store node has the keys %v, had %v", got, before)
	}
	if got := asked(t, other, "sealing", "keys"); strings.Count(got, `"id"`) != len(before)+1 {
		t.Errorf("another worker is told %d keys", strings.Count(got, `"id"`))
	}
	if err := w7.s.node.RereadKeys(); err == nil {
		t.Error("the revoked worker reads the keys")
	}
	c, err := n1.s.Cluster(t.Context())
	if err != nil || len(c.Revoked) != 1 || c.Revoked[0].Serial != serial || c.Revoked[0].Node != "w7" ||
		c.Revoked[0].By == "" || c.Revoked[0].At.IsZero() {
		t.Errorf("status shows %+v %v", c.Revoked, err)
	}
	eventually(t, "copied to the data folder", func() bool {
		b, err := os.ReadFile(n1.s.node.Folder.Path("revoked"))
		return err == nil && strings.Count(string(b), `"serial":`) == 1 && strings.Contains(string(b), serial)
	})
	n1.restart()
	f := n1.joinFile("w7")
	config, err := f.TLS()
	if err != nil {
		t.Fatal(err)
	}
	said := &syncBuffer{}
	conn, err := embedded.Connect(t.Context(), embedded.Remote{Name: "w7", Servers: []string{f.Peers["n1"]},
		TLS: config, Log: slog.New(slog.NewTextHandler(said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	eventually(t, "refused", func() bool { return conn.LastError() != nil })
	if conn.IsConnected() || errors.Is(conn.LastError(), context.DeadlineExceeded) {
		t.Errorf("after a restart it is connected, or not refused: %v", conn.LastError())
	}
}

// Each node reports the metrics of the whole room: one of them hosts its counter, and the others
// know its figures.
func TestMetricsOfManyNodes(t *testing.T) {
	t.Parallel()
	all := nodes(t, threeInside, "n1", "n2", "n3")
	for i := range 5 {
		get(t, all[i%3].visitors+"/", "")
	}
	for _, p := range all {
		eventually(t, "known", func() bool {
			return p.metric(`headgate_active_users{room="shop"}`) == 3 &&
				p.metric(`headgate_waiting_users{room="shop"}`) == 2 &&
				p.metric("headgate_cluster_nodes") == 3
		})
		if bound := p.metric(`headgate_active_users_bound{room="shop"}`); bound != 3 {
			t.Errorf("bound %g", bound)
		}
		off := p.metric("headgate_clock_offset_seconds")
		if math.Abs(off) > 5 { // the same clock, on a busy machine
			t.Errorf("the clock is %g s off", off)
		}
		ends := p.metric("headgate_cluster_certificate_expires_timestamp_seconds")
		if left := time.Until(time.Unix(int64(ends), 0)); left < 360*24*time.Hour {
			t.Errorf("the certificate ends in %v", left)
		}
	}
	eventually(t, "counted by one", func() bool {
		n := 0.0
		for _, p := range all {
			hosted := p.metric(`headgate_room_hosted{datacenter="sjc",room="shop"}`)
			age := p.metric(`headgate_room_state_age_seconds{room="shop"}`)
			if n += hosted; hosted == 1 && age != 0 || !(age >= 0 && age < 10) {
				return false
			}
		}
		return n == 1
	})
}

// A worker may send requests to another data center, through a store node, about shared limits
// only: other messages between data centers contain their sealing keys.
func TestWorkerGetsNoKeysOfAnotherDataCenter(t *testing.T) {
	t.Parallel()
	all := centers(t, twoSites, "sjc", "lhr")
	thief := all["lhr"].thief("worker")
	pass := func(name string) string {
		return asked(t, thief, "global.pass.n1", `{"name":"`+name+`","msg":null}`)
	}
	eventually(t, "the home has a chart", func() bool { return len(pass("global.chart")) > 100 })
	others := []string{"share", "where", "take", "left", "limits.chart", ".share", "", "lhr.share"}
	for _, name := range others {
		if got := pass(name); got != "" {
			t.Errorf("%q: answered %.60q", name, got)
		}
	}
}

// A lower limit ends no session. It is in force once enough visitors have left, and nobody is
// admitted before that.
func TestLoweringALimitDrainsByItself(t *testing.T) {
	p := run(t, "rooms:\n  - {name: shop, origin: ORIGIN, total_active_users: 4, "+
		"new_users_per_minute: 100, session_duration: 2s}\n")
	var inside []string
	for range 4 {
		r := get(t, p.visitors+"/", "")
		if r.StatusCode != 200 {
			t.Fatalf("%d", r.StatusCode)
		}
		inside = append(inside, r.cookie)
	}
	waits := get(t, p.visitors+"/", "").cookie
	p.change("shop", map[string]string{"total_active_users": "2"})
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	visit := func(cookies []string) {
		for i, c := range cookies {
			r := get(t, p.visitors+"/", c)
			if r.StatusCode != 200 {
				t.Fatal("somebody inside was sent away")
			}
			cookies[i] = r.cookie
		}
	}
	for range 12 { // 3 s: all four keep sending requests
		<-tick.C
		visit(inside)
		if get(t, p.visitors+"/", waits).StatusCode == 200 {
			t.Fatal("let in above the new limit")
		}
	}
	if st := p.status("shop"); st.ActiveUsers != 4 || st.TotalActiveUsers != 2 {
		t.Errorf("%d of %d, want 4 of 2", st.ActiveUsers, st.TotalActiveUsers)
	}
	inside = inside[:2] // two leave: the limit is reached, and nobody may follow
	for range 14 {
		<-tick.C
		visit(inside)
		if get(t, p.visitors+"/", waits).StatusCode == 200 {
			t.Fatal("let in as a third")
		}
	}
	if n := p.status("shop").ActiveUsers; n != 2 {
		t.Errorf("%d inside, want 2", n)
	}
	inside = inside[:1] // one more leaves: now exactly one is admitted
	eventually(t, "let in", func() bool {
		visit(inside)
		r := get(t, p.visitors+"/", waits)
		return r.StatusCode == 200
	})
	if n := p.status("shop").ActiveUsers; n > 2 {
		t.Errorf("%d inside, want 2", n)
	}
}
