package ratelimit

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/numbers"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/limit"
)

// A Settle says where the answer tells what a call has cost. Exactly one of Header, Field, and the pair of
// Input and Output is set. A JSON answer and the events of a stream are read while they pass. An answer that
// tells no cost costs what was estimated, and nothing if its status is 400 or above. When a stream breaks
// off, what was seen counts: each event is at least one output token, and where no usage was seen, Cost
// stands for the input. A client that leaves before the answer (status 499), whose session ends before it, or
// whose answer takes too long (status 504) pays the estimate: the origin may have done the work.
type Settle struct {
	Header string // an answer header with the cost, a whole number
	Field  string // the keys that lead to the cost in JSON, with dots between them: "usage.credits"

	// Input and Output are the costs of a token that a model has read and written, as the usage in the
	// formats of OpenAI and Anthropic counts them. Tokens that are read from a cache, or written to one,
	// count as read.
	Input, Output int64
}

// allInput is the path of all tokens that were read, those from a cache too. A server that speaks the formats
// of OpenAI and Anthropic at once has this sum and its parts, which must not be counted twice.
const allInput = "usage.prompt_tokens"

// inputPaths and outputPaths are the paths of tokens. Of each row the greatest counts, and the rows are
// added.
func inputPaths() [][]string {
	return [][]string{
		{"usage.input_tokens", "message.usage.input_tokens", "response.usage.input_tokens"},
		{"usage.cache_creation_input_tokens", "message.usage.cache_creation_input_tokens"},
		{"usage.cache_read_input_tokens", "message.usage.cache_read_input_tokens"},
	}
}

func outputPaths() [][]string {
	return [][]string{{"usage.completion_tokens", "usage.output_tokens", "message.usage.output_tokens",
		"response.usage.output_tokens"}}
}

// A rate is the cost of what some paths count.
type rate struct {
	cost   int64
	output bool
	whole  int   // number of paths that have the sum
	first  int   // index of the first path
	rows   []int // number of paths of each row
}

// rates returns the paths of the answer, and what each of them costs.
func (s *Settle) rates() (paths []string, all []rate) {
	add := func(cost int64, output bool, whole []string, rows ...[]string) {
		if cost == 0 {
			return
		}
		r := rate{cost: cost, output: output, whole: len(whole), first: len(paths)}
		paths = append(paths, whole...)
		for _, row := range rows {
			paths = append(paths, row...)
			r.rows = append(r.rows, len(row))
		}
		all = append(all, r)
	}
	if s.Field != "" {
		add(1, false, nil, []string{s.Field})
	}
	add(s.Input, false, []string{allInput}, inputPaths()...)
	add(s.Output, true, nil, outputPaths()...)
	return paths, all
}

// Bodies of requests that are read before the limits are checked. Chosen: room for a long conversation
// with some pictures, and for sixteen of them at once in one handler, eight of them of one network. Clients
// that send slowly must not keep that room from others.
const (
	mostBody   = 4 << 20
	mostBodies = 16 * mostBody
	bodyTime   = 30 * time.Second
)

// bodyNetwork names the network of a client for the room that bodies take. Chosen: who rents a server in IPv6
// often has 65,536 networks of 64 bits.
func bodyNetwork(a netip.Addr) string { return addressKey(&KeyPart{Prefix4: 24, Prefix6: 48}, a) }

// A bodyReader reads the bodies of the requests of one handler, and bounds what they take together. A network
// may take as much as is left for the others, so half of it alone. The bound of each falls as the room fills
// (A. Choudhury, E. Hahne, "Dynamic Queue Length Thresholds", 1998).
type bodyReader struct {
	mu   sync.Mutex
	held int64
	by   map[string]int64 // network: of held
}

// take counts n bytes of a network, and reports whether there is room for them.
func (a *bodyReader) take(network string, n int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by == nil {
		a.by = map[string]int64{}
	}
	a.held += n
	a.by[network] += n
	return a.by[network] <= mostBodies-a.held
}

// give gives back n bytes of a network.
func (a *bodyReader) give(network string, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held -= n
	if a.by[network] -= n; a.by[network] == 0 {
		delete(a.by, network)
	}
}

// A readBody is the body of a request that was read. What it takes is free once it was read again.
type readBody struct {
	body    io.ReadCloser // of the connection
	reader  *bodyReader
	network string // of the client

	mu     sync.Mutex // guards the fields below: a transport may continue to read while the handler ends
	text   bytes.Reader
	size   int64
	closed bool
}

// Close implements io.Closer.
func (b *readBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.free()
	return b.body.Close()
}

// Read reads again what was read. After Close that must not look like the end of a shorter body.
func (b *readBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.text.Read(p)
	if errors.Is(err, io.EOF) {
		b.free()
	}
	return n, err
}

// free gives back what the text takes. The caller holds mu.
func (b *readBody) free() {
	b.reader.give(b.network, b.size)
	b.size = 0
	b.text.Reset(nil)
}

// end puts the body of the request back.
func (b *readBody) end(r *http.Request) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.free()
	r.Body = b.body
}

// A receiver reads the body of a connection, and counts what it takes.
type receiver struct{ *readBody }

var (
	errTooLarge = &bodyError{http.StatusRequestEntityTooLarge,
		"The body is too large: here it may have " + strconv.Itoa(mostBody) + " bytes."}
	errTooMany = &bodyError{http.StatusServiceUnavailable, "Too many bodies are read at this moment. Try again."}
)

func (b receiver) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.size += int64(n)
	switch fits := b.reader.take(b.network, int64(n)); {
	case b.size > mostBody:
		return n, errTooLarge
	case !fits:
		return n, errTooMany
	}
	return n, err
}

// A bodyError is an error of a request's body, with the status of the answer.
type bodyError struct {
	status int
	text   string
}

func (e *bodyError) Error() string { return e.text }

// unread returns the answer to a request whose body could not be read.
func unread(err error) *bodyError {
	if e, ok := errors.AsType[*bodyError](err); ok {
		return e
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &bodyError{http.StatusRequestEntityTooLarge, "The body is too large."}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &bodyError{http.StatusRequestTimeout, "The body came too slowly."}
	}
	return &bodyError{http.StatusBadRequest, "The body could not be read."}
}

// isCoded reports whether the body of r is compressed.
func isCoded(r *http.Request) bool {
	for name, values := range r.Header {
		if wire.SameName(name, "Content-Encoding") && slices.ContainsFunc(values, func(v string) bool {
			return !strings.EqualFold(v, "identity")
		}) {
			return true
		}
	}
	return false
}

// read reads the body of r, finds the fields in it, and puts a copy in its place.
func (a *bodyReader) read(
	w http.ResponseWriter, r *http.Request, fields map[*RequestLimit]*numbers.Scanner,
) (*readBody, *bodyError) {
	network := ""
	for l := range fields {
		network = bodyNetwork(l.Addr(r))
	}
	if isCoded(r) {
		return nil, &bodyError{http.StatusUnsupportedMediaType, "The body must not be compressed here."}
	}
	if r.ContentLength > mostBody {
		return nil, errTooLarge
	}
	b := &readBody{body: r.Body, reader: a, network: network}
	conn := http.NewResponseController(w) // only writers in tests have no deadlines
	_ = conn.SetReadDeadline(time.Now().Add(bodyTime))
	text, err := io.ReadAll(receiver{b})
	if err != nil {
		b.free()
		return nil, unread(err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	isJSON := len(text) == 0 || utf8.Valid(text) && json.Valid(text)
	for l, s := range fields {
		_, _ = s.Write(text)
		s.End()
		if n, _ := s.Value(0); !isJSON || s.Err() != nil || n > limit.MaxAmount {
			b.free()
			return nil, &bodyError{http.StatusBadRequest, "The body must be JSON, in which " + l.CostField +
				" is one whole number from 0 to " + strconv.FormatInt(limit.MaxAmount, 10) + ", or is missing."}
		}
	}
	b.text.Reset(text)
	r.Body = b
	return b, nil
}

// estimate returns the estimate of a request in whose body CostField is many.
func (l *RequestLimit) estimate(many int64) int64 {
	each := int64(1)
	if l.Settle != nil {
		each = max(1, l.Settle.Output)
	}
	return sum(l.Cost, times(many, each))
}

// times and sum stay within limit.MaxAmount.
func times(n, by int64) int64 {
	if by > 0 && n > limit.MaxAmount/by {
		return limit.MaxAmount
	}
	return n * by
}

func sum(a, b int64) int64 { return min(a+b, limit.MaxAmount) }

// A meter finds the cost of one call in its answer, for one limit.
type meter struct {
	settle *Settle
	rates  []rate
	stream numbers.Stream
	header int64 // the cost that the header says, -1: none
}

func newMeter(s *Settle) *meter {
	paths, rates := s.rates()
	return &meter{settle: s, rates: rates, header: -1,
		stream: numbers.Stream{Scanner: numbers.NewScanner(paths...)}}
}

// begin reads the header of the answer.
func (m *meter) begin(h http.Header) {
	if all := h[m.settle.Header]; len(all) == 1 {
		if n, err := strconv.ParseUint(all[0], 10, 63); err == nil && n <= limit.MaxAmount {
			m.header = int64(n)
		}
	}
}

// cost returns the cost that the answer tells. ok is false if it tells none. brokenOff is an answer that
// did not come to its end.
func (m *meter) cost(brokenOff bool) (n int64, ok bool) {
	if m.settle.Header != "" {
		return m.header, m.header >= 0
	}
	m.stream.End()
	if m.stream.Err() != nil { // a number that is none
		return 0, false
	}
	for _, r := range m.rates {
		at := r.first
		greatest := func(paths int) (most int64) {
			for range paths {
				v, found := m.stream.Value(at)
				most, ok = max(most, v), ok || found
				at++
			}
			return min(most, limit.MaxAmount)
		}
		whole, count := greatest(r.whole), int64(0)
		for _, row := range r.rows {
			count = sum(count, greatest(row))
		}
		count = max(count, whole)
		if r.output && brokenOff && m.stream.Since >= endEvents {
			count = max(count, m.stream.Events)
		}
		n = sum(n, times(count, r.cost))
	}
	return n, ok
}

// endEvents is how many events after the last usage show that more was on its way: one may end the message.
const endEvents = 2

// What an answer is.
const (
	asOther = iota
	asJSON
	asStream
)

// statusClientGone is the status of a handler whose client left before an answer, as proxies write it.
const statusClientGone = 499

// A meteredAnswer lets meters read an answer while it is written.
type meteredAnswer struct {
	wire.CountedAnswer
	meters []*meter
	of     []int // the limit of each meter
	status int   // 0: nothing was written
	as     int
}

func (a *meteredAnswer) add(limit int, s *Settle) {
	a.meters, a.of = append(a.meters, newMeter(s)), append(a.of, limit)
}

// cost returns the real cost of a call for a limit of c. a is nil if the handler was not called.
func (a *meteredAnswer) cost(c *call, limit int) int64 {
	if a == nil {
		return 0
	}
	m, brokenOff := a.meters[slices.Index(a.of, limit)], !c.done || c.r.Context().Err() != nil
	n, ok := m.cost(brokenOff)
	switch l := c.met[limit]; {
	case ok:
		return n
	// Nobody knows what the origin has done for it.
	case a.status == statusClientGone, a.status == http.StatusGatewayTimeout,
		a.status >= http.StatusBadRequest && c.r.Context().Err() != nil:
	case a.status >= http.StatusBadRequest:
		return 0
	case brokenOff && m.stream.Events > 0 && l.Settle.Output > 0:
		return min(c.asks[limit].Cost, sum(l.Cost, times(m.stream.Events, l.Settle.Output)))
	}
	return c.asks[limit].Cost
}

// WriteHeader begins the answer.
func (a *meteredAnswer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.begin(status)
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *meteredAnswer) begin(status int) {
	a.status = status
	h := a.Header()
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	coded := h.Get("Content-Encoding")
	switch {
	case coded != "" && !strings.EqualFold(coded, "identity"):
	case kind == "text/event-stream":
		a.as = asStream
	case kind == "application/json", strings.HasSuffix(kind, "+json"), kind == "application/x-ndjson",
		kind == "application/jsonl":
		a.as = asJSON
	}
	for _, m := range a.meters {
		m.begin(h)
	}
}

// Write implements io.Writer. What the handler has written counts, also if the client is gone.
func (a *meteredAnswer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.begin(http.StatusOK)
	}
	n, err := a.CountedAnswer.Write(p)
	for _, m := range a.meters {
		switch a.as {
		case asJSON:
			_, _ = m.stream.Scanner.Write(p)
		case asStream:
			_, _ = m.stream.Write(p)
		}
	}
	return n, err
}
