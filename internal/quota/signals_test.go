package quota

import (
	"strconv"
	"testing"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/limit"
)

// reported reports whether a host keeps a report of a limit.
func reported(t *testing.T, h *Host, name, from string) bool {
	x := signals.Report{From: from, Length: signals.Every}
	return len(h.putSignals(t.Context(), x.Append(codec.AppendText(nil, name)))) > 0
}

// Reports take memory only for limits whose amount is found, and not longer: a report names any limit, and
// any sender.
func TestReportsOfOtherLimitsAreNotKept(t *testing.T) {
	b := newBench(t, limit.Rule{Algorithm: limit.Concurrency, Amount: 3})
	h, _ := b.host("one")
	b.own(h, "")
	put := func(name string) bool { return reported(t, h, name, "a") }
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

// A process whose lease is over finds no amount: another one may do that by now.
func TestAHostWithoutALeaseTakesNoReports(t *testing.T) {
	b := newBench(t, limit.Rule{Algorithm: limit.Concurrency, Amount: 3})
	h, _ := b.host("one")
	b.own(h, "")
	h.takeSignals("api")
	reported(t, h, "api", "a")
	h.ledger.lease.Store(int64(b.boot()))
	if _, senders, hosted := h.takeSignals("api"); hosted || senders > 0 {
		t.Errorf("hosted %v, %d senders", hosted, senders)
	}
	h.ledger.lease.Store(int64(b.boot() + leaseTerm))
	if _, senders, hosted := h.takeSignals("api"); !hosted || senders > 0 {
		t.Errorf("with a new lease: hosted %v, %d senders of before", hosted, senders)
	}
}

// Senders that are made up do not keep the processes of the cluster out.
func TestMembersAreHeardAmongMadeUpSenders(t *testing.T) {
	b := newBench(t, limit.Rule{Algorithm: limit.Concurrency, Amount: 3})
	h, _ := b.host("one")
	b.own(h, "")
	h.takeSignals("api")
	n := 0
	for reported(t, h, "api", strconv.Itoa(n)) {
		n++
	}
	if !reported(t, h, "api", "one") || reported(t, h, "api", "made up") {
		t.Errorf("after %d senders a member is not heard", n)
	}
}
