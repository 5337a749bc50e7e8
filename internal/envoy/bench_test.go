package envoy

import (
	"strconv"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/headgate/headgate/ratelimit"
)

// BenchmarkShouldRateLimit measures a call without the network: two descriptors, one of 10,000
// keys.
func BenchmarkShouldRateLimit(b *testing.B) {
	r := parse(b, rules)
	l, err := ratelimit.New(ratelimit.Config{Limits: r.Limits()})
	if err != nil {
		b.Fatal(err)
	}
	s := New(Config{Rules: r, Limiter: l})
	var requests []*pb.RateLimitRequest
	for i := range 10_000 {
		requests = append(requests, request("d", 0, of("tb", strconv.Itoa(i)), of("free", "1")))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := s.ShouldRateLimit(b.Context(), requests[i%len(requests)]); err != nil {
			b.Fatal(err)
		}
	}
}
