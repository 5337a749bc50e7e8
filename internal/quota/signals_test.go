package quota

import (
	"testing"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/limit"
)

// Reports take memory only for limits whose amount is found, and not longer: a report names any limit, and
// any sender.
func TestReportsOfOtherLimitsAreNotKept(t *testing.T) {
	b := newBench(t, limit.Rule{Algorithm: limit.Concurrency, Amount: 3})
	h, _ := b.host("one")
	b.own(h, "")
	x := signals.Report{From: "a", Length: signals.Every}
	put := func(name string) bool {
		return len(h.putSignals(t.Context(), x.Append(codec.AppendText(nil, name)))) > 0
	}
	if put("api") || len(h.signals.of) > 0 {
		t.Errorf("a report of a limit with a number is kept: %v", h.signals.of)
	}
	if _, senders, hosted := h.takeSignals("api"); !hosted || senders > 0 {
		t.Errorf("hosted %v, %d senders of none", hosted, senders)
	}
	if !put("api") {
		t.Error("a report of a limit whose amount is found is not kept")
	}
	if _, senders, _ := h.takeSignals("api"); senders != 1 {
		t.Errorf("%d senders of one", senders)
	}
	h.keepSignals(func(string) bool { return false })
	if put("api") || len(h.signals.of) > 0 {
		t.Errorf("the reports of a limit that is gone are kept: %v", h.signals.of)
	}
}
