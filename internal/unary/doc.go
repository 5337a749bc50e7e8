// Package unary answers unary gRPC calls over unencrypted HTTP/2 (RFC 9113). It uses less CPU time
// than a server that has one goroutine for each call and another one for writing.
//
// [Serve] reads each connection in one goroutine. Frames and headers are parsed by
// golang.org/x/net/http2 and hpack. Calls that arrive in one read are answered in one write, unless a
// method waits.
//
// # Guarantees
//
// Methods that never wait run in the goroutine that has read the call. Other methods run in worker
// goroutines of the connection, so that no call that waits delays another one. What a peer can make the
// process hold is bounded: about 20 MB for each connection, 1,000 connections from one IPv4 address
// or IPv6 /64, 10,000 connections in all, and 256 MB for all connections that hold more than 64 KB.
// The time for an incomplete frame, an incomplete call and an answer that the peer does not accept
// is bounded too. A peer that does not answer pings, or that sends too many frames without a call,
// is disconnected.
//
// # Concurrency and cost
//
// A [Method] must be safe for concurrent use. A connection has one goroutine, and one more for each
// call that may wait. A call costs 11 small allocations, nearly all for parsing its headers, plus
// those of its method.
//
// # Limits of the package
//
// It has no compression, no encryption and no metadata: methods see only the message,
// and answers have no trailers except the status. It is made for small messages: if the incomplete
// calls of a connection have more than 4 MB together, they fail after 10 s. It does not use the
// HPACK dynamic table for what it sends.
//
// # The files
//
// From the top down:
//
//	serve     accepts connections
//	read      reads a connection until it ends, and does what is due
//	frames    what a frame changes, except headers
//	call      headers begin a call, and a method answers it
//	stream    calls with messages in both directions
//	answer    sends answers and errors, and frees what a call held
//	conn      the state of a server, a connection and a call; writing, and what a peer may use
//	limits    the limits of all that
package unary
