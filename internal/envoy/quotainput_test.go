package envoy

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

func usage(id *rlqs.BucketId, n uint64) *rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage {
	return &rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{BucketId: id, NumRequestsAllowed: n,
		NumRequestsDenied: n, TimeElapsed: &durationpb.Duration{Seconds: -1}}
}

func usages(t testing.TB, domain string, all ...*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage) []byte {
	t.Helper()
	m, err := proto.Marshal(&rlqs.RateLimitQuotaUsageReports{Domain: domain, BucketQuotaUsages: all})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestQuotasOfBadReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := lending(t, "sliding_log", 100, 10)
		for name, c := range map[string]struct {
			messages [][]byte
			code     codes.Code
		}{
			"no domain":      {[][]byte{usages(t, "", usage(buyers(), 1))}, codes.InvalidArgument},
			"unknown domain": {[][]byte{usages(t, "other")}, codes.NotFound},
			"two domains":    {[][]byte{usages(t, "shop"), usages(t, "other")}, codes.InvalidArgument},
			"no bucket":      {[][]byte{usages(t, "shop", usage(nil, 1))}, codes.InvalidArgument},
			"no message":     {[][]byte{{1, 2, 3}}, codes.InvalidArgument},
			"huge numbers": {[][]byte{usages(t, "shop", usage(buyers(), math.MaxUint64)),
				usages(t, "", usage(buyers(), math.MaxUint64))}, codes.OK},
		} {
			s, err := q.open()
			for _, m := range c.messages {
				if err == nil {
					err = s.receive(m)
				}
			}
			if status.Code(err) != c.code {
				t.Errorf("%s: %v", name, err)
			}
			s.close()
		}
		s, err := q.open()
		if err != nil {
			t.Fatal(err)
		}
		var all []*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage
		for i := range 10_000 {
			all = append(all, usage(&rlqs.BucketId{Bucket: map[string]string{"x": fmt.Sprint(i)}}, 1))
		}
		long := &rlqs.BucketId{Bucket: map[string]string{"x": strings.Repeat("x", 1<<19)}}
		if err := s.receive(usages(t, "shop", append(all, usage(long, 1))...)); err != nil {
			t.Fatal(err)
		}
		if len(s.buckets) != maxBuckets || len(s.forget) != 10_001-maxBuckets {
			t.Errorf("%d buckets, %d to forget", len(s.buckets), len(s.forget))
		}
		time.Sleep(bucketIdle + time.Second)
		if m, err := s.messages(true); err != nil || len(m) != 11 || len(s.buckets) != 0 || q.buckets != 0 {
			t.Errorf("%d messages, %v; %d buckets stay", len(m), err, q.buckets)
		}
		s.close()
		if q.streams != 0 {
			t.Errorf("%d streams stay", q.streams)
		}
		time.Sleep(time.Minute)
	})
}

// A real gRPC client gets an assignment for a bucket, and the status of its fault.
func TestQuotaStream(t *testing.T) {
	inBubble(t, func(t *testing.T, g *rig) {
		c, err := rlqs.NewRateLimitQuotaServiceClient(g.conn).StreamRateLimitQuotas(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		domain := g.service.rules.Load().Domains()[0]
		all := []*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{usage(buyers(), 1)}
		err = c.Send(&rlqs.RateLimitQuotaUsageReports{Domain: domain, BucketQuotaUsages: all})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := c.Recv(); err != nil || !proto.Equal(r.GetBucketAction()[0].GetBucketId(), buyers()) {
			t.Error(r, err)
		}
		if err := c.Send(&rlqs.RateLimitQuotaUsageReports{Domain: "no such domain"}); err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = c.Recv()
		}
		if status.Code(err) != codes.InvalidArgument {
			t.Error(err)
		}
	})
}

func FuzzQuotaReports(f *testing.F) {
	f.Add(usages(f, "shop", usage(buyers(), 1)), usages(f, "", usage(buyers(), math.MaxUint64)))
	f.Add([]byte{}, usages(f, "other"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		synctest.Test(t, func(t *testing.T) {
			q, _ := lending(t, "sliding_log", 100, 10)
			s, err := q.open()
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range [][]byte{a, b} {
				if err := s.receive(m); err != nil {
					if status.Code(err) == codes.Unknown {
						t.Error(err)
					}
					break
				}
				if _, err := s.messages(true); err != nil {
					t.Error(err)
				}
			}
			s.close()
			time.Sleep(time.Minute)
			if pools, buckets := q.kept(); pools != 0 || buckets != 0 {
				t.Errorf("%d pools and %d buckets stay", pools, buckets)
			}
		})
	})
}
