// Package checkout helps a site whose visitors pay: it provides a signed pass that any backend can
// verify by itself, a warning before a session ends, and a way for a backend to report that a
// session is completed.
//
// # The promise
//
// A signed pass never promises more than the counter has confirmed: until it expires the visitor
// has a slot, unless the session was ended before. Before a key signs its first pass, every node
// serves it, and no cached key set lacks it. Reading a session, as the warning does, does not renew
// it.
//
// # Concurrency and cost
//
// All of it may be used by many goroutines at once. A new pass is signed when it lasts at least a
// tenth of a session longer than the last one of its session. That costs about 0.1 ms; otherwise a
// request costs a map lookup.
//
// # What it does not do
//
// It stores no keys: they are derived from the sealing keys, and stored, shared, rotated and
// forgotten with them. It does not decide who is inside: headgate.Room does.
package checkout
