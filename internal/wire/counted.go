package wire

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
)

// A CountedBody counts what is read of a request's body. A transport may continue to read while the
// handler ends.
type CountedBody struct {
	io.ReadCloser
	N atomic.Int64
}

// Read implements io.Reader.
func (b *CountedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.N.Add(int64(n))
	return n, err
}

// A CountedAnswer counts what is written of an answer's body.
type CountedAnswer struct {
	http.ResponseWriter
	N int64
}

// Unwrap lets http.ResponseController flush and hijack.
func (a *CountedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Write implements io.Writer.
func (a *CountedAnswer) Write(p []byte) (int, error) {
	n, err := a.ResponseWriter.Write(p)
	a.N += int64(n)
	return n, err
}

// FlushError sends what is buffered.
func (a *CountedAnswer) FlushError() error {
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Flush is FlushError for handlers that use http.Flusher.
func (a *CountedAnswer) Flush() { a.FlushError() }

// Hijack returns the connection.
func (a *CountedAnswer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(a.ResponseWriter).Hijack()
}
