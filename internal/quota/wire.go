package quota

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
)

// wireFormat is the version of all messages. Messages are never stored, so only this version is
// read.
const wireFormat = 1

// Limits of a message. Chosen: together they stay below the megabyte that a NATS message holds.
const (
	mostAsks  = 512 // sent in one message
	mostItems = 4096
	mostName  = 64
	mostKey   = 1024
)

// renewal is the cost in a settle request that renews the lease of a call in progress. Chosen: an
// older version rejects it as an invalid cost and changes nothing.
const renewal = -1

// naming is the cost in a settle request that names the reservation which the next request of the message
// makes, by its ID. So a request that is sent again takes nothing again. Chosen: an older version rejects it
// as an invalid cost and changes nothing.
const naming = -2

// gathered is the amount in a peek request that makes all borrowers of a key report their usage and
// return the rest. Chosen: an older version only peeks.
const gathered = -1

// errMessage is returned for a message that this version cannot parse.
var errMessage = errors.New("message of another format, or damaged")

// A kind is the kind of a request to the host of a key.
type kind uint8

const (
	kindBorrow kind = iota + 1
	kindTake        // take at once, from units that are never lent
	kindReserve
	kindSettle
	kindPeek
	kindReset
	kindBook // count as used, even beyond the limit
	kindLast
)

// A request is one request about one key.
type request struct {
	kind  kind
	shard byte
	limit string
	key   string
	limittable.Report
	n   int64
	ttl time.Duration
	id  uint64
}

// renews reports whether the request renews the lease of a call in progress.
func (r *request) renews() bool { return r.kind == kindSettle && r.n == renewal }

// names reports whether the request has the ID of the reservation that the next one makes.
func (r *request) names() bool { return r.kind == kindSettle && r.n == naming }

// gathers reports whether borrowers must report their usage.
func (r *request) gathers() bool { return r.kind == kindPeek && r.n == gathered }

// A status says whether a request was decided.
type status uint8

const (
	decided    status = iota
	again             // other borrowers hold units, which were recalled
	moved             // another process hosts the key
	unknown           // there is no such limit
	impossible        // the cost is invalid
	noHold            // no such reservation
	lastStatus
)

// A reply answers a request.
type reply struct {
	status status
	limit.Decision
	given int64
}

// appendRequests appends a message of requests. It omits a limit name that equals the one of the
// request before.
func appendRequests(b []byte, who uint64, rs []*request) []byte {
	b = append(b, wireFormat)
	b = codec.AppendFixed(b, who)
	b = codec.AppendInt(b, int64(len(rs)))
	last := ""
	for _, r := range rs {
		b = append(b, byte(r.kind), r.shard)
		if r.limit == last {
			b = append(b, 0)
		} else {
			b, last = codec.AppendText(b, r.limit), r.limit
		}
		b = codec.AppendText(b, r.key)
		switch r.kind {
		case kindBorrow:
			flags := int64(codec.Bit(r.Close) | codec.Bit(r.Spread)<<1)
			b = codec.AppendInt(b, int64(r.Loan), r.Used, r.Back, int64(r.Age), r.Need, r.Least, r.Want,
				flags, r.Held, r.Weight, r.More)
		case kindTake, kindPeek, kindBook:
			b = codec.AppendInt(b, r.n)
		case kindReserve:
			b = codec.AppendInt(b, r.n, int64(r.ttl))
		case kindSettle:
			b = codec.AppendInt(b, r.n, int64(r.id))
		}
	}
	return b
}

// parseRequests parses a message written by appendRequests.
func parseRequests(b []byte) (who uint64, rs []request, err error) {
	d, err := newReader(b)
	if err != nil {
		return 0, nil, err
	}
	who = d.Fixed()
	rs = make([]request, d.count())
	last := ""
	for i := range rs {
		r := &rs[i]
		r.kind, r.shard = kind(d.Byte()), d.Byte()
		if r.limit = d.Text(mostName); r.limit == "" {
			r.limit = last
		}
		last = r.limit
		r.key, r.Borrower = d.Text(mostKey), who
		switch r.kind {
		case kindBorrow:
			r.Loan, r.Used, r.Back, r.Age = uint64(d.Int()), d.Int(), d.Int(), time.Duration(d.Int())
			r.Need, r.Least, r.Want = d.Int(), d.Int(), d.Int()
			flags := d.Int()
			r.Close, r.Spread = flags&1 != 0, flags&2 != 0
			r.Held, r.Weight, r.More = d.Int(), d.Int(), d.Int()
		case kindTake, kindPeek, kindBook:
			r.n = d.Int()
		case kindReserve:
			r.n, r.ttl = d.Int(), time.Duration(d.Int())
		case kindSettle:
			r.n, r.id = d.Int(), uint64(d.Int())
		case kindReset:
		default:
			d.Fail()
		}
	}
	return who, rs, d.end()
}

// appendReplies appends a message of replies. The i-th reply answers the i-th request.
func appendReplies(b []byte, rs []reply) []byte {
	b = codec.AppendInt(append(b, wireFormat), int64(len(rs)))
	for i := range rs {
		r := &rs[i]
		b = codec.AppendInt(b, int64(r.status)<<2|int64(codec.Bit(r.Allowed)|codec.Bit(r.Shared)<<1))
		if r.status == decided || r.status == again {
			b = codec.AppendInt(b, r.given, r.Amount, r.Remaining, int64(r.Reset), int64(r.Retry),
				int64(r.Wait), int64(r.ID))
		}
	}
	return b
}

// parseReplies parses a message written by appendReplies.
func parseReplies(b []byte) ([]reply, error) {
	d, err := newReader(b)
	if err != nil {
		return nil, err
	}
	rs := make([]reply, d.count())
	for i := range rs {
		r, head := &rs[i], d.Int()
		r.status, r.Allowed, r.Shared = status(head>>2), head&1 != 0, head&2 != 0
		if head < 0 || r.status >= lastStatus {
			d.Fail()
		}
		if r.status == decided || r.status == again {
			r.given, r.Amount, r.Remaining = d.Int(), d.Int(), d.Int()
			r.Reset, r.Retry, r.Wait = time.Duration(d.Int()), time.Duration(d.Int()), time.Duration(d.Int())
			r.ID = uint64(d.Int())
		}
	}
	return rs, d.end()
}

// A place names a key of a limit.
type place struct{ limit, key string }

// appendPlaces appends a message of places.
func appendPlaces(b []byte, ps []place) []byte {
	b = codec.AppendInt(append(b, wireFormat), int64(len(ps)))
	for _, p := range ps {
		b = codec.AppendText(codec.AppendText(b, p.limit), p.key)
	}
	return b
}

// parsePlaces parses a message written by appendPlaces.
func parsePlaces(b []byte) ([]place, error) {
	d, err := newReader(b)
	if err != nil {
		return nil, err
	}
	ps := make([]place, d.count())
	for i := range ps {
		ps[i] = place{d.Text(mostName), d.Text(mostKey)}
	}
	return ps, d.end()
}

// A reader reads the parts of messages.
type reader struct{ codec.Reader }

func newReader(b []byte) (reader, error) {
	d := reader{codec.NewReader(b)}
	if v := d.Byte(); d.Bad() || v != wireFormat {
		return d, fmt.Errorf("%w: format %d, this program reads %d", errMessage, v, wireFormat)
	}
	return d, nil
}

// count returns the number of entries that follow.
func (d *reader) count() int { return d.CountInt(mostItems) }

func (d *reader) end() error {
	if !d.Done() {
		return errMessage
	}
	return nil
}
