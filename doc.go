// Package headgate puts a waiting room in front of a handler or a site: it limits how many visitors
// are inside, and how many enter in a minute.
//
// Visitors wait in a Room, in order, on a page that shows the expected wait. At most
// TotalActiveUsers visitors are inside at every instant, and at most NewUsersPerMinute enter in
// every minute. Both limits are exact.
//
//	room, err := headgate.OpenRoom(ctx, headgate.RoomConfig{
//		Name: "shop", TotalActiveUsers: 200, NewUsersPerMinute: 200,
//	})
//	…
//	go room.Run(ctx)
//	http.ListenAndServe(":8080", room.Handler(shop))
//
// Package ratelimit limits the calls of an API; package queue delivers jobs at the pace of a limit.
//
// # Guarantees
//
// A room never exceeds a limit, and leaves no slot unused while a present visitor waits. Visitors
// enter in order. A visitor who stops polling keeps the place for a while, and a ticket admits
// once. docs/design.md §2 lists all guarantees, each with the test that tries to break it.
//
// # Concurrency
//
// A Room may be used by many goroutines at once. Run owns its goroutines and returns when its context ends.
//
// # Cost
//
// A request with a pass costs less than a microsecond and no message. A waiting visitor costs ten
// bytes and one poll every 1 to 30 seconds.
//
// # The files
//
// From the top down: room opens a Room, and handler decides each request; roam moves a place to another data
// center, person gives each person one, and rules applies expressions and grace. answer and view write what
// visitors and apps get. worker has the slots lent to this process; session and config have types, and
// status fills those of package status. engine stores rooms, with datacenters for several of them.
//
// # Limitations
//
// Without RoomConfig.Engine the state is in memory only, and a restart begins a new line.
//
// The package does not proxy, listen or read files; the command headgate does. So the caller sets
// the limits on headers, times and connections in its http.Server. A handler that forwards requests
// must remove the room's cookies from them, and forwarding headers that the client made up: see the
// example of a reverse proxy.
package headgate
