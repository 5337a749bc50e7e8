package wire

import (
	"bufio"
	"net"
	"net/http"
)

// A Begun calls On.Begin once, before the headers of an answer are sent. This includes the headers
// of 101, but not those of other informational answers.
type Begun struct {
	http.ResponseWriter
	On   interface{ Begin() }
	done bool
}

// Unwrap lets http.ResponseController flush and hijack.
func (b *Begun) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// InSession reports whether a request that a room lets in belongs to a session.
func InSession(w http.ResponseWriter) bool {
	for {
		switch x := w.(type) {
		case interface{ InSession() bool }:
			return x.InSession()
		case interface{ Unwrap() http.ResponseWriter }:
			w = x.Unwrap()
		default:
			return false
		}
	}
}

// Once calls On.Begin if it has not been called yet.
func (b *Begun) Once() {
	if !b.done {
		b.done = true
		b.On.Begin()
	}
}

// WriteHeader sends the headers.
func (b *Begun) WriteHeader(code int) {
	if code >= 200 || code == http.StatusSwitchingProtocols {
		b.Once()
	}
	b.ResponseWriter.WriteHeader(code)
}

// Write sends a part of the body.
func (b *Begun) Write(p []byte) (int, error) {
	b.Once()
	return b.ResponseWriter.Write(p)
}

// FlushError sends what is buffered, at least the headers.
func (b *Begun) FlushError() error {
	b.Once()
	return http.NewResponseController(b.ResponseWriter).Flush()
}

// Flush is FlushError for handlers that use http.Flusher.
func (b *Begun) Flush() { b.FlushError() }

// Hijack returns the connection.
func (b *Begun) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	b.Once()
	return http.NewResponseController(b.ResponseWriter).Hijack()
}
