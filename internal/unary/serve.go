package unary

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of a server. All chosen.
const (
	maxMessage  = 1 << 20 // bytes; a call of Envoy has some hundred
	maxHeaders  = 16 << 10
	maxStreams  = 1000     // calls under way on one connection; Envoy has one for each of its threads
	maxReceive  = 4 << 20  // bytes of calls that are not answered yet, on one connection
	maxUnsent   = 4 << 20  // bytes of answers that the peer does not let out
	keptWorkers = 16       // of a connection, when nothing is to be done
	keptMemory  = 64 << 10 // bytes that are used again: of a buffer
	keptMessage = 4 << 10  // and of a call
	keptStreams = 32       // that are used again

	patience   = 10 * time.Second // for a handshake, half a frame, half a call, an answer to be taken
	pingIdle   = 2 * time.Minute  // then we ask whether the client is there
	pingAnswer = 20 * time.Second // and for so long it may think about it
	drain      = 5 * time.Second  // Envoy waits 20 ms for an answer by default
	linger     = time.Second      // for the peer to read why its connection ends
)

// Bounds of all connections together. Beyond maxHeld bytes of calls and answers that are not whole,
// connections end that hold more than freeHeld. Beyond maxBusy calls at workers, a connection that
// has more than freeBusy gets no more. Chosen: memory that a small machine has, and far more than
// an Envoy needs on a connection.
const (
	maxHeld  = 256 << 20
	freeHeld = 64 << 10
	maxBusy  = 20_000
	freeBusy = 10
)

// A Method answers a call: it appends its message to answer. req is valid until it returns. Of
// an error the gRPC status is told.
type Method func(ctx context.Context, req, answer []byte) ([]byte, error)

// A Config is all that a server needs.
type Config struct {
	Methods map[string]Method // by path: "/package.Service/Method"
	// Waits says that a method may wait for others. If none does, calls are answered faster.
	Delay bool
}

// A server is what its connections share.
type server struct {
	Config
	head, tail []byte          // headers before and after a message
	soft, hard context.Context // ended: connections leave; are cut off
	places     places
	held       atomic.Int64 // bytes that connections hold beyond freeHeld
	busy       atomic.Int64 // calls at workers
}

// Serve answers on lis, and closes it, until ctx ends. Then it takes no new calls, waits 5 s at
// most for those under way and returns nil.
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

// accept takes connections until the listener is closed.
func accept(ctx context.Context, lis net.Listener, start func(net.Conn)) error {
	const shortest, longest = 5 * time.Millisecond, time.Second // chosen, as in net/http
	for pause := shortest; ; {
		nc, err := lis.Accept()
		if err == nil {
			pause = shortest
			start(nc)
			continue
		}
		// Too many files are open, and some will be closed.
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
