package completion_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/completion"
	"github.com/headgate/headgate/queue"
)

// A completion says which job has ended and how, and is the same each time.
func TestACompletion(t *testing.T) {
	at := time.Date(2026, 12, 1, 10, 0, 0, 5e6, time.UTC)
	ended := []queue.Ended{
		{Queue: "orders", ID: "184-0", Key: "order-17", OrderKey: "account-7", Tenant: "acme",
			State: queue.StateDead, At: at, Attempts: 20, Status: 503,
			Reason: "the target answered 503\x00\xff"},
		{Queue: "orders", ID: "184-1", State: queue.StateCanceled, At: at},
	}
	jobs := completion.Jobs(ended)
	for i, want := range []string{
		`{"type":"job_dead","timestamp":"2026-12-01T10:00:00.005Z","version":1,"data":{"queue":"orders",` +
			`"id":"184-0","key":"order-17","order_key":"account-7","tenant":"acme","state":"dead","attempts":20,` +
			`"status":503,"why":"the target answered 503\u0000\ufffd"}}`,
		`{"type":"job_canceled","timestamp":"2026-12-01T10:00:00.005Z","version":1,"data":{"queue":"orders",` +
			`"id":"184-1","state":"canceled","attempts":0}}`,
	} {
		j := &jobs[i]
		if string(j.Body) != want {
			t.Errorf("the body is\n%s\nwant\n%s", j.Body, want)
		}
		if j.OrderKey != ended[i].OrderKey || j.Tenant != ended[i].Tenant || j.Priority != 0 {
			t.Errorf("%+v", j)
		}
	}
	if k := jobs[0].Key; k != "orders/184-0/1796119200005" || k != completion.Key(&ended[0]) {
		t.Errorf("the key is %q", k)
	}
	// The longest of all still fit.
	long := strings.Repeat("q", 64)
	ended[0] = queue.Ended{Queue: long, ID: "2251799813685247-8191", Key: strings.Repeat("\"", queue.MaxKey),
		At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), Reason: strings.Repeat("\x01", 200)}
	if j := completion.Jobs(ended)[0]; len(j.Key) > queue.MaxKey || len(j.Body) > queue.MaxBody {
		t.Errorf("%d bytes of a key, %d of a body", len(j.Key), len(j.Body))
	}
}
