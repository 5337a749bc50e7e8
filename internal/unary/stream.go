package unary

import (
	"context"
	"encoding/binary"
	"io"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A Handler serves a call that has messages in both directions, in a goroutine of its own. Its error
// is sent as the gRPC status. ctx ends with the call, and when the server stops.
type Handler func(ctx context.Context, s *Stream) error

// A Stream is a call with messages in both directions. Only its Handler may use it.
type Stream struct {
	conn *conn
	call *stream
	wake chan struct{}
	in   [][]byte // whole messages that are not read yet
	part []byte   // of the next one
}

// Ready returns a channel that receives a value when Next may have something new.
func (s *Stream) Ready() <-chan struct{} { return s.wake }

// Next returns the next message, or nil if none has arrived whole. At the end it returns io.EOF.
func (s *Stream) Next() ([]byte, error) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(s.in) == 0 {
		if s.call.ended {
			return nil, io.EOF
		}
		return nil, nil
	}
	msg := s.in[0]
	s.in = s.in[1:]
	size := int64(len(msg) + prefix)
	if s.call.size -= size; !s.call.ended && !s.call.gone {
		c.framer.WriteWindowUpdate(s.call.id, uint32(size))
	}
	c.credit(size)
	c.flush()
	return msg, nil
}

// Send sends a message, or keeps it until the peer's windows allow it. It fails if the peer does
// not read.
func (s *Stream) Send(msg []byte) error {
	c, call := s.conn, s.call
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.writing && len(c.out) > maxUnsent && !c.dead {
		c.room.Wait() // the peer has granted its windows, and does not read
	}
	size := len(msg) + prefix
	switch {
	case call.gone, c.dead:
		return context.Canceled
	case len(call.msg)-call.sent+size > maxMessage+prefix, c.unsent+size > maxUnsent:
		return status.Error(codes.ResourceExhausted, "the client does not read what it is sent")
	}
	if !call.begun {
		call.begun = true
		c.writeHeaders(call, c.head, false)
	}
	if len(call.msg) == 0 {
		call.until = time.Now().Add(patience)
	}
	call.msg, call.sent = append(call.msg[:0], call.msg[call.sent:]...), 0
	call.msg = append(binary.BigEndian.AppendUint32(append(call.msg, 0), uint32(len(msg))), msg...)
	c.unsent += size
	if c.send(call); len(call.msg) > 0 {
		c.sweepBy(call.until)
		if call.until.Before(c.armed) {
			c.arm(call.until)
		}
	}
	if c.weigh() != nil {
		c.nc.Close()
	}
	c.flush()
	return nil
}

// begin starts the handler of a call.
func (c *conn) begin(call *stream) {
	if c.busy.Load() >= maxBusy && c.open > freeBusy {
		c.fail(call, status.Error(codes.ResourceExhausted, "too many calls are under way"))
		return
	}
	s := &Stream{conn: c, call: call, wake: make(chan struct{}, 1)}
	s.wake <- struct{}{}
	call.is, call.stream, call.until = streaming, s, time.Time{}
	c.busy.Add(1)
	if call.deadline.IsZero() {
		call.ctx, call.cancel = context.WithCancel(c.ctx)
	} else {
		call.ctx, call.cancel = context.WithDeadline(c.ctx, call.deadline)
	}
	c.all.Go(func() {
		stop := context.AfterFunc(c.soft, call.cancel)
		err := call.handler(call.ctx, s)
		if !stop() && err != nil {
			err = status.Error(codes.Unavailable, "the server is stopping")
		}
		call.cancel()
		c.busy.Add(-1)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.end(call, err)
		if c.flush(); c.leaving == settled && c.open == 0 {
			c.arm(time.Unix(1, 0))
		}
	})
}

// end ends a call after its handler has returned.
func (c *conn) end(call *stream, err error) {
	switch {
	case call.gone:
		c.release(call)
	case err != nil:
		call.is = answered
		c.fail(call, err)
	default:
		if call.is = answered; !call.begun {
			call.begun = true
			c.writeHeaders(call, c.head, false)
		}
		call.until = time.Now().Add(patience)
		c.sweepBy(call.until)
		c.send(call)
	}
}

// receive adds data to the messages of a call.
func (c *conn) receive(call *stream, data []byte, last bool) error {
	s := call.stream
	call.ended = last
	refill := true
	s.part = append(s.part, data...)
	for len(s.part) > 0 {
		var size int
		if len(s.part) >= prefix {
			size = int(binary.BigEndian.Uint32(s.part[1:])) + prefix
		}
		if err := check(s.part[:min(len(s.part), max(size, prefix))], last); err != nil {
			c.abort(call, err)
			return nil
		}
		if size == 0 || len(s.part) < size {
			break
		}
		if refill { // a frame may have thousands of empty messages
			c.tolerance, refill = min(tolerated, c.tolerance+tolerateCall), false
		}
		s.in = append(s.in, append(make([]byte, 0, size-prefix), s.part[prefix:size]...))
		s.part = append(s.part[:0], s.part[size:]...)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// abort ends a call whose handler is still running.
func (c *conn) abort(call *stream, err error) {
	c.answerFault(call, err)
	if !call.ended {
		c.cut(call.id, http2.ErrCodeNo)
	}
	c.remove(call)
}
