// Package quota shares rate limits between processes. Each key has one host, which decides and
// lends units of the key to processes that need many.
//
// # Guarantees
//
// Each key is counted in one place. There are 256 shards, each hosted by one process; a second
// process replicates every change before a decision is answered. A record that is written only by
// compare-and-swap says which process is the host. A host that cannot renew its own record decides
// nothing. Lent units count as used until the borrower reports them or returns them
// (limittable.Table.Borrow), so a lost, late or duplicate message never lets usage exceed the limit. If
// a host and its standby are both lost, every key counts as fully used for one window.
//
// # Concurrency
//
// All methods are safe for concurrent use. A Client answers from the units that it holds, under one
// lock, and needs no message for a busy key.
//
// # Cost
//
// A key with few calls costs one message to its host per call, sent in batches. A busy key costs
// one message each quarter of a second. A host sends every change to its standby.
//
// # The files
//
//	node, shared, far               a process; limits of one data center, and of all
//	client, flush, hold, renew      asks for keys, borrows, and holds calls in progress
//	host, ledger, replicate         decides about the keys of a shard, and tells the standby
//	shardmap, lease                 which process hosts which shard
//	block, kept                     usage in the store, for when no copy of a shard is left
//	keys, usage, sums, wire         results; what was used; messages
//	signals                         what processes measure of calls, for the host of a limit
//
// # Limits of the package
//
// It knows no HTTP requests and no configuration: package headgate does.
package quota
