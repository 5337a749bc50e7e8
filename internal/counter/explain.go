package counter

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// Explain returns the status of a ticket and the reason for it. nobody is the reason why there are
// no calls, or "". drawn means that the line has random order.
func (t *TicketTrace) Explain(nobody string, drawn bool) (status, why string) {
	at, silent := t.Status, "its visitor asked "+t.Silent.Round(time.Second).String()+" ago"
	if drawn && at == slot.TicketLate {
		at = slot.TicketWaiting
	}
	switch at {
	case slot.TicketWaiting:
		before := fmt.Sprintf("%d people are before it; ", max(0, t.Position-1))
		if drawn {
			before = "who is next is drawn among all who are there; "
		}
		if nobody != "" {
			nobody = "; nobody is called: " + nobody
		}
		return "waiting", before + silent + nobody
	case slot.TicketProvisional:
		return "provisional", "the cookie of its visitor has not come back yet: it holds no place before"
	case slot.TicketLate:
		return "late", "its turn came while its visitor was silent; it is called first when it asks again; " +
			silent
	case slot.TicketCalled:
		return "called", "its turn has come and a slot is reserved; its page goes in by itself; " + silent
	case slot.TicketUsed:
		if t.Left > 0 {
			return "used", "it let its visitor in, who is inside for another " +
				t.Left.Round(time.Second).String() + " at least"
		}
		return "used", "it let its visitor in; the stay has ended"
	}
	return "gone", "its visitor was silent for longer than hold, or gave the place up"
}
