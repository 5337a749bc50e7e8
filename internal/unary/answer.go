package unary

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/wire"
)

// maxWords is the maximum length of an error message, in bytes: it must fit into one frame.
const maxWords = 1 << 10

// finish ends a call with an answer or an error.
func (c *conn) finish(s *stream, answer []byte, err error) {
	size := len(answer) - prefix
	if err == nil && size > maxMessage {
		err = status.Errorf(codes.ResourceExhausted, "the answer has %d bytes, more than %d", size,
			maxMessage)
	}
	if err != nil {
		c.fail(s, err)
		return
	}
	binary.BigEndian.PutUint32(answer[1:], uint32(size))
	c.credit(s.size)
	s.is, s.size, s.msg, s.sent = answered, 0, append(s.msg[:0], answer...), 0
	c.unsent += len(answer)
	c.writeHeaders(s, c.head, false)
	id := s.id
	if c.send(s); c.streams[id] != s {
		return
	}
	if c.unsent > maxUnsent {
		c.remove(s)
		c.cut(id, http2.ErrCodeEnhanceYourCalm)
		return
	}
	s.until = time.Now().Add(patience)
	c.sweepBy(s.until)
	if s.until.Before(c.armed) {
		c.arm(s.until)
	}
}

// send sends as much of an answer as the windows allow, if there is one.
func (c *conn) send(s *stream) {
	if s.is != answered && s.is != streaming {
		return
	}
	for s.sent < len(s.msg) {
		n := int(min(int64(len(s.msg)-s.sent), s.sendable, c.sendable, frameSize))
		if n <= 0 {
			return
		}
		c.framer.WriteData(s.id, false, s.msg[s.sent:s.sent+n])
		c.unsent -= n
		c.answers = true
		s.sent, s.sendable, c.sendable = s.sent+n, s.sendable-int64(n), c.sendable-int64(n)
	}
	if s.is == streaming {
		s.msg, s.sent = kept(s.msg[:0], keptMemory), 0
		return
	}
	c.writeHeaders(s, c.tail, true)
	c.remove(s)
}

func (c *conn) writeHeaders(s *stream, block []byte, end bool) {
	c.answers = true
	c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: block, EndHeaders: true,
		EndStream: end})
}

// fail ends a call with a status and without a message. If the peer is still sending the call, the
// stream is reset.
func (c *conn) fail(s *stream, err error) {
	c.answerFault(s, err)
	id, ended := s.id, s.ended
	if c.remove(s); !ended {
		c.tolerance = min(tolerated, c.tolerance+1) // a call has one message, which may be under way
		c.cut(id, http2.ErrCodeNo)
	}
}

// answerFault sends an error as the end of a call.
func (c *conn) answerFault(s *stream, err error) {
	var fields []string
	if code, ok := err.(httpStatus); ok { //nolint:errorlint // understand wraps nothing
		fields = []string{":status", string(code)}
	} else {
		st, ok := status.FromError(err)
		if !ok {
			st = status.FromContextError(err)
		}
		words := st.Message()
		fields = []string{":status", "200", "content-type", contentType, "grpc-accept-encoding", "identity",
			"grpc-status", strconv.Itoa(int(st.Code())),
			"grpc-message", wire.Percent(words[:min(len(words), maxWords)])}
		if s.begun { // only trailers
			fields = fields[6:]
		}
	}
	c.writeHeaders(s, block(fields...), true)
}

// cut resets a stream. Frames of it that still arrive are not errors.
func (c *conn) cut(id uint32, code http2.ErrCode) {
	c.framer.WriteRSTStream(id, code)
	c.early[c.earlyNext] = id
	c.earlyNext = (c.earlyNext + 1) % len(c.early)
}

// remove removes a stream; nil is allowed. If a worker is using the stream, the worker releases it.
func (c *conn) remove(s *stream) {
	if s == nil {
		return
	}
	if delete(c.streams, s.id); len(c.streams) == 0 {
		c.sweepAt = time.Time{}
	}
	switch s.is {
	case underWay:
		s.gone = true
		s.cancel()
		return
	case streaming:
		c.unsent -= len(s.msg) - s.sent
		s.msg, s.sent, s.gone = nil, 0, true
		s.cancel()
		return
	case answered:
		c.unsent -= len(s.msg) - s.sent
	}
	c.release(s)
}

// release frees what a stream holds.
func (c *conn) release(s *stream) {
	c.credit(s.size)
	c.open--
	*s = stream{msg: kept(s.msg, keptMessage)}
	if len(c.spare) < keptStreams { // a connection may have had a thousand and then be idle
		c.spare = append(c.spare, s)
	}
}

// sweepBy schedules a sweep at t at the latest.
func (c *conn) sweepBy(t time.Time) {
	if c.sweepAt.IsZero() || t.Before(c.sweepAt) {
		c.sweepAt = t
	}
}

// sweep ends streams that have waited too long for their peer.
func (c *conn) sweep() {
	c.sweepAt = time.Time{}
	for id, s := range c.streams {
		switch {
		case s.is == underWay, s.is == streaming && len(s.msg) == 0:
		case c.now.Before(s.until):
			c.sweepBy(s.until)
		case s.is == arriving:
			c.fail(s, status.Error(codes.DeadlineExceeded, "the call did not come whole in time"))
		default:
			c.remove(s)
			c.cut(id, http2.ErrCodeCancel)
		}
	}
}

// block encodes pairs of header names and values without the HPACK dynamic table. The result is
// valid for every connection and in any order.
func block(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	e.SetMaxDynamicTableSize(0)
	e.WriteField(hpack.HeaderField{Name: ":status", Value: "200"}) // and the size update before it
	b.Reset()
	for pair := range slices.Chunk(fields, 2) {
		e.WriteField(hpack.HeaderField{Name: pair[0], Value: pair[1]})
	}
	return b.Bytes()
}
