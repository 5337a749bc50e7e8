package quota

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/limit"
)

// wireFormat is the format of all messages. They are never kept, so only this one is read.
const wireFormat = 1

// Bounds of a message. Chosen: what they allow is below the megabyte that NATS carries.
const (
	mostAsks  = 512 // sent in one message
	mostItems = 4096
	mostName  = 64
	mostKey   = 1024
)

// renewal is what a call under way is settled to whose lease begins anew. Chosen: a program
// that knows no renewals refuses it as no cost, and changes nothing.
const renewal = -1

// gathered is what is looked for when all who hold some of a key are to say what they have used
// of it, and to give back the rest. Chosen: a program that does not know it looks, and no more.
const gathered = -1

// errMessage: a message that this program cannot read.
var errMessage = errors.New("message of another format, or damaged")

// kind is what is asked of the host of a key.
type kind uint8

const (
	kindBorrow kind = iota + 1
	kindTake        // at once: of what is never lent
	kindReserve
	kindSettle
	kindPeek
	kindReset
	kindBook // has been used, whatever there is
	kindLast
)

// A request is one question about one key.
type request struct {
	kind  kind
	shard byte
	limit string
	key   string
	limit.Report
	n   int64
	ttl time.Duration
	id  uint64
}

// renews reports whether the lease of a call under way begins anew.
func (r *request) renews() bool { return r.kind == kindSettle && r.n == renewal }

// gathers reports whether others are to say what they have used.
func (r *request) gathers() bool { return r.kind == kindPeek && r.n == gathered }

// status says whether a request was decided.
type status uint8

const (
	decided    status = iota
	again             // others hold some, and were asked for it
	moved             // another process hosts the key
	unknown           // there is no such limit
	impossible        // the cost
	noHold            // no such reservation
	lastStatus
)

// A reply answers a request.
type reply struct {
	status status
	limit.Decision
	given int64
}

func appendInts(b []byte, vs ...int64) []byte {
	for _, v := range vs {
		b = binary.AppendVarint(b, v)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendRequests appends a message. A name that is that of the request before is left out.
func appendRequests(b []byte, who uint64, rs []*request) []byte {
	b = append(b, wireFormat)
	b = binary.LittleEndian.AppendUint64(b, who)
	b = appendInts(b, int64(len(rs)))
	last := ""
	for _, r := range rs {
		b = append(b, byte(r.kind), r.shard)
		if r.limit == last {
			b = append(b, 0)
		} else {
			b, last = appendText(b, r.limit), r.limit
		}
		b = appendText(b, r.key)
		switch r.kind {
		case kindBorrow:
			flags := int64(0)
			if r.Close {
				flags = 1
			}
			if r.Spread {
				flags |= 2
			}
			b = appendInts(b, int64(r.Loan), r.Used, r.Back, int64(r.Age), r.Need, r.Least, r.Want, flags,
				r.Held, r.Weight, r.More)
		case kindTake, kindPeek, kindBook:
			b = appendInts(b, r.n)
		case kindReserve:
			b = appendInts(b, r.n, int64(r.ttl))
		case kindSettle:
			b = appendInts(b, r.n, int64(r.id))
		}
	}
	return b
}

// parseRequests reads what appendRequests wrote.
func parseRequests(b []byte) (who uint64, rs []request, err error) {
	d, err := newReader(b)
	if err != nil {
		return 0, nil, err
	}
	who = d.uint64()
	rs = make([]request, d.count())
	last := ""
	for i := range rs {
		r := &rs[i]
		r.kind, r.shard = kind(d.byte()), d.byte()
		if r.limit = d.text(mostName); r.limit == "" {
			r.limit = last
		}
		last = r.limit
		r.key, r.Who = d.text(mostKey), who
		switch r.kind {
		case kindBorrow:
			r.Loan, r.Used, r.Back, r.Age = uint64(d.int()), d.int(), d.int(), time.Duration(d.int())
			r.Need, r.Least, r.Want = d.int(), d.int(), d.int()
			flags := d.int()
			r.Close, r.Spread = flags&1 != 0, flags&2 != 0
			r.Held, r.Weight, r.More = d.int(), d.int(), d.int()
		case kindTake, kindPeek, kindBook:
			r.n = d.int()
		case kindReserve:
			r.n, r.ttl = d.int(), time.Duration(d.int())
		case kindSettle:
			r.n, r.id = d.int(), uint64(d.int())
		case kindReset:
		default:
			d.fail()
		}
	}
	return who, rs, d.end()
}

// appendReplies appends a message of replies; the i-th answers the i-th request.
func appendReplies(b []byte, rs []reply) []byte {
	b = appendInts(append(b, wireFormat), int64(len(rs)))
	for i := range rs {
		r := &rs[i]
		head := int64(r.status) << 2
		if r.Allowed {
			head |= 1
		}
		if r.Shared {
			head |= 2
		}
		b = appendInts(b, head)
		if r.status == decided || r.status == again {
			b = appendInts(b, r.given, r.Amount, r.Remaining, int64(r.Reset), int64(r.Retry),
				int64(r.Wait), int64(r.ID))
		}
	}
	return b
}

// parseReplies reads what appendReplies wrote.
func parseReplies(b []byte) ([]reply, error) {
	d, err := newReader(b)
	if err != nil {
		return nil, err
	}
	rs := make([]reply, d.count())
	for i := range rs {
		r, head := &rs[i], d.int()
		r.status, r.Allowed, r.Shared = status(head>>2), head&1 != 0, head&2 != 0
		if head < 0 || r.status >= lastStatus {
			d.fail()
		}
		if r.status == decided || r.status == again {
			r.given, r.Amount, r.Remaining = d.int(), d.int(), d.int()
			r.Reset, r.Retry, r.Wait = time.Duration(d.int()), time.Duration(d.int()), time.Duration(d.int())
			r.ID = uint64(d.int())
		}
	}
	return rs, d.end()
}

// A place names a key of a limit.
type place struct{ limit, key string }

// appendPlaces appends a message of places.
func appendPlaces(b []byte, ps []place) []byte {
	b = appendInts(append(b, wireFormat), int64(len(ps)))
	for _, p := range ps {
		b = appendText(appendText(b, p.limit), p.key)
	}
	return b
}

// parsePlaces reads what appendPlaces wrote.
func parsePlaces(b []byte) ([]place, error) {
	d, err := newReader(b)
	if err != nil {
		return nil, err
	}
	ps := make([]place, d.count())
	for i := range ps {
		ps[i] = place{d.text(mostName), d.text(mostKey)}
	}
	return ps, d.end()
}

// reader reads until the first fault; after it everything reads as zero.
type reader struct {
	b   []byte
	bad bool
}

func newReader(b []byte) (reader, error) {
	d := reader{b: b}
	if v := d.byte(); d.bad || v != wireFormat {
		return d, fmt.Errorf("%w: format %d, this program reads %d", errMessage, v, wireFormat)
	}
	return d, nil
}

func (d *reader) fail() { d.b, d.bad = nil, true }

// take reads n bytes.
func (d *reader) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.fail()
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *reader) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *reader) uint64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *reader) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *reader) bytes(most int) []byte {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > uint64(most) {
		d.fail()
		return nil
	}
	d.b = d.b[n:]
	return d.take(int(v))
}

func (d *reader) text(most int) string { return string(d.bytes(most)) }

// count reads how many follow, each of at least one byte.
func (d *reader) count() int {
	n := d.int()
	if n < 0 || n > mostItems || n > int64(len(d.b)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *reader) end() error {
	if d.bad || len(d.b) > 0 {
		return errMessage
	}
	return nil
}
