package ratelimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
)

// details returns the violations of a rejection, and when the client may retry.
func details(t *testing.T, s *status.Status) (broken []string, retry time.Duration, helps bool) {
	t.Helper()
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry, helps = d.GetRetryDelay().AsDuration(), true
		case *errdetails.QuotaFailure:
			for _, v := range d.GetViolations() {
				broken = append(broken, v.GetSubject()+": "+v.GetDescription())
			}
		default:
			t.Errorf("an unknown detail %v", d)
		}
	}
	return broken, retry, helps
}

// A real gRPC client of the middleware learns that its quota is exhausted, and until when.
func TestAGRPCCallIsRefusedAsSuch(t *testing.T) {
	l, err := ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{
		{Name: "api", Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: 1, Window: time.Hour}}}})
	if err != nil {
		t.Fatal(err)
	}
	service := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(service, health.NewServer())
	srv := httptest.NewUnstartedServer(
		ratelimit.Middleware(l, []ratelimit.RequestLimit{{Name: "api"}}, service))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	defer srv.Close()
	conn, err := grpc.NewClient(strings.TrimPrefix(srv.URL, "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	check := func() error {
		_, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		return err
	}
	if err := check(); err != nil {
		t.Fatalf("the first call: %v", err)
	}
	s := status.Convert(check())
	broken, retry, helps := details(t, s)
	if s.Code() != codes.ResourceExhausted ||
		!strings.HasPrefix(s.Message(), `Not enough is left of limit "api".`) ||
		len(broken) != 1 || broken[0] != "limit:api: 0 of 1 requests left" ||
		!helps || retry < 59*time.Minute || retry > time.Hour {
		t.Errorf("the second call: %v %q, %q, again in %v (%v)", s.Code(), s.Message(), broken,
			retry, helps)
	}
}

// gRPC's own packages read the status of a gRPC service that rejects calls itself.
func TestRefusalStatus(t *testing.T) {
	of := func(name string, amount, left int64, retry time.Duration) ratelimit.Result {
		return ratelimit.Result{Limit: &ratelimit.Limit{Name: name, Unit: ratelimit.CostUnits},
			Decision: limit.Decision{Amount: amount, Remaining: left, Retry: retry}}
	}
	passed := ratelimit.Result{Decision: limit.Decision{Allowed: true},
		Limit: &ratelimit.Limit{Name: "x"}}
	long := strings.Repeat("x", 64)
	for _, c := range []struct {
		verdicts []ratelimit.Result
		retry    time.Duration // below 0: it does not help
		broken   []string
	}{
		{[]ratelimit.Result{passed, of("a", 100, 2, 1500*time.Millisecond)}, 1500 * time.Millisecond,
			[]string{"limit:a: 2 of 100 units left"}},
		{[]ratelimit.Result{of(long, 1<<50, 1<<49, 400*24*time.Hour), of("b", 3, 0, time.Nanosecond)},
			400 * 24 * time.Hour, []string{"limit:" + long +
				": 562949953421312 of 1125899906842624 units left", "limit:b: 0 of 3 units left"}},
		{[]ratelimit.Result{of("a", 3, 0, -1), of("b", 3, 0, time.Second)}, -1,
			[]string{"limit:a: 0 of 3 units left", "limit:b: 0 of 3 units left"}},
	} {
		var p spb.Status
		if err := proto.Unmarshal(ratelimit.RefusalStatus(c.verdicts), &p); err != nil {
			t.Error(err)
			continue
		}
		broken, retry, helps := details(t, status.FromProto(&p))
		if p.GetCode() != int32(codes.ResourceExhausted) || helps != (c.retry >= 0) ||
			helps && retry != c.retry || strings.Join(broken, "\n") != strings.Join(c.broken, "\n") {
			t.Errorf("code %d, %q, again in %v (%v), want %q in %v", p.GetCode(), broken, retry, helps,
				c.broken, c.retry)
		}
	}
}
