package decide

import (
	"testing"

	"github.com/headgate/headgate/internal/slot"
)

// TestStrictest checks that the order of readings does not change the decision, and that the
// decision allows nothing that one of the readings forbids.
func TestStrictest(t *testing.T) {
	lanes := []slot.Lane{{Name: "slow", Share: 10}, {Name: "vip", Share: 60}} // the ordinary line has 30
	var all []Decision
	for act := None; act <= Lane+2; act++ {
		for _, own := range []string{"", "leave", "served"} {
			for bits := range 8 {
				all = append(all, Decision{bits&1 != 0, own, act, bits&2 != 0, bits&4 != 0})
			}
		}
	}
	for _, a := range all {
		for _, b := range all {
			got := a.Strictest(b, lanes)
			if got != b.Strictest(a, lanes) {
				t.Fatalf("%+v and %+v: %+v, the other way round %+v", a, b, got, b.Strictest(a, lanes))
			}
			if got.Excluded && !(a.Excluded && b.Excluded) || got.Grace && !(a.Grace && b.Grace) ||
				got.Own != "" && got.Own != a.Own || (a.Act == Deny || b.Act == Deny) != (got.Act == Deny) ||
				(got.Act == Bypass || got.Act == Crawler) && (a.Act == None || b.Act == None) {
				t.Fatalf("%+v and %+v: %+v", a, b, got)
			}
		}
		if a.Strictest(a, lanes) != a {
			t.Fatalf("%+v and itself: %+v", a, a.Strictest(a, lanes))
		}
	}
	if Stricter(None, Challenge, lanes) != Challenge || Stricter(Challenge, Lane, lanes) != Lane ||
		Stricter(Challenge, Lane+1, lanes) != Challenge || Stricter(Bypass, Challenge, lanes) != Challenge ||
		Stricter(Challenge, Deny, lanes) != Deny {
		t.Error("a challenge is stricter than the ordinary line, and no other way around")
	}
	if Stricter(None, Lane, lanes) != Lane || Stricter(None, Lane+1, lanes) != None ||
		Stricter(Lane, Lane+1, lanes) != Lane || Stricter(Bypass, Lane+1, lanes) != Lane+1 {
		t.Error("a line with more calls is the stricter one")
	}
}
