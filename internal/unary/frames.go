package unary

import (
	"math"
	"slices"

	"golang.org/x/net/http2"
)

// farewell is the content of the ping that is sent when a connection leaves. The answer to the ping
// arrives after all calls that the peer sent before it knew.
const farewell = "farewell"

// handle processes a frame.
func (c *conn) handle(frame http2.Frame) error {
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		return c.headers(f)
	case *http2.DataFrame:
		return c.data(f)
	case *http2.PingFrame:
		return c.ping(f)
	}
	if err := c.spend(1); err != nil {
		return err
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.WindowUpdateFrame:
		return c.windowUpdate(f)
	case *http2.RSTStreamFrame:
		if f.StreamID > c.highest {
			return broken(http2.ErrCodeProtocol)
		}
		c.remove(c.streams[f.StreamID])
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return spoiled(f.StreamID, http2.ErrCodeProtocol)
		}
	case *http2.PushPromiseFrame:
		return broken(http2.ErrCodeProtocol)
	}
	return nil // unknown frames are ignored, RFC 9113 §5.5
}

// reset ends a stream after a protocol error of the peer.
func (c *conn) reset(e http2.StreamError) error {
	if e.StreamID%2 == 1 {
		c.highest = max(c.highest, e.StreamID)
	}
	c.remove(c.streams[e.StreamID])
	c.cut(e.StreamID, e.Code)
	return c.spend(1)
}

// settings applies the window size of the peer. The other settings do not affect what this package
// sends.
func (c *conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	initial := c.initial
	err := f.ForeachSetting(func(s http2.Setting) error {
		if s.ID == http2.SettingInitialWindowSize {
			initial = int64(s.Val) // only the last one: each change touches all streams
		}
		return s.Valid()
	})
	if err != nil {
		return err
	}
	c.framer.WriteSettingsAck()
	more := initial - c.initial
	c.initial = initial
	for _, s := range c.streams {
		if s.sendable += more; s.sendable > math.MaxInt32 {
			return broken(http2.ErrCodeFlowControl)
		}
		c.send(s)
	}
	return nil
}

// windowUpdate enlarges a window and sends more of the answers.
func (c *conn) windowUpdate(f *http2.WindowUpdateFrame) error {
	s := c.streams[f.StreamID]
	switch {
	case f.StreamID > c.highest:
		return broken(http2.ErrCodeProtocol)
	case f.StreamID == 0:
		if c.sendable += int64(f.Increment); c.sendable > math.MaxInt32 {
			return broken(http2.ErrCodeFlowControl)
		}
		for _, s := range c.streams {
			c.send(s)
		}
	case s != nil:
		if s.sendable += int64(f.Increment); s.sendable > math.MaxInt32 {
			return spoiled(f.StreamID, http2.ErrCodeFlowControl)
		}
		c.send(s)
	}
	return nil
}

// ping answers a ping, or handles the answer to one.
func (c *conn) ping(f *http2.PingFrame) error {
	if !f.IsAck() {
		c.framer.WritePing(true, f.Data)
	} else if string(f.Data[:]) == farewell && c.leaving == said {
		c.leaving = settled
		c.framer.WriteGoAway(c.highest, http2.ErrCodeNo, nil)
	}
	if c.answers || f.IsAck() {
		c.answers = c.answers && f.IsAck()
		return c.spend(1)
	}
	return c.spend(idlePing)
}

// data adds a part of a call.
func (c *conn) data(f *http2.DataFrame) error {
	id, size, data := f.StreamID, int64(f.Length), f.Data()
	s := c.streams[id]
	if id > c.highest {
		return broken(http2.ErrCodeProtocol)
	}
	if c.window -= size; c.window < 0 {
		return broken(http2.ErrCodeFlowControl)
	}
	// Frames that carry little, or nothing that is wanted, cost as much as others: they are counted
	// against a bound, so that a peer cannot keep the server busy with them.
	wanted := s != nil && (s.is == arriving || s.is == streaming && !s.ended)
	if !wanted || len(data) < smallData && !f.StreamEnded() {
		if err := c.spend(1); err != nil {
			return err
		}
	}
	if !wanted {
		c.credit(size)
		// The peer may have sent this before it learned that the stream was reset or the connection
		// is leaving.
		if s == nil && (slices.Contains(c.early[:], id) || c.leaving == settled) {
			return nil
		}
		return spoiled(id, http2.ErrCodeStreamClosed)
	}
	// Padding is never kept, so its window is given back at once.
	if padding := size - int64(len(data)); padding > 0 {
		c.credit(padding)
		c.framer.WriteWindowUpdate(id, uint32(padding))
	}
	s.size += int64(len(data))
	if s.is == streaming {
		return c.receive(s, data, f.StreamEnded())
	}
	if f.StreamEnded() && len(s.msg) == 0 {
		return c.whole(s, data)
	}
	if s.msg = append(s.msg, data...); f.StreamEnded() {
		return c.whole(s, s.msg)
	}
	if err := check(s.msg, false); err != nil {
		c.fail(s, err)
	}
	return nil
}
