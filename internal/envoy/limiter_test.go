package envoy

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/headgate/headgate/ratelimit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// A limiter is a ratelimit.Limiter that can fail and be slow.
type limiter struct {
	*ratelimit.Limiter
	err   atomic.Pointer[error] // of all calls
	calls atomic.Int64
	hold  atomic.Pointer[chan struct{}] // calls wait until it is closed
}

func (l *limiter) fail(err error) { l.err.Store(&err) }

func (l *limiter) AllowAll(ctx context.Context, asks []ratelimit.Check,
	all bool) ([]ratelimit.Result, error) {
	if hold := l.hold.Load(); hold != nil {
		select {
		case <-*hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	l.calls.Add(1)
	if err := l.err.Load(); err != nil {
		return nil, *err
	}
	return l.Limiter.AllowAll(ctx, asks, all)
}

// A rig is a service behind a real server, with a client.
type rig struct {
	testing.TB
	*limiter
	service *Service
	client  pb.RateLimitServiceClient
	conn    *grpc.ClientConn
	stop    context.CancelFunc
	ended   chan error
}

// inBubble runs a test with a limiter that never blocks, and with one that may.
func inBubble(t *testing.T, test func(t *testing.T, g *rig)) {
	t.Helper()
	t.Run("in place", func(t *testing.T) { bubble(t, false, test) })
	t.Run("waits", func(t *testing.T) { bubble(t, true, test) })
}

// bubble runs a test in a bubble that starts in the 37th second of a minute, an hour and a day,
// with an in-memory server.
func bubble(t *testing.T, waits bool, test func(t *testing.T, g *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(37 * time.Second)
		lis := bufconn.Listen(1 << 20)
		test(t, newRig(t, lis, waits, grpc.WithContextDialer(
			func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) })))
	})
}

// onLoopback returns a rig on a real port.
func onLoopback(t *testing.T) *rig {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newRig(t, lis, true)
}

func newRig(t testing.TB, lis net.Listener, waits bool, options ...grpc.DialOption) *rig {
	t.Helper()
	r := parse(t, rules)
	inner, err := ratelimit.New(ratelimit.Config{Limits: r.Limits(), CreateMissing: Brought})
	if err != nil {
		t.Fatal(err)
	}
	l := &limiter{Limiter: inner}
	conn, err := grpc.NewClient("passthrough:///"+lis.Addr().String(),
		append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	g := &rig{TB: t, limiter: l, client: pb.NewRateLimitServiceClient(conn), conn: conn, stop: stop,
		service: New(Config{Rules: r, Limiter: l, Lender: l, Headers: StandardHeaders(), Waits: waits}),
		ended:   make(chan error, 1)}
	go func() { g.ended <- g.service.Serve(ctx, lis) }()
	t.Cleanup(func() {
		conn.Close()
		stop()
		if err := <-g.ended; err != nil {
			t.Errorf("served until %v", err)
		}
		g.ended <- nil
	})
	return g
}
