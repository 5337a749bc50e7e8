package unary

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of a server. All are chosen.
const (
	maxMessage  = 1 << 20 // bytes; a call of Envoy has a few hundred
	maxHeaders  = 16 << 10
	maxBlock    = 64 << 10 // bytes of a frame with its CONTINUATION frames, which may be empty
	maxStreams  = 1000     // open calls per connection; Envoy has one for each of its threads
	maxReceive  = 4 << 20  // bytes of unanswered calls per connection
	maxUnsent   = 4 << 20  // bytes of answers that wait for the peer's windows
	keptWorkers = 16       // idle workers kept per connection
	keptMemory  = 64 << 10 // bytes of a buffer kept for reuse
	keptMessage = 4 << 10  // bytes of a call kept for reuse
	keptStreams = 32       // streams kept for reuse

	patience   = 10 * time.Second // for a handshake, a partial frame or call, an unread answer
	pingIdle   = 2 * time.Minute  // then a ping checks that the client is there
	pingAnswer = 20 * time.Second // time for the answer to a ping
	drain      = 5 * time.Second  // Envoy waits 20 ms for an answer by default
	linger     = time.Second      // time for the peer to read why its connection ends
)

// Limits of all connections together. If incomplete calls and answers hold more than maxHeld bytes,
// connections that hold more than freeHeld are closed. If more than maxBusy calls are at workers, a
// connection that has more than freeBusy of them gets no more. Chosen: memory that a small machine
// has, and far more than Envoy needs on one connection.
const (
	maxHeld  = 256 << 20
	freeHeld = 64 << 10
	maxBusy  = 20_000
	freeBusy = 10
)

// A Method answers a call: it appends its message to answer and returns the result. req is valid
// until the method returns. An error is sent as its gRPC status.
type Method func(ctx context.Context, req, answer []byte) ([]byte, error)

// A Config configures a server.
type Config struct {
	Methods map[string]Method // by path: "/package.Service/Method"
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

// Serve answers calls on lis until ctx ends, and then closes lis. It then accepts no new calls,
// waits at most 5 s for calls in progress, and returns nil.
func Serve(ctx context.Context, lis net.Listener, cfg Config) error {
	return newServer(cfg).serve(ctx, lis)
}

func newServer(cfg Config) *server {
	return &server{Config: cfg,
		head: block(":status", "200", "content-type", contentType), tail: block("grpc-status", "0"),
		places: places{mostAll: maxConns, mostNetwork: maxNetwork, of: map[netip.Prefix]int{}}}
}

func (s *server) serve(ctx context.Context, lis net.Listener) error {
	hard, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	s.soft, s.hard = ctx, hard
	defer context.AfterFunc(ctx, func() { lis.Close() })()
	var all sync.WaitGroup
	err := accept(ctx, lis, func(nc net.Conn) {
		giveBack := s.places.take(nc.RemoteAddr())
		if giveBack == nil {
			refuse(nc)
			return
		}
		all.Go(func() {
			defer giveBack()
			newConn(s, nc).serve()
		})
	})
	lis.Close()
	if ctx.Err() == nil {
		cut()
	} else {
		err = nil
		defer time.AfterFunc(drain, cut).Stop()
	}
	all.Wait()
	return err
}

// accept accepts connections until the listener is closed.
func accept(ctx context.Context, lis net.Listener, start func(net.Conn)) error {
	const shortest, longest = 5 * time.Millisecond, time.Second // chosen, as in net/http
	for pause := shortest; ; {
		nc, err := lis.Accept()
		if err == nil {
			pause = shortest
			start(nc)
			continue
		}
		// Too many files are open; some will be closed.
		if e, ok := err.(interface{ Temporary() bool }); !ok || !e.Temporary() || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, longest)
		case <-ctx.Done():
		}
	}
}
