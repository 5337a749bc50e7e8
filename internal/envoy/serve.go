package envoy

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
)

// Bounds of a server. All chosen.
const (
	maxMessage = 1 << 20 // bytes; a call has some hundred
	maxHeaders = 16 << 10
	maxStreams = 1000 // calls under way on one connection; Envoy has one for each of its threads
	handshake  = 10 * time.Second
	minPing    = 10 * time.Second // a client that pings more often is cut off
	pingIdle   = 2 * time.Minute  // then we ask whether the client is there
	pingAnswer = 20 * time.Second // and for so long it may think about it
	drain      = 5 * time.Second  // Envoy waits 20 ms for an answer by default
)

// healthName is the name by which the reference shows its health (src/server/server_impl.go).
const healthName = "ratelimit"

// Serve answers on lis, and closes it, until ctx ends. Then it takes no new calls, waits 5 s at
// most for those under way and returns nil. It also answers grpc.health.v1.Health.
func (s *Service) Serve(ctx context.Context, lis net.Listener) error {
	srv := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxHeaders), grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(handshake), grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingIdle, Timeout: pingAnswer}),
	)
	s.Register(srv)
	state := health.NewServer()
	state.SetServingStatus(healthName, healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(srv, state)

	stopped := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(stopped)
		state.Shutdown()
		late := time.AfterFunc(drain, srv.Stop)
		defer late.Stop()
		srv.GracefulStop()
	})
	err := srv.Serve(lis)
	if !cancel() {
		<-stopped
		return nil
	}
	srv.Stop()
	if err != nil {
		return fmt.Errorf("serve Envoy on %v: %w", lis.Addr(), err)
	}
	return nil
}
