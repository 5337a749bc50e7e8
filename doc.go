// Package headgate lets in only what can be taken: a waiting room in front of a
// handler or a site.
//
// People wait in a Room, in order, on a page that says how long. Those inside
// are at most TotalActiveUsers at every instant, those who enter at most
// NewUsersPerMinute in every minute, both exactly.
//
//	room, err := headgate.OpenRoom(ctx, headgate.RoomConfig{
//		Name: "shop", TotalActiveUsers: 200, NewUsersPerMinute: 200,
//	})
//	…
//	go room.Run(ctx)
//	http.ListenAndServe(":8080", room.Handler(shop))
//
// API calls meet a Limiter, which counts each key of a limit for itself by an algorithm of
// package limit: LimitMiddleware asks it for each request, or Allow, AllowAll, Peek and Explain
// do. Reserve takes an estimate; Settle says what it came to, and with 0 that it was nothing.
//
// # The promise
//
// Never over a limit; never idle while somebody who is present waits; in order;
// a place is kept through silence, and a ticket admits once. docs/design.md §2
// has all of them, each with the test that tries to break it.
//
// # Concurrency
//
// A Room may be used by many goroutines at once. Run owns its goroutines and
// returns when its context ends.
//
// # What it costs
//
// A request with a pass costs under a microsecond and no message. Waiting
// visitors cost ten bytes each and a poll every second to every half minute.
//
// # What it does not do
//
// Without RoomConfig.Engine state lives in memory, and a restart begins a new
// line. It does not proxy, listen or read files; the command headgate does. So
// the caller bounds headers, times and connections in its http.Server, and a
// handler that forwards requests removes from them the cookies of the room, and
// forwarding headers that the client made up: see the example of a reverse proxy.
package headgate
