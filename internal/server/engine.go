package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/checkout"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/folder"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/turn"
)

// rotateEvery is how old the sealing key may become. Chosen: AES-GCM with drawn
// nonces is good for 2^32 cookies a key (NIST SP 800-38D, section 8.3), which a
// room that seals 5,000 a second reaches after ten days.
const rotateEvery = 7 * 24 * time.Hour

// openWait bounds the opening of the engine. A folder with a million records or
// a slow disk takes seconds.
const openWait = time.Minute

// durable is what outlives the process: the folder, the engine in it, and the
// records and keys in these.
type durable struct {
	folder *folder.Folder
	engine *embedded.Server
	rooms  *headgate.Engine
	store  *store.NATS
	keys   keyring
	node   headgate.EngineConfig // of a shared engine: its connection, name and part
	about  api.Cluster           // of a shared engine: what stays as it is
	bus    *store.Bus            // nil: alone
	worker bool                  // of a cluster: it has no engine, and may not use the records as it likes
	serial string                // of this node's certificate in the cluster
	log    *slog.Logger

	machine Machine

	revoked    []api.Revoked // as followRevoked read it last
	revokedNew chan struct{} // has room for one

	ring   turn.Turn  // held from reading or making keys until they are in force
	others []siteKeys // as read last, guarded by ring; nil: one data centre

	signing *checkout.Keys // derived from the sealing keys
}

func openDurable(
	ctx context.Context, m Machine, cfg *config.Config, log *slog.Logger,
) (*durable, error) {
	k := &durable{log: log, machine: m,
		revokedNew: make(chan struct{}, 1), signing: checkout.NewKeys(time.Now)}
	var err error
	if k.folder, err = folder.Open(cfg.Data); err != nil {
		return nil, err
	}
	if cfg.Cluster != nil || cfg.Engine != nil { // the others may come much later
		err = k.openShared(ctx, cfg)
	} else {
		err = k.open(ctx)
	}
	if err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

func (k *durable) open(ctx context.Context) (err error) {
	ctx, stop := context.WithTimeout(ctx, openWait)
	defer stop()
	k.keys = k.folder
	if k.folder.KeysLost() {
		k.log.Error("sealing keys are gone: every visitor is a newcomer now, whatever place or pass "+
			"they have", "folder", k.folder.Path("keys"),
			"hint", "stop headgate, bring the keys back from a backup, start it again")
	}
	keys, err := k.folder.Keys()
	if err != nil {
		return err
	}
	if keys, err = k.rotate(keys, time.Now()); err != nil {
		return err
	}
	k.engine, err = embedded.Open(ctx, embedded.Config{
		Dir: k.folder.Engine(), Log: k.log, Dial: k.machine.Engine})
	if err != nil {
		return k.folder.Fault("the engine does not start", err)
	}
	err = k.openRecords(ctx, keys)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return k.folder.Fault("the engine does not answer", err)
	}
	// The engine runs, but what it holds cannot be read: the second copies can.
	if err = k.engine.PutAside(ctx, err); err == nil {
		err = k.openRecords(ctx, keys)
	}
	if err != nil {
		return k.folder.Fault("the records cannot be read", err)
	}
	return nil
}

func (k *durable) openRecords(ctx context.Context, keys []folder.SealingKey) (err error) {
	if err = k.signWith(keys, nil); err != nil {
		return err
	}
	k.rooms, err = headgate.OpenEngine(ctx, headgate.EngineConfig{
		NATS: k.engine.Conn(), Copies: k.folder.Records(), Keys: ringOf(keys, nil),
		Heal: k.engine.Heal, Log: k.log,
		Alone: true, // the folder is locked
		Boot:  k.machine.Boot,
	})
	if err != nil {
		return err
	}
	k.store, err = store.OpenNATS(ctx, store.NATSConfig{
		Conn: k.engine.Conn(), Copies: k.folder.Records(), Heal: k.engine.Heal, Log: k.log,
	})
	if err != nil {
		k.rooms.Close()
		k.rooms = nil
	}
	return err
}

// rotate makes a new sealing key when the newest is old.
func (k *durable) rotate(keys []folder.SealingKey, now time.Time) ([]folder.SealingKey, error) {
	if k.worker || now.Sub(newest(keys).Made) < rotateEvery {
		return keys, nil
	}
	return k.keys.Rotate(now)
}

// newest is the key that was made last: it seals, or will when all nodes know it.
func newest(keys []folder.SealingKey) folder.SealingKey {
	return slices.MaxFunc(keys, func(a, b folder.SealingKey) int { return a.Made.Compare(b.Made) })
}

// rotateKeys makes a new sealing key now. What the old ones sealed stays good.
func (k *durable) rotateKeys(now time.Time) (got api.Rotated, err error) {
	if k.worker {
		return got, atStoreNode("a worker makes no sealing keys")
	}
	keys, err := k.useKeys(func() ([]folder.SealingKey, error) { return k.keys.Rotate(now) })
	if err != nil {
		return got, err
	}
	k.tellMade()
	key := newest(keys)
	if got.Key = int(key.ID); keys[0].ID != key.ID {
		got.SealsIn = sealsAfter.Seconds()
	}
	return got, nil
}

// listKeys tells which keys there are, the one that seals first, then those of other data
// centres.
func (k *durable) listKeys() ([]api.Key, error) {
	k.ring.Lock()
	defer k.ring.Unlock()
	keys, err := k.keys.Keys()
	if err != nil {
		return nil, err
	}
	list, own := []api.Key{}, ""
	if k.linked() {
		own = k.node.Datacenters.Own
	}
	for i, x := range keys {
		list = append(list, api.Key{Key: int(x.ID), Datacenter: own, MadeAt: x.Made, Seals: i == 0})
	}
	for _, other := range k.keysOfOthers() {
		for _, x := range slices.Backward(other.keys) { // the newest first, as ours
			list = append(list, api.Key{Key: int(x.ID), Datacenter: other.site, MadeAt: x.Made})
		}
	}
	return list, nil
}

// forgetKey removes a key: who holds a cookie that it sealed is a newcomer.
func (k *durable) forgetKey(id int) error {
	if id < 1 || id > 255 {
		return api.ErrNoKey
	}
	if k.worker {
		return atStoreNode("a worker forgets no sealing keys")
	}
	_, err := k.useKeys(func() ([]folder.SealingKey, error) { return k.keys.Forget(byte(id)) })
	switch {
	case errors.Is(err, folder.ErrNoKey):
		return api.ErrNoKey
	case errors.Is(err, folder.ErrKeySeals):
		return api.ErrKeySeals
	case err == nil:
		k.tellMade()
	}
	return err
}

// rereadKeys takes keys that were added or removed by hand.
func (k *durable) rereadKeys() error {
	_, err := k.useKeys(k.keys.Keys)
	return err
}

// rotateOld makes a new sealing key when the newest is old.
func (k *durable) rotateOld(now time.Time) error {
	_, err := k.useKeys(func() ([]folder.SealingKey, error) {
		keys, err := k.keys.Keys()
		if err != nil {
			return nil, err
		}
		return k.rotate(keys, now)
	})
	return err
}

// useKeys puts the keys that get returns into force. One at a time: of two, the one
// that read first could come last, and the key of the other, which has sealed
// cookies by then, would be unknown.
func (k *durable) useKeys(
	get func() ([]folder.SealingKey, error),
) ([]folder.SealingKey, error) {
	k.ring.Lock()
	defer k.ring.Unlock()
	keys, err := get()
	if err != nil {
		return nil, err
	}
	others := k.keysOfOthers()
	return keys, errors.Join(k.rooms.SetKeys(ringOf(keys, others)), k.signWith(keys, others))
}

// run heals the engine, rotates the keys, and is heard by the other nodes, until ctx
// ends.
func (k *durable) run(ctx context.Context) error {
	every := time.Hour
	if k.bus != nil {
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
	go func() { done <- k.rooms.Run(ctx) }()
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
			if err := k.rotateOld(now); err != nil && ctx.Err() == nil {
				k.log.Warn("sealing keys not looked at yet", "error", err)
			}
			k.followRevoked(ctx)
		}
	}
	return err
}

func (k *durable) runEngine(ctx context.Context) error {
	if k.engine == nil {
		<-ctx.Done()
		return nil
	}
	return k.engine.Run(ctx)
}

// close ends the engine and unlocks the folder. Nil parts were not opened.
func (k *durable) close() {
	if k.store != nil {
		k.store.Close()
	}
	if k.rooms != nil {
		k.rooms.Close()
	}
	if k.engine != nil {
		k.engine.Close()
	} else if k.node.NATS != nil {
		k.node.NATS.Close()
	}
	if k.folder != nil {
		if err := k.folder.Close(); err != nil {
			k.log.Warn("data folder not closed", "error", fmt.Sprint(err))
		}
	}
}
