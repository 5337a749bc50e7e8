//go:build real

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// small is the story of the page with a tenth of the records, in a tenth of the rate, and
// seconds of 200 ms.
func small() *story {
	s := seed()
	s.second, s.a, s.b, s.amount = 200*time.Millisecond, 1000, 500, 10
	s.naive, s.naiveLimit = 100, 200
	return s
}

func play(t *testing.T, s *story) *ending {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var text strings.Builder
	end, err := s.play(ctx, &text)
	if err == nil {
		err = end.tell(&text)
	}
	if t.Log(text.String()); err != nil {
		t.Fatal(err)
	}
	return end
}

// As in Azure's "Rate Limiting pattern": 100 a second are spread over the second, and do not
// come at once. How evenly is printed, not judged: it depends on when this machine wakes the
// processor. The test of the same name in internal/deliver judges it in a bubble.
func TestSpreadInsideTheSecond(t *testing.T) {
	s := small()
	s.second, s.partitions, s.amount, s.a, s.b, s.naive = time.Second, 1, 100, 0, 250, 0
	s.picks = nil
	if c := play(t, s).paced; c.Stored != 250 || c.MostAsked > 100 || c.Refused != 0 {
		t.Errorf("%+v, want 250 stored, at most 100 a second, none refused", c)
	}
}

// As in Azure's "Rate Limiting pattern": queues A and B, two processors, 10 partitions. Both
// want 2, and B is faster; then A gets 6 and B 3, then A 0 and B 1. Each record arrives once,
// none is refused, and no second sees more than the database takes.
func TestTwoProcessorsAndOneDatabase(t *testing.T) {
	end := play(t, small())
	want := map[string][]asked{
		"A": {{2, false}, {6, true}, {0, true}},
		"B": {{2, true}, {3, true}, {1, true}},
	}
	if d := cmp.Diff(want, end.asked, cmp.AllowUnexported(asked{})); d != "" {
		t.Error(d)
	}
	c := end.paced
	if c.Sends != 1500 || c.A != 1000 || c.B != 500 || c.Refused != 0 || c.MostAsked > 100 {
		t.Errorf("%+v", c)
	}
	last := end.rates[len(end.rates)-1]
	if last.B != 0 {
		t.Errorf("B has nothing to do, and has leases of %d a second", last.B)
	}
	most := 0
	for _, r := range end.rates {
		most = max(most, r.A+r.B)
	}
	if most < 80 || most > 100 {
		t.Errorf("together they had %d of 100 a second at most", most)
	}
}
