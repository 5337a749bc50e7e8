package envoy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/headgate/headgate/ratelimit"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A want is one descriptor of a call: its entries, then its hits and limit.
type want struct {
	*common.RateLimitDescriptor
}

func of(words ...string) want {
	return want{&common.RateLimitDescriptor{Entries: entries(words...)}}
}

func (w want) hits(n uint64) want {
	w.HitsAddend = wrapperspb.UInt64(n)
	return w
}

func (w want) back() want {
	w.IsNegativeHits = true
	return w
}

func (w want) limit(n uint32, unit typev3.RateLimitUnit, times uint32) want {
	w.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
	if times != 1 {
		w.Limit.UnitMultiplier = wrapperspb.UInt32(times)
	}
	return w
}

func request(domain string, hits uint32, wants ...want) *pb.RateLimitRequest {
	r := &pb.RateLimitRequest{Domain: domain, HitsAddend: hits}
	for _, w := range wants {
		r.Descriptors = append(r.Descriptors, w.RateLimitDescriptor)
	}
	return r
}

// ask makes a call and formats its answer: OK 3/5 37s means 3 of 5 left.
func (g *rig) ask(hits uint32, wants ...want) string {
	g.Helper()
	r, err := g.client.ShouldRateLimit(g.Context(), request("d", hits, wants...))
	if err != nil {
		return status.Code(err).String() + ": " + status.Convert(err).Message()
	}
	words := []string{r.GetOverallCode().String() + ":"}
	for _, s := range r.GetStatuses() {
		word := s.GetCode().String()
		if c := s.GetCurrentLimit(); c != nil {
			word += fmt.Sprintf(" %d/%d%.1s %v", s.GetLimitRemaining(), c.GetRequestsPerUnit(),
				strings.ToLower(c.GetUnit().String()), s.GetDurationUntilReset().AsDuration())
			if m := c.GetUnitMultiplier(); m != nil {
				word += fmt.Sprintf(" times %d", m.GetValue())
			}
			if c.GetName() != "" {
				word += " " + c.GetName()
			}
		} else if s.GetLimitRemaining() == math.MaxUint32 {
			word += " unlimited"
		}
		words = append(words, word+",")
	}
	return strings.TrimSuffix(strings.Join(words, " "), ",")
}

func (g *rig) wants(text, got string) {
	g.Helper()
	if got != text {
		g.Errorf("got  %s\nwant %s", got, text)
	}
}

const rules = `
domain: d
descriptors:
- {key: a, rate_limit: {unit: minute, requests_per_unit: 5}}
- {key: b, rate_limit: {unit: hour, requests_per_unit: 2, name: hourly}}
- {key: none, rate_limit: {unit: day, requests_per_unit: 0}}
- {key: free}
- {key: open, rate_limit: {unlimited: true}}
- {key: shy, rate_limit: {unit: minute, requests_per_unit: 1}, shadow_mode: true}
- {key: w, value: "x*", rate_limit: {unit: minute, requests_per_unit: 1}}
- {key: one, value: "x*", share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 1}}
- {key: first, rate_limit: {unit: minute, requests_per_unit: 3, name: low}}
- {key: second, rate_limit: {unit: minute, requests_per_unit: 9, replaces: [{name: low}]}}
- {key: third, rate_limit: {unlimited: true, replaces: [{name: low}, {name: hourly}]}}
- {key: q1, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
- {key: q2, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
- {key: qh, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: tb, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: token_bucket}}
- {key: log, rate_limit: {unit: minute, requests_per_unit: 2, algorithm: sliding_log}}
- {key: paid, rate_limit: {unit: hour, requests_per_unit: 100, overdraft: true}}
- {key: owed, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: token_bucket, overdraft: true}}
`

func TestStatuses(t *testing.T) {
	inBubble(t, func(t *testing.T, g *rig) {
		g.wants("OK: OK 4/5m 23s", g.ask(0, of("a", "1")))
		g.wants("OK: OK 2/5m 23s", g.ask(2, of("a", "1")))
		g.wants("OVER_LIMIT: OVER_LIMIT 2/5m 23s", g.ask(3, of("a", "1")))
		g.wants("OK: OK 4/5m 23s", g.ask(0, of("a", "2")))
		g.wants("OK: OK 1/2h 59m23s hourly, OK, OK unlimited",
			g.ask(0, of("b", "1"), of("free", "1"), of("open", "1")))
		g.wants("OVER_LIMIT: OVER_LIMIT 0/0d 0s", g.ask(0, of("none", "1")))
		g.wants("OK: OK, OK", g.ask(0, of("what", "1"), of("a", "1", "b", "1")))
		time.Sleep(23 * time.Second)
		g.wants("OK: OK 2/5m 1m0s", g.ask(3, of("a", "1")))
		if r, err := g.client.ShouldRateLimit(t.Context(), request("other", 0, of("a", "1"))); err != nil ||
			r.GetOverallCode() != pb.RateLimitResponse_OK || len(r.GetStatuses()) != 1 ||
			!proto.Equal(r.GetStatuses()[0], &pb.RateLimitResponse_DescriptorStatus{
				Code: pb.RateLimitResponse_OK}) {
			t.Errorf("of an unknown domain: %v, %v", r, err)
		}
	})
}

// A limit that is changed at run time is reported with its present value.
func TestChangedLimitsAreTold(t *testing.T) {
	inBubble(t, func(t *testing.T, g *rig) {
		change := func(to func(*ratelimit.Limit)) {
			if err := g.Update("d/b", func(c *ratelimit.Limit) error { to(c); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		g.wants("OK: OK 1/2h 59m23s hourly", g.ask(0, of("b", "1")))
		change(func(c *ratelimit.Limit) { c.Amount, c.Overrides = 7, map[string]int64{"b=big": 9} })
		g.wants("OK: OK 5/7h 59m23s hourly, OK 8/9h 59m23s hourly", g.ask(0, of("b", "1"), of("b", "big")))
		for window, want := range map[time.Duration]string{
			2 * time.Hour: "2*HOUR", 90 * time.Minute: "90*MINUTE", 100 * time.Second: "100*SECOND",
			24 * time.Hour: "0*DAY", 1500 * time.Millisecond: "0*UNKNOWN",
		} {
			change(func(c *ratelimit.Limit) { c.Window = window })
			r, err := g.client.ShouldRateLimit(t.Context(), request("d", 0, of("b", "2").hits(0)))
			if err != nil {
				t.Fatal(err)
			}
			now := r.GetStatuses()[0].GetCurrentLimit()
			got := fmt.Sprintf("%d*%v", now.GetUnitMultiplier().GetValue(), now.GetUnit())
			if got != want || now.GetRequestsPerUnit() != 7 {
				t.Errorf("%v are told as %s of %d", window, got, now.GetRequestsPerUnit())
			}
		}
	})
}

func TestHits(t *testing.T) {
	inBubble(t, func(t *testing.T, g *rig) {
		g.wants("OK: OK 3/5m 23s, OK 0/2h 59m23s hourly",
			g.ask(9, of("a", "1").hits(2), of("b", "1").hits(2)))
		g.wants("OK: OK 3/5m 23s", g.ask(9, of("a", "1").hits(0)))
		g.wants("OK: OK 3/5m 23s", g.ask(0, of("a", "1").hits(0).back()))
		g.wants("OVER_LIMIT: OVER_LIMIT 0/2h 59m23s hourly", g.ask(0, of("b", "1").hits(0)))
		// A query that is over its limit rejects the call, which then takes nothing.
		g.wants("OVER_LIMIT: OVER_LIMIT 0/2h 59m23s hourly, OK 3/5m 23s, OVER_LIMIT 3/5m 23s",
			g.ask(0, of("b", "1").hits(0), of("a", "1").hits(3), of("a", "1").hits(4)))
		// A return is never over the limit, and comes first.
		g.wants("OK: OK 1/5m 23s, OK 1/2h 59m23s hourly",
			g.ask(0, of("a", "1").hits(2), of("b", "1").back()))
		g.wants("OK: OK 5/5m 0s", g.ask(1000, of("a", "1").back()))
		g.wants("OK: OK 5/5m 0s", g.ask(0, of("a", "never seen").back()))
		g.wants("OK: OK 0/5m 23s", g.ask(0, of("a", "1").hits(5)))
		for _, n := range []uint64{1<<50 + 1, math.MaxInt64, math.MaxUint64} {
			g.wants(fmt.Sprintf(
				"InvalidArgument: descriptor 1 has hits_addend %d, want %d at most", n, 1<<50),
				g.ask(0, of("a", "2"), of("a", "1").hits(n).back()))
		}
		g.wants("OVER_LIMIT: OVER_LIMIT 5/5m 0s", g.ask(0, of("a", "2").hits(1<<50)))
	})
}

// TestAllOrNothing checks that one rejected descriptor leaves the others unchanged.
func TestAllOrNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, g *rig) {
		g.wants("OK: OK 3/5m 23s, OK 0/2h 59m23s hourly", g.ask(2, of("a", "1"), of("b", "1")))
		for range 9 {
			g.wants("OVER_LIMIT: OK 3/5m 23s, OVER_LIMIT 0/2h 59m23s hourly",
				g.ask(0, of("a", "1"), of("b", "1")))
		}
		g.wants("OVER_LIMIT: OVER_LIMIT 3/5m 23s, OVER_LIMIT 0/2h 59m23s hourly",
			g.ask(4, of("a", "1"), of("b", "1")))
		g.wants("OK: OK 0/5m 23s", g.ask(3, of("a", "1")))
	})
}

func TestSameKeyTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, g *rig) {
		if got := g.ask(3, of("a", "1"), of("a", "1")); !strings.HasPrefix(got, "OVER_LIMIT:") {
			t.Errorf("6 of 5 passed: %s", got)
		}
		g.wants("OK: OK 0/5m 23s", g.ask(5, of("a", "1")))
	})
}

func TestShadowWildcardsAndSharing(t *testing.T) {
	inBubble(t, func(t *testing.T, g *rig) {
		g.wants("OK: OK 0/1m 23s", g.ask(0, of("shy", "1")))
		g.wants("OK: OK 0/1m 23s", g.ask(0, of("shy", "1").hits(0)))
		for range 3 {
			g.wants("OK: OK 0/1m 23s, OK 0/2h 59m23s hourly",
				g.ask(0, of("shy", "1"), of("b", "1").hits(2)))
			g.wants("OK: OK 2/2h 0s hourly", g.ask(2, of("b", "1").back()))
		}
		g.wants("OK: OK 0/1m 23s, OK 0/1m 23s, OK", g.ask(0, of("w", "x1"), of("w", "x2"), of("w", "y")))
		g.wants("OVER_LIMIT: OVER_LIMIT 0/1m 23s", g.ask(0, of("w", "x1")))
		g.wants("OK: OK 0/1m 23s", g.ask(0, of("one", "x1")))
		g.wants("OVER_LIMIT: OVER_LIMIT 0/1m 23s", g.ask(0, of("one", "x2")))
	})
}

func TestReplaces(t *testing.T) {
	inBubble(t, func(t *testing.T, g *rig) {
		g.wants("OK: OK 2/3m 23s low", g.ask(0, of("first", "1")))
		g.wants("OK: OK, OK 8/9m 23s", g.ask(0, of("first", "1"), of("second", "1")))
		g.wants("OK: OK unlimited, OK, OK", g.ask(9, of("third", "1"), of("first", "1"), of("b", "1")))
		g.wants("OK: OK 1/3m 23s low", g.ask(0, of("first", "1")))
	})
}

// TestQuotas checks that a call is rejected only if all quotas reject it, and that nothing is taken
// then.
func TestQuotas(t *testing.T) {
	inBubble(t, func(t *testing.T, g *rig) {
		g.wants("OK: OK 0/1m 23s, OK 1/2m 23s, OK 4/5m 23s",
			g.ask(0, of("q1", "1"), of("q2", "1"), of("a", "1")))
		g.wants("OK: OVER_LIMIT 0/1m 23s, OK 0/2m 23s, OK 3/5m 23s",
			g.ask(0, of("q1", "1"), of("q2", "1"), of("a", "1")))
		g.wants("OVER_LIMIT: OVER_LIMIT 0/1m 23s, OVER_LIMIT 0/2m 23s, OK 3/5m 23s",
			g.ask(0, of("q1", "1"), of("q2", "1"), of("a", "1")))
		g.wants("OVER_LIMIT: OK 1/1m 0s, OVER_LIMIT 0/0d 0s", g.ask(0, of("q1", "2"), of("none", "1")))
		g.wants("OK: OK 0/5m 23s, OK 0/1m 23s", g.ask(0, of("a", "1").hits(3), of("q1", "2")))
	})
}

// TestOverdraft checks that tokens reported after their use are counted even if they exceed the
// limit. Otherwise a client that always takes more than is left would never be stopped.
func TestOverdraft(t *testing.T) {
	inBubble(t, func(t *testing.T, g *rig) {
		g.wants("OK: OK 10/100h 59m23s", g.ask(0, of("paid", "1").hits(90)))
		g.wants("OK: OK 10/100h 59m23s", g.ask(0, of("paid", "1").hits(0)))
		g.wants("OVER_LIMIT: OVER_LIMIT 0/100h 59m23s, OK 5/5m 0s",
			g.ask(0, of("paid", "1").hits(50), of("a", "1")))
		g.wants("OVER_LIMIT: OVER_LIMIT 0/100h 59m23s", g.ask(0, of("paid", "1").hits(0)))
		g.wants("OVER_LIMIT: OK 0/100h 59m23s, OVER_LIMIT 0/100h 59m23s",
			g.ask(0, of("paid", "1").hits(40).back(), of("paid", "1").hits(0)))
		g.wants("OK: OK 1/100h 59m23s", g.ask(0, of("paid", "1").back()))
		// A bucket must first pay its debt: 60 + 30 - 60 per minute.
		g.wants("OVER_LIMIT: OVER_LIMIT 0/60m 1m30s", g.ask(0, of("owed", "1").hits(90)))
		time.Sleep(30 * time.Second)
		g.wants("OVER_LIMIT: OVER_LIMIT 0/60m 1m0s", g.ask(0, of("owed", "1").hits(0)))
		time.Sleep(10 * time.Second)
		g.wants("OK: OK 10/60m 50s", g.ask(0, of("owed", "1").hits(0)))
	})
}

func TestOverrides(t *testing.T) {
	inBubble(t, func(t *testing.T, g *rig) {
		minute, week := typev3.RateLimitUnit_MINUTE, typev3.RateLimitUnit(7)
		g.wants("OK: OK 2/3m 23s", g.ask(0, of("a", "1").limit(3, minute, 1)))
		g.wants("OK: OK 0/3m 23s, OK 0/3m 4m23s times 5",
			g.ask(0, of("a", "1").hits(2).limit(3, minute, 1), of("a", "1").hits(3).limit(3, minute, 5)))
		g.wants("OVER_LIMIT: OVER_LIMIT 0/3m 23s", g.ask(0, of("a", "1").limit(3, minute, 1)))
		g.wants("OK: OK 4/5m 23s, OK 2/3m 23s, OK 2/3m 23s", g.ask(0, of("a", "1"),
			of("a", "2").limit(3, minute, 1), of("no", "rule", "is", "here").limit(3, minute, 1)))
		g.wants("OK: OK 6/7w 119h59m23s", g.ask(0, of("a", "1").limit(7, week, 1)))
		g.wants("OVER_LIMIT: OVER_LIMIT 0/0m 0s", g.ask(0, of("a", "1").limit(0, minute, 1)))
		g.wants("InvalidArgument: descriptor 0: its limit has no unit that is known: 0",
			g.ask(0, of("a", "1").limit(1, 0, 1)))
		g.wants("InvalidArgument: descriptor 0: its limit has unit_multiplier 0, want 1 to 527040",
			g.ask(0, of("a", "1").limit(1, minute, 0)))
		g.wants("InvalidArgument: descriptor 1: its limit has unit_multiplier 2, want 1 to 1",
			g.ask(0, of("a", "1"), of("a", "1").limit(1, typev3.RateLimitUnit_YEAR, 2)))

		// A limiter that has forgotten the limit creates it again.
		if err := g.Remove("/override/minute/3/1"); err != nil {
			t.Error(err)
		}
		g.wants("OK: OK 2/3m 23s", g.ask(0, of("a", "1").limit(3, minute, 1)))

		for n := range uint32(maxOverrides) - 1 {
			g.ask(0, of("a", "1").limit(n+4, minute, 1))
		}
		g.wants("InvalidArgument: descriptor 0: more than 1000 limits were brought by calls",
			g.ask(0, of("a", "1").limit(9999, minute, 1)))
		g.wants("OK: OK 1/3m 23s", g.ask(0, of("a", "1").limit(3, minute, 1)))
	})
}

// Another process receives requests about a limit of which it knows only the name.
func TestAnOverrideIsKnownByItsName(t *testing.T) {
	const week = pb.RateLimitResponse_RateLimit_WEEK
	for _, o := range []override{{5, week, 1}, {0, week, 52}, {math.MaxUint32, week, 3}} {
		c, ok := Brought(o.name())
		if !ok || c.Name != o.name() || c.Amount != int64(o.amount) ||
			c.Window != time.Duration(o.multiplier)*7*24*time.Hour {
			t.Errorf("%s: %v %+v", o.name(), ok, c)
		}
	}
	for _, name := range []string{"", "api", "d/override/week/5/1", "/override/week/5", "/override/week/5/0",
		"/override/week/5/53", "/override/week/05/1", "/override/WEEK/5/1", "/override/unknown/5/1",
		"/override/week/5/1/", "/override/week/-5/1", "/override/week/4294967296/1"} {
		if c, ok := Brought(name); ok {
			t.Errorf("%q: %+v", name, c)
		}
	}
}

func TestOverridesAtOnce(t *testing.T) {
	g := onLoopback(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { g.ask(0, of("a", "1").limit(50, typev3.RateLimitUnit_YEAR, 1)) })
	}
	wg.Wait()
	got := g.ask(0, of("a", "1").limit(50, typev3.RateLimitUnit_YEAR, 1))
	if !strings.HasPrefix(got, "OK: OK 29/50y") {
		t.Errorf("after 20 calls of 50: %s", got)
	}
}

func (g *rig) headers(wants ...want) string {
	g.Helper()
	return g.read(g.client.ShouldRateLimit(g.Context(), request("d", 0, wants...)))
}

// read formats the headers of an answer.
func (g *rig) read(r *pb.RateLimitResponse, err error) string {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
	var all []string
	for _, h := range r.GetResponseHeadersToAdd() {
		all = append(all, h.GetKey()+"="+h.GetValue())
	}
	return strings.Join(all, " ")
}

func TestHeaders(t *testing.T) {
	inBubble(t, func(t *testing.T, g *rig) {
		g.wants("RateLimit-Limit=2 RateLimit-Remaining=1 RateLimit-Reset=3563",
			g.headers(of("a", "1"), of("b", "1"), of("open", "1")))
		g.wants("RateLimit-Limit=5 RateLimit-Remaining=0 RateLimit-Reset=23",
			g.headers(of("a", "1").hits(4)))
		g.wants("RateLimit-Limit=5 RateLimit-Remaining=0 RateLimit-Reset=23 Retry-After=23",
			g.headers(of("b", "1"), of("a", "1")))
		g.wants("RateLimit-Limit=5 RateLimit-Remaining=0 RateLimit-Reset=23 Retry-After=23",
			g.headers(of("a", "1").hits(0)))
		g.wants("RateLimit-Limit=60 RateLimit-Remaining=0 RateLimit-Reset=60",
			g.headers(of("tb", "1").hits(60)))
		g.wants("RateLimit-Limit=60 RateLimit-Remaining=0 RateLimit-Reset=60 Retry-After=2",
			g.headers(of("tb", "1").hits(2)))
		for _, never := range [][]want{{of("none", "1")}, {of("none", "1").hits(0)},
			{of("none", "1").hits(0), of("tb", "2").hits(61)}} {
			g.wants("RateLimit-Limit=0 RateLimit-Remaining=0 RateLimit-Reset=0", g.headers(never...))
		}
		g.wants("RateLimit-Limit=5 RateLimit-Remaining=0 RateLimit-Reset=23",
			g.headers(of("a", "1").hits(0), of("tb", "2").hits(61)))
		g.wants("RateLimit-Limit=60 RateLimit-Remaining=0 RateLimit-Reset=60",
			g.headers(of("tb", "1").hits(61)))
		g.wants("", g.headers(of("open", "1"), of("free", "1")))
		time.Sleep(100 * time.Millisecond) // seconds are rounded up
		g.wants("RateLimit-Limit=5 RateLimit-Remaining=0 RateLimit-Reset=23 Retry-After=23",
			g.headers(of("a", "1")))
		// Of several quotas the first one that is free again is sufficient.
		g.headers(of("q1", "1"), of("qh", "1"))
		g.wants("RateLimit-Limit=1 RateLimit-Remaining=0 RateLimit-Reset=23 Retry-After=23",
			g.headers(of("q1", "1"), of("qh", "1")))
		g.wants("RateLimit-Limit=1 RateLimit-Remaining=0 RateLimit-Reset=23",
			g.headers(of("q1", "1"), of("q2", "1")))
		for _, h := range []Headers{{}, {RetryAfter: "x"}} {
			s := New(Config{Rules: g.service.rules.Load(), Limiter: g.limiter, Headers: h})
			g.wants(map[string]string{"": "", "x": "x=23"}[h.RetryAfter],
				g.read(s.ShouldRateLimit(t.Context(), request("d", 0, of("a", "1")))))
		}
	})
}

func TestBadRequests(t *testing.T) {
	g := onLoopback(t)
	many := func(n int, w want) []want { return slices.Repeat([]want{w}, n) }
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		domain string
		wants  []want
		text   string
	}{
		{"", many(1, of("a", "1")), "InvalidArgument: rate limit domain must not be empty"},
		{"d", nil, "InvalidArgument: rate limit descriptor list must not be empty"},
		{"d", many(1, of()), "InvalidArgument: descriptor 0 has 0 entries, want 1 to 100"},
		{"d", many(1, of("a", "1", "", "1")), "InvalidArgument: descriptor 0: entry 1 has an empty key"},
		{"d", many(1, of(slices.Repeat([]string{"a"}, 202)...)), "descriptor 0 has 101 entries"},
		{"d", many(1, of(slices.Repeat([]string{"a"}, 200)...)), ""},
		{"d", many(1000, of("free", "1")), ""},
		{"d", many(10_000, of("a", "1")), "InvalidArgument: more than 1000 descriptors"},
		{"d", many(1, of(long, "1")), "ResourceExhausted: grpc: received message larger than max"},
		{"d", many(1, of("a", long)), "ResourceExhausted: grpc: received message larger than max"},
		{"d", many(1, of("a", long[:1<<19])), ""},
		{"d", many(1, of("a", "\x00\n|=\\")), ""},
		{long[:1<<19], many(1, of("a", "1")), ""},
	} {
		_, err := g.client.ShouldRateLimit(t.Context(), request(c.domain, 0, c.wants...))
		s := status.Convert(err)
		if got := s.Code().String() + ": " + s.Message(); (err == nil) != (c.text == "") ||
			!strings.Contains(got, c.text) {
			t.Errorf("%.200s, want %q", got, c.text)
		}
	}
	for _, req := range []*pb.RateLimitRequest{nil, {}, {Domain: "d",
		Descriptors: []*common.RateLimitDescriptor{nil}}} {
		_, err := g.service.ShouldRateLimit(t.Context(), req)
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", req, err)
		}
	}
}

func TestErrorsOfTheLimiter(t *testing.T) {
	g := onLoopback(t)
	for err, code := range map[error]codes.Code{
		errors.New("cut off"):                          codes.Unavailable,
		fmt.Errorf("%w: x", ratelimit.ErrNoLimit):      codes.Unavailable,
		fmt.Errorf("%w: x", ratelimit.ErrKey):          codes.InvalidArgument,
		fmt.Errorf("%w: x", ratelimit.ErrCost):         codes.InvalidArgument,
		fmt.Errorf("ask: %w", context.Canceled):        codes.Canceled,
		fmt.Errorf("x: %w", context.DeadlineExceeded):  codes.DeadlineExceeded,
		status.Error(codes.ResourceExhausted, "later"): codes.ResourceExhausted,
	} {
		g.fail(err)
		got, _, _ := strings.Cut(g.ask(0, of("a", "1")), ":")
		g.wants(code.String(), got)
	}
	g.wants("OK: OK", g.ask(0, of("free", "1"))) // no request to the limiter
}

func TestSetRules(t *testing.T) {
	inBubble(t, func(t *testing.T, g *rig) {
		g.ask(0, of("a", "1"))
		g.service.SetRules(nil)
		g.wants("OK: OK", g.ask(0, of("a", "1")))
		g.service.SetRules(parse(t, rules)) // the same names: the same counts
		g.wants("OK: OK 3/5m 23s", g.ask(0, of("a", "1")))
	})
}

func TestOneRoundTrip(t *testing.T) {
	g := onLoopback(t)
	g.ask(0, of("a", "1"), of("b", "1"), of("free", "1"))
	if n := g.calls.Load(); n != 1 {
		t.Errorf("the limiter was called %d times", n)
	}
}

// TestHealth checks the answers against the reference, except for Watch: clients treat an
// unimplemented Watch as healthy.
func TestHealth(t *testing.T) {
	inBubble(t, func(t *testing.T, g *rig) {
		client := healthpb.NewHealthClient(g.conn)
		for name, want := range map[string]codes.Code{"": codes.OK, healthName: codes.OK,
			"other": codes.NotFound} {
			a, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
			serves := a.GetStatus() == healthpb.HealthCheckResponse_SERVING
			if status.Code(err) != want || serves != (err == nil) {
				t.Errorf("%q: %v, %v", name, a, err)
			}
		}
		stream, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: healthName})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = stream.Recv(); status.Code(err) != codes.Unimplemented {
			t.Errorf("Watch: %v", err)
		}
	})
}

// TestStop checks that a call in progress is answered, and that no later call is accepted.
func TestStop(t *testing.T) {
	bubble(t, true, func(t *testing.T, g *rig) {
		check, err := healthpb.NewHealthClient(g.conn).Check(t.Context(),
			&healthpb.HealthCheckRequest{Service: healthName})
		if err != nil || check.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health %v, %v", check, err)
		}
		answer := g.askHeld()
		g.stop()
		synctest.Wait()
		close(*g.hold.Load())
		g.wants("OK: OK 4/5m 23s", <-answer)
		if err := <-g.ended; err != nil {
			t.Error(err)
		}
		g.ended <- nil
		if got := g.ask(0, of("a", "1")); !strings.HasPrefix(got, "Unavailable:") {
			t.Errorf("after the end: %s", got)
		}
	})
}

// TestStopIsBounded checks that a call without an answer is canceled after 5 s.
func TestStopIsBounded(t *testing.T) {
	bubble(t, true, func(t *testing.T, g *rig) {
		answer, began := g.askHeld(), time.Now()
		g.stop()
		if got := <-answer; !strings.HasPrefix(got, "Unavailable:") {
			t.Errorf("answered %s", got)
		}
		if err := <-g.ended; err != nil || time.Since(began) != 5*time.Second {
			t.Errorf("ended after %v with %v", time.Since(began), err)
		}
		g.ended <- nil
	})
}

// askHeld makes a call that waits in the limiter.
func (g *rig) askHeld() <-chan string {
	hold := make(chan struct{})
	g.hold.Store(&hold)
	answer := make(chan string, 1)
	go func() { answer <- g.ask(0, of("a", "1")) }()
	synctest.Wait()
	return answer
}

func TestServeFails(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lis.Close()
	err = New(Config{}).Serve(t.Context(), lis)
	if err == nil || !strings.Contains(err.Error(), "serve Envoy on") {
		t.Errorf("on a closed listener: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if lis, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if err := New(Config{}).Serve(ctx, lis); err != nil {
		t.Errorf("stopped before it began: %v", err)
	}
}

func FuzzRequest(f *testing.F) {
	for _, r := range []*pb.RateLimitRequest{request("d", 3, of("a", "1"), of("b", "1").hits(0)),
		request("d", 0, of("first", "1"), of("second", "1").hits(1<<63).back()), request("x", 1, of()),
		request("d", 0, of("q1", "1").limit(3, 7, 5), of("w", "xyz"), of("third", "")), {}} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	r := parse(f, rules)
	l, err := ratelimit.New(ratelimit.Config{Limits: r.Limits(), CreateMissing: Brought})
	if err != nil {
		f.Fatal(err)
	}
	s := New(Config{Rules: r, Limiter: l, Headers: StandardHeaders()})
	f.Fuzz(func(t *testing.T, b []byte) {
		req := &pb.RateLimitRequest{}
		if proto.Unmarshal(b, req) != nil {
			return
		}
		entries := 0
		for _, d := range req.GetDescriptors() {
			entries += len(d.GetEntries())
		}
		many := len(req.GetDescriptors()) > maxDescriptors || entries > maxAllEntries
		if err := scan(b); (err != nil) != many {
			t.Errorf("%d descriptors, %d entries: %v", len(req.GetDescriptors()), entries, err)
		}
		resp, err := s.ShouldRateLimit(t.Context(), req)
		if err != nil {
			if status.Code(err) != codes.InvalidArgument {
				t.Error(err)
			}
			return
		}
		if len(resp.GetStatuses()) != len(req.GetDescriptors()) {
			t.Errorf("%d statuses on %d descriptors", len(resp.GetStatuses()), len(req.GetDescriptors()))
		}
		if _, err := proto.Marshal(resp); err != nil {
			t.Error(err)
		}
	})
}
