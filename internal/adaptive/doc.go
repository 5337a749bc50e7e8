// Package adaptive finds how many visitors an origin can take, from what it answers.
//
// # How it is used
//
// The host of a room collects what all nodes have seen of the origin, as one [Sample] every few
// seconds (5 s is good; 1 s to 30 s work), and gives it to [Controller.Step]. It puts the
// [Decision] in force, and keeps [Controller.State] in the room's record. [New] continues from that state.
//
// # How it finds the limit
//
// The mean latency of each route, compared with its own without load, says how many requests wait at the
// origin. While few wait, the knee is higher, in requests a second. The limit is the knee by the requests
// of a person. ADR 60 has the reasons and the figures.
//
// # The promises
//
// A Controller never leaves [Settings.Min] and [Settings.Max]. It raises in steps, and only on samples
// that say something. It lowers at once when the origin errs. It holds still when signals stop or
// contradict each other, and says so.
//
// # Concurrency and cost
//
// A Controller has no clock, no goroutine and no I/O: all times come with the samples. The same
// samples give the same decisions. Its caller guards it. A step takes some microseconds per route.
//
// # What it does not do
//
// It enforces nothing, and ends no session: when it lowers the limit, the room drains.
package adaptive
