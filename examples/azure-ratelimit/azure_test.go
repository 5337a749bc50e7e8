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

// worked-examples E1: 10,000 records of 10 RU into 20,000 RU a second, by naive retry.
func TestE1NaiveRetry(t *testing.T) {
	db, err := openDatabase(20_000, 10, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer db.close()
	passes, err := naive(t.Context(), db.url, records("N", 10_000), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{10_000, 8_000, 6_000, 4_000, 2_000}, passes); d != "" {
		t.Error(d)
	}
	c := db.look()
	if c.Sends != 30_000 || c.Refused != 20_000 || c.Stored != 10_000 || c.Twice != 0 {
		t.Errorf("%+v", c)
	}
}

// worked-examples E2: 100 a second are spread over the second, and do not come at once. A
// processor that was late may make up for 50 ms.
func TestE2SpreadInsideTheSecond(t *testing.T) {
	s := small()
	s.second, s.partitions, s.amount, s.a, s.b, s.naive = time.Second, 1, 100, 0, 250, 0
	s.picks = nil
	if end := play(t, s); end.paced.MostFifth > 35 {
		t.Errorf("%d in 200 ms of 100 a second, want 20 and what was late", end.paced.MostFifth)
	}
}

// worked-examples E5 and E7: queues A and B, two processors, 10 partitions. Both want 2, and
// B is faster; then A gets 6 and B 3, then A 0 and B 1. Each record arrives once, none is
// refused, and no second sees more than the database takes.
func TestE5E7TwoProcessorsAndOneDatabase(t *testing.T) {
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

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"soon"}, {"1ms"}, {"1h"}, {"1s", "2s"}} {
		if err := run(t.Context(), args, nil); err == nil || !strings.HasPrefix(err.Error(), "usage:") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
