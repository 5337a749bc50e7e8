package unary

import (
	"context"
	"net"
	"net/netip"

	"golang.org/x/net/http2"

	"github.com/headgate/headgate/internal/guard"
)

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
	return guard.Serve(ctx, lis, drain, func(hard context.Context) func(net.Conn) func() {
		s.soft, s.hard = ctx, hard
		return s.take
	})
}

// take returns what serves a connection, or nil if there are too many.
func (s *server) take(nc net.Conn) func() {
	giveBack := s.places.take(nc.RemoteAddr())
	if giveBack == nil {
		refuse(nc)
		return nil
	}
	return func() {
		defer giveBack()
		newConn(s, nc).serve()
	}
}

// refuse tells a client why its connection is closed. It never blocks: the data fits into the send
// buffer of a new connection.
func refuse(nc net.Conn) {
	f := http2.NewFramer(nc, nil)
	if f.WriteSettings() == nil {
		f.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte("too many connections"))
	}
	nc.Close()
}
