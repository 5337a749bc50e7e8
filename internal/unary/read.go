package unary

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func newConn(s *server, nc net.Conn) *conn {
	c := &conn{server: s, nc: nc, now: time.Now(), streams: map[uint32]*stream{},
		window: maxReceive, sendable: firstWindow, initial: firstWindow, tolerance: tolerated}
	c.room, c.wakeup = sync.NewCond(&c.mu), sync.NewCond(&c.mu)
	c.heard, c.refilled, c.within = c.now, c.now, c.now.Add(patience)
	c.in = bufio.NewReaderSize(c, frameSize)
	c.framer = http2.NewFramer(c, c.in)
	c.framer.SetReuseFrames()
	c.framer.SetMaxReadFrameSize(frameSize)
	c.framer.MaxHeaderListSize = maxHeaders
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil) // RFC 9113 §6.5.2
	c.framer.WriteSettings(
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: maxStreams},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: maxHeaders},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: maxMessage + prefix})
	c.framer.WriteWindowUpdate(0, maxReceive-firstWindow)
	return c
}

// serve answers calls until the connection ends.
func (c *conn) serve() {
	defer context.AfterFunc(c.soft, c.leave)()
	defer context.AfterFunc(c.hard, func() { c.nc.Close() })()
	defer c.nc.Close()
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithCancel(context.WithoutCancel(c.hard)) // calls end after the connection
	err := c.read()
	c.mu.Lock()
	if errors.Is(err, http2.ErrFrameTooLarge) {
		err = broken(http2.ErrCodeFrameSize)
	}
	if b, ok := errors.AsType[http2.ConnectionError](err); ok {
		why := ""
		if b == http2.ConnectionError(http2.ErrCodeEnhanceYourCalm) {
			why = "too_many_pings" // on this text gRPC clients ping less often
		}
		c.framer.WriteGoAway(c.highest, http2.ErrCode(b), []byte(why))
	}
	c.flushAll()
	c.stop()
	c.mu.Unlock()
	cancel()
	c.all.Wait()
	c.server.held.Add(-c.held) // its memory is freed
	// If unread data were left, the operating system would discard what the peer has not read yet.
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		c.nc.SetReadDeadline(time.Now().Add(linger))
		_, _ = io.Copy(io.Discard, io.LimitReader(c.nc, maxReceive))
	}
}

// stop ends the workers.
func (c *conn) stop() {
	c.dead = true
	c.wake()
	for c.idle > 0 {
		c.idle, c.looking = c.idle-1, c.looking+1
		c.wakeup.Signal()
	}
}

// leave ends the connection after all calls are answered.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = max(c.leaving, asked)
	c.arm(time.Unix(1, 0)) // wake the reader
}

// read handles frames until the connection ends, and returns the reason.
func (c *conn) read() error {
	var hello [len(http2.ClientPreface)]byte
	if _, err := io.ReadFull(c.in, hello[:]); err != nil {
		return err
	}
	if string(hello[:]) != http2.ClientPreface {
		return broken(http2.ErrCodeProtocol)
	}
	f, err := c.framer.ReadFrame()
	if _, ok := f.(*http2.SettingsFrame); err == nil && !ok {
		err = broken(http2.ErrCodeProtocol)
	}
	for {
		c.mu.Lock()
		if err == nil {
			err = c.handle(f)
		}
		if e, ok := errors.AsType[http2.StreamError](err); ok {
			err = c.reset(e)
		}
		if err == nil {
			err = c.weigh()
		}
		c.mu.Unlock()
		if err != nil {
			return err
		}
		c.within = time.Time{}
		if _, err := c.in.Peek(1); err != nil {
			return err
		}
		// Between frames a peer may be silent for minutes. Within a frame it may not: a frame that
		// arrives byte by byte would hold a buffer for as long.
		c.within, c.size = c.now.Add(patience), 0
		f, err = c.framer.ReadFrame()
	}
}

// Read reads from the network. Before it can block, it flushes the answers.
func (c *conn) Read(p []byte) (int, error) {
	for {
		c.mu.Lock()
		next, err := c.due()
		if c.flush(); len(c.queue) > 0 {
			c.wake()
		}
		for c.writing && len(c.out) > maxUnsent && !c.dead {
			c.room.Wait() // wait for a worker that writes to a peer that does not read
		}
		if c.armed.IsZero() || next.Before(c.armed) {
			c.arm(next)
		}
		c.mu.Unlock()
		if err != nil {
			return 0, err
		}
		n, err := c.nc.Read(p)
		if c.now = time.Now(); n > 0 {
			c.heard, c.pinged = c.now, time.Time{}
			if c.size += n; c.size > maxBlock && !c.within.IsZero() {
				return 0, broken(http2.ErrCodeEnhanceYourCalm)
			}
			return n, nil
		}
		if late, ok := errors.AsType[net.Error](err); !ok || !late.Timeout() {
			return 0, err
		}
		c.mu.Lock()
		c.armed = time.Time{}
		c.mu.Unlock()
	}
}

// due does what is due now, and returns when more is due.
func (c *conn) due() (next time.Time, err error) {
	late := func(t time.Time) bool { return !t.IsZero() && !c.now.Before(t) }
	if late(c.sweepAt) {
		c.sweep()
		_ = c.weigh() // the amount only gets smaller
	}
	if c.leaving == asked {
		c.leaving = said
		c.framer.WriteGoAway(1<<31-1, http2.ErrCodeNo, nil)
		c.framer.WritePing(false, [8]byte([]byte(farewell)))
	}
	if c.pinged.IsZero() && late(c.heard.Add(pingIdle)) {
		c.pinged = c.now
		c.framer.WritePing(false, [8]byte{})
	}
	next = c.heard.Add(pingIdle)
	if !c.pinged.IsZero() {
		next = c.pinged.Add(pingAnswer)
	}
	if !c.within.IsZero() && c.within.Before(next) {
		next = c.within
	}
	switch {
	case late(next):
		err = broken(http2.ErrCodeNo)
	case c.leaving == settled && c.open == 0:
		err = io.EOF
	case !c.sweepAt.IsZero() && c.sweepAt.Before(next):
		next = c.sweepAt
	}
	return next, err
}
