package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/folder"
	"github.com/headgate/headgate/internal/store"
)

// A keyring is where sealing keys are: the folder of a process that is alone, the
// store of a cluster.
type keyring interface {
	Keys() ([]folder.SealingKey, error)
	Rotate(now time.Time) ([]folder.SealingKey, error)
	Forget(id byte) ([]folder.SealingKey, error)
}

// Parameters of the keys of a cluster. Chosen: every node has read a key well before
// the first cookie that it seals, also one whose clock is some seconds ahead.
const (
	keysName   = "keys"
	keysWait   = 5 * time.Second
	keysEvery  = 5 * time.Second
	sealsAfter = 30 * time.Second
	mostKeys   = 64
)

// sharedKeys keeps the keys in the store. All nodes read them every few seconds; a new
// one seals once all surely know it.
type sharedKeys struct {
	store store.Store
	now   func() time.Time

	mu   sync.Mutex
	read map[byte]time.Time // when this node first read a key; zero at its start
}

// keyRecord is what is stored of a key.
type keyRecord struct {
	ID   byte      `json:"id"`
	Key  []byte    `json:"key"`
	Made time.Time `json:"made"`
}

// Keys returns the keys, the one that seals first. The first node of all makes one.
func (k *sharedKeys) Keys() ([]folder.SealingKey, error) {
	keys, revision, err := k.load()
	if err == nil && len(keys) == 0 {
		return k.add(keys, revision, k.now())
	}
	return k.order(keys), err
}

// Rotate adds a new key and forgets those that nobody can need any more.
func (k *sharedKeys) Rotate(now time.Time) ([]folder.SealingKey, error) {
	keys, revision, err := k.load()
	if err != nil {
		return nil, err
	}
	return k.add(keys, revision, now)
}

func (k *sharedKeys) load() ([]keyRecord, uint64, error) {
	ctx, stop := context.WithTimeout(context.Background(), keysWait)
	defer stop()
	return loadKeys(ctx, k.store, keysName)
}

// keysOf is where the copies of another data centre's keys are.
func keysOf(site string) string { return keysName + "." + site }

// loadKeys reads the keys that are stored under a name, none if nothing is.
func loadKeys(ctx context.Context, s store.Store, name string) ([]keyRecord, uint64, error) {
	b, revision, err := s.Load(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, 0, nil
	}
	var keys []keyRecord
	if err == nil {
		err = json.Unmarshal(b, &keys)
	}
	if err == nil {
		err = checkKeys(keys)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the sealing keys: %w", err)
	}
	return keys, revision, nil
}

// checkKeys refuses keys that are none.
func checkKeys(keys []keyRecord) error {
	seen := map[byte]bool{}
	for _, x := range keys {
		if x.ID == 0 || len(x.Key) != len(folder.SealingKey{}.Key) || seen[x.ID] {
			return errors.New("a sealing key is damaged")
		}
		seen[x.ID] = true
	}
	if len(keys) > mostKeys {
		return fmt.Errorf("%d sealing keys, and %d are the most", len(keys), mostKeys)
	}
	return nil
}

// add writes a new key.
func (k *sharedKeys) add(
	keys []keyRecord, revision uint64, now time.Time,
) ([]folder.SealingKey, error) {
	next := keyRecord{ID: 1, Key: make([]byte, len(folder.SealingKey{}.Key)), Made: now.UTC()}
	rand.Read(next.Key)
	if n := len(keys); n > 0 { // oldest first
		next.ID = keys[n-1].ID
		if last := keys[n-1].Made; !next.Made.After(last) {
			next.Made = last.Add(time.Nanosecond) // a clock set back
		}
		for used := true; used || next.ID == 0; {
			next.ID++
			used = slices.ContainsFunc(keys, func(x keyRecord) bool { return x.ID == next.ID })
		}
	}
	for len(keys) >= mostKeys || len(keys) > 1 && now.Sub(keys[1].Made) > folder.KeepKeys {
		keys = keys[1:]
	}
	return k.write(append(slices.Clone(keys), next), revision)
}

// Forget removes a key, and returns the others.
func (k *sharedKeys) Forget(id byte) ([]folder.SealingKey, error) {
	keys, revision, err := k.load()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(keys, func(x keyRecord) bool { return x.ID == id })
	switch {
	case at < 0:
		return nil, folder.ErrNoKey
	case at == len(keys)-1 || k.order(keys)[0].ID == id:
		return nil, folder.ErrKeySeals
	}
	return k.write(slices.Delete(keys, at, at+1), revision)
}

// write stores the keys by compare-and-set: of two nodes that do so at once one reads
// what the other wrote.
func (k *sharedKeys) write(keys []keyRecord, revision uint64) ([]folder.SealingKey, error) {
	b, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(context.Background(), keysWait)
	defer stop()
	_, err = k.store.CompareAndSwap(ctx, keysName, revision, b)
	if errors.Is(err, store.ErrConflict) {
		keys, _, err = k.load()
	}
	if err != nil {
		return nil, fmt.Errorf("write the sealing keys: %w", err)
	}
	return k.order(keys), nil
}

// order puts the key that seals first: the newest that all know, or the only one.
func (k *sharedKeys) order(keys []keyRecord) (all []folder.SealingKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	start := k.read == nil
	if start {
		k.read = map[byte]time.Time{}
	}
	seals := 0
	for i, x := range keys {
		at, known := k.read[x.ID]
		if !known && !start { // by the clock of this node: that of who made it may be wrong
			at = k.now()
		}
		k.read[x.ID] = at
		if now := k.now(); now.Sub(x.Made) >= sealsAfter && now.Sub(at) >= sealsAfter {
			seals = i
		}
		all = append(all, folder.SealingKey{ID: x.ID, Key: [32]byte(x.Key), Made: x.Made})
	}
	slices.Reverse(all)
	if n := len(all); n > 0 {
		first := all[n-1-seals]
		all = append([]folder.SealingKey{first}, slices.Delete(all, n-1-seals, n-seals)...)
	}
	return all
}

// ringOf is the key ring of some keys, the one that seals first, and of those of other
// data centres.
func ringOf(keys []folder.SealingKey, others []siteKeys) headgate.SealingKeys {
	k := headgate.SealingKeys{Seals: keys[0].ID, Keys: map[byte][32]byte{}}
	for _, x := range keys {
		k.Keys[x.ID] = x.Key
	}
	for _, site := range others {
		m := map[byte][32]byte{}
		for _, x := range site.keys {
			m[x.ID] = [32]byte(x.Key)
		}
		k.Others = append(k.Others, m)
	}
	return k
}

// siteKeys are copies of the keys of another data centre.
type siteKeys struct {
	site string
	keys []keyRecord
}

// keysOfOthers reads the copies of the keys of the other data centres. What cannot be read
// now stays as it was. The caller holds ring, or is alone.
func (k *durable) keysOfOthers() []siteKeys {
	if !k.linked() {
		return nil
	}
	ctx, stop := context.WithTimeout(context.Background(), keysWait)
	defer stop()
	var all []siteKeys
	for i, name := range k.node.Datacenters.Others {
		keys, _, err := loadKeys(ctx, k.keysFrom(), keysOf(name))
		if err != nil {
			k.log.Warn("sealing keys of another data centre not read", "datacenter", name, "error", err)
			if k.others != nil {
				keys = k.others[i].keys
			}
		}
		all = append(all, siteKeys{name, keys})
	}
	k.others = all
	return all
}
