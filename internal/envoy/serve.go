package envoy

import (
	"context"
	"fmt"
	"io"
	"net"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/internal/unary"
)

// healthName is the service name under which the reference reports its health
// (src/server/server_impl.go).
const healthName = "ratelimit"

// Serve answers calls on lis until ctx ends, and then closes lis. It then accepts no new calls,
// waits at most 5 s for calls in progress, and returns nil. It also answers Check of
// grpc.health.v1.Health.
func (s *Service) Serve(ctx context.Context, lis net.Listener) error {
	methods := map[string]unary.Method{
		pb.RateLimitService_ShouldRateLimit_FullMethodName: scanned(method(s.ShouldRateLimit)),
		healthpb.Health_Check_FullMethodName: method(func(_ context.Context,
			q *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
			if name := q.GetService(); name != "" && name != healthName {
				return nil, status.Errorf(codes.NotFound, "there is no service %q", name)
			}
			a := &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}
			if ctx.Err() != nil {
				a.Status = healthpb.HealthCheckResponse_NOT_SERVING
			}
			return a, nil
		}),
	}
	if s.decide != nil {
		methods[auth.Authorization_Check_FullMethodName] = s.check
	}
	streams := map[string]unary.Handler{}
	if s.quotas != nil {
		streams[rlqs.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName] = s.quotas.serve
	}
	err := unary.Serve(ctx, lis,
		unary.Config{Delay: s.waits || s.decide != nil, Methods: methods, Streams: streams})
	if err != nil {
		return fmt.Errorf("serve Envoy on %v: %w", lis.Addr(), err)
	}
	return nil
}

// scanned rejects requests with too many parts before they are parsed.
func scanned(answer unary.Method) unary.Method {
	return func(ctx context.Context, req, to []byte) ([]byte, error) {
		if err := scan(req); err != nil {
			return nil, err
		}
		return answer(ctx, req, to)
	}
}

// A message is the protobuf message type of Q.
type message[Q any] interface {
	*Q
	proto.Message
}

// method converts a function on messages to one on bytes.
func method[Q any, M message[Q], A proto.Message](answer func(context.Context, M) (A, error)) unary.Method {
	return func(ctx context.Context, req, to []byte) ([]byte, error) {
		q := M(new(Q))
		if err := proto.Unmarshal(req, q); err != nil {
			return nil, status.Errorf(codes.Internal, "the message cannot be read: %v", err)
		}
		a, err := answer(ctx, q)
		if err != nil {
			return nil, err
		}
		return proto.MarshalOptions{}.MarshalAppend(to, a)
	}
}

// Repeated fields of envoy.service.ratelimit.v3.RateLimitRequest and of its descriptors.
const (
	descriptorsField = 2
	entriesField     = 1
)

// scan counts the descriptors and entries of a request before they use memory: an empty one takes
// two bytes in a message, but a hundred after parsing. What scan cannot parse is left to proto,
// which reports the error.
func scan(req []byte) error {
	descriptors, entries := 0, 0
	for d := range each(req, descriptorsField) {
		descriptors++
		for range each(d, entriesField) {
			entries++
		}
		switch {
		case descriptors > maxDescriptors:
			return invalid("more than %d descriptors", maxDescriptors)
		case entries > maxAllEntries:
			return invalid("more than %d entries in all descriptors", maxAllEntries)
		}
	}
	return nil
}

// each yields the values of a bytes field, up to the first part that cannot be parsed.
func each(b []byte, field protowire.Number) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		_ = fields(b, func(n protowire.Number, v []byte) error {
			if n == field && !yield(v) {
				return io.EOF
			}
			return nil
		})
	}
}
