package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// Bounds of a job. Chosen; a job is a part of one message of NATS, which carries a megabyte.
const (
	MaxBody     = 512 << 10
	MaxKey      = 256
	MaxTenant   = 128
	MaxHeaders  = 64
	MaxHeader   = 16 << 10 // names and values together
	MaxPriority = 9
	MaxCost     = 1 << 40
	MaxWait     = 10 * 366 * 24 * time.Hour // of At and MaxAge
)

// Jobs are stored many together: one message, one fsync. Chosen: 256 KB are read in a
// millisecond or two, and hold a thousand jobs of 250 bytes.
const (
	chunkBytes = 256 << 10
	chunkJobs  = 4096
)

// A chunk is a format, the number of jobs, and for each its length and itself.
const chunkFormat = 1

// ErrJob is wrapped by all that is wrong with a job.
var ErrJob = errors.New("impossible job")

var errChunk = errors.New("not a chunk of jobs, or a damaged one")

// check says what is wrong with a job, and fills in what was not said.
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
	case !printable(j.Key):
		return bad("the key holds what no header may hold, such as the end of a line")
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

// A head is what the line must know of a job.
type head struct {
	tenant   string
	key      []byte // a part of what was parsed
	priority uint8
	cost     int64
	at       int64 // milliseconds since 1970, 0: now
}

// appendJob writes a job as it is kept.
func appendJob(b []byte, j *Job) []byte {
	at := int64(0)
	if !j.At.IsZero() {
		at = j.At.UnixMilli()
	}
	b = append(b, byte(j.Priority))
	b = binary.AppendUvarint(b, uint64(j.Cost))
	b = binary.AppendUvarint(b, uint64(at))
	b = binary.AppendUvarint(b, uint64(j.MaxAge.Milliseconds()))
	b = appendText(appendText(b, j.Key), j.Tenant)
	b = binary.AppendUvarint(b, uint64(len(j.Headers)))
	for name, value := range j.Headers {
		b = appendText(appendText(b, name), value)
	}
	return append(b, j.Body...)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// A reader takes numbers and texts off the front of bytes. After a fault it gives zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() (c byte) {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c, r.b = r.b[0], r.b[1:]
	return c
}

// number is at most most.
func (r *reader) number(most uint64) uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > most {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[size:]
	return n
}

// take gives the next n bytes, not copied.
func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.b, r.bad = nil, true
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) text(most uint64) []byte { return r.take(r.number(most)) }

// parseHead reads a job up to its headers, which rest begins with.
func parseHead(b []byte) (h head, maxAge time.Duration, rest reader, ok bool) {
	r := reader{b: b}
	h.priority = min(r.byte(), MaxPriority)
	h.cost = max(1, int64(r.number(MaxCost)))
	h.at = int64(r.number(math.MaxInt64 / 1_000_000))
	maxAge = time.Duration(r.number(uint64(MaxWait/time.Millisecond))) * time.Millisecond
	h.key = r.text(MaxKey)
	h.tenant = string(r.text(MaxTenant))
	return h, maxAge, r, !r.bad
}

// parseJob reads a whole job. The body is a part of b.
func parseJob(b []byte) (j Job, ok bool) {
	h, maxAge, r, ok := parseHead(b)
	if !ok {
		return j, false
	}
	j = Job{Key: string(h.key), Tenant: h.tenant, Priority: int(h.priority), Cost: h.cost, MaxAge: maxAge}
	if h.at > 0 {
		j.At = time.UnixMilli(h.at)
	}
	if n := r.number(MaxHeaders); n > 0 {
		j.Headers = make(map[string]string, n)
		for range n {
			name := string(r.text(MaxHeader))
			j.Headers[name] = string(r.text(MaxHeader))
		}
	}
	j.Body = r.b
	return j, !r.bad
}

// A chunker packs jobs.
type chunker struct {
	n int
	b []byte
}

func (c *chunker) add(job []byte) {
	c.b = append(binary.AppendUvarint(c.b, uint64(len(job))), job...)
	c.n++
}

// bytes is the chunk.
func (c *chunker) bytes() []byte {
	b := make([]byte, 0, len(c.b)+6)
	b = append(b, chunkFormat)
	b = binary.AppendUvarint(b, uint64(c.n))
	return append(b, c.b...)
}

// parseChunk takes a chunk apart. The jobs are parts of b.
func parseChunk(b []byte) ([][]byte, error) {
	r := reader{b: b}
	format, n := r.byte(), r.number(chunkJobs)
	if format != chunkFormat || r.bad || n > uint64(len(r.b)) {
		return nil, errChunk
	}
	jobs := make([][]byte, n)
	for i := range jobs {
		jobs[i] = r.text(chunkBytes + 2*MaxBody)
	}
	if r.bad || len(r.b) > 0 {
		return nil, errChunk
	}
	return jobs, nil
}
