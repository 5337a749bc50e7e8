package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/datadir"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/store"
)

// site returns a data center that can store its live changes.
func site(t *testing.T, name, room string) *dataCenter {
	t.Helper()
	cfg, err := config.Parse("t", []byte("rooms:\n  - "+room))
	if err != nil {
		t.Fatal(err)
	}
	n := &node.Node{Records: &store.Memory{}, About: api.Cluster{Datacenter: name},
		Config: headgate.EngineConfig{Datacenters: &headgate.Datacenters{Own: name}}}
	s := &dataCenter{node: n, room: &cfg.Rooms[0]}
	s.changes = NewRoomChanges(n, slog.New(slog.DiscardHandler))
	s.Sharing = NewSharing(n, s.changes, nil, func() []*config.Room { return []*config.Room{s.room} },
		slog.New(slog.DiscardHandler))
	return s
}

type dataCenter struct {
	*Sharing
	node    *node.Node
	changes *RoomChanges
	room    *config.Room
}

const siteRoom = "{name: shop, origin: 'http://127.0.0.1:1', total_active_users: 9, new_users_per_minute: 9}"

// says stores a message as the live change, or no change for "".
func (s *dataCenter) says(t *testing.T, message string) (undo func() error) {
	t.Helper()
	var live *api.Live
	if message != "" {
		live = &api.Live{Pairs: map[string]string{"message": message}, By: "a test"}
	}
	undo, err := s.changes.Keep(t.Context(), s.room, live)
	if err != nil {
		t.Fatal(err)
	}
	return undo
}

// message returns the message in force, from the store.
func (s *dataCenter) message(t *testing.T) string {
	t.Helper()
	rec, file := s.version(t), s.room
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

func (s *dataCenter) version(t *testing.T) (r roomChange) {
	t.Helper()
	value, _, err := s.changes.doc("shop").Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, _ = s.changes.versioned(s.room, value)
	return r
}

// Three data centers change, remove and undo live changes, while their messages are lost, late or
// duplicated. No data center returns to an older version, and all agree when all have received
// everything.
func TestDatacentersAgreeOnLiveChanges(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		// Each data center has its own file, so the fingerprints differ.
		sites := []*dataCenter{
			site(t, "del", siteRoom), site(t, "lhr", strings.Replace(siteRoom, ":1'", ":2'", 1)),
			site(t, "sjc", strings.Replace(siteRoom, "name", "title: Shop, name", 1)),
		}
		var said [][]sharedRoom
		say := func(s *dataCenter) {
			live, err := s.own(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			said = append(said, live)
		}
		hear := func(s *dataCenter, live []sharedRoom) {
			before := s.version(t)
			for i := range live {
				if err := s.adopt(t.Context(), &live[i]); err != nil {
					t.Fatal(err)
				}
			}
			if after := s.version(t); before.after(&after) {
				t.Fatalf("seed %d: %s went back from %d to %d", seed, s.node.About.Datacenter,
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
				t.Fatalf("seed %d: %s says %q, and del says %q", seed, s.node.About.Datacenter, got, want)
			}
		}
	}
}

// A change that was made while a data center was alone becomes the change of all.
func TestAChangeFromBeforeThereWereOthers(t *testing.T) {
	t.Parallel()
	lhr, sjc := site(t, "lhr", siteRoom), site(t, "sjc", siteRoom)
	others := lhr.node.Config.Datacenters
	lhr.node.Config.Datacenters = nil
	lhr.says(t, "before")
	value, _, err := lhr.node.Records.Load(t.Context(), "live.shop")
	if err != nil || strings.Contains(string(value), "version") {
		t.Fatalf("%s %v", value, err)
	}
	lhr.node.Config.Datacenters = others
	tell := func(from, to *dataCenter) {
		live, err := from.own(t.Context())
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
	// A node that does not know of the others still keeps the version.
	before := lhr.version(t).Version
	lhr.node.Config.Datacenters = nil
	lhr.says(t, "of a worker")
	if got := lhr.version(t); got.Version != before+1 || got.Datacenter != "lhr" {
		t.Errorf("%+v after version %d", got, before)
	}
	// A change under another file is not in force here, and is not sent to the others.
	del := site(t, "del", siteRoom)
	del.node.Config.Datacenters = nil
	del.says(t, "of an old file")
	del.node.Config.Datacenters = others
	file := site(t, "del", strings.Replace(siteRoom, "name", "title: New, name", 1))
	del.room = file.room
	if live, err := del.own(t.Context()); err != nil || len(live) > 0 || del.message(t) != "" {
		t.Errorf("%+v %v, del says %q", live, err, del.message(t))
	}
	if err := del.says(t, "new")(); err != nil {
		t.Fatal(err)
	}
	if got := del.version(t); len(got.Pairs) > 0 || got.Version != 2 {
		t.Errorf("taken back to %+v", got)
	}
}

// In a raced store, another process writes just before each write.
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

// A change at the moment when another one is being stored becomes the later one.
func TestAChangeInARaceComesAfterTheOther(t *testing.T) {
	t.Parallel()
	lhr := site(t, "lhr", siteRoom)
	r := &raced{Store: lhr.node.Records}
	lhr.node.Records = r
	theirs := &sharedRoom{Room: "shop", Version: 7, Datacenter: "sjc",
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
	if err := lhr.adopt(t.Context(), theirs); err != nil || lhr.version(t).Datacenter != "sjc" {
		t.Errorf("%v, %+v: sjc sorts after lhr", err, lhr.version(t))
	}
}

// Undo does not change what another process has written since.
func TestWhatWasReplacedIsNotTakenBack(t *testing.T) {
	t.Parallel()
	lhr := site(t, "lhr", siteRoom)
	undo := lhr.says(t, "mine")
	err := lhr.adopt(t.Context(), &sharedRoom{Room: "shop", Version: 7, Datacenter: "sjc",
		Pairs: map[string]string{"message": "theirs"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := undo(); err != nil || lhr.message(t) != "theirs" {
		t.Errorf("%v, lhr says %q", err, lhr.message(t))
	}
	for _, x := range []sharedRoom{
		{Room: "shop", Version: 7, Datacenter: "del"}, {Room: "shop", Version: 6, Datacenter: "zrh"},
		{Room: "tea", Version: 9, Datacenter: "sjc"}, {Room: "shop", Version: 7, Datacenter: "sjc"},
	} {
		if err := lhr.adopt(t.Context(), &x); err != nil || lhr.message(t) != "theirs" {
			t.Errorf("%+v: %v, lhr says %q", x, err, lhr.message(t))
		}
	}
	// A change that does not fit the file here is stored, for its version, but not in force.
	x := sharedRoom{Room: "shop", Version: 8, Datacenter: "sjc",
		Pairs: map[string]string{"color": "red", "message": "x"}}
	if err := lhr.adopt(t.Context(), &x); err != nil || lhr.message(t) != "" || lhr.version(t).Version != 8 {
		t.Errorf("%v, lhr says %q, version %d", err, lhr.message(t), lhr.version(t).Version)
	}
}

func TestDamagedSharesAreRefused(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte("k"), 32)
	good := func(change func(*share)) []byte {
		x := &share{Datacenter: "lhr", Keys: []node.KeyRecord{{ID: 1, Key: secret}}, Live: []sharedRoom{
			{Room: "shop", Version: 1, Datacenter: "lhr", Pairs: map[string]string{"message": "x"}},
			{Room: "tea", Version: 9, Datacenter: "zrh"},
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
		"another site":     good(func(x *share) { x.Datacenter = "sjc" }),
		"no key":           good(func(x *share) { x.Keys = nil }),
		"key 0":            good(func(x *share) { x.Keys[0].ID = 0 }),
		"short key":        good(func(x *share) { x.Keys[0].Key = secret[:31] }),
		"key twice":        good(func(x *share) { x.Keys = append(x.Keys, x.Keys[0]) }),
		"65 keys":          good(func(x *share) { x.Keys = manyKeys(65) }),
		"key of a word":    bytes.Replace(good(func(*share) {}), []byte(`"id":1`), []byte(`"id":"1"`), 1),
		"no version":       good(func(x *share) { x.Live[0].Version = 0 }),
		"no later version": good(func(x *share) { x.Live[0].Version = mostVersion + 1 }),
		"room twice":       good(func(x *share) { x.Live[1].Room = "shop" }),
		"no site":          good(func(x *share) { x.Live[1].Datacenter = "" }),
		"long change": good(func(x *share) {
			x.Live[0].Pairs["message"] = strings.Repeat("x", mostPairs)
		}),
		"too long": good(func(x *share) {
			for i := range 9 {
				x.Live = append(x.Live, sharedRoom{Room: fmt.Sprint(i), Version: 1, Datacenter: "lhr",
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

func manyKeys(n int) (all []node.KeyRecord) {
	for i := range n {
		all = append(all, node.KeyRecord{ID: byte(i + 1), Key: bytes.Repeat([]byte{1}, 32)})
	}
	return all
}

// A share of another data center is rejected or valid, whatever its bytes are.
func FuzzShare(f *testing.F) {
	keys := []node.KeyRecord{{ID: 1, Key: make([]byte, 32), Made: time.Unix(1, 0)}}
	live := sharedRoom{Room: "shop", Version: 1, Datacenter: "lhr", Pairs: map[string]string{"message": "x"}}
	good, err := json.Marshal(share{Datacenter: "lhr", Keys: keys, Live: []sharedRoom{live}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"datacenter":"lhr","keys":[{"id":0}]}`))
	f.Add([]byte(`{"datacenter":"lhr","keys":null,"live":[null]}{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := parseShare(b, "lhr")
		if err != nil {
			return
		}
		if x.Datacenter != "lhr" || len(x.Keys) == 0 || len(x.Keys) > datadir.MaxKeys || len(b) > mostShare {
			t.Errorf("%q: taken as %+v", b, x)
		}
		for _, k := range x.Keys {
			if k.ID == 0 || len(k.Key) != len(datadir.SealingKey{}.Key) {
				t.Errorf("%q: key %d of %d bytes", b, k.ID, len(k.Key))
			}
		}
	})
}
