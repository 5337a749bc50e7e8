package wire

import (
	"bufio"
	"net"
	"net/http"
)

// A Begun calls On.Begin once, before the headers of an answer go out: those of 101 too, and of
// other informational answers not.
type Begun struct {
	http.ResponseWriter
	On   interface{ Begin() }
	done bool
}

// Unwrap lets http.ResponseController flush and hijack.
func (b *Begun) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// Once calls On.Begin, unless that has been done.
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

// FlushError sends what there is, the headers at least.
func (b *Begun) FlushError() error {
	b.Once()
	return http.NewResponseController(b.ResponseWriter).Flush()
}

// Flush is FlushError for handlers that look for a http.Flusher.
func (b *Begun) Flush() { b.FlushError() }

// Hijack hands out the connection.
func (b *Begun) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	b.Once()
	return http.NewResponseController(b.ResponseWriter).Hijack()
}
