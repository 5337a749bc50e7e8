// Package guard bounds what one client holds of the process: connections, bodies that come too
// slowly, and answers that it does not take.
//
// # The promise
//
// An address has at most as many connections as it may; one more is closed at once. A handler
// that reads a request's body waits for the client no longer than [Pace] allows, and neither does
// a write of its answer. Time in which the handler itself does not read or write is not counted,
// so that a slow origin costs no client its upload. [EndBody] ends a body that keeps somebody else waiting.
//
// # Concurrency and cost
//
// A [Connections] has one lock, taken twice for each connection. [Handler] costs a request one
// allocation, two more with a body, and a deadline for each read and write.
//
// # What it does not do
//
// It does not bound requests or streams within a connection: the server does. What is hijacked,
// such as a WebSocket, has no deadlines.
package guard
