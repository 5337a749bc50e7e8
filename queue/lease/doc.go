// Package lease divides the capacity of a target among processors that know nothing of each other.
//
// The capacity is cut into equal partitions, and each partition is lent to one processor at a time,
// as in Azure's "Rate Limiting pattern": 500 requests a second are 20 partitions of 25. Processors
// share nothing but an engine. Leases keeps a record of each partition there, and a Share requests,
// renews and returns partitions as its processor needs them:
//
//	leases, err := lease.Open(ctx, lease.Config{
//		Name: "db", NATS: engine.Conn(), Partitioning: lease.Partitioning{Count: 20, Amount: 25},
//	})
//	share, err := lease.NewShare(lease.ShareConfig{
//		Leases: leases, Need: need, Rate: func(rate int64) { … },
//	})
//	…
//	share.Run(ctx)
//
// # Guarantees
//
// Two processors never have the same partition, even if a machine sleeps, stands still or is cut
// off, and a partition rests between two leases, so that what the first processor sent at the very
// end does not count together with what the second one sends. A fence that increases with each
// lease lets a target reject a processor whose lease has ended.
//
// # Limitations
//
// Capacity that a processor holds and does not use is lost until it is returned. Processors that
// share limits use package ratelimit, which loses none.
package lease
