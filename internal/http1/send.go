package http1

import (
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// A buffer holds the head of a request.
type buffer struct {
	b    []byte
	keys []string
}

// free keeps a buffer for the next request, unless a large one has made it large.
func (p *pool) free(h *buffer) {
	if cap(h.b) <= 16<<10 && cap(h.keys) <= 128 {
		clear(h.keys)
		h.b, h.keys = h.b[:0], h.keys[:0]
		p.heads.Put(h)
	}
}

// A badRequest is a request that cannot be sent.
type badRequest struct{ what, name string }

func (e *badRequest) Error() string {
	return "http1: invalid " + e.what + " " + strconv.Quote(e.name) + " in a request"
}

// head writes the request line and the headers, with the framing that net/http would choose (RFC
// 9112, section 6). Fields that frame a request are written only from what Go has parsed.
func (h *buffer) head(r *http.Request) error {
	uri := r.URL.RequestURI()
	if !httpguts.ValidHeaderFieldName(r.Method) {
		return &badRequest{"method", r.Method}
	}
	for i := range len(uri) {
		if uri[i] <= ' ' || uri[i] == 0x7f {
			return &badRequest{"address", uri}
		}
	}
	b := append(h.b[:0], r.Method...)
	b = append(b, ' ')
	b = append(b, uri...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, hostOf(r)...)
	b = append(b, "\r\n"...)
	// Like net/http: the first one only, and none if that is empty.
	if agents := r.Header["User-Agent"]; len(agents) > 0 && agents[0] != "" {
		if !httpguts.ValidHeaderFieldValue(agents[0]) {
			return &badRequest{"value of the header", "User-Agent"}
		}
		b = append(b, "User-Agent: "...)
		b = append(b, agents[0]...)
		b = append(b, "\r\n"...)
	}
	b = appendFraming(b, r)
	h.keys = h.keys[:0]
	for name := range r.Header {
		h.keys = append(h.keys, name)
	}
	slices.Sort(h.keys)
	for _, name := range h.keys {
		switch name {
		case "Host", "User-Agent", "Content-Length", "Transfer-Encoding", "Trailer":
			continue
		}
		if !httpguts.ValidHeaderFieldName(name) {
			return &badRequest{"header name", name}
		}
		for _, v := range r.Header[name] {
			if !httpguts.ValidHeaderFieldValue(v) {
				return &badRequest{"value of the header", name}
			}
			b = append(b, name...)
			b = append(b, ": "...)
			b = append(b, textproto.TrimString(v)...)
			b = append(b, "\r\n"...)
		}
	}
	h.b = append(b, "\r\n"...)
	return nil
}

func appendFraming(b []byte, r *http.Request) []byte {
	switch {
	case hasBody(r) && lengthOf(r) < 0:
		return append(b, "Transfer-Encoding: chunked\r\n"...)
	case hasBody(r):
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, r.ContentLength, 10)
		return append(b, "\r\n"...)
	case r.Method == http.MethodPost, r.Method == http.MethodPut, r.Method == http.MethodPatch:
		return append(b, "Content-Length: 0\r\n"...)
	}
	return b
}

// A sending is the body of a request on its way to the server.
type sending struct {
	conn  *conn
	done  chan struct{}
	err   error                 // valid when done is closed
	cause atomic.Pointer[error] // why the body could not be read; set before the connection is closed

	mu      sync.Mutex
	headers bool // the headers of the answer have come
}

// send begins to send a request with a body.
func (c *conn) send(r *http.Request, head *buffer) *sending {
	s := &sending{conn: c, done: make(chan struct{})}
	go s.run(head, r.Body, lengthOf(r))
	return s
}

// run sends the body. It ends when the connection is closed, or when the body returns.
func (s *sending) run(head *buffer, body io.Reader, length int64) {
	defer close(s.done)
	pool := s.conn.pool
	part := pool.chunks.Get().(*chunk)
	defer pool.chunks.Put(part)
	err, read := part.copy(s.conn, head.b, body, length)
	pool.free(head)
	if s.err = err; read {
		s.cause.Store(&err)
		s.conn.Close()
		return
	}
	// A server that closes its side may have answered before: read that in any case.
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.headers {
		s.conn.SetReadDeadline(time.Now().Add(pool.cfg.AnswerTimeout))
	}
}

// answered ends the time for the answer.
func (s *sending) answered() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.headers = true
	return s.conn.SetReadDeadline(time.Time{})
}

// lastWrite is how long a server that has answered may take to accept the rest of a request. It is
// the same as net/http's own: usually the whole body is sent, and only its goroutine has not run on.
const lastWrite = 50 * time.Millisecond

// ended reports whether the whole body was sent. If the server has answered without reading it, its
// connection is of no more use.
func (s *sending) ended() bool {
	select {
	case <-s.done:
		return s.err == nil
	default:
	}
	t := time.NewTimer(s.conn.pool.lastWrite)
	defer t.Stop()
	select {
	case <-s.done:
		return s.err == nil
	case <-t.C:
		return false
	}
}

// chunkSize is how much of a body is sent at once.
const chunkSize = 32 << 10

// sizeRoom is what the size of a chunk takes: 8 hexadecimal digits and CRLF.
const sizeRoom = 10

// A chunk is a part of a body, after room for its size and before room for CRLF.
type chunk struct {
	b [sizeRoom + chunkSize + 2]byte
}

// copy sends head and body. read reports whether err is that of the body.
//
// The head is sent at once: its client may wait for the answer before it goes on, and a server closes
// a kept connection on which nothing comes.
func (k *chunk) copy(to io.Writer, head []byte, body io.Reader, length int64) (err error, read bool) {
	if _, err := to.Write(head); err != nil {
		return err, false
	}
	if length < 0 {
		return k.chunked(to, body)
	}
	for length > 0 {
		n, err := readSome(body, k.b[:min(int64(len(k.b)), length)])
		length -= int64(n)
		if n > 0 {
			if _, err := to.Write(k.b[:n]); err != nil {
				return err, false
			}
		}
		switch {
		case err == nil, length == 0:
		case errors.Is(err, io.EOF):
			return errShort, true
		default:
			return err, true
		}
	}
	return nil, false
}

// chunked sends body in chunks (RFC 9112, section 7.1), each as it comes.
func (k *chunk) chunked(to io.Writer, body io.Reader) (err error, read bool) {
	for {
		n, err := readSome(body, k.b[sizeRoom:sizeRoom+chunkSize])
		if n > 0 {
			size := strconv.AppendInt(k.b[:0:sizeRoom], int64(n), 16)
			from := sizeRoom - len(size) - 2
			copy(k.b[from:], size)
			copy(k.b[sizeRoom-2:], "\r\n")
			copy(k.b[sizeRoom+n:], "\r\n")
			if _, err := to.Write(k.b[from : sizeRoom+n+2]); err != nil {
				return err, false
			}
		}
		if err == io.EOF { //nolint:errorlint // a wrapped one is no end: the body broke off
			_, err = io.WriteString(to, "0\r\n\r\n")
			return err, false
		} else if err != nil {
			return err, true
		}
	}
}

// readSome reads at least one byte, or returns an error. A reader may return neither for a while.
func readSome(r io.Reader, b []byte) (int, error) {
	for range 100 {
		if n, err := r.Read(b); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}
