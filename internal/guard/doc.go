// Package guard bounds what one client can occupy in the process: connections, request bodies that
// arrive too slowly, and answers that the client does not read.
//
// # The promise
//
// An address never has more connections than its maximum; one more is closed at once. A handler
// that reads a request's body, or writes its answer, waits for the client no longer than [Pace]
// allows. Time in which the handler neither reads nor writes is not counted, so that a slow origin
// does not end a client's upload. [EndBody] ends a body that blocks others.
//
// # Concurrency and cost
//
// A [Connections] has one lock, taken twice for each connection. [Handler] costs a request one
// allocation, two more with a body, and a deadline for each read and write.
//
// # What it does not do
//
// It does not bound requests or streams within a connection: the server does. Hijacked connections,
// such as WebSockets, have no deadlines.
package guard
