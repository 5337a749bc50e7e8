package unary

import (
	"bufio"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// A Method answers a call: it appends its message to answer and returns the result. req is valid
// until the method returns. An error is sent as its gRPC status.
type Method func(ctx context.Context, req, answer []byte) ([]byte, error)

// A Config configures a server.
type Config struct {
	Methods map[string]Method // by path: "/package.Service/Method"
	Streams map[string]Handler
	// Delay reports that methods may block. If none does, calls are answered faster.
	Delay bool
}

// A server is the state that its connections share.
type server struct {
	Config
	head, tail []byte          // headers before and after a message
	soft, hard context.Context // when done: connections leave; connections are closed
	places     places
	held       atomic.Int64 // bytes that connections hold beyond freeHeld
	busy       atomic.Int64 // calls at workers
}

const (
	contentType = "application/grpc"
	prefix      = 5 // bytes before a message: the compression flag and the length
)

// A stream is one call.
type stream struct {
	id       uint32
	is       progress
	ended    bool // the peer has sent everything
	gone     bool // the answer is not wanted any more
	begun    bool // the headers of a streaming call are sent
	method   Method
	handler  Handler // of a streaming call
	stream   *Stream
	deadline time.Time // set by the peer; zero: none
	until    time.Time // end of the wait for the peer
	length   int64     // from the header content-length; -1: absent
	size     int64     // bytes of data received
	msg      []byte    // the call as received so far, or the answer, or messages of a Handler
	sent     int       // bytes of the answer already sent
	sendable int64     // bytes allowed by the peer's window
	ctx      context.Context
	cancel   context.CancelFunc
}

// A progress is the state of a call.
type progress byte

const (
	arriving  progress = iota
	underWay           // a worker has the call
	streaming          // a Handler has the call
	answered           // waits for windows
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
	all    sync.WaitGroup

	// Used only by the reader.
	now    time.Time // when the last read returned
	heard  time.Time // when the last read returned data
	pinged time.Time // when the unanswered ping was sent; zero: none
	within time.Time // deadline for the rest of a frame; zero: between frames
	size   int       // bytes read since a frame began, with its CONTINUATION frames
	answer []byte    // memory for calls that do not wait

	mu        sync.Mutex
	streams   map[uint32]*stream
	highest   uint32     // highest stream ID of the peer
	open      int        // streams, including canceled ones still at a worker
	queue     []*stream  // calls for workers
	looking   int        // workers that are about to look for calls
	idle      int        // workers that wait for wakeup
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
	wakeup  *sync.Cond // a worker is needed
}

// A leaving is the state of a connection that is about to end.
type leaving byte

const (
	stays   leaving = iota
	asked           // the connection is to leave
	said            // GOAWAY is sent; the peer may have sent calls before it arrived
	settled         // the last calls are known
)

// arm sets the read deadline.
func (c *conn) arm(t time.Time) {
	c.armed = t
	c.nc.SetReadDeadline(t)
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

// flushAll returns when all collected data is written or writing is no longer possible. A worker may
// be writing an answer: without the wait, the connection would end before its GOAWAY is sent.
func (c *conn) flushAll() {
	for len(c.out) > 0 && !c.dead {
		if c.flush(); c.writing {
			c.room.Wait()
		}
	}
}

// kept returns b for reuse, or nil if it has grown too large.
func kept(b []byte, most int) []byte {
	if cap(b) > most {
		return nil
	}
	return b
}

// broken returns an error that ends the connection.
func broken(code http2.ErrCode) error { return http2.ConnectionError(code) }

// spoiled returns an error that ends a stream.
func spoiled(id uint32, code http2.ErrCode) error { return http2.StreamError{StreamID: id, Code: code} }

// spend limits frames that carry no call. A flood of them costs this process more than the peer
// (CVE-2019-9512, 9514, 9515, 9517 and 9518, CVE-2023-44487).
func (c *conn) spend(n int) error {
	if c.tolerance < n {
		c.tolerance = min(tolerated, c.tolerance+int(c.now.Sub(c.refilled)/tolerateEach))
		c.refilled = c.now
	}
	if c.tolerance -= n; c.tolerance < 0 {
		return broken(http2.ErrCodeEnhanceYourCalm)
	}
	return nil
}

// credit lets the peer send n more bytes. It sends window updates only now and then.
func (c *conn) credit(n int64) {
	if c.owed += n; c.owed >= maxReceive/4 {
		c.framer.WriteWindowUpdate(0, uint32(c.owed))
		c.window, c.owed = c.window+c.owed, 0
	}
}

// weigh ends a connection that holds more than freeHeld bytes while all connections together hold
// more than maxHeld. Without it, many connections that each stay within their windows could use up
// the memory of the machine.
func (c *conn) weigh() error {
	holds := max(0, maxReceive-c.window-c.owed+int64(c.unsent)-freeHeld)
	if holds == c.held {
		return nil
	}
	all := c.server.held.Add(holds - c.held)
	c.held = holds
	if all > maxHeld && holds > 0 {
		return broken(http2.ErrCodeEnhanceYourCalm)
	}
	return nil
}
