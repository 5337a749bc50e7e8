// Package checkout is what a site needs of its room where a visitor pays: a signed pass that
// any backend verifies by itself, a warning before a visit ends, and the word of a backend that
// a visit is over.
//
// # The promise
//
// A signed pass never says more than the counter has confirmed: until it expires the visitor
// has a slot, unless the visit was ended before. A key that signs is served by every node, and
// in no copy of the key set without it, before it signs its first. Looking at a visit, as the
// warning does, prolongs nothing.
//
// # Concurrency and cost
//
// All of it may be used by many goroutines at once. A pass is signed when it says at least a
// tenth of a session more than the last one of its visit, which costs some 0.1 ms; else a request
// costs a look into a map.
//
// # What it does not do
//
// It holds no keys of its own: they are derived from the sealing keys, and kept, shared,
// rotated and forgotten with them. It decides nothing about who is inside: headgate.Room does.
package checkout
