package queue

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/codec"
)

// Limits of a job. They are chosen; a job is part of one NATS message, which holds at most a
// megabyte.
const (
	MaxBody     = 512 << 10 // bytes
	MaxKey      = 256       // bytes, also of an order key
	MaxTenant   = 128       // bytes
	MaxHeaders  = 64        // number of headers
	MaxHeader   = 16 << 10  // bytes, names and values together
	MaxPriority = 9
	MaxCost     = 1 << 40
	MaxWait     = 10 * 366 * 24 * time.Hour // for At and MaxAge
)

// Jobs are stored in chunks: one message and one fsync for many jobs. The sizes are chosen: reading
// 256 KB takes one or two milliseconds, and 256 KB hold a thousand jobs of 250 bytes.
const (
	chunkBytes = 256 << 10
	chunkJobs  = 4096
)

// chunkFormat is the first byte of a chunk. The number of jobs follows, then the length and the
// bytes of each job.
const chunkFormat = 1

// ErrJob is wrapped by every error about an invalid job.
var ErrJob = errors.New("invalid job")

var errChunk = errors.New("not a chunk of jobs, or a damaged one")

// check returns an error if a job is invalid, and fills in defaults.
func (j *Job) check(now time.Time) error {
	bad := func(format string, v ...any) error {
		return fmt.Errorf("%w: %s", ErrJob, fmt.Sprintf(format, v...))
	}
	if j.Cost == 0 {
		j.Cost = 1
	}
	switch {
	case len(j.Body) > MaxBody:
		return bad("the body is %d bytes, and %d are the most: store it elsewhere, and put where",
			len(j.Body), MaxBody)
	case len(j.Key) > MaxKey:
		return bad("the key is %d bytes, and %d are the most", len(j.Key), MaxKey)
	case len(j.Tenant) > MaxTenant:
		return bad("the tenant is %d bytes, and %d are the most", len(j.Tenant), MaxTenant)
	// The key is sent to the target as a header.
	case !printable(j.Key):
		return bad("the key has characters that no header may have, such as the end of a line")
	case len(j.OrderKey) > MaxKey:
		return bad("the order key is %d bytes, and %d are the most", len(j.OrderKey), MaxKey)
	case !printable(j.OrderKey):
		return bad("the order key has characters that no header may have, such as the end of a line")
	case j.OrderKey != "" && len(j.Headers) >= MaxHeaders:
		return bad("%d headers and an order key: it is a header too, and %d are the most", len(j.Headers),
			MaxHeaders)
	case j.Schedule != "":
		return bad("only the queue itself can say that a schedule has put it")
	case j.Priority < 0 || j.Priority > MaxPriority:
		return bad("the priority is %d, want 0 to %d", j.Priority, MaxPriority)
	case j.Cost < 0 || j.Cost > MaxCost:
		return bad("the cost is %d, want 1 to 2^40", j.Cost)
	case j.MaxAge < 0 || j.MaxAge > MaxWait:
		return bad("the greatest age is %v, want 0 to ten years", j.MaxAge)
	case !j.At.IsZero() && (j.At.Unix() < 0 || j.At.Sub(now) > MaxWait):
		return bad("at is %v, want 1970 to ten years from now", j.At)
	}
	if err := CheckHeaders(j.Headers, false); err != nil {
		return fmt.Errorf("%w: %w", ErrJob, err)
	}
	return nil
}

// A head is the part of a job that the index needs.
type head struct {
	tenant   string
	key      []byte // points into the parsed bytes
	order    []byte // so does the order key
	schedule []byte // and the name of the schedule that has put it
	priority uint8
	cost     int64
	at       int64 // milliseconds since 1970, 0: now
}

// appendJob appends the stored form of a job to b.
func appendJob(b []byte, j *Job) []byte {
	at := int64(0)
	if !j.At.IsZero() {
		at = j.At.UnixMilli()
	}
	b = append(b, byte(j.Priority))
	b = codec.AppendUint(b, uint64(j.Cost), uint64(at), uint64(j.MaxAge.Milliseconds()))
	b = codec.AppendText(codec.AppendText(b, j.Key), j.Tenant)
	first := 0 // these headers are the first ones: parseHead reads no further
	for _, v := range []string{j.Schedule, j.OrderKey} {
		if v != "" {
			first++
		}
	}
	b = codec.AppendUint(b, uint64(len(j.Headers)+first))
	if j.Schedule != "" {
		b = codec.AppendText(codec.AppendText(b, scheduleHeader), j.Schedule)
	}
	if j.OrderKey != "" {
		b = codec.AppendText(codec.AppendText(b, orderHeader), j.OrderKey)
	}
	for name, value := range j.Headers {
		b = codec.AppendText(codec.AppendText(b, name), value)
	}
	return append(b, j.Body...)
}

// parseHead parses a job up to its headers. rest begins with the headers.
func parseHead(b []byte) (h head, maxAge time.Duration, rest codec.Reader, ok bool) {
	r := codec.NewReader(b)
	h.priority = min(r.Byte(), MaxPriority)
	h.cost = max(1, int64(r.UpTo(MaxCost)))
	h.at = int64(r.UpTo(math.MaxInt64 / 1_000_000))
	maxAge = time.Duration(r.UpTo(uint64(MaxWait/time.Millisecond))) * time.Millisecond
	h.key = r.Bytes(MaxKey)
	h.tenant = r.Text(MaxTenant)
	headers := r
	n := headers.UpTo(MaxHeaders)
	if n == 0 {
		return h, maxAge, r, !r.Bad()
	}
	name := headers.Bytes(MaxHeader)
	if string(name) == scheduleHeader {
		if h.schedule = headers.Bytes(MaxKey); n > 1 {
			name = headers.Bytes(MaxHeader)
		}
	}
	if string(name) == orderHeader {
		h.order = headers.Bytes(MaxKey)
	}
	return h, maxAge, r, !r.Bad()
}

// parseJob parses a whole job. The body points into b.
func parseJob(b []byte) (j Job, ok bool) {
	h, maxAge, r, ok := parseHead(b)
	if !ok {
		return j, false
	}
	j = Job{Key: string(h.key), OrderKey: string(h.order), Tenant: h.tenant, Priority: int(h.priority),
		Cost: h.cost, MaxAge: maxAge, Schedule: string(h.schedule)}
	if h.at > 0 {
		j.At = time.UnixMilli(h.at)
	}
	if n := r.UpTo(MaxHeaders); n > 0 {
		j.Headers = make(map[string]string, n)
		for range n {
			name := r.Text(MaxHeader)
			j.Headers[name] = r.Text(MaxHeader)
		}
		delete(j.Headers, orderHeader)
		if delete(j.Headers, scheduleHeader); len(j.Headers) == 0 {
			j.Headers = nil
		}
	}
	j.Body = r.Rest()
	return j, !r.Bad()
}

// A chunker packs jobs into a chunk.
type chunker struct {
	n int
	b []byte
}

func (c *chunker) add(job []byte) {
	c.b = codec.AppendText(c.b, job)
	c.n++
}

// bytes returns the chunk.
func (c *chunker) bytes() []byte {
	b := make([]byte, 0, len(c.b)+6)
	b = append(b, chunkFormat)
	b = codec.AppendUint(b, uint64(c.n))
	return append(b, c.b...)
}

// parseChunk splits a chunk into jobs. The jobs point into b.
func parseChunk(b []byte) ([][]byte, error) {
	r := codec.NewReader(b)
	format, n := r.Byte(), r.Count(chunkJobs)
	if format != chunkFormat || r.Bad() {
		return nil, errChunk
	}
	jobs := make([][]byte, n)
	for i := range jobs {
		jobs[i] = r.Bytes(chunkBytes + 2*MaxBody)
	}
	if !r.Done() {
		return nil, errChunk
	}
	return jobs, nil
}

// A chunkCache holds the chunks that were read most recently.
type chunkCache struct {
	mu    sync.Mutex
	all   map[uint64]*readChunk
	order []uint64
	bytes int
}

// CheckHeaders returns an error if the headers of a job are invalid. With fixed it checks the
// headers that an operator adds to all jobs, which may include Host. An error names the header but
// never its value.
func CheckHeaders(headers map[string]string, fixed bool) error {
	if len(headers) > MaxHeaders {
		return fmt.Errorf("%d headers, want at most %d", len(headers), MaxHeaders)
	}
	var all []error
	size, seen := 0, []string(nil)
	for name, value := range headers {
		size += len(name) + len(value)
		canonical := HeaderName(name)
		switch {
		case !token(name):
			all = append(all, fmt.Errorf("%.64q is not a header name", name))
		case ours(canonical) || canonical == "Host" && !fixed:
			all = append(all, fmt.Errorf("header %.64q must not be set: remove it", name))
		case strings.Contains(name, "_") && !fixed: // many servers treat _ like -: Webhook_Id
			all = append(all, fmt.Errorf("header %.64q: write - instead of _", name))
		case slices.Contains(seen, canonical):
			all = append(all, fmt.Errorf("header %.64q is there twice", name))
		case !printable(value):
			all = append(all, fmt.Errorf("header %.64q has characters that no header may have, such as "+
				"the end of a line", name))
		}
		seen = append(seen, canonical)
	}
	if size > MaxHeader {
		all = append(all, fmt.Errorf("headers of %d bytes, want at most %d", size, MaxHeader))
	}
	slices.SortFunc(all, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(all...)
}

// printable reports whether s is a valid header value (RFC 9110 §5.5).
func printable(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

type readChunk struct {
	jobs  [][]byte
	at    time.Time
	bytes int
}

// ours reports whether only the sender may set a header: those of the connection (RFC 9110 §7.6.1),
// of the body length and of the delivery.
func ours(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length", "Expect", "Idempotency-Key", "X-Idempotency-Key":
		return true
	}
	return strings.HasPrefix(name, "Proxy-") || strings.HasPrefix(name, "Headgate-") ||
		strings.HasPrefix(name, "Webhook-")
}

// HeaderName returns a header name in the form in which servers pass it to CGI programs. There,
// Webhook.Id and Webhook_Id are both Webhook-Id.
func HeaderName(name string) string {
	return http.CanonicalHeaderKey(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name))
}

// token reports whether s is a valid header name (RFC 9110 §5.6.2).
func token(s string) bool {
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}
