package analytics

import (
	"os"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/yardstick"
)

// chartBudget is half as much again as 100 ms, what an idle machine needs at most.
const chartBudget = 150 * time.Millisecond

// Any chart takes less than 100 ms at the end of a busy day of 100 rooms, when their whole log is still to
// be read: of that day by the minute, and of a year, of which the old days have hours alone.
func TestAYearAndADayAreFast(t *testing.T) {
	stick := yardstick.Start(t)
	rooms, days, keep := 100, 365, 30
	if testing.Short() {
		rooms, days, keep = 2, 5, 2
	}
	s := newStage(t)
	s.lazy = true
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	s.ahead = time.Until(day.Add(time.Duration(days+1)*24*time.Hour - time.Second))
	k := s.keeper()
	for i := range days {
		s.makeDay(day.Add(time.Duration(i)*24*time.Hour), 1, 60) // a minute an hour fills the hours
		if err := k.finish(dayOf(day.Unix()) + int64(i)); err != nil {
			t.Fatal(err)
		}
		if i < days-keep {
			if err := os.Remove(k.path(dayOf(day.Unix())+int64(i), minuteEnd)); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.makeDay(day.Add(time.Duration(days)*24*time.Hour), rooms, 1)
	to := day.Unix() + int64(days+1)*daySeconds
	for _, c := range []struct {
		name       string
		days, step int64
		points     int
	}{{"a year", int64(days + 1), daySeconds, days + 1}, {"a day", 1, 60, 1440}} {
		points, best := chart(t, k, 20, &Query{Series{Room, "room0"}, to - c.days*daySeconds, to, c.step})
		t.Logf("%s: %d points of all metrics in %v", c.name, points, best.Round(time.Microsecond))
		if points != c.points {
			t.Errorf("%s has %d points, want %d", c.name, points, c.points)
		}
		if !testing.Short() {
			stick.Judge(t, c.name, best, yardstick.Bound{Design: chartBudget, Delays: 20})
		}
	}
}

// chart is how many points an answer has, and the best time of some tries for all their metrics.
func chart(t *testing.T, k *Recorder, tries int, q *Query) (points int, best time.Duration) {
	t.Helper()
	best = time.Hour
	metrics := Metrics(q.Kind)
	for range tries {
		began := time.Now()
		rows, err := k.Rows(q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			for j := range metrics {
				metrics[j].Value(&rows[i], q.Step)
			}
		}
		points, best = len(rows), min(best, time.Since(began))
	}
	return points, best
}
