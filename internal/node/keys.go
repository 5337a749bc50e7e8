package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/checkout"
	"github.com/headgate/headgate/internal/datadir"
	"github.com/headgate/headgate/internal/store"
)

// Parameters of the keys of a cluster. Chosen: every node has read a key well before the first
// cookie that the key seals, even a node whose clock is some seconds ahead.
const (
	keysName   = "keys"
	keysWait   = 5 * time.Second
	keysEvery  = 5 * time.Second
	sealsAfter = 30 * time.Second
)

// sharedKeys keeps the keys in the store. All nodes read them every few seconds; a new key seals
// once all nodes certainly know it.
type sharedKeys struct {
	store store.Store
	now   func() time.Time

	mu   sync.Mutex
	read map[byte]time.Time // when this node first read a key; zero at its start
}

// A KeyRecord is the stored form of a key.
type KeyRecord struct {
	ID   byte      `json:"id"`
	Key  []byte    `json:"key"`
	Made time.Time `json:"made"`
}

// Keys returns the keys, the sealing one first. The first node of the cluster makes one.
func (k *sharedKeys) Keys() ([]datadir.SealingKey, error) {
	keys, err := k.load()
	if err == nil && len(keys) == 0 {
		return k.edit(func(keys []KeyRecord) ([]KeyRecord, error) {
			if len(keys) > 0 {
				return keys, nil
			}
			return addKey(keys, k.now()), nil
		})
	}
	return k.order(keys), err
}

// Rotate adds a new key and deletes those that are no longer needed.
func (k *sharedKeys) Rotate(now time.Time) ([]datadir.SealingKey, error) {
	return k.edit(func(keys []KeyRecord) ([]KeyRecord, error) { return addKey(keys, now), nil })
}

func (k *sharedKeys) load() ([]KeyRecord, error) {
	ctx, stop := context.WithTimeout(context.Background(), keysWait)
	defer stop()
	keys, _, err := keysDoc(k.store, keysName).Load(ctx)
	return keys, err
}

// keysOf returns the name of the copies of another data center's keys.
func keysOf(site string) string { return keysName + "." + site }

// keysDoc returns the document of the keys under a name.
func keysDoc(s store.Store, name string) *store.Doc[[]KeyRecord] {
	return &store.Doc[[]KeyRecord]{Store: s, Key: name, Decode: func(b []byte) (keys []KeyRecord, err error) {
		if err = json.Unmarshal(b, &keys); err == nil {
			err = CheckKeys(keys)
		}
		return keys, err
	}}
}

// CheckKeys rejects invalid keys.
func CheckKeys(keys []KeyRecord) error {
	seen := map[byte]bool{}
	for _, x := range keys {
		if x.ID == 0 || len(x.Key) != len(datadir.SealingKey{}.Key) || seen[x.ID] {
			return errors.New("a sealing key is damaged")
		}
		seen[x.ID] = true
	}
	if len(keys) > datadir.MaxKeys {
		return fmt.Errorf("%d sealing keys, and %d are the most", len(keys), datadir.MaxKeys)
	}
	return nil
}

// addKey returns the keys with a new one, without those that are no longer needed.
func addKey(keys []KeyRecord, now time.Time) []KeyRecord {
	next := KeyRecord{ID: 1, Key: make([]byte, len(datadir.SealingKey{}.Key)), Made: now.UTC()}
	rand.Read(next.Key)
	if n := len(keys); n > 0 { // oldest first
		next.ID = keys[n-1].ID
		if last := keys[n-1].Made; !next.Made.After(last) {
			next.Made = last.Add(time.Nanosecond) // the clock was set back
		}
		for used := true; used || next.ID == 0; {
			next.ID++
			used = slices.ContainsFunc(keys, func(x KeyRecord) bool { return x.ID == next.ID })
		}
	}
	for len(keys) >= datadir.MaxKeys || len(keys) > 1 && now.Sub(keys[1].Made) > datadir.KeepKeys {
		keys = keys[1:]
	}
	return append(slices.Clone(keys), next)
}

// Forget removes a key, and returns the others.
func (k *sharedKeys) Forget(id byte) ([]datadir.SealingKey, error) {
	return k.edit(func(keys []KeyRecord) ([]KeyRecord, error) {
		at := slices.IndexFunc(keys, func(x KeyRecord) bool { return x.ID == id })
		switch {
		case at < 0:
			return nil, datadir.ErrNoKey
		case at == len(keys)-1 || k.order(keys)[0].ID == id:
			return nil, datadir.ErrKeySeals
		}
		return slices.Delete(keys, at, at+1), nil
	})
}

// edit replaces the stored keys. If two nodes do so at once, one of them uses what the other wrote.
func (k *sharedKeys) edit(edit func([]KeyRecord) ([]KeyRecord, error)) ([]datadir.SealingKey, error) {
	ctx, stop := context.WithTimeout(context.Background(), keysWait)
	defer stop()
	var keys []KeyRecord
	lost := false // the write of another node won
	_, err := keysDoc(k.store, keysName).Edit(ctx, func(now *[]KeyRecord) (changed bool, err error) {
		if keys = *now; lost {
			return false, nil
		}
		lost = true
		keys, err = edit(keys)
		*now = keys
		return err == nil, err
	})
	if err != nil {
		return nil, err
	}
	return k.order(keys), nil
}

// order puts the sealing key first: the newest that all nodes know, or the only one.
func (k *sharedKeys) order(keys []KeyRecord) (all []datadir.SealingKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	start := k.read == nil
	if start {
		k.read = map[byte]time.Time{}
	}
	seals := 0
	for i, x := range keys {
		at, known := k.read[x.ID]
		if !known && !start { // by this node's clock: the clock of the key's maker may be wrong
			at = k.now()
		}
		k.read[x.ID] = at
		if now := k.now(); now.Sub(x.Made) >= sealsAfter && now.Sub(at) >= sealsAfter {
			seals = i
		}
		all = append(all, datadir.SealingKey{ID: x.ID, Key: [32]byte(x.Key), Made: x.Made})
	}
	slices.Reverse(all)
	if n := len(all); n > 0 {
		first := all[n-1-seals]
		all = append([]datadir.SealingKey{first}, slices.Delete(all, n-1-seals, n-seals)...)
	}
	return all
}

// ringOf returns the key ring of keys, the sealing one first, and of the keys of other data
// centers.
func ringOf(keys []datadir.SealingKey, others []siteKeys) headgate.SealingKeys {
	k := headgate.SealingKeys{Current: keys[0].ID, Keys: map[byte][32]byte{}}
	for _, x := range keys {
		k.Keys[x.ID] = x.Key
	}
	for _, site := range others {
		m := map[byte][32]byte{}
		for _, x := range site.keys {
			m[x.ID] = [32]byte(x.Key)
		}
		k.Foreign = append(k.Foreign, m)
	}
	return k
}

// keysOfOthers reads the copies of the keys of the other data centers. Keys that cannot be read now
// stay as they were. The caller holds ring, or no other goroutine runs yet.
func (k *Node) keysOfOthers() []siteKeys {
	if !k.Linked() {
		return nil
	}
	ctx, stop := context.WithTimeout(context.Background(), keysWait)
	defer stop()
	var all []siteKeys
	for i, name := range k.Config.Datacenters.Others {
		keys, _, err := keysDoc(k.keysFrom(), keysOf(name)).Load(ctx)
		if err != nil {
			k.log.Warn("sealing keys of another data center not read", "datacenter", name, "error", err)
			if k.others != nil {
				keys = k.others[i].keys
			}
		}
		all = append(all, siteKeys{name, keys})
	}
	k.others = all
	return all
}

// OwnKeys returns the keys of this data center.
func (k *Node) OwnKeys(ctx context.Context) ([]KeyRecord, error) {
	keys, _, err := keysDoc(k.store, keysName).Load(ctx)
	return keys, err
}

// TakeKeys stores the keys of another data center.
func (k *Node) TakeKeys(ctx context.Context, site string, keys []KeyRecord) error {
	news := false
	same := func(a, b KeyRecord) bool {
		return a.ID == b.ID && bytes.Equal(a.Key, b.Key) && a.Made.Equal(b.Made)
	}
	_, err := keysDoc(k.store, keysOf(site)).Edit(ctx, func(was *[]KeyRecord) (bool, error) {
		news = !slices.EqualFunc(*was, keys, same)
		*was = keys
		return news, nil
	})
	if err != nil || !news {
		return err
	}
	k.log.Info("sealing keys of another data center taken", "datacenter", site, "keys", len(keys))
	return k.RereadKeys()
}

// signWith derives the signing keys from the sealing keys of this and of other data centers.
func (k *Node) signWith(keys []datadir.SealingKey, others []siteKeys) error {
	var own, far []checkout.Secret
	for _, x := range keys {
		own = append(own, checkout.Secret{Key: x.Key, Made: x.Made})
	}
	for _, site := range others {
		for _, x := range site.keys {
			far = append(far, checkout.Secret{Key: [32]byte(x.Key), Made: x.Made})
		}
	}
	return k.Signing.Set(own, far)
}

// RotateKeys makes a new sealing key now. What the old keys sealed stays valid.
func (k *Node) RotateKeys(now time.Time) (got api.RotateResult, err error) {
	if k.Worker {
		return got, AtStoreNode("a worker makes no sealing keys")
	}
	keys, err := k.UseKeys(func() ([]datadir.SealingKey, error) { return k.keys.Rotate(now) })
	if err != nil {
		return got, err
	}
	k.PublishToDatacenters()
	key := newest(keys)
	if got.Key = int(key.ID); keys[0].ID != key.ID {
		got.SealsIn = sealsAfter.Seconds()
	}
	return got, nil
}

// ListKeys returns the keys, the sealing one first, then those of other data centers.
func (k *Node) ListKeys() ([]api.Key, error) {
	k.ring.Lock()
	defer k.ring.Unlock()
	keys, err := k.keys.Keys()
	if err != nil {
		return nil, err
	}
	list, own := []api.Key{}, ""
	if k.Linked() {
		own = k.Config.Datacenters.Own
	}
	for i, x := range keys {
		list = append(list, api.Key{Key: int(x.ID), Datacenter: own, MadeAt: x.Made, Seals: i == 0})
	}
	for _, other := range k.keysOfOthers() {
		for _, x := range slices.Backward(other.keys) { // newest first, as our own
			list = append(list, api.Key{Key: int(x.ID), Datacenter: other.site, MadeAt: x.Made})
		}
	}
	return list, nil
}

// ForgetKey deletes a key. A visitor with a cookie that it sealed is a newcomer from then on.
func (k *Node) ForgetKey(id int) error {
	if id < 1 || id > 255 {
		return api.ErrNoKey
	}
	if k.Worker {
		return AtStoreNode("a worker forgets no sealing keys")
	}
	_, err := k.UseKeys(func() ([]datadir.SealingKey, error) { return k.keys.Forget(byte(id)) })
	switch {
	case errors.Is(err, datadir.ErrNoKey):
		return api.ErrNoKey
	case errors.Is(err, datadir.ErrKeySeals):
		return api.ErrKeySeals
	case err == nil:
		k.PublishToDatacenters()
	}
	return err
}

// RereadKeys loads keys that were added or removed by hand.
func (k *Node) RereadKeys() error {
	_, err := k.UseKeys(k.keys.Keys)
	return err
}

// UseKeys puts the keys that get returns into force. Only one call runs at a time: otherwise the
// call that read first could finish last, and the key of the other call, which has sealed cookies
// by then, would be unknown.
func (k *Node) UseKeys(
	get func() ([]datadir.SealingKey, error),
) ([]datadir.SealingKey, error) {
	k.ring.Lock()
	defer k.ring.Unlock()
	keys, err := get()
	if err != nil {
		return nil, err
	}
	others := k.keysOfOthers()
	return keys, errors.Join(k.Rooms.SetKeys(ringOf(keys, others)), k.signWith(keys, others))
}

// rotateOld makes a new sealing key when the newest is too old.
func (k *Node) rotateOld(now time.Time) error {
	_, err := k.UseKeys(func() ([]datadir.SealingKey, error) {
		keys, err := k.keys.Keys()
		if err != nil {
			return nil, err
		}
		return k.rotate(keys, now)
	})
	return err
}

// rotate makes a new sealing key when the newest is too old.
func (k *Node) rotate(keys []datadir.SealingKey, now time.Time) ([]datadir.SealingKey, error) {
	if k.Worker || now.Sub(newest(keys).Made) < rotateEvery {
		return keys, nil
	}
	return k.keys.Rotate(now)
}

// rotateEvery is the maximum age of the sealing key. Chosen: AES-GCM with random nonces is safe for
// 2^32 cookies a key (NIST SP 800-38D, section 8.3). A room that seals 5,000 a second reaches that
// after ten days. Less than a day would be too short: a ring holds 64 keys of the last 62 days.
const rotateEvery = 7 * 24 * time.Hour

// newest returns the key that was made last: it seals, or will when all nodes know it.
func newest(keys []datadir.SealingKey) datadir.SealingKey {
	return slices.MaxFunc(keys, func(a, b datadir.SealingKey) int { return a.Made.Compare(b.Made) })
}

// askedKeys replaces the records of sealing keys in a worker: it requests the keys from the store
// nodes. It implements store.Store.
type askedKeys struct{ bus *store.Bus }

// Load implements store.Store.
func (a askedKeys) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	b, err := a.bus.Request(ctx, sealingName, []byte(key))
	return b, 0, err
}

// keysFrom returns the store from which this process reads sealing keys.
func (k *Node) keysFrom() store.Store {
	if k.Worker {
		return askedKeys{k.Bus}
	}
	return k.store
}

// AtStoreNode returns the error of a command that a worker must not carry out.
func AtStoreNode(why string) error {
	return &api.RejectedError{Reason: why, Do: "say the same at a store node: headgate cluster status names them",
		Err: store.ErrDenied}
}

// sealingName is the name under which workers request the sealing keys, because they may not read
// the record.
const sealingName = "sealing"
