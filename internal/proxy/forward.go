package proxy

import (
	"context"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"
)

// noAgent keeps net/http from inventing a User-Agent.
var noAgent = []string{""}

// forward sends r to the origin and its answer to a, for every request that opens no WebSocket.
func (p *Proxy) forward(a *answer, r *http.Request) {
	var informed informer
	informed.to = a
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: informed.inform})
	pr := &httputil.ProxyRequest{In: r, Out: outgoing(ctx, r)}
	if body := pr.Out.Body; body != nil {
		defer body.Close() // the transport may still read it
	}
	p.rewrite(pr)
	res, err := p.carrier.RoundTrip(pr.Out)
	informed.end()
	if err != nil {
		p.fail(a, pr.Out, err)
		return
	}
	dropHopByHop(res.Header)
	if err := p.modify(res); err != nil {
		res.Body.Close()
		p.fail(a, pr.Out, err)
		return
	}
	p.pass(a, r, res)
}

// outgoing returns a copy of r to change: its header is a new map, whose values must not be changed.
func outgoing(ctx context.Context, r *http.Request) *http.Request {
	out := r.WithContext(ctx)
	url := *r.URL
	out.URL, out.Close = &url, false
	out.Header = make(http.Header, len(r.Header)+4)
	for name, values := range r.Header {
		if !hopByHop(name) && !claimsPath(name) {
			out.Header[name] = values
		}
	}
	dropListed(out.Header, r.Header["Connection"])
	if httpguts.HeaderValuesContainsToken(r.Header["Te"], "trailers") {
		out.Header["Te"] = []string{"trailers"}
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = noAgent
	}
	switch {
	case r.ContentLength == 0:
		out.Body = nil // net/http repeats only requests without a body
	case r.Body != nil:
		out.Body = &openBody{ReadCloser: r.Body}
	}
	return out
}

// claimsPath reports whether a header tells the path of a request through proxies. forwarded sets
// them anew.
func claimsPath(name string) bool {
	switch name {
	case "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto":
		return true
	}
	return false
}

// hopByHop reports whether a header applies to one connection only (RFC 9110, section 7.6.1). name is
// in canonical form.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// dropListed removes the headers that a Connection header lists. Most connections list nothing but
// close or keep-alive, which are no headers.
func dropListed(h http.Header, lines []string) {
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			name = textproto.TrimString(name)
			if !strings.EqualFold(name, "close") && !strings.EqualFold(name, "keep-alive") {
				delete(h, textproto.CanonicalMIMEHeaderKey(name))
			}
		}
	}
}

// dropHopByHop removes from an answer what applies to the origin's connection only.
func dropHopByHop(h http.Header) {
	dropListed(h, h["Connection"])
	for name := range h {
		if hopByHop(name) {
			delete(h, name)
		}
	}
}

// pass streams an answer of the origin to the client.
func (p *Proxy) pass(a *answer, r *http.Request, res *http.Response) {
	h := a.Header()
	addAll(h, res.Header, "")
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // or net/http's server would guess one
	}
	announced := len(res.Trailer)
	if announced > 0 {
		names := make([]string, 0, announced)
		for name := range res.Trailer {
			names = append(names, name)
		}
		h.Add("Trailer", strings.Join(names, ", "))
	}
	a.WriteHeader(res.StatusCode)
	err := p.stream(a, res)
	res.Body.Close() // this also fills res.Trailer
	if err != nil {
		if p.log != nil {
			p.log.Debug("an answer broke off, by the origin or the client", slog.Any("error", err))
		}
		if r.Context().Value(http.ServerContextKey) != nil {
			panic(http.ErrAbortHandler) // the answer must not look complete
		}
		return
	}
	if len(res.Trailer) == 0 {
		return
	}
	// Trailers need chunks: without this, net/http would give a short answer a Content-Length.
	http.NewResponseController(a).Flush()
	prefix := http.TrailerPrefix
	if len(res.Trailer) == announced {
		prefix = ""
	}
	addAll(h, res.Trailer, prefix)
}

// addAll adds the fields of from to h, with a prefix of their names. h then shares their values.
func addAll(h, from http.Header, prefix string) {
	for name, values := range from {
		name = prefix + name
		if prior := h[name]; len(prior) > 0 {
			values = append(slices.Clip(prior), values...)
		}
		h[name] = values
	}
}

// A ready body knows whether a part of it has been read ahead.
type ready interface{ Ready() bool }

// stream copies the body. Server-sent events and answers of unknown length are flushed whenever the
// origin has sent nothing more; those of known length may gather up to net/http's 4 KiB, which saves
// a system call for each of them.
func (p *Proxy) stream(a *answer, res *http.Response) error {
	if res.Body == http.NoBody {
		return nil
	}
	streams := res.ContentLength < 0 || isEventStream(res.Header)
	now, _ := res.Body.(ready)
	flush := func(more bool) {
		if streams && !more {
			http.NewResponseController(a).Flush() // if it fails, so does the next write
		}
	}
	more := func() bool { return now != nil && now.Ready() }
	flush(more()) // the headers: the body may come much later
	buf := p.buffers.Get()
	defer p.buffers.Put(buf)
	for {
		n, err := res.Body.Read(buf)
		if n > 0 {
			if _, werr := a.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			flush(n == 0) // what came before it broke off
			return err
		case n > 0:
			flush(n == len(buf) && more()) // Read stops early only if it would have to wait
		}
	}
}

func isEventStream(h http.Header) bool {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind == "text/event-stream"
}

// An informer passes 1xx answers on. net/http may call it when the final answer has begun.
type informer struct {
	to    *answer
	mu    sync.Mutex
	ended bool
}

func (i *informer) inform(code int, header textproto.MIMEHeader) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended {
		return nil
	}
	h := i.to.Header()
	addAll(h, http.Header(header), "")
	i.to.WriteHeader(code)
	clear(h)
	return nil
}

func (i *informer) end() {
	i.mu.Lock()
	i.ended = true
	i.mu.Unlock()
}

// An openBody is a client's body that transports cannot close: that would wait for the rest of it,
// which a client may send only after a 100 Continue. Close ends further reads.
type openBody struct {
	io.ReadCloser
	mu     sync.Mutex
	closed bool
}

// Read implements io.Reader.
func (b *openBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.ReadCloser.Read(p)
}

// Close implements io.Closer.
func (b *openBody) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	return nil
}
