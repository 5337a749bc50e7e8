package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/checkout"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/datadir"
	"github.com/headgate/headgate/internal/store"
)

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

// open opens a data folder that only this process uses.
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

// openRecords opens the records of rooms and the store of everything else in the same engine.
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
