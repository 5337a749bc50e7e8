package cron

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func at(t testing.TB, s string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestTimes has the hours that clocks miss and have twice in 2026, among others.
func TestTimes(t *testing.T) {
	for _, c := range []struct {
		line, zone, after string
		want              []string // in the zone
	}{
		{"0 3 * * *", "UTC", "2026-11-28T03:00:00Z", []string{"2026-11-29T03:00:00Z"}},
		{"0 3 * * *", "UTC", "2026-11-28T02:59:59.9Z", []string{"2026-11-28T03:00:00Z", "2026-11-29T03:00:00Z"}},
		{"@daily", "Asia/Kolkata", "2026-11-28T03:00:00Z", []string{"2026-11-29T00:00:00+05:30"}},
		{"15 9 * * 1-5", "Asia/Kolkata", "2026-11-27T12:00:00+05:30",
			[]string{"2026-11-30T09:15:00+05:30", "2026-12-01T09:15:00+05:30"}},
		{"0 0 29 2 *", "Europe/Berlin", "2026-11-28T00:00:00Z",
			[]string{"2028-02-29T00:00:00+01:00", "2032-02-29T00:00:00+01:00"}},
		{"0 0 29 2 *", "UTC", "2097-01-01T00:00:00Z", []string{"2104-02-29T00:00:00Z"}}, // no leap year 2100
		{"0 0 13 * 5", "UTC", "2026-11-28T00:00:00Z", []string{"2026-12-04T00:00:00Z", "2026-12-11T00:00:00Z",
			"2026-12-13T00:00:00Z"}}, // one of the two days
		{"0 0 */2 * 5", "UTC", "2026-11-28T00:00:00Z", []string{"2026-12-11T00:00:00Z"}}, // both
		{"0 0 * * 7", "UTC", "2026-11-28T00:00:00Z", []string{"2026-11-29T00:00:00Z", "2026-12-06T00:00:00Z"}},

		// 02:30 is missed on 29 March: the first moment after the gap is 03:00.
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", []string{"2026-03-28T02:30:00+01:00",
			"2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"}},
		// All of the gap fires once, together with what fires at its end.
		{"*/20 1-3 * * *", "Europe/Berlin", "2026-03-29T01:30:00+01:00", []string{"2026-03-29T01:40:00+01:00",
			"2026-03-29T03:00:00+02:00", "2026-03-29T03:20:00+02:00"}},
		// 02:30 comes twice on 25 October.
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T22:00:00Z", []string{"2026-10-25T02:30:00+02:00",
			"2026-10-26T02:30:00+01:00"}},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T02:30:00+02:00", []string{"2026-10-26T02:30:00+01:00"}},
		{"*/30 * * * *", "Europe/Berlin", "2026-10-25T02:00:00+02:00", []string{"2026-10-25T02:30:00+02:00",
			"2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:00:00+01:00"}},
		{"5 * * * *", "Europe/Berlin", "2026-03-29T01:00:00+01:00", []string{"2026-03-29T01:05:00+01:00",
			"2026-03-29T03:05:00+02:00"}},
		{"0 */2 * * *", "Europe/Berlin", "2026-10-25T00:00:00+02:00", []string{"2026-10-25T02:00:00+02:00",
			"2026-10-25T04:00:00+01:00"}},

		{"30 2 8 3 *", "America/New_York", "2026-03-01T00:00:00Z", []string{"2026-03-08T03:00:00-04:00",
			"2027-03-08T02:30:00-05:00"}},
		{"59 1 * * *", "America/New_York", "2026-11-01T00:00:00-04:00", []string{"2026-11-01T01:59:00-04:00",
			"2026-11-02T01:59:00-05:00"}},
		{"@hourly", "America/New_York", "2026-11-01T00:30:00-04:00", []string{"2026-11-01T01:00:00-04:00",
			"2026-11-01T01:00:00-05:00", "2026-11-01T02:00:00-05:00"}},

		// Half an hour is missed on 4 October, from 02:00, and comes twice on 5 April, from 01:30.
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-04T00:00:00+10:30", []string{"2026-10-04T02:30:00+11:00",
			"2026-10-05T02:15:00+11:00"}},
		{"45 2 * * *", "Australia/Lord_Howe", "2026-10-04T00:00:00+10:30", []string{"2026-10-04T02:45:00+11:00"}},
		{"0,45 1,2 * * *", "Australia/Lord_Howe", "2026-04-05T00:00:00+11:00", []string{
			"2026-04-05T01:00:00+11:00", "2026-04-05T01:45:00+11:00", "2026-04-05T02:00:00+10:30"}},
		{"45 * * * *", "Australia/Lord_Howe", "2026-04-05T01:00:00+11:00", []string{"2026-04-05T01:45:00+11:00",
			"2026-04-05T01:45:00+10:30", "2026-04-05T02:45:00+10:30"}},

		// Samoa had no 30 December 2011.
		{"0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z", []string{"2011-12-31T00:00:00+14:00",
			"2012-12-30T12:00:00+14:00"}},
	} {
		t.Run(strings.ReplaceAll(c.line+" "+c.zone+" "+c.after, "/", "_"), func(t *testing.T) {
			l, err := Parse(c.line, zone(t, c.zone))
			if err != nil {
				t.Fatal(err)
			}
			next := at(t, c.after)
			for _, want := range c.want {
				if next = l.Next(next); !next.Equal(at(t, want)) {
					t.Fatalf("fires at %v, want %s", next.In(zone(t, c.zone)), want)
				}
			}
		})
	}
}

func TestParse(t *testing.T) {
	for _, bad := range []string{"", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *",
		"* * * 13 *", "* * * * 8", "*/0 * * * *", "*/18446744073709551615 * * * *", "a * * * *", "0 0 31 2 *",
		"0 0 30 2 *", "0 0 31 4,6,9,11 *", "@every 5m", " @every 5m", "@reboot", "@nothing", "TZ=UTC * * * * *",
		"CRON_TZ=UTC 0 0 * * *", "TZ=0", "0 0 L * *", "0 0 * * 5#3", "0 0 15W * *", "H * * * *", "- * * * *",
		"*-5 * * * *", "0 0 ?-13 * 5", "0 0 * * 2,fri-mon/2", "0 0 * * 7-2/2", "0 0 * * 6-0/2",
		"5- * * * *", "1-2-3 * * * *", "1/2/3 * * * *", "-1 * * * *", strings.Repeat("1,", 200) + "1 * * * *"} {
		if l, err := Parse(bad, time.UTC); err == nil {
			t.Errorf("%q is a line: %+v", bad, l)
		}
	}
	for _, good := range []string{"* * * * *", "0 0 31 1 *", "0 0 29 2 1", "0 0 31 2 1", "@yearly", "@weekly",
		"0 22-2 * * *", "0 0 * jan-mar mon,wed", "0 22-2/2 * * *", "0 0 * * fri-mon", "0 0 * * 0-7/2", "0 0 * * 1-7/2",
		"0 0 * * */2", "0 0 * * sun-fri/2", "0 0 ? * 1", "  5   4 * * *  ", "0\t0 * * *"} {
		if _, err := Parse(good, time.UTC); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

// A week has seven days, also in ranges that go on after its end.
func TestWeekdays(t *testing.T) {
	for from := range 8 {
		for to := range 8 {
			for step := 1; step < 7; step++ {
				line := fmt.Sprintf("0 0 * * %d-%d", from, to)
				end := to
				if to < from {
					end += 7
				}
				if step > 1 {
					line += fmt.Sprintf("/%d", step)
				}
				l, err := Parse(line, time.UTC)
				if err != nil {
					if step == 1 || to >= from && step < to-from {
						t.Errorf("%q: %v", line, err)
					}
					continue
				}
				want := uint64(0)
				for day := from; day <= end; day += step {
					want |= 1 << (day % 7)
				}
				if got := l.weekdays & (1<<7 - 1); got != want {
					t.Errorf("%q has the days %07b, want %07b", line, got, want)
				}
			}
		}
	}
}

// TestOracle compares Next with a walk over all minutes around the changes of clocks.
func TestOracle(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	field := func(least, most int) string {
		switch r.IntN(4) {
		case 0:
			return "*"
		case 1:
			return fmt.Sprintf("*/%d", 1+r.IntN(most))
		case 2:
			from := least + r.IntN(most-least)
			return fmt.Sprintf("%d-%d", from, from+r.IntN(most-from+1))
		default:
			return fmt.Sprintf("%d,%d", least+r.IntN(most-least+1), least+r.IntN(most-least+1))
		}
	}
	for _, c := range []struct{ zone, around string }{
		{"Europe/Berlin", "2026-03-29T01:00:00Z"}, {"Europe/Berlin", "2026-10-25T01:00:00Z"},
		{"America/New_York", "2026-03-08T07:00:00Z"}, {"America/New_York", "2026-11-01T06:00:00Z"},
		{"Australia/Lord_Howe", "2026-04-04T15:00:00Z"}, {"Australia/Lord_Howe", "2026-10-03T15:30:00Z"},
		{"Pacific/Apia", "2011-12-30T10:00:00Z"}, {"Asia/Kolkata", "2026-06-01T00:00:00Z"},
		{"America/Sao_Paulo", "2018-11-04T03:00:00Z"}, {"Africa/Casablanca", "2026-02-15T02:00:00Z"},
	} {
		z := zone(t, c.zone)
		for range 60 {
			line := fmt.Sprintf("%s %s %s * %s", field(0, 59), field(0, 23), []string{"*", "*", field(1, 28)}[r.IntN(3)],
				[]string{"*", "*", field(0, 6)}[r.IntN(3)])
			l, err := Parse(line, z)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			begin := at(t, c.around).Add(-30 * time.Hour)
			var want []string
			seen := map[time.Time]bool{}
			for m := range 72 * 60 {
				now := begin.Add(time.Duration(m) * time.Minute)
				shown, before := clock(now.In(z)), clock(now.Add(-time.Minute).In(z))
				fires := l.matches(shown) && (l.allHours || !seen[shown])
				for gone := before.Add(time.Minute); gone.Before(shown); gone = gone.Add(time.Minute) {
					fires = fires || !l.allHours && l.matches(gone)
				}
				if seen[shown] = true; fires {
					want = append(want, now.Format(time.RFC3339))
				}
			}
			var got []string
			end := begin.Add(72 * time.Hour)
			for next := l.Next(begin.Add(-1)); !next.IsZero() && next.Before(end); next = l.Next(next) {
				got = append(got, next.Format(time.RFC3339))
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%q in %s fires at\n%v, want\n%v", line, c.zone, got, want)
			}
		}
	}
}

func (l *Line) matches(t time.Time) bool {
	return l.months>>t.Month()&1 == 1 && l.day(t) && l.hours>>t.Hour()&1 == 1 && l.minutes>>t.Minute()&1 == 1
}

func FuzzParse(f *testing.F) {
	f.Add("0 3 * * *", int64(0))
	f.Add("*/5 22-2 29 2 7", int64(1<<40))
	f.Add("@daily", int64(-1))
	f.Add("TZ=0", int64(5))
	berlin := zone(f, "Europe/Berlin")
	f.Fuzz(func(t *testing.T, line string, ms int64) {
		l, err := Parse(line, berlin)
		if err != nil {
			return
		}
		after := time.UnixMilli(ms % 4e12)
		next := l.Next(after)
		if !next.After(after) || next.Sub(next.Truncate(time.Minute)) != 0 && next.Year() > 1900 {
			t.Fatalf("%q fires at %v after %v", line, next, after)
		}
		if again := l.Next(next.Add(-1)); !again.Equal(next) {
			t.Fatalf("%q fires at %v or %v after %v", line, next, again, after)
		}
	})
}
