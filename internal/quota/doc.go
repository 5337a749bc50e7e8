// Package quota shares rate limits between processes: each key has one host that decides,
// and lends units of it to whoever needs many.
//
// # The promise
//
// A key is counted in one place: 256 shards, each hosted by one process, whose deeds a
// second one has repeated before anybody is told. Who is host is in a record that only
// compare-and-swap writes; a host that cannot renew its own record decides nothing. What
// is lent counts as used until it is said to be used or comes back (limit.Table.Borrow), so
// no message that is lost, late or repeated lets anybody over. When host and standby are
// lost, every key counts as fully used for one window.
//
// # Concurrency
//
// All methods may be called by many goroutines at once. A Desk answers from what it holds
// under one lock, for a key that is busy without any message.
//
// # What it costs
//
// A key that is called rarely costs one message to its host a call, in batches; one that is
// called often one each quarter of a second. A host sends what it did to its standby.
//
// # What it does not do
//
// It knows no requests and no configuration: package headgate does.
package quota
