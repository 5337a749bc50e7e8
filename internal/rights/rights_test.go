package rights

import (
	"slices"
	"strings"
	"testing"
)

// A worker reads no sealing key and no record of a counter, and writes no record by which
// others decide who hosts what.
func TestWorkerRecords(t *testing.T) {
	for key, want := range map[string][2]bool{ // reads, writes
		"keys": {}, "keys.lhr": {}, "revoked": {}, "counter.shop": {}, "counter.@shop": {}, "": {},
		"limits.kept.n1.3": {}, "limits.lease.n1": {}, "unknown": {}, "lives": {},
		"limits-made2": {},
		"home":         {true, false}, "limits.chart": {true, false}, "global.chart": {true, false},
		"live.shop": {true, true}, "rooms": {true, true}, "page.a1": {true, true},
		"limit-changes": {true, true}, "limits-made": {true, true},
		"told.shop": {true, true}, "told-limits": {true, true},
		"webhook.w": {true, true}, "leases/db/0": {true, true},
		"limit-found.api": {true, false}, "queue-rate.orders": {true, true},
		"codes.shop": {true, true}, "codes": {},
	} {
		if got := [2]bool{Reads(key), Writes(key)}; got != want {
			t.Errorf("%q: reads and writes %v, want %v", key, got, want)
		}
	}
}

// No list holds a wildcard that covers more than it says.
func TestWorkerSubjects(t *testing.T) {
	s := Of("w7", "a secret of 16 B")
	for _, subject := range slices.Concat(s.Publish, s.Subscribe) {
		ok := strings.HasPrefix(subject, ask) || strings.HasPrefix(subject, tell) ||
			strings.HasPrefix(subject, "_INBOX.")
		if !ok || subject == ask+">" || subject == tell+">" || strings.Contains(subject, "*.") {
			t.Errorf("%s is too much", subject)
		}
	}
	for _, topic := range []string{"live", "codes"} { // a worker changes these and follows them
		if !slices.Contains(s.Publish, tell+topic) || !slices.Contains(s.Subscribe, tell+topic) {
			t.Errorf("%s is too little", topic)
		}
	}
	own := Inbox("a secret of 16 B") + ".>"
	if !slices.Contains(s.Subscribe, own) || slices.Contains(s.Subscribe, "_INBOX.>") {
		t.Errorf("it subscribes to %v", s.Subscribe)
	}
	if Inbox("a") == Inbox("b") || strings.Contains(Inbox("secret"), "secret") {
		t.Error("an inbox shows its secret")
	}
	if !ByBus(Inbox("a")) || ByBus("_INBOX") || !IsReply(Inbox("a")+".x") || !IsReply("_INBOX.x.y") ||
		IsReply("headgate.record.keys") || IsReply("") || IsReply("$JS.API.INFO") {
		t.Error("an inbox is not told from others")
	}
}

func TestWorkerLogs(t *testing.T) {
	for name, want := range map[string]bool{
		"usage_hours": false, "usage_days": false, "usage_jobs": true, "orders_notes": true,
	} {
		if Logs(name) != want {
			t.Errorf("%s: %v, want %v", name, !want, want)
		}
	}
	if Reads("usage.hour.1") || Writes("usage.hour.1") {
		t.Error("a worker reaches what is charged")
	}
}
