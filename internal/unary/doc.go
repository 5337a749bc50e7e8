// Package unary answers unary gRPC calls over HTTP/2 (RFC 9113) without encryption, with less
// of the processor than a server that has a goroutine for each call and another that writes.
//
// [Serve] reads each connection in one goroutine. Frames and headers are parsed by
// golang.org/x/net/http2 and hpack. What was asked within one read is answered by one write.
//
// # The promise
//
// Methods whose answers never wait are called by the goroutine that has read the call; others by
// goroutines that their connection keeps for it, so that none holds up another. Whatever a peer
// sends or does not send: what it makes the process hold is bounded, by some 20 MB a connection,
// by 1,000 connections from one IPv4 address or IPv6 /64 and 10,000 in all, and by 256 MB for
// all connections that hold more than 64 KB. The time for half a frame, half a call, and an answer
// that it does not take is bounded too. A peer that ignores pings, or sends too many frames that
// ask for nothing, is cut off.
//
// # Concurrency and cost
//
// A [Method] is called by many goroutines at once. A connection has a goroutine, and one more
// for each call that may wait. A call costs 11 small allocations, nearly all in the parsing of
// its headers, and what its method takes.
//
// # What it does not do
//
// No streams of messages, no compression, no encryption, no metadata: methods see the message
// alone, and answers have no trailers but the status. It is for small messages: calls that
// together have more than 4 MB under way, none of which is whole, wait in vain, 10 s. It does
// not use the dynamic table of HPACK for what it sends.
package unary
