package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/loopback"
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

// within waits for something for so long, and says how long it took.
func within(t *testing.T, most time.Duration, what string, ok func() bool) {
	t.Helper()
	begin := time.Now()
	eventually(t, what, ok)
	took := time.Since(begin)
	t.Logf("%s after %v", what, took.Round(time.Millisecond))
	if took > most {
		t.Errorf("%s after %v, and not within %v", what, took, most)
	}
}

// What is pushed is there before anybody asks again, and what was missed once somebody has asked, on
// a busy machine too.
const pushed, found = shareEvery - time.Second, 3 * shareEvery

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

// shows tells whether a data centre has a message and a limit in force by live changes.
func (p *process) shows(message, limit string) func() bool {
	return func() bool {
		m := p.pairs("shop")
		return m["message"] == message && m["total_active_users"] == limit &&
			(limit == "" || fmt.Sprint(p.status("shop").TotalActiveUsers) == limit)
	}
}

func (p *process) unchanged() bool { return p.live("shop") == nil }

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
	keys, revision, err := loadKeys(t.Context(), sjc.s.store, keysName)
	if err != nil {
		t.Fatal(err)
	}
	for id := range byte(2) {
		keys = append(keys, keyRecord{ID: id + 2, Key: bytes.Repeat([]byte{id}, 32), Made: time.Now()})
	}
	b, err := json.Marshal(keys)
	if err == nil {
		_, err = sjc.s.store.CompareAndSwap(t.Context(), keysName, revision, b)
	}
	if err != nil {
		t.Fatal(err)
	}
	sjc.s.durable.tellMade()
	within(t, pushed, "known to lhr", func() bool {
		return slices.Equal(lhr.keys(), []string{"lhr-1", "sjc-3", "sjc-2", "sjc-1"})
	})
	if err := sjc.s.durable.forgetKey(2); err != nil {
		t.Fatal(err)
	}
	within(t, pushed, "forgotten by lhr", func() bool {
		return slices.Equal(lhr.keys(), []string{"lhr-1", "sjc-3", "sjc-1"})
	})
	if err := lhr.s.durable.forgetKey(3); !errors.Is(err, api.ErrNoKey) {
		t.Errorf("a key of another data centre: %v", err)
	}
	b, err = lhr.s.ownShare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if said, err := parseShare(b, "lhr"); err != nil || len(said.Keys) != 1 {
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
	_, revision, err := sjc.s.loadLive(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(liveRecord{Version: 1 << 20, Site: "sjc",
		Pairs: map[string]string{"message": strings.Repeat("x", mostShare)}})
	if err == nil {
		_, err = sjc.s.store.CompareAndSwap(t.Context(), liveKey("shop"), revision, b)
	}
	if err != nil {
		t.Fatal(err)
	}
	sjc.s.durable.tellMade()
	within(t, 20*time.Second, "refused", func() bool {
		return strings.Contains(sjc.log.String(), "sealing keys and live changes are too many")
	})
	value, _, err := lhr.s.loadLive(t.Context(), "shop")
	if err != nil || len(value) > 1000 {
		t.Errorf("lhr has %d bytes, %v", len(value), err)
	}
}

// A site is as much of a data centre as keeps its live changes.
func site(t *testing.T, name, room string) *Server {
	t.Helper()
	cfg, err := config.Parse("t", []byte("rooms:\n  - "+room))
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{log: slog.New(slog.DiscardHandler), store: &store.Memory{}, durable: &durable{
		node:  headgate.EngineConfig{Datacenters: &headgate.Datacenters{Own: name}},
		about: api.Cluster{Datacenter: name},
	}}
	s.set.Store(&roomSet{cfg: cfg, gates: []*gate{{file: cfg.Rooms[0], now: cfg.Rooms[0]}}})
	return s
}

const siteRoom = "{name: shop, origin: 'http://127.0.0.1:1', total_active_users: 9, new_users_per_minute: 9}"

// says keeps a message as the live change, "" for none.
func (s *Server) says(t *testing.T, message string) (undo func() error) {
	t.Helper()
	g := *s.set.Load().gates[0]
	g.live = nil
	if message != "" {
		g.live = &api.Live{Pairs: map[string]string{"message": message}, By: "a test"}
	}
	undo, err := s.keep(t.Context(), &g)
	if err != nil {
		t.Fatal(err)
	}
	return undo
}

// message is what is in force by what the store says.
func (s *Server) message(t *testing.T) string {
	t.Helper()
	rec, file := s.version(t), &s.set.Load().gates[0].file
	print, err := file.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	now, err := config.Amend(file, rec.Pairs)
	if err != nil || rec.Fingerprint != print {
		return ""
	}
	return now.Message
}

func (s *Server) version(t *testing.T) (r liveRecord) {
	t.Helper()
	value, _, err := s.loadLive(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	r, _ = s.readLive(s.set.Load().gates[0], value)
	return r
}

// Changes, removals and changes that were taken back, at any of three data centres, while
// what they say to each other is lost, late or repeated: nothing goes back to an older
// version, and all agree when all have heard of all.
func TestDataCentresAgreeOnLiveChanges(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		// The file of each is its own: so are the fingerprints.
		sites := []*Server{
			site(t, "del", siteRoom), site(t, "lhr", strings.Replace(siteRoom, ":1'", ":2'", 1)),
			site(t, "sjc", strings.Replace(siteRoom, "name", "title: Shop, name", 1)),
		}
		var said [][]sharedLive
		say := func(s *Server) {
			live, err := s.ownLive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			said = append(said, live)
		}
		hear := func(s *Server, live []sharedLive) {
			before := s.version(t)
			for i := range live {
				if err := s.adopt(t.Context(), &live[i]); err != nil {
					t.Fatal(err)
				}
			}
			if after := s.version(t); before.after(&after) {
				t.Fatalf("seed %d: %s went back from %d to %d", seed, s.durable.about.Datacenter,
					before.Version, after.Version)
			}
		}
		last := ""
		for step := range 40 {
			s := sites[rng.IntN(len(sites))]
			switch rng.IntN(6) {
			case 0:
				last = fmt.Sprint("message ", step)
				s.says(t, last)
			case 1:
				s.says(t, "")
			case 2:
				if err := s.says(t, "taken back")(); err != nil {
					t.Fatal(err)
				}
				if got := s.message(t); got == "taken back" {
					t.Fatalf("seed %d: %q was taken back, and is in force", seed, got)
				}
			case 3:
				say(s)
			default:
				if len(said) > 0 {
					hear(s, said[rng.IntN(len(said))])
				}
			}
		}
		for range 2 {
			for _, s := range sites {
				said = nil
				say(s)
				for _, to := range sites {
					hear(to, said[0])
				}
			}
		}
		want := sites[0].message(t)
		for _, s := range sites {
			if got := s.message(t); got != want || got == "taken back" {
				t.Fatalf("seed %d: %s says %q, and del says %q", seed, s.durable.about.Datacenter, got, want)
			}
		}
	}
}

// A change that was made while a data centre was alone becomes that of all.
func TestAChangeFromBeforeThereWereOthers(t *testing.T) {
	t.Parallel()
	lhr, sjc := site(t, "lhr", siteRoom), site(t, "sjc", siteRoom)
	others := lhr.durable.node.Datacenters
	lhr.durable.node.Datacenters = nil
	lhr.says(t, "before")
	value, _, err := lhr.loadLive(t.Context(), "shop")
	if err != nil || strings.Contains(string(value), "version") {
		t.Fatalf("%s %v", value, err)
	}
	lhr.durable.node.Datacenters = others
	tell := func(from, to *Server) {
		live, err := from.ownLive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range live {
			if err := to.adopt(t.Context(), &live[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	tell(lhr, sjc)
	if sjc.message(t) != "before" || lhr.message(t) != "before" {
		t.Errorf("sjc says %q, lhr %q", sjc.message(t), lhr.message(t))
	}
	sjc.says(t, "")
	tell(sjc, lhr)
	if got := lhr.message(t); got != "" {
		t.Errorf("lhr says %q", got)
	}
	// A node that was not told of the others keeps the version all the same.
	before := lhr.version(t).Version
	lhr.durable.node.Datacenters = nil
	lhr.says(t, "of a worker")
	if got := lhr.version(t); got.Version != before+1 || got.Site != "lhr" {
		t.Errorf("%+v after version %d", got, before)
	}
	// One that is of another file is not in force here, and is kept from the others.
	del := site(t, "del", siteRoom)
	del.durable.node.Datacenters = nil
	del.says(t, "of an old file")
	del.durable.node.Datacenters = others
	file := site(t, "del", strings.Replace(siteRoom, "name", "title: New, name", 1))
	del.set.Store(file.set.Load())
	if live, err := del.ownLive(t.Context()); err != nil || len(live) > 0 || del.message(t) != "" {
		t.Errorf("%+v %v, del says %q", live, err, del.message(t))
	}
	if err := del.says(t, "new")(); err != nil {
		t.Fatal(err)
	}
	if got := del.version(t); len(got.Pairs) > 0 || got.Version != 2 {
		t.Errorf("taken back to %+v", got)
	}
}

// A raced store is written by another just before a write.
type raced struct {
	store.Store
	race func()
}

func (r *raced) CompareAndSwap(
	ctx context.Context, key string, revision uint64, value []byte,
) (uint64, error) {
	if race := r.race; race != nil {
		r.race = nil
		race()
	}
	return r.Store.CompareAndSwap(ctx, key, revision, value)
}

// A change that comes at the moment when another's is kept is the later one.
func TestAChangeInARaceComesAfterTheOther(t *testing.T) {
	t.Parallel()
	lhr := site(t, "lhr", siteRoom)
	r := &raced{Store: lhr.store}
	lhr.store = r
	theirs := &sharedLive{Room: "shop", Version: 7, Site: "sjc",
		Pairs: map[string]string{"message": "theirs"}}
	r.race = func() {
		if err := lhr.adopt(t.Context(), theirs); err != nil {
			t.Error(err)
		}
	}
	lhr.says(t, "mine")
	if got := lhr.version(t); got.Version != 8 || lhr.message(t) != "mine" {
		t.Errorf("lhr says %q, version %d", lhr.message(t), got.Version)
	}
	r.race = func() { lhr.says(t, "ours") }
	theirs.Version = 9
	if err := lhr.adopt(t.Context(), theirs); err != nil || lhr.version(t).Site != "sjc" {
		t.Errorf("%v, %+v: sjc sorts after lhr", err, lhr.version(t))
	}
}

// What was taken back leaves alone what another has written since.
func TestWhatWasReplacedIsNotTakenBack(t *testing.T) {
	t.Parallel()
	lhr := site(t, "lhr", siteRoom)
	undo := lhr.says(t, "mine")
	err := lhr.adopt(t.Context(), &sharedLive{Room: "shop", Version: 7, Site: "sjc",
		Pairs: map[string]string{"message": "theirs"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := undo(); err != nil || lhr.message(t) != "theirs" {
		t.Errorf("%v, lhr says %q", err, lhr.message(t))
	}
	for _, x := range []sharedLive{
		{Room: "shop", Version: 7, Site: "del"}, {Room: "shop", Version: 6, Site: "zrh"},
		{Room: "tea", Version: 9, Site: "sjc"}, {Room: "shop", Version: 7, Site: "sjc"},
	} {
		if err := lhr.adopt(t.Context(), &x); err != nil || lhr.message(t) != "theirs" {
			t.Errorf("%+v: %v, lhr says %q", x, err, lhr.message(t))
		}
	}
	// What does not fit the file here is kept, for its version, and is not in force.
	x := sharedLive{Room: "shop", Version: 8, Site: "sjc",
		Pairs: map[string]string{"colour": "red", "message": "x"}}
	if err := lhr.adopt(t.Context(), &x); err != nil || lhr.message(t) != "" || lhr.version(t).Version != 8 {
		t.Errorf("%v, lhr says %q, version %d", err, lhr.message(t), lhr.version(t).Version)
	}
}

func TestDamagedSharesAreRefused(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte("k"), 32)
	good := func(change func(*share)) []byte {
		x := &share{Site: "lhr", Keys: []keyRecord{{ID: 1, Key: secret}}, Live: []sharedLive{
			{Room: "shop", Version: 1, Site: "lhr", Pairs: map[string]string{"message": "x"}},
			{Room: "tea", Version: 9, Site: "zrh"},
		}}
		change(x)
		b, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if _, err := parseShare(good(func(*share) {}), "lhr"); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"nothing":          nil,
		"half":             good(func(*share) {})[:99],
		"more behind it":   append(good(func(*share) {}), '{'),
		"null":             []byte("null"),
		"unknown":          bytes.Replace(good(func(*share) {}), []byte("{"), []byte(`{"more":1,`), 1),
		"another site":     good(func(x *share) { x.Site = "sjc" }),
		"no key":           good(func(x *share) { x.Keys = nil }),
		"key 0":            good(func(x *share) { x.Keys[0].ID = 0 }),
		"short key":        good(func(x *share) { x.Keys[0].Key = secret[:31] }),
		"key twice":        good(func(x *share) { x.Keys = append(x.Keys, x.Keys[0]) }),
		"65 keys":          good(func(x *share) { x.Keys = manyKeys(65) }),
		"key of a word":    bytes.Replace(good(func(*share) {}), []byte(`"id":1`), []byte(`"id":"1"`), 1),
		"no version":       good(func(x *share) { x.Live[0].Version = 0 }),
		"no later version": good(func(x *share) { x.Live[0].Version = mostVersion + 1 }),
		"room twice":       good(func(x *share) { x.Live[1].Room = "shop" }),
		"no site":          good(func(x *share) { x.Live[1].Site = "" }),
		"long change": good(func(x *share) {
			x.Live[0].Pairs["message"] = strings.Repeat("x", mostPairs)
		}),
		"too long": good(func(x *share) {
			for i := range 9 {
				x.Live = append(x.Live, sharedLive{Room: fmt.Sprint(i), Version: 1, Site: "lhr",
					Pairs: map[string]string{"message": strings.Repeat("x", mostPairs-100)}})
			}
		}),
	} {
		x, err := parseShare(b, "lhr")
		if err == nil {
			t.Errorf("%s: %+v is taken", name, x.Live)
		} else if strings.Contains(err.Error(), "kkk") || strings.Contains(err.Error(), "a2tr") {
			t.Errorf("%s: the error tells a key", name)
		}
	}
}

func manyKeys(n int) (all []keyRecord) {
	for i := range n {
		all = append(all, keyRecord{ID: byte(i + 1), Key: bytes.Repeat([]byte{1}, 32)})
	}
	return all
}
