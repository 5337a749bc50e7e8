package forwardauth

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/headgate/headgate/internal/guard"
)

// Bounds of a server. Chosen.
const (
	mostHead  = 64 << 10        // bytes of a question's head
	mostBody  = 1 << 20         // bytes of its body
	waitNext  = 2 * time.Minute // for the next question, and for a proxy that reads no answers
	stale     = 5 * time.Second // a deadline is renewed when it is this old
	drain     = 5 * time.Second // for questions in progress at the end
	keepEmpty = 64 << 10        // buffers of larger answers are not kept

	keepHeaders = 8 // a larger map is not kept
)

// Serve answers questions over HTTP/1.1 until ctx ends, and then closes l. It then waits at most 5 s
// for questions in progress, and returns nil.
//
// It exists because net/http takes twice the time of a decision for a question: it watches the
// connection during each request, sorts headers, and parses a target that decides nothing here. A
// question is complete before h gets it, and an answer is complete before it is sent, so h can
// neither stream nor take the connection over. h may change the request. Bodies are kept in memory, and
// a peer can open many connections, so only peers that trusts accepts may send one.
func Serve(
	ctx context.Context, l net.Listener, h http.Handler, trusts func(*http.Request) bool, log *slog.Logger,
) error {
	return guard.Serve(ctx, l, drain, func(hard context.Context) func(net.Conn) func() {
		return func(nc net.Conn) func() {
			c := &conn{Conn: nc, handler: h, trusts: trusts, log: log, soft: ctx,
				from: nc.RemoteAddr().String()}
			c.base = (&http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: c.from}).
				WithContext(hard)
			return c.serve
		}
	})
}

// A conn is a connection of a proxy.
type conn struct {
	net.Conn
	handler http.Handler
	trusts  func(*http.Request) bool
	log     *slog.Logger
	soft    context.Context // its end closes the connection after the current question
	base    *http.Request   // the copies have its context
	from    string

	head  io.LimitedReader
	read  *bufio.Reader
	write *bufio.Writer
	until time.Time // of the deadline
	out   answer

	target string  // of the last question
	at     url.URL // what it means
}

func (c *conn) serve() {
	defer c.Close()
	defer context.AfterFunc(c.soft, func() { c.SetReadDeadline(time.Unix(1, 0)) })()
	defer context.AfterFunc(c.base.Context(), func() { c.Close() })()
	defer func() {
		if x := recover(); x != nil {
			c.log.Error("a question ended in a panic", "panic", x, "stack", string(debug.Stack()))
		}
	}()
	c.head = io.LimitedReader{R: c.Conn}
	c.read, c.write = bufio.NewReader(&c.head), bufio.NewWriter(c.Conn)
	for c.next() {
	}
}

// next answers the next question, and reports whether another one may follow.
func (c *conn) next() (more bool) {
	now := time.Now()
	if c.until.Sub(now) < waitNext-stale {
		c.until = now.Add(waitNext)
		_ = c.SetDeadline(c.until) // an error shows in what follows
	}
	if c.soft.Err() != nil {
		return false
	}
	c.head.N = mostHead
	r, err := c.question()
	if e, ok := errors.AsType[*badQuestion](err); ok {
		c.out.reset()
		say(&c.out, e.code, e.text)
		_ = c.out.send(c.write, false, true) // the connection ends anyway
		return false
	} else if err != nil {
		return false
	}
	last := r.Close || httpguts.HeaderValuesContainsToken(r.Header["Connection"], "close")
	isHead := r.Method == http.MethodHead
	c.out.reset()
	c.handler.ServeHTTP(&c.out, r)
	last = last || httpguts.HeaderValuesContainsToken(c.out.header["Connection"], "close")
	return c.out.send(c.write, isHead, last) == nil && !last
}

// A badQuestion is a request that is not answered, because it cannot be read in one way only.
type badQuestion struct {
	code int
	text string
}

func (e *badQuestion) Error() string { return e.text }

// question reads a question. It accepts less than net/http: one Host, one Content-Length, no
// transfer coding.
func (c *conn) question() (*http.Request, error) {
	line, header, err := c.readHead()
	if err != nil {
		return nil, err
	}
	r := new(http.Request)
	*r = *c.base
	r.Header = header
	method, rest, _ := strings.Cut(line, " ")
	target, version, _ := strings.Cut(rest, " ")
	switch version {
	case "HTTP/1.1":
	case "HTTP/1.0":
		r.Close = true
	default:
		return nil, &badQuestion{http.StatusHTTPVersionNotSupported, "ask with HTTP/1.1"}
	}
	if target != c.target || target == "" { // a proxy asks at one address
		at, err := url.ParseRequestURI(target)
		if err != nil || target[0] != '/' {
			return nil, errLine
		}
		c.target, c.at = target, *at
	}
	if !httpguts.ValidHeaderFieldName(method) {
		return nil, errLine
	}
	hosts := header["Host"]
	if len(hosts) != 1 || !httpguts.ValidHostHeader(hosts[0]) {
		return nil, &badQuestion{http.StatusBadRequest, "send one Host"}
	}
	at := c.at
	r.Method, r.RequestURI, r.Host, r.URL = method, target, hosts[0], &at
	delete(header, "Host")
	return r, c.body(r)
}

var (
	errLine   = &badQuestion{http.StatusBadRequest, "the request line cannot be read"}
	errHeader = &badQuestion{http.StatusBadRequest, "a header cannot be read"}
)

// readHead reads the request line and the headers.
func (c *conn) readHead() (line string, h http.Header, err error) {
	if _, err := c.read.Peek(1); err != nil {
		return "", nil, err
	}
	if line, h = c.wholeHead(); h != nil {
		return line, h, nil
	}
	tp := textproto.Reader{R: c.read}
	var header textproto.MIMEHeader
	if line, err = tp.ReadLine(); err == nil {
		header, err = tp.ReadMIMEHeader()
	}
	_, malformed := errors.AsType[textproto.ProtocolError](err)
	switch {
	case err != nil && c.head.N <= 0:
		return "", nil, &badQuestion{http.StatusRequestHeaderFieldsTooLarge, "the headers are too large"}
	case malformed:
		return "", nil, errHeader
	case err != nil:
		return "", nil, err
	}
	for name, values := range header {
		if !httpguts.ValidHeaderFieldName(name) || slices.ContainsFunc(values, invalid) {
			return "", nil, errHeader
		}
	}
	return line, http.Header(header), nil
}

// wholeHead reads a head that is in the buffer as a whole, and has one reading only. Nearly all are so, and
// textproto, which reads line by line, would take a quarter of a decision's CPU time for it. h is nil for
// others.
func (c *conn) wholeHead() (line string, h http.Header) {
	b, _ := c.read.Peek(c.read.Buffered()) // it is in the buffer
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return "", nil
	}
	line, rest, more := strings.Cut(string(b[:end]), "\r\n")
	if strings.IndexByte(line, '\n') >= 0 {
		return "", nil
	}
	n := strings.Count(rest, "\r\n") + 1
	h = make(http.Header, n)
	values := make([]string, 0, n)
	for more {
		var field string
		field, rest, more = strings.Cut(rest, "\r\n")
		name, value, ok := strings.Cut(field, ":")
		if value = strings.Trim(value, " \t"); !ok || !httpguts.ValidHeaderFieldName(name) || invalid(value) {
			return "", nil
		}
		name = http.CanonicalHeaderKey(name)
		value = strings.Clone(value) // what a room keeps must not keep the head
		if had := h[name]; had != nil {
			h[name] = append(had, value)
			continue
		}
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	_, _ = c.read.Discard(end + 4)
	return line, h
}

func invalid(value string) bool { return !httpguts.ValidHeaderFieldValue(value) }

// body reads the body of a question.
func (c *conn) body(r *http.Request) error {
	r.Body = http.NoBody
	lengths, codings := r.Header["Content-Length"], r.Header["Transfer-Encoding"]
	var body io.Reader
	switch {
	case len(lengths) == 0 && len(codings) == 0:
		return nil // also with Expect: Caddy and Traefik send that of the visitor, without the body
	case len(r.Header["Expect"]) > 0:
		return &badQuestion{http.StatusExpectationFailed, "send the body without Expect"}
	case len(lengths) == 0 && len(codings) == 1 && codings[0] == "chunked" && !r.Close &&
		len(r.Header["Trailer"]) == 0:
		body = httputil.NewChunkedReader(c.read)
		delete(r.Header, "Transfer-Encoding")
	case len(lengths) == 1 && len(codings) == 0:
		n, err := strconv.ParseUint(lengths[0], 10, 63)
		if err != nil {
			return &badQuestion{http.StatusBadRequest, "Content-Length is no number"}
		}
		body = io.LimitReader(c.read, int64(n))
		r.ContentLength = int64(n)
	default:
		return &badQuestion{http.StatusBadRequest, "send one Content-Length, or Transfer-Encoding: chunked"}
	}
	if !c.trusts(r) {
		return &badQuestion{http.StatusForbidden, forStrangers}
	}
	c.head.N = 2 * mostBody // with the lengths of chunks
	b, err := io.ReadAll(io.LimitReader(body, mostBody+1))
	switch {
	case err != nil:
		return err
	case len(b) > mostBody:
		return &badQuestion{http.StatusRequestEntityTooLarge, "the body is too large"}
	case len(codings) > 0:
		end, err := c.read.Peek(2)
		if err != nil {
			return err
		}
		if string(end) != "\r\n" {
			return &badQuestion{http.StatusBadRequest, "send no trailers"}
		}
		_, _ = c.read.Discard(2) // they are in the buffer
	case int64(len(b)) < r.ContentLength:
		return io.ErrUnexpectedEOF
	}
	if r.ContentLength = int64(len(b)); len(b) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(b))
	}
	return nil
}

// An answer is kept until it is complete. It is the http.ResponseWriter of the handler.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
	line   []byte
}

func (a *answer) reset() {
	if a.code = 0; a.header == nil || len(a.header) > keepHeaders {
		a.header = make(http.Header, keepHeaders)
	}
	clear(a.header)
	if a.body.Reset(); a.body.Cap() > keepEmpty {
		a.body = bytes.Buffer{}
	}
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if a.code == 0 && code >= 200 {
		a.code = code
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// breaks are what would end a header.
var breaks = strings.NewReplacer("\r", " ", "\n", " ")

// send writes the answer.
func (a *answer) send(w *bufio.Writer, isHead, last bool) error {
	a.WriteHeader(http.StatusOK)
	b := append(a.line[:0], "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(a.code), 10)
	b = append(append(append(b, ' '), http.StatusText(a.code)...), "\r\n"...)
	// Only connectors read the date of a decision: they measure the rest of the pass by it.
	if a.code != http.StatusNoContent || a.header[LocalHeader] != nil {
		b = append(time.Now().UTC().AppendFormat(append(b, "Date: "...), http.TimeFormat), "\r\n"...)
	}
	for name, values := range a.header {
		switch name {
		case "Connection", "Transfer-Encoding", "Content-Length", "Date":
			continue
		}
		for _, v := range values {
			if strings.IndexByte(v, '\n') >= 0 || strings.IndexByte(v, '\r') >= 0 {
				v = breaks.Replace(v)
			}
			b = append(append(append(append(b, name...), ": "...), v...), "\r\n"...)
		}
	}
	if last {
		b = append(b, "Connection: close\r\n"...)
	}
	empty := a.code == http.StatusNoContent || a.code == http.StatusNotModified
	if !empty {
		n := int64(a.body.Len())
		if length := a.header["Content-Length"]; isHead && n == 0 && len(length) == 1 {
			n, _ = strconv.ParseInt(length[0], 10, 64)
		}
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), n, 10), "\r\n"...)
	}
	b = append(b, "\r\n"...)
	a.line = b
	_, err := w.Write(b)
	if err == nil && !empty && !isHead {
		_, err = w.Write(a.body.Bytes())
	}
	return cmp.Or(err, w.Flush())
}
