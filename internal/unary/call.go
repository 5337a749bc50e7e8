package unary

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// headers begins a call, or ends one with trailers.
func (c *conn) headers(f *http2.MetaHeadersFrame) error {
	id := f.StreamID
	if s := c.streams[id]; s != nil {
		switch {
		case s.ended:
			return spoiled(id, http2.ErrCodeStreamClosed)
		case !f.StreamEnded(), len(f.PseudoFields()) > 0:
			return spoiled(id, http2.ErrCodeProtocol)
		case s.is == streaming:
			return c.receive(s, nil, true)
		}
		return c.whole(s, s.msg)
	}
	switch {
	case id == c.highest:
		return broken(http2.ErrCodeStreamClosed)
	case id%2 == 0, id < c.highest:
		return broken(http2.ErrCodeProtocol)
	case f.HasPriority() && f.Priority.StreamDep == id:
		return spoiled(id, http2.ErrCodeProtocol)
	}
	if c.highest = id; c.leaving == settled {
		return nil // the peer knows, and sends the call elsewhere
	}
	if c.open >= maxStreams {
		return spoiled(id, http2.ErrCodeRefusedStream)
	}
	if len(c.spare) == 0 {
		c.spare = append(c.spare, &stream{})
	}
	last := len(c.spare) - 1
	s := c.spare[last]
	c.spare = c.spare[:last]
	*s = stream{id: id, ended: f.StreamEnded(), length: -1, msg: s.msg[:0], sendable: c.initial,
		until: c.now.Add(patience)}
	c.streams[id] = s
	c.open++
	switch err := c.understand(s, f).(type) { //nolint:errorlint // it wraps nothing
	case nil:
	case http2.StreamError:
		return err
	default:
		c.fail(s, err)
		return nil
	}
	switch {
	case s.handler != nil:
		c.begin(s)
		return nil
	case s.ended:
		return c.whole(s, nil)
	}
	c.sweepBy(s.until)
	return nil
}

// An httpStatus is an error that is reported as an HTTP status.
type httpStatus string

func (s httpStatus) Error() string { return "status " + string(s) }

// understand parses the headers of a call.
func (c *conn) understand(s *stream, f *http2.MetaHeadersFrame) error {
	var method, path, scheme, kind, encoding, timeout string
	for _, h := range f.Fields {
		switch h.Name {
		case ":method":
			method = h.Value
		case ":path":
			path = h.Value
		case ":scheme":
			scheme = h.Value
		case "content-type":
			kind = h.Value
		case "grpc-encoding":
			encoding = h.Value
		case "grpc-timeout":
			timeout = h.Value
		case "content-length":
			n, err := strconv.ParseUint(h.Value, 10, 63)
			// The length is compared with what arrives (RFC 9113 §8.1.1): a proxy that believes the
			// header would see other messages than this server.
			if s.length = int64(n); err != nil {
				return spoiled(s.id, http2.ErrCodeProtocol)
			}
		// RFC 9113 §8.2.2: such a message is malformed.
		case "connection", "proxy-connection", "transfer-encoding", "upgrade", "keep-alive":
			return spoiled(s.id, http2.ErrCodeProtocol)
		case "te":
			if h.Value != "trailers" {
				return spoiled(s.id, http2.ErrCodeProtocol)
			}
		}
	}
	if f.Truncated {
		return status.Error(codes.ResourceExhausted, "the headers are larger than 16 KiB")
	}
	rest, ok := strings.CutPrefix(kind, contentType)
	s.method, s.handler = c.Methods[path], c.Streams[path]
	switch {
	case method == "", path == "", scheme == "":
		return spoiled(s.id, http2.ErrCodeProtocol)
	case method != "POST":
		return httpStatus("405")
	case !ok || rest != "" && rest[0] != '+' && rest[0] != ';':
		return httpStatus("415")
	case s.method == nil && s.handler == nil:
		return status.Error(codes.Unimplemented, "there is no method "+path)
	case encoding != "" && encoding != "identity":
		return status.Error(codes.Unimplemented, "messages must not be compressed")
	case timeout == "":
		return nil
	}
	d, ok := parseTimeout(timeout)
	if !ok {
		return status.Errorf(codes.Internal, "grpc-timeout %q is no time", timeout)
	}
	if s.deadline = c.now.Add(d); s.deadline.Before(s.until) {
		s.until = s.deadline
	}
	return nil
}

// parseTimeout parses at most 8 digits and a unit.
func parseTimeout(s string) (time.Duration, bool) {
	unit, ok := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second,
		'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}[s[len(s)-1]]
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 63)
	if !ok || err != nil || len(s) > 9 {
		return 0, false
	}
	return time.Duration(min(n, math.MaxInt64/uint64(unit))) * unit, true
}

// check returns an error if the message of a call is invalid.
func check(data []byte, whole bool) error {
	var size uint64
	if len(data) >= prefix {
		size = uint64(binary.BigEndian.Uint32(data[1:])) + prefix
	}
	switch got := uint64(len(data)); {
	case size == 0 && !whole:
	case size == 0, whole && got < size:
		return status.Error(codes.Internal, "the message is cut short")
	case data[0] != 0:
		return status.Error(codes.Internal, "the message is compressed, and grpc-encoding is not said")
	case size > maxMessage+prefix: // the same text as grpc-go
		return status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)",
			size-prefix, maxMessage)
	case got > size:
		return status.Error(codes.Internal, "the call has more than one message")
	}
	return nil
}

// whole handles a call that has arrived completely: it answers the call or gives it to a worker.
// data is valid until whole returns.
func (c *conn) whole(s *stream, data []byte) error {
	s.ended = true
	c.tolerance = min(tolerated, c.tolerance+tolerateCall)
	err := check(data, true)
	switch {
	case s.length >= 0 && s.length != s.size:
		return spoiled(s.id, http2.ErrCodeProtocol)
	case err != nil:
		c.fail(s, err)
	case !s.deadline.IsZero() && !c.now.Before(s.deadline):
		c.fail(s, context.DeadlineExceeded)
	case c.Delay && c.busy.Load() >= maxBusy && c.open > freeBusy:
		c.fail(s, status.Error(codes.ResourceExhausted, "too many calls are under way"))
	case c.Delay:
		if len(s.msg) == 0 {
			s.msg = append(s.msg, data...)
		}
		c.launch(s)
	default:
		c.mu.Unlock()
		answer, err := s.method(c.ctx, data[prefix:], append(c.answer[:0], 0, 0, 0, 0, 0))
		if err == nil {
			c.answer = kept(answer, keptMemory)
		}
		c.mu.Lock()
		c.finish(s, answer, err)
	}
	return nil
}

// launch queues a call for the workers. The reader wakes one before it can block.
func (c *conn) launch(s *stream) {
	s.is = underWay
	c.busy.Add(1)
	if s.deadline.IsZero() {
		s.ctx, s.cancel = context.WithCancel(c.ctx)
	} else {
		s.ctx, s.cancel = context.WithDeadline(c.ctx, s.deadline)
	}
	c.queue = append(c.queue, s)
}

// wake makes sure that a worker is about to look for calls, unless there is nothing to do.
func (c *conn) wake() {
	switch {
	case c.looking > 0 || len(c.queue)+len(c.out) == 0:
		return
	case c.idle > 0:
		c.idle--
		c.wakeup.Signal()
	default: // there are fewer than maxStreams
		c.all.Go(c.worker)
	}
	c.looking++
}

// worker answers queued calls. While a method runs, another worker is awake if there is more to do,
// so that no call and no answer waits for it. If methods return at once, one worker answers all
// calls of a read, and writes the answers together.
func (c *conn) worker() {
	var memory []byte
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if len(c.queue) == 0 || len(c.out) > maxDelayed {
			c.looking-- // the write may block
			c.flush()
			c.looking++
		}
		if len(c.queue) == 0 {
			c.looking--
			if c.dead || c.idle == keptWorkers {
				return
			}
			c.idle++
			c.wakeup.Wait()
			continue
		}
		s := c.queue[0]
		c.queue = slices.Delete(c.queue, 0, 1)
		c.looking--
		c.wake()
		memory = c.work(s, memory)
		c.looking++
	}
}

// work answers a call. It releases mu during the method.
func (c *conn) work(s *stream, memory []byte) []byte {
	answer, err := []byte(nil), context.Canceled
	if !s.gone && !c.dead {
		c.mu.Unlock()
		answer, err = s.method(s.ctx, s.msg[prefix:], append(memory[:0], 0, 0, 0, 0, 0))
		c.mu.Lock()
	}
	if err == nil {
		memory = kept(answer, keptMessage)
	}
	s.cancel()
	c.busy.Add(-1)
	if s.is = arriving; s.gone { // the worker no longer has it
		c.release(s)
	} else {
		c.finish(s, answer, err)
	}
	if c.weigh() != nil {
		c.nc.Close()
	}
	if c.leaving == settled && c.open == 0 {
		c.arm(time.Unix(1, 0))
	}
	return memory
}
