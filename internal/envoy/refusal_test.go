package envoy

import (
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/limit"
)

func TestRefusal(t *testing.T) {
	ok := headgate.Verdict{Decision: limit.Decision{Allowed: true}}
	api := &headgate.LimitConfig{Name: "api", Rule: limit.Rule{Algorithm: limit.SlidingLog,
		Amount: 100, Window: time.Minute}}
	calls := &headgate.LimitConfig{Name: "calls", Rule: limit.Rule{Algorithm: limit.Concurrency,
		Amount: 3}, Unit: headgate.CostUnits}
	soon := headgate.Verdict{Limit: api,
		Decision: limit.Decision{Remaining: 2, Retry: 1500 * time.Millisecond}}
	late := headgate.Verdict{Decision: limit.Decision{Retry: 3 * time.Second}, Limit: calls}
	never := headgate.Verdict{Decision: limit.Decision{Amount: 5, Retry: -1}}
	const none = -7
	for _, c := range []struct {
		verdicts []headgate.Verdict
		wait     time.Duration // or none
		broken   []string
	}{
		{nil, none, nil},
		{[]headgate.Verdict{ok}, none, nil},
		{[]headgate.Verdict{ok, soon}, 1500 * time.Millisecond,
			[]string{"limit:api api: 100 requests in 1m0s by sliding_log, 2 left"}},
		{[]headgate.Verdict{late, soon}, 3 * time.Second,
			[]string{"limit:calls calls: 3 units by concurrency, 0 left",
				"limit:api api: 100 requests in 1m0s by sliding_log, 2 left"}},
		{[]headgate.Verdict{never, late}, none, []string{"limit:limit 0 of 5 left",
			"limit:calls calls: 3 units by concurrency, 0 left"}},
	} {
		err := Refusal(c.verdicts)
		if (err == nil) != (c.broken == nil) {
			t.Errorf("%v: %v", c.verdicts, err)
		}
		if err == nil {
			continue
		}
		s := status.Convert(err)
		if s.Code() != codes.ResourceExhausted {
			t.Errorf("code %v", s.Code())
		}
		wait, broken := time.Duration(none), 0
		for _, d := range s.Details() {
			switch d := d.(type) {
			case *errdetails.RetryInfo:
				wait = d.GetRetryDelay().AsDuration()
			case *errdetails.QuotaFailure:
				for i, v := range d.GetViolations() {
					got := v.GetSubject() + " " + v.GetDescription()
					if i >= len(c.broken) || got != c.broken[i] {
						t.Errorf("violation %d: %s", i, got)
					}
					broken++
				}
			}
		}
		if wait != c.wait || broken != len(c.broken) {
			t.Errorf("wait %v with %d violations, want %v with %d", wait, broken, c.wait, len(c.broken))
		}
	}
}
