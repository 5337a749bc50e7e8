// Package node is the part of a process that concerns the engine: the data folder, the engine and
// its records, the sealing keys, and the revoked certificates of the cluster.
//
// # Guarantees
//
// A key seals only after all nodes know it. A key that may have sealed a cookie that is still valid
// is not deleted automatically. A revoked certificate is rejected even before the records can be
// read.
//
// # Concurrency
//
// A Node may be used by many goroutines at once. Run owns its goroutines and waits for them.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/chanmutex"
	"github.com/headgate/headgate/internal/checkout"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/datadir"
	"github.com/headgate/headgate/internal/store"
)

// rotateEvery is the maximum age of the sealing key. Chosen: AES-GCM with random nonces is safe for
// 2^32 cookies a key (NIST SP 800-38D, section 8.3). A room that seals 5,000 a second reaches that
// after ten days.
const rotateEvery = 7 * 24 * time.Hour

// OpenWait is the timeout for opening the engine. A folder with a million records or a slow disk
// takes seconds.
const OpenWait = time.Minute

// A Node holds what outlives the process: the folder, the engine in it, and its records and keys.
// Fields other than Records do not change after Open.
type Node struct {
	Folder  *datadir.Folder
	Engine  *embedded.Server
	Rooms   *headgate.Engine
	Records store.Store           // shared by the processes
	Config  headgate.EngineConfig // of a shared engine: its connection, name and role
	About   api.Cluster           // of a shared engine: what does not change
	Bus     *store.Bus            // nil: no other processes
	Worker  bool                  // of a cluster: it has no engine, and limited access to the records
	Signing *checkout.Keys        // derived from the sealing keys

	store   *store.NATS
	keys    keyring
	serial  string // of this node's certificate in the cluster
	log     *slog.Logger
	options Options

	revoked    []api.Revoked // as followRevoked last read it
	revokedNew chan struct{} // has room for one

	ring   chanmutex.Mutex // held from reading or making keys until they are in force
	others []siteKeys      // as last read, guarded by ring; nil: one data center
}

// Options are set by the process.
type Options struct {
	// Dial, if not nil, opens a connection to the engine, for one of its accounts. If it is nil,
	// the node starts or finds an engine.
	Dial    func(account string) (net.Conn, error)
	Boot    func() time.Duration // clock for decisions; nil: that of the machine
	Version string
	Log     *slog.Logger
}

// Open opens the data folder, the engine and the records. Call Run or Close afterwards.
func Open(ctx context.Context, o Options, cfg *config.Config) (*Node, error) {
	k := &Node{log: o.Log, options: o,
		revokedNew: make(chan struct{}, 1), Signing: checkout.NewKeys(time.Now)}
	var err error
	if k.Folder, err = datadir.Open(cfg.Data); err != nil {
		return nil, err
	}
	if cfg.Cluster != nil || cfg.Engine != nil { // the others may come much later
		err = k.openShared(ctx, cfg)
	} else {
		err = k.open(ctx)
	}
	if err != nil {
		k.Close()
		return nil, err
	}
	k.Records = k.store
	return k, nil
}

func (k *Node) open(ctx context.Context) (err error) {
	ctx, stop := context.WithTimeout(ctx, OpenWait)
	defer stop()
	k.keys = k.Folder
	if k.Folder.KeysLost() {
		k.log.Error("sealing keys are gone: every visitor is a newcomer now, whatever place or pass "+
			"they have", "folder", k.Folder.Path("keys"),
			"hint", "stop headgate, bring the keys back from a backup, start it again")
	}
	keys, err := k.Folder.Keys()
	if err != nil {
		return err
	}
	if keys, err = k.rotate(keys, time.Now()); err != nil {
		return err
	}
	k.Engine, err = embedded.Open(ctx, embedded.Config{
		Dir: k.Folder.Engine(), Log: k.log, Dial: k.options.Dial})
	if err != nil {
		return k.Folder.Fault("the engine does not start", err)
	}
	err = k.openRecords(ctx, keys)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return k.Folder.Fault("the engine does not answer", err)
	}
	// The engine runs, but its data cannot be read. The second copies can be read.
	if err = k.Engine.ReplaceFolder(ctx, err); err == nil {
		err = k.openRecords(ctx, keys)
	}
	if err != nil {
		return k.Folder.Fault("the records cannot be read", err)
	}
	return nil
}

func (k *Node) openRecords(ctx context.Context, keys []datadir.SealingKey) (err error) {
	if err = k.signWith(keys, nil); err != nil {
		return err
	}
	k.Rooms, err = headgate.OpenEngine(ctx, headgate.EngineConfig{
		NATS: k.Engine.Conn(), Copies: k.Folder.Records(), Keys: ringOf(keys, nil),
		OnWriteFailure: k.Engine.Heal, Log: k.log,
		Exclusive: true, // the folder is locked
		Boot:      k.options.Boot,
	})
	if err != nil {
		return err
	}
	k.store, err = store.OpenNATS(ctx, store.NATSConfig{
		Conn: k.Engine.Conn(), Copies: k.Folder.Records(), OnWriteFailure: k.Engine.Heal, Log: k.log,
	})
	if err != nil {
		k.Rooms.Close()
		k.Rooms = nil
	}
	return err
}

// rotate makes a new sealing key when the newest is too old.
func (k *Node) rotate(keys []datadir.SealingKey, now time.Time) ([]datadir.SealingKey, error) {
	if k.Worker || now.Sub(newest(keys).Made) < rotateEvery {
		return keys, nil
	}
	return k.keys.Rotate(now)
}

// newest returns the key that was made last: it seals, or will when all nodes know it.
func newest(keys []datadir.SealingKey) datadir.SealingKey {
	return slices.MaxFunc(keys, func(a, b datadir.SealingKey) int { return a.Made.Compare(b.Made) })
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

// Run repairs the engine, rotates the keys, and announces the node to the others, until ctx ends.
func (k *Node) Run(ctx context.Context) error {
	every := time.Hour
	if k.Bus != nil {
		every = keysEvery
	}
	stop, err := k.serveWorkers()
	if err != nil {
		return err
	}
	defer stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	k.followRevoked(ctx)
	done := make(chan error, 2)
	go func() { done <- k.runEngine(ctx) }()
	go func() { done <- k.Rooms.Run(ctx) }()
	for left := 2; left > 0; {
		select {
		case one := <-done:
			left--
			err = errors.Join(err, one)
			if one != nil { // the server ends, and ctx with it
				return err
			}
		case <-k.revokedNew:
			k.followRevoked(ctx)
		case now := <-tick.C:
			if ctx.Err() != nil { // nobody needs new keys, and the store may not answer
				continue
			}
			if err := k.rotateOld(now); err != nil && ctx.Err() == nil {
				k.log.Warn("sealing keys not looked at yet", "error", err)
			}
			k.followRevoked(ctx)
		}
	}
	return err
}

func (k *Node) runEngine(ctx context.Context) error {
	if k.Engine == nil {
		<-ctx.Done()
		return nil
	}
	return k.Engine.Run(ctx)
}

// Close ends the engine and unlocks the folder. Parts that are nil were not opened.
func (k *Node) Close() {
	if k.store != nil {
		k.store.Close()
	}
	if k.Rooms != nil {
		k.Rooms.Close()
	}
	if k.Engine != nil {
		k.Engine.Close()
	} else if k.Config.NATS != nil {
		k.Config.NATS.Close()
	}
	if k.Folder != nil {
		if err := k.Folder.Close(); err != nil {
			k.log.Warn("data folder not closed", "error", fmt.Sprint(err))
		}
	}
}
