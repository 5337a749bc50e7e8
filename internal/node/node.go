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
//
// # The files
//
// From the top down: open opens a Node and runs it; cluster and own open its engine; revoke follows
// revoked certificates; keys rotates and shares the sealing keys; node has the type itself.
package node

import (
	"log/slog"
	"net"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/chanmutex"
	"github.com/headgate/headgate/internal/checkout"
	"github.com/headgate/headgate/internal/datadir"
	"github.com/headgate/headgate/internal/seldom"
	"github.com/headgate/headgate/internal/store"
)

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
	said    seldom.Lines
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

// A keyring stores sealing keys: in the folder of a single process, or in the store of a cluster.
type keyring interface {
	Keys() ([]datadir.SealingKey, error)
	Rotate(now time.Time) ([]datadir.SealingKey, error)
	Forget(id byte) ([]datadir.SealingKey, error)
}

// Linked reports whether the rooms are shared with other data centers.
func (k *Node) Linked() bool { return k.Config.Datacenters != nil }

// IsFirst reports whether this node is the one in its data center that sends requests to the
// others: the living store node whose name sorts first. While nodes disagree, two nodes send
// requests, which does no harm.
func (k *Node) IsFirst() bool {
	for _, n := range k.Rooms.Nodes() {
		if n.CanHost && n.Alive {
			return n.Name == k.Config.Node
		}
	}
	return true
}

// PublishToDatacenters publishes to the other data centers, through the store nodes, that keys or live
// changes are new here.
func (k *Node) PublishToDatacenters() {
	if k.Bus == nil || !k.Linked() {
		return
	}
	if err := k.Bus.Publish(DatacentersTopic, nil); err != nil {
		k.log.Warn("other data centers not informed of new keys or changes: they ask by themselves", "error", err)
	}
}

// DatacentersTopic carries a message when keys or live changes are new in this data center.
const DatacentersTopic = "made"

// siteKeys are copies of the keys of another data center.
type siteKeys struct {
	site string
	keys []KeyRecord
}
