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

const (
	firstWindow = 1<<16 - 1 // bytes, RFC 9113 §6.9.2
	frameSize   = 1 << 14   // bytes that every peer accepts, RFC 9113 §4.2
)

// A conn is one connection. Its reader holds mu while it handles a frame, except during a method.
type conn struct {
	*server
	nc     net.Conn
	in     *bufio.Reader // reads through Read
	framer *http2.Framer // reads from in, writes through Write
	ctx    context.Context
	work   chan *stream // to waiting workers
	all    sync.WaitGroup

	// Used only by the reader.
	now    time.Time // when the last read returned
	heard  time.Time // when the last read returned data
	pinged time.Time // when the unanswered ping was sent; zero: none
	within time.Time // deadline for the rest of a frame; zero: between frames
	block  int       // bytes read since a frame began, with its CONTINUATION frames
	answer []byte    // memory for calls that do not wait

	mu        sync.Mutex
	streams   map[uint32]*stream
	highest   uint32     // highest stream ID of the peer
	open      int        // streams, including canceled ones still at a worker
	idle      int        // idle workers
	spare     []*stream  // streams for reuse
	window    int64      // bytes that the peer may send
	owed      int64      // bytes of window to add, not yet sent to the peer
	sendable  int64      // bytes allowed by the peer's connection window
	initial   int64      // initial window of a stream, set by the peer
	unsent    int        // bytes of answers that wait for windows
	held      int64      // this connection's part of server.held
	early     [32]uint32 // streams that this side has ended, see cut
	earlyNext int
	tolerance int       // see spend
	refilled  time.Time // when tolerance was last refilled
	answers   bool      // answers were sent since the last ping
	armed     time.Time // the read deadline
	sweepAt   time.Time // next deadline of a stream; zero: none
	leaving   leaving

	out     []byte // to be written
	other   []byte // being written, or spare memory
	writing bool
	dead    bool       // writing is no longer possible
	room    *sync.Cond // a write has ended
}

// A leaving is the state of a connection that is about to end.
type leaving byte

const (
	stays   leaving = iota
	asked           // the connection is to leave
	said            // GOAWAY is sent; the peer may have sent calls before it arrived
	settled         // the last calls are known
)

func newConn(s *server, nc net.Conn) *conn {
	c := &conn{server: s, nc: nc, now: time.Now(), work: make(chan *stream), streams: map[uint32]*stream{},
		window: maxReceive, sendable: firstWindow, initial: firstWindow, tolerance: tolerated}
	c.room = sync.NewCond(&c.mu)
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
	c.flush()
	c.dead = true
	c.mu.Unlock()
	cancel()
	close(c.work)
	c.all.Wait()
	c.server.held.Add(-c.held) // its memory is freed
	// If unread data were left, the operating system would discard what the peer has not read yet.
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		c.nc.SetReadDeadline(time.Now().Add(linger))
		_, _ = io.Copy(io.Discard, io.LimitReader(c.nc, maxReceive))
	}
}

// leave ends the connection after all calls are answered.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = max(c.leaving, asked)
	c.arm(time.Unix(1, 0)) // wake the reader
}

// arm sets the read deadline.
func (c *conn) arm(t time.Time) {
	c.armed = t
	c.nc.SetReadDeadline(t)
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
		c.within, c.block = c.now.Add(patience), 0
		f, err = c.framer.ReadFrame()
	}
}

// Read reads from the network. Before it can block, it flushes the answers.
func (c *conn) Read(p []byte) (int, error) {
	for {
		c.mu.Lock()
		next, err := c.due()
		c.flush()
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
			if c.block += n; c.block > maxBlock && !c.within.IsZero() {
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

// Write collects data to be written.
func (c *conn) Write(p []byte) (int, error) {
	c.out = append(c.out, p...)
	return len(p), nil
}

// flush writes the collected data, unless another goroutine is writing. It releases mu during the
// write.
func (c *conn) flush() {
	for len(c.out) > 0 && !c.writing && !c.dead {
		b := c.out
		c.out, c.other, c.writing = c.other[:0], nil, true
		c.mu.Unlock()
		c.nc.SetWriteDeadline(time.Now().Add(patience))
		_, err := c.nc.Write(b)
		if err != nil {
			c.nc.Close()
		}
		c.mu.Lock()
		c.other, c.writing, c.dead = kept(b, keptMemory), false, c.dead || err != nil
		c.room.Broadcast()
	}
}

// kept returns b for reuse, or nil if it has grown too large.
func kept(b []byte, most int) []byte {
	if cap(b) > most {
		return nil
	}
	return b
}
